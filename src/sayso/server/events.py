"""Live updates of open pages: how many requests wait, how many are new, and which rows somebody has decided.

A stream sends small parts of a page, which `static/live.js` puts in their places; no row moves. It carries nothing that
a reload would not show, so a stream that breaks off loses nothing. A browser has one stream for all of its tabs, and a
change costs one look at the store, however many browsers are open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import anyio
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso import clock, errors
from sayso.model.request import State
from sayso.server.auth.sessions import Session
from sayso.server.context import is_signed_in, path_to, session_of, settings_of
from sayso.server.pages.rendering import Row, fragment, pending_filter, row_of
from sayso.stores.base import Store, Unwatch

__all__ = ["LivePages", "PerLoop", "Shutdown", "Wakeup", "event_stream", "events"]

_log = logging.getLogger("sayso.server")

_MOST_ROWS, _MOST_NEW, _MOST_TABS = 200, 100, 50
_BATCH = 0.05
_PING, _CHECK = 20, 60
_STORE_CHECK = 1.0  # until the store hears again that somebody waits
_RETRY = 1.0  # until it is looked again after a fault
_GRACE = 0.2  # for streams to end by themselves, before they are cut off


class _Ending(Protocol):
    @property
    def is_idle(self) -> bool: ...


T = TypeVar("T", bound=_Ending)


class PerLoop(Generic[T]):
    """One object for each event loop, made when it is wanted and forgotten when it is idle or its loop has ended."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], T]) -> None:
        self._make, self._made = make, dict[asyncio.AbstractEventLoop, T]()

    def here(self) -> T:
        """Return that of the running loop."""
        loop = asyncio.get_running_loop()
        for other, made in list(self._made.items()):  # other loops do the same in their threads
            if made.is_idle or other.is_closed():
                self._made.pop(other, None)
        return self._made.setdefault(loop, self._make(loop))

    def all(self) -> list[T]:
        """Return those of all loops."""
        return list(self._made.values())


class Wakeup:
    """An event of one loop that any thread sets; of many changes at once one wakes the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._event, self._is_set = loop, asyncio.Event(), False

    def set(self) -> None:
        """Wake who waits; in any thread."""
        if self._is_set:
            return
        self._is_set = True
        with suppress(RuntimeError):  # the loop has ended, and with it every stream
            self._loop.call_soon_threadsafe(self._event.set)

    def set_here(self) -> None:
        """Wake who waits; in the loop."""
        self._event.set()

    def set_later(self, seconds: float) -> None:
        """Wake who waits after a while."""
        self._loop.call_later(seconds, self._event.set)

    def clear(self) -> None:
        """Wait anew; before a look, so that what changes while it looks is looked for again."""
        self._event.clear()
        self._is_set = False

    async def wait(self, seconds: float) -> bool:
        """Wait for it, and say whether it came in time."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        return self._event.is_set()


class Shutdown:
    """Set when the server ends; sets `news` too, so that a stream waits for one event and not for two."""

    def __init__(self, news: asyncio.Event) -> None:
        self._news = news
        self.is_set = False

    def set(self) -> None:
        """Say that the server ends."""
        self.is_set = True
        self._news.set()


def event_stream(events: Any, shutdown: Shutdown, ping: Callable[[], ServerSentEvent] | None = None) -> Response:
    """Return a response that sends events until the server ends; `ping` is what it sends where nothing happens."""
    end: Any = shutdown  # of anyio's event nothing but `set` is asked
    return EventSourceResponse(
        events, ping=_PING, ping_message_factory=ping, shutdown_event=end, shutdown_grace_period=_GRACE
    )


def _ping() -> ServerSentEvent:
    """Return an event that scripts hear of, so that a page can tell silence from a quiet day."""
    return ServerSentEvent("", event="ping")


class _Counts(NamedTuple):
    """How many wait, and when the newest of them were asked."""

    pending: int
    asked: tuple[datetime, ...]


class _Hub:
    """What waits in a store, looked up once for all pages that are open in one event loop.

    Everything here is done in that loop, apart from `_notify`, which any thread calls, and `_look`, which has its own.

    Attributes:
        counts: What was found last; None before the first look.
        changed_rows: Rows of open pages that somebody has decided or claimed.
    """

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = store, loop
        self._listeners: set[asyncio.Event] = set()
        self._watched: Counter[str] = Counter()
        self._unwatch: dict[str, Unwatch] = {}
        self._changed: SimpleQueue[str] = SimpleQueue()
        self._wakeup = Wakeup(loop)
        self._task: asyncio.Task[None] | None = None
        self.counts: _Counts | None = None
        self.changed_rows: dict[str, Row] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no page is open any more."""
        return not self._listeners

    @contextmanager
    def listening(self, news: asyncio.Event, rows: Sequence[str]) -> Generator[None]:
        """Set `news` when something changed, and watch these rows, while the block runs."""
        self._listeners.add(news)
        for one in rows:
            self._watched[one] += 1
            if one not in self._unwatch:
                self._unwatch[one] = self._store.watch(one, partial(self._notify, one))
                self._notify(one)
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        try:
            yield
        finally:
            self._leave(news, rows)

    def _leave(self, news: asyncio.Event, rows: Sequence[str]) -> None:
        self._listeners.discard(news)
        self._watched.subtract(rows)
        for one in [one for one in set(rows) if self._watched[one] <= 0]:
            del self._watched[one]
            self._unwatch.pop(one)()
            self.changed_rows.pop(one, None)
        if self.is_idle and self._task is not None:
            self._task.cancel()
            self._task = None

    def wake(self) -> None:
        """Look again now, and tell every stream; in any thread."""
        self._wakeup.set()

    def _notify(self, request_id: str) -> None:
        self._changed.put(request_id)
        self._wakeup.set()

    async def _run(self) -> None:
        unwatch = self._store.watch_all(self._wakeup.set)
        try:
            while True:
                self._wakeup.clear()
                await self._refresh()
                ends = time.monotonic() + _CHECK
                while not await self._wakeup.wait(_STORE_CHECK) and time.monotonic() < ends:
                    # A store that nobody asks looks ever less often for what other processes did.
                    self._store.watch_all(self._wakeup.set)()
                await asyncio.sleep(_BATCH)  # a burst of changes is one event
        finally:
            unwatch()

    async def _refresh(self) -> None:
        changed = {self._changed.get_nowait() for _ in range(self._changed.qsize())}
        try:
            self.counts, rows = await run_in_threadpool(self._look, changed)
        except Exception as fault:  # noqa: BLE001  one look that fails must not be the last for every open page
            _log.warning("open pages could not be updated (%s); it is tried again", fault)
            for one in changed:
                self._changed.put(one)
            self._wakeup.set_later(_RETRY)
            return
        self.changed_rows |= {row.id: row for row in rows if row.id in self._watched}
        for news in self._listeners:
            news.set()

    def _look(self, changed: set[str]) -> tuple[_Counts, list[Row]]:
        wanted = pending_filter()
        page = self._store.list(wanted, limit=_MOST_NEW, newest=True)
        counts = _Counts(self._store.count(wanted), tuple(one.created_at for one in page.requests))
        rows: list[Row] = []
        for request_id in changed:
            with suppress(errors.RequestNotFoundError):
                row = row_of(self._store.get(request_id), clock.now())
                rows += [row] if row.state != str(State.PENDING) or row.claimed else []
        return counts, rows


class LivePages(PerLoop[_Hub]):
    """The updates of all open pages: one look at the store for those of one event loop."""

    def __init__(self, store: Store) -> None:
        super().__init__(partial(_Hub, store))

    def wake(self) -> None:
        """Let every stream look up again whether it still has a session; in any thread."""
        for hub in self.all():
            hub.wake()


class _Stream:
    """The events of a browser's open pages: when each was made, and which rows somebody may decide elsewhere."""

    def __init__(self, http: Http, session: Session, since: Mapping[str, datetime], rows: list[str]) -> None:
        self._http, self._session, self._since, self._rows = http, session, since, rows
        self._news = asyncio.Event()
        self.end = Shutdown(self._news)

    async def events(self) -> AsyncIterator[dict[str, str]]:
        """Yield parts of the page as they change."""
        live_pages: LivePages = self._http.app.state.live_pages
        hub, last, checked = live_pages.here(), "", time.monotonic()
        sessions = settings_of(self._http).sessions
        with hub.listening(self._news, self._rows):
            while True:
                self._news.clear()
                part = last if hub.counts is None else self._part_of_page(hub.counts, hub.changed_rows)
                if part != last:
                    last = part
                    yield {"data": part}
                with anyio.move_on_after(_CHECK):
                    await self._news.wait()
                if self.end.is_set:
                    return
                has_ended = sessions.has_ended_here(self._session)
                if time.monotonic() - checked >= _CHECK:  # and not at each change: that costs one look for all pages
                    checked = time.monotonic()
                    has_ended |= not await run_in_threadpool(self._is_signed_in)
                if has_ended:
                    yield {"event": "signed-out", "data": ""}
                    return

    def _is_signed_in(self) -> bool:
        with suppress(errors.StoreError):  # where the store does not answer, the page connects again
            return is_signed_in(self._http, self._session)
        return False

    def _part_of_page(self, counts: _Counts, changed_rows: dict[str, Row]) -> str:
        news = tuple((text, sum(at > since for at in counts.asked)) for text, since in self._since.items())
        rows = tuple(changed_rows[one] for one in self._rows if one in changed_rows)
        return _rendered(counts.pending, news, rows, path_to(self._http))


@lru_cache(maxsize=256)
def _rendered(pending: int, news: tuple[tuple[str, int], ...], rows: tuple[Row, ...], inbox: str) -> str:
    """Return the part of a page that says so; kept, because many pages are told the same."""
    return fragment("event.html", pending=pending, news=news, rows=rows, inbox=inbox)


async def events(http: Http) -> Response:
    """Stream what changes for the open pages of a browser."""
    session = await run_in_threadpool(session_of, http)
    if session is None:
        raise HTTPException(401)
    made, rows = _listed(http, "since")[-_MOST_TABS:], _listed(http, "rows")[-_MOST_ROWS:]
    stream = _Stream(http, session, {text: _instant(text) for text in made}, rows)
    return event_stream(stream.events(), stream.end, _ping)


def _listed(http: Http, name: str) -> list[str]:
    return list(dict.fromkeys(one for one in http.query_params.get(name, "").split(",") if one))


def _instant(text: str) -> datetime:
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(400, "since is no instant") from None
    if made.tzinfo is None:
        raise HTTPException(400, "since has no time zone")
    return made
