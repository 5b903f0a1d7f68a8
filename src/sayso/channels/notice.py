"""What is sent to people about a request, and the channel that it leaves by.

A notice says that something waits, or what became of it, and where to look; it decides nothing. Invariant: without the
gate's word it carries no argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from sayso.errors import SaysoError

__all__ = ["Event", "Notice", "Outlet", "UndeliverableError"]

Event = Literal["asked", "reminder", "escalated", "outcome", "test"]


class UndeliverableError(SaysoError):
    """A channel will never deliver a notice, so it is not tried again. The request is as it was."""


@dataclass(frozen=True)
class Notice:
    """One message about one request.

    Attributes:
        id: Stable: one for each request, channel and event, so that receivers can tell a repeated one.
        event: What it is about.
        request_id, run_id, tool, kind, risk, state, fingerprint: Of the request, as it stands.
        title: What it says first; holds no value of an argument.
        line: One plain line, escaped.
        link: Opens a page, and never decides; None where the inbox has no address.
        asked_at, expires_at: Of the request.
        arguments: Masked, and only where the gate has opted in.
        outcome: What became of the request, for the event `outcome`.
    """

    id: str
    event: Event
    request_id: str
    run_id: str
    tool: str
    kind: str
    risk: str | None
    state: str
    fingerprint: str
    title: str
    line: str
    link: str | None
    asked_at: datetime
    expires_at: datetime
    arguments: dict[str, Any] | None
    outcome: str | None


class Outlet(Protocol):
    """A channel that messages leave by. What it raises means: try again later; `UndeliverableError` means never."""

    name: str

    def send(self, notice: Notice) -> str | None:
        """Send a notice, and return the reference by which the message can be edited later."""
        ...

    def follow_up(self, notice: Notice, reference: str | None) -> None:
        """Edit a message, or follow it up, with the outcome."""
        ...
