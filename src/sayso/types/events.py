"""The approval API's events of a run, for compatibility; the code is in `sayso.runs.events`."""

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
    "ApprovalEvent", "DeltaEvent", "Event", "InteractionEvent", "OutputEvent", "RunStatus", "StartEvent", "parse_event",
]  # fmt: skip
