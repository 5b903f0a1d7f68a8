"""Live updates of open pages: how many requests wait, how many are new, and which rows somebody has decided.

A stream sends small parts of a page, which htmx puts in their places; no row moves. It carries nothing that a reload
would not show, so a stream that breaks off loses nothing. A change costs one look at the store, however many pages are
open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import anyio
from sse_starlette.sse import AppStatus, EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso import clock, errors
from sayso.model.request import State
from sayso.server.auth.sessions import Session
from sayso.server.context import Settings, is_signed_in, path_to, session_of
from sayso.server.pages.rendering import Row, fragment, pending_filter, row_of
from sayso.stores.base import Store, Unwatch

__all__ = ["LivePages", "Shutdown", "events"]

_log = logging.getLogger("sayso.server")

_MOST_ROWS, _MOST_NEW = 50, 100
_BATCH = 0.05
_PING, _CHECK = 20, 60
_SHUTDOWN_CHECK = 0.05  # how often it is looked whether the server ends; sse-starlette itself looks twice a second
_STORE_CHECK_EVERY = 20  # of these, until the store hears again that somebody waits
_RETRY = 1.0  # until it is looked again after a fault
_GRACE = 0.2  # for streams to end by themselves, before they are cut off


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
        is_over: The server ends, and every page is to be closed.
    """

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = store, loop
        self._listeners: set[asyncio.Event] = set()
        self._watched: Counter[str] = Counter()
        self._unwatch: dict[str, Unwatch] = {}
        self._changed: SimpleQueue[str] = SimpleQueue()
        self._notified, self._is_notified = asyncio.Event(), False
        self._tasks: list[asyncio.Task[None]] = []
        self.is_over = False
        self.counts: _Counts | None = None
        self.changed_rows: dict[str, Row] = {}

    @property
    def is_left(self) -> bool:
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
        if not self._tasks:
            self._tasks = [self._loop.create_task(self._run()), self._loop.create_task(self._watch_shutdown())]
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
        if self.is_left:
            for task in self._tasks:
                task.cancel()
            self._tasks = []

    def _notify(self, request_id: str | None = None) -> None:
        """Have it looked again; called after a change, by any thread."""
        if request_id is not None:
            self._changed.put(request_id)
        if self._is_notified:
            return  # of many changes at once one wakes the loop, and the look that follows sees them all
        self._is_notified = True
        try:
            self._loop.call_soon_threadsafe(self._notified.set)
        except RuntimeError:
            return  # the loop has ended, and with it every page

    async def _run(self) -> None:
        unwatch = self._store.watch_all(self._notify)
        try:
            while True:
                # Before the look: what changes while it looks is looked for again.
                self._notified.clear()
                self._is_notified = False
                await self._refresh()
                with anyio.move_on_after(_CHECK):
                    await self._notified.wait()
                await asyncio.sleep(_BATCH)  # a burst of changes is one event
        finally:
            unwatch()

    async def _watch_shutdown(self) -> None:
        ticks = 0
        while not AppStatus.should_exit:  # a flag is all that there is
            await asyncio.sleep(_SHUTDOWN_CHECK)
            ticks += 1
            if ticks % _STORE_CHECK_EVERY == 0:
                # A store that nobody asks looks ever less often for what other processes did; somebody looks here.
                self._store.watch_all(self._notify)()
        self.is_over = True
        for news in self._listeners:
            news.set()

    async def _refresh(self) -> None:
        changed = {self._changed.get_nowait() for _ in range(self._changed.qsize())}
        try:
            self.counts, rows = await run_in_threadpool(self._look, changed)
        except Exception as fault:  # noqa: BLE001  one look that fails must not be the last for every open page
            _log.warning("open pages could not be updated (%s); it is tried again", fault)
            for one in changed:
                self._changed.put(one)
            self._loop.call_later(_RETRY, self._notified.set)
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
            try:
                row = row_of(self._store.get(request_id), clock.now())
            except errors.RequestNotFoundError:
                continue
            if row.state != str(State.PENDING) or row.claimed:
                rows.append(row)
        return counts, rows


class LivePages:
    """The updates of all open pages: one look at the store for those of one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hubs: dict[asyncio.AbstractEventLoop, _Hub] = {}

    def hub(self) -> _Hub:
        """Return the hub of the running loop."""
        loop = asyncio.get_running_loop()
        for other in [other for other, hub in self._hubs.items() if hub.is_left or other.is_closed()]:
            del self._hubs[other]
        return self._hubs.setdefault(loop, _Hub(self._store, loop))


class Shutdown:
    """Set when the server ends; sets `news` too, so that a stream waits for one event and not for two."""

    def __init__(self, news: asyncio.Event) -> None:
        self._news = news
        self.is_set = False

    def set(self) -> None:
        """Say that the server ends."""
        self.is_set = True
        self._news.set()


class _Stream:
    """The events of one open page.

    Attributes:
        end: Set when the server ends.

    Args:
        since: When the page was made.
        rows: The requests on it that somebody may decide elsewhere.
    """

    def __init__(self, http: Http, session: Session, since: datetime | None, rows: list[str]) -> None:
        self._http, self._session = http, session
        self._settings: Settings = http.app.state.settings
        self._live_pages: LivePages = http.app.state.live_pages
        self._inbox = path_to(http)
        self._since, self._rows = since, rows
        self._news = asyncio.Event()
        self.end = Shutdown(self._news)

    async def events(self) -> AsyncIterator[dict[str, str]]:
        """Yield parts of the page as they change."""
        hub, last, checked = self._live_pages.hub(), "", time.monotonic()
        with hub.listening(self._news, self._rows):
            while True:
                self._news.clear()
                part = last if hub.counts is None else self._part_of_page(hub.counts, hub.changed_rows)
                if part != last:
                    last = part
                    yield {"data": part}
                with anyio.move_on_after(_CHECK):
                    await self._news.wait()
                if hub.is_over or self.end.is_set or self._settings.sessions.has_ended_here(self._session):
                    return
                if time.monotonic() - checked >= _CHECK:  # and not at each change: that costs one look for all pages
                    checked = time.monotonic()
                    if not await run_in_threadpool(self._is_signed_in):
                        return

    def _is_signed_in(self) -> bool:
        with suppress(errors.StoreError):  # where the store does not answer, the page connects again
            return is_signed_in(self._http, self._session)
        return False

    def _part_of_page(self, counts: _Counts, changed_rows: dict[str, Row]) -> str:
        since = self._since
        new = 0 if since is None else sum(at > since for at in counts.asked)
        return _rendered(
            counts.pending, new, tuple(changed_rows[one] for one in self._rows if one in changed_rows), self._inbox
        )


@lru_cache(maxsize=256)
def _rendered(pending: int, new: int, rows: tuple[Row, ...], inbox: str) -> str:
    """Return the part of a page that says so; kept, because many pages are told the same."""
    return fragment("event.html", pending=pending, new=new, rows=rows, inbox=inbox)


async def events(http: Http) -> Response:
    """Stream what changes for an open page."""
    session = await run_in_threadpool(session_of, http)
    if session is None:
        raise HTTPException(401)
    since = http.query_params.get("since")
    rows = [one for one in http.query_params.get("rows", "").split(",") if one][:_MOST_ROWS]
    try:
        made = None if since is None else datetime.fromisoformat(since)
    except ValueError:
        raise HTTPException(400, "since is no instant") from None
    if made is not None and made.tzinfo is None:
        raise HTTPException(400, "since has no time zone")
    stream = _Stream(http, session, made, list(dict.fromkeys(rows)))
    end: Any = stream.end  # of anyio's event nothing but `set` is asked
    return EventSourceResponse(stream.events(), ping=_PING, shutdown_event=end, shutdown_grace_period=_GRACE)
