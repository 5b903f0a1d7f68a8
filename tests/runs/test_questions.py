"""Handlers that ask: questions, ready tools, and gated functions inside of a handler.

Handlers note in a list what they did. The one invariant: what had finished before a question is not done again where a
gate stood before it. What is asked at a place of a run counts there, and stops counting as waiting once it was heard.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import Agent, Review, Tool, Workflow, load_run, suspend
from sayso.model.request import State
from sayso.runs.decisions import IgnoredDecisionWarning, ask_user, ask_user_multi, confirm
from sayso.stores.base import Store
from sayso.testing import ScriptedModel
from tests.conftest import Clock
from tests.support.running import agent_of, answers, ids, questions, reason, started, yes


@pytest.mark.parametrize("gated", [False, True])
def test_a_handler_asks_and_goes_on_with_the_answer(each_store: Store, ran: list[Any], gated: bool) -> None:
    def plan(city: str) -> str:
        day = suspend({"question": "Which day?"}, kind="day", response_schema={"type": "integer", "minimum": 1})
        sure = suspend({"question": "Sure?"}, response_schema={"type": "boolean"})
        ran.append(city)
        return f"{city} {day} {sure}"

    tool = Tool(plan, requires_approval=gated)
    output = started(tool, city="Ulm")
    if gated:
        output = tool(resume=yes(output)).run()
    assert (reason(output), output.usage) == (("cancelled", "input_required"), {"suspends:required": 1})
    (entry,) = output.metadata["pending_interactions"]
    assert (entry["kind"], entry["payload"]) == ("day", {"question": "Which day?"})
    assert load_run(output.run_id).pending_interactions() == [entry]
    with pytest.warns(IgnoredDecisionWarning):
        refused = tool(resume=answers(output, 0)).run()
    assert refused.metadata["pending_interactions"][0]["metadata"]["interaction"]["refused"]
    output = tool(resume=answers(output, 3)).run()
    assert output.metadata["pending_interactions"][0]["payload"] == {"question": "Sure?"}
    sayso.Review().answer(questions(output)[0], True)
    output = tool(parent_id=output.run_id).run()
    assert (reason(output), output.output, ran) == (("success", None), "Ulm 3 True", ["Ulm"])
    if gated:
        assert output.usage == {"approvals:approved": 1}


def test_ready_tools_ask_the_user(each_store: Store) -> None:
    agent = agent_of(
        [ask_user, ask_user_multi, confirm],
        [
            ("ask_user", {"question": "Colour?", "options": ["red", "blue"]}),
            ("ask_user_multi", {"question": "Sizes?", "options": ["s", "m"]}),
            ("confirm", {"action": "Order it?"}),
        ],
    )
    paused = started(agent, prompt="go")
    assert paused.usage["suspends:required"] == 3
    known = {entry["kind"]: entry["interaction_id"] for entry in paused.metadata["pending_interactions"]}
    one, two, three = known["ask_user"], known["ask_user_multi"], known["confirm"]
    with pytest.warns(IgnoredDecisionWarning):
        refused = agent(resume={one: "green"}).run()
    assert set(questions(refused)) == {one, two, three}
    output = agent(resume={one: "blue", two: ["s", "m"], three: False}).run()
    assert output.output == 'blue | ["s", "m"] | false'


def test_a_payload_that_is_no_json_is_an_error_of_the_handler(memory: None) -> None:
    output = Tool(lambda: suspend({"question": "?", "at": object()}), name="asks")().run()
    assert output.status.code == "error"
    assert output.error is not None


def test_questions_outside_of_a_run_are_refused() -> None:
    with pytest.raises(RuntimeError, match="in a run"):
        suspend({"question": "?"})


def test_an_expired_question_is_asked_anew(each_store: Store, clock: Clock) -> None:
    tool = Tool(lambda: suspend({"question": "?"}), name="asks")
    paused = started(tool)
    clock.tick(hours=24)
    again = tool(parent_id=paused.run_id).run()
    assert reason(again) == ("cancelled", "input_required")
    assert questions(again) != questions(paused)
    assert again.metadata["pending_interactions"][0]["metadata"]["interaction"]["expired"] is True
    assert tool(resume=answers(again, "yes")).run().output == "yes"


@pytest.mark.parametrize("gated", [False, True])
def test_a_gated_function_inside_of_a_handler_waits_for_its_own(each_store: Store, ran: list[Any], gated: bool) -> None:
    @sayso.confirm_first
    def delete(path: str) -> str:
        ran.append(path)
        return f"deleted {path}"

    def tidy(paths: list[str]) -> str:
        return ", ".join(delete(path) for path in paths)

    agent = agent_of([Tool(tidy, requires_approval=gated)], [("tidy", {"paths": ["a", "b"]})])
    output = started(agent, prompt="go")
    for _ in range(3 if gated else 2):
        assert reason(output) == ("cancelled", "approval_required")
        assert len(ids(output)) == 1
        output = agent(resume=yes(output)).run()
    assert (output.output, ran) == ("deleted a, deleted b", ["a", "b"])


def test_equal_gated_calls_inside_of_a_handler_wait_one_by_one(each_store: Store, ran: list[Any]) -> None:
    @sayso.confirm_first
    async def delete(path: str) -> None:
        ran.append(path)

    async def tidy() -> str:
        await delete("a")
        await delete("a")
        return suspend({"question": "done?"})

    tool = Tool(tidy)
    output = started(tool)
    for n in (1, 2):
        output = tool(resume=yes(output)).run()
        assert ran == ["a"] * n
    assert tool(resume=answers(output, "yes")).run().output == "yes"
    assert ran == ["a", "a"]


def test_a_no_to_a_function_inside_is_a_no_to_the_handlers_caller(each_store: Store, ran: list[Any]) -> None:
    @sayso.confirm_first
    def delete(path: str) -> None:
        ran.append(path)

    tool = Tool(lambda: delete("a"), name="tidy")
    output = tool(resume=dict.fromkeys(ids(started(tool)), False)).run()
    assert (reason(output), ran) == (("cancelled", "approval_denied"), [])


def test_an_equal_question_of_a_later_step_is_another_question(each_store: Store) -> None:
    def first() -> str:
        return sayso.ask("Which warehouse?", wait="raise")

    def second() -> str:
        return sayso.ask("Which warehouse?", wait="raise")

    flow = Workflow(name="flow").step(first).step(second, depends_on=["first"])
    run_id, heard = flow().run().run_id, ["berlin", "lyon"]
    for answer in heard:
        (waits,) = Review().list(kind="question").requests
        Review().answer(waits.id, answer)
        output = flow(parent_id=run_id).run()
    assert output.output == {"first": "berlin", "second": "lyon"}


def test_a_run_whose_answer_was_heard_is_not_ready_for_it_again(each_store: Store) -> None:
    def handler() -> list[Any]:
        return [suspend({"question": "one?"}), suspend({"question": "two?"})]

    tool = Tool(handler)
    paused = tool().run()
    (one,) = paused.metadata["pending_interactions"]
    Review().answer(one["interaction_id"], "1")
    assert each_store.ready_runs(["handler"]) == [paused.run_id]
    paused = tool(parent_id=paused.run_id).run()
    (two,) = paused.metadata["pending_interactions"]
    assert two["payload"] == {"question": "two?"}
    assert list(each_store.ready_runs(["handler"])) == []
    Review().answer(two["interaction_id"], "2")
    assert tool(parent_id=paused.run_id).run().output == ["1", "2"]


def test_a_run_whose_inner_call_was_approved_is_not_ready_for_it_again(each_store: Store) -> None:
    @sayso.confirm_first
    def wipe(path: str) -> str:
        return f"wiped {path}"

    def handler() -> list[str]:
        return [wipe("a"), wipe("b")]

    tool = Tool(handler)
    paused = tool().run()
    for path in ("a", "b"):
        (waits,) = Review().list(state=State.PENDING).requests
        assert waits.call.arguments == {"path": path}
        assert list(each_store.ready_runs(["handler"])) == []
        Review().approve(waits.id)
        assert each_store.ready_runs(["handler"]) == [paused.run_id]
        output = tool(parent_id=paused.run_id).run()
    assert output.output == ["wiped a", "wiped b"]


def test_cancelling_a_call_inside_of_a_handler_ends_the_run(each_store: Store) -> None:
    @sayso.confirm_first
    def wipe(path: str) -> str:
        return f"wiped {path}"

    def handler() -> str:
        return wipe("a")

    after: list[str] = []
    flow = Workflow(name="flow").step(handler).step(lambda: after.append("x"), name="after")
    flow = flow.step(lambda handler: after.append(handler), name="last")  # noqa: PLW0108  named as the step
    paused = flow().run()
    (waits,) = Review().list(state=State.PENDING).requests
    Review().cancel(waits.id, "enough")
    output = flow(parent_id=paused.run_id).run()
    assert (output.status.code, output.status.reason, after) == ("cancelled", "cancelled", ["x"])


def test_many_calls_of_one_turn_do_not_each_bring_what_all_have_to_save(tmp_path: Path) -> None:
    path, many = tmp_path / "sayso.jsonl", 300
    ran: list[int] = []

    async def pay(n: int, note: str) -> int:
        ran.append(n)
        return n

    calls = [("pay", {"n": n, "note": "x" * 200}) for n in range(many)]
    agent = Agent(
        model=ScriptedModel([calls, "done"]), tools=[Tool(pay, requires_approval=True)], store=f"jsonl:{path}"
    )
    paused = agent(prompt="go").run()
    before = path.stat().st_size
    yes = {entry["approval_id"]: True for entry in paused.metadata["pending_approvals"]}
    output = agent(parent_id=paused.run_id, resume=yes).run()
    assert (output.output, sorted(ran)) == ("done", list(range(many)))
    # The model's turn holds every call: once is 100 kB, and once with each call would be 30 MB.
    assert before < 3_000_000
    assert path.stat().st_size < 10_000_000
