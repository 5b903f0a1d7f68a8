"""The log of events (what happens to requests), and the stream `/v1/events` that sends them to many clients.

Every event is a row of the journal. The log is a bounded ring buffer: an event gets a number when the server notices
it, and a client that reconnects with its last number gets the events since, or `reset` if some are gone. One
broadcaster per event loop reads the log once for all of its streams.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from sayso import errors
from sayso.clock import instant, written
from sayso.model import teamwork
from sayso.model.ids import new_token
from sayso.model.journal import Entry
from sayso.model.request import LIVE, Request, State
from sayso.model.reviewer import Identity
from sayso.server.api.endpoint import Context, Principal, Router, is_still_good
from sayso.server.api.messages import EventsQuery
from sayso.server.live import Hub, PerLoop, Stream, event_stream
from sayso.stores.base import Filter, Store, Unwatch
from sayso.stores.review import requests_in

__all__ = ["Broadcaster", "ClientStream", "EventLog", "LoggedEvent", "router"]

_log = logging.getLogger("sayso.server")

MAX_EVENTS = 10_000
MAX_TRACKED = 5_000
_PAGE = 500
_LIVE = Filter(states=LIVE)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event.

    Attributes:
        number: Its sequence number in this server's epoch.
        state: State of the request when the server noticed the event.
    """

    number: int
    requester: Identity  # not the whole request, because ten thousand events stay in memory
    state: State
    entry: Entry

    @property
    def payload(self) -> str:
        """The event as JSON for a stream, without arguments and without texts that people wrote."""
        entry = self.entry
        return json.dumps({
            "event": entry.event, "request": entry.request_id, "run": entry.run_id, "state": str(self.state),
            "by": entry.by, "channel": entry.channel, "at": written(instant(entry.at)),
        })  # fmt: skip


@dataclass(slots=True)
class _Tracked:
    """A request that may still change: its last logged row, and the function that ends its watch."""

    seq: int
    unwatch: Unwatch


class EventLog:
    """The newest events of one server, as a bounded ring buffer.

    A store has no feed of all changes, so every open request is watched, and its journal is read when it changes.

    Attributes:
        epoch: Random prefix of event ids, which tells the ids of an earlier server apart.
        number: The number of the newest event.
    """

    def __init__(self, store: Store) -> None:
        self.epoch = new_token()[:8]
        self._store = store
        self._lock = threading.Lock()  # of streams that wake together one reads the store, the others its result
        self._events: deque[LoggedEvent] = deque(maxlen=MAX_EVENTS)
        self.number = 0
        self._tracked: dict[str, _Tracked] | None = None  # None before the first listener, and while too many are open
        self._newest: str | None = None
        self._changed_ids: deque[str] = deque()  # ids of changed requests; appended from any thread
        self._mark_changed = self._changed_ids.append
        self._listeners: dict[object, Callable[[], None]] = {}
        self._unwatch: Unwatch | None = None
        self._has_changed = threading.Event()  # since the last look

    # -- listening ---------------------------------------------------------------------------------------------

    def listen(self, wake: Callable[[], None]) -> Unwatch:
        """Call `wake`, in any thread, when something may have happened. Return how to end that. Reads the store."""
        mine = object()
        with self._lock:
            if self._unwatch is None:
                self._unwatch = self._store.watch_all(self._on_change)
                try:
                    self._resume()
                except BaseException:
                    self._pause()  # so that the next listener starts over
                    raise
            self._listeners[mine] = wake

        def end() -> None:
            with self._lock:
                self._listeners.pop(mine, None)
                if not self._listeners:
                    self._pause()

        return end

    def _on_change(self) -> None:
        self._has_changed.set()  # before waking, so that the first listener reads the store
        for wake in set(self._listeners.values()):  # streams of one loop share a `wake`
            wake()

    def _watch(self, request_id: str) -> Unwatch:
        # A partial takes less memory than a closure.
        return self._store.watch(request_id, partial(self._mark_changed, request_id))

    def _resume(self) -> None:
        self._has_changed.set()
        if self._tracked is None:
            self._begin()
            return
        for request_id, tracked in self._tracked.items():  # catch up on the time without listeners
            tracked.unwatch = self._watch(request_id)
            self._changed_ids.append(request_id)

    def _pause(self) -> None:
        for tracked in (self._tracked or {}).values():
            tracked.unwatch()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _begin(self) -> None:
        """Track the requests that are open now, unless there are too many."""
        self._tracked = None
        newest = self._store.list(Filter(), limit=1, newest=True).requests
        self._newest = newest[0].id if newest else None
        if self._store.count(_LIVE) > MAX_TRACKED:
            return
        found = dict[str, _Tracked]()
        try:
            for request in requests_in(self._store, _LIVE):
                tracked = found[request.id] = _Tracked(0, self._watch(request.id))
                tracked.seq = max((row.seq for row in self._rows_after(request.id, 0)[1]), default=0)
        except BaseException:
            for tracked in found.values():
                tracked.unwatch()
            raise
        self._tracked = found  # all of them or none

    # -- reading -----------------------------------------------------------------------------------------------

    def since(self, number: int) -> list[LoggedEvent] | None:
        """Return the events after a number; None if some of them are gone. Reads the store once per change."""
        with self._lock:
            if self._has_changed.is_set():
                self._has_changed.clear()  # before the read, so that a change during it causes another read
                try:
                    self._look()
                except BaseException:
                    self._has_changed.set()  # so that the next caller retries
                    raise
            if not self.number - len(self._events) <= number <= self.number:
                return None
            return [*islice(reversed(self._events), self.number - number)][::-1]  # numbers are contiguous

    def batch(self, seen: int, requester: Identity | None) -> tuple[int, bytes]:
        """Return the next batch for a stream that has seen events up to `seen`: its last number, and its bytes.

        The bytes are empty if the batch has no event of this requester's. None as requester gets every event.
        """
        found = self.since(seen)
        if found is None:
            return (number := self.number), _encoded(self.epoch, number, "reset")
        part = found[:_MAX_BATCH]
        payload = b"".join(
            _encoded(self.epoch, one.number, "request", one.payload)
            for one in part
            # As in `Ownership`: names that only look alike are different programs; comments are for reviewers only.
            if requester is None or (one.requester == requester and one.entry.event != teamwork.COMMENTED)
        )
        return part[-1].number if part else seen, payload

    def _look(self) -> None:
        if self._tracked is None:
            self._reset()
            return
        changed = {self._changed_ids.popleft() for _ in range(len(self._changed_ids))}
        try:
            fresh = self._new_requests(self._tracked)
            wanted = {**dict.fromkeys(changed & self._tracked.keys()), **fresh}
            found = list[tuple[Request, list[Entry]]]()
            for one in wanted:
                try:
                    found.append(self._rows_after(one, self._tracked[one].seq))
                except errors.StoreCorruptError as fault:  # one damaged row must not stop the events of the others
                    _log.warning("event streams omit %s, which cannot be read: %s", one, fault)
        except BaseException:
            self._changed_ids.extend(changed)
            raise
        for request_id in fresh:
            self._newest = request_id
        for request, row in sorted(
            ((request, row) for request, rows in found for row in rows),
            key=lambda one: (one[1].at, one[1].run_id, one[1].seq),
        ):
            self._tracked[request.id].seq = row.seq
            self.number += 1
            self._events.append(LoggedEvent(self.number, request.requester, request.state, row))
        for request, _ in found:
            if request.is_final:
                self._tracked.pop(request.id).unwatch()
        if len(self._tracked) > MAX_TRACKED:
            self._reset()

    def _new_requests(self, tracked: dict[str, _Tracked]) -> dict[str, None]:
        """Return the ids of requests asked since the last read, oldest first, and track them."""
        found: list[str] = []
        cursor, limit = None, 20
        while True:
            page = self._store.list(Filter(), cursor=cursor, limit=limit, newest=True)
            for request in page.requests:
                if request.id == self._newest:
                    return dict.fromkeys(reversed(found))
                if request.id not in tracked:
                    tracked[request.id] = _Tracked(0, self._watch(request.id))
                found.append(request.id)
            cursor, limit = page.cursor, _PAGE
            if cursor is None:
                return dict.fromkeys(reversed(found))

    def _rows_after(self, request_id: str, seq: int) -> tuple[Request, list[Entry]]:
        # Read the request before its journal: a change in between marks the request again and is logged then.
        request = self._store.get(request_id)
        after = (request.run_id, seq)
        return request, list(self._store.journal(run_id=request.run_id, request_id=request_id, after=after))

    def _reset(self) -> None:
        """Send `reset` to every client and start over, because too many requests are or were open."""
        self.number += 1
        self._events.clear()
        for tracked in (self._tracked or {}).values():
            tracked.unwatch()
        self._begin()


_MAX_BATCH = 500  # events in one batch, which stays in memory until a slow client has read it


def _encoded(epoch: str, number: int, event: str, payload: str = "{}") -> bytes:
    """Return one event in the format of server-sent events."""
    return f"id: {epoch}-{number}\r\nevent: {event}\r\ndata: {payload}\r\n\r\n".encode()


class ClientStream(Stream):
    """One stream and its client.

    Attributes:
        is_authorized: Returns whether the client still has access; reads the store.
        seen: Number of the last event that was sent or skipped.
        payload: What it sends next, once `news` is set.
    """

    def __init__(self, who: Principal, is_authorized: Callable[[], bool], seen: int) -> None:
        super().__init__()
        self.who, self.is_authorized, self.seen = who, is_authorized, seen
        self.requester = who.requester if who.kind == "ask" else None  # None gets every event
        # The token or session: access is checked once for all of its streams.
        self.credential = who.token_id, id(who.session)
        self.payload = b""


class Broadcaster(Hub):
    """The event streams of one event loop."""

    def __init__(self, event_log: EventLog, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._event_log = event_log
        self._waiting: dict[ClientStream, None] = {}

    async def next_payload(self, one: ClientStream) -> bytes | None:
        """Wait for what a stream sends next; None if its client lost access or the server shuts down."""
        if one.is_over:
            return None
        one.news.clear()
        self._waiting[one] = None
        self._changed.set()  # it is new, or missed a refresh while it was sending
        try:
            await one.news.wait()
        finally:
            self._waiting.pop(one, None)
        return None if one.is_over else one.payload

    async def _refresh(self) -> Exception | None:
        asked = list(self._waiting)
        if not asked:
            return None
        try:
            found = await run_in_threadpool(self._look, asked)
        except Exception:  # noqa: BLE001  end the streams: clients reconnect, but would not notice a silent one
            _log.exception("could not read the events of event streams; the streams end")
            found = [None] * len(asked)
        for one, batch in zip(asked, found, strict=True):
            if batch is None:
                one.set()
            elif not isinstance(batch, errors.StoreError) and batch[0] != one.seen:
                one.seen, one.payload = batch
                # A batch may have nothing for this client, but the next one may.
                (one.news if one.payload else self._changed).set()
        return next((batch for batch in found if isinstance(batch, errors.StoreError)), None)

    def _look(self, asked: Sequence[ClientStream]) -> Sequence[tuple[int, bytes] | errors.StoreError | None]:
        """Return a batch for each stream; None if its client lost access, the error if the store fails."""
        places = {(one.seen, one.requester) for one in asked}
        try:
            batches = {place: self._event_log.batch(*place) for place in places}
        except errors.StoreError as fault:
            return [fault] * len(asked)
        # Check access after reading, so that no client gets an event from after its access ended.
        allowed: dict[object, bool | errors.StoreError] = {}
        for credential, one in {one.credential: one for one in asked}.items():
            try:
                allowed[credential] = one.is_authorized()
            except errors.StoreError as fault:  # send nothing while access cannot be checked
                allowed[credential] = fault
        return [
            is_open if isinstance(is_open, errors.StoreError) else batches[one.seen, one.requester] if is_open else None
            for one in asked for is_open in [allowed[one.credential]]
        ]  # fmt: skip


async def _events(context: Context, stream: ClientStream, last: str | None) -> AsyncGenerator[bytes]:
    """Yield batches of encoded events, which cost less to send to many clients than single events."""
    event_log: EventLog = context.http.app.state.event_log
    broadcasters: PerLoop[Broadcaster] = context.http.app.state.broadcasters
    broadcaster = broadcasters.here()
    with broadcaster.open():
        end = await run_in_threadpool(event_log.listen, broadcaster.wake)
        try:
            epoch, _, number = (last or "").partition("-")
            if epoch == event_log.epoch and number.isascii() and number.isdigit() and len(number) < 18:
                stream.seen = int(number)
            else:  # no id, or one of another epoch
                stream.seen = event_log.number
                yield _encoded(event_log.epoch, stream.seen, "open" if last is None else "reset")
            while (payload := await broadcaster.next_payload(stream)) is not None:
                yield payload
        finally:
            # In a thread, not awaited: `end` needs the lock, which a slow read of the store may hold.
            asyncio.get_running_loop().run_in_executor(None, end)


_MEDIA_TYPE = "text/event-stream"
router = Router()


@router.get(
    "/v1/events", "Changes of requests, as server-sent events", media_type=_MEDIA_TYPE,
    reads={"Last-Event-ID": "The id of the last event received; later events are sent."},
)  # fmt: skip
async def events(context: Context, query: EventsQuery) -> Response:
    if context.http.method == "HEAD":
        return Response(media_type=_MEDIA_TYPE)
    last = context.http.headers.get("last-event-id") or query.after
    stream = ClientStream(context.principal, partial(is_still_good, context.http, context.principal), 0)
    return event_stream(_events(context, stream, last), stream)
