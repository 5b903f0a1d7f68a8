"""Answers that wait for a change: one coroutine for each program that waits, and neither thread nor task.

A program says what it has seen, and is answered when something of it differs, so that it loses nothing while it is not
connected. A program that has gone, or has waited long enough, or meets a server that ends, leaves nothing watched.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from sse_starlette.sse import AppStatus
from starlette.requests import Request as Http

from sayso.model.ids import new_token
from sayso.server.api.endpoint import Context
from sayso.server.connections import GONE
from sayso.stores.base import Store, Unwatch
from sayso.stores.http_messages import LONGEST_WAIT

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

    The looks of all who wait share the writer's transactions with what is written, and each finds out whether its token
    is still good. A change hands them in from the thread that made it; the loop hears of those that found something.
    The request takes room among those of its token until its first look is done.
    """
    waiting, unwatch = _Waiting(context, request_ids, look), list[Unwatch]()
    timer = waiting.loop.call_later(min(wait, LONGEST_WAIT), waiting.expire)
    forget = _when_gone(context.http, waiting.end)
    try:
        # Here, and in no thread: one that is broken off before it tells what it watches leaves that watched for ever.
        unwatch.extend(context.store.watch(one, partial(waiting.look, one)) for one in request_ids)
        if is_any:
            unwatch.append(context.store.watch_all(waiting.look))
        waiting.look()
        return await waiting.found
    finally:
        timer.cancel()
        forget()
        for end in unwatch:
            end()


class _Waiting(Generic[C, T]):
    """One request that waits: `found` is what its look found, or None where there is nothing to wait for any more."""

    __slots__ = ("_changed", "_context", "_has_looked", "_is_due", "_is_over", "_lock", "_look", "found", "loop")

    def __init__(
        self, context: C, request_ids: Collection[str], look: Callable[[C, Collection[str]], T | None]
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.found: asyncio.Future[T | None] = self.loop.create_future()
        self._context, self._look, self._changed = context, look, set[str](request_ids)
        self._lock, self._is_due = threading.Lock(), False
        self._has_looked = self._is_over = False

    def look(self, request_id: str | None = None) -> None:
        """Look at what has changed, in the writer's next transaction; from any thread."""
        with self._lock:  # so that a change is either in the look that is due or makes another one due
            if request_id is not None:
                self._changed.add(request_id)
            if self._is_due or self.found.done():
                return
            self._is_due = True
        self._context.writer.look(partial(self._looked, set()), self._deliver, self.loop)

    def _looked(self, changed: set[str], store: Store) -> T | None:
        with self._lock:
            changed |= self._changed  # they stay this look's own: it may be done again
            self._is_due, self._changed = False, set[str]()
        return self._context.inside(store, self._look, changed)[1]

    def _deliver(self, found: Any) -> None:
        if self._context.slot is not None:
            self._context.slot.release()
        if self.found.done():  # the program has gone, or its time is over
            return
        if isinstance(found, BaseException):
            self.found.set_exception(found)
        elif found is not None or self._is_over:
            self.found.set_result(found)
        self._has_looked = True

    def expire(self) -> None:
        """Find nothing, its time is over; but look once, however short that was."""
        self._is_over = True
        if self._has_looked:
            self.end()

    def end(self, _: object = None) -> None:
        """Find nothing; in the loop."""
        if not self.found.done():
            self.found.set_result(None)


def _when_gone(http: Http, end: Callable[[object], None]) -> Callable[[], object]:
    """Call `end` in the loop when the program has gone, or the server ends; what is returned takes that back."""
    gone: asyncio.Future[None] | None = http.scope.get("extensions", {}).get(GONE, {}).get("future")
    if gone is None:  # another server than `sayso serve`
        task = asyncio.ensure_future(_gone(http))
        task.add_done_callback(end)
        return task.cancel
    gone.add_done_callback(end)  # and no task, which is most of what one of thousands that wait would cost
    return partial(gone.remove_done_callback, end)


async def _gone(http: Http) -> None:
    while not AppStatus.should_exit:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_CHECK):
                if (await http.receive())["type"] == "http.disconnect":
                    return
