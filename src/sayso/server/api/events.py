"""What happens to requests: the log of events, and the stream `/v1/events` by which many clients hear of them.

Every event is a row of the journal. The log is a bounded ring: an event gets a number when the server notices it, and a
client that comes back with the last number it saw gets what followed, or `reset` where that is gone. One broadcaster
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
from typing import Any, NamedTuple

import anyio
from sse_starlette.sse import EventSourceResponse
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
from sayso.server.events import Shutdown
from sayso.stores.base import Filter, Store, Unwatch

__all__ = ["Batch", "Batches", "Broadcaster", "Broadcasters", "EventLog", "Listener", "LoggedEvent", "router"]

_log = logging.getLogger("sayso.server")

KEPT = 10_000
FOLLOWED = 5_000
_PAGE = 500
_LIVE = Filter(states=LIVE)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event.

    Attributes:
        number: Its place in this server's life.
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
    def told(self) -> str:
        """What a stream says of it, as JSON: no argument, and no word of a person."""
        entry = self.entry
        said = {
            "event": entry.event, "request": entry.request_id, "run": entry.run_id, "state": str(self.state),
            "by": entry.by, "channel": entry.channel, "at": written(instant(entry.at)),
        }  # fmt: skip
        return json.dumps(said)


@dataclass(slots=True)
class _Followed:
    """A request that may still change: up to which row it was told, and how to stop watching it."""

    seq: int
    unwatch: Unwatch


class EventLog:
    """The ring of one server.

    Attributes:
        life: Says in the ids of events of which server's life they are.
    """

    def __init__(self, store: Store) -> None:
        self.life = new_token()[:8]
        self._store = store
        self._lock = threading.Lock()  # of many streams that wake together one looks, and the others find it done
        self._kept: deque[LoggedEvent] = deque(maxlen=KEPT)
        self._number = 0
        self._followed: dict[str, _Followed] | None = None  # None until somebody listens, and while there are too many
        self._newest: str | None = None
        self._rung: deque[str] = deque()  # ids of requests that changed; added to from any thread
        self._note = self._rung.append
        self._listeners: dict[object, Callable[[], None]] = {}
        self._unwatch: Unwatch | None = None
        self._has_rung = threading.Event()  # since the last look

    # -- listening ---------------------------------------------------------------------------------------------

    def listen(self, wake: Callable[[], None]) -> Unwatch:
        """Call `wake`, from some thread, when something may have happened; reads the store."""
        mine = object()
        with self._lock:
            if self._unwatch is None:
                self._unwatch = self._store.watch_all(self._ring)
                try:
                    self._go_on()
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

    def _ring(self) -> None:
        self._has_rung.set()  # before they wake, so that the first of them looks
        for wake in set(self._listeners.values()):  # many streams are woken by one
            wake()

    def _watch(self, request_id: str) -> Unwatch:
        return self._store.watch(request_id, partial(self._note, request_id))  # smaller than a function for each

    def _go_on(self) -> None:
        self._has_rung.set()
        if self._followed is None:
            self._begin()
            return
        for request_id, followed in self._followed.items():  # what happened while nobody listened is caught up with
            followed.unwatch = self._watch(request_id)
            self._rung.append(request_id)

    def _pause(self) -> None:
        for followed in (self._followed or {}).values():
            followed.unwatch()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def _begin(self) -> None:
        """Follow what is open now, if that is not too much."""
        self._followed = None
        newest = self._store.list(Filter(), limit=1, newest=True).requests
        self._newest = newest[0].id if newest else None
        if self._store.count(_LIVE) > FOLLOWED:
            return
        found = dict[str, _Followed]()
        try:
            self._follow_open(found)
        except BaseException:
            for followed in found.values():
                followed.unwatch()
            raise
        self._followed = found  # all of them or none

    def _follow_open(self, found: dict[str, _Followed]) -> None:
        cursor = None
        while True:
            page = self._store.list(_LIVE, cursor=cursor, limit=_PAGE)
            for request in page.requests:
                followed = found[request.id] = _Followed(0, self._watch(request.id))
                followed.seq = max((row.seq for row in self._news(request.id, 0)[1]), default=0)
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
            if self._has_rung.is_set():
                self._has_rung.clear()  # before the look: what rings meanwhile is looked for again
                try:
                    self._look()
                except BaseException:
                    self._has_rung.set()  # the next one who asks looks again
                    raise
            if not self._number - len(self._kept) <= number <= self._number:
                return None
            newest = list(islice(reversed(self._kept), self._number - number))  # the numbers have no gap
            return newest[::-1]

    def _look(self) -> None:
        if self._followed is None:
            self._lose()
            return
        rung = {self._rung.popleft() for _ in range(len(self._rung))}
        try:
            fresh = self._new(self._followed)
            wanted = {**dict.fromkeys(rung & self._followed.keys()), **fresh}
            found = [news for one in wanted if (news := self._legible(one, self._followed[one].seq)) is not None]
        except BaseException:
            self._rung.extend(rung)
            raise
        for request_id in fresh:
            self._newest = request_id
        for request, row in sorted(
            ((request, row) for request, rows in found for row in rows),
            key=lambda one: (one[1].at, one[1].run_id, one[1].seq),
        ):
            self._followed[request.id].seq = row.seq
            self._number += 1
            self._kept.append(LoggedEvent(self._number, request.requester, request.state, row))
        for request, _ in found:
            if request.is_final:
                self._followed.pop(request.id).unwatch()
        if len(self._followed) > FOLLOWED:
            self._lose()

    def _new(self, followed: dict[str, _Followed]) -> dict[str, None]:
        """Return the ids of requests that were asked since, oldest first, and follow them."""
        found: list[str] = []
        cursor, limit = None, 20
        while True:
            page = self._store.list(Filter(), cursor=cursor, limit=limit, newest=True)
            for request in page.requests:
                if request.id == self._newest:
                    return dict.fromkeys(reversed(found))
                if request.id not in followed:
                    followed[request.id] = _Followed(0, self._watch(request.id))
                found.append(request.id)
            cursor, limit = page.cursor, _PAGE
            if cursor is None:
                return dict.fromkeys(reversed(found))

    def _legible(self, request_id: str, seq: int) -> tuple[Request, list[Entry]] | None:
        try:
            return self._news(request_id, seq)
        except errors.StoreCorruptError as fault:  # one damaged row must not keep everybody from hearing of the others
            _log.warning("streams of events are not told of %s, which cannot be read: %s", request_id, fault)
            return None

    def _news(self, request_id: str, seq: int) -> tuple[Request, list[Entry]]:
        # The request first: what happens to it after that rings once more, and is told then.
        request = self._store.get(request_id)
        after = (request.run_id, seq)
        return request, list(self._store.journal(run_id=request.run_id, request_id=request_id, after=after))

    def _lose(self) -> None:
        """Let everybody look anew: more requests are open, or were, than can be followed."""
        self._number += 1
        self._kept.clear()
        for followed in (self._followed or {}).values():
            followed.unwatch()
        self._begin()


_MOST = 500  # events in one batch, which lies in memory for as long as its reader does not read


class Batch(NamedTuple):
    """What one stream is handed.

    Attributes:
        number: Of the last event that it deals with.
        said: What to send; empty where none of it is for this reader.
        is_all: Whether nothing is left behind it.
    """

    number: int
    said: bytes
    is_all: bool = True


class Batches:
    """What one look at the ring found.

    Attributes:
        fault: Why the store did not answer, if it did not; nothing is lost by that.
    """

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._found: dict[int, list[LoggedEvent] | int] = {}
        self._written: dict[int, bytes] = {}
        self._pieces: dict[tuple[int, Identity | None], Batch] = {}
        self.fault: errors.StoreError | None = None

    def look(self, seen: int) -> None:
        """Look up what followed an event; reads the store."""
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
            return Batch(found, encoded_event(self._event_log.life, found, "reset", "{}"))
        if not found:
            return Batch(seen, b"")
        requester = who.requester if who.kind == "ask" else None
        place = seen, requester
        if place not in self._pieces:
            part = found[:_MOST]
            said = b"".join(self._said(one) for one in part if requester is None or one.is_of(requester))
            self._pieces[place] = Batch(part[-1].number, said, len(part) == len(found))
        return self._pieces[place]

    def _said(self, one: LoggedEvent) -> bytes:
        if one.number not in self._written:
            self._written[one.number] = encoded_event(self._event_log.life, one.number, "request", one.told)
        return self._written[one.number]


def encoded_event(life: str, number: int, event: str, said: str) -> bytes:
    """Return one event as a stream says it."""
    return f"id: {life}-{number}\r\nevent: {event}\r\ndata: {said}\r\n\r\n".encode()


_CHECK = 30
_FRESH = 0.05
_AGAIN = 1.0  # until a store that did not answer is looked at again


@dataclass(eq=False)
class Listener:
    """One stream, which waits or sends.

    Attributes:
        who: Who reads it.
        is_good: Says whether they still may; reads the store.
        seen: Number of the last event that it dealt with.
        bell: Wakes it.
        found: What it is handed; None is the end.
        turn: The last look that was for it too.
    """

    who: Principal
    is_good: Callable[[], bool]
    seen: int
    bell: asyncio.Event
    found: bytes | None = None
    turn: int = -1

    @property
    def door(self) -> tuple[str | None, int]:
        """By what the reader was let in; streams of one token, or of one session, are shut out together."""
        return self.who.token_id, id(self.who.session)


class Broadcaster:
    """The streams of one event loop.

    Everything here is done in that loop, apart from `wake`, which any thread calls, and `_look`, which has its own.
    """

    def __init__(self, event_log: EventLog, loop: asyncio.AbstractEventLoop) -> None:
        self._event_log, self._loop = event_log, loop
        self._open = 0
        self._waiting: dict[Listener, None] = {}
        self._rung, self._is_rung = asyncio.Event(), False
        self._turn = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_left(self) -> bool:
        """Whether no stream is open any more."""
        return self._open == 0

    def wake(self) -> None:
        """Have it looked again; called after a change, by any thread."""
        if self._is_rung:
            return  # of many changes at once one wakes the loop, and the look that follows sees them all
        self._is_rung = True
        try:
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:
            return  # the loop has ended, and with it every stream

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
            if self.is_left:
                self._end()

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def heard(self, one: Listener) -> bytes | None:
        """Wait for what this stream sends next; None where its reader is shut out, or who has its bell rang it."""
        if one.turn != self._turn:
            self._rung.set()  # it has just begun, or a look went by while it sent
        self._waiting[one] = None
        try:
            await one.bell.wait()
        finally:
            self._waiting.pop(one, None)
        one.bell.clear()
        said, one.found = one.found, None  # the stream's alone from now on
        return said

    async def _run(self) -> None:
        while True:
            with anyio.move_on_after(_CHECK):
                await self._rung.wait()
            await asyncio.sleep(_FRESH)  # a burst is one look
            # Before the look: what happens while it looks is looked for again.
            self._rung.clear()
            self._is_rung = False
            self._turn += 1
            asked = list(self._waiting)
            for one in asked:
                one.turn = self._turn
            if asked:
                await self._serve(asked)

    async def _serve(self, asked: Sequence[Listener]) -> None:
        found: Sequence[Batch | None]
        try:
            found, fault = await run_in_threadpool(self._look, asked)
        except Exception:  # noqa: BLE001  one line for all: streams that end are taken up again, and silence is not noticed
            _log.exception("streams of events could not be told what happened, and end")
            found, fault = [None] * len(asked), None
        for one, batch in zip(asked, found, strict=True):
            if one in self._waiting:  # and has not gone meanwhile
                self._hand(one, batch)
        if fault is not None:
            _log.warning("streams of events could not be told what happened (%s); it is tried again", fault)
            self._loop.call_later(_AGAIN, self._rung.set)

    def _hand(self, one: Listener, batch: Batch | None) -> None:
        if batch is not None:
            one.seen = batch.number
            if not batch.is_all:
                one.turn = -1  # when it comes back, the rest is looked up at once
            if not batch.said:
                if not batch.is_all:
                    self._rung.set()
                return
        del self._waiting[one]  # now and not when it wakes: what it was handed must not be replaced
        one.found = None if batch is None else batch.said
        one.bell.set()

    def _look(self, asked: Sequence[Listener]) -> tuple[Sequence[Batch | None], errors.StoreError | None]:
        """Return what to hand to each, None to who may hear no more, and why the store did not answer."""
        batches = Batches(self._event_log)
        for seen in {one.seen for one in asked}:
            batches.look(seen)
        # After the look: what happened once somebody was shut out is never sent to them.
        doors = {door: _is_open(one) for door, one in {one.door: one for one in asked}.items()}

        def handed(one: Listener) -> Batch | None:
            is_open = doors[one.door]
            if isinstance(is_open, errors.StoreError):
                return Batch(one.seen, b"")  # nothing, while nobody can say whether they may hear it
            return batches.of(one.seen, one.who) if is_open else None

        faults = (said for said in doors.values() if isinstance(said, errors.StoreError))
        return [handed(one) for one in asked], next(faults, batches.fault)


def _is_open(one: Listener) -> bool | errors.StoreError:
    try:
        return one.is_good()
    except errors.StoreError as fault:
        return fault


class Broadcasters:
    """The broadcasters of one server, one for each event loop."""

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._broadcasters: dict[asyncio.AbstractEventLoop, Broadcaster] = {}

    def here(self) -> Broadcaster:
        """Return the broadcaster of the running loop."""
        loop = asyncio.get_running_loop()
        for other, broadcaster in list(self._broadcasters.items()):  # other loops do the same in their threads
            if broadcaster.is_left or other.is_closed():
                self._broadcasters.pop(other, None)
        return self._broadcasters.setdefault(loop, Broadcaster(self._event_log, loop))


_PING = 20
_GRACE = 0.2  # for streams to end by themselves, before they are cut off
_MEDIA_TYPE = "text/event-stream"
router = Router()


class _Stream:
    """The events of one client.

    Attributes:
        over: Set when the server ends.

    Args:
        last: Id of the last event that it saw; None for one that begins.
    """

    def __init__(self, context: Context, last: str | None) -> None:
        self._context = context
        self._event_log: EventLog = context.http.app.state.event_log
        self._broadcasters: Broadcasters = context.http.app.state.broadcasters
        self._last = last
        self._bell = asyncio.Event()
        self.over = Shutdown(self._bell)

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield what happens, many events in one batch: many clients that hear of many things are much to send."""
        broadcaster = self._broadcasters.here()
        with broadcaster.open():
            end = await run_in_threadpool(self._event_log.listen, broadcaster.wake)
            try:
                seen = self._begin()
                if seen is None:
                    seen = self._event_log.number
                    yield encoded_event(self._event_log.life, seen, "open" if self._last is None else "reset", "{}")
                is_good = partial(is_still_good, self._context.http, self._context.principal)
                listener = Listener(self._context.principal, is_good, seen, self._bell)
                while (said := await broadcaster.heard(listener)) is not None and not self.over.is_set:
                    yield said
            finally:
                # In a thread, and not waited for: a look that is under way may take as long as the store does.
                asyncio.get_running_loop().run_in_executor(None, end)

    def _begin(self) -> int | None:
        """Return the number of the event that the client saw last; None where it has none of this server's life."""
        life, _, number = (self._last or "").partition("-")
        is_ours = life == self._event_log.life and number.isascii() and number.isdigit() and len(number) < 18
        return int(number) if is_ours else None


@router.get(
    "/v1/events", "What happens to requests, as server-sent events", media_type=_MEDIA_TYPE,
    reads={"Last-Event-ID": "Id of the last event seen; what followed is sent."},
)  # fmt: skip
async def events(context: Context, query: EventsQuery) -> Response:
    if context.http.method == "HEAD":
        return Response(media_type=_MEDIA_TYPE)
    last = context.http.headers.get("last-event-id") or query.after
    stream = _Stream(context, last)
    over: Any = stream.over  # of anyio's event nothing but `set` is asked
    return EventSourceResponse(stream.events(), ping=_PING, shutdown_event=over, shutdown_grace_period=_GRACE)
