"""The protocol's closed sets of words. They are texts, so that `confirm.status == "approved"` holds."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ConfirmStatus", "DecisionStatus", "PlanStatus", "StepStatus", "TargetType"]


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
