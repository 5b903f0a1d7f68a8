"""Answers that wait for a change: one coroutine for each program that waits, and no thread.

A program says what it has seen, and is answered when something of it differs, so that it loses nothing while it is not
connected. The invariant: who has gone, or waited long enough, or meets a server that ends, waits no longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

import anyio
from sse_starlette.sse import AppStatus
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as Http

from sayso.model.ids import new_token
from sayso.stores.base import Store

__all__ = ["LONGEST", "Changes", "until_changed"]

LONGEST = 30.0
"""Seconds; proxies end what says nothing for a minute."""

T = TypeVar("T")
_END = 0.25  # seconds between two looks whether the server ends
_LINGER = 5.0  # seconds in which a program comes back that was just answered


class Changes:
    """Counts the changes of a store while programs want to hear of any.

    A program that was answered comes back a moment later; what happens in between is counted, because the store is
    watched for a while longer than it is asked about.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._began, self._count, self._asking = new_token(), 0, 0
        self._unwatch: Callable[[], None] | None = None

    @classmethod
    def of(cls, store: Store) -> Changes:
        """Return the one count of a store."""
        return _counts.setdefault(store, cls(store))

    @property
    def mark(self) -> str:
        """Something that differs after each change, and after one that may have been missed."""
        return f"{self._began}.{self._count}"

    def begin(self) -> None:
        """Count from now on, until as many have ended as have begun, and a little longer."""
        self._asking += 1
        if self._unwatch is None:
            self._began, self._unwatch = new_token(), self._store.watch_all(self._changed)

    def end(self) -> None:
        """End what was begun; in the event loop."""
        self._asking -= 1
        asyncio.get_running_loop().call_later(_LINGER, self._rest)

    def _changed(self) -> None:
        self._count += 1

    def _rest(self) -> None:
        if self._asking == 0 and self._unwatch is not None:
            self._unwatch()
            self._unwatch = None


_counts: WeakKeyDictionary[Store, Changes] = WeakKeyDictionary()


async def until_changed(
    http: Http, store: Store, request_ids: Collection[str], look: Callable[[Collection[str]], T | None], wait: float,
    *, is_any: bool = False,
) -> T | None:  # fmt: skip
    """Return what `look` finds, as soon as it finds something; None when the time is over or the program has gone.

    Args:
        http: The program's request, whose body has been read.
        store: Where to look.
        request_ids: Those whose changes end the wait.
        look: Looks at some of them, all at first; in a thread.
        wait: For how many seconds.
        is_any: Whether every change ends the wait.
    """
    loop, bell, rung = asyncio.get_running_loop(), asyncio.Event(), set(request_ids)

    def wake(request_id: str | None = None) -> None:
        def ring() -> None:
            if request_id is not None:
                rung.add(request_id)
            bell.set()

        with suppress(RuntimeError):  # the loop has ended, and nobody waits in it
            loop.call_soon_threadsafe(ring)

    def watch() -> list[Callable[[], None]]:
        wakes = [store.watch(one, lambda one=one: wake(one)) for one in request_ids]
        return [*wakes, store.watch_all(wake)] if is_any else wakes

    until, unwatch = time.monotonic() + min(wait, LONGEST), await run_in_threadpool(watch)
    has_gone = asyncio.ensure_future(_gone(http))
    try:
        while True:
            bell.clear()
            looked_at, rung = rung, set[str]()
            found = await run_in_threadpool(look, looked_at)
            if found is not None or not await _rung(bell, until, has_gone):
                return found
    finally:
        has_gone.cancel()
        for end in unwatch:
            end()


async def _rung(bell: asyncio.Event, until: float, has_gone: asyncio.Future[None]) -> bool:
    """Wait for the bell; False where there is nothing to wait for any more."""
    while time.monotonic() < until and not has_gone.done() and not AppStatus.should_exit:
        with anyio.move_on_after(min(_END, until - time.monotonic())):
            await bell.wait()
            return True
    return bell.is_set()


async def _gone(http: Http) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
