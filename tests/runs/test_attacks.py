"""Runs under attack: steps that lie, requests of others, decisions that are none, values that cannot be written down.

Whoever can write the store can say what they like in a step; a gated call counts as made only where its request says
so. The one invariant: no test here lets a call run that nobody approved, or run twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import ApprovalResolution, Tool, Workflow, confirm_first, errors, suspend
from sayso.model.canonical.json_tree import dumps
from sayso.model.request import State
from sayso.runs.definition import ApprovalPolicyDecision
from sayso.runs.events import parse_event
from sayso.runs.messages import ModelCall, Reply
from sayso.runs.state import RunHistory
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from tests.support.running import agent_of, awaited, ids, reason, started, yes


@pytest.fixture
def pay(ran: list[Any]) -> Tool:
    def pay(amount: int) -> str:
        ran.append(amount)
        return f"paid {amount}"

    return Tool(pay, requires_approval=True)


def altered(place: Path, statement: str, *values: Any) -> None:
    """Change the store's file behind everybody's back, and tie the rows of runs together anew, as a forger would."""
    with closing(sqlite3.connect(place / "sayso.db")) as file, file:
        assert file.execute(statement, values).rowcount > 0
        runs = file.execute("SELECT run_id, name, kind, state, holder, created_at, updated_at FROM run").fetchall()
        for run in runs:
            link = None
            steps = "SELECT n, place, body, waits FROM step WHERE run_id = ? ORDER BY n"
            for step in file.execute(steps, run[:1]).fetchall():
                link = digest([link, run[0], *step])
                file.execute("UPDATE step SET link = ? WHERE run_id = ? AND n = ?", (link, run[0], step[0]))
            file.execute("UPDATE run SET link = ? WHERE run_id = ?", (digest([link, *run]), run[0]))
    file.close()


def digest(values: list[Any]) -> str:
    """Return the digest that ties a row of a run to the one before it."""
    return hashlib.sha256(dumps(values).encode()).hexdigest()


def forged(path: str, name: str) -> str:
    """Return a step that says that a call was made."""
    return json.dumps(
        {
            "path": path, "name": name, "type": "tool", "t0": 1, "t1": 2, "status": {"code": "success"}, "input": {},
            "error": None, "usage": {}, "metadata": {}, "value": {"form": '{"value":"forged"}'},
        }
    )  # fmt: skip


def waits_for(place: Path, old: str, new: str) -> None:
    altered(place, "UPDATE step SET waits = ?, body = replace(body, ?, ?) WHERE waits = ?", new, old, new, old)


def test_a_tool_whose_quorum_was_taken_out_of_its_record_is_not_approved_by_one(
    place: Path, file_store: Store, ran: list[Any], pay: Tool
) -> None:
    guarded = Tool(pay.handler, requires_approval=True, quorum=2)
    paused = started(guarded, amount=1)
    altered(place, "UPDATE request SET asked = json_remove(asked, '$.quorum')")
    elsewhere = SqliteStore(place / "sayso.db")
    with pytest.raises(errors.StoreCorruptError, match="does not match the journal"):
        sayso.Review(elsewhere, reviewer="ada").approve(ids(paused)[0])
    elsewhere.close()
    refused = guarded(parent_id=paused.run_id).run()
    assert reason(refused) == ("error", "store_failed")
    assert ran == []


# -- steps that lie ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [False, True])
def test_a_run_does_not_take_up_the_request_of_another(
    place: Path, file_store: Store, ran: list[Any], pay: Tool, is_done: bool
) -> None:
    mine, other = started(pay, amount=1), started(pay, amount=500)
    sayso.Review(reviewer="ada").approve(ids(other)[0])
    if is_done:
        assert pay(parent_id=other.run_id).run().output == "paid 500"
    before = list(ran)
    waits_for(place, ids(mine)[0], ids(other)[0])
    assert pay(parent_id=mine.run_id).run().status.code == "error"
    assert ran == before


def test_two_places_of_a_run_cannot_swap_their_requests(
    place: Path, file_store: Store, ran: list[Any], pay: Tool
) -> None:
    flow = Workflow(name="flow").step(pay, name="first", amount=1).step(pay, name="second", amount=2)
    paused = started(flow)
    first, second = ids(paused)
    sayso.Review(reviewer="ada").approve(second)
    waits_for(place, first, second)
    assert flow(parent_id=paused.run_id).run().status.code == "error"
    assert ran == [2]


def test_a_question_of_another_run_gives_no_answer(place: Path, file_store: Store) -> None:
    def ask(n: int) -> str:
        return suspend({"question": f"question {n}?"})

    tool = Tool(ask)
    mine, other = started(tool, n=1), started(tool, n=2)
    asked = [out.metadata["pending_interactions"][0]["interaction_id"] for out in (mine, other)]
    sayso.Review(reviewer="ada").answer(asked[1], "for two")
    waits_for(place, *asked)
    assert tool(parent_id=mine.run_id).run().output is None


def test_a_step_that_claims_an_unapproved_call_was_made_is_not_believed(
    place: Path, file_store: Store, ran: list[Any], pay: Tool
) -> None:
    flow = Workflow(name="flow").step(pay, amount=1)
    paused = started(flow)
    altered(place, "UPDATE step SET waits = NULL, body = ? WHERE place = 'flow/pay'", forged("flow.pay", "pay"))
    again = flow(parent_id=paused.run_id).run()
    assert reason(again) == ("cancelled", "approval_required")
    assert ids(again) == ids(paused)
    assert flow(parent_id=paused.run_id, resume=yes(paused)).run().output == {"pay": "paid 1"}
    assert ran == [1]


def test_a_run_that_claims_to_have_ended_is_not_believed(
    place: Path, file_store: Store, ran: list[Any], pay: Tool
) -> None:
    paused = started(pay, amount=1)
    altered(place, "UPDATE step SET waits = NULL, body = ? WHERE place = 'pay'", forged("pay", "pay"))
    assert reason(pay(parent_id=paused.run_id).run()) == ("cancelled", "approval_required")
    assert pay(parent_id=paused.run_id, resume=yes(paused)).run().output == "paid 1"


def test_a_claimed_call_without_any_request_is_refused(
    place: Path, file_store: Store, ran: list[Any], pay: Tool
) -> None:
    flow = Workflow(name="flow").step(pay, amount=1)
    paused = started(flow)
    altered(place, "UPDATE step SET waits = NULL, body = ? WHERE place = 'flow/pay'", forged("flow.pay", "pay"))
    altered(place, "UPDATE request SET run_id = 'elsewhere'")
    refused = flow(parent_id=paused.run_id).run()
    assert refused.status.code == "error"
    assert "not trusted" in str(refused.status.message)
    assert ran == []


def test_a_forged_call_inside_of_a_handler_is_not_believed(place: Path, file_store: Store, ran: list[Any]) -> None:
    @confirm_first
    def wipe(n: int) -> str:
        ran.append(n)
        return f"wiped {n}"

    def both() -> str:
        return wipe(1) + wipe(2)

    tool = Tool(both)
    paused = started(tool)
    paused = tool(parent_id=paused.run_id, resume=yes(paused)).run()
    [request] = [r for r in sayso.Review().list(run=paused.run_id).requests if r.state is State.PENDING]
    altered(
        place, "UPDATE step SET waits = NULL, body = ?, place = ? WHERE place = 'both!'",
        json.dumps({"value": {"form": '{"value":"forged"}'}}), f"both!{request.call.digest}.1",
    )  # fmt: skip
    assert ids(tool(parent_id=paused.run_id).run()) == [request.id]
    assert tool(parent_id=paused.run_id, resume={request.id: True}).run().output == "wiped 1wiped 2"
    assert ran == [1, 2]


def test_what_a_rule_let_pass_is_believed_without_a_request(file_store: Store, ran: list[Any], pay: Tool) -> None:
    small = Tool(pay.handler, name="small", requires_approval=lambda amount: amount > 10)
    agent = agent_of([small, pay], [("small", {"amount": 1}), ("pay", {"amount": 2})])
    paused = started(agent, prompt="go")
    assert agent(parent_id=paused.run_id, resume=yes(paused)).run().status.code == "success"
    assert ran == [1, 2]


# -- requests of others --------------------------------------------------------------------------------------------


def test_a_decision_under_another_programs_run_name_does_not_count(each_store: Store, ran: list[Any]) -> None:
    @confirm_first
    def delete(path: str) -> str:
        ran.append(path)
        return "deleted"

    with sayso.run("order-1"), pytest.raises(sayso.ConfirmationRequired) as held:
        delete("/x")
    approved = held.value.confirmation_id
    sayso.Review(reviewer="ada").approve(approved)

    def tidy() -> str:
        return delete("/x")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = Tool(tidy)(resume={approved: True}).run()
    assert output.run_id != "order-1"
    assert reason(output) == ("cancelled", "approval_required")
    assert ran == []


@pytest.mark.parametrize("name", ["", " x", "a\x1b[31m", "\u202ex", "a\nb", "\ud800", "x" * 201, 5])
def test_a_run_is_not_named_by_what_cannot_be_shown(memory: Store, pay: Tool, name: Any) -> None:
    for given in ({"run_id": name}, {"parent_id": name}):
        with pytest.raises((TypeError, ValueError), match="a run's name"):
            pay(amount=1, **given)


# -- decisions that are none ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"approved": True, "override": {"amount": 1}},
        {"approved": True, "overrideInput": {"amount": 1}},
        {"approved": "yes"},
        {"approved": 1},
    ],
)
def test_a_decision_with_a_misspelt_field_decides_nothing(
    each_store: Store, ran: list[Any], pay: Tool, given: Any
) -> None:
    paused = started(pay, amount=77)
    with pytest.warns(UserWarning, match="was not recorded"):
        output = pay(resume={ids(paused)[0]: given}).run()
    assert reason(output) == ("cancelled", "approval_required")
    assert ran == []


@pytest.mark.parametrize("approved", ["yes", 1, "no", None])
def test_a_resolution_is_true_or_false(approved: Any) -> None:
    with pytest.raises(ValueError, match="approved"):
        ApprovalResolution(approved=approved)
    with pytest.raises(ValueError, match="required"):
        ApprovalPolicyDecision(required=approved)


@pytest.mark.parametrize("given", [[("rq", True)], "rq", True])
def test_decisions_come_by_id(memory: Store, pay: Tool, given: Any) -> None:
    with pytest.raises(TypeError, match="by request id"):
        pay(amount=1, resume=given)


def test_an_id_that_no_file_takes_is_unknown(each_store: Store, pay: Tool) -> None:
    with pytest.warns(UserWarning, match="no request"):
        assert reason(pay(amount=1, resume={"\ud800": True}).run()) == ("cancelled", "approval_required")


@pytest.mark.parametrize("odd", [object(), float("nan"), {1, 2}, "\ud800"])
def test_metadata_of_a_decision_cannot_lose_what_the_call_did(
    each_store: Store, ran: list[Any], pay: Tool, odd: Any
) -> None:
    paused = started(pay, amount=1)
    said = ApprovalResolution(approved=True, metadata={"odd": odd})
    output = pay(resume={ids(paused)[0]: said}).run()
    assert parse_event(output.model_dump_json()).run_id == paused.run_id
    assert output.output == "paid 1"
    assert sayso.Review().get(ids(paused)[0]).state is State.DONE
    assert ran == [1]


# -- values and words that cannot be written down ------------------------------------------------------------------


class Mute:
    """Something that says nothing of itself."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class MuteError(Exception):
    """An error without words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def _round() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(2000):
        value = [value]
    return value


ODD = {
    "mute": Mute(), "round": _round(), "deep": _deep(), "nan": float("nan"), "nested nan": {"a": [float("-inf")]},
    "bytes": b"\xff", "surrogate": "\ud800", "surrogate key": {"\ud800": 1},
}  # fmt: skip


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
@pytest.mark.parametrize("gated", [False, True])
def test_a_result_that_cannot_be_written_down_does_not_undo_its_call(
    each_store: Store, ran: list[Any], pay: Tool, value: Any, gated: bool
) -> None:
    def odd() -> Any:
        ran.append("odd")
        return value

    agent = agent_of([Tool(odd, requires_approval=gated), pay], [("odd", {}), ("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    assert agent(parent_id=paused.run_id, resume=yes(paused)).run().status.code == "success"
    assert sorted(ran, key=str) == [1, "odd"]
    assert all(request.state is State.DONE for request in sayso.Review().list(state="all").requests)


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_an_output_event_is_json_whatever_was_given(memory: Store, value: Any) -> None:
    def odd() -> Any:
        return value

    assert parse_event(Tool(odd)().run().model_dump_json()).path == "odd"


@pytest.mark.parametrize("gated", [False, True])
def test_an_error_without_words_is_still_a_failed_call(each_store: Store, gated: bool) -> None:
    def odd() -> str:
        raise MuteError

    tool = Tool(odd, requires_approval=gated)
    output = tool().run()
    if gated:
        output = tool(resume=yes(output)).run()
    assert output.error is not None
    assert output.error["type"] == "MuteError"
    assert all(request.state is State.FAILED for request in sayso.Review().list(state="all").requests)


@pytest.mark.parametrize(
    "reply",
    [
        Reply("", [ModelCall("1", "pay", {"amount": 1})], provider={"x": object()}),
        Reply("", [ModelCall("1", "pay", {"amount": 1})], usage={"tokens": float("nan")}),  # type: ignore[dict-item]
        Reply("", [ModelCall("1", "pay", {"amount": 1})], usage={"tokens": None}),  # type: ignore[dict-item]
        Reply("", [ModelCall("1", 5, {"amount": 1})]),  # type: ignore[arg-type]
        Reply("", [ModelCall("1", "pay", {"amount": float("nan")})]),
    ],
)
def test_a_reply_that_cannot_be_kept_runs_nothing(each_store: Store, ran: list[Any], pay: Tool, reply: Reply) -> None:
    class Odd:
        async def turn(self, *_: Any) -> Any:
            yield reply

    output = sayso.Agent(model=Odd(), tools=[pay])(prompt="go").run()
    assert output.error is not None
    assert output.error["type"] == "ModelError"
    assert ran == []
    assert not sayso.Review().list(state="all").requests


def test_a_model_is_told_of_arguments_that_are_too_deep(memory: Store, ran: list[Any], pay: Tool) -> None:
    deep: Any = 1
    for _ in range(500):
        deep = {"a": deep}
    output = agent_of([pay], ("pay", {"amount": deep}))(prompt="go").run()
    assert output.status.code == "success"
    assert "nested" in output.output
    assert ran == []


# -- secrets and questions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [False, lambda n: n > 10])
def test_an_error_of_a_call_that_was_let_pass_tells_no_secret(memory: Store, gate: Any) -> None:
    def login(password: str, n: int) -> str:
        raise ValueError(f"bad {password}")

    text = Tool(login, requires_approval=gate)(password="hunter2-canary", n=1).run().model_dump_json()
    assert "bad ***" in text
    assert "canary" not in text


@pytest.mark.parametrize("hook", ["default", "rule", "prompt"])
def test_only_handlers_ask_persons(memory: Store, ran: list[Any], hook: str) -> None:
    def ask(x: str = "") -> Any:
        return suspend({"question": f"the hook's{x}?"})

    def answer(x: str = "") -> str:
        ran.append(x)
        return suspend({"question": "the handler's?"})

    options: dict[str, Any] = {
        "default": {"default_params": {"x": ask}},
        "rule": {"requires_approval": ask},
        "prompt": {"requires_approval": True, "approval_prompt": ask},
    }[hook]
    output = Tool(answer, **options)().run()
    assert output.status.code == "error"
    assert "inside a handler" in str(output.status.message)
    assert ran == []
    assert not sayso.Review().list(state="all").requests


# -- broken stores, loops, and tasks that stay behind --------------------------------------------------------------


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_store_that_fails_once_while_calls_are_asked_leaves_a_run_that_goes_on(
    each_store: Store, ran: list[Any], pay: Tool, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    asked, opened = [], each_store.ask

    def fails_once(*given: Any) -> Any:
        asked.append(1)
        if len(asked) == failing:
            raise errors.StoreUnavailableError("the disk is gone")
        return opened(*given)

    agent = agent_of([pay], [("pay", {"amount": n}) for n in range(4)])
    with monkeypatch.context() as patch:
        patch.setattr(each_store, "ask", fails_once)
        broken = agent(prompt="go", run_id="r").run()
    assert broken.status.reason == "store_failed"
    paused = agent(prompt="go", run_id="r").run()
    assert len(ids(paused)) == 4
    assert agent(parent_id="r", resume=yes(paused)).run().status.code == "success"
    assert sorted(ran) == [0, 1, 2, 3]


@awaited
async def test_a_run_that_was_taken_while_its_taker_was_cancelled_is_in_nobodys_hand(
    each_store: Store, pay: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = await pay(amount=1).collect()
    take = each_store.take_run

    def take_and_be_cancelled(*given: Any) -> Any:
        take(*given)
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(each_store, "take_run", take_and_be_cancelled)
        with pytest.raises(asyncio.CancelledError) as kept:
            await pay(parent_id=paused.run_id).collect()
    assert reason(await pay(parent_id=paused.run_id).collect()) == ("cancelled", "approval_required")
    assert kept.value.__traceback__ is not None  # which holds on to all that was there


def test_a_step_is_written_down_whatever_hangs_on_it(memory: Store) -> None:
    journal = RunHistory.new(memory, "r", "pay", "tool")
    journal.put("pay", {"odd": float("nan"), "odder": object()})
    [step] = journal.checkpoint().update.steps
    assert json.loads(step.body)["odd"] == "NaN"


def test_a_workflow_cannot_hold_itself(memory: Store, pay: Tool) -> None:
    outer = Workflow(name="outer").step(pay, amount=1)
    inner = Workflow(name="inner").step(outer)
    for step in (outer, inner):
        with pytest.raises(errors.ConfigError, match="itself"):
            outer.step(step, name="again")


@awaited
async def test_a_task_that_a_handler_left_behind_makes_no_call_for_the_run(
    each_store: Store, ran: list[Any], pay: Tool
) -> None:
    left: list[asyncio.Task[Any]] = []
    go_on = asyncio.Event()

    @confirm_first
    async def wipe() -> str:
        ran.append("wiped")
        return "wiped"

    async def late() -> str:
        await go_on.wait()
        return await wipe()

    async def leave() -> str:
        left.append(asyncio.create_task(late()))
        return "left"

    await Workflow(name="flow").step(Tool(leave)).step(pay, amount=1)().collect()
    go_on.set()
    [said] = await asyncio.gather(*left, return_exceptions=True)
    assert "handed back" in str(said)
    assert ran == []


# -- broken off at every step of the loop --------------------------------------------------------------------------


class Acts:
    """An agent of which every kind of call waits, and what its calls did."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @confirm_first
        def inner(n: int) -> str:
            self.done.append(f"inner {n}")
            return f"i{n}"

        def outer() -> str:
            return inner(1) + inner(2)

        async def slow(n: int) -> str:
            await asyncio.sleep(0)
            self.done.append(f"slow {n}")
            return f"s{n}"

        def quick(n: int) -> str:
            self.done.append(f"quick {n}")
            return f"q{n}"

        calls = [("slow", {"n": 1}), ("quick", {"n": 2}), ("outer", {})]
        tools = [Tool(slow, requires_approval=True), Tool(quick, requires_approval=True), Tool(outer)]
        self.agent = agent_of(tools, calls, ("slow", {"n": 9}))

    async def leg(self, run_id: str, resume: dict[str, bool], stop_after: int | None) -> sayso.OutputEvent | None:
        """Go on with the run; broken off after so many turns of the loop, it gives None."""
        task = asyncio.ensure_future(self.agent(prompt="go", run_id=run_id, resume=resume).collect())
        if stop_after is None:
            return await task
        for _ in range(stop_after):
            await asyncio.sleep(0)
        task.cancel()
        return (await asyncio.gather(task, return_exceptions=True))[0] if not task.cancelled() else None


@pytest.mark.slow
@pytest.mark.parametrize("leg", [0, 1, 2, 3])
@awaited
async def test_a_run_that_is_cancelled_at_any_step_goes_on_and_does_nothing_twice(memory: Store, leg: int) -> None:
    stopped = 0
    for stop_after in range(leg % 2, 60, 2):
        acts, resume = Acts(), dict[str, bool]()
        output: Any = None
        for n in range(12):
            output = await acts.leg(f"run {stop_after}", resume, stop_after if n == leg else None)
            if not isinstance(output, sayso.OutputEvent):
                stopped += 1
                continue
            if output.status.reason != "approval_already_claimed":  # a thread that nobody can stop still has one
                resume = yes(output)
            if output.status.code != "cancelled":
                break
            await asyncio.sleep(0.001)
        assert reason(output) in {("success", None), ("error", "outcome_unknown")}
        assert len(acts.done) == len(set(acts.done)), (stop_after, acts.done)
    assert stopped > 3  # and not only before it began
