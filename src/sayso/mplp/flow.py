"""Submitting, deciding, reading and starting, written once for sync and async programs (see `sayso.effects`).

A program submits a target as a held call, a reviewer decides its request, and what is read comes from the store;
`sayso.mplp.verb` and `sayso.mplp.aio` are the two interfaces. Subscribers get the events of what this program does,
and of decisions that it finds when it reads. Invariant: a target is started by `gates.execute` alone, which takes the
single right to do so from the store; what a subscriber does, or fails to do, changes nothing of what was decided.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from sayso import config, errors, scope
from sayso.caller import Caller
from sayso.effects import Effects, HookCall, StoreCall
from sayso.gates import Gate, execute, find_or_ask
from sayso.model import canonical
from sayso.model.fingerprint import call_digest
from sayso.model.request import Request, State
from sayso.model.reviewer import PROGRAM, Identity, Reviewer
from sayso.mplp import confirm as documents
from sayso.mplp.call import PLAN_TOOL, TARGET_TOOL, Terms, gate_for, plan_with, running_as
from sayso.mplp.confirm import (
    SUBMITTED,
    Confirm,
    confirm_id_of,
    confirm_of,
    decisions_of,
    is_about,
    round_facts,
    run_of,
)
from sayso.mplp.document import Event, StageEvent
from sayso.mplp.lifecycle import (
    check_decision,
    check_submission,
    check_target,
    check_unlocked,
    create_confirm,
    decide,
    stage_of,
)
from sayso.mplp.lookup import StoredConfirm, find_confirm, find_target, journal_run_of, requests_of
from sayso.mplp.plan import ConfirmStatus, Decision, DecisionStatus, Plan, PlanStatus, TargetType
from sayso.mplp.schema import ConfirmNotFoundError, ConfirmRefusedError, id_of, new_id
from sayso.reviews import Review
from sayso.scope import Occasion, requester
from sayso.stores.base import Store

__all__ = [
    "Submission",
    "Subscriber",
    "deciding",
    "processing",
    "publish",
    "reading",
    "refreshing",
    "starting",
    "submitting",
    "subscribe",
]

Subscriber = Callable[[Event | StageEvent], Any]
"""Gets an event; may be async where the program is."""

_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Have a function called with every event from now on; calling what is returned ends it.

    An event may come more than once, where two processes notice the same decision at one time; its `event_id` is the
    same then. What the function raises is logged.
    """
    _subscribers.append(subscriber)

    def unsubscribe() -> None:
        if subscriber in _subscribers:
            _subscribers.remove(subscriber)

    return unsubscribe


def publish(event: Event | StageEvent) -> Effects[None]:
    """Call every subscriber with an event."""
    for subscriber in _subscribers:
        try:
            yield HookCall(partial(subscriber, event), {})
        except Exception:  # the subscriber's own code; the event has happened already
            logging.getLogger("sayso").exception("a subscriber failed at %s", event.event_type)


_AGAIN = frozenset({ConfirmStatus.PENDING, ConfirmStatus.REJECTED})
_IN_USE = frozenset({State.APPROVED, State.RUNNING, State.UNKNOWN})


class Submission(NamedTuple):
    """What is submitted.

    Attributes:
        role: Who asks.
        reason: Why.
        terms: What an approval needs.
        confirm: The Confirm that the caller gives; None makes one, or takes the rejected one.
        traceparent: The W3C trace that it belongs to; None is the active_traceparent one.
        store: Where it waits; None is the configured store.
    """

    role: str
    reason: str
    terms: Terms
    confirm: Confirm | None
    traceparent: str | None
    store: Store | str | None


# -- submit --------------------------------------------------------------------------------------------------------


def submitting(target: Plan | Confirm, asked: Submission) -> Effects[Confirm]:
    """Open a request for a target, or find the one that waits for it; return its Confirm."""
    check_submission(target, asked.confirm)
    if isinstance(target, Plan):  # what it says of itself leaves in its Confirm
        create_confirm(TargetType.PLAN, target.plan_id, asked.role, asked.reason).export()
    parent = (
        documents.active_traceparent() if asked.traceparent is None else documents.valid_traceparent(asked.traceparent)
    )
    store = config.open_store(asked.store)
    if isinstance(target, Plan):
        target_type, target_id, tool = TargetType.PLAN, target.plan_id, PLAN_TOOL
    else:
        target_type, target_id, tool = target.target_type, target.target_id, TARGET_TOOL
    if asked.confirm is not None:
        named: StoredConfirm | None = yield StoreCall(store, _known, store, asked.confirm.confirm_id)
        if named is not None:  # a known id must name the same target
            check_target(named.confirm, target_type, target_id)
    known: StoredConfirm | None = yield StoreCall(store, find_target, store, target_type, target_id)
    confirm_id, number = _next_round(known, asked.confirm, target_id)
    gate, run_id = gate_for(tool, asked.terms), run_of(target_type, target_id)
    if known is not None and known.last.state is State.PENDING:
        _must_be_same(gate, target, known.last)
    context = _context(target, asked, confirm_id, number) | ({} if parent is None else {"traceparent": parent})
    occasion = Occasion(
        (run_id,), {}, _acts_for(asked.role), place=f"{confirm_id}/{number}", context=context, quorum=gate.quorum,
        escalation=gate.escalation,
    )  # fmt: skip
    request = yield from find_or_ask(gate, store, _arguments_of(target), occasion, Caller())
    yield from _must_be_only(store, run_id, request)
    stored: StoredConfirm = yield StoreCall(store, find_confirm, store, request.id)
    try:
        yield from _publish(store, stored)
    except errors.RunNotFoundError as error:  # a server keeps a run for the program that began it
        raise (yield from _taken_back(store, stored)) from error
    return _at_home(store, stored, asked.confirm or stored.confirm, target if isinstance(target, Plan) else None)


def _acts_for(role: str) -> tuple[Identity, ...]:
    """Return who may not decide what this role asks for: everybody of its name, and those the program acts for."""
    around = scope.current().occasion.acts_for
    try:
        own = Identity(PROGRAM, " ".join(role.split()))
    except ValueError:  # no reviewer can have such a name either
        return around
    return around if own in around else (*around, own)


def _next_round(known: StoredConfirm | None, confirm: Confirm | None, target_id: str) -> tuple[str, int]:
    """Return which Confirm a submission belongs to, and which round of it is next."""
    own = None if confirm is None else confirm.confirm_id
    if known is None:
        return own or new_id(), 1
    before, status = confirm_id_of(known.last), known.confirm.status
    if own not in {None, before} and (status is ConfirmStatus.PENDING or known.last.state in _IN_USE):
        raise ConfirmRefusedError(own or before, f"{target_id} is {status} already, under Confirm {before}")
    if own in {None, before} and status in _AGAIN:
        return before, len(known.rounds) + (status is ConfirmStatus.REJECTED)
    if own == before or (own is None and known.last.state in _IN_USE):
        raise ConfirmRefusedError(before, f"{target_id} was {status} under Confirm {before}, which is final")
    return own or new_id(), 1


def _context(target: Plan | Confirm, asked: Submission, confirm_id: str, number: int) -> dict[str, Any]:
    """Return the request's context: fields of its Confirm and target that no reviewer edits."""
    # The id and the number stand in the request's place as well, where they count; here people read them.
    context: dict[str, Any] = {"confirm_id": confirm_id, "requested_by_role": asked.role, "round": number}
    if asked.confirm is not None and number == 1:
        context["confirm"] = {name: value for name, value in asked.confirm.export().items() if name in SUBMITTED}
    if isinstance(target, Plan):
        seen = {"plan_id", "title", "objective", "status", "steps"}
        context["plan"] = {name: value for name, value in target.export().items() if name not in seen}
    return context


def _arguments_of(target: Plan | Confirm) -> dict[str, Any]:
    """Return what a reviewer is shown of a target."""
    if isinstance(target, Plan):
        steps = [
            {"description": step.description, **step.model_dump(mode="json", exclude_none=True)}
            for step in target.steps
        ]
        return {"title": target.title, "objective": target.objective, "steps": steps}
    return {"target_type": target.target_type, "target_id": target.target_id, "reason": target.reason}


def _must_be_same(gate: Gate, target: Plan | Confirm, waiting: Request) -> None:
    form = canonical.encode(_arguments_of(target))
    if call_digest(gate.tool, gate.schema.digest, form.digest_input) != waiting.call.digest:
        raise _changed(waiting)


def _must_be_only(store: Store, run_id: str, request: Request) -> Effects[None]:
    """Take a request back where another one of the target came first: two programs may submit at one time."""
    rounds: list[Request] = yield StoreCall(store, requests_of, store, run_id)
    first = next((one for one in rounds if one.state is State.PENDING and round_facts(one) is not None), request)
    if first.id != request.id and request.state is State.PENDING:
        yield StoreCall(store, store.withdraw, request.id, requester(), f"{first.id} waits for the same target")
        raise _changed(first)


def _taken_back(store: Store, stored: StoredConfirm) -> Effects[ConfirmRefusedError]:
    """Take a request back whose Confirm another program was first to write about, and return what that says."""
    confirm_id, request = stored.confirm.confirm_id, stored.last
    if request.state is State.PENDING:
        yield StoreCall(store, store.withdraw, request.id, requester(), "another program uses the id of its Confirm")
    reason = f"another program uses the id of Confirm {confirm_id}, and {request.id} does not wait any more"
    return ConfirmRefusedError(confirm_id, f"{reason}; submit it under a new Confirm")


def _changed(waiting: Request) -> ConfirmRefusedError:
    reason = f"{waiting.run_id} was changed, and waits as it was as {waiting.id}; have that decided or withdrawn first"
    return ConfirmRefusedError(confirm_id_of(waiting), reason)


# -- decide --------------------------------------------------------------------------------------------------------


def deciding(confirm: Confirm, decision: Decision) -> Effects[None]:
    """Add a decision: through the person's door where the Confirm waits in a store, else to the document."""
    if confirm.origin.seen is None:
        decide(confirm, decision)
    else:
        yield from processing(confirm, decision, None, None)


def processing(
    confirm: Confirm, decision: Decision, by: Reviewer | str | None, store: Store | str | None
) -> Effects[None]:
    """Take a decision: on the request that waits for it, on the target, and in the document; publish its event."""
    check_unlocked(confirm)
    where = config.open_store(confirm.origin.store if store is None else store)
    stored: StoredConfirm | None = yield StoreCall(where, _known, where, confirm.confirm_id)
    if stored is None and confirm.origin.seen is not None:  # what was read of a request is decided on that request
        raise ConfirmNotFoundError(confirm.confirm_id)
    if stored is None:
        yield from _decided_alone(confirm, decision)
        return
    view = stored.confirm
    check_target(confirm, view.target_type, view.target_id)
    check_decision(view, decision)
    review = Review(where, reviewer=_reviewer(confirm, decision, by), channel="mplp")
    request: Request = yield StoreCall(
        where, partial(_decide, review, stored.last, decision, _seen(confirm, stored.last))
    )
    # The request records a person and a time; the protocol's id and role of the decision are in the Confirm's journal.
    own = decisions_of(request)[-1].decision_id
    detail = {"confirm_id": view.confirm_id, "of": own, "decision_id": decision.decision_id}
    detail["decided_by_role"] = decision.decided_by_role
    yield StoreCall(where, where.note, journal_run_of(view.confirm_id), "confirm.decision", requester(), detail)
    after: StoredConfirm = yield StoreCall(where, find_confirm, where, request.id)
    yield from _publish(where, after)
    _at_home(where, after, confirm, confirm.origin.plan)


def _known(store: Store, confirm_id: str) -> StoredConfirm | None:
    with suppress(ConfirmNotFoundError):
        return find_confirm(store, confirm_id)
    return None


def _decided_alone(confirm: Confirm, decision: Decision) -> Effects[None]:
    for event in decide(confirm, decision):
        yield from publish(event)
    if confirm.target_type is TargetType.PLAN:
        yield from publish(stage_of(confirm, decision, id_of("stage", decision.decision_id)))


def _reviewer(confirm: Confirm, decision: Decision, by: Reviewer | str | None) -> Reviewer:
    if isinstance(by, Reviewer):
        return by
    try:
        return Reviewer(decision.decided_by_role if by is None else by, roles={decision.decided_by_role})
    except ValueError as error:
        raise ConfirmRefusedError(confirm.confirm_id, f"who decides? {error}") from error


def _seen(confirm: Confirm, request: Request) -> str:
    """Return the fingerprint that a decision is about: of what the Confirm was read from, where it was read."""
    current = request.current_fingerprint
    asked, seen = confirm.origin.seen or (request.id, current)
    if asked != request.id:  # another round, which nobody has looked at by this Confirm
        raise errors.StaleViewError(request.id, seen=seen, current=current)
    return seen


def _decide(review: Review, request: Request, decision: Decision, seen: str) -> Request:
    match decision.status:
        case DecisionStatus.APPROVED:
            return review.approve(request.id, comment=decision.reason, seen=seen)
        case DecisionStatus.REJECTED:
            return review.reject(request.id, decision.reason, seen=seen)
        case DecisionStatus.CANCELLED:
            return review.cancel(request.id, decision.reason)


# -- read ----------------------------------------------------------------------------------------------------------


def reading(wanted: str, store: Store | str | None) -> Effects[Confirm]:
    """Return the Confirm of this id, or of a request of this id."""
    where = config.open_store(store)
    stored: StoredConfirm = yield StoreCall(where, find_confirm, where, wanted)
    yield from _publish(where, stored)
    return _at_home(where, stored, stored.confirm, None)


def refreshing(confirm: Confirm) -> Effects[None]:
    """Bring a Confirm that is the view of requests, and the plan that was submitted with it, to where they stand."""
    if confirm.origin.store is None:
        raise ConfirmRefusedError(confirm.confirm_id, f"Confirm {confirm.confirm_id!a} is in no store")
    where = config.open_store(confirm.origin.store)
    stored: StoredConfirm = yield StoreCall(where, find_confirm, where, confirm.confirm_id)
    yield from _publish(where, stored)
    _at_home(where, stored, confirm, confirm.origin.plan)


def _at_home(store: Store, stored: StoredConfirm, confirm: Confirm, plan: Plan | None) -> Confirm:
    governance = confirm.governance
    confirm.update_from(stored.confirm)
    if governance is not None:
        confirm.governance = governance  # a lock that was set here stays
    if plan is not None and stored.last.purged_at is None:
        plan.update_from(stored.plan)
    return confirm.linked(store, plan, seen=stored.last)


def _publish(store: Store, stored: StoredConfirm) -> Effects[None]:
    """Record what happened to a Confirm since the last reading, and publish it."""
    if round_facts(stored.last) is None:
        return  # a program's own request; its journal says it all
    for event, about in _happened(stored):
        if event.event_id in stored.recorded_events:
            continue
        detail = {"event_id": event.event_id, "request": about.id, **_detail(event)}
        yield StoreCall(
            store, store.note, journal_run_of(stored.confirm.confirm_id), event.event_type, requester(), detail
        )
        yield from publish(event)


def _happened(stored: StoredConfirm) -> list[tuple[Event | StageEvent, Request]]:
    found: list[tuple[Event | StageEvent, Request]] = []
    for index, request in enumerate(stored.rounds):
        confirm = confirm_of(stored.rounds[: index + 1], stored.names)
        ours = {id_of("event", request.id, word) for word in ("requested", "decided", "cancelled")}
        events = [event for event in confirm.events or () if event.event_id in ours]
        found += [(event, request) for event in events]
        if confirm.target_type is TargetType.PLAN and len(events) > 1:
            stage = stage_of(confirm, confirm.decisions[-1], id_of("stage", request.id, confirm.status))
            found.append((stage, request))
    return found


def _detail(event: Event | StageEvent) -> dict[str, Any]:
    if isinstance(event, StageEvent):
        return {"event_family": event.event_family, **event.payload}
    return dict(event.data or {})


# -- start ---------------------------------------------------------------------------------------------------------


def starting(target: Plan | Confirm, do: Callable[[Any], Any], store: Store | str | None) -> Effects[Any]:
    """Start an approved target, once: call `do` with it as it was approved."""
    home = target.origin.store if isinstance(target, Confirm) else None
    where = config.open_store(home if store is None else store)
    stored = yield from _group_to_start(where, target)
    request = stored.last
    if isinstance(target, Confirm):
        check_unlocked(target)
        check_target(target, stored.confirm.target_type, stored.confirm.target_id)
    if round_facts(request) is None:
        raise ConfirmRefusedError(stored.confirm.confirm_id, f"{request.id} is a program's own, which starts it itself")
    gate = gate_for(request.call.tool, Terms(), is_async=inspect.iscoroutinefunction(do))
    with running_as(partial(_run_target, do, stored)):
        attempt = yield from execute(gate, where, request)
    stored = yield StoreCall(where, find_confirm, where, request.id)
    if isinstance(target, Plan):
        target.update_from(stored.plan)
    else:
        _at_home(where, stored, target, target.origin.plan)
    return attempt.unwrap()


def _group_to_start(store: Store, target: Plan | Confirm) -> Effects[StoredConfirm]:
    if isinstance(target, Confirm):
        return (yield StoreCall(store, find_confirm, store, target.confirm_id))
    stored: StoredConfirm | None = yield StoreCall(store, find_target, store, TargetType.PLAN, target.plan_id)
    if stored is None:
        raise ConfirmNotFoundError(target.plan_id)
    return stored


def _run_target(do: Callable[[Any], Any], stored: StoredConfirm, arguments: dict[str, Any]) -> Any:
    """Call `do` with what was approved: what the started call runs with, and what cannot be edited."""
    confirm = stored.confirm
    if confirm.target_type is not TargetType.PLAN:
        if not is_about(arguments, confirm.target_type, confirm.target_id):
            problem = f"what was approved is not {confirm.target_type} {confirm.target_id}, which was submitted"
            raise errors.AlteredRequestError(stored.last.id, problem)
        return do(confirm.model_copy(update={"reason": arguments.get("reason")}))
    plan = plan_with(stored.plan, arguments).model_copy(update={"status": PlanStatus.IN_PROGRESS})
    plan.export()
    return do(plan)
