"""The Confirm, its rules, and its derivation from requests. Nothing here reads a store.

A Confirm is derived from the requests of its rounds, and a plan from the last of them; every other request has a
Confirm, too. A Confirm is `approved` only while a person's approval is valid. Its status cannot be assigned, and a
locked Confirm cannot be changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, NamedTuple, Self, cast

from pydantic import AfterValidator, Field, PrivateAttr

from sayso.model import canonical
from sayso.model.edit import PLAN_TOOL, TARGET_TOOL
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.text import is_blank, storable
from sayso.mplp.document import (
    ConfirmStatus,
    Decision,
    DecisionStatus,
    Document,
    Event,
    FrozenList,
    Governance,
    Meta,
    Plan,
    PlanStatus,
    StageEvent,
    TargetType,
    Trace,
    plan_with,
    repeated_ids,
    target_of,
    time_now,
    time_text,
)
from sayso.mplp.schema import (
    ConfirmLockedError,
    ConfirmRefusedError,
    MismatchError,
    NotConformantError,
    id_of,
    is_id,
    new_id,
    quoted,
    uuid4_of,
)


@dataclass(frozen=True)
class Origin:
    """Where a Confirm comes from.

    Attributes:
        store: The store, or its address, of the requests that it shows; None for one that exists only as a document.
        plan: The plan that this program submitted with it, whose status is updated.
        seen: The id and then fingerprint of the request that it was read from; None if it is only a document.
    """

    store: Any = field(default=None, compare=False)
    plan: Plan | None = field(default=None, compare=False)
    seen: tuple[str, str] | None = field(default=None, compare=False)

    def __deepcopy__(self, memo: object) -> Origin:
        return self  # copying a document must not copy its store

    def __reduce__(self) -> tuple[Any, ...]:
        return Origin, (getattr(self.store, "url", self.store), None, self.seen)


class Confirm(Document):
    """A request for approval.

    Missing values of `meta`, `confirm_id` and `requested_at` are generated, and the status defaults to `pending`. Only
    `export` refuses values that do not conform, such as a `target_id` that is not a UUID.

    Raises:
        ConfirmLockedError: A program assigns a field while `governance.locked` is true.
        ConfirmRefusedError: A program assigns the status.
    """

    kind = "confirm"

    meta: Meta = Field(default_factory=lambda: Meta(created_at=time_now()))
    governance: Governance | None = None
    confirm_id: str = Field(default_factory=new_id)
    target_type: TargetType
    target_id: str
    status: ConfirmStatus = ConfirmStatus.PENDING
    requested_by_role: str
    requested_at: datetime = Field(default_factory=time_now)
    reason: str | None = None
    decisions: Annotated[list[Decision], AfterValidator(FrozenList)] = Field(default=[], validate_default=True)
    trace: Trace | None = None
    events: Annotated[list[Event], AfterValidator(FrozenList)] | None = None

    _origin: Origin = PrivateAttr(default_factory=Origin)

    @property
    def origin(self) -> Origin:
        """The store and the request that it was read from."""
        return self._origin

    @property
    def is_locked(self) -> bool:
        """Whether it refuses changes."""
        return self.governance is not None and self.governance.locked is True

    @classmethod
    def from_request(cls, request: Request, *rounds: Request) -> Confirm:
        """Return the Confirm of a request: for a call, a question, a run that waits as a whole, or a plan.

        This reads no store and changes nothing.

        Args:
            rounds: The requests of further rounds, if it was asked again.
        """
        asked = (request, *rounds)
        return confirm_of(asked).link(None, seen=asked[-1])

    @classmethod
    def beyond_schema(cls, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield duplicate ids of decisions and events."""
        for name, key in (("decisions", "decision_id"), ("events", "event_id")):
            yield from repeated_ids(document.get(name) or (), name, key)

    def link(self, store: Any, plan: Plan | None = None, *, seen: Request) -> Self:
        """Set the store and the request that the Confirm was read from; return the Confirm."""
        self._origin = Origin(
            store, plan if plan is not None else self._origin.plan, (seen.id, seen.current_fingerprint)
        )
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).model_fields:
            if self.is_locked and name != "governance":
                raise ConfirmLockedError(self.confirm_id)
            if name == "status" and value != self.status:
                reason = f"the status of {self.confirm_id} follows from decisions; use add_decision or process_decision"
                raise ConfirmRefusedError(self.confirm_id, reason)
        super().__setattr__(name, value)


# -- reading requests ----------------------------------------------------------------------------------------------

Names = Mapping[str, tuple[str, str]]
"""The id and role that a program gave each decision, by the id derived from its request."""

SUBMITTED = frozenset({"meta", "governance", "reason", "trace"})
"""The fields of a submitted Confirm that are kept. Its decisions and times are dropped, as they cannot be verified."""

_RANDOM = re.compile(r"(?:rq|run)_([0-9a-f]{32})")
_DIGITS = re.compile(r"[0-9a-f]{32}")
_RUNS = frozenset({"Agent", "Workflow", "agent", "workflow"})
_STATUS = {
    State.PENDING: ConfirmStatus.PENDING,
    **dict.fromkeys(
        (State.APPROVED, State.RUNNING, State.DONE, State.FAILED, State.UNKNOWN, State.ANSWERED), ConfirmStatus.APPROVED
    ),
    **dict.fromkeys((State.REJECTED, State.FEEDBACK), ConfirmStatus.REJECTED),
    **dict.fromkeys((State.CANCELLED, State.EXPIRED), ConfirmStatus.CANCELLED),
}
_PLAN_STATUS = {
    State.PENDING: PlanStatus.PROPOSED,
    State.APPROVED: PlanStatus.APPROVED,
    State.RUNNING: PlanStatus.IN_PROGRESS,
    State.UNKNOWN: PlanStatus.IN_PROGRESS,
    State.DONE: PlanStatus.COMPLETED,
    State.FAILED: PlanStatus.FAILED,
}
_STATUS_OF_VERB = {
    "approve": DecisionStatus.APPROVED,
    "answer": DecisionStatus.APPROVED,
    "reject": DecisionStatus.REJECTED,
    "feedback": DecisionStatus.REJECTED,
    "cancel": DecisionStatus.CANCELLED,
}


class RoundFacts(NamedTuple):
    """The Confirm that a request belongs to, from the request's place, run and context.

    Attributes:
        confirm_id: The id of the Confirm.
        target_type, target_id: The target of the Confirm.
        role: The role that asked.
        confirm: Further fields of the Confirm, as JSON, if the submitter gave one.
        plan: Further fields of the plan, as JSON.
    """

    confirm_id: str
    target_type: TargetType
    target_id: str
    role: str
    confirm: Mapping[str, Any]
    plan: Mapping[str, Any]


def run_of(target_type: str, target_id: str) -> str:
    """Return the run of a target's requests."""
    return f"{target_type}:{target_id}"


def round_facts(request: Request) -> RoundFacts | None:
    """Return the Confirm that a request was submitted for; None for any other request.

    The request's place and run, which its fingerprint covers, name the Confirm and the target. A purge removes the
    other facts. A call that shows a different target than its run names belongs to no Confirm.
    """
    if not isinstance(request.subject, Call) or request.subject.tool not in {PLAN_TOOL, TARGET_TOOL}:
        return None
    confirm_id, _, number = request.place.partition("/")
    target_type, _, target_id = request.run_id.partition(":")
    if not (is_id(confirm_id) and number.isdecimal() and target_type in set(TargetType)):
        return None
    if request.call.tool == PLAN_TOOL:
        shows_it = target_type == TargetType.PLAN
    else:
        shows_it = request.purged_at is not None or is_about(target_of(request.call), target_type, target_id)
    if not shows_it:
        return None
    context = request.context or {}
    role = context.get("requested_by_role")
    return RoundFacts(
        confirm_id,
        TargetType(target_type),
        target_id,
        storable(role) if isinstance(role, str) else request.requester.subject,
        _fields(context.get("confirm")),
        _fields(context.get("plan")),
    )


def is_about(arguments: Mapping[str, Any], target_type: str, target_id: str) -> bool:
    """Return whether the arguments of a call of `use_target` name this target."""
    return arguments.get("target_type") == target_type and arguments.get("target_id") == target_id


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def confirm_id_of(request: Request) -> str:
    """Return the id of a request's Confirm."""
    facts = round_facts(request)
    return _id_of(request.id) if facts is None else facts.confirm_id


def confirm_of(rounds: Sequence[Request], names: Names | None = None) -> Confirm:
    """Return the Confirm of these rounds, which are given oldest first."""
    facts = round_facts(rounds[0])
    confirm = _derived_confirm(rounds[0]) if facts is None else _submitted_confirm(rounds[0], facts)
    decisions, events = list(confirm.decisions), list(confirm.events or ())
    for number, request in enumerate(rounds, 1):
        made = decisions_of(request, names)
        decisions += made
        events += _events(confirm, request, number, made)
    changes = {"status": _status(rounds[-1]), "decisions": FrozenList(decisions), "events": FrozenList(events)}
    return confirm.model_copy(update=changes)


def plan_of(rounds: Sequence[Request]) -> Plan:
    """Return the plan of these rounds: its last submitted version with the reviewers' changes.

    Raises:
        ValueError: The rounds are not about a plan.
        ConfirmRefusedError: The plan was purged.
        NotConformantError: The request claims to be about a plan, but its content is not one.
    """
    request = rounds[-1]
    facts = round_facts(request)
    if facts is not None and request.purged_at is not None:
        reason = f"plan {facts.target_id} was purged on {request.purged_at:%Y-%m-%d}, and only its Confirm is left"
        raise ConfirmRefusedError(facts.confirm_id, reason)
    if facts is None or request.call.tool != PLAN_TOOL:
        raise ValueError(f"{request.id} is not about a plan")
    bare: dict[str, Any] = {"meta": {}, "context_id": id_of("context", facts.target_id)}
    own: dict[str, Any] = {"plan_id": facts.target_id, "title": "", "objective": "", "steps": []}
    plan = Plan.model_validate(bare | Plan.conforming_fields(facts.plan) | own)
    status = _PLAN_STATUS.get(request.state, PlanStatus.DRAFT)
    return plan_with(plan, canonical.decode(request.effective.form, {})).model_copy(update={"status": status})


def decisions_of(request: Request, names: Names | None = None) -> list[Decision]:
    """Return the decisions on one request, including votes, oldest first; an expiry counts as a cancellation."""
    recorded = list(request.votes)
    if request.decision is not None and request.decision not in recorded:
        recorded.append(request.decision)
    made: list[Decision] = []
    for one in recorded:
        own = id_of("decision", request.id, one.verb, one.by.folded, one.at.isoformat())
        decision_id, role = (names or {}).get(own, (own, one.by.subject))
        status = DecisionStatus.REJECTED if _is_rejection(request) else _STATUS_OF_VERB[one.verb]
        comment = storable(one.comment) if one.comment and one.comment.strip() else ""
        reason = comment or f"{status} by {one.by} ({one.channel}), without a comment"
        made.append(_make_decision(decision_id, status, role, one.at, reason))
    if request.state is State.EXPIRED:
        ended, reason = request.expires_at, "nobody decided in time, and no answer is a no"
        if request.decision is not None and request.approval_expires_at is not None:
            ended, reason = request.approval_expires_at, "the approval was not used in time"
        decision_id = id_of("decision", request.id, "expired")
        made.append(_make_decision(decision_id, DecisionStatus.CANCELLED, "clock", ended, reason))
    return made


def _make_decision(decision_id: str, status: DecisionStatus, role: str, at: datetime, reason: str) -> Decision:
    # Values from a request have valid types; validating them again takes half the time of reading a Confirm.
    return Decision.model_construct(
        decision_id=decision_id, status=status, decided_by_role=role, decided_at=at, reason=reason
    )


def _is_rejection(request: Request) -> bool:
    """Return whether an approved or answered request counts as rejected.

    It does for the answer `False`, and if the approved target is not the submitted one.
    """
    if request.state is State.ANSWERED:
        return request.answer is False
    edited = request.edited
    if edited is None or edited.tool != TARGET_TOOL or _STATUS[request.state] is not ConfirmStatus.APPROVED:
        return False
    facts = round_facts(request) if request.purged_at is None else None
    return facts is not None and not is_about(target_of(edited), facts.target_type, facts.target_id)


def _status(request: Request) -> ConfirmStatus:
    return ConfirmStatus.REJECTED if _is_rejection(request) else _STATUS[request.state]


def _events(confirm: Confirm, request: Request, number: int, made: Sequence[Decision]) -> list[Event]:
    trace_id = None if confirm.trace is None else confirm.trace.trace_id
    about = {"confirm_id": confirm.confirm_id, "target_type": str(confirm.target_type), "target_id": confirm.target_id}

    def event(word: str, at: datetime, **data: str) -> Event:
        return Event.model_construct(
            event_id=id_of("event", request.id, word), event_type=f"confirm.{word}", timestamp=at, trace_id=trace_id,
            data=about | {"round": number} | data,
        )  # fmt: skip

    found, status = [event("requested", request.created_at)], _status(request)
    if made and status is not ConfirmStatus.PENDING:
        last, word = made[-1], "cancelled" if status is ConfirmStatus.CANCELLED else "decided"
        data = {"decision_id": last.decision_id, "status": str(last.status), "decided_by_role": last.decided_by_role}
        found.append(event(word, last.decided_at, **data))
    return found


def _submitted_confirm(request: Request, facts: RoundFacts) -> Confirm:
    """Return the Confirm that was submitted, without decisions."""
    given = Confirm.conforming_fields({name: value for name, value in facts.confirm.items() if name in SUBMITTED})
    approved_reason = target_of(request.call).get("reason") if request.call.tool == TARGET_TOOL else None
    reasons = (approved_reason, facts.confirm.get("reason"), request.prompt)
    reason = next(
        (one for one in reasons if isinstance(one, str) and one), f"Requesting approval for {facts.target_type}"
    )
    fields: dict[str, Any] = {
        "meta": Meta(created_at=request.created_at),
        **given,
        "reason": storable(reason),
        "requested_at": request.created_at,
        "confirm_id": facts.confirm_id,
        "target_type": facts.target_type,
        "target_id": facts.target_id,
        "requested_by_role": facts.role,
    }
    return Confirm.model_validate(fields)


def _derived_confirm(request: Request) -> Confirm:
    """Return the Confirm of a request that was not submitted as one, without decisions."""
    subject, facts = request.subject, request.context or {}
    if not isinstance(subject, Call):
        target_type, target_id, asks = TargetType.CONTEXT, _id_of(request.run_id), subject.text
    elif str(facts.get("runnable_type")) in _RUNS:
        target_type, target_id, asks = TargetType.TRACE, _id_of(request.run_id), f"run {subject.name}"
    else:
        digits = _DIGITS.match(str(request.fingerprint))
        target_id = id_of("fingerprint", request.fingerprint) if digits is None else uuid4_of(digits[0])
        target_type, asks = TargetType.OTHER, f"call {subject.tool}"
    return Confirm.model_construct(
        meta=Meta.model_construct(created_at=request.created_at, created_by=request.requester.qualified),
        confirm_id=_id_of(request.id),
        target_type=target_type,
        target_id=target_id,
        requested_by_role=request.requester.subject,
        requested_at=request.created_at,
        reason=storable(request.prompt or asks) or "call",
        decisions=FrozenList[Decision](),
        trace=Trace.model_construct(trace_id=_id_of(request.run_id), span_id=id_of("span", request.id)),
    )


def _id_of(name: str) -> str:
    """Return the protocol's id of a request or run, which reuses the digits of its own id if that is random."""
    found = _RANDOM.fullmatch(str(name))  # in an altered row it can have any type
    return id_of("name", name) if found is None else uuid4_of(found[1])


# -- the rules: pending until a decision; a rejection may start another round, an approval is final ------------------
# `decide` applies them to a document that is in no store. For stored ones, `sayso.mplp.flow` checks the rules and
# decides the request.


def create_confirm(
    target_type: TargetType | str, target_id: str, requested_by_role: str, reason: str | None = None
) -> Confirm:
    """Create a pending Confirm, which is not in any store yet (seed 003, section 6).

    Args:
        target_type: The kind of target: `context`, `plan`, `trace`, `extension` or `other`.
    """
    return Confirm(
        target_type=TargetType(target_type), target_id=target_id, requested_by_role=requested_by_role, reason=reason
    )


def check_unlocked(confirm: Confirm) -> None:
    """Raise `ConfirmLockedError` if a Confirm is locked."""
    if confirm.is_locked:
        raise ConfirmLockedError(confirm.confirm_id)


def check_target(confirm: Confirm, target_type: str, target_id: str) -> None:
    """Raise `MismatchError` if a Confirm is about another target."""
    if confirm.target_type != target_type:
        raise MismatchError(confirm.confirm_id, f"a {confirm.target_type}", f"a {target_type}")
    if confirm.target_id != target_id:
        raise MismatchError(confirm.confirm_id, confirm.target_id, target_id)


def check_decision(confirm: Confirm, decision: Decision) -> None:
    """Raise `ConfirmRefusedError` if a Confirm cannot accept a decision."""
    check_unlocked(confirm)
    if confirm.status is not ConfirmStatus.PENDING:
        last = confirm.decisions[-1] if confirm.decisions else None
        by = "" if last is None else f" by {quoted(last.decided_by_role)} at {time_text(last.decided_at)}"
        raise ConfirmRefusedError(confirm.confirm_id, f"{_label(confirm)} was already {confirm.status}{by}")
    if decision.status is DecisionStatus.REJECTED and is_blank(decision.reason or ""):
        raise ConfirmRefusedError(confirm.confirm_id, f"the rejection of {_label(confirm)} needs a reason")
    if any(decision.decision_id == known.decision_id for known in confirm.decisions):
        reason = f"{_label(confirm)} already has a decision with the id {quoted(decision.decision_id)}"
        raise ConfirmRefusedError(confirm.confirm_id, reason)


def decide(confirm: Confirm, decision: Decision) -> Event:
    """Record a decision in a Confirm that is not in a store, and return the event.

    Raises:
        ConfirmRefusedError: The Confirm cannot accept the decision, or the requesting role decides.
    """
    check_decision(confirm, decision)
    asked, decided = (" ".join(role.split()) for role in (confirm.requested_by_role, decision.decided_by_role))
    try:  # a store's rule for comparing names
        is_requester = Identity(PROGRAM, decided).may_be(Identity(PROGRAM, asked))
    except ValueError:  # no person can have such a name, but a document can
        is_requester = decided == asked
    if is_requester:
        reason = f"{quoted(decision.decided_by_role)} asked for {_label(confirm)} and cannot decide it"
        raise ConfirmRefusedError(confirm.confirm_id, reason)
    word = "cancelled" if decision.status is DecisionStatus.CANCELLED else "decided"
    event = Event(
        event_id=id_of("event", confirm.confirm_id, decision.decision_id),
        event_type=f"confirm.{word}",
        timestamp=decision.decided_at,
        data={"confirm_id": confirm.confirm_id, "decision_id": decision.decision_id, "status": str(decision.status)},
    )
    changes = {"status": ConfirmStatus(decision.status), "decisions": FrozenList([*confirm.decisions, decision])}
    confirm.update_from(confirm.model_copy(update=changes))
    return event


def stage_of(confirm: Confirm, decision: Decision, event_id: str) -> StageEvent:
    """Return the pipeline event for a decision on a plan (seed 003, section 4.3)."""
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


def check_submission(target: Plan | Confirm, confirm: Confirm | None) -> None:
    """Check that a target and a Confirm can be submitted.

    Raises:
        NotConformantError: One of them does not conform to the protocol; `problems` names the fields.
        ConfirmRefusedError: The Confirm is locked, decided, or about another target.
    """
    if isinstance(target, Plan):
        if target.status not in {PlanStatus.DRAFT, PlanStatus.PROPOSED}:
            reason = f"plan {quoted(target.plan_id)} is {target.status}; only a draft can be submitted"
            raise ConfirmRefusedError(target.plan_id, reason)
        target.export()
        if not any(step.description.strip() for step in target.steps):
            raise NotConformantError("Plan", ["/steps: no step has a description"])
    if confirm is None:
        return
    check_unlocked(confirm)
    if isinstance(target, Plan):
        check_target(confirm, TargetType.PLAN, target.plan_id)
    if confirm.status not in {ConfirmStatus.PENDING, ConfirmStatus.REJECTED}:
        reason = (
            f"{_label(confirm)} has the status {confirm.status}, which only a decision can give; submit a pending one"
        )
        raise ConfirmRefusedError(confirm.confirm_id, reason)
    confirm.export()


def _label(confirm: Confirm) -> str:
    return f"Confirm {quoted(confirm.confirm_id)}"
