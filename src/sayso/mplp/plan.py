"""The plan: what is to be done, step by step, and where it stands.

Invariant: only a person's decision makes a plan approved, and only a start takes it on from there; what is assigned to
the status is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from sayso.mplp.document import Document, Part
from sayso.mplp.fault import ConfirmRefusedError
from sayso.mplp.ids import new_id
from sayso.mplp.part import Event, Meta, Trace, fresh_meta
from sayso.mplp.reading import pointer
from sayso.mplp.status import PlanStatus, StepStatus

__all__ = ["Plan", "PlanStep"]


class PlanStep(Part):
    """A step of a plan."""

    step_id: str = Field(default_factory=new_id)
    description: str
    status: StepStatus = StepStatus.PENDING
    dependencies: list[str] | None = None
    agent_role: str | None = None
    order_index: int | None = None


class Plan(Document):
    """A plan, which needs an approval before it is carried out.

    What is not given is filled in: `meta`, `plan_id`, `context_id`, and the status `draft`.

    Raises:
        ConfirmRefusedError: The status is assigned.
    """

    meta: Meta = Field(default_factory=fresh_meta)
    plan_id: str = Field(default_factory=new_id)
    context_id: str = Field(default_factory=new_id)
    title: str
    objective: str
    status: PlanStatus = PlanStatus.DRAFT
    steps: list[PlanStep]
    trace: Trace | None = None
    events: list[Event] | None = None

    @classmethod
    def beyond_schema(cls, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield the ids of steps that stand twice, and dependencies on steps that there are not."""
        seen = set[str]()
        for index, step in enumerate(document["steps"]):
            if step["step_id"] in seen:
                yield f"{pointer('steps', index, 'step_id')}: {step['step_id']!r} is the id of another step already"
            seen.add(step["step_id"])
        for index, step in enumerate(document["steps"]):
            for place, needed in enumerate(step.get("dependencies") or ()):
                if needed not in seen:
                    yield f"{pointer('steps', index, 'dependencies', place)}: there is no step {needed!r} in this plan"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "status" and value != self.status:
            reason = (
                f"the status of plan {self.plan_id} follows from what people decide and what is started; use"
                " submit_plan_for_approval, process_decision or start"
            )
            raise ConfirmRefusedError(self.plan_id, reason)
        super().__setattr__(name, value)
