"""The Confirm protocol: requests for approval as documents, plans and their lifecycle, and samples to learn from.

A Confirm is a view of requests in a store and keeps nothing of its own. Submitting a plan opens a request that waits
like any other; whoever decides it, through whichever channel, decides the plan and its Confirm. The verbs are here for
plain programs and in `sayso.mplp.aio` for async ones. Invariant: nothing here starts a target whose Confirm is not
approved.
"""

from __future__ import annotations

from sayso.mplp.confirm import Confirm
from sayso.mplp.document import Concern, Event, Governance, Meta, Module, Ref, StageEvent, Trace
from sayso.mplp.flow import subscribe
from sayso.mplp.lifecycle import create_confirm
from sayso.mplp.plan import ConfirmStatus, Decision, DecisionStatus, Plan, PlanStatus, PlanStep, StepStatus, TargetType
from sayso.mplp.sample import LearningSample, sample_of
from sayso.mplp.schema import (
    ConfirmLockedError,
    ConfirmNotFoundError,
    ConfirmRefusedError,
    MismatchError,
    NotConformantError,
    schema,
)
from sayso.mplp.verb import (
    add_decision,
    capture_learning_sample,
    document_of,
    process_decision,
    read_confirm,
    read_plan,
    refresh,
    start,
    submit_for_approval,
    submit_plan_for_approval,
)

__all__ = [
    "Concern",
    "Confirm",
    "ConfirmLockedError",
    "ConfirmNotFoundError",
    "ConfirmRefusedError",
    "ConfirmStatus",
    "Decision",
    "DecisionStatus",
    "Event",
    "Governance",
    "LearningSample",
    "Meta",
    "MismatchError",
    "Module",
    "NotConformantError",
    "Plan",
    "PlanStatus",
    "PlanStep",
    "Ref",
    "StageEvent",
    "StepStatus",
    "TargetType",
    "Trace",
    "add_decision",
    "capture_learning_sample",
    "create_confirm",
    "document_of",
    "process_decision",
    "read_confirm",
    "read_plan",
    "refresh",
    "sample_of",
    "schema",
    "start",
    "submit_for_approval",
    "submit_plan_for_approval",
    "subscribe",
]
