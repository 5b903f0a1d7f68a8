"""The long polls of programs: requests to the API that are answered after a change, or when their time is over.

A long poll is one coroutine without a thread or task of its own. The program sends the versions that it has seen and is
answered when one differs, so it misses nothing between two connections. When the client disconnects, its time is over
or the server shuts down, its watches end.
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
from sayso.server.protection import GONE
from sayso.stores.base import Store, Unwatch
from sayso.stores.http_messages import LONGEST_WAIT

Found = TypeVar("Found")
C = TypeVar("C", bound=Context)
_SHUTDOWN_CHECK = 0.25  # seconds between two checks whether the server shuts down
_LINGER = 5.0  # seconds to keep counting after an answer, in which the program usually polls again


class StoreVersion:
    """Counts the changes of a store while programs of one event loop wait for any change.

    An answered program polls again a moment later. To count the changes in between, the store is watched for five more
    seconds.
    """

    def __init__(self) -> None:
        self._began, self._count = new_token(), 0
        self._asking, self._asked_at = 0, 0.0

    @classmethod
    @contextmanager
    def counted(cls, store: Store) -> Generator[StoreVersion]:
        """Count changes while the block runs and for five more seconds. Call it in the event loop."""
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
        """A version that differs after each change, and after a gap in which a change may have been missed."""
        return f"{self._began}.{self._count}"

    def _watch(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        unwatch = store.watch_all(self._changed)

        def forget() -> None:
            if _counts.get((loop, store)) is self:
                del _counts[loop, store]

        def rest(_: asyncio.Task[None]) -> None:
            unwatch()
            forget()

        # A task, not a timer: a loop that shuts down cancels its tasks but drops its timers, and leaves the watch.
        loop.create_task(self._linger(forget)).add_done_callback(rest)

    async def _linger(self, forget: Callable[[], None]) -> None:
        left = _LINGER
        while left > 0:
            await asyncio.sleep(left)
            left = _LINGER if self._asking else self._asked_at + _LINGER - time.monotonic()
        forget()  # before the task ends, so that a poll that comes meanwhile starts a new count

    def _changed(self) -> None:
        self._count += 1


_counts: dict[tuple[asyncio.AbstractEventLoop, Store], StoreVersion] = {}  # the active ones


async def until_changed(
    context: C, request_ids: Collection[str], look: Callable[[C, Collection[str]], Found | None], wait: float, *,
    is_any: bool = False,
) -> Found | None:  # fmt: skip
    """Return the first result of `look` that is not None; None on timeout or when the client disconnects.

    `look` runs in the writer's transactions, which it shares with writes and other waiting requests, and each run first
    checks that the token is still valid. A change queues it directly from the thread that made the change. The request
    holds its slot until `look` has run once.
    """
    waiting, unwatch = _Waiting(context, request_ids, look), list[Unwatch]()
    timer = waiting.loop.call_later(min(wait, LONGEST_WAIT), waiting.expire)
    gone: asyncio.Future[None] | None = context.http.scope.get(GONE)
    task: asyncio.Task[None] | None = None
    if gone is None:  # not served by `sayso serve`, which needs no task: it would double the memory of a wait
        gone = task = waiting.loop.create_task(_gone(context.http))
    gone.add_done_callback(waiting.end)
    try:
        # Not in a thread: a cancellation before the thread returns its watches would leak them.
        unwatch.extend(context.store.watch(one, partial(waiting.look, one)) for one in request_ids)
        if is_any:
            unwatch.append(context.store.watch_all(waiting.look))
        waiting.look()
        return await waiting.found
    finally:
        timer.cancel()
        gone.remove_done_callback(waiting.end)
        if task is not None:
            task.cancel()
        for end in unwatch:
            end()


class _Waiting(Generic[C, Found]):
    """One waiting request. `found` resolves to the result of `look`, or to None when the wait is over."""

    __slots__ = ("_changed", "_context", "_has_looked", "_is_due", "_is_over", "_lock", "_look", "found", "loop")

    def __init__(
        self, context: C, request_ids: Collection[str], look: Callable[[C, Collection[str]], Found | None]
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.found: asyncio.Future[Found | None] = self.loop.create_future()
        self._context, self._look = context, look
        self._changed = [*request_ids]  # a list, because an empty set takes four times as much while this waits
        self._lock, self._is_due = threading.Lock(), False
        self._has_looked = self._is_over = False

    def look(self, request_id: str | None = None) -> None:
        """Queue a read of what has changed for the writer's next transaction. Safe in any thread."""
        with self._lock:  # or a change could come too late for the queued read and yet not queue another
            if request_id is not None:
                self._changed.append(request_id)
            if self._is_due or self.found.done():
                return
            self._is_due = True
        self._context.writer.look(partial(self._looked, set()), self._deliver, self.loop)

    def _looked(self, changed: set[str], store: Store) -> Found | None:
        with self._lock:
            changed.update(self._changed)  # `changed` belongs to this read, which may run again
            self._is_due, self._changed = False, list[str]()
        return self._context.inside(store, self._look, changed)[1]

    def _deliver(self, found: Any) -> None:
        if self._context.slot is not None:
            self._context.slot.release()
        if self.found.done():  # the client disconnected, or its time is over
            return
        if isinstance(found, BaseException):
            self.found.set_exception(found)
        elif found is not None or self._is_over:
            self.found.set_result(found)
        self._has_looked = True

    def expire(self) -> None:
        """End the wait on timeout, but only after one read, however short the time was."""
        self._is_over = True
        if self._has_looked:
            self.end()

    def end(self, _: object = None) -> None:
        """End the wait without a result. Call it in the loop."""
        if not self.found.done():
            self.found.set_result(None)


async def _gone(http: Http) -> None:
    while not AppStatus.should_exit:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_CHECK):
                if (await http.receive())["type"] == "http.disconnect":
                    return
