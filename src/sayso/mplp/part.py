"""The parts that documents of the protocol share: metadata, references, governance, trace and events."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sayso import clock
from sayso.mplp.document import Part
from sayso.mplp.ids import new_id

__all__ = ["VERSION", "Concern", "Event", "Governance", "Meta", "Module", "Ref", "StageEvent", "Trace", "fresh_meta"]

VERSION = "1.0.0"
"""Of the protocol, and of its schemas."""


class Concern(StrEnum):
    """A concern that cuts across the modules of the protocol."""

    COORDINATION = "coordination"
    ERROR_HANDLING = "error-handling"
    EVENT_BUS = "event-bus"
    LEARNING_FEEDBACK = "learning-feedback"
    OBSERVABILITY = "observability"
    ORCHESTRATION = "orchestration"
    PERFORMANCE = "performance"
    PROTOCOL_VERSIONING = "protocol-versioning"
    SECURITY = "security"
    STATE_SYNC = "state-sync"
    TRANSACTION = "transaction"


class Module(StrEnum):
    """A module of the protocol."""

    CONTEXT = "context"
    PLAN = "plan"
    CONFIRM = "confirm"
    TRACE = "trace"
    ROLE = "role"
    EXTENSION = "extension"
    DIALOG = "dialog"
    COLLAB = "collab"
    CORE = "core"
    NETWORK = "network"


class Meta(Part):
    """Metadata of a document."""

    protocol_version: str = VERSION
    schema_version: str = VERSION
    created_at: datetime | None = None
    created_by: str | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None
    tags: list[str] | None = None
    cross_cutting: list[Concern] | None = None


def fresh_meta() -> Meta:
    """Return the metadata of a document that is made now."""
    return Meta(created_at=clock.now())


class Ref(Part):
    """A reference to another object of the protocol."""

    id: str
    module: Module
    description: str | None = None


class Governance(Part):
    """Lifecycle phase, truth domain and lock of a document; by the protocol's names, or in snake case."""

    lifecycle_phase: str | None = Field(default=None, alias="lifecyclePhase")
    truth_domain: str | None = Field(default=None, alias="truthDomain")
    locked: bool | None = None
    last_confirm_ref: Ref | None = Field(default=None, alias="lastConfirmRef")


class Trace(Part):
    """Where a document belongs in a trace."""

    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    context_id: str | None = None
    attributes: dict[str, Any] | None = None


class Event(Part):
    """Something that happened to a document: `confirm.requested`, `confirm.decided`, `confirm.cancelled`."""

    event_id: str = Field(default_factory=new_id)
    event_type: str
    source: str = "confirm"
    timestamp: datetime = Field(default_factory=clock.now)
    trace_id: str | None = None
    data: dict[str, Any] | None = Field(default=None, json_schema_extra={"nullable": True})


class StageEvent(BaseModel):
    """An event of the family `pipeline_stage`, as subscribers get it: `plan_approved` or `plan_rejected`.

    It is no part of a document: the protocol's events have no underscore in their types.
    """

    model_config = ConfigDict(frozen=True)

    event_id: str = Field(default_factory=new_id)
    event_family: str = "pipeline_stage"
    event_type: str
    timestamp: datetime = Field(default_factory=clock.now)
    payload: dict[str, Any]
