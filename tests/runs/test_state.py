"""The state of a run: its checkpoints, and the values that a resumed run hands on.

Each step goes into one checkpoint, nothing is lost where it is not saved, and what waits comes last. A resumed run gets
the value that there was, or a word that it is lost, never something else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.errors import ArgumentError
from sayso.model.run import RunState
from sayso.runs.agent import Tool
from sayso.runs.events import OutputEvent
from sayso.runs.state import RunHistory, given_arguments
from sayso.runs.workflow import Workflow
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.support.running import awaited, started, yes

WAITS: dict[str, Any] = {"waits": "rq_1", "path": "pay", "name": "pay"}


@pytest.fixture
def history(memory: Store) -> RunHistory:
    """A run that has done two things and saved nothing."""
    made = RunHistory.new(memory, "order-1", "clerk", "agent")
    made.put("clerk/turn0", {"reply": 0})
    made.put("clerk/turn0.0", {"status": {"code": "success"}})
    return made


def places(checkpoint: Any) -> list[str]:
    return [step.place for step in checkpoint.update.steps]


def test_each_step_goes_into_one_checkpoint(history: RunHistory) -> None:
    first = history.checkpoint()
    history.put("clerk/turn1", {"reply": 1})
    second = history.checkpoint()
    assert (places(first), places(second)) == (["clerk/turn0", "clerk/turn0.0"], ["clerk/turn1"])


def test_what_was_not_saved_goes_into_the_next_one_in_its_order(history: RunHistory) -> None:
    first = history.checkpoint()
    history.put("clerk/turn1", {"reply": 1})
    first.release()
    assert places(history.checkpoint()) == ["clerk/turn0", "clerk/turn0.0", "clerk/turn1"]


def test_what_was_saved_is_not_saved_again(history: RunHistory) -> None:
    checkpoint = history.checkpoint()
    checkpoint.saved()
    checkpoint.release()
    assert history.is_stored
    assert places(history.checkpoint()) == []


def test_an_argument_that_cannot_be_written_leaves_everything_unsaved(history: RunHistory) -> None:
    history.put("(input)", {"given": given_arguments({"odd": object()})})
    for _ in range(2):
        with pytest.raises(ArgumentError):
            history.checkpoint()


def test_what_waits_is_known_when_it_is_saved_and_not_before(history: RunHistory) -> None:
    checkpoint = history.checkpoint(("clerk/turn0.1", WAITS))
    assert places(checkpoint)[-1] == "clerk/turn0.1"
    assert list(history.waiting()) == []
    checkpoint.saved("rq_1")
    assert [body["waits"] for _, body in history.waiting()] == ["rq_1"]


@pytest.mark.parametrize(("met", "is_released"), [("rq_1", True), ("rq_0", False)])
def test_a_run_stays_leased_where_the_store_met_an_earlier_request(
    history: RunHistory, met: str, is_released: bool
) -> None:
    checkpoint = history.checkpoint(("clerk", WAITS), RunState.PAUSED)
    checkpoint.saved(met)
    assert history.is_released is is_released
    assert [body["waits"] for _, body in history.waiting()] == [met]


@awaited
async def test_what_waits_is_not_asked_before_that_which_led_to_it_is_saved(memory: Store) -> None:
    history = RunHistory.new(memory, "order-1", "clerk", "agent")
    history.put("clerk/turn0", {"reply": 0})
    checkpoint = history.checkpoint()
    asking = asyncio.ensure_future(history.quiet())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    checkpoint.saved()
    await asking


@dataclass(frozen=True)
class Order:
    number: int


class Odd:
    """Has no form in which it could be kept."""


def gate() -> str:
    return "open"


def resumed(workflow: Workflow | Tool) -> OutputEvent:
    """Let the gate of a run pause it, and go on."""
    paused = workflow().run()
    (waiting,) = paused.metadata["pending_approvals"]
    return workflow(parent_id=paused.run_id, resume={waiting["approval_id"]: True}).run()


def workflow_of(first: Any, then: Any, place: Path) -> Workflow:
    workflow = Workflow(store=f"sqlite:///{place / 'runs.db'}").step(first, name="first")
    return workflow.step(Tool(gate, requires_approval=True)).step(then, name="then", depends_on=["gate"])


def test_step_after_a_pause_gets_the_value_that_the_step_before_gave(place: Path) -> None:
    def order() -> Order:
        return Order(4721)

    def name(first: Order) -> str:
        return repr(first)

    assert resumed(workflow_of(order, name, place)).output["then"] == "Order(number=4721)"


def test_value_that_could_not_be_kept_is_told_to_be_lost_and_not_handed_on_as_text(place: Path) -> None:
    seen: list[Any] = []

    def odd() -> Any:
        return Odd()

    def then(first: Any) -> None:
        seen.append(first)

    output = resumed(workflow_of(odd, then, place))
    assert seen == []
    assert (output.status.code, (output.error or {})["type"]) == ("error", "ValueNotKeptError")


def test_value_that_could_not_be_kept_and_nobody_takes_does_not_stop_the_run(place: Path) -> None:
    def odd() -> Any:
        return Odd()

    output = resumed(workflow_of(odd, lambda gate: f"{gate}!", place))
    assert output.status.code == "success"
    assert output.output["then"] == "open!"
    assert "Odd object" in output.output["first"]


def test_an_integer_that_python_does_not_write_down_leaves_a_call_done(place: Path) -> None:
    given: list[Any] = [10**5000, [-(10**5000)]]
    tool = Tool(given.pop, name="count", requires_approval=True, store=f"sqlite:///{place / 'runs.db'}")
    while given:
        output = resumed(tool)
        assert (output.status.code, output.error) == ("success", None)
        assert "<int without a form as JSON>" in output.model_dump_json()
    assert {request.state.value for request in tool.store.list(Filter()).requests} == {"done"}


def test_step_that_failed_leaves_the_results_of_the_others_in_the_output() -> None:
    def fails() -> None:
        raise ConnectionError("the shop is down")

    output = Workflow(store="memory:").step(fails).step(lambda: 7, name="stock")().run()
    assert output.status.code == "error"
    assert output.output == {"stock": 7}


def test_step_that_was_refused_leaves_the_results_of_the_others_in_the_output() -> None:
    workflow = Workflow(store="memory:").step(lambda: 7, name="stock").step(Tool(gate, requires_approval=True))
    paused = workflow().run()
    (waiting,) = paused.metadata["pending_approvals"]
    output = workflow(parent_id=paused.run_id, resume={waiting["approval_id"]: False}).run()
    assert output.status.reason == "approval_denied"
    assert output.output == {"stock": 7}


def test_a_nested_call_is_not_made_again_where_a_servers_clock_is_behind(memory: Store, clock: Clock) -> None:
    made = list[int]()

    @sayso.gate(wait="raise")
    def wire(n: int) -> str:
        made.append(n)
        return f"wired {n}"

    def both() -> str:
        clock.tick(seconds=-1)  # a server dates the requests, and the program the run
        return wire(1) + wire(2)

    tool = Tool(both)
    out = started(tool)
    for n in (1, 2):
        assert made == [1, 2][: n - 1]
        out = tool(parent_id=out.run_id, resume=yes(out)).run()
    assert (out.output, made) == ("wired 1wired 2", [1, 2])
