"""Plans and decisions of the protocol, and its enums.

A plan's status follows from decisions and starts, and cannot be assigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from pydantic import Field

from sayso import clock
from sayso.mplp.document import Document, Event, Meta, Part, Trace, fresh_meta, repeated_ids
from sayso.mplp.schema import ConfirmRefusedError, new_id, pointer


class TargetType(StrEnum):
    """What a Confirm is about."""

    CONTEXT = "context"
    PLAN = "plan"
    TRACE = "trace"
    EXTENSION = "extension"
    OTHER = "other"


class ConfirmStatus(StrEnum):
    """The status of a Confirm."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class DecisionStatus(StrEnum):
    """What a decision says."""

    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class PlanStatus(StrEnum):
    """The status of a plan."""

    DRAFT = "draft"
    PROPOSED = "proposed"
    APPROVED = "approved"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class StepStatus(StrEnum):
    """The status of a step."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    FAILED = "failed"


T = TypeVar("T")


class FrozenList(list[T]):
    """A list that does not change."""

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "decisions and events of a Confirm are not changed in place, and nothing was; use add_decision or"
            " process_decision, or assign a new list to a Confirm of your own"
        )

    append = extend = insert = pop = remove = clear = reverse = _refused
    sort = _refused  # pyright: ignore[reportAssignmentType]  which knows no order of them, either
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refused

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


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

    kind = "plan"

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
        """Yield step ids that occur twice, and dependencies on steps that the plan does not have."""
        yield from repeated_ids(document["steps"], "steps", "step_id", "step")
        seen = {step["step_id"] for step in document["steps"]}
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


class Decision(Part):
    """The decision of one reviewer.

    The protocol knows a reviewer by a role; where a person decided through a channel of sayso it is the person's name.
    """

    decision_id: str = Field(default_factory=new_id)
    status: DecisionStatus
    decided_by_role: str
    decided_at: datetime = Field(default_factory=clock.now)
    reason: str | None = None
