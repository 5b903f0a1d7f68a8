"""One request's messages through one channel: what was said, what is to be said next, and when.

Pure: `sayso.channels.outbox` takes deliveries, sends and keeps them; `sayso.stores.transaction` begins them and makes
them due again. Invariant: a mark is told once. What comes late is not told any more: no reminder follows another within
a minute, and where a request is decided before it was announced, one message says it all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sayso.channels.notice import Event
from sayso.clock import instant, microseconds
from sayso.model.request import Request, State
from sayso.stores.records import Record
from sayso.stores.transaction import delivery_kind

__all__ = ["GIVES_UP_AFTER", "KEPT_FOR", "LEASE", "Delivery", "Due", "due_at", "due_message"]

LEASE = timedelta(minutes=2)
"""How long a message may be on its way before another deliverer takes it for lost and sends it again."""
GIVES_UP_AFTER = timedelta(hours=24)
KEPT_FOR = timedelta(days=7)
"""How long a delivery that was given up is shown by `sayso doctor`."""

_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(seconds=5), timedelta(hours=1)
_REMINDERS = (90, 50)  # percent of the time from the question to its end; what is later counts for what is earlier
_BETWEEN = timedelta(minutes=1)
_ENDS = frozenset(state.value for state in State) - {"pending"}


class Due(NamedTuple):
    """A message that is to be sent now.

    Attributes:
        event: What it is about.
        mark: What is told with it, once.
    """

    event: Event
    mark: str


@dataclass(frozen=True)
class Delivery:
    """What a record of this kind says.

    Attributes:
        request_id: About which request.
        changes: How often the request has changed since it was asked, as far as people are to hear of it.
        told: What was said: `asked`, `50`, `90`, `escalated`, and states.
        reference: By which the first message can be edited.
        said_at: When something was said last.
        holder: Who has it in hand (see `sayso.stores.worker`).
        tries: How often in a row it has failed.
        failing_since: When the first of these failures was.
        error: What the last one said.
        given_up: Nothing more is tried.
    """

    request_id: str
    changes: int
    told: tuple[str, ...] = ()
    reference: str | None = None
    said_at: datetime | None = None
    holder: str | None = None
    tries: int = 0
    failing_since: datetime | None = None
    error: str | None = None
    given_up: bool = False

    @classmethod
    def of(cls, record: Record) -> Delivery:
        """Return what a record says."""
        fields: dict[str, Any] = dict(record.body)
        for name in ("said_at", "failing_since"):
            if name in fields:
                fields[name] = instant(fields[name])
        return cls(record.key, fields.pop("changes"), tuple(fields.pop("told")), **fields)

    def record(self, channel: str, due: datetime | None) -> Record:
        """Return the record that says this."""
        given = {name: value for name, value in self.__dict__.items() if value not in (None, False, 0)}
        body: dict[str, Any] = {**given, "changes": self.changes, "told": list(self.told)}
        for name in ("said_at", "failing_since"):
            if name in body:
                body[name] = microseconds(body[name])
        return Record(delivery_kind(channel), body.pop("request_id"), body, due)

    def said(self, due: Due, request: Request, reference: str | None, now: datetime) -> Delivery:
        """Return it after a message was sent: with it, all is told whose time has come."""
        more = {due.mark}
        if request.state is State.PENDING:
            more |= {mark for mark, at in _reminders(request) if at <= now}
            more |= {"escalated"} if request.escalated_at is not None else set()
        return replace(
            self, told=(*self.told, *sorted(more.difference(self.told))), reference=self.reference or reference,
            said_at=now, tries=0, failing_since=None, error=None,
        )  # fmt: skip

    def failed(self, error: str, now: datetime, *, for_good: bool) -> tuple[Delivery, datetime]:
        """Return it after a failure, and when it is due again: tried later, or given up."""
        since = self.failing_since or now
        if for_good or now - since >= GIVES_UP_AFTER:
            return replace(self, error=error, failing_since=since, given_up=True), now + KEPT_FOR
        wait = min(_SHORTEST_WAIT * 2 ** min(self.tries, 20), _LONGEST_WAIT)
        return replace(self, error=error, failing_since=since, tries=self.tries + 1), now + wait


def due_message(delivery: Delivery, request: Request, now: datetime) -> Due | None:
    """Return the message that is to be sent about a request as it stands; None where nothing is to be said now."""
    told = delivery.told
    if request.state is not State.PENDING:
        return _outcome(delivery, request)
    if "asked" not in told:
        return Due("asked", "asked")
    if request.escalated_at is not None and "escalated" not in told:
        return Due("escalated", "escalated")
    for mark, at in _reminders(request):
        if mark in told:
            return None  # the later one says what the earlier one would
        if _not_before(delivery, at) <= now:
            return Due("reminder", mark)
    return None


def due_at(delivery: Delivery, request: Request, now: datetime) -> datetime | None:
    """Return when something is to be said, as far as it is known now; None where only a change can bring it about."""
    if due_message(delivery, request, now) is not None:
        return now
    if request.state is not State.PENDING:
        return None
    return min(
        (_not_before(delivery, at) for mark, at in _reminders(request) if mark not in delivery.told), default=None
    )


def _outcome(delivery: Delivery, request: Request) -> Due | None:
    mark = "approved" if request.state is State.RUNNING else request.state.value
    if mark in delivery.told or (mark == "approved" and _ENDS.intersection(delivery.told)):
        return None  # a call that is tried again is told when it has ended
    return Due("outcome", mark)


def _reminders(request: Request) -> list[tuple[str, datetime]]:
    span = request.expires_at - request.created_at
    return [(str(percent), request.created_at + span * percent / 100) for percent in _REMINDERS]


def _not_before(delivery: Delivery, at: datetime) -> datetime:
    return at if delivery.said_at is None else max(at, delivery.said_at + _BETWEEN)
