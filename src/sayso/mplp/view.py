"""Trace ids: those of W3C trace context where a trace is active, in the form that the protocol takes.

A W3C trace id is 128 bits, like a UUID; six of them say "UUID v4" in the protocol's form, so the exact `traceparent`
stands beside it in the attributes. OpenTelemetry is asked only where the program has loaded it. Invariant: one trace
gives one trace id, in every process.

Requests of a store as documents of the protocol: nothing is kept twice, so nothing can disagree.

A Confirm is read from the requests of its rounds, a plan from the last of them. Any other request of sayso has its
Confirm as well. Pure: what is read here was given. Invariant: a Confirm says `approved` where a person said yes and
nobody has taken it back or let it run out since, and nowhere else.

The requests that belong to one Confirm, found in a store by whatever names it.

A target's requests wait in the run `plan:ID` (or `extension:ID`, …). The events of a Confirm stand in the journal under
the run `confirm:ID`, whose first row says where its requests are. A request that a program made by itself is found by
the id of its Confirm, which follows from its own. Invariant: nothing is written here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from sayso import clock, errors
from sayso.errors import ConfigError
from sayso.model import lifecycle
from sayso.model.request import Call, Request, State
from sayso.model.request import Decision as Said
from sayso.model.text import storable
from sayso.mplp.call import PLAN_TOOL, TARGET_TOOL, edited_plan, is_ours, told_of
from sayso.mplp.confirm import Confirm, ConfirmStatus, Decision, DecisionStatus, Plan, PlanStatus, Series, TargetType
from sayso.mplp.document import Event, Meta, Trace
from sayso.mplp.schema import ConfirmNotFoundError, ConfirmRefusedError, id_of, is_id, uuid4_of
from sayso.reviews import Review
from sayso.stores.base import Filter, Store

__all__ = [
    "BROUGHT",
    "Facts",
    "Gist",
    "Group",
    "Names",
    "Word",
    "active",
    "chain_of",
    "checked",
    "confirm_id_of",
    "confirm_of",
    "decisions_of",
    "facts_of",
    "gist_of",
    "group_of",
    "is_about",
    "plan_of",
    "rounds_of",
    "run_of",
    "target_group",
    "trace_of",
]

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})-[0-9a-f]{2}")


def checked(traceparent: str) -> str:
    """Return a `traceparent` (W3C trace context).

    Raises:
        ConfigError: It is none.
    """
    if _PARENT.fullmatch(traceparent) is None:
        raise ConfigError(f"{traceparent!a} is no W3C traceparent; nothing was asked")
    return traceparent


def active() -> str | None:
    """Return the `traceparent` of the span that is active here; None where there is none."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def trace_of(traceparent: str | None, context_id: str | None = None) -> Trace | None:
    """Return the trace that a `traceparent` names; None where it names none."""
    parts = None if traceparent is None else _PARENT.fullmatch(traceparent)
    if parts is None:
        return None
    return Trace(
        trace_id=uuid4_of(parts["trace"]),
        span_id=id_of("span", parts["trace"], parts["span"]),
        context_id=context_id,
        attributes={"traceparent": traceparent},
    )


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
    return id_of("name", name) if found is None else uuid4_of(found[1])


def _digits_of(fingerprint: str) -> str:
    """Return the id of a call that is asked for: the first digits of its fingerprint, where it has them."""
    found = _DIGITS.match(str(fingerprint))
    return id_of("fingerprint", fingerprint) if found is None else uuid4_of(found[0])


_PAGE = 500
_SURE = 12  # hexadecimal digits of an id that say nothing but what the request's own id says


class Group(NamedTuple):
    """One Confirm in a store.

    Attributes:
        rounds: Its requests as they stand now, oldest first; at least one.
        names: Ids and roles that its decisions were given.
        told: Ids of the events that stand in the journal.
    """

    rounds: tuple[Request, ...]
    names: Mapping[str, tuple[str, str]]
    told: frozenset[str]

    @property
    def last(self) -> Request:
        """The request of the newest round."""
        return self.rounds[-1]

    @property
    def confirm(self) -> Confirm:
        """The Confirm."""
        return confirm_of(self.rounds, self.names)

    @property
    def plan(self) -> Plan:
        """The plan; raises `ValueError` where it is about something else."""
        return plan_of(self.rounds)


def chain_of(confirm_id: str) -> str:
    """Return the run under which the events of a Confirm stand in the journal."""
    return f"confirm:{confirm_id}"


def rounds_of(store: Store, run_id: str) -> list[Request]:
    """Return all requests of a run as they stand now, oldest first; an end that was reached counts, written or not."""
    found: list[Request] = []
    cursor: str | None = None
    while True:
        page = store.list(Filter(run_id=run_id), cursor=cursor, limit=_PAGE)
        found += page.requests
        cursor = page.cursor
        if cursor is None:
            return [_as_of_now(request) for request in found]


def group_of(store: Store, wanted: str) -> Group:
    """Return the Confirm that is named by its id, by that of its plan, or by the id of one of its requests.

    Raises:
        ConfirmNotFoundError: There is none.
        AmbiguousIdError: The beginning of a request's id fits several.
    """
    if is_id(wanted):
        run_id = _run_in(_rows(store, wanted))
        request = next(_by_digits(store, wanted), None) if run_id is None else None
    else:
        try:
            run_id, request = None, _as_of_now(store.get(Review(store).find(wanted)))
        except errors.RequestNotFoundError:
            raise ConfirmNotFoundError(wanted) from None
    if request is not None and facts_of(request) is None:
        return Group((request,), {}, frozenset())
    if request is not None:
        wanted, run_id = confirm_id_of(request), request.run_id
    if run_id is None:
        return _of_plan(store, wanted)
    found = _of(rounds_of(store, run_id), wanted)
    if not found:
        raise ConfirmNotFoundError(wanted)
    return _whole(store, found)


def _of_plan(store: Store, plan_id: str) -> Group:
    found = target_group(store, "plan", plan_id)
    if found is None:
        raise ConfirmNotFoundError(plan_id)
    return found


def target_group(store: Store, target_type: str, target_id: str) -> Group | None:
    """Return the newest Confirm about a target; None where it was never submitted."""
    rounds = [request for request in rounds_of(store, run_of(target_type, target_id)) if facts_of(request) is not None]
    return _whole(store, _of(rounds, confirm_id_of(rounds[-1]))) if rounds else None


def _whole(store: Store, rounds: list[Request]) -> Group:
    names: dict[str, tuple[str, str]] = {}
    told = set[str]()
    for event, detail in _rows(store, confirm_id_of(rounds[0])):
        match event, detail:
            # No server takes such a row from a program, which could give a person's decision another role by it.
            case "confirm.said", {"of": str(own), "decision_id": str(decision_id), "decided_by_role": str(role)}:
                names[own] = decision_id, role
            case _:
                told.add(str(detail.get("event_id")))
    return Group(tuple(rounds), names, frozenset(told))


def _of(requests: list[Request], confirm_id: str) -> list[Request]:
    """Return the rounds of a Confirm; what the program took back for another request of the same round is none."""
    rounds: dict[str, Request] = {}
    for request in requests:
        if facts_of(request) is None or confirm_id_of(request) != confirm_id:
            continue
        other = rounds.get(request.place)
        if other is None or _is_withdrawn(other) or not _is_withdrawn(request):
            rounds[request.place] = request
    return list(rounds.values())


def _is_withdrawn(request: Request) -> bool:
    return request.state is State.CANCELLED and not request.holds


def _as_of_now(request: Request) -> Request:
    change = lifecycle.expire(request, clock.now())
    return request if change is None else change.request


def _by_digits(store: Store, confirm_id: str) -> Iterator[Request]:
    for request_id in store.match(f"rq_{confirm_id.replace('-', '')[:_SURE]}"):
        request = store.get(request_id)
        if confirm_id_of(request) == confirm_id:
            yield _as_of_now(request)


def _run_in(rows: Iterator[tuple[str, dict[str, Any]]]) -> str | None:
    for row in rows:
        match row:
            case _, {"target_type": str(target_type), "target_id": str(target_id)}:
                return run_of(target_type, target_id)
            case _:
                continue
    return None


def _rows(store: Store, confirm_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what stands in the journal of a Confirm: the event, and its detail."""
    after: tuple[str, int] | None = None
    while True:
        try:
            page = store.journal(run_id=chain_of(confirm_id), after=after, limit=_PAGE)
        except errors.RunNotFoundError:  # a server tells a program nothing of a run that it has not begun
            return
        for entry in page:
            detail: Any = _read(entry.detail)
            if isinstance(detail, dict):
                yield entry.event, cast("dict[str, Any]", detail)
        if len(page) < _PAGE:
            return
        after = page[-1].run_id, page[-1].seq


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a row that somebody altered; `sayso log --verify` finds it
        return None
