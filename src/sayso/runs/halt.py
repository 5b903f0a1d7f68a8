"""How a step of a run can end without a value: for now, for good, or for all.

    Halt      the whole run stops here, for now or for good: a person must decide, somebody else has it, a rule failed
    Denied    this call is not made: a person or a rule said no; whoever made it may go on
    Failed    this call was made and ended with an error; whoever made it may go on

They are raised from step to step inside `sayso.runs` and never reach a program: a run's end is told in its output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sayso.effects import Suspended
from sayso.runs.events import RunStatus

__all__ = ["Denied", "Failed", "Halt", "end_of", "worst"]

# Of several that stop in one turn the first of these is the run's reason.
_ORDER = (
    "cancelled",
    "approval_policy_error",
    "run_changed",
    "input_changed",
    "store_failed",
    None,
    "outcome_unknown",
    "approval_already_claimed",
    "approval_required",
    "input_required",
    "stopped",
)


class Halt(Suspended):
    """The run stops here.

    Attributes:
        status: What it will say.
        error: `type` and `message` of the error behind it, if any.
        output: What the run gives instead of a value (see `sayso.runs.pending.ended_output`).
    """

    def __init__(
        self, status: RunStatus, cause: BaseException | None = None, *, error: dict[str, Any] | None = None,
        output: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(status.message or status.reason)
        self.status, self.output = status, output
        self.error = error if cause is None else {"type": type(cause).__name__, "message": status.message or ""}

    @property
    def is_pause(self) -> bool:
        """Whether the run can go on later."""
        return self.status.reason in {"approval_required", "input_required", "approval_already_claimed", "stopped"}


class Denied(Exception):
    """A person or a rule said no to this call.

    Attributes:
        message: What was said, in a sentence.
        is_feedback: Sent back with words: the same call with changes may be what the person wants.
        partial: What there is of a value all the same.
    """

    def __init__(self, message: str, *, is_feedback: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_feedback = is_feedback
        self.partial: Any = None


class Failed(Exception):
    """A call ended with an error.

    Attributes:
        kind: The error's type.
        message: Its message, secrets masked.
        raised: The error itself, where it was raised in this process.
        partial: What there is of a value all the same.
    """

    def __init__(self, kind: str, message: str, raised: BaseException | None = None) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        self.message = message
        self.raised = raised
        self.partial: Any = None


def end_of(fault: Denied | Failed) -> tuple[RunStatus, dict[str, Any]]:
    """Return what is said of a call that ended so: the status, and what the record adds to it."""
    if isinstance(fault, Denied):
        status = RunStatus(code="cancelled", reason="approval_denied", message=fault.message)
        return status, {"feedback": fault.is_feedback}
    return RunStatus(code="error", message=str(fault)), {"type": fault.kind, "message": fault.message}


def worst(halts: Iterable[Halt]) -> Halt:
    """Return the one that speaks for all."""
    return min(halts, key=lambda halt: _ORDER.index(halt.status.reason))
