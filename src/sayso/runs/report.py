"""What a worker tells of a run that it went on with: how it ended, or why it stopped again."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sayso.runs.events import ApprovalEvent, Event, InteractionEvent, OutputEvent, RunStatus, StartEvent

__all__ = ["Ending", "Heard", "Report", "ending_of"]


class Ending(StrEnum):
    """What became of a run in a worker's hands."""

    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    BROKEN = "broken"
    HANDED_BACK = "handed_back"
    RETRY = "retry"

    @property
    def words(self) -> str:
        """How it reads in a line."""
        return _WORDS.get(self, self.value)

    @property
    def is_final(self) -> bool:
        """Whether the run itself has ended."""
        return self in _FINAL


_WORDS = {
    Ending.PAUSED: "waits for a person",
    Ending.UNKNOWN: "stopped at an unknown outcome",
    Ending.CHANGED: "not gone on with",
    Ending.HANDED_BACK: "handed back",
    Ending.RETRY: "to be tried again",
}
_FINAL = {Ending.DONE, Ending.FAILED, Ending.DENIED, Ending.CANCELLED}


class Report(NamedTuple):
    """What became of one run.

    Attributes:
        run_id: Which.
        name: Of the runnable.
        ending: `done`, `failed`, `denied` and `cancelled` are the run's own ends. It stopped again where a person must
            decide (`paused`) or say how a call ended (`unknown`), where its code is not what it began with (`changed`,
            nothing was run), and where something else was wrong (`broken`); each is gone on with when something about
            it changes, a `changed` one by another worker only. The store failed (`retry`: it is tried again later), or
            this worker was stopped (`handed_back`: anybody may go on).
        message: The same in a sentence.
        waits: Ids of the requests that wait for a person now.
        seconds: How long this worker had it in hand.
    """

    run_id: str
    name: str
    ending: Ending
    message: str | None
    waits: tuple[str, ...]
    seconds: float


class Heard:
    """What a worker needs to know of a run's events.

    Attributes:
        has_begun: Whether anything was begun; nothing is in a run that somebody else has, or that has ended.
        waits: Ids of the requests that wait.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.waits: list[str] = []

    def hear(self, event: Event) -> None:
        """Take an event."""
        match event:
            case StartEvent():
                self.has_begun = True
            case ApprovalEvent():
                self.waits.append(event.approval_id)
            case InteractionEvent():
                self.waits.append(event.interaction_id)
            case _:
                pass


_ENDINGS = {
    "approval_required": Ending.PAUSED,
    "input_required": Ending.PAUSED,
    "approval_denied": Ending.DENIED,
    "cancelled": Ending.CANCELLED,
    "outcome_unknown": Ending.UNKNOWN,
    "run_changed": Ending.CHANGED,
    "stopped": Ending.HANDED_BACK,
    "store_failed": Ending.RETRY,
}


def ending_of(output: OutputEvent) -> Ending | None:
    """Return what an output says became of its run; None where somebody else has it in hand."""
    status: RunStatus = output.status
    if status.reason == "approval_already_claimed":
        return None
    return _ENDINGS.get(status.reason or "", Ending.DONE if status.code == "success" else Ending.FAILED)
