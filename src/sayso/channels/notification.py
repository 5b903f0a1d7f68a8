"""What is sent to people about a request, the interface of a channel, and the simplest channel: a line on stderr."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from sayso import clock
from sayso.channels.settings import Table
from sayso.errors import SaysoError
from sayso.model.escaping import escape
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, Escalation
from sayso.view.document import moment
from sayso.view.summary import name_of, time_left, token

Event = Literal["asked", "reminder", "escalated", "outcome", "mentioned", "assigned", "test"]


class UndeliverableError(SaysoError):
    """A channel will never deliver this notification, so it is not tried again. The request stays as it was."""


class DeliveryError(OSError):
    """A receiver did not accept a message; it is tried again later."""


@dataclass(frozen=True)
class Notification:
    """One message about one request.

    Attributes:
        id: The same whenever the message is sent again, so that receivers recognize a repeated one.
        event: What it is about.
        request_id, run_id, tool, kind, risk, state, fingerprint: Of the request as it is now.
        title: The first line; it holds no value of an argument.
        line: One plain line, escaped.
        link: Opens the request's page, and decides nothing; None where the inbox has no address.
        asked_at, expires_at: Of the request.
        arguments, program_title, summary: The arguments, masked, and the program's words for the function and for this
            call, escaped. Only where the gate has opted in by `notify_arguments`: a summary quotes arguments.
        outcome: What became of the request, for the event `outcome`.
        to: Of a message to one person (`mentioned`, `assigned`), who that is: `issuer:subject`; else None.
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
    program_title: str | None = None
    summary: str | None = None
    to: str | None = None


class Channel(Protocol):
    """Sends notifications. What it raises means: try again later; `UndeliverableError` means never."""

    name: str

    def send(self, notification: Notification) -> str | None:
        """Send a notification, and return the reference by which the message can be edited later."""
        ...

    def follow_up(self, notification: Notification, reference: str | None) -> None:  # noqa: ARG002  the reference is for those that edit
        """Edit the message, or send another one, with the outcome; a subclass that has no other sends another one."""
        self.send(notification)


class TerminalChannel(Channel):
    """Writes each notification as a line to standard error. The line is escaped already."""

    def __init__(self, name: str = "terminal") -> None:
        self.name = name

    def send(self, notification: Notification) -> None:
        """Write the line, and the link below it."""
        sys.stderr.write(
            f"sayso: {notification.line}\n" + ("" if notification.link is None else f"sayso:   {notification.link}\n")
        )
        sys.stderr.flush()


def make(name: str, settings: Mapping[str, Any]) -> TerminalChannel:
    """Return the channel that a table of `sayso.toml` describes; raises `ConfigError` for a setting beside its type."""
    Table(f"channels.{name}", settings, known=("type",))
    return TerminalChannel(name)


_ROOM = 60
_NAMED = 3
_ENDS = {
    State.APPROVED: "not run yet", State.RUNNING: "running", State.DONE: "executed", State.FAILED: "failed",
    State.UNKNOWN: "started, outcome unknown", State.EXPIRED: "not run in time",
}  # fmt: skip


def notification_for(
    request: Request, event: Event, mark: str, *, channel: str, base_url: str | None, now: datetime,
    to: str | None = None, by: str | None = None, instead_of: str | None = None,
) -> Notification:  # fmt: skip
    """Return the notification about a request.

    Args:
        request: The request as it is now.
        event: What the notification is about.
        mark: Which one of its event it is: a state, or the percentage of a reminder.
        channel: The name of the channel.
        base_url: Where the inbox is; None leaves the link out.
        now: To say how long is left.
        to, by, instead_of: Of a message to one person, to whom, who caused it, and who is away where they stand in.
    """
    subject, outcome = request.subject, outcome_of(request) if event == "outcome" else None
    is_call = isinstance(subject, Call)
    may_tell = is_call and request.notify_arguments
    title = _title(request, event, outcome)
    if to is not None:
        whom = "you" if instead_of is None else f"{_named(instead_of)} (away, you stand in)"
        title = f"{_named(by)} {'mentions' if event == 'mentioned' else 'assigned to'} {whom}: {title}"
    return Notification(
        id=_id_of(request.id, channel, event, mark),
        event=event,
        request_id=request.id,
        run_id=escape(request.run_id),
        tool=escape(subject.name) if is_call else "",
        kind=request.kind,
        risk=None if request.risk is None else escape(request.risk),
        state=request.state.value,
        fingerprint=request.current_fingerprint,
        title=title,
        line=_line(request, title, now),
        link=None if base_url is None else f"{base_url.rstrip('/')}/r/{request.id}",
        asked_at=request.created_at,
        expires_at=request.expires_at,
        arguments=request.effective.arguments if may_tell else None,
        outcome=outcome,
        program_title=escape(request.title) if may_tell and request.title is not None else None,
        summary=escape(request.summary) if may_tell and request.summary is not None else None,
        to=to,
    )


def test_notification(channel: str, base_url: str | None) -> Notification:
    """Return a notification about no request, to test a channel."""
    now = clock.now()
    title = f"a test of the channel {channel}: nothing waits, and nothing is to be done"
    return Notification(
        id=_id_of("test", channel, "test", str(clock.microseconds(now))), event="test", request_id="", run_id="",
        tool="", kind="call", risk=None, state="", fingerprint="", title=title, line=title, link=base_url,
        asked_at=now, expires_at=now, arguments=None, outcome=None,
    )  # fmt: skip


def outcome_of(request: Request) -> str:
    """Return what became of a request, by whom and through which channel: `approved by ada (browser), executed`."""
    decision = request.decision
    if decision is None:
        return "expired, nobody decided" if request.state is State.EXPIRED else request.state.value
    who = f"{name_of(decision.by, _ROOM)} ({token(decision.channel, _ROOM)})"
    match decision.verb:
        case "approve":
            verb = "approved" if request.edited is None else "approved with changes"
            return f"{verb} by {who}, {_ENDS.get(request.state, request.state.value)}"
        case "reject":
            return f"rejected by {who}"
        case "feedback":
            return f"sent back with feedback by {who}"
        case "answer":
            return f"answered by {who}"
        case "cancel":
            return "withdrawn by the program" if decision.by.issuer == PROGRAM else f"cancelled by {who}"


def _title(request: Request, event: Event, outcome: str | None) -> str:
    subject, who = request.subject, name_of(request.requester, _ROOM)
    is_call = isinstance(subject, Call)
    if event == "outcome":
        return f"{token(subject.name, _ROOM) if is_call else f'a question of {who}'}: {outcome}"
    what = f"{who} wants to run {token(subject.name, _ROOM)}" if is_call else f"{who} asks a question"
    if event == "escalated":
        return f"escalated to {_those_of(request.escalation)}: {what}"
    return f"still waiting: {what}" if event == "reminder" else what


def _named(qualified: str | None) -> str:
    return token((qualified or "somebody").removeprefix(f"{LOCAL}:"), _ROOM)


def _those_of(escalation: Escalation | None) -> str:
    """Return whom an escalation names, up to three, and how many more there are."""
    if escalation is None:
        return "more people"
    roles = [f"the role {token(role, _ROOM)}" for role in sorted(escalation.roles)]
    named = [*roles, *(name_of(person, _ROOM) for person in escalation.people)]
    more = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return " or ".join([*named[:_NAMED], *more])


def _line(request: Request, title: str, now: datetime) -> str:
    if request.state is not State.PENDING:
        return title
    facts = [title]
    if request.risk is not None:
        facts.append(f"risk {token(request.risk, _ROOM)}")
    facts.append(f"expires {time_left(request.expires_at, now)}, at {moment(request.expires_at)}")
    return "; ".join(facts)


def _id_of(*parts: str) -> str:
    """Return the id of a message: the same whenever it is sent again, and another for every other message."""
    return f"msg_{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:32]}"
