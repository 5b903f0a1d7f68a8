"""The outbox: sends each channel's due messages about requests at least once, and retries failures.

`sayso.stores.transaction` records a due delivery in the transaction that changes the request. Each channel's deliverer
takes a delivery under a lease, sends it and records the result. If it dies in between, another deliverer sends the same
message again with the same id. A failed message is retried after 5 seconds, then after doubling delays of up to an
hour. After a day, or on `UndeliverableError`, it is given up, and `health` reports it. No gate waits for a channel, and
no exception from a channel leaves this module.

Obsolete messages are skipped: reminders are at least a minute apart, and a request that is decided before it was
announced gets a single message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from sayso import clock, errors
from sayso.channels import registry
from sayso.channels.registry import Channel, Event, UndeliverableError, notification_for
from sayso.clock import instant, microseconds
from sayso.model import redaction
from sayso.model.request import Request, State
from sayso.stores import workers
from sayso.stores.base import Store
from sayso.stores.records import Record, records_in
from sayso.stores.transaction import delivery_kind
from sayso.stores.workers import Lease

LEASE = timedelta(minutes=2)
"""How long a deliverer has to send a message before another one may send it again."""
GIVES_UP_AFTER = timedelta(hours=24)
RETENTION = timedelta(days=7)
"""How long a delivery that was given up stays in the store, where `sayso doctor` counts it."""

_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(seconds=5), timedelta(hours=1)
_REMINDERS = (90, 50)  # percent of the request's time that has passed; a later one replaces the earlier one
_BETWEEN = timedelta(minutes=1)
_EVENTS: dict[str, Event] = {
    "asked": "asked", "escalated": "escalated", "returned": "reminder", "90": "reminder", "50": "reminder",
    "mentioned": "mentioned", "assigned": "assigned",
}  # fmt: skip
_ENDS = frozenset(state.value for state in State) - {"pending"}
_TIMES = ("sent_at", "failing_since")


@dataclass(frozen=True)
class Delivery:
    """The messages about one request through one channel: what was sent, and how the last attempts ended.

    Attributes:
        request_id: The request's id, or the key of a message to one person.
        changes: How many changes of the request had to be announced since it was asked.
        sent: The marks of sent messages: `asked`, `50`, `90`, `escalated`, `returned`, and states.
        reference: The channel's reference to the first message, with which it can be edited.
        sent_at: When the last message was sent.
        holder: The deliverer that holds it now (see `sayso.stores.workers`).
        tries: The number of consecutive failed attempts.
        failing_since: When the first of these failed.
        error: The message of the last failure.
        given_up: Whether retries have ended.
        event, to, by, instead_of: For a message to one person: its event, its recipient, who caused it, and the absent
            person whom the recipient stands in for. It is sent once, and then its delivery is dropped.
    """

    request_id: str
    changes: int
    sent: tuple[str, ...] = ()
    reference: str | None = None
    sent_at: datetime | None = None
    holder: str | None = None
    tries: int = 0
    failing_since: datetime | None = None
    error: str | None = None
    given_up: bool = False
    event: str | None = None
    to: str | None = None
    by: str | None = None
    instead_of: str | None = None

    @property
    def about(self) -> str:
        """The id of the request that the messages concern."""
        return self.request_id.partition("/")[0]

    @classmethod
    def of(cls, record: Record) -> Delivery:
        """Parse the delivery from a record."""
        times = {name: instant(record.body[name]) for name in _TIMES if name in record.body}
        fields: dict[str, Any] = {**record.body, **times, "sent": tuple(record.body["sent"])}
        return cls(record.key, **fields)

    def record(self, channel: str, due: datetime | None) -> Record:
        """Return the delivery as a record that is due at `due`."""
        body = {name: value for name, value in vars(self).items() if value not in (None, False, 0)}
        body |= {name: microseconds(body[name]) for name in _TIMES if name in body}
        body |= {"changes": self.changes, "sent": list(self.sent)}
        return Record(delivery_kind(channel), body.pop("request_id"), body, due)

    def after_sending(self, mark: str, request: Request, reference: str | None, now: datetime) -> Delivery:
        """Return the delivery after a message was sent; every mark whose time has come counts as sent."""
        more = {mark}
        if request.state is State.PENDING:
            more |= {mark for mark, at in _reminders(request) if at <= now}
            more |= {"escalated"} if request.escalated_at is not None else set()
            more |= {"returned"} if request.returned is not None else set()
        return replace(
            self, sent=(*self.sent, *sorted(more.difference(self.sent))), reference=self.reference or reference,
            sent_at=now, tries=0, failing_since=None, error=None,
        )  # fmt: skip

    def after_failure(self, error: str, now: datetime, *, for_good: bool) -> tuple[Delivery, datetime]:
        """Return the delivery after a failed attempt, and when it is due for a retry or, if given up, for removal."""
        since = self.failing_since or now
        if for_good or now - since >= GIVES_UP_AFTER:
            return replace(self, error=error, failing_since=since, given_up=True), now + RETENTION
        wait = min(_SHORTEST_WAIT * 2 ** min(self.tries, 20), _LONGEST_WAIT)
        return replace(self, error=error, failing_since=since, tries=self.tries + 1), now + wait


def due_mark(delivery: Delivery, request: Request, now: datetime) -> str | None:
    """Return the mark of the message to send now; None if none is due."""
    sent = delivery.sent
    if delivery.event is not None:  # a message to one person
        return None if delivery.event in sent or request.is_final else delivery.event
    if request.held_until is not None and now < request.held_until:
        return None  # the approval can still be undone
    if request.state is not State.PENDING:
        mark = "approved" if request.state is State.RUNNING else request.state.value
        is_old = mark == "approved" and _ENDS.intersection(sent)  # a call that starts again is announced when it ends
        return None if mark in sent or is_old else mark
    if "asked" not in sent:
        return "asked"
    if request.escalated_at is not None and "escalated" not in sent:
        return "escalated"
    if request.returned is not None and "returned" not in sent:
        return "returned"  # its approver believes that it was done
    for mark, at in _reminders(request):
        if mark in sent:
            return None  # a later reminder replaces the earlier one
        if _earliest(delivery, at) <= now:
            return mark
    return None


def due_at(delivery: Delivery, request: Request, now: datetime) -> datetime | None:
    """Return when the next message is due; None if only a change of the request can cause one."""
    if due_mark(delivery, request, now) is not None:
        return now
    if delivery.event is not None:
        return None
    if request.state is not State.PENDING:
        return request.held_until if request.held_until is not None and now < request.held_until else None
    return min((_earliest(delivery, at) for mark, at in _reminders(request) if mark not in delivery.sent), default=None)


def _reminders(request: Request) -> list[tuple[str, datetime]]:
    span = request.expires_at - request.created_at
    return [(str(percent), request.created_at + span * percent / 100) for percent in _REMINDERS]


def _earliest(delivery: Delivery, at: datetime) -> datetime:
    return at if delivery.sent_at is None else max(at, delivery.sent_at + _BETWEEN)


_AT_ONCE = 100  # deliveries per read
_ERROR_ROOM = 300
_IDLE = 30.0  # seconds after which a deliverer polls even if the store signals no change
_SWEEP = 10.0  # seconds between sweeps for expired and escalated requests
_AFTER_STORE_ERROR = 5.0  # seconds to wait after the store failed
_PATIENCE = 0.5  # seconds to wait at shutdown for channels that are sending


@runtime_checkable
class InteractiveChannel(Protocol):
    """A channel through which people can also decide, e.g. by pressing a button."""

    def listening(self, store: Store, base_url: str | None) -> AbstractContextManager[object]:
        """Receive decisions and apply them to this store while the block runs."""
        ...


class _SendError(Exception):
    """A channel failed to send a message, for any reason: its code may be anybody's."""


class Deliverer:
    """Sends the due messages of one channel.

    Args:
        store: The store with requests and deliveries.
        channel: The channel.
        base_url: The inbox's address, for links.

    Attributes:
        failed: The number of messages that failed in the last `deliver_due`.
        is_ended: Set this event to stop sending.
    """

    def __init__(self, store: Store, channel: Channel, base_url: str | None = None) -> None:
        self._store, self.channel, self.base_url = store, channel, base_url
        self._kind, self._lease = delivery_kind(channel.name), Lease()
        self.failed = 0
        self.is_ended = threading.Event()

    def deliver_due(self) -> int:
        """Send everything that is due now, and return the number of sent messages."""
        sent, error = 0, None
        self.failed = 0
        while not self.is_ended.is_set():
            due = self._store.records(self._kind, due_by=clock.now(), limit=_AT_ONCE)
            for record in due:
                if self.is_ended.is_set():
                    break
                try:
                    sent += self._deliver(record)
                except _SendError as failed:
                    self.failed, error = self.failed + 1, str(failed)
            if len(due) < _AT_ONCE:
                break
        registry.record_attempts(self._store, self.channel.name, sent=sent > 0, error=error)
        return sent

    def next_due(self) -> float:
        """Return the seconds until the next delivery is due, at most `_IDLE`."""
        soon = clock.now() + timedelta(seconds=_IDLE)
        first = self._store.records(self._kind, due_by=soon, limit=1)
        if not first or first[0].due is None:
            return _IDLE
        return max(0.0, (first[0].due - clock.now()).total_seconds())

    def take_over(self) -> None:
        """Make the deliveries that a dead deliverer holds due at once."""
        for record in records_in(self._store, self._kind):
            holder = record.body.get("holder")
            if isinstance(holder, str) and workers.is_free(holder):
                freed = {name: value for name, value in record.body.items() if name != "holder"}
                self._store.swap(record, replace(record, body=freed, due=clock.now()))

    def _deliver(self, record: Record) -> bool:
        """Send a delivery's due message and return whether one was sent; raise `_SendError` on failure."""
        try:
            delivery = replace(Delivery.of(record), holder=self._lease.holder)
        except (LookupError, TypeError, ValueError) as error:  # written by another version, or altered
            self._store.swap(record, replace(record, due=clock.now() + _LONGEST_WAIT))
            raise _SendError(f"the queued messages about {record.key!a} cannot be read ({error})") from error
        if delivery.given_up:
            self._store.drop(record.kind, record.key)  # kept for `RETENTION` by now
            return False
        # Another deliverer may have read the same record; only the one whose swap succeeds sends it.
        taken = delivery.record(self.channel.name, clock.now() + LEASE)
        if not self._store.swap(record, taken):
            return False
        try:
            request = self._store.get(delivery.about)
        except errors.RequestNotFoundError:
            self._store.drop(record.kind, record.key)
            return False
        except errors.StoreCorruptError as error:  # must not block messages about other requests
            failed, due = delivery.after_failure(str(error)[:_ERROR_ROOM], clock.now(), for_good=False)
            self._store.swap(taken, replace(failed, holder=None).record(self.channel.name, due))
            raise _SendError(str(error)) from error
        mark = due_mark(delivery, request, clock.now())
        if mark is None:
            self._record(record.key, lambda known: (known, None))
            return False
        try:
            event = _EVENTS.get(mark, "outcome")
            notification = notification_for(
                request, event, mark if delivery.event is None else delivery.request_id, channel=self.channel.name,
                base_url=self.base_url, now=clock.now(), to=delivery.to, by=delivery.by,
                instead_of=delivery.instead_of,
            )  # fmt: skip
            reference = None
            if event == "outcome" and delivery.sent:
                self.channel.follow_up(notification, delivery.reference)
            else:
                reference = self.channel.send(notification)
        except Exception as error:
            message, for_good = redaction.error_text(error, ())[:_ERROR_ROOM], isinstance(error, UndeliverableError)
            self._record(record.key, lambda known: known.after_failure(message, clock.now(), for_good=for_good))
            raise _SendError(message) from error
        now = clock.now()
        self._record(record.key, lambda known: (known.after_sending(mark, request, reference, now), None))
        return True

    def _record(self, request_id: str, after: Callable[[Delivery], tuple[Delivery, datetime | None]]) -> None:
        """Store the result of an attempt; `after` returns the new delivery and, after a failure, the retry time."""
        while (record := self._store.record(self._kind, request_id)) is not None:
            if record.body.get("holder") != self._lease.holder:
                return  # the lease expired, and another deliverer took it
            # Read after the record: a later change of the request changes the record too, and then the swap fails.
            request, now = self._store.get(Delivery.of(record).about), clock.now()
            new, retry_at = after(Delivery.of(record))
            due = due_at(new, request, now) if retry_at is None else retry_at
            if due is None and (request.is_final or new.event is not None):
                if self._store.drop(record.kind, record.key):
                    return
            elif self._store.swap(record, replace(new, holder=None).record(self.channel.name, due)):
                return


def deliver(
    store: Store, channels: Iterable[Channel] = (), *, base_url: str | None = None, runs: bool = True
) -> AbstractContextManager[list[Deliverer]]:
    """Deliver to these channels while the block runs, each in its own thread.

    This registers the channels in the store. From then on every request is announced to them, also later if no
    deliverer runs at the time. `sayso.channels.forget` ends that.

    Args:
        store: The store with the requests.
        channels: The channels; their names are distinct.
        base_url: The inbox's address, for links.
        runs: False starts no threads; the caller then calls `deliver_due` on each yielded deliverer.

    Raises:
        ConfigError: A name is invalid, or two channels have the same name.
    """
    found = list(channels)
    registry.register(store, found, by="program")
    return _in_threads([Deliverer(store, channel, base_url) for channel in found], store, runs=runs)


def delivering(
    store: Store, base_url: str | None = None, *, runs: bool = True, also: Iterable[Channel] = ()
) -> AbstractContextManager[list[Deliverer]]:
    """Deliver to the channels of `sayso.toml` while the block runs; forget channels that were removed from it.

    Expirations and escalations are recorded meanwhile, even without a channel.

    Args:
        store: The store with the requests.
        base_url: The inbox's address, for links.
        runs: As for `deliver`.
        also: Channels that this does not register; no message is due to one until somebody registers it.

    Raises:
        ConfigError: A channel's settings are invalid.
    """
    channels = registry.configured()
    registry.register(store, channels.values(), by="settings")
    registry.forget_removed(store, channels)
    return _in_threads([Deliverer(store, one, base_url) for one in (*channels.values(), *also)], store, runs=runs)


@contextmanager
def _in_threads(deliverers: list[Deliverer], store: Store, *, runs: bool) -> Generator[list[Deliverer]]:
    if not runs:
        yield deliverers
        return
    wakeups = [threading.Event() for _ in deliverers]
    ended = threading.Event()

    def wake() -> None:
        for wakeup in wakeups:
            wakeup.set()

    threads = [threading.Thread(target=_sweep_until_ended, args=(store, ended), name="sayso-sweep", daemon=True)]
    threads += [
        threading.Thread(target=_deliver_until_ended, args=(one, wakeup), name="sayso-channel", daemon=True)
        for one, wakeup in zip(deliverers, wakeups, strict=True)
    ]
    unwatch = store.watch_all(wake)
    try:
        with ExitStack() as listening:
            for one in deliverers:
                if isinstance(one.channel, InteractiveChannel):
                    listening.enter_context(one.channel.listening(store, one.base_url))
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


def _deliver_until_ended(deliverer: Deliverer, wakeup: threading.Event) -> None:
    has_begun = False
    while not deliverer.is_ended.is_set():
        wakeup.clear()  # before delivering, so that a change in the meantime is not missed
        try:
            if not has_begun:
                deliverer.take_over()
                has_begun = True
            deliverer.deliver_due()
            pause = deliverer.next_due()
        except Exception as error:  # noqa: BLE001  the store may recover, but a dead thread would not
            _warn("messages could not be delivered", error)
            pause = _AFTER_STORE_ERROR
        wakeup.wait(pause)


def _sweep_until_ended(store: Store, ended: threading.Event) -> None:
    while not ended.wait(_SWEEP):
        try:
            store.sweep()
        except Exception as error:  # noqa: BLE001  as above
            _warn("could not check for expired requests", error)


def _warn(what: str, error: Exception) -> None:
    logging.getLogger("sayso").warning("%s (%s); nothing was decided, retrying", what, error)
