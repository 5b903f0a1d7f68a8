"""What an open page is told: how many wait, how many are new, and which of its rows somebody has decided.

A stream sends small parts of a page, which htmx puts in their places; no row moves. It carries nothing that a reload
would not show, so a stream that broke off lost nothing. The invariant: a change costs one look at the store, however
many pages are open.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import NamedTuple

import anyio
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso import clock, errors
from sayso.inbox.draw import Row, row_of
from sayso.inbox.page import fragment
from sayso.inbox.session import Session
from sayso.inbox.visit import Settings, path_to, session_of
from sayso.model.request import State
from sayso.stores.base import Filter, Store

__all__ = ["Pulse", "events"]

_PENDING = Filter(states=frozenset({State.PENDING}))
_MOST_ROWS, _MOST_NEW = 50, 100
_FRESH = 0.05
_PING, _CHECK = 20, 60
_GRACE = 0.2  # for streams to end by themselves, before they are cut off


class _Beat(NamedTuple):
    """How many wait, and when the newest of them were asked."""

    pending: int
    asked: tuple[datetime, ...]


class Pulse:
    """What waits in a store, looked up once for all who ask at the same time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # so that of many streams that wake together one looks and the others wait for it
        self._beat = _Beat(0, ())
        self._until = 0.0

    def beat(self) -> _Beat:
        """Return what waits, at most a twentieth of a second old."""
        with self._lock:
            if time.monotonic() >= self._until:
                page = self._store.list(_PENDING, limit=_MOST_NEW, newest=True)
                self._beat = _Beat(self._store.count(_PENDING), tuple(one.created_at for one in page.requests))
                self._until = time.monotonic() + _FRESH
            return self._beat


class _Stream:
    """The events of one open page.

    Attributes:
        over: Set when the server ends.

    Args:
        since: When the page was made.
        rows: The requests on it that somebody may decide elsewhere.
    """

    def __init__(self, http: Http, session: Session, since: datetime | None, rows: list[str]) -> None:
        self._session = session
        self._settings: Settings = http.app.state.settings
        self._pulse: Pulse = http.app.state.pulse
        self._inbox = path_to(http)
        self._since, self._rows = since, rows
        self._told: dict[str, Row] = {}
        self._changed = set(rows)
        self._bell = asyncio.Event()
        self.over = anyio.Event()
        self._loop = asyncio.get_running_loop()
        self._last = ""

    def _wake(self, request_id: str | None = None) -> None:
        def ring() -> None:
            if request_id is not None:
                self._changed.add(request_id)
            self._bell.set()

        try:
            self._loop.call_soon_threadsafe(ring)
        except RuntimeError:
            return  # the loop has ended, and with it this stream

    def _watch(self) -> list[Callable[[], None]]:
        store = self._settings.store
        return [
            store.watch_all(self._wake),
            *(store.watch(one, lambda one=one: self._wake(one)) for one in self._rows),
        ]

    async def _rung(self) -> None:
        """Wait for a change, the server's end, or until it is time to see whether the session still lasts."""
        with anyio.move_on_after(_CHECK):
            async with anyio.create_task_group() as group:

                async def until_over() -> None:
                    await self.over.wait()
                    group.cancel_scope.cancel()

                group.start_soon(until_over)
                await self._bell.wait()
                group.cancel_scope.cancel()
        if not self.over.is_set():
            await asyncio.sleep(_FRESH)  # a burst of changes is one event

    async def events(self) -> AsyncIterator[dict[str, str]]:
        """Yield parts of the page as they change."""
        unwatch = await run_in_threadpool(self._watch)
        try:
            while True:
                self._bell.clear()
                changed, self._changed = self._changed, set[str]()
                try:
                    said = await run_in_threadpool(self._look, changed)
                except errors.StoreError:  # the next change, or the next check, looks again
                    self._changed |= changed
                    said = self._last
                if said != self._last:
                    self._last = said
                    yield {"data": said}
                await self._rung()
                if self.over.is_set() or not self._settings.sessions.is_open(self._session):
                    return
        finally:
            for end in unwatch:
                end()

    def _look(self, changed: set[str]) -> str:
        beat = self._pulse.beat()
        for request_id in changed:
            try:
                row = row_of(self._settings.store.get(request_id), clock.now())
            except errors.RequestNotFoundError:
                continue
            if row.state != str(State.PENDING) or row.claimed:
                self._told[request_id] = row
        new = 0 if self._since is None else sum(at > self._since for at in beat.asked)
        return fragment("event.html", pending=beat.pending, new=new, rows=list(self._told.values()), inbox=self._inbox)


async def events(http: Http) -> Response:
    """Stream what changes for an open page."""
    session = session_of(http)
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
    stream = _Stream(http, session, made, rows)
    return EventSourceResponse(stream.events(), ping=_PING, shutdown_event=stream.over, shutdown_grace_period=_GRACE)
