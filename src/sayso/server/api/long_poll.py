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

from sse_starlette.sse import AppStatus
from starlette.requests import Request as Http

from sayso.model.ids import new_token
from sayso.server.api.endpoint import Context
from sayso.stores.base import Store, Unwatch
from sayso.stores.http_messages import LONGEST_WAIT

__all__ = ["StoreVersion", "until_changed"]

T = TypeVar("T")
C = TypeVar("C", bound=Context)
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
    context: C, request_ids: Collection[str], look: Callable[[C, Collection[str]], T | None], wait: float, *,
    is_any: bool = False,
) -> T | None:  # fmt: skip
    """Return what `look` finds, as soon as it finds something; None when the time is over or the program has gone.

    The looks of all who wait share the writer's transactions with what is written: those whom one commit wakes look
    together, in one thread, and each finds out whether its token is still good.
    """
    loop, wakeup, changed = asyncio.get_running_loop(), asyncio.Event(), set(request_ids)

    def on_change(request_id: str | None = None) -> None:
        def set_changed() -> None:
            if request_id is not None:
                changed.add(request_id)
            wakeup.set()

        with suppress(RuntimeError):  # the loop has ended, and nobody waits in it
            loop.call_soon_threadsafe(set_changed)

    until, has_gone = time.monotonic() + min(wait, LONGEST_WAIT), asyncio.ensure_future(_gone(context.http))
    has_gone.add_done_callback(lambda _: wakeup.set())
    unwatch: list[Unwatch] = []
    try:
        # Here, and in no thread: one that is broken off before it tells what it watches leaves that watched for ever.
        unwatch.extend(context.store.watch(one, partial(on_change, one)) for one in request_ids)
        if is_any:
            unwatch.append(context.store.watch_all(on_change))
        while True:
            wakeup.clear()
            looked_at, changed = changed, set[str]()
            found = await context.commit(look, looked_at)
            if found is not None:
                return found
            async with nullcontext() if context.slot is None else context.slot.released():
                with _told_of_the_end(wakeup):
                    is_woken = await _woken(wakeup, until, has_gone)
            if not is_woken:
                return None
    finally:
        has_gone.cancel()
        for end in unwatch:
            end()


async def _woken(wakeup: asyncio.Event, until: float, has_gone: asyncio.Future[None]) -> bool:
    """Wait for the wakeup; False where there is nothing to wait for any more."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            await wakeup.wait()
    return wakeup.is_set() and not has_gone.done() and not AppStatus.should_exit


_asleep: dict[asyncio.AbstractEventLoop, set[asyncio.Event]] = {}


@contextmanager
def _told_of_the_end(wakeup: asyncio.Event) -> Generator[None]:
    """Set the wakeup when the server ends, while the block runs; one task looks for all who wait in a loop."""
    loop = asyncio.get_running_loop()
    if loop not in _asleep:
        _asleep[loop] = set()
        loop.create_task(_look_for_the_end(loop, _asleep[loop]))  # noqa: RUF006  it is in the loop while anybody sleeps
    asleep = _asleep[loop]
    asleep.add(wakeup)
    try:
        yield
    finally:
        asleep.discard(wakeup)


async def _look_for_the_end(loop: asyncio.AbstractEventLoop, asleep: set[asyncio.Event]) -> None:
    idle_since = time.monotonic()
    try:
        while time.monotonic() - idle_since < _LINGER:
            await asyncio.sleep(_SHUTDOWN_CHECK)
            if asleep:
                idle_since = time.monotonic()
            if AppStatus.should_exit:
                for wakeup in asleep:
                    wakeup.set()
    finally:
        del _asleep[loop]  # before anybody else can come, who begins anew


async def _gone(http: Http) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
