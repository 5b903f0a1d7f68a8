"""`ReAct`: what pauses it, what a person's response does, and what it never does whatever it is resumed from.

Every model here is a script; what a model is told is read from what the script was given. The code of the seed's
description stands in `test_react_as_described`, secrets and changed states in `test_react_states`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import ConfirmationRejected, ConfirmationRequired, ResumeState, errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.runs.agent import Tool, tool
from sayso.runs.events import DeltaEvent
from sayso.runs.module import Prediction
from sayso.runs.react import NoAnswerError, ReAct
from sayso.stores.base import Filter, Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.runs.reacting import ANSWER, Script, agent_of, deleter, observed, save
from tests.support.acting import Disk, aheld, state_of

Made = Callable[..., Any]


@pytest.fixture
def delete(disk: Disk) -> Tool:
    return deleter(disk)


async def paused(agent: ReAct, **inputs: Any) -> ConfirmationRequired:
    return await aheld(agent.aforward, **(inputs or {"question": "Delete /tmp/a"}))


# -- a pause -------------------------------------------------------------------------------------------------------


async def _pause_and_yes(disk: Disk, delete: Tool) -> None:
    model = Script([("delete_file", {"path": "/tmp/a"})], ANSWER)
    agent = agent_of(model, delete)
    signal = await paused(agent)
    assert disk.deleted == []
    assert signal.question == 'Confirm execution of delete_file(path="/tmp/a")?'
    assert signal.tool_call == {"name": "delete_file", "args": {"path": "/tmp/a"}, "call_id": "call_1_1"}
    context = json.loads(json.dumps(signal.context))
    assert context == signal.context
    assert (context["iteration"], context["input_args"]) == (0, {"question": "Delete /tmp/a"})
    assert context["original_question"] == "Delete /tmp/a"
    assert context["pending_tool_call"] == {"name": "delete_file", "args": {"path": "/tmp/a"}, "id": "call_1_1"}
    assert sayso.Review().get(signal.confirmation_id).run_id == context["run_id"]

    result = await agent.aresume("yes", signal)

    assert isinstance(result, Prediction)
    assert result.answer == "done"
    assert disk.deleted == ["/tmp/a"]
    assert observed(model) == ["Deleted /tmp/a"]
    assert result.trajectory["observation_0"] == "Deleted /tmp/a"
    assert state_of(signal.confirmation_id) is State.DONE


def test_gated_call_waits_and_runs_once_after_a_yes(disk: Disk, delete: Tool) -> None:
    asyncio.run(_pause_and_yes(disk, delete))


def payer_with_effect() -> tuple[list[str], Tool]:
    """Return a tool that waits for a person, and the list of whom it paid."""
    paid: list[str] = []

    @tool(require_confirmation=True, effect="pay:{to}")
    def pay(to: str) -> str:
        paid.append(to)
        return "paid"

    return paid, pay


def test_a_model_that_repeats_an_effect_is_told_and_its_run_goes_on(store: Store) -> None:
    paid, pay = payer_with_effect()
    model = Script([("pay", {"to": "bob"})], [("pay", {"to": "bob"})], ANSWER)
    agent = agent_of(model, pay)
    first = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRequired) as second:
        agent.resume("yes", first)
    assert agent.resume("yes", second.value).answer == "done"
    told = f"pay was not run: its effect 'pay:bob' is taken by {first.confirmation_id}, which is done. This is final"
    assert observed(model)[1].startswith(told)
    assert state_of(second.value.confirmation_id) is State.CANCELLED
    assert paid == ["bob"]


def test_a_model_is_told_which_call_inside_a_tool_has_a_taken_effect(store: Store) -> None:
    @sayso.gate(wait="raise", effect="ship:{to}")
    def ship(to: str) -> str:
        return to

    @tool
    def order(to: str) -> str:
        return ship(to)

    other = store.ask(sample_call("run_1", effect="ship:bob"))
    sayso.Review().approve(other.id, by="ada")
    store.start(other.id, "t")
    store.finish(other.id, "t", Outcome("done"))
    model = Script([("order", {"to": "bob"})], [("order", {"to": "bob"})], ANSWER)
    agent = agent_of(model, order)
    assert agent.resume("yes", asyncio.run(paused(agent))).answer == "done"
    assert observed(model)[1].startswith(f"ship was not run: its effect 'ship:bob' is taken by {other.id}")


def test_a_call_whose_effect_may_yet_fail_stops_the_run_until_that_is_known(store: Store) -> None:
    paid, pay = payer_with_effect()
    other = store.ask(sample_call("run_1", effect="pay:bob"))
    sayso.Review().approve(other.id, by="ada")
    store.start(other.id, "t")
    agent = agent_of(Script([("pay", {"to": "bob"})], ANSWER), pay)
    signal = asyncio.run(paused(agent))
    with pytest.raises(errors.EffectTakenError, match="which is running"):
        agent.resume("yes", signal)
    store.finish(other.id, "t", Outcome("failed"))
    assert agent.resume("yes", signal).answer == "done"
    assert paid == ["bob"]


@pytest.mark.parametrize("yes", ["yes", "y", " YES ", "Y\n"])
def test_every_spelling_of_yes_approves(yes: str, disk: Disk, delete: Tool) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/tmp/a"})], ANSWER), delete)
    agent.resume(yes, asyncio.run(paused(agent)))
    assert disk.deleted == ["/tmp/a"]


@pytest.mark.parametrize("no", ["no", "n", " No ", "N"])
def test_every_spelling_of_no_ends_the_run_and_nothing_runs(no: str, disk: Disk, delete: Tool) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/tmp/a"})], ANSWER), delete)
    signal = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRejected, match="was rejected") as caught:
        agent.resume(no, signal)
    assert caught.value.confirmation_id == signal.confirmation_id
    assert disk.deleted == []
    assert state_of(signal.confirmation_id) is State.REJECTED


def test_after_a_no_the_model_may_go_on_without_the_call(disk: Disk, delete: Tool) -> None:
    model = Script([("delete_file", {"path": "/tmp/a"})], ANSWER)
    agent = agent_of(model, delete, on_rejection="continue")
    assert agent.resume("no", asyncio.run(paused(agent))).answer == "done"
    assert disk.deleted == []
    assert "rejected it" in observed(model)[0]
    assert "do not repeat this call" in observed(model)[0]


def test_words_are_feedback_and_the_same_call_then_asks_anew(disk: Disk, delete: Tool) -> None:
    call = [("delete_file", {"path": "/tmp/a"})]
    model = Script(call, call, ANSWER)
    agent = agent_of(model, delete)
    first = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRequired) as again:
        agent.resume("look into it first", first)
    assert disk.deleted == []
    assert state_of(first.confirmation_id) is State.FEEDBACK
    assert "look into it first" in observed(model)[0]
    assert again.value.confirmation_id != first.confirmation_id
    assert again.value.context["iteration"] == 1
    assert agent.resume("yes", again.value).answer == "done"
    assert disk.deleted == ["/tmp/a"]


def test_no_words_decide_nothing_and_it_still_waits(disk: Disk, delete: Tool) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/tmp/a"})], ANSWER), delete)
    signal = asyncio.run(paused(agent))
    for nothing in ("", "  \n", None):
        with pytest.raises(ConfirmationRequired) as again:
            agent.resume(nothing, signal)
        assert again.value.confirmation_id == signal.confirmation_id
    assert disk.deleted == []


# -- edits ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def copies(store: Store) -> tuple[Tool, list[tuple[str, str, int]]]:
    ran: list[tuple[str, str, int]] = []

    @tool(require_confirmation=True)
    def copy_file(source: str = "/tmp/a", target: str = "/tmp/b", tries: int = 1) -> str:
        """Copy a file."""
        ran.append((source, target, tries))
        return "copied"

    return copy_file, ran


@pytest.mark.parametrize(
    ("response", "runs_with"),
    [
        ('{"source": "/x", "target": "/y", "tries": 3}', ("/x", "/y", 3)),
        ('{"target": "/y"}', ("/from", "/y", 2)),
        (' {"tries": "4"} ', ("/from", "/to", 4)),
        ("{}", ("/tmp/a", "/tmp/b", 1)),
    ],
)
def test_json_object_changes_the_arguments(response: str, runs_with: Any, copies: Any) -> None:
    copy_file, ran = copies
    model = Script([("copy_file", {"source": "/from", "target": "/to", "tries": 2})], ANSWER)
    agent = agent_of(model, copy_file)
    signal = asyncio.run(paused(agent))
    assert agent.resume(response, signal).answer == "done"
    assert ran == [runs_with]
    assert "changed the arguments before" in observed(model)[0]
    assert sayso.get_confirmation_status(signal.confirmation_id) == "edited"


@pytest.mark.parametrize(
    "response",
    ['{"tries": "many"}', '{"nothing": 1}', '{"tries": 1', '{"tries": 1, "tries": 2}', '{"tries": NaN}', '{"a"} or so'],
)
def test_bad_edit_decides_nothing_and_the_request_still_waits(response: str, copies: Any) -> None:
    copy_file, ran = copies
    agent = agent_of(Script([("copy_file", {"tries": 2})], ANSWER), copy_file)
    signal = asyncio.run(paused(agent))
    with pytest.raises(errors.InvalidChangesError):
        agent.resume(response, signal)
    assert ran == []
    assert state_of(signal.confirmation_id) is State.PENDING
    assert agent.resume("yes", signal).answer == "done"
    assert ran == [("/tmp/a", "/tmp/b", 2)]


# -- decisions through other channels ------------------------------------------------------------------------------


@pytest.mark.parametrize("response", [None, "yes", "no", "wait", '{"path": "/tmp/other"}'])
def test_approval_through_another_channel_counts_whatever_is_said_here(
    response: str | None, disk: Disk, delete: Tool
) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/tmp/a"})], ANSWER), delete)
    signal = asyncio.run(paused(agent))
    sayso.Review().approve(signal.confirmation_id, by="ada", comment="go")
    assert agent.resume(response, signal).answer == "done"
    assert disk.deleted == ["/tmp/a"]


def test_rejection_through_another_channel_counts_whatever_is_said_here(disk: Disk, delete: Tool) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/tmp/a"})], ANSWER), delete)
    signal = asyncio.run(paused(agent))
    sayso.Review().reject(signal.confirmation_id, "not today", by="ada")
    with pytest.raises(ConfirmationRejected, match="not today"):
        agent.resume("yes", signal)
    assert disk.deleted == []


def test_cancel_ends_the_run_also_where_a_no_would_not(disk: Disk, delete: Tool) -> None:
    calls = [("delete_file", {"path": "/tmp/a"}), ("delete_file", {"path": "/tmp/b"})]
    agent = agent_of(Script(calls, ANSWER), delete, on_rejection="continue")
    signal = asyncio.run(paused(agent))
    other = signal.context["waiting"][1]["request"]
    sayso.Review().cancel(signal.confirmation_id, by="ada")
    with pytest.raises(sayso.ConfirmationCancelled):
        agent.resume(None, signal)
    assert state_of(other) is State.CANCELLED
    assert disk.deleted == []


def test_request_that_expired_is_asked_anew(disk: Disk, delete: Tool, clock: Clock) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/tmp/a"})], ANSWER), delete)
    first = asyncio.run(paused(agent))
    clock.tick(hours=25)
    with pytest.raises(ConfirmationRequired) as again:
        agent.resume("yes", first)
    assert again.value.confirmation_id != first.confirmation_id
    assert disk.deleted == []
    agent.resume("yes", again.value)
    assert disk.deleted == ["/tmp/a"]


def test_quorum_is_met_by_two_persons(store: Store) -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)

    agent = agent_of(Script([("pay", {"amount": 5})], ANSWER), Tool(pay, requires_approval=True, quorum=2))
    signal = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRequired) as again:
        agent.resume("yes", signal)
    assert again.value.confirmation_id == signal.confirmation_id
    assert ran == []
    sayso.Review().approve(signal.confirmation_id, by="grace")
    assert agent.resume(None, again.value).answer == "done"
    assert ran == [5]


# -- several calls in one turn -------------------------------------------------------------------------------------


def test_calls_that_wait_in_one_turn_are_decided_one_after_another(disk: Disk, delete: Tool) -> None:
    looked: list[str] = []

    def look(path: str) -> str:
        looked.append(path)
        return f"{path} is old"

    calls = [("delete_file", {"path": "/a"}), ("look", {"path": "/b"}), ("delete_file", {"path": "/c"})]
    model = Script(calls, ANSWER)
    agent = agent_of(model, delete, look)
    first = asyncio.run(paused(agent))
    assert looked == ["/b"]  # what waits for nobody has run
    with pytest.raises(ConfirmationRequired) as second:
        agent.resume("yes", first)
    assert disk.deleted == ["/a"]
    assert second.value.tool_call is not None
    assert second.value.tool_call.args == {"path": "/c"}
    assert agent.resume("yes", second.value).answer == "done"
    assert (disk.deleted, looked) == (["/a", "/c"], ["/b"])
    assert observed(model) == ["Deleted /a", "/b is old", "Deleted /c"]  # in the order of the calls


def test_two_identical_calls_in_one_turn_wait_twice(disk: Disk, delete: Tool) -> None:
    call = ("delete_file", {"path": "/a"})
    agent = agent_of(Script([call, call], ANSWER), delete)
    first = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRequired) as second:
        agent.resume("yes", first)
    assert second.value.confirmation_id != first.confirmation_id
    assert disk.deleted == ["/a"]
    agent.resume("yes", save(second.value))
    assert disk.deleted == ["/a", "/a"]


def test_identical_call_in_a_later_turn_asks_anew(disk: Disk, delete: Tool) -> None:
    call = [("delete_file", {"path": "/a"})]
    agent = agent_of(Script(call, call, ANSWER), delete)
    first = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRequired) as second:
        agent.resume("yes", first)
    assert second.value.confirmation_id != first.confirmation_id
    with pytest.raises(ConfirmationRejected):
        agent.resume("no", second.value)
    assert disk.deleted == ["/a"]


def test_no_to_one_call_takes_back_the_others_of_its_turn(disk: Disk, delete: Tool, store: Store) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/a"}), ("delete_file", {"path": "/b"})], ANSWER), delete)
    signal = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRejected):
        agent.resume("no", signal)
    assert store.list(Filter(states=frozenset({State.PENDING}))).requests == ()
    assert disk.deleted == []


def test_finish_beside_a_call_that_waits_is_not_taken(disk: Disk, delete: Tool) -> None:
    model = Script([("delete_file", {"path": "/a"}), ("finish", {"answer": "guessed"})], ANSWER)
    agent = agent_of(model, delete)
    assert agent.resume("yes", asyncio.run(paused(agent))).answer == "done"
    assert "not accepted" in observed(model)[1]


def test_calls_without_labels_of_their_own_are_told_apart(disk: Disk, delete: Tool) -> None:
    calls = [{"name": "delete_file", "arguments": {"path": path}, "id": "same"} for path in ("/a", "/b")]
    model = Script({"calls": calls}, ANSWER)
    agent = agent_of(model, delete)
    first = asyncio.run(paused(agent))
    said = first.context["messages"][-1]["tool_calls"]
    assert [call["arguments"] for call in said] == [{"path": "/a"}, {"path": "/b"}]
    assert len({call["id"] for call in said}) == 2
    with pytest.raises(ConfirmationRequired) as second:
        agent.resume("yes", first)
    agent.resume("yes", second.value)
    assert disk.deleted == ["/a", "/b"]
    assert observed(model) == ["Deleted /a", "Deleted /b"]


# -- answers -------------------------------------------------------------------------------------------------------


def test_wrong_answer_goes_back_to_the_model() -> None:
    model = Script(
        [("finish", {"answer": "4"})], [("finish", {"answer": "4", "score": "high"})],
        [("finish", {"answer": "4", "score": 0.5})],
    )  # fmt: skip
    result = ReAct("question -> answer: str, score: float", model=model)(question="2 + 2?")
    assert (result.answer, result.score) == ("4", 0.5)
    assert "score" in observed(model)[0]


def test_plain_text_is_the_answer_where_text_is_asked_for() -> None:
    assert ReAct("question -> answer", model=Script("4"))(question="2 + 2?").answer == "4"


def test_plain_text_is_no_answer_where_more_is_asked_for() -> None:
    model = Script("four", [("finish", {"answer": 4})])
    assert ReAct("question -> answer: int", model=model)(question="2 + 2?").answer == 4
    assert "call `finish`" in model.heard[-1][-1]["content"]


def test_last_turn_offers_nothing_but_finish() -> None:
    ran: list[str] = []

    def look(path: str) -> str:
        ran.append(path)
        return "nothing"

    call = [("look", {"path": "/a"})]
    model = Script(call, call, call)
    with pytest.raises(NoAnswerError, match="3 turns") as caught:
        agent_of(model, look, max_iters=2)(question="?")
    assert ran == ["/a", "/a"]
    assert [[one["name"] for one in offered] for offered in model.offered] == [
        ["look", "ask_to_user", "finish"], ["look", "ask_to_user", "finish"], ["finish"],
    ]  # fmt: skip
    assert caught.value.trajectory["observation_1"] == "nothing"
    assert agent_of(Script(call, call, ANSWER), look, max_iters=2)(question="?").answer == "done"


def test_what_a_call_does_wrong_is_told_to_the_model(delete: Tool, disk: Disk) -> None:
    def fail(reason: str) -> str:
        raise ValueError(reason)

    wrong = [("nothing", {}), ("delete_file", {"pth": "/a"}), ("delete_file", "{broken"), ("fail", {"reason": "full"})]
    model = Script(*[[call] for call in wrong], ANSWER)
    assert agent_of(model, delete, fail)(question="?").answer == "done"
    told = observed(model)
    assert "there is no tool 'nothing'" in told[0]
    assert "pth" in told[1]
    assert "JSON" in told[2]
    assert told[3] == "ValueError: full"
    assert disk.deleted == []


def test_inputs_that_do_not_fit_are_refused_before_the_model_is_asked() -> None:
    model = Script("never")
    agent = ReAct("question, limit: int -> answer", model=model)
    for wrong in ({"question": "?"}, {"question": "?", "limit": "many"}, {"question": "?", "limit": 1, "more": 2}):
        with pytest.raises(TypeError, match="inputs do not fit"):
            agent(**wrong)
    assert model.heard == []


# -- questions -----------------------------------------------------------------------------------------------------


def test_model_asks_the_user_and_gets_the_answer_as_it_was_said(store: Store) -> None:
    model = Script([("ask_to_user", {"question": "Which folder?"})], ANSWER)
    agent = agent_of(model)
    signal = asyncio.run(paused(agent))
    assert (signal.question, signal.tool_call) == ("Which folder?", None)
    assert sayso.Review().get(signal.confirmation_id).kind == "question"
    assert agent.resume("no, not that one", save(signal)).answer == "done"
    assert observed(model) == ["no, not that one"]


@pytest.mark.parametrize("is_in_one_turn", [True, False])
def test_same_question_twice_is_answered_twice(is_in_one_turn: bool, store: Store) -> None:
    ask = ("ask_to_user", {"question": "More?"})
    model = Script([ask, ask], ANSWER) if is_in_one_turn else Script([ask], [ask], ANSWER)
    agent = agent_of(model)
    first = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRequired) as second:
        agent.resume("yes", save(first))
    assert second.value.confirmation_id != first.confirmation_id
    agent.resume("no", save(second.value))
    assert observed(model) == ["yes", "no"]


def test_question_is_answered_through_another_channel(store: Store) -> None:
    model = Script([("ask_to_user", {"question": "Which folder?"})], ANSWER)
    agent = agent_of(model)
    signal = asyncio.run(paused(agent))
    sayso.Review().answer(signal.confirmation_id, "/srv", by="ada")
    agent.resume("/tmp", signal)
    assert observed(model) == ["/srv"]


def test_model_may_not_ask_where_that_is_switched_off() -> None:
    model = Script([("ask_to_user", {"question": "Which?"})], ANSWER)
    assert agent_of(model, enable_ask_to_user=False)(question="?").answer == "done"
    assert "no tool 'ask_to_user'" in observed(model)[0]


# -- tools of every kind -------------------------------------------------------------------------------------------


def test_functions_gates_and_foreign_tools_are_tools(disk: Disk) -> None:
    class Foreign:
        name, desc = "remove", "Remove a file."

        def __init__(self) -> None:
            self.func = lambda path: f"removed {path}"

    @sayso.confirm_first
    def delete_file(path: str) -> str:
        return disk.delete(path)

    @sayso.gate(wait="raise")
    async def adelete_file(path: str) -> str:
        return disk.delete(path)

    names = ("remove", "delete_file", "adelete_file")
    model = Script([(name, {"path": f"/{name}"}) for name in names], ANSWER)
    agent = agent_of(model, Foreign(), delete_file, adelete_file)
    with pytest.raises(ConfirmationRequired) as second:
        agent.resume("yes", asyncio.run(paused(agent)))
    agent.resume('{"path": "/else"}', save(second.value))
    assert disk.deleted == ["/delete_file", "/else"]
    assert observed(model)[:2] == ["removed /remove", "Deleted /delete_file"]


def test_value_of_a_key_that_is_made_for_each_call_is_that_of_the_request(store: Store) -> None:
    ran: list[str] = []
    keys = iter(["key-1", "key-2", "key-3"])

    def pay(amount: int, idempotency_key: str) -> str:
        ran.append(idempotency_key)
        return f"paid {amount}"

    paying = Tool(pay, requires_approval=True, default_params={"idempotency_key": lambda: next(keys)})
    agent = agent_of(Script([("pay", {"amount": 5})], ANSWER), paying)
    assert agent.resume("yes", save(asyncio.run(paused(agent)))).answer == "done"
    assert ran == ["key-1"]


def test_call_that_a_rule_denies_is_told_to_the_model_and_nobody_is_asked(disk: Disk, store: Store) -> None:
    @sayso.gate(wait="raise", when=lambda path: sayso.deny(f"{path} is not ours"))
    def delete_file(path: str) -> str:
        return disk.delete(path)

    model = Script([("delete_file", {"path": "/etc"})], ANSWER)
    assert agent_of(model, delete_file)(question="?").answer == "done"
    assert "was not run: /etc is not ours. This is final: do not repeat this call" in observed(model)[0]
    assert disk.deleted == []
    assert store.list(Filter()).requests == ()


def test_rule_that_fails_ends_the_run_and_no_model_is_told_how_to_get_around_it(disk: Disk) -> None:
    @tool(requires_approval=lambda path: len(path) / 0)
    def delete_file(path: str) -> str:
        return disk.delete(path)

    model = Script([("delete_file", {"path": "/etc"})])
    with pytest.raises(errors.PolicyError, match="ZeroDivisionError"):
        agent_of(model, delete_file)(question="?")
    assert disk.deleted == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tools": [7]}, "not a tool"),
        ({"tools": [Tool(lambda: 1, name="finish")]}, "'finish'"),
        ({"tools": [Tool(lambda: 1, name="ask_to_user")]}, "'ask_to_user'"),
        ({"tools": [Tool(lambda: 1, name="a"), Tool(lambda: 2, name="a")]}, "two tools"),
        ({"max_iters": 0}, "max_iters"),
        ({"max_iters": True}, "max_iters"),
        ({"on_rejection": "ignore"}, "on_rejection"),
        ({"model": None}, "not a model"),
        ({"signature": "resume_state -> answer"}, "resume_state"),
        ({"signature": "question"}, "->"),
    ],
)
def test_agent_that_cannot_work_is_refused_when_it_is_made(options: dict[str, Any], why: str) -> None:
    with pytest.raises(errors.ConfigError, match=why):
        ReAct(**{"signature": "question -> answer", "tools": [], "model": Script(), **options})


# -- every way of calling ------------------------------------------------------------------------------------------


def test_every_face_takes_every_form_of_a_pause(delete: Tool, disk: Disk) -> None:
    forms: list[Callable[[ConfirmationRequired], dict[str, Any]]] = [
        lambda signal: {"resume_state": ResumeState(signal, "yes")},
        lambda signal: {"resume_state": ResumeState(signal, "yes").to_dict()},
        lambda signal: {"resume_state": signal, "user_response": "yes"},
        lambda signal: {"resume_state": signal.to_dict(), "user_response": "yes"},
    ]

    async def streamed(agent: ReAct, given: dict[str, Any]) -> Any:
        return [event async for event in agent.astream(question="again", **given)][-1]

    faces: list[Callable[[ReAct, dict[str, Any]], Any]] = [
        lambda agent, given: agent(question="again", **given),
        lambda agent, given: agent.forward(question="again", **given),
        lambda agent, given: asyncio.run(agent.aforward(question="again", **given)),
        lambda agent, given: asyncio.run(streamed(agent, given)),
    ]
    for form in forms:
        for face in faces:
            agent = agent_of(Script([("delete_file", {"path": "/a"})], ANSWER), delete)
            assert face(agent, form(asyncio.run(paused(agent)))).answer == "done"
    assert disk.deleted == ["/a"] * 16


def test_pause_alone_approves_nothing(delete: Tool, disk: Disk) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/a"})], ANSWER), delete)
    signal = asyncio.run(paused(agent))
    with pytest.raises(ConfirmationRequired):
        agent(question="again", resume_state=signal)
    assert disk.deleted == []


def test_text_comes_as_it_streams_and_the_prediction_last() -> None:
    async def model(messages: list[Any], tools: list[Any]) -> Any:
        yield "two and two "
        yield "is four"

    async def main() -> list[Any]:
        return [event async for event in ReAct("question -> answer", model=model).astream(question="2 + 2?")]

    *deltas, last = asyncio.run(main())
    assert [event.text for event in deltas if isinstance(event, DeltaEvent)] == ["two and two ", "is four"]
    assert len(deltas) == 2
    assert last == {"answer": "two and two is four", "trajectory": last["trajectory"]}


def test_stream_that_is_left_early_ends_the_work(disk: Disk) -> None:
    is_over: list[str] = []

    async def model(messages: list[Any], tools: list[Any]) -> Any:
        try:
            yield "thinking"
            await asyncio.sleep(60)
        finally:
            is_over.append("closed")

    async def main() -> None:
        stream = ReAct("question -> answer", model=model).astream(question="?")
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(main())
    assert is_over == ["closed"]


def test_sync_face_inside_of_a_running_loop_says_what_to_use(delete: Tool) -> None:
    agent = agent_of(Script(ANSWER), delete)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="aforward"):
            agent(question="?")
        with pytest.raises(RuntimeError, match="aresume"):
            agent.resume("yes", None)

    asyncio.run(main())


def test_ten_agents_at_once_each_get_their_own_decision(store: Store) -> None:
    ran: list[str] = []

    @tool(require_confirmation=True)
    def publish(page: str) -> str:
        ran.append(page)
        return f"published {page}"

    async def one(number: int) -> str:
        agent = agent_of(Script([("publish", {"page": "same"})], ANSWER), publish)
        signal = await aheld(agent.aforward, question=f"Task {number}")
        try:
            return (await agent.aresume("no" if number % 2 else "yes", signal)).answer
        except ConfirmationRejected:
            return "rejected"

    async def main() -> list[str]:
        return await asyncio.gather(*[one(number) for number in range(10)])

    assert asyncio.run(main()) == ["done", "rejected"] * 5
    assert ran == ["same"] * 5


def test_a_store_that_is_away_delays_a_no_only_briefly(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [("delete_file", {"path": "a"}), ("delete_file", {"path": "b"})]
    agent = agent_of(Script(calls), deleter(disk))
    with pytest.raises(sayso.ConfirmationRequired) as pause:
        agent(question="delete a and b")
    asked = list[bool]()

    def away(self: Store, request_id: str, by: Any, reason: str | None = None, *, is_brief: bool = False) -> Any:
        asked.append(is_brief)
        raise sayso.errors.StoreError("the server is away")

    monkeypatch.setattr(Store, "withdraw", away)
    with pytest.raises(sayso.ConfirmationRejected) as no:
        agent.resume("no", pause.value)
    assert (no.value.confirmation_id, asked) == (pause.value.confirmation_id, [True])
