"""One request's messages through one channel: what was said, what is to be said next, and when.

Pure: `sayso.channels.outbox` takes deliveries, sends and keeps them; `sayso.stores.transaction` begins them and makes
them due again. Invariant: a mark is told once. What comes late is not told any more: no reminder follows another within
a minute, and where a request is decided before it was announced, one message says it all.

The outbox: what requests owe to channels is taken, sent and recorded, at least once and each message once.

What is owed is written by `sayso.stores.transaction` in the transaction of the request. Here a deliverer for each
channel takes what is due under a lease, sends it, and records that; one that dies in between is followed by another,
which sends the same message, with the same id, again. A failure is tried again after 5 seconds, then twice as long each
time, up to an hour; after a day, or when the channel says never, it is given up, and `health` tells. Invariant: no gate
waits for a channel, and whatever a channel raises ends here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sayso import clock
from sayso.channels import registry
from sayso.channels.notification import Event, Outlet, UndeliverableError, notice_of
from sayso.channels.registry import ChannelHealth, Roll, every, forget, health
from sayso.clock import instant, microseconds
from sayso.model import redaction
from sayso.model.request import Request, State
from sayso.stores import worker
from sayso.stores.base import Store
from sayso.stores.records import Record
from sayso.stores.transaction import delivery_kind
from sayso.stores.worker import Lease

__all__ = [
    "GIVES_UP_AFTER",
    "KEPT_FOR",
    "LEASE",
    "ChannelHealth",
    "Deliverer",
    "Delivery",
    "Due",
    "Listener",
    "deliver",
    "delivering",
    "due_at",
    "due_message",
    "forget",
    "health",
]

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


_AT_ONCE = 100  # deliveries that are read together
_ERROR_ROOM = 300
_IDLE = 30.0  # seconds after which a deliverer looks again, whatever it was told
_SWEEP = 10.0  # seconds between two looks for ends and escalations
_TROUBLE = 5.0  # seconds that a deliverer leaves a store alone that failed
_PATIENCE = 0.5  # seconds that are waited for a channel which is just sending, at the end


@runtime_checkable
class Listener(Protocol):
    """An outlet through which people also decide, e.g. by pressing a button."""

    def listening(self, store: Store, base_url: str | None) -> AbstractContextManager[object]:
        """Hear what people decide, and decide it on this store, while the block runs."""
        ...


class _Went(NamedTuple):
    """How a delivery went: it was sent, it failed, or there was nothing to say."""

    is_sent: bool = False
    error: str | None = None


class Deliverer:
    """Sends what is due to one channel.

    Args:
        store: Where requests and deliveries are.
        outlet: The channel.
        base_url: Where the inbox is, for the links.

    Attributes:
        failed: How many messages failed at the last look.
        is_ended: Set it, and nothing more is sent.
    """

    def __init__(self, store: Store, outlet: Outlet, base_url: str | None = None) -> None:
        self._store, self._outlet, self._base_url = store, outlet, base_url
        self._kind, self._lease = delivery_kind(outlet.name), Lease()
        self._roll = Roll(store)
        self.failed = 0
        self.is_ended = threading.Event()

    def deliver_due(self) -> int:
        """Send everything that is due by now; return how many messages went out."""
        sent, error = 0, None
        self.failed = 0
        while not self.is_ended.is_set():
            due = self._store.records(self._kind, due_by=clock.now(), limit=_AT_ONCE)
            for record in due:
                if self.is_ended.is_set():
                    break
                went = self._deliver(record)
                sent += went.is_sent
                if went.error is not None:
                    self.failed, error = self.failed + 1, went.error
            if len(due) < _AT_ONCE:
                break
        self._roll.mark(self._outlet.name, sent=sent > 0, error=error)
        return sent

    def next_due(self) -> float:
        """Return in how many seconds something is due, as far as it is known now."""
        soon = clock.now() + timedelta(seconds=_IDLE)
        first = self._store.records(self._kind, due_by=soon, limit=1)
        if not first or first[0].due is None:
            return _IDLE
        return max(0.0, (first[0].due - clock.now()).total_seconds())

    def take_over(self) -> None:
        """Make due at once what another deliverer had in hand when it died."""
        for record in every(self._store, self._kind):
            holder = record.body.get("holder")
            if isinstance(holder, str) and worker.is_free(holder):
                freed = {name: value for name, value in record.body.items() if name != "holder"}
                self._store.swap(record, replace(record, body=freed, due=clock.now()))

    def _deliver(self, record: Record) -> _Went:
        delivery = replace(Delivery.of(record), holder=self._lease.holder)
        if delivery.given_up:
            self._store.drop(record.kind, record.key)  # it was shown for long enough
            return _Went()
        # Another deliverer may have read the same record: who swaps it first sends.
        if not self._store.swap(record, delivery.record(self._outlet.name, clock.now() + LEASE)):
            return _Went()
        request = self._store.get(record.key)
        due = due_message(delivery, request, clock.now())
        if due is None:
            self._record(record.key, lambda known: known)
            return _Went()
        try:
            reference = self._send(delivery, request, due)
        except Exception as error:  # noqa: BLE001  a channel is somebody's code and somebody's network: it is tried again
            said = redaction.error_text(error, ())[:_ERROR_ROOM]
            self._record_failure(record.key, said, for_good=isinstance(error, UndeliverableError))
            return _Went(error=said)
        now = clock.now()
        self._record(record.key, lambda known: known.said(due, request, reference, now))
        return _Went(is_sent=True)

    def _send(self, delivery: Delivery, request: Request, due: Due) -> str | None:
        notice = notice_of(
            request, due.event, due.mark, channel=self._outlet.name, base_url=self._base_url, now=clock.now()
        )
        if due.event == "outcome" and delivery.told:
            self._outlet.follow_up(notice, delivery.reference)
            return None
        return self._outlet.send(notice)

    def _record(self, request_id: str, after: Callable[[Delivery], Delivery]) -> None:
        while (found := self._held(request_id)) is not None:
            record, known = found
            # Read after the record: a change that comes later changes the record, too, and then the swap fails.
            request, now = self._store.get(request_id), clock.now()
            new = replace(after(known), holder=None)
            due = due_at(new, request, now)
            if due is None and request.is_final:
                if self._store.drop(record.kind, record.key):
                    return
            elif self._store.swap(record, new.record(self._outlet.name, due)):
                return

    def _record_failure(self, request_id: str, error: str, *, for_good: bool) -> None:
        while (found := self._held(request_id)) is not None:
            record, known = found
            new, due = known.failed(error, clock.now(), for_good=for_good)
            if self._store.swap(record, replace(new, holder=None).record(self._outlet.name, due)):
                return

    def _held(self, request_id: str) -> tuple[Record, Delivery] | None:
        """Return a delivery that this one has in hand still; None where its lease has ended and another took it."""
        record = self._store.record(self._kind, request_id)
        if record is None or record.body.get("holder") != self._lease.holder:
            return None
        return record, Delivery.of(record)


@contextmanager
def deliver(
    store: Store, outlets: Iterable[Outlet] = (), *, base_url: str | None = None, runs: bool = True
) -> Generator[list[Deliverer]]:  # fmt: skip
    """Deliver to these channels while the block runs, each from a thread of its own.

    From the first time on, every request is recorded with what it owes to these channels, also while nobody delivers;
    `sayso.channels.forget` ends that.

    Args:
        store: Where the requests are.
        outlets: The channels; each has a name of its own.
        base_url: Where the inbox is, for the links.
        runs: False starts no thread, and leaves it to the caller to call `deliver_due` of what the block is given.

    Raises:
        ConfigError: A name cannot be one, or two channels have the same.
    """
    found = list(outlets)
    Roll(store).enter(found, by="program")
    with _delivered(store, found, base_url, runs=runs) as deliverers:
        yield deliverers


@contextmanager
def delivering(store: Store, base_url: str | None = None, *, runs: bool = True) -> Generator[list[Deliverer]]:
    """Deliver to the channels of `sayso.toml` while the block runs; channels that are gone from there get nothing more.

    Ends of requests and escalations are written all the while, also where there is no channel.

    Args:
        store: Where the requests are.
        base_url: Where the inbox is, for the links.
        runs: As for `deliver`.

    Raises:
        ConfigError: A channel cannot be made.
    """
    outlets = registry.configured()
    roll = Roll(store)
    roll.enter(outlets.values(), by="settings")
    roll.leave_only(outlets)
    with _delivered(store, list(outlets.values()), base_url, runs=runs) as deliverers:
        yield deliverers


@contextmanager
def _delivered(
    store: Store, outlets: list[Outlet], base_url: str | None, *, runs: bool
) -> Generator[list[Deliverer]]:  # fmt: skip
    deliverers = [Deliverer(store, outlet, base_url) for outlet in outlets]
    if not runs:
        yield deliverers
        return
    nudges = [threading.Event() for _ in deliverers]
    ended = threading.Event()

    def wake() -> None:
        for nudge in nudges:
            nudge.set()

    threads = [threading.Thread(target=_sweep, args=(store, ended), name="sayso-sweep", daemon=True)]
    threads += [
        threading.Thread(target=_run, args=(one, nudge), name="sayso-channel", daemon=True)
        for one, nudge in zip(deliverers, nudges, strict=True)
    ]
    unwatch = store.watch_all(wake)
    try:
        with ExitStack() as listening:
            for outlet in outlets:
                if isinstance(outlet, Listener):
                    listening.enter_context(outlet.listening(store, base_url))
            for thread in threads:
                thread.start()
            yield deliverers
    finally:
        unwatch()
        ended.set()
        for one in deliverers:
            one.is_ended.set()
        wake()
        deadline = time.monotonic() + _PATIENCE
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))


def _run(deliverer: Deliverer, nudge: threading.Event) -> None:
    has_begun = False
    while not deliverer.is_ended.is_set():
        nudge.clear()  # before the look: what comes while it looks is looked for again
        try:
            if not has_begun:
                deliverer.take_over()
                has_begun = True
            deliverer.deliver_due()
            pause = deliverer.next_due()
        except Exception as error:  # noqa: BLE001  a store that is away comes back; a thread that ended would not
            _complain("messages could not be delivered", error)
            pause = _TROUBLE
        nudge.wait(pause)


def _sweep(store: Store, ended: threading.Event) -> None:
    while not ended.wait(_SWEEP):
        try:
            store.sweep()
        except Exception as error:  # noqa: BLE001  as above
            _complain("ends of requests could not be looked for", error)


def _complain(what: str, error: Exception) -> None:
    import logging

    logging.getLogger("sayso").warning("%s (%s); nothing was decided, it is tried again", what, error)
