"""The protocol's verbs for plain programs; `sayso.mplp.aio` has the same for async ones.

Names and arguments of the first five are those of seed 003, in snake case. Each opens, decides or reads requests of
the configured store, or of the one that `store=` names. Invariant: what a verb refuses has changed nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from sayso import config
from sayso.effects import drive
from sayso.errors import ConfigError
from sayso.model import duration
from sayso.model.request import Request
from sayso.model.reviewer import Quorum, Reviewer
from sayso.mplp import flow
from sayso.mplp.call import Terms
from sayso.mplp.confirm import Confirm
from sayso.mplp.lookup import find_confirm, find_target
from sayso.mplp.plan import Decision, DecisionStatus, Plan
from sayso.mplp.sample import LearningSample, sample_of_plan, sample_of_request
from sayso.mplp.schema import ConfirmNotFoundError
from sayso.stores.base import Store

__all__ = [
    "add_decision",
    "capture_learning_sample",
    "confirm_submission",
    "document_of",
    "plan_submission",
    "process_decision",
    "read_confirm",
    "read_plan",
    "refresh",
    "start",
    "submit_for_approval",
    "submit_plan_for_approval",
]

T = TypeVar("T")


def plan_submission(plan: Plan, role: str, reason: str | None, options: Mapping[str, Any]) -> flow.Submission:
    """Return what `submit_plan_for_approval` submits."""
    confirm: Confirm | None = options.get("confirm")
    text = reason or (None if confirm is None else confirm.reason) or f"Requesting approval for plan: {plan.title}"
    return _submission(role, text, **options)


def confirm_submission(confirm: Confirm, options: Mapping[str, Any]) -> flow.Submission:
    """Return what `submit_for_approval` submits."""
    text = confirm.reason or f"Requesting approval for {confirm.target_type} {confirm.target_id}"
    given: dict[str, Any] = {**options, "confirm": confirm}
    return _submission(confirm.requested_by_role, text, **given)


def _submission(
    role: str, reason: str, *, confirm: Confirm | None = None, expires: timedelta | str = "24h",
    approval_expires: timedelta | str = "24h", quorum: int = 1, roles: Collection[str] = (), risk: str | None = None,
    traceparent: str | None = None, store: Store | str | None = None,
) -> flow.Submission:  # fmt: skip
    try:
        needed = Quorum(quorum, roles if isinstance(roles, str) else frozenset(roles))
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    terms = Terms(duration.parse(expires), duration.parse(approval_expires), needed, risk, reason)
    return flow.Submission(role, reason, terms, confirm, traceparent, store)


def submit_plan_for_approval(plan: Plan, requested_by: str, *, reason: str | None = None, **options: Any) -> Confirm:
    """Submit a plan: a request opens that people see in the inbox and every channel, and the plan is `proposed`.

    Submitting the same plan again finds the request that waits. A plan that was rejected opens another round on its
    Confirm; after an end of any other kind it gets a new Confirm. Durable on return (seed 003, section 4.2).

    Args:
        plan: A draft; its status follows from now on.
        requested_by: The role that asks.
        reason: Why; the plan's title when not given. The reviewer reads it first.
        options: `confirm=` brings a Confirm along, whose id and fields are kept. `expires=`, `approval_expires=`,
            `quorum=`, `roles=` and `risk=` are those of `sayso.gate`. `traceparent=` is the W3C trace that it belongs
            to, else the active one. `store=` is where it waits, instead of the configured store.

    Raises:
        NotConformantError: The plan, or the given Confirm, does not fit the protocol.
        ConfirmRefusedError: It is approved already, changed while it waits, or the Confirm is locked or about
            something else.
        StoreError: It could not be recorded.
    """
    return drive(flow.submitting(plan, plan_submission(plan, requested_by, reason, options)))


def submit_for_approval(confirm: Confirm, **options: Any) -> Confirm:
    """Submit a Confirm about anything but a plan: a request opens for it, and the Confirm follows it from now on.

    Takes the options of `submit_plan_for_approval`, and raises as it does.
    """
    return drive(flow.submitting(confirm, confirm_submission(confirm, options)))


def add_decision(
    confirm: Confirm, status: DecisionStatus | str, decided_by_role: str, reason: str | None = None
) -> None:
    """Add a decision to a Confirm (seed 003, section 6).

    One that waits in a store is decided there, as by `process_decision`; one that was only created is changed itself.

    Raises:
        ConfirmLockedError: It is locked.
        ConfirmRefusedError: It is decided already, a rejection has no reason, or the role that asked decides.
        ConfirmNotFoundError: It was read from a request, and the store knows none of its id.
        DecisionRefusedError: The store refuses it, e.g. because it changed since the Confirm was read.
    """
    decision = Decision(status=DecisionStatus(status), decided_by_role=decided_by_role, reason=reason)
    drive(flow.deciding(confirm, decision))


def process_decision(
    confirm: Confirm, decision: Decision, *, by: Reviewer | str | None = None, store: Store | str | None = None
) -> None:
    """Take a decision (seed 003, section 4.3): decide the request, update Confirm and plan, and notify subscribers.

    Args:
        confirm: The Confirm; one that waits in the store by this id is decided there.
        decision: What was decided. Its id and role are kept; its instant is the store's.
        by: The person who decided, where the role is not who counts.
        store: Where it waits, instead of the Confirm's own store, or the configured one.

    Raises:
        ConfirmLockedError: It is locked.
        ConfirmRefusedError: It is decided already, a rejection has no reason, or the decision's id is known; or it is
            in no store, and the role that asked decides.
        ConfirmNotFoundError: It was read from a request, and the store knows none of its id.
        StaleViewError: It was edited, or asked in another round, since the Confirm was read.
        DecisionRefusedError: The store refuses it, e.g. because the role asked for it, or is none of those asked for.
    """
    drive(flow.processing(confirm, decision, by, store))


def capture_learning_sample(
    confirm: Confirm, target: Plan | Request, *, context: dict[str, Any] | None = None
) -> LearningSample:
    """Return what can be learned from a decision (seed 003, section 5).

    Args:
        confirm: The Confirm.
        target: Its plan; or the request of a call or question, whose Confirm it is.
        context: What is known of a plan's context.

    Raises:
        MismatchError: The Confirm is about something else.
    """
    if isinstance(target, Plan):
        return sample_of_plan(confirm, target, context=context)
    return sample_of_request(confirm, target)


def read_confirm(confirm_id: str, *, store: Store | str | None = None) -> Confirm:
    """Return a Confirm from the store, whoever decided it, and publish events that nobody has published yet.

    Args:
        confirm_id: Its id; or that of its plan, or of a request (or the beginning of one).
        store: Where it is, instead of the configured store.

    Raises:
        ConfirmNotFoundError: There is none.
    """
    return drive(flow.reading(confirm_id, store))


def read_plan(plan_id: str, *, store: Store | str | None = None) -> Plan:
    """Return a plan as the store says: as it was last submitted, with what reviewers changed, and its status.

    Raises:
        ConfirmNotFoundError: No plan of this id was submitted.
    """
    stored = find_target(config.open_store(store), "plan", plan_id)
    if stored is None:
        raise ConfirmNotFoundError(plan_id)
    return stored.plan


def refresh(confirm: Confirm) -> None:
    """Bring a Confirm, and the plan that was submitted with it, to where they stand in the store.

    Raises:
        ConfirmRefusedError: It is in no store.
    """
    drive(flow.refreshing(confirm))


def start(target: Plan | Confirm, do: Callable[[Any], T], *, store: Store | str | None = None) -> T:
    """Start an approved plan or target, and return what `do` returned. One approval starts it at most once.

    Args:
        target: The plan, or the Confirm.
        do: Gets the plan as it was approved, with what reviewers changed; of other targets, the Confirm with the reason
            that was approved.
        store: Where it was approved, instead of the configured store.

    Raises:
        StartRefusedError: It is not approved (any more), was started before, or another target was approved in its
            place; `do` was not called.
        ConfirmNotFoundError: It was never submitted.
        TypeError: `do` is async; `sayso.mplp.aio.start` awaits it.
    """
    if inspect.iscoroutinefunction(do):
        raise TypeError("do is async, which needs sayso.mplp.aio.start; nothing was started")
    return drive(flow.starting(target, do, store))


def document_of(store: Store, wanted: str) -> dict[str, Any]:
    """Return a Confirm as JSON values that fit the protocol; writes and publishes nothing.

    Args:
        store: Where it is.
        wanted: The id of a Confirm, or of a request.

    Raises:
        ConfirmNotFoundError: There is none.
    """
    return find_confirm(store, wanted).confirm.export()
