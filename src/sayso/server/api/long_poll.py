"""Answers that wait for a change: one coroutine for each program that waits, and no thread.

A program says what it has seen, and is answered when something of it differs, so that it loses nothing while it is not
connected. A program that has gone, or has waited long enough, or meets a server that ends, leaves nothing watched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TypeVar

import anyio
from sse_starlette.sse import AppStatus
from starlette.requests import Request as Http

from sayso.model.ids import new_token
from sayso.server.api.endpoint import Context, in_thread
from sayso.stores.base import Store, Unwatch
from sayso.stores.http_messages import LONGEST_WAIT

__all__ = ["StoreVersion", "until_changed"]

T = TypeVar("T")
_SHUTDOWN_CHECK = 0.25  # seconds between two looks whether the server ends
_LINGER = 5.0  # seconds in which a program comes back that was just answered


class StoreVersion:
    """Counts the changes of a store while programs of one event loop want to hear of any.

    A program that was answered comes back a moment later; what happens in between is counted, because the store is
    watched for a while longer than it is asked about.
    """

    def __init__(self) -> None:
        self._began, self._count = new_token(), 0
        self._asking, self._asked_at = 0, 0.0

    @classmethod
    @contextmanager
    def counted(cls, store: Store) -> Generator[StoreVersion]:
        """Count from now on, while the block runs and a little longer; in the event loop."""
        place = asyncio.get_running_loop(), store
        version = _counts.get(place)
        if version is None:
            version = _counts[place] = cls()
            version._watch(*place)
        version._asking += 1
        try:
            yield version
        finally:
            version._asking -= 1
            version._asked_at = time.monotonic()

    @property
    def value(self) -> str:
        """Something that differs after each change, and after one that may have been missed."""
        return f"{self._began}.{self._count}"

    def _watch(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        unwatch = store.watch_all(self._changed)

        def forget() -> None:
            if _counts.get((loop, store)) is self:
                del _counts[loop, store]

        def rest(_: asyncio.Task[None]) -> None:
            unwatch()
            forget()

        # A task and no timer: a loop that ends cancels its tasks, and forgets its timers.
        loop.create_task(self._linger(forget)).add_done_callback(rest)

    async def _linger(self, forget: Callable[[], None]) -> None:
        left = _LINGER
        while left > 0:
            await asyncio.sleep(left)
            left = _LINGER if self._asking else self._asked_at + _LINGER - time.monotonic()
        forget()  # at once: who comes before the task has ended counts anew

    def _changed(self) -> None:
        self._count += 1


_counts: dict[tuple[asyncio.AbstractEventLoop, Store], StoreVersion] = {}  # those that are watched now


async def until_changed(
    context: Context, request_ids: Collection[str], look: Callable[[Collection[str]], T | None], wait: float, *,
    is_any: bool = False,
) -> T | None:  # fmt: skip
    """Return what `look` finds, as soon as it finds something; None when the time is over or the program has gone."""
    loop, wakeup, changed = asyncio.get_running_loop(), asyncio.Event(), set(request_ids)

    def on_change(request_id: str | None = None) -> None:
        def set_changed() -> None:
            if request_id is not None:
                changed.add(request_id)
            wakeup.set()

        with suppress(RuntimeError):  # the loop has ended, and nobody waits in it
            loop.call_soon_threadsafe(set_changed)

    until, has_gone = time.monotonic() + min(wait, LONGEST_WAIT), asyncio.ensure_future(_gone(context.http))
    unwatch: list[Unwatch] = []
    try:
        # Here, and in no thread: one that is broken off before it tells what it watches leaves that watched for ever.
        unwatch.extend(context.store.watch(one, partial(on_change, one)) for one in request_ids)
        if is_any:
            unwatch.append(context.store.watch_all(on_change))
        while True:
            wakeup.clear()
            looked_at, changed = changed, set[str]()
            found = await in_thread(context.http, partial(look, looked_at))
            if found is not None:
                return found
            async with nullcontext() if context.slot is None else context.slot.released():
                is_woken = await _woken(wakeup, until, has_gone)
            if not is_woken:
                return None
    finally:
        has_gone.cancel()
        for end in unwatch:
            end()


async def _woken(wakeup: asyncio.Event, until: float, has_gone: asyncio.Future[None]) -> bool:
    """Wait for the wakeup; False where there is nothing to wait for any more."""
    while time.monotonic() < until and not has_gone.done() and not AppStatus.should_exit:
        with anyio.move_on_after(min(_SHUTDOWN_CHECK, until - time.monotonic())):
            await wakeup.wait()
            return True
    return wakeup.is_set()


async def _gone(http: Http) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
