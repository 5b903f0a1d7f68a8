"""The channel interface, the notifications that channels send, and the channels of a settings file or store.

`make` creates a channel from its table in `sayso.toml`. `register` records channels in a store, so that requests are
announced to them. `health` and `check` report their state to `sayso doctor`.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol

from sayso import clock, config
from sayso.channels.settings import Table
from sayso.clock import instant, microseconds
from sayso.errors import ConfigError, SaysoError
from sayso.model.rendering import quote_if_needed
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, name_of
from sayso.model.text import escape
from sayso.stores.base import Filter, Store
from sayso.stores.records import Record, records_in
from sayso.stores.review import requests_in
from sayso.stores.transaction import CHANNEL, delivery_kind
from sayso.view.as_json import moment
from sayso.view.full_text import verdict
from sayso.view.summary import expiry

Event = Literal["asked", "reminder", "escalated", "outcome", "mentioned", "assigned", "test"]


class UndeliverableError(SaysoError):
    """A channel can never deliver this notification, so sayso does not retry it. The request does not change."""


class DeliveryError(OSError):
    """A receiver did not accept a message; sayso retries later."""


@dataclass(frozen=True)
class Notification:
    """One message about one request.

    Attributes:
        id: The message id. A retry has the same id, so that receivers can deduplicate.
        event: The event that it reports.
        request_id, run_id, tool, kind, risk, state, fingerprint: From the request as it is now.
        title: The first line; it contains no argument values.
        line: A one-line plain text, escaped.
        link: The URL of the request's page, which decides nothing; None if the inbox has no address.
        asked_at, expires_at: When the request was asked and when it expires.
        arguments, program_title, summary: The masked arguments, and the program's escaped texts for the function and
            this call. Set only if the gate has opted in with `notify_arguments`, because a summary quotes arguments.
        outcome: How the request ended, for the event `outcome`.
        to: The recipient of a personal message (`mentioned`, `assigned`) as `issuer:subject`; else None.
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
    """Sends notifications. After an exception sayso retries later, except after an `UndeliverableError`."""

    name: str

    def send(self, notification: Notification) -> str | None:
        """Send a notification, and return a reference with which the message can be edited later."""
        ...

    def follow_up(self, notification: Notification, reference: str | None) -> None:  # noqa: ARG002  for subclasses that edit messages
        """Report the outcome by editing the message or sending another one. The default sends another one."""
        self.send(notification)


class TerminalChannel(Channel):
    """Writes each notification to standard error as one line, which is already escaped."""

    def __init__(self, name: str = "terminal") -> None:
        self.name = name

    def send(self, notification: Notification) -> None:
        """Write the line, with the link below it."""
        sys.stderr.write(
            f"sayso: {notification.line}\n" + ("" if notification.link is None else f"sayso:   {notification.link}\n")
        )
        sys.stderr.flush()


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
        event: The event that it reports.
        mark: What distinguishes it from others of the same event: a state, or a reminder's percentage.
        channel: The name of the channel.
        base_url: The inbox's address; None omits the link.
        now: The current time, to show how much time is left.
        to, by, instead_of: For a personal message: its recipient, who caused it, and whom the recipient stands in for.
    """
    subject, outcome = request.subject, outcome_of(request) if event == "outcome" else None
    is_call = isinstance(subject, Call)
    shows_arguments = is_call and request.notify_arguments
    title = _title(request, event, outcome)
    if to is not None:
        whom = "you" if instead_of is None else f"{_display_name(instead_of)} (away, you stand in)"
        title = f"{_display_name(by)} {'mentions' if event == 'mentioned' else 'assigned to'} {whom}: {title}"
    facts: list[str] = []
    if request.state is State.PENDING:
        facts += [] if request.risk is None else [f"risk {quote_if_needed(request.risk, _ROOM)}"]
        facts.append(f"{expiry(request.expires_at, now)}, at {moment(request.expires_at)}")
    return Notification(
        id=_message_id(request.id, channel, event, mark),
        event=event,
        request_id=request.id,
        run_id=escape(request.run_id),
        tool=escape(subject.name) if is_call else "",
        kind=request.kind,
        risk=None if request.risk is None else escape(request.risk),
        state=request.state.value,
        fingerprint=request.current_fingerprint,
        title=title,
        line="; ".join([title, *facts]),
        link=None if base_url is None else f"{base_url.rstrip('/')}/r/{request.id}",
        asked_at=request.created_at,
        expires_at=request.expires_at,
        arguments=request.effective.arguments if shows_arguments else None,
        outcome=outcome,
        program_title=escape(request.title) if shows_arguments and request.title is not None else None,
        summary=escape(request.summary) if shows_arguments and request.summary is not None else None,
        to=to,
    )


def test_notification(channel: str, base_url: str | None) -> Notification:
    """Return a notification that tests a channel and concerns no request."""
    now = clock.now()
    title = f"a test of the channel {channel}; there is nothing to do"
    return Notification(
        id=_message_id("test", channel, "test", str(clock.microseconds(now))), event="test", request_id="", run_id="",
        tool="", kind="call", risk=None, state="", fingerprint="", title=title, line=title, link=base_url,
        asked_at=now, expires_at=now, arguments=None, outcome=None,
    )  # fmt: skip


def outcome_of(request: Request) -> str:
    """Describe a request's outcome, its reviewer and channel: `approved by ada (browser), executed`."""
    decision = request.decision
    if decision is None:
        return "expired without a decision" if request.state is State.EXPIRED else request.state.value
    who = f"{name_of(decision.by, _ROOM)} ({quote_if_needed(decision.channel, _ROOM)})"
    if decision.verb == "answer":
        return f"answered by {who}"
    if decision.verb == "cancel" and decision.by.issuer == PROGRAM:
        return "withdrawn by the program"
    end = f", {_ENDS.get(request.state, request.state.value)}" if decision.verb == "approve" else ""
    return verdict(request, decision, who) + end


def _title(request: Request, event: Event, outcome: str | None) -> str:
    subject, who = request.subject, name_of(request.requester, _ROOM)
    is_call = isinstance(subject, Call)
    if event == "outcome":
        return f"{quote_if_needed(subject.name, _ROOM) if is_call else f'a question of {who}'}: {outcome}"
    what = f"{who} wants to run {quote_if_needed(subject.name, _ROOM)}" if is_call else f"{who} asks a question"
    if event == "escalated":
        whom = "more people"
        if request.escalation is not None:  # up to three of them are named, the rest is counted
            named = [f"the role {quote_if_needed(role, _ROOM)}" for role in sorted(request.escalation.roles)]
            named += [name_of(person, _ROOM) for person in request.escalation.people]
            more = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
            whom = " or ".join([*named[:_NAMED], *more])
        return f"escalated to {whom}: {what}"
    return f"still waiting: {what}" if event == "reminder" else what


def _display_name(qualified: str | None) -> str:
    return quote_if_needed((qualified or "somebody").removeprefix(f"{LOCAL}:"), _ROOM)


def _message_id(*parts: str) -> str:
    """Return a message id that is the same for each retry and differs from that of any other message."""
    return f"msg_{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:32]}"


# For each type: its module, which is imported only if the type is configured, and the extra that it needs.
_TYPES = {
    "apprise": ("apprise", "notify"), "slack": ("slack", "slack"), "terminal": ("", None), "webhook": ("webhook", None),
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def make(name: str, settings: Mapping[str, Any]) -> Channel:
    """Create a channel from its table in `sayso.toml`.

    Args:
        name: The channel's name, `ops` for `[channels.ops]`.
        settings: The table; its `type` selects the kind of channel.

    Raises:
        ConfigError: The type is unknown, its extra is not installed, or a setting is invalid.
    """
    _check_name(name)
    kind: object = settings.get("type")
    if kind == "queue":
        raise ConfigError(
            f"[channels.{name}] a queue exists only inside a program: call sayso.channels.queue_channel"
            " there, and remove this table"
        )
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ConfigError(f"[channels.{name}] type must be one of {', '.join(_TYPES)}, not {kind!r}")
    if kind == "terminal":
        Table(f"channels.{name}", settings, known=("type",))
        return TerminalChannel(name)
    module, extra = _TYPES[kind]
    try:
        return importlib.import_module(f"sayso.channels.{module}").make(name, settings)
    except ModuleNotFoundError as error:
        if extra is None:
            raise
        raise ConfigError(
            f"channel {name} needs the extra `{extra}` ({error.name} is missing): pip install 'sayso[{extra}]'"
        ) from error


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"a channel's name has 1 to 40 characters of a-z, 0-9, - and _, not {name!a}")


def configured() -> dict[str, Channel]:
    """Create the channels of the settings file and return them by name; raise `ConfigError` if one is invalid."""
    return {name: make(name, settings) for name, settings in config.channel_tables().items()}


MOST_WAITING = 50
"""The maximum number of already pending requests that are announced to a new channel without `--backlog`."""

_SEEN_EVERY = timedelta(minutes=1)
_AWAY_AFTER = timedelta(minutes=10)


@dataclass(frozen=True)
class ChannelHealth:
    """The delivery state of one channel.

    Attributes:
        name: The channel's name.
        kind: The name of its class.
        waiting: The number of due messages that were not attempted yet.
        failing: The number of messages that failed and will be retried.
        given_up: The number of messages given up in the last seven days.
        seen_at: When a deliverer last polled, to the minute.
        sent_at: When the last message was sent.
        failed_at: When an attempt last failed.
        error: The message of that failure.
    """

    name: str
    kind: str
    waiting: int
    failing: int
    given_up: int
    seen_at: datetime | None
    sent_at: datetime | None
    failed_at: datetime | None
    error: str | None

    @property
    def problem(self) -> str | None:
        """A sentence that describes the problem; None if there is none."""
        if self.given_up or self.failing:
            tried = f"{self.failing} messages failed and will be retried" if self.failing else ""
            lost = f"{self.given_up} were given up" if self.given_up else ""
            return f"{' and '.join(filter(None, (tried, lost)))}: {self.error or 'no error was recorded'}"
        if self.waiting and (self.seen_at is None or clock.now() - self.seen_at > _AWAY_AFTER):
            return (
                f"{self.waiting} messages are waiting and no process delivers them; run `sayso serve` or `sayso notify`"
            )
        return None


def register(store: Store, channels: Iterable[Channel], *, by: Literal["settings", "program"]) -> None:
    """Register channels in a store, and announce up to `MOST_WAITING` pending requests to new ones.

    Raises:
        ConfigError: A name is invalid, or two channels have the same name.
    """
    found = list(channels)
    names = [channel.name for channel in found]
    for name in names:
        _check_name(name)
    twice = sorted(name for name in set(names) if names.count(name) > 1)
    if twice:
        raise ConfigError(f"two channels are named {twice[0]!r}; no messages are sent")
    for channel in found:
        known = store.record(CHANNEL, channel.name)
        # `begins` stays until the pending requests are announced, so that another process continues if this one dies.
        before = {"begins": True} if known is None else known.body
        people = sorted({one.qualified for one in getattr(channel, "people", ())})
        body = {**before, "kind": type(channel).__name__, "by": by, "people": people}
        store.keep(Record(CHANNEL, channel.name, body if people else {k: v for k, v in body.items() if k != "people"}))
        if not before.get("begins"):
            continue
        waiting = store.count(_waiting())
        if waiting <= MOST_WAITING:
            announce_waiting(store, channel.name)
        else:
            logging.getLogger("sayso").warning(
                "%s requests were pending before the channel %s was added, and are not announced to it: `sayso"
                " notify --backlog %s` announces them; new requests are announced",
                f"{waiting:,}", channel.name, channel.name,
            )  # fmt: skip
        while (record := store.record(CHANNEL, channel.name)) is not None and record.body.get("begins"):
            store.swap(record, replace(record, body={k: v for k, v in record.body.items() if k != "begins"}))


def announce_waiting(store: Store, name: str) -> int:
    """Make due all pending requests that were never announced to a channel, and return their number."""
    number = 0
    for request in requests_in(store, _waiting()):
        if request.channels and name not in request.channels:
            continue
        record = Record(delivery_kind(name), request.id, {"changes": 0, "sent": []}, clock.now())
        # Only new ones: requests that were asked after the channel was registered already have a delivery.
        number += store.keep(record, only_new=True)
    return number


def forget_removed(store: Store, names: Collection[str]) -> None:
    """Forget the channels that the settings file no longer names."""
    for record in store.records(CHANNEL):
        if record.body.get("by") == "settings" and record.key not in names:
            forget(store, record.key)


def record_attempts(store: Store, name: str, *, sent: bool, error: str | None) -> None:
    """Record the result of a channel's deliveries; write at most once a minute if nothing changed."""
    record, now = store.record(CHANNEL, name), clock.now()
    if record is None:
        return
    seen = record.body.get("seen_at")
    if not sent and error is None and seen is not None and now - instant(seen) < _SEEN_EVERY:
        return
    news: dict[str, Any] = {"seen_at": microseconds(now)}
    if sent:
        news["sent_at"] = microseconds(now)
    if error is not None:
        news |= {"failed_at": microseconds(now), "error": error}
    # Two deliverers of a channel may write at once. The one that loses the swap writes again at its next attempt.
    store.swap(record, replace(record, body={**record.body, **news}))


def _waiting() -> Filter:
    return Filter(states=frozenset({State.PENDING}), at=clock.now())


def forget(store: Store, name: str) -> bool:
    """Remove a channel and all its deliveries; return whether it was registered."""
    was_there = store.drop(CHANNEL, name)
    for record in list(records_in(store, delivery_kind(name))):
        store.drop(record.kind, record.key)
    return was_there


def health(store: Store) -> list[ChannelHealth]:
    """Return the health of all channels registered in a store, sorted by name."""
    found, now = list[ChannelHealth](), clock.now()
    for channel in store.records(CHANNEL):
        body, waiting, failing, given_up = channel.body, 0, 0, 0
        for record in records_in(store, delivery_kind(channel.key)):
            if record.body.get("given_up"):
                given_up += 1
            elif record.body.get("tries"):
                failing += 1
            elif record.due is not None and record.due <= now:
                waiting += 1
        times = {name: instant(body[name]) if name in body else None for name in ("seen_at", "sent_at", "failed_at")}
        counts = waiting, failing, given_up
        found.append(ChannelHealth(channel.key, body["kind"], *counts, error=body.get("error"), **times))
    return found


class ChannelCheck(NamedTuple):
    """The result of checking one channel.

    Attributes:
        name: The channel's name.
        kind: Its type in the settings file, or the name of its class if a program registered it.
        is_configured: Whether it is in the settings file.
        health: Its delivery state; None if it is not registered in the store, or the store is not open.
        problem: A sentence that describes the problem; None if there is none.
    """

    name: str
    kind: str
    is_configured: bool
    health: ChannelHealth | None
    problem: str | None


def check(known: Sequence[ChannelHealth]) -> tuple[list[ChannelCheck], str | None]:
    """Return all channels, those of the settings file first, and the problem with that file if there is one.

    Args:
        known: The channels registered in the store; empty if it does not open.
    """
    found, fault, tables = list[ChannelCheck](), None, dict[str, dict[str, Any]]()
    try:
        tables = config.channel_tables()
    except SaysoError as error:
        fault = str(error)
    by_name = {one.name: one for one in known}
    for name, table in tables.items():
        health = by_name.pop(name, None)
        problem = None if health is None else health.problem
        try:
            make(name, table)
        except ConfigError as error:
            problem = f"{error}; the channel sends no messages"
        found.append(ChannelCheck(name, str(table.get("type", "no type")), True, health, problem))
    for one in by_name.values():
        found.append(ChannelCheck(one.name, one.kind.removesuffix("Channel").lower(), False, one, one.problem))
    return found, fault
