"""The protocol's closed sets of words. They are texts, so that `confirm.status == "approved"` holds.

The lists of a Confirm: they read and compare like any list, and nobody adds to one in place.

A field of a locked Confirm refuses to be assigned, and what stands in a field would otherwise still grow. Invariant:
what was read from a series stays what it is, for whoever holds it.

The plan: what is to be done, step by step, and where it stands.

Invariant: only a person's decision makes a plan approved, and only a start takes it on from there; what is assigned to
the status is refused.

The Confirm: a request for approval, and the decisions on it, as the protocol writes them.

Beside its fields, which are the protocol's, a Confirm knows whether it is the view of requests in a store (`home`).
What changes a Confirm is in `sayso.mplp.confirm`. Invariant: its status follows from decisions and is never assigned,
and a locked Confirm does not change.

How a Confirm changes: pending, until somebody decides; a no may be followed by another round, a yes by nothing.

These are the rules, and what they do to a document that is in no store. Where a Confirm is the view of requests, the
decision goes through the person's door (`sayso.mplp.flow`), after the same rules. Invariant: a decision that is
refused here has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, NoReturn, Self, TypeVar

from pydantic import AfterValidator, Field, PrivateAttr

from sayso import clock
from sayso.model.request import Request
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.text import is_blank
from sayso.mplp.document import Document, Event, Governance, Meta, Part, StageEvent, Trace, fresh_meta, time_text
from sayso.mplp.schema import (
    ConfirmLockedError,
    ConfirmRefusedError,
    MismatchError,
    NotConformantError,
    brief,
    id_of,
    new_id,
    pointer,
)

__all__ = [
    "Confirm",
    "ConfirmStatus",
    "Decision",
    "DecisionStatus",
    "Home",
    "Plan",
    "PlanStatus",
    "PlanStep",
    "Series",
    "StepStatus",
    "TargetType",
    "create_confirm",
    "decide",
    "must_be_about",
    "must_be_open",
    "must_take",
    "stage_of",
    "to_submit",
]


class TargetType(StrEnum):
    """What a Confirm is about."""

    CONTEXT = "context"
    PLAN = "plan"
    TRACE = "trace"
    EXTENSION = "extension"
    OTHER = "other"


class ConfirmStatus(StrEnum):
    """Where a Confirm stands."""

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
    """Where a plan stands."""

    DRAFT = "draft"
    PROPOSED = "proposed"
    APPROVED = "approved"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class StepStatus(StrEnum):
    """Where a step of a plan stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    FAILED = "failed"


T = TypeVar("T")


class Series(list[T]):
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
        return Series, (list(self),)


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


class Decision(Part):
    """What one reviewer said.

    The protocol knows a reviewer by a role; where a person decided through a channel of sayso it is the person's name.
    """

    decision_id: str = Field(default_factory=new_id)
    status: DecisionStatus
    decided_by_role: str
    decided_at: datetime = Field(default_factory=clock.now)
    reason: str | None = None


@dataclass(frozen=True)
class Home:
    """Where a Confirm came from.

    Attributes:
        store: The store, or its address, whose requests it is a view of; None for one that was only written down.
        plan: The plan that was submitted with it in this program, whose status follows.
        seen: Which request it was read from, and that one's fingerprint then; None for one that was only written down.
    """

    store: Any = field(default=None, compare=False)
    plan: Plan | None = field(default=None, compare=False)
    seen: tuple[str, str] | None = field(default=None, compare=False)

    def __deepcopy__(self, memo: object) -> Home:
        return self  # a store is not copied with what was read from it

    def __reduce__(self) -> tuple[Any, ...]:
        return Home, (getattr(self.store, "url", self.store), None, self.seen)


class Confirm(Document):
    """A request for approval.

    What is not given is filled in: `meta`, `confirm_id`, `requested_at`, and the status `pending`. What cannot be
    conformant, such as a `target_id` that is no UUID, is refused by `export`, and not before.

    Raises:
        ConfirmLockedError: A field is assigned while `governance.locked` is true.
        ConfirmRefusedError: The status is assigned.
    """

    kind = "confirm"

    meta: Meta = Field(default_factory=fresh_meta)
    governance: Governance | None = None
    confirm_id: str = Field(default_factory=new_id)
    target_type: TargetType
    target_id: str
    status: ConfirmStatus = ConfirmStatus.PENDING
    requested_by_role: str
    requested_at: datetime = Field(default_factory=clock.now)
    reason: str | None = None
    decisions: Annotated[list[Decision], AfterValidator(Series)] = Field(default=[], validate_default=True)
    trace: Trace | None = None
    events: Annotated[list[Event], AfterValidator(Series)] | None = None

    _home: Home = PrivateAttr(default_factory=Home)

    @property
    def home(self) -> Home:
        """Where it came from."""
        return self._home

    @property
    def is_locked(self) -> bool:
        """Whether it refuses changes."""
        return self.governance is not None and self.governance.locked is True

    @classmethod
    def from_request(cls, request: Request, *rounds: Request) -> Confirm:
        """Return a request of sayso as a Confirm: a call, a question, a run that waits as a whole, or a plan.

        Reads nothing but what is given, and changes nothing.

        Args:
            request: The request.
            rounds: Where it was asked again, the requests of the further rounds.
        """
        from sayso.mplp.view import confirm_of

        asked = (request, *rounds)
        return confirm_of(asked).at_home(None, seen=asked[-1])

    @classmethod
    def beyond_schema(cls, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield the ids that stand twice."""
        for name, key in (("decisions", "decision_id"), ("events", "event_id")):
            yield from _twice(document.get(name) or (), name, key)

    def at_home(self, store: Any, plan: Plan | None = None, *, seen: Request) -> Self:
        """Note where it came from, and as what it was read there; return it."""
        self._home = Home(store, plan if plan is not None else self._home.plan, (seen.id, seen.current_fingerprint))
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).model_fields:
            if self.is_locked and name != "governance":
                raise ConfirmLockedError(self.confirm_id)
            if name == "status" and value != self.status:
                reason = f"the status of {self.confirm_id} follows from decisions; use add_decision or process_decision"
                raise ConfirmRefusedError(self.confirm_id, reason)
        super().__setattr__(name, value)


def _twice(items: Sequence[Mapping[str, Any]], name: str, key: str) -> Iterator[str]:
    """Yield the places of items whose id another one before them has."""
    seen = set[str]()
    for index, item in enumerate(items):
        if item[key] in seen:
            yield f"{pointer(name, index, key)}: {item[key]!r} is the id of another one already"
        seen.add(item[key])


def create_confirm(
    target_type: TargetType | str, target_id: str, requested_by_role: str, reason: str | None = None
) -> Confirm:
    """Return a new pending Confirm, which is in no store yet (seed 003, section 6).

    Args:
        target_type: What it is about: `context`, `plan`, `trace`, `extension` or `other`.
        target_id: Which one.
        requested_by_role: Who asks.
        reason: Why.
    """
    return Confirm(
        target_type=TargetType(target_type), target_id=target_id, requested_by_role=requested_by_role, reason=reason
    )


def must_be_open(confirm: Confirm) -> None:
    """Refuse a Confirm that is locked.

    Raises:
        ConfirmLockedError: It is.
    """
    if confirm.is_locked:
        raise ConfirmLockedError(confirm.confirm_id)


def must_be_about(confirm: Confirm, target_type: str, target_id: str) -> None:
    """Refuse a Confirm that is about something else.

    Raises:
        MismatchError: It is.
    """
    if confirm.target_type != target_type:
        raise MismatchError(confirm.confirm_id, f"a {confirm.target_type}", f"a {target_type}")
    if confirm.target_id != target_id:
        raise MismatchError(confirm.confirm_id, confirm.target_id, target_id)


def must_take(confirm: Confirm, decision: Decision) -> None:
    """Refuse a decision that a Confirm cannot take.

    Raises:
        ConfirmLockedError: It is locked.
        ConfirmRefusedError: It is decided already, or a rejection has no reason.
    """
    must_be_open(confirm)
    if confirm.status is not ConfirmStatus.PENDING:
        raise ConfirmRefusedError(confirm.confirm_id, f"{_named(confirm)} was already {confirm.status}{_by(confirm)}")
    if decision.status is DecisionStatus.REJECTED and is_blank(decision.reason or ""):
        raise ConfirmRefusedError(confirm.confirm_id, f"a rejection needs a reason, and {_named(confirm)} got none")
    if any(decision.decision_id == known.decision_id for known in confirm.decisions):
        reason = f"{_named(confirm)} has a decision with the id {brief(decision.decision_id)} already"
        raise ConfirmRefusedError(confirm.confirm_id, reason)


def decide(confirm: Confirm, decision: Decision) -> list[Event]:
    """Write a decision down in a Confirm that is in no store, and return what happened to it.

    Raises:
        ConfirmRefusedError: It cannot take the decision, or the role that asked decides.
    """
    must_take(confirm, decision)
    if _is_own(confirm, decision):
        reason = f"{brief(decision.decided_by_role)} asked for {_named(confirm)}, and who asks does not decide"
        raise ConfirmRefusedError(confirm.confirm_id, reason)
    word = "cancelled" if decision.status is DecisionStatus.CANCELLED else "decided"
    event = Event(
        event_id=id_of("event", confirm.confirm_id, decision.decision_id),
        event_type=f"confirm.{word}",
        timestamp=decision.decided_at,
        data={"confirm_id": confirm.confirm_id, "decision_id": decision.decision_id, "status": str(decision.status)},
    )
    changes = {"status": ConfirmStatus(decision.status), "decisions": Series([*confirm.decisions, decision])}
    confirm.take(confirm.model_copy(update=changes))
    return [event]


def stage_of(confirm: Confirm, decision: Decision, event_id: str) -> StageEvent:
    """Return the event of the pipeline for what was decided about a plan (seed 003, section 4.3)."""
    return StageEvent(
        event_id=event_id,
        event_type="plan_approved" if decision.status is DecisionStatus.APPROVED else "plan_rejected",
        timestamp=decision.decided_at,
        payload={
            "confirm_id": confirm.confirm_id,
            "plan_id": confirm.target_id,
            "decided_by": decision.decided_by_role,
        },
    )


def to_submit(target: Plan | Confirm, confirm: Confirm | None) -> None:
    """Refuse what cannot be submitted, before anything is recorded.

    Raises:
        NotConformantError: It does not fit the protocol; the problems name the fields.
        ConfirmRefusedError: It is locked, decided, or about something else.
    """
    if isinstance(target, Plan):
        if target.status not in {PlanStatus.DRAFT, PlanStatus.PROPOSED}:
            reason = f"plan {brief(target.plan_id)} is {target.status}, and only a draft is submitted"
            raise ConfirmRefusedError(target.plan_id, reason)
        target.export()
        if not any(step.description.strip() for step in target.steps):
            raise NotConformantError("Plan", ["/steps: no step says what is to be done"])
    if confirm is None:
        return
    must_be_open(confirm)
    if isinstance(target, Plan):
        must_be_about(confirm, TargetType.PLAN, target.plan_id)
    if confirm.status not in {ConfirmStatus.PENDING, ConfirmStatus.REJECTED}:
        reason = f"{_named(confirm)} is {confirm.status} by its own account, which counts for nothing here"
        raise ConfirmRefusedError(confirm.confirm_id, reason)
    confirm.export()


def _is_own(confirm: Confirm, decision: Decision) -> bool:
    """Say whether the role that decides could be the one that asked, as a store would say of two names."""
    asked, decided = (" ".join(role.split()) for role in (confirm.requested_by_role, decision.decided_by_role))
    try:
        return Identity(PROGRAM, decided).may_be(Identity(PROGRAM, asked))
    except ValueError:  # no person can have such a name, and in a document it is a name all the same
        return decided == asked


def _named(confirm: Confirm) -> str:
    return f"Confirm {brief(confirm.confirm_id)}"


def _by(confirm: Confirm) -> str:
    decisions: Sequence[Decision] = confirm.decisions
    if not decisions:
        return ""
    return f" by {brief(decisions[-1].decided_by_role)} at {time_text(decisions[-1].decided_at)}"
