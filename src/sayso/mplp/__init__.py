"""The Confirm protocol: approval requests as documents, plans and their lifecycle, and learning samples.

A Confirm is a view of requests in a store and stores nothing itself. Submitting a plan opens an ordinary request; the
decision on it, through any channel, is the decision on the plan and its Confirm. A target whose Confirm is not approved
never starts. `flow` has the functions, and `aio` has them for async programs. `document` has plans and decisions,
`confirm` derives a Confirm, `history` finds what a store knows of one, and `schema` validates.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sayso.effects import Operations, drive
from sayso.mplp import flow
from sayso.mplp.confirm import Confirm, create_confirm
from sayso.mplp.document import (
    Concern,
    ConfirmStatus,
    Decision,
    DecisionStatus,
    Event,
    Governance,
    Meta,
    Module,
    Plan,
    PlanStatus,
    PlanStep,
    Ref,
    StageEvent,
    StepStatus,
    TargetType,
    Trace,
)
from sayso.mplp.flow import subscribe
from sayso.mplp.history import LearningSample, capture_learning_sample, find_confirm, sample_of
from sayso.mplp.schema import (
    ConfirmLockedError,
    ConfirmNotFoundError,
    ConfirmRefusedError,
    MismatchError,
    NotConformantError,
    schema,
)
from sayso.stores.base import Store

__all__ = [
    "Concern", "Confirm", "ConfirmLockedError", "ConfirmNotFoundError", "ConfirmRefusedError", "ConfirmStatus",
    "Decision", "DecisionStatus", "Event", "Governance", "LearningSample", "Meta", "MismatchError", "Module",
    "NotConformantError", "Plan", "PlanStatus", "PlanStep", "Ref", "StageEvent", "StepStatus", "TargetType", "Trace",
    "add_decision", "capture_learning_sample", "create_confirm", "document_of", "process_decision", "read_confirm",
    "read_plan", "refresh", "sample_of", "schema", "start", "submit_for_approval", "submit_plan_for_approval",
    "subscribe",
]  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")


def _run_sync(function: Callable[P, Operations[T]]) -> Callable[P, T]:
    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return drive(function(*args, **kwargs))

    return run


submit_plan_for_approval = _run_sync(flow.submit_plan_for_approval)
submit_for_approval = _run_sync(flow.submit_for_approval)
add_decision = _run_sync(flow.add_decision)
process_decision = _run_sync(flow.process_decision)
read_confirm = _run_sync(flow.read_confirm)
read_plan = _run_sync(flow.read_plan)
refresh = _run_sync(flow.refresh)


@wraps(flow.start)
def start(target: Plan | Confirm, do: Callable[[Any], T], *, store: Store | str | None = None) -> T:  # noqa: D103  from `flow.start`
    if inspect.iscoroutinefunction(do):
        raise TypeError("do is async, which needs sayso.mplp.aio.start; nothing was started")
    return drive(flow.start(target, do, store=store))


def document_of(store: Store, wanted: str) -> dict[str, Any]:
    """Return a Confirm as JSON values that conform to the protocol. It writes and publishes nothing.

    Args:
        wanted: The id of a Confirm or of a request.

    Raises:
        ConfirmNotFoundError: There is no such Confirm or request.
    """
    return find_confirm(store, wanted).confirm.export()
