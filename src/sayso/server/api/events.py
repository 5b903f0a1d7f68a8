"""What happens to requests: the log of events, and the stream `/v1/events` by which many clients hear of them.

Every event is a row of the journal. The log is a bounded ring: an event gets a number when the server notices it, and a
client that comes back with the last number it saw gets what tracked, or `reset` where that is gone. One broadcaster
for each event loop looks at the log once for all of its streams.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from sayso import errors
from sayso.clock import instant, written
from sayso.model.ids import new_token
from sayso.model.journal import Entry
from sayso.model.request import LIVE, Request, State
from sayso.model.reviewer import Identity
from sayso.server.api.endpoint import Context, Principal, Router, is_still_good
from sayso.server.api.messages import EventsQuery
from sayso.server.events import PerLoop, Shutdown, Wakeup, event_stream
from sayso.stores.base import Filter, Store, Unwatch

__all__ = ["Batch", "Batches", "Broadcaster", "Broadcasters", "EventLog", "Listener", "LoggedEvent", "router"]

_log = logging.getLogger("sayso.server")

MAX_EVENTS = 10_000
MAX_TRACKED = 5_000
_PAGE = 500
_LIVE = Filter(states=LIVE)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event.

    Attributes:
        number: Its place in this server's epoch.
        requester: Who asked for what it is about.
        state: Where that stood when the event was noticed.
        entry: The row of the journal.
    """

    number: int
    requester: Identity  # not the whole request: ten thousand of these stay in memory
    state: State
    entry: Entry

    def is_of(self, requester: Identity) -> bool:
        """Say whether this requester asked for it."""
        return self.requester.is_same(requester)

    @property
    def payload(self) -> str:
        """What a stream sends of it, as JSON: no argument, and no word of a person."""
        entry = self.entry
        payload = {
            "event": entry.event, "request": entry.request_id, "run": entry.run_id, "state": str(self.state),
            "by": entry.by, "channel": entry.channel, "at": written(instant(entry.at)),
        }  # fmt: skip
        return json.dumps(payload)


@dataclass(slots=True)
class _Tracked:
    """A request that may still change: the last row of it that was logged, and how to stop watching it."""

    seq: int
    unwatch: Unwatch


class EventLog:
    """The newest events of one server, as a bounded ring.

    A store has no feed of all changes, so every open request is watched, and its journal is read when it changes.

    Attributes:
        epoch: Random; stands in the ids of events, so that an id of an earlier server is known as such.
    """

    def __init__(self, store: Store) -> None:
        self.epoch = new_token()[:8]
        self._store = store
        self._lock = threading.Lock()  # of many streams that wake together one looks, and the others find it done
        self._events: deque[LoggedEvent] = deque(maxlen=MAX_EVENTS)
        self._number = 0
        self._tracked: dict[str, _Tracked] | None = None  # None until somebody listens, and while too many are open
        self._newest: str | None = None
        self._changed_ids: deque[str] = deque()  # ids of requests that changed; added to from any thread
        self._mark_changed = self._changed_ids.append
        self._listeners: dict[object, Callable[[], None]] = {}
        self._unwatch: Unwatch | None = None
        self._has_changed = threading.Event()  # since the last look

    # -- listening ---------------------------------------------------------------------------------------------

    def listen(self, wake: Callable[[], None]) -> Unwatch:
        """Call `wake`, from some thread, when something may have happened; reads the store."""
        mine = object()
        with self._lock:
            if self._unwatch is None:
                self._unwatch = self._store.watch_all(self._on_change)
                try:
                    self._resume()
                except BaseException:
                    self._pause()  # so that the next one who listens begins anew
                    raise
            self._listeners[mine] = wake

        def end() -> None:
            with self._lock:
                self._listeners.pop(mine, None)
                if not self._listeners:
                    self._pause()

        return end

    def _on_change(self) -> None:
        self._has_changed.set()  # before they wake, so that the first of them looks
        for wake in set(self._listeners.values()):  # many streams are woken by one
            wake()

    def _watch(self, request_id: str) -> Unwatch:
        return self._store.watch(
            request_id, partial(self._mark_changed, request_id)
        )  # smaller than a function for each

    def _resume(self) -> None:
        self._has_changed.set()
        if self._tracked is None:
            self._begin()
            return
        for request_id, tracked in self._tracked.items():  # what happened while nobody listened is caught up with
            tracked.unwatch = self._watch(request_id)
            self._changed_ids.append(request_id)

    def _pause(self) -> None:
        for tracked in (self._tracked or {}).values():
            tracked.unwatch()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _begin(self) -> None:
        """Follow what is open now, if that is not too much."""
        self._tracked = None
        newest = self._store.list(Filter(), limit=1, newest=True).requests
        self._newest = newest[0].id if newest else None
        if self._store.count(_LIVE) > MAX_TRACKED:
            return
        found = dict[str, _Tracked]()
        try:
            self._track_open(found)
        except BaseException:
            for tracked in found.values():
                tracked.unwatch()
            raise
        self._tracked = found  # all of them or none

    def _track_open(self, found: dict[str, _Tracked]) -> None:
        cursor = None
        while True:
            page = self._store.list(_LIVE, cursor=cursor, limit=_PAGE)
            for request in page.requests:
                tracked = found[request.id] = _Tracked(0, self._watch(request.id))
                tracked.seq = max((row.seq for row in self._rows_after(request.id, 0)[1]), default=0)
            cursor = page.cursor
            if cursor is None:
                return

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of the last event that was noticed."""
        return self._number

    def since(self, number: int) -> list[LoggedEvent] | None:
        """Return what followed an event, looked up once for all who ask at the same time; None where that is lost."""
        with self._lock:
            if self._has_changed.is_set():
                self._has_changed.clear()  # before the look: what changes meanwhile is looked for again
                try:
                    self._look()
                except BaseException:
                    self._has_changed.set()  # the next one who asks looks again
                    raise
            if not self._number - len(self._events) <= number <= self._number:
                return None
            newest = list(islice(reversed(self._events), self._number - number))  # the numbers have no gap
            return newest[::-1]

    def _look(self) -> None:
        if self._tracked is None:
            self._reset()
            return
        changed = {self._changed_ids.popleft() for _ in range(len(self._changed_ids))}
        try:
            fresh = self._new_requests(self._tracked)
            wanted = {**dict.fromkeys(changed & self._tracked.keys()), **fresh}
            read = [self._readable_rows(one, self._tracked[one].seq) for one in wanted]
            found = [each for each in read if each is not None]
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
            self._number += 1
            self._events.append(LoggedEvent(self._number, request.requester, request.state, row))
        for request, _ in found:
            if request.is_final:
                self._tracked.pop(request.id).unwatch()
        if len(self._tracked) > MAX_TRACKED:
            self._reset()

    def _new_requests(self, tracked: dict[str, _Tracked]) -> dict[str, None]:
        """Return the ids of requests that were asked since, oldest first, and follow them."""
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

    def _readable_rows(self, request_id: str, seq: int) -> tuple[Request, list[Entry]] | None:
        try:
            return self._rows_after(request_id, seq)
        except errors.StoreCorruptError as fault:  # one damaged row must not keep everybody from hearing of the others
            _log.warning("streams of events are not sent %s, which cannot be read: %s", request_id, fault)
            return None

    def _rows_after(self, request_id: str, seq: int) -> tuple[Request, list[Entry]]:
        # The request first: what happens to it after that is a change of its own, and is logged then.
        request = self._store.get(request_id)
        after = (request.run_id, seq)
        return request, list(self._store.journal(run_id=request.run_id, request_id=request_id, after=after))

    def _reset(self) -> None:
        """Let every client look anew: more requests are open, or were, than can be tracked."""
        self._number += 1
        self._events.clear()
        for tracked in (self._tracked or {}).values():
            tracked.unwatch()
        self._begin()


_MAX_BATCH = 500  # events in one batch, which lies in memory for as long as its reader does not read


class Batch(NamedTuple):
    """What one stream is handed.

    Attributes:
        number: Of the last event that it deals with.
        payload: What to send; empty where none of it is for this reader.
        is_all: Whether nothing is left behind it.
    """

    number: int
    payload: bytes
    is_all: bool = True


class Batches:
    """What one look at the log found, encoded once for all streams at one place.

    Attributes:
        fault: Why the store did not answer, if it did not; nothing is lost by that.
    """

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._found: dict[int, list[LoggedEvent] | int] = {}
        self._written: dict[int, bytes] = {}
        self._batches: dict[tuple[int, Identity | None], Batch] = {}
        self.fault: errors.StoreError | None = None

    def look(self, seen: int) -> None:
        """Look up what tracked an event; reads the store."""
        try:
            found = self._event_log.since(seen)
        except errors.StoreError as fault:
            self._found[seen], self.fault = [], fault
            return
        self._found[seen] = self._event_log.number if found is None else found

    def of(self, seen: int, who: Principal) -> Batch:
        """Return what followed, for this reader; it was looked up."""
        found = self._found[seen]
        if isinstance(found, int):
            return Batch(found, _encoded_event(self._event_log.epoch, found, "reset", "{}"))
        if not found:
            return Batch(seen, b"")
        requester = who.requester if who.kind == "ask" else None
        place = seen, requester
        if place not in self._batches:
            part = found[:_MAX_BATCH]
            payload = b"".join(self._encoded(one) for one in part if requester is None or one.is_of(requester))
            self._batches[place] = Batch(part[-1].number, payload, len(part) == len(found))
        return self._batches[place]

    def _encoded(self, one: LoggedEvent) -> bytes:
        if one.number not in self._written:
            self._written[one.number] = _encoded_event(self._event_log.epoch, one.number, "request", one.payload)
        return self._written[one.number]


def _encoded_event(epoch: str, number: int, event: str, payload: str) -> bytes:
    """Return one event as a stream sends it."""
    return f"id: {epoch}-{number}\r\nevent: {event}\r\ndata: {payload}\r\n\r\n".encode()


_RECHECK = 30
_BATCH_DELAY = 0.05
_RETRY = 1.0  # until a store that did not answer is looked at again


@dataclass(eq=False)
class Listener:
    """One stream, which waits or sends.

    Attributes:
        who: Who reads it.
        is_authorized: Whether they still may; reads the store.
        seen: Number of the last event that it dealt with.
        wakeup: Wakes it.
        payload: What it sends next; None is the end.
        look: The number of the last look at the log that was for it too.
    """

    who: Principal
    is_authorized: Callable[[], bool]
    seen: int
    wakeup: asyncio.Event
    payload: bytes | None = None
    look: int = -1

    @property
    def credential(self) -> tuple[str | None, int]:
        """By what the reader was let in; streams of one token, or of one session, are shut out together."""
        return self.who.token_id, id(self.who.session)


class Broadcaster:
    """The streams of one event loop.

    Everything here is done in that loop, apart from `wake`, which any thread calls, and `_look`, which has its own.
    """

    def __init__(self, event_log: EventLog, loop: asyncio.AbstractEventLoop) -> None:
        self._event_log, self._loop = event_log, loop
        self._open, self._look_number = 0, 0
        self._waiting: dict[Listener, None] = {}
        self._wakeup = Wakeup(loop)
        self._task: asyncio.Task[None] | None = None
        self.wake = self._wakeup.set  # called after a change, by any thread

    @property
    def is_idle(self) -> bool:
        """Whether no stream is open any more."""
        return self._open == 0

    @contextmanager
    def open(self) -> Generator[None]:
        """Look after one stream more while the block runs."""
        self._open += 1
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        try:
            yield
        finally:
            self._open -= 1
            if self.is_idle:
                self._task.cancel()
                self._task = None

    async def next_payload(self, one: Listener) -> bytes | None:
        """Wait for what this stream sends next; None where its reader is shut out, or whoever has its event set it."""
        if one.look != self._look_number:
            self._wakeup.set_here()  # it has just begun, or a look went by while it sent
        self._waiting[one] = None
        try:
            await one.wakeup.wait()
        finally:
            self._waiting.pop(one, None)
        one.wakeup.clear()
        payload, one.payload = one.payload, None  # the stream's alone from now on
        return payload

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait(_RECHECK)
            await asyncio.sleep(_BATCH_DELAY)  # a burst is one look
            self._wakeup.clear()
            self._look_number += 1
            asked = list(self._waiting)
            for one in asked:
                one.look = self._look_number
            if asked:
                await self._deliver_all(asked)

    async def _deliver_all(self, asked: Sequence[Listener]) -> None:
        found: Sequence[Batch | None]
        try:
            found, fault = await run_in_threadpool(self._look, asked)
        except Exception:  # noqa: BLE001  one line for all: streams that end are taken up again, and silence is not noticed
            _log.exception("streams of events could not be sent what happened, and end")
            found, fault = [None] * len(asked), None
        for one, batch in zip(asked, found, strict=True):
            if one in self._waiting:  # and has not gone meanwhile
                self._deliver(one, batch)
        if fault is not None:
            _log.warning("streams of events could not be sent what happened (%s); it is tried again", fault)
            self._wakeup.set_later(_RETRY)

    def _deliver(self, one: Listener, batch: Batch | None) -> None:
        if batch is not None:
            one.seen = batch.number
            if not batch.is_all:
                one.look = -1  # when it comes back, the rest is looked up at once
            if not batch.payload:
                if not batch.is_all:
                    self._wakeup.set_here()
                return
        del self._waiting[one]  # now and not when it wakes: what it was handed must not be replaced
        one.payload = None if batch is None else batch.payload
        one.wakeup.set()

    def _look(self, asked: Sequence[Listener]) -> tuple[Sequence[Batch | None], errors.StoreError | None]:
        """Return what to hand to each, None to who may hear no more, and why the store did not answer."""
        batches = Batches(self._event_log)
        for seen in {one.seen for one in asked}:
            batches.look(seen)
        # After the look: what happened once somebody was shut out is never sent to them.
        allowed = {credential: _is_open(one) for credential, one in {one.credential: one for one in asked}.items()}

        def handed(one: Listener) -> Batch | None:
            is_open = allowed[one.credential]
            if isinstance(is_open, errors.StoreError):
                return Batch(one.seen, b"")  # nothing, while nobody can say whether they may hear it
            return batches.of(one.seen, one.who) if is_open else None

        faults = (payload for payload in allowed.values() if isinstance(payload, errors.StoreError))
        return [handed(one) for one in asked], next(faults, batches.fault)


def _is_open(one: Listener) -> bool | errors.StoreError:
    try:
        return one.is_authorized()
    except errors.StoreError as fault:
        return fault


class Broadcasters(PerLoop[Broadcaster]):
    """The broadcasters of one server, one for each event loop."""

    def __init__(self, event_log: EventLog) -> None:
        super().__init__(partial(Broadcaster, event_log))


_MEDIA_TYPE = "text/event-stream"
router = Router()


class _Stream:
    """The events of one client."""

    def __init__(self, context: Context, last: str | None) -> None:
        self._context = context
        self._event_log: EventLog = context.http.app.state.event_log
        self._broadcasters: Broadcasters = context.http.app.state.broadcasters
        self._last = last
        self._wakeup = asyncio.Event()
        self.over = Shutdown(self._wakeup)

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield what happens, many events in one batch: many clients that hear of many things are much to send."""
        broadcaster = self._broadcasters.here()
        with broadcaster.open():
            end = await run_in_threadpool(self._event_log.listen, broadcaster.wake)
            try:
                seen = self._last_seen()
                if seen is None:
                    seen = self._event_log.number
                    yield _encoded_event(self._event_log.epoch, seen, "open" if self._last is None else "reset", "{}")
                is_authorized = partial(is_still_good, self._context.http, self._context.principal)
                listener = Listener(self._context.principal, is_authorized, seen, self._wakeup)
                while (payload := await broadcaster.next_payload(listener)) is not None and not self.over.is_set:
                    yield payload
            finally:
                # In a thread, and not waited for: a look that is under way may take as long as the store does.
                asyncio.get_running_loop().run_in_executor(None, end)

    def _last_seen(self) -> int | None:
        """Return the number of the event that the client saw last; None where it has none of this server's epoch."""
        epoch, _, number = (self._last or "").partition("-")
        is_ours = epoch == self._event_log.epoch and number.isascii() and number.isdigit() and len(number) < 18
        return int(number) if is_ours else None


@router.get(
    "/v1/events", "What happens to requests, as server-sent events", media_type=_MEDIA_TYPE,
    reads={"Last-Event-ID": "Id of the last event seen; what tracked is sent."},
)  # fmt: skip
async def events(context: Context, query: EventsQuery) -> Response:
    if context.http.method == "HEAD":
        return Response(media_type=_MEDIA_TYPE)
    last = context.http.headers.get("last-event-id") or query.after
    stream = _Stream(context, last)
    return event_stream(stream.events(), stream.over)
