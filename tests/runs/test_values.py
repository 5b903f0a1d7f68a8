"""What a resumed run hands on: the value that there was, or a word that it is lost, never something else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sayso.runs.agent import Tool
from sayso.runs.events import OutputEvent
from sayso.runs.workflow import Workflow
from sayso.stores.base import Filter


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
