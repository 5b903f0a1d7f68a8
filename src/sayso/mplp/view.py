"""Requests of a store as documents of the protocol: nothing is kept twice, so nothing can disagree.

A Confirm is read from the requests of its rounds, a plan from the last of them. Any other request of sayso has its
Confirm as well. Pure: what is read here was given. Invariant: a Confirm says `approved` where a person said yes and
nobody has taken it back or let it run out since, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from sayso.model.request import Call, Request, State
from sayso.model.request import Decision as Said
from sayso.model.text import storable
from sayso.mplp.call import PLAN_TOOL, TARGET_TOOL, edited_plan, is_ours, told_of
from sayso.mplp.confirm import Confirm, Decision
from sayso.mplp.fault import ConfirmRefusedError
from sayso.mplp.ids import id_of, is_id, shaped
from sayso.mplp.part import Event, Meta, Trace
from sayso.mplp.plan import Plan
from sayso.mplp.series import Series
from sayso.mplp.status import ConfirmStatus, DecisionStatus, PlanStatus, TargetType
from sayso.mplp.trace import trace_of

__all__ = [
    "BROUGHT",
    "Facts",
    "Gist",
    "Names",
    "Word",
    "confirm_id_of",
    "confirm_of",
    "decisions_of",
    "facts_of",
    "gist_of",
    "is_about",
    "plan_of",
    "run_of",
]

Names = Mapping[str, tuple[str, str]]
"""Ids and roles that decisions were given, by the ids that follow from their requests."""

BROUGHT = frozenset({"meta", "governance", "reason", "trace"})
"""What a Confirm brings along. Not what was decided elsewhere, nor when: nobody here can know that it was."""

_RANDOM = re.compile(r"(?:rq|run)_([0-9a-f]{32})")
_DIGITS = re.compile(r"[0-9a-f]{32}")
_RUNS = frozenset({"Agent", "Workflow", "agent", "workflow"})
_STATUS = {
    State.PENDING: ConfirmStatus.PENDING,
    State.APPROVED: ConfirmStatus.APPROVED,
    State.RUNNING: ConfirmStatus.APPROVED,
    State.DONE: ConfirmStatus.APPROVED,
    State.FAILED: ConfirmStatus.APPROVED,
    State.UNKNOWN: ConfirmStatus.APPROVED,
    State.ANSWERED: ConfirmStatus.APPROVED,
    State.REJECTED: ConfirmStatus.REJECTED,
    State.FEEDBACK: ConfirmStatus.REJECTED,
    State.CANCELLED: ConfirmStatus.CANCELLED,
    State.EXPIRED: ConfirmStatus.CANCELLED,
}
_PLAN_STATUS = {
    State.PENDING: PlanStatus.PROPOSED,
    State.APPROVED: PlanStatus.APPROVED,
    State.RUNNING: PlanStatus.IN_PROGRESS,
    State.UNKNOWN: PlanStatus.IN_PROGRESS,
    State.DONE: PlanStatus.COMPLETED,
    State.FAILED: PlanStatus.FAILED,
}
_SAID = {
    "approve": DecisionStatus.APPROVED,
    "answer": DecisionStatus.APPROVED,
    "reject": DecisionStatus.REJECTED,
    "feedback": DecisionStatus.REJECTED,
    "cancel": DecisionStatus.CANCELLED,
}


class Facts(NamedTuple):
    """What a request says of the Confirm that it is a round of.

    Attributes:
        confirm_id: Which Confirm.
        target_type, target_id: What it is about.
        role: Who asked for it.
        confirm: Further fields of the Confirm, as JSON, where it was brought along.
        plan: Further fields of the plan, as JSON.
        traceparent: The W3C trace in which it was asked.
    """

    confirm_id: str
    target_type: TargetType
    target_id: str
    role: str
    confirm: Mapping[str, Any]
    plan: Mapping[str, Any]
    traceparent: str | None


class Word(NamedTuple):
    """One decision on a Confirm, with the fields that `Decision` has and without its id."""

    status: DecisionStatus
    decided_by_role: str
    decided_at: datetime
    reason: str


class Gist(NamedTuple):
    """What a learning sample needs to know of a Confirm.

    Attributes:
        confirm_id: Which one.
        status: Where it stands.
        requested_at: When it was asked for.
        decisions: What was said, oldest first.
        event_ids: Ids of its events, oldest first.
    """

    confirm_id: str
    status: ConfirmStatus
    requested_at: datetime
    decisions: Sequence[Decision | Word]
    event_ids: Sequence[str]


def run_of(target_type: str, target_id: str) -> str:
    """Return the run in which a target's requests wait."""
    return f"{target_type}:{target_id}"


def facts_of(request: Request) -> Facts | None:
    """Return what a request says of its Confirm; None where it is no round of one.

    Which Confirm and target it is about stands in its place and its run, which its fingerprint covers; all else is gone
    when the request was purged. A call that shows people another target than its run names is no round of either.
    """
    if not isinstance(request.subject, Call) or not is_ours(request.subject):
        return None
    confirm_id, _, number = request.place.partition("/")
    target_type, _, target_id = request.run_id.partition(":")
    if not (is_id(confirm_id) and number.isdecimal() and target_type in set(TargetType)):
        return None
    if not _shows(request, target_type, target_id):
        return None
    told = request.context or {}
    role, parent = told.get("requested_by_role"), told.get("traceparent")
    return Facts(
        confirm_id,
        TargetType(target_type),
        target_id,
        storable(role) if isinstance(role, str) else request.requester.subject,
        _fields(told.get("confirm")),
        _fields(told.get("plan")),
        parent if isinstance(parent, str) else None,
    )


def is_about(said: Mapping[str, Any], target_type: str, target_id: str) -> bool:
    """Say whether what a call of `use_target` says of its target is this one."""
    return said.get("target_type") == target_type and said.get("target_id") == target_id


def _shows(request: Request, target_type: str, target_id: str) -> bool:
    """Say whether a request shows people the target that its run names."""
    if request.call.tool == PLAN_TOOL:
        return target_type == TargetType.PLAN
    return request.purged_at is not None or is_about(told_of(request.call), target_type, target_id)


def _fields(told: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}


def confirm_id_of(request: Request) -> str:
    """Return the id of a request's Confirm."""
    facts = facts_of(request)
    return _id_of(request.id) if facts is None else facts.confirm_id


def confirm_of(rounds: Sequence[Request], names: Names | None = None) -> Confirm:
    """Return the Confirm of which these requests are the rounds, oldest first."""
    facts = facts_of(rounds[0])
    confirm = _described(rounds[0]) if facts is None else _submitted(rounds[0], facts)
    decisions, events = list(confirm.decisions), list(confirm.events or ())
    for number, request in enumerate(rounds, 1):
        made = decisions_of(request, names)
        decisions += made
        events += _events(confirm, request, number, made)
    changes = {"status": _status(rounds[-1]), "decisions": Series(decisions), "events": Series(events)}
    return confirm.model_copy(update=changes)


def gist_of(request: Request) -> Gist:
    """Return what the Confirm comes to of a request that a program made by itself, without making the documents."""
    status, made = _status(request), _words(request)
    told = [_event_id(request, word) for word in _steps(status, is_said=bool(made))]
    return Gist(_id_of(request.id), status, request.created_at, made, told)


def plan_of(rounds: Sequence[Request]) -> Plan:
    """Return the plan of which these requests are the rounds, as it was last proposed, or as reviewers left it.

    Raises:
        ValueError: They are not about a plan.
        ConfirmRefusedError: It was purged.
        NotConformantError: What waits by the name of a plan is none.
    """
    request = rounds[-1]
    facts = facts_of(request)
    if facts is not None and request.purged_at is not None:
        reason = f"plan {facts.target_id} was purged on {request.purged_at:%Y-%m-%d}, and only its Confirm is left"
        raise ConfirmRefusedError(facts.confirm_id, reason)
    if facts is None or request.call.tool != PLAN_TOOL:
        raise ValueError(f"{request.id} is not about a plan")
    bare: dict[str, Any] = {"meta": {}, "context_id": id_of("context", facts.target_id)}
    own: dict[str, Any] = {"plan_id": facts.target_id, "title": "", "objective": "", "steps": []}
    plan = Plan.model_validate(bare | Plan.fitting(facts.plan) | own)
    status = _PLAN_STATUS.get(request.state, PlanStatus.DRAFT)
    return edited_plan(plan, request.effective).model_copy(update={"status": status})


def decisions_of(request: Request, names: Names | None = None) -> list[Decision]:
    """Return what people said about one request, oldest first; that its time was over counts as a cancellation."""
    made = [_decision(request, one, names or {}) for one in _said(request)]
    if request.state is State.EXPIRED:
        made.append(_document(id_of("decision", request.id, "expired"), _run_out(request)))
    return made


def _said(request: Request) -> list[Said]:
    """Return what people said about one request, votes included, oldest first."""
    said = list(request.votes)
    if request.decision is not None and request.decision not in said:
        said.append(request.decision)
    return said


def _words(request: Request) -> list[Word]:
    """Return `decisions_of` without ids."""
    made = [_word(request, one) for one in _said(request)]
    return [*made, _run_out(request)] if request.state is State.EXPIRED else made


def _decision(request: Request, said: Said, names: Names) -> Decision:
    own, word = id_of("decision", request.id, said.verb, said.by.folded, said.at.isoformat()), _word(request, said)
    decision_id, role = names.get(own, (own, word.decided_by_role))
    return _document(decision_id, word._replace(decided_by_role=role))


def _document(decision_id: str, word: Word) -> Decision:
    return Decision(decision_id=decision_id, **word._asdict())


def _word(request: Request, said: Said) -> Word:
    status = DecisionStatus.REJECTED if _is_no(request) else _SAID[said.verb]
    words = storable(said.comment) if said.comment and said.comment.strip() else ""
    return Word(status, said.by.subject, said.at, words or f"{status} by {said.by} ({said.channel}), without a word")


def _run_out(request: Request) -> Word:
    ended, what = request.expires_at, "nobody decided in time, and no answer is a no"
    if request.decision is not None and request.approval_expires_at is not None:
        ended, what = request.approval_expires_at, "the approval was not used in time"
    return Word(DecisionStatus.CANCELLED, "clock", ended, what)


def _is_no(request: Request) -> bool:
    """Say whether what reads as a yes is a no: the answer `False`, or the approval of another target than was asked."""
    if request.state is State.ANSWERED:
        return request.answer is False
    edited = request.edited
    if edited is None or edited.tool != TARGET_TOOL or _STATUS[request.state] is not ConfirmStatus.APPROVED:
        return False
    facts = facts_of(request) if request.purged_at is None else None
    return facts is not None and not is_about(told_of(edited), facts.target_type, facts.target_id)


def _status(request: Request) -> ConfirmStatus:
    return ConfirmStatus.REJECTED if _is_no(request) else _STATUS[request.state]


def _events(confirm: Confirm, request: Request, number: int, made: Sequence[Decision]) -> list[Event]:
    trace_id = None if confirm.trace is None else confirm.trace.trace_id
    about = {"confirm_id": confirm.confirm_id, "target_type": str(confirm.target_type), "target_id": confirm.target_id}

    def event(word: str, at: datetime, data: dict[str, Any]) -> Event:
        return Event(
            event_id=_event_id(request, word), event_type=f"confirm.{word}", timestamp=at, trace_id=trace_id,
            data=about | {"round": number} | data,
        )  # fmt: skip

    first, *others = _steps(_status(request), is_said=bool(made))
    found = [event(first, request.created_at, {})]
    for word in others:
        last = made[-1]
        data = {"decision_id": last.decision_id, "status": str(last.status), "decided_by_role": last.decided_by_role}
        found.append(event(word, last.decided_at, data))
    return found


def _steps(status: ConfirmStatus, *, is_said: bool) -> list[str]:
    """Return what has happened to one round of a Confirm."""
    if status is ConfirmStatus.PENDING or not is_said:
        return ["requested"]
    return ["requested", "cancelled" if status is ConfirmStatus.CANCELLED else "decided"]


def _event_id(request: Request, word: str) -> str:
    return id_of("event", request.id, word)


def _submitted(request: Request, facts: Facts) -> Confirm:
    """Return the Confirm that was submitted, without what was decided here."""
    brought = Confirm.fitting({name: value for name, value in facts.confirm.items() if name in BROUGHT})
    told = (_reason(request), facts.confirm.get("reason"), request.prompt)
    reason = next((one for one in told if isinstance(one, str) and one), f"Requesting approval for {facts.target_type}")
    fields: dict[str, Any] = {
        "meta": Meta(created_at=request.created_at),
        "trace": trace_of(facts.traceparent),
        **brought,
        "reason": storable(reason),
        "requested_at": request.created_at,
        "confirm_id": facts.confirm_id,
        "target_type": facts.target_type,
        "target_id": facts.target_id,
        "requested_by_role": facts.role,
    }
    return Confirm.model_validate(fields)


def _reason(request: Request) -> Any:
    """Return the reason that people are shown in the call itself; None where it has none."""
    return told_of(request.call).get("reason") if request.call.tool == TARGET_TOOL else None


def _described(request: Request) -> Confirm:
    """Return the Confirm of a request that a program made by itself, without what was decided."""
    subject, facts = request.subject, request.context or {}
    if not isinstance(subject, Call):
        target_type, target_id, asks = TargetType.CONTEXT, _id_of(request.run_id), subject.text
    elif str(facts.get("runnable_type")) in _RUNS:
        target_type, target_id, asks = TargetType.TRACE, _id_of(request.run_id), f"run {subject.name}"
    else:
        target_type, target_id, asks = TargetType.OTHER, _digits_of(request.fingerprint), f"call {subject.tool}"
    parent = facts.get("traceparent")
    trace = trace_of(parent if isinstance(parent, str) else None)
    return Confirm(
        meta=Meta(created_at=request.created_at, created_by=request.requester.qualified),
        confirm_id=_id_of(request.id),
        target_type=target_type,
        target_id=target_id,
        requested_by_role=request.requester.subject,
        requested_at=request.created_at,
        reason=storable(request.prompt or asks) or "call",
        trace=trace or Trace(trace_id=_id_of(request.run_id), span_id=id_of("span", request.id)),
    )


def _id_of(name: str) -> str:
    """Return the id that a request or run has in the protocol: its own digits where it has them."""
    found = _RANDOM.fullmatch(str(name))  # whatever stands in a row that somebody altered
    return id_of("name", name) if found is None else shaped(found[1])


def _digits_of(fingerprint: str) -> str:
    """Return the id of a call that is asked for: the first digits of its fingerprint, where it has them."""
    found = _DIGITS.match(str(fingerprint))
    return id_of("fingerprint", fingerprint) if found is None else shaped(found[0])
