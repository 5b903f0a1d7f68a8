"""The protocol's verbs for async programs: those of `sayso.mplp`, awaited.

Each runs the very same steps; what waits for a store runs in a small pool of threads, and `start` takes an async `do`.
Invariant: every verb here exists in `sayso.mplp`, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from sayso import config
from sayso.effects import adrive, offload
from sayso.model.request import Request
from sayso.model.reviewer import Reviewer
from sayso.mplp import flow, lifecycle, verb
from sayso.mplp.confirm import Confirm
from sayso.mplp.plan import Decision, DecisionStatus, Plan, TargetType
from sayso.mplp.sample import LearningSample
from sayso.stores.base import Store

__all__ = [
    "add_decision",
    "capture_learning_sample",
    "create_confirm",
    "process_decision",
    "read_confirm",
    "read_plan",
    "refresh",
    "start",
    "submit_for_approval",
    "submit_plan_for_approval",
]

T = TypeVar("T")


async def create_confirm(
    target_type: TargetType | str, target_id: str, requested_by_role: str, reason: str | None = None
) -> Confirm:
    """Return a new pending Confirm, which is in no store yet."""
    return lifecycle.create_confirm(target_type, target_id, requested_by_role, reason)


async def submit_plan_for_approval(
    plan: Plan, requested_by: str, *, reason: str | None = None, **options: Any
) -> Confirm:
    """Submit a plan; see `sayso.mplp.submit_plan_for_approval`."""
    return await adrive(flow.submitting(plan, verb.plan_submission(plan, requested_by, reason, options)))


async def submit_for_approval(confirm: Confirm, **options: Any) -> Confirm:
    """Submit a Confirm about anything but a plan; see `sayso.mplp.submit_for_approval`."""
    return await adrive(flow.submitting(confirm, verb.confirm_submission(confirm, options)))


async def add_decision(
    confirm: Confirm, status: DecisionStatus | str, decided_by_role: str, reason: str | None = None
) -> None:
    """Add a decision to a Confirm; see `sayso.mplp.add_decision`."""
    decision = Decision(status=DecisionStatus(status), decided_by_role=decided_by_role, reason=reason)
    await adrive(flow.deciding(confirm, decision))


async def process_decision(
    confirm: Confirm, decision: Decision, *, by: Reviewer | str | None = None, store: Store | str | None = None
) -> None:
    """Take a decision; see `sayso.mplp.process_decision`."""
    await adrive(flow.processing(confirm, decision, by, store))


async def capture_learning_sample(
    confirm: Confirm, target: Plan | Request, *, context: dict[str, Any] | None = None
) -> LearningSample:
    """Return what can be learned from a decision; see `sayso.mplp.capture_learning_sample`."""
    return verb.capture_learning_sample(confirm, target, context=context)


async def read_confirm(confirm_id: str, *, store: Store | str | None = None) -> Confirm:
    """Return a Confirm as the store says; see `sayso.mplp.read_confirm`."""
    return await adrive(flow.reading(confirm_id, store))


async def read_plan(plan_id: str, *, store: Store | str | None = None) -> Plan:
    """Return a plan as the store says; see `sayso.mplp.read_plan`."""
    where = config.open_store(store)
    return await offload(partial(verb.read_plan, plan_id, store=where))


async def refresh(confirm: Confirm) -> None:
    """Update a Confirm from the store; see `sayso.mplp.refresh`."""
    await adrive(flow.refreshing(confirm))


async def start(
    target: Plan | Confirm, do: Callable[[Any], Awaitable[T] | T], *, store: Store | str | None = None
) -> T:
    """Start an approved plan or target; see `sayso.mplp.start`. A plain `do` runs in a thread."""
    return await adrive(flow.starting(target, do, store))
