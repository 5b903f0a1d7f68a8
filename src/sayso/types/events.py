"""The events of a run under the approval face's module path; they live in `sayso.runs.events`."""

from sayso.runs.events import (
    ApprovalEvent,
    DeltaEvent,
    Event,
    InteractionEvent,
    OutputEvent,
    RunStatus,
    StartEvent,
    parse_event,
)

__all__ = [
    "ApprovalEvent",
    "DeltaEvent",
    "Event",
    "InteractionEvent",
    "OutputEvent",
    "RunStatus",
    "StartEvent",
    "parse_event",
]
