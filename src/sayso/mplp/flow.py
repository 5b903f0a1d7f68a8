"""The protocol's functions, each implemented once for sync and async programs (see `sayso.effects`).

`sayso.mplp` runs them synchronously and `sayso.mplp.aio` awaits them. The first five have the names and arguments of
seed 003, in snake case. A program submits a target as a held call, a reviewer decides its request, and all reads come
from the store. Only `gates.execute` starts a target. A function that raises a refusal has changed nothing, and a
subscriber cannot affect a decision.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

from sayso import config, errors
from sayso.config import requester
from sayso.effects import HookCall, Operations, StoreCall
from sayso.gates import scope
from sayso.gates.caller import Caller
from sayso.gates.execution import execute
from sayso.gates.find_or_ask import find_or_ask
from sayso.gates.options import quorum_of
from sayso.gates.scope import CallSite
from sayso.model import canonical, duration
from sayso.model.edit import PLAN_TOOL, TARGET_TOOL
from sayso.model.ids import call_digest
from sayso.model.request import Request, State
from sayso.model.reviewer import PROGRAM, Identity, Reviewer
from sayso.mplp import confirm as documents
from sayso.mplp.confirm import Confirm, confirm_id_of, round_facts
from sayso.mplp.document import (
    ConfirmStatus,
    Decision,
    DecisionStatus,
    Event,
    Plan,
    PlanStatus,
    StageEvent,
    TargetType,
    gate_for,
    plan_with,
)
from sayso.mplp.history import StoredConfirm, find_confirm, find_plan, find_target, journal_run_of, requests_of
from sayso.mplp.schema import ConfirmNotFoundError, ConfirmRefusedError, id_of, new_id
from sayso.reviews import Review
from sayso.stores.base import Store

T = TypeVar("T")

Subscriber = Callable[[Event | StageEvent], Any]
"""Receives an event; may be async in an async program."""

_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Call a function with every event from now on; return a function that unsubscribes it.

    An event can arrive twice, with the same `event_id`, if two processes notice the same decision at the same time.
    Exceptions of the subscriber are logged.
    """
    _subscribers.append(subscriber)

    def unsubscribe() -> None:
        if subscriber in _subscribers:
            _subscribers.remove(subscriber)

    return unsubscribe


def _publish(event: Event | StageEvent) -> Operations[None]:
    for subscriber in _subscribers:
        try:
            yield HookCall(partial(subscriber, event), {})
        except Exception:  # raised by the subscriber's code, which cannot undo the event
            logging.getLogger("sayso").exception("a subscriber failed at %s", event.event_type)


_IN_USE = frozenset({State.APPROVED, State.RUNNING, State.UNKNOWN})


# -- submit --------------------------------------------------------------------------------------------------------


class SubmitOptions(TypedDict, total=False):
    """Options of a submission.

    Attributes:
        expires, approval_expires, quorum, roles, risk: As for `sayso.gate`.
        store: The store to use instead of the configured one.
    """

    expires: timedelta | str
    approval_expires: timedelta | str
    quorum: int
    roles: Collection[str]
    risk: str | None
    store: Store | str | None


def submit_plan_for_approval(
    plan: Plan, requested_by: str, *, reason: str | None = None, confirm: Confirm | None = None,
    **options: Unpack[SubmitOptions],
) -> Operations[Confirm]:  # fmt: skip
    """Submit a plan: it becomes `proposed`, and its request appears in the inbox and in every channel.

    Submitting the same plan again finds the pending request. After a rejection it starts another round on the same
    Confirm; after any other end it gets a new Confirm. Durable on return (seed 003, section 4.2).

    Args:
        plan: A draft; this updates its status from now on.
        requested_by: The role that asks.
        reason: The reason, which the reviewer reads first; by default derived from the plan's title.
        confirm: A Confirm to use; its id and fields are kept.
        options: See `SubmitOptions`.

    Raises:
        NotConformantError: The plan or the given Confirm does not conform to the protocol.
        ConfirmRefusedError: The plan is already approved, or was changed while it is pending, or the Confirm is locked
            or about another target.
        StoreError: The request could not be recorded.
    """
    text = reason or (None if confirm is None else confirm.reason) or f"Requesting approval for plan: {plan.title}"
    return _submit(plan, requested_by, text, confirm, **options)


def submit_for_approval(confirm: Confirm, **options: Unpack[SubmitOptions]) -> Operations[Confirm]:
    """Submit a Confirm about any target but a plan, which opens a request; from now on the Confirm follows it.

    This takes the options of `submit_plan_for_approval`, and raises the same errors.
    """
    text = confirm.reason or f"Requesting approval for {confirm.target_type} {confirm.target_id}"
    return _submit(confirm, confirm.requested_by_role, text, confirm, **options)


def _submit(
    target: Plan | Confirm, role: str, reason: str, confirm: Confirm | None, *, expires: timedelta | str = "24h",
    approval_expires: timedelta | str = "24h", quorum: int = 1, roles: Collection[str] = (), risk: str | None = None,
    store: Store | str | None = None,
) -> Operations[Confirm]:  # fmt: skip
    if isinstance(target, Plan):
        target_type, target_id, tool = TargetType.PLAN, target.plan_id, PLAN_TOOL
    else:
        target_type, target_id, tool = target.target_type, target.target_id, TARGET_TOOL
    gate = gate_for(
        tool, prompt=reason, expires=duration.option("expires", expires), quorum=quorum_of(quorum, roles), risk=risk,
        approval_expires=duration.option("approval_expires", approval_expires),
    )  # fmt: skip
    documents.check_submission(target, confirm)
    arguments: dict[str, Any]
    if isinstance(target, Plan):  # its Confirm exports the role and the reason
        documents.create_confirm(TargetType.PLAN, target_id, role, reason).export()
        dumped = [step.model_dump(mode="json", exclude_none=True) for step in target.steps]
        steps = [{"description": step["description"], **step} for step in dumped]
        arguments = {"title": target.title, "objective": target.objective, "steps": steps}
    else:
        arguments = {"target_type": target_type, "target_id": target_id, "reason": target.reason}
    where = config.open_store(store)
    if confirm is not None:
        named: StoredConfirm | None = yield StoreCall(_find_or_none, where, confirm.confirm_id)
        if named is not None:  # a Confirm that exists must be about the same target
            documents.check_target(named.confirm, target_type, target_id)
    known: StoredConfirm | None = yield StoreCall(find_target, where, target_type, target_id)
    confirm_id, number = _next_round(known, confirm, target_id)
    run_id = documents.run_of(target_type, target_id)
    if known is not None and known.last.state is State.PENDING:
        form = canonical.encode(arguments)
        if call_digest(gate.tool, gate.schema.digest, form.digest_input) != known.last.call.digest:
            raise _changed_error(known.last)
    context = _context(target, role, confirm if number == 1 else None) | {"confirm_id": confirm_id, "round": number}
    site = CallSite(
        (run_id,), {}, _excluded_deciders(role), place=f"{confirm_id}/{number}", context=context, quorum=gate.quorum
    )
    request = yield from find_or_ask(gate, where, arguments, site, Caller())
    yield from _withdraw_duplicate(where, run_id, request)
    stored: StoredConfirm = yield StoreCall(find_confirm, where, request.id)
    try:
        yield from _publish_new_events(where, stored)
    except errors.RunNotFoundError as error:  # a server reserves a run for the program that created it
        raise (yield from _withdraw_and_refuse(where, stored)) from error
    return _update(where, stored, confirm or stored.confirm, target if isinstance(target, Plan) else None)


def _excluded_deciders(role: str) -> tuple[Identity, ...]:
    """Return who may not decide this role's requests: anybody of its name, and those whom the program acts for."""
    around = scope.current().site.acts_for
    try:
        own = Identity(PROGRAM, " ".join(role.split()))
    except ValueError:  # no reviewer can have such a name
        return around
    return around if own in around else (*around, own)


def _next_round(known: StoredConfirm | None, confirm: Confirm | None, target_id: str) -> tuple[str, int]:
    own = None if confirm is None else confirm.confirm_id
    if known is None:
        return own or new_id(), 1
    before, status = confirm_id_of(known.last), known.confirm.status
    if own not in {None, before} and (status is ConfirmStatus.PENDING or known.last.state in _IN_USE):
        raise ConfirmRefusedError(own or before, f"{target_id} is already {status} under Confirm {before}")
    if own in {None, before} and status in {ConfirmStatus.PENDING, ConfirmStatus.REJECTED}:
        return before, len(known.rounds) + (status is ConfirmStatus.REJECTED)
    if own == before or (own is None and known.last.state in _IN_USE):
        raise ConfirmRefusedError(before, f"{target_id} was {status} under Confirm {before}, which is final")
    return own or new_id(), 1


def _context(target: Plan | Confirm, role: str, confirm: Confirm | None) -> dict[str, Any]:
    """Return the request's context: fields of its Confirm and target that reviewers cannot edit."""
    context: dict[str, Any] = {"requested_by_role": role}
    if confirm is not None:
        context["confirm"] = {name: value for name, value in confirm.export().items() if name in documents.SUBMITTED}
    if isinstance(target, Plan):
        shown = {"plan_id", "title", "objective", "status", "steps"}
        context["plan"] = {name: value for name, value in target.export().items() if name not in shown}
    return context


def _withdraw_duplicate(store: Store, run_id: str, request: Request) -> Operations[None]:
    """Withdraw a request if another one for the target came first, because two programs can submit at the same time."""
    rounds: list[Request] = yield StoreCall(requests_of, store, run_id)
    first = next((one for one in rounds if one.state is State.PENDING and round_facts(one) is not None), request)
    if first.id != request.id and request.state is State.PENDING:
        yield StoreCall(store.withdraw, request.id, requester(), f"{first.id} waits for the same target")
        raise _changed_error(first)


def _withdraw_and_refuse(store: Store, stored: StoredConfirm) -> Operations[ConfirmRefusedError]:
    """Withdraw a request whose Confirm another program has recorded first, and return the error that says so."""
    confirm_id, request = stored.confirm.confirm_id, stored.last
    if request.state is State.PENDING:
        yield StoreCall(store.withdraw, request.id, requester(), "another program uses the id of its Confirm")
    reason = f"another program uses the id of Confirm {confirm_id}, and {request.id} is no longer pending"
    return ConfirmRefusedError(confirm_id, f"{reason}; submit it under a new Confirm")


def _changed_error(waiting: Request) -> ConfirmRefusedError:
    reason = (
        f"{waiting.run_id} was changed while its earlier version waits as {waiting.id}; have that decided or withdrawn"
        " first"
    )
    return ConfirmRefusedError(confirm_id_of(waiting), reason)


# -- decide --------------------------------------------------------------------------------------------------------


def add_decision(
    confirm: Confirm, status: DecisionStatus | str, decided_by_role: str, reason: str | None = None
) -> Operations[None]:
    """Add a decision to a Confirm (seed 003, section 6).

    If the Confirm was read from a store, its request is decided there, as by `process_decision`. Otherwise only the
    document changes.

    Raises:
        ConfirmLockedError: The Confirm is locked.
        ConfirmRefusedError: It is already decided, a rejection has no reason, or the requesting role decides.
        ConfirmNotFoundError: It was read from a request, but the store has no Confirm with its id.
        DecisionRefusedError: The store refuses the decision, e.g. because the request changed since it was read.
    """
    decision = Decision(status=DecisionStatus(status), decided_by_role=decided_by_role, reason=reason)
    if confirm.origin.seen is None:
        documents.decide(confirm, decision)
    else:
        yield from process_decision(confirm, decision)


def process_decision(
    confirm: Confirm, decision: Decision, *, by: Reviewer | str | None = None, store: Store | str | None = None
) -> Operations[None]:
    """Process a decision (seed 003, section 4.3): decide the request, update Confirm and plan, notify subscribers.

    Args:
        confirm: The Confirm; if the store has a pending one with this id, that one is decided.
        decision: The decision. Its id and role are kept; the store sets its time.
        by: The person who decided; by default the role is used as the person's name.
        store: The store to use instead of the Confirm's own store or the configured one.

    Raises:
        ConfirmLockedError: The Confirm is locked.
        ConfirmRefusedError: It is already decided, a rejection has no reason, the decision's id is in use, or the
            Confirm is in no store and the requesting role decides.
        ConfirmNotFoundError: It was read from a request, but the store has no Confirm with its id.
        StaleViewError: The target was edited, or submitted in another round, since the Confirm was read.
        DecisionRefusedError: The store refuses it, e.g. because the role asked for it, or is not one of `roles=`.
    """
    documents.check_unlocked(confirm)
    where = config.open_store(confirm.origin.store if store is None else store)
    stored: StoredConfirm | None = yield StoreCall(_find_or_none, where, confirm.confirm_id)
    if stored is None and confirm.origin.seen is not None:  # read from a request, so it must be in the store
        raise ConfirmNotFoundError(confirm.confirm_id)
    if stored is None:
        yield from _publish(documents.decide(confirm, decision))
        if confirm.target_type is TargetType.PLAN:
            yield from _publish(documents.stage_of(confirm, decision, id_of("stage", decision.decision_id)))
        return
    view = stored.confirm
    documents.check_target(confirm, view.target_type, view.target_id)
    documents.check_decision(view, decision)
    try:
        role = decision.decided_by_role
        reviewer = by if isinstance(by, Reviewer) else Reviewer(role if by is None else by, roles={role})
    except ValueError as error:
        raise ConfirmRefusedError(confirm.confirm_id, f"the reviewer's name cannot be used: {error}") from error
    current = stored.last.current_fingerprint
    asked, seen = confirm.origin.seen or _seen_in(confirm, stored)
    if asked != stored.last.id:  # another round, which this Confirm does not show
        raise errors.StaleViewError(stored.last.id, seen=seen, current=current)
    review = Review(where, reviewer=reviewer, channel="mplp")
    request: Request = yield StoreCall(_decide, review, stored.last, decision, seen)
    # The request records a person and a time. The decision's id and role go to the journal of the Confirm's run.
    detail = {
        "confirm_id": view.confirm_id, "of": documents.decisions_of(request)[-1].decision_id,
        "decision_id": decision.decision_id, "decided_by_role": decision.decided_by_role,
    }  # fmt: skip
    yield StoreCall(where.note, journal_run_of(view.confirm_id), "confirm.decision", requester(), detail)
    yield from _reload(where, request.id, confirm)


def _seen_in(confirm: Confirm, stored: StoredConfirm) -> tuple[str, str]:
    """Return what a Confirm that is only a document was made of, like `Origin.seen`.

    Its events name its rounds. It is from after a reviewer's edit only if it has the decision that edited the target.
    """
    events = {event.event_id for event in confirm.events or ()}
    decisions = {decision.decision_id for decision in confirm.decisions}
    rounds = [one for one in stored.rounds if id_of("event", one.id, "requested") in events]
    request = rounds[-1] if rounds else stored.rounds[0]
    made = zip(request.votes, documents.decisions_of(request, stored.names), strict=False)
    edits = [decision.decision_id for vote, decision in made if vote.edited]
    is_current = bool(edits) and edits[-1] in decisions
    return request.id, request.current_fingerprint if is_current else request.fingerprint


def _find_or_none(store: Store, confirm_id: str) -> StoredConfirm | None:
    with suppress(ConfirmNotFoundError):
        return find_confirm(store, confirm_id)
    return None


def _decide(review: Review, request: Request, decision: Decision, seen: str) -> Request:
    match decision.status:
        case DecisionStatus.APPROVED:
            return review.approve(request.id, comment=decision.reason, seen=seen)
        case DecisionStatus.REJECTED:
            return review.reject(request.id, decision.reason, seen=seen)
        case DecisionStatus.CANCELLED:
            return review.cancel(request.id, decision.reason)


# -- read ----------------------------------------------------------------------------------------------------------


def read_confirm(confirm_id: str, *, store: Store | str | None = None) -> Operations[Confirm]:
    """Read a Confirm from the store, whoever decided it, and publish its events that are not published yet.

    Args:
        confirm_id: The id of the Confirm or of its plan, or the id of a request or a prefix of it.
        store: The store to use instead of the configured one.

    Raises:
        ConfirmNotFoundError: There is no such Confirm, plan or request.
    """
    where = config.open_store(store)
    stored: StoredConfirm = yield StoreCall(find_confirm, where, confirm_id)
    yield from _publish_new_events(where, stored)
    return _update(where, stored, stored.confirm, None)


def read_plan(plan_id: str, *, store: Store | str | None = None) -> Operations[Plan]:
    """Read a plan from the store: its last submitted version with the reviewers' changes, and its status.

    Raises:
        ConfirmNotFoundError: No plan with this id was submitted.
    """
    where = config.open_store(store)
    stored: StoredConfirm = yield StoreCall(find_plan, where, plan_id)
    return stored.plan


def refresh(confirm: Confirm) -> Operations[None]:
    """Update a Confirm, and the plan that was submitted with it, from the store.

    Raises:
        ConfirmRefusedError: The Confirm is not in a store.
    """
    if confirm.origin.store is None:
        raise ConfirmRefusedError(confirm.confirm_id, f"Confirm {confirm.confirm_id!a} is not in a store")
    yield from _reload(config.open_store(confirm.origin.store), confirm.confirm_id, confirm)


def _reload(store: Store, wanted: str, confirm: Confirm) -> Operations[None]:
    stored: StoredConfirm = yield StoreCall(find_confirm, store, wanted)
    yield from _publish_new_events(store, stored)
    _update(store, stored, confirm, confirm.origin.plan)


def _update(store: Store, stored: StoredConfirm, confirm: Confirm, plan: Plan | None) -> Confirm:
    """Update a Confirm and its plan from the stored Confirm; return the Confirm."""
    governance = confirm.governance
    confirm.update_from(stored.confirm)
    if governance is not None:
        confirm.governance = governance  # keep a lock that this program set
    if plan is not None and stored.last.purged_at is None:
        plan.update_from(stored.plan)
    return confirm.link(store, plan, seen=stored.last)


def _publish_new_events(store: Store, stored: StoredConfirm) -> Operations[None]:
    if round_facts(stored.last) is None:
        return  # an ordinary request, whose events are in its own run's journal
    for index, request in enumerate(stored.rounds):
        confirm = documents.confirm_of(stored.rounds[: index + 1], stored.names)
        ours = {id_of("event", request.id, word) for word in ("requested", "decided", "cancelled")}
        news: list[Event | StageEvent] = [event for event in confirm.events or () if event.event_id in ours]
        if confirm.target_type is TargetType.PLAN and len(news) > 1:
            news.append(documents.stage_of(confirm, confirm.decisions[-1], id_of("stage", request.id, confirm.status)))
        for event in news:
            if event.event_id in stored.recorded_events:
                continue
            is_stage = isinstance(event, StageEvent)
            about = {"event_family": event.event_family, **event.payload} if is_stage else event.data or {}
            detail = {"event_id": event.event_id, "request": request.id, **about}
            run_id = journal_run_of(confirm.confirm_id)
            yield StoreCall(store.note, run_id, event.event_type, requester(), detail)
            yield from _publish(event)


# -- start ---------------------------------------------------------------------------------------------------------


def start(target: Plan | Confirm, do: Callable[[Any], T], *, store: Store | str | None = None) -> Operations[T]:
    """Start an approved plan or target, and return what `do` returned. One approval starts it at most once.

    Args:
        target: The plan, or the Confirm of another target.
        do: Called with the approved plan, including the reviewers' changes; for other targets, with the Confirm and its
            approved reason.
        store: The store to use instead of the configured one.

    Raises:
        StartRefusedError: The target is not or no longer approved, was already started, or another target was approved
            in its place; `do` was not called.
        ConfirmNotFoundError: The target was never submitted.
        TypeError: `do` is async; `sayso.mplp.aio.start` awaits it.
    """
    home = target.origin.store if isinstance(target, Confirm) else None
    where = config.open_store(home if store is None else store)
    find, wanted = (find_plan, target.plan_id) if isinstance(target, Plan) else (find_confirm, target.confirm_id)
    stored: StoredConfirm = yield StoreCall(find, where, wanted)
    request = stored.last
    if isinstance(target, Confirm):
        documents.check_unlocked(target)
        documents.check_target(target, stored.confirm.target_type, stored.confirm.target_id)
    if round_facts(request) is None:
        raise ConfirmRefusedError(
            stored.confirm.confirm_id, f"{request.id} belongs to a program, which starts it itself"
        )
    attempt = yield from execute(gate_for(request.call.tool, _action_of(do, stored)), where, request)
    stored = yield StoreCall(find_confirm, where, request.id)
    if isinstance(target, Plan):
        target.update_from(stored.plan)
    else:
        _update(where, stored, target, target.origin.plan)
    return attempt.unwrap()


def _action_of(do: Callable[[Any], Any], stored: StoredConfirm) -> Callable[..., Any]:
    """Return a function that calls `do` with the approved target: the arguments, and the fields that are not edited."""
    if inspect.iscoroutinefunction(do):

        async def awaited(**arguments: Any) -> Any:
            return await do(_approved_target(stored, arguments))

        return awaited

    def called(**arguments: Any) -> Any:
        return do(_approved_target(stored, arguments))

    return called


def _approved_target(stored: StoredConfirm, arguments: dict[str, Any]) -> Plan | Confirm:
    confirm = stored.confirm
    if confirm.target_type is not TargetType.PLAN:
        if not documents.is_about(arguments, confirm.target_type, confirm.target_id):
            problem = f"what was approved is not the submitted {confirm.target_type} {confirm.target_id}"
            raise errors.AlteredRequestError(stored.last.id, problem)
        return confirm.model_copy(update={"reason": arguments.get("reason")})
    plan = plan_with(stored.plan, arguments).model_copy(update={"status": PlanStatus.IN_PROGRESS})
    plan.export()
    return plan
