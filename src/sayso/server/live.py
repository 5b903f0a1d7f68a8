"""The live updates of open pages, and what all streams of server-sent events share.

A page learns how many requests wait, how many are new, and which rows somebody has decided. A stream carries HTML
fragments that `static/live.js` puts in place; no row moves. A reload shows the same content, so a stream that breaks
loses nothing. All tabs of a browser share one stream, and a change costs one read of the store, however many browsers
are open. The streams of programs are in `sayso.server.api.events`, their long polls in `sayso.server.api.long_poll`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache, partial
from math import inf
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import anyio
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso import clock, errors
from sayso.model.request import Request, State
from sayso.model.reviewer import Delegation, Identity
from sayso.model.text import Language, speaking, spoken
from sayso.server.auth.sessions import Session
from sayso.server.context import is_signed_in, path_to, pending_filter, settings_of, signed_in
from sayso.server.pages.rendering import fragment, list_row
from sayso.stores.base import Store, Unwatch
from sayso.stores.review import requests_with

_log = logging.getLogger("sayso.server")

_MOST_ROWS, _MOST_NEW, _MOST_TABS = 200, 100, 50
_BATCH, _EACH, _MOST = 0.02, 0.001, 0.05  # minimum seconds between two refreshes; more for each stream, and the most
_PING, _CHECK = 20, 60
_RECHECK = 30.0  # seconds until a refresh without any change, since somebody may have lost access
_STORE_CHECK = 1.0  # seconds between two signals to the store that somebody still waits
_RETRY = 1.0  # seconds until a refresh after a failed one
_GRACE = 0.2  # seconds for streams to end by themselves before they are cut off


class Hub:
    """The streams of one event loop. One task reads the store for all of them.

    Every method must be called in that loop, except `wake`, which is safe in any thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._changed, self._is_woken = loop, asyncio.Event(), False
        self._open = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no stream is open."""
        return self._open == 0

    @property
    def pause(self) -> float:
        """The minimum seconds between two refreshes; a refresh costs more the more streams it goes to."""
        return min(_MOST, _BATCH + _EACH * self._open)

    def wake(self) -> None:
        """Schedule a refresh, from any thread. Many changes at once wake the loop only once."""
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed, and so is every stream
                self._loop.call_soon_threadsafe(self._changed.set)

    @contextmanager
    def open(self) -> Generator[None]:
        """Count one more open stream while the block runs; the first starts the task, the last cancels it."""
        self._open += 1
        self._changed.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        try:
            yield
        finally:
            self._open -= 1
            if self.is_idle:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        looked = -inf
        while True:
            await self._wait()
            # The first change is refreshed at once; the changes of the next 20 to 50 ms share one refresh.
            await asyncio.sleep(max(0.0, looked + self.pause - self._loop.time()))
            self._changed.clear()  # before the read, so that a change during it causes another refresh
            self._is_woken = False
            fault = await self._refresh()
            looked = self._loop.time()
            if fault is not None:
                _log.warning("could not send events to the open pages (%s); retrying", fault)
                self._loop.call_later(_RETRY, self._changed.set)

    async def _wait(self) -> None:
        await self._changes_within(_RECHECK)

    async def _changes_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._changed.wait()
        return self._changed.is_set()

    async def _refresh(self) -> Exception | None:
        """Read the store in a thread and give each stream what to send. Return the error that prevented it, or None."""
        raise NotImplementedError


T = TypeVar("T", bound=Hub)


class PerLoop(Generic[T]):
    """One hub per event loop, created on demand and dropped when it is idle or its loop is closed."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], T]) -> None:
        self._make, self._made = make, dict[asyncio.AbstractEventLoop, T]()

    def here(self) -> T:
        """Return the hub of the running loop."""
        loop = asyncio.get_running_loop()
        for other, made in list(self._made.items()):  # a copy: loops of other threads change the dictionary
            if made.is_idle or other.is_closed():
                self._made.pop(other, None)
        return self._made.setdefault(loop, self._make(loop))

    def wake(self) -> None:
        """Schedule a refresh in every hub, from any thread."""
        for hub in list(self._made.values()):
            hub.wake()


class Stream:
    """The state of one client's stream. sse-starlette calls `set` on shutdown, as on an `anyio.Event`."""

    def __init__(self) -> None:
        self.news, self.is_over = asyncio.Event(), False

    def set(self) -> None:
        """End the stream."""
        self.is_over = True
        self.news.set()


def event_stream(
    events: AsyncIterator[Any], stream: Stream, ping: Callable[[], ServerSentEvent] | None = None
) -> Response:  # fmt: skip
    """Return a response that sends events until the server shuts down; `ping` makes the keep-alive event."""
    end: Any = stream  # sse-starlette calls only `set` of the event
    return EventSourceResponse(
        events, ping=_PING, ping_message_factory=ping, shutdown_event=end, shutdown_grace_period=_GRACE
    )


class _Counts(NamedTuple):
    """The number of pending requests.

    Attributes:
        asked: When each of the newest was asked, and who has approved it.
        aside: How many each person has snoozed, or approved although they need further people; not in their own number.
    """

    pending: int
    asked: tuple[tuple[datetime, frozenset[str]], ...]
    aside: Counter[str]


_Changed = Callable[[Language], str]


def _changed(request: Request, away: Sequence[Delegation]) -> _Changed:
    """Return what renders the new state of a request that somebody decided, claimed or voted on, once per language."""
    at = clock.now()

    @cache
    def rendered(language: Language) -> str:
        with speaking(language):
            return fragment("event_row.html", row=list_row(request, at, away=away))

    return rendered


class PageHub(Hub):
    """The pending requests of a store, read once for all pages that are open in one event loop.

    Attributes:
        counts: Result of the last refresh; None before the first one.
        changed_rows: Rows of open pages that somebody has decided, claimed or voted on, by request id.
    """

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._store = store
        self._streams: set[_Page] = set()
        self._watched: Counter[str] = Counter()
        self._unwatch: dict[str, Unwatch] = {}
        self._rows: SimpleQueue[str] = SimpleQueue()  # ids of rows that changed
        self.counts: _Counts | None = None
        self.changed_rows: dict[str, _Changed] = {}

    @contextmanager
    def listening(self, stream: _Page, rows: Sequence[str]) -> Generator[None]:
        """Notify a stream of changes, and watch these rows, while the block runs."""
        self._streams.add(stream)
        for one in rows:
            self._watched[one] += 1
            if one not in self._unwatch:
                self._unwatch[one] = self._store.watch(one, partial(self._row_changed, one))
                self._row_changed(one)
        try:
            with self.open():
                yield
        finally:
            self._streams.discard(stream)
            self._watched.subtract(rows)
            for one in [one for one in set(rows) if self._watched[one] <= 0]:
                del self._watched[one]
                self._unwatch.pop(one)()
                self.changed_rows.pop(one, None)

    def _row_changed(self, request_id: str) -> None:
        self._rows.put(request_id)
        self.wake()

    async def _run(self) -> None:
        unwatch = self._store.watch_all(self.wake)
        try:
            await super()._run()
        finally:
            unwatch()

    async def _wait(self) -> None:
        ends = time.monotonic() + _CHECK
        while not await self._changes_within(_STORE_CHECK) and time.monotonic() < ends:
            # Without new watchers a store polls ever less often for changes of other processes.
            self._store.watch_all(self.wake)()

    async def _refresh(self) -> Exception | None:
        changed = {self._rows.get_nowait() for _ in range(self._rows.qsize())}
        try:
            readers = {stream.reader for stream in self._streams}
            self.counts, rows = await run_in_threadpool(self._look, changed, readers)
        except Exception as fault:  # noqa: BLE001  a failed refresh must not end the updates of every page
            for one in changed:
                self._rows.put(one)
            return fault
        self.changed_rows |= {one: row for one, row in rows.items() if one in self._watched}
        for stream in self._streams:
            stream.news.set()
        return None

    def _look(self, changed: set[str], readers: set[Identity]) -> tuple[_Counts, dict[str, _Changed]]:
        wanted = pending_filter()
        page = self._store.list(wanted, limit=_MOST_NEW, newest=True)
        newest = tuple((one.created_at, frozenset(vote.by.folded for vote in one.votes)) for one in page.requests)
        voters = self._store.voters()
        aside = Counter(who for by in voters.values() for who in by)
        for reader, snoozed in self._store.snoozes_of(readers).items():
            aside[reader] += sum(reader not in voters.get(one, ()) for one in snoozed)
        counts = _Counts(self._store.count(wanted), newest, aside)
        rows: dict[str, _Changed] = {}
        away = self._store.delegations() if changed else ()
        for request in requests_with(self._store, changed):
            is_news = request.state is not State.PENDING or request.claimed_by is not None or request.votes
            if is_news or request.id in self.changed_rows:  # or the row was sent as changed and is no longer
                rows[request.id] = _changed(request, away)
        return counts, rows


class _Page(Stream):
    """The stream of one browser's open pages: when each page was made, and which rows they show."""

    def __init__(self, http: Http, session: Session, since: Mapping[str, datetime], rows: list[str]) -> None:
        super().__init__()
        self._http, self._session, self._since, self._rows = http, session, since, rows
        self.reader = session.reviewer.identity

    async def events(self) -> AsyncIterator[dict[str, str]]:
        """Yield fragments of the page when they change."""
        live_pages: PerLoop[PageHub] = self._http.app.state.live_pages
        hub, last, checked = live_pages.here(), None, time.monotonic()
        sessions = settings_of(self._http).sessions
        with hub.listening(self, self._rows):
            while True:
                self.news.clear()
                shown = last if hub.counts is None else self._shown(hub.counts, hub.changed_rows)
                if shown is not None and shown != last:
                    last = pending, news, rows = shown
                    counts = fragment("event.html", pending=pending, news=news, inbox=path_to(self._http))
                    yield {"data": "".join([counts, *rows])}
                with anyio.move_on_after(_CHECK):
                    await self.news.wait()
                if self.is_over:
                    return
                has_ended = sessions.has_ended_here(self._session)
                if time.monotonic() - checked >= _CHECK:  # not at each change, which is one read for all pages
                    checked = time.monotonic()
                    try:
                        has_ended |= not await run_in_threadpool(is_signed_in, self._http, self._session)
                    except errors.StoreError:  # the store fails: end the stream; the page reconnects
                        has_ended = True
                if has_ended:
                    yield {"event": "signed-out", "data": ""}
                    return

    def _shown(
        self, counts: _Counts, changed_rows: dict[str, _Changed]
    ) -> tuple[int, list[tuple[str, int]], list[str]]:
        """Return what changes on the page: how many requests wait, how many are new since it was made, and rows."""
        me = self.reader.folded
        news = [
            (text, sum(at > since and me not in by for at, by in counts.asked)) for text, since in self._since.items()
        ]
        rows = [changed_rows[one](spoken()) for one in self._rows if one in changed_rows]
        return counts.pending - counts.aside[me], news, rows


async def events(http: Http) -> Response:
    """Serve the stream of a browser's open pages."""
    session = await signed_in(http)
    made, rows = _query_list(http, "since")[-_MOST_TABS:], _query_list(http, "rows")[-_MOST_ROWS:]
    try:
        since = {text: datetime.fromisoformat(text) for text in made}
    except ValueError:
        raise HTTPException(400, "since is not an ISO 8601 time") from None
    if any(one.tzinfo is None for one in since.values()):
        raise HTTPException(400, "since has no time zone")
    page = _Page(http, session, since, rows)
    # Scripts receive the ping, so that a page can tell a dead connection from one without news.
    return event_stream(page.events(), page, partial(ServerSentEvent, "", event="ping"))


def _query_list(http: Http, name: str) -> list[str]:
    return list(dict.fromkeys(one for one in http.query_params.get(name, "").split(",") if one))
