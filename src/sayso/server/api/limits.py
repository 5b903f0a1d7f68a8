"""Rate limits and concurrency limits per token, session or address, counted in this process.

The rate is a moving window (the library `limits`); concurrent requests are counted in slots. Both answer 429 with
`Retry-After`, so a program slows down and loses no call (`sayso.stores.http_transport`).
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from weakref import WeakValueDictionary

from anyio import CapacityLimiter
from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from sayso import errors
from sayso.server.api.problems import Problem

_SOON = 1  # seconds in Retry-After when all slots are taken
_MOST_KNOWN = 10_000  # clients to count before those without recent requests are dropped
_QUEUE_TIMEOUT = 5.0  # seconds for which a long poll waits for a slot


class Rate:
    """A rate limit per client; raises `ConfigError` if the limit cannot be parsed.

    Args:
        limit: Such as `600/minute`; None for no limit.
    """

    def __init__(self, limit: str | None) -> None:
        try:
            self._limit = None if limit is None else parse(limit)
        except ValueError as error:
            raise errors.ConfigError(f"rate {limit!r} is not a rate limit; write one like 600/minute") from error
        self._storage = MemoryStorage()
        self._windows = MovingWindowRateLimiter(self._storage)
        self._room = _MOST_KNOWN

    def count(self, who: str) -> None:
        """Count a request of a client; raises `Problem` if it exceeds the limit."""
        if len(self._storage.events) >= self._room:
            self._forget()
        if self._limit is not None and not self._windows.hit(self._limit, who):
            raise self._too_many(self._limit, who)

    def must_have_room(self, who: str) -> None:
        """Raise `Problem` if a client's next request would exceed the limit. Counts nothing."""
        if self._limit is not None and not self._windows.test(self._limit, who):
            raise self._too_many(self._limit, who)

    def _forget(self) -> None:
        """Drop clients without recent requests, for which the library keeps an empty list each."""
        known = self._storage
        for who in list(known.events):
            with known.locks[who]:  # or a concurrent request of the client would lose its entry with the list
                if not known.events.get(who):
                    known.clear(who)
        self._room = max(_MOST_KNOWN, 2 * len(known.events))  # so that in a flood not every request does this

    def _too_many(self, limit: RateLimitItem, who: str) -> Problem:
        free_at = self._windows.get_window_stats(limit, who).reset_time
        wait = max(1, math.ceil(free_at - time.time()))  # noqa: TID251  the library counts by the machine's own clock
        return Problem(
            "rate_limited", f"more than {limit}; nothing was done, try again in {wait} s",
            headers={"retry-after": str(wait)},
        )  # fmt: skip


class InFlight:
    """Limits the concurrent requests of each token. Use it in the event loop only. Raises `ConfigError`.

    Attributes:
        threads: The threads for all API requests: twice as many as one token's slots, so that a token that uses all of
            its slots leaves threads for others. Pages use other threads.

    Args:
        most: Concurrent requests of one token.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise errors.ConfigError(f"in_flight must be 1 or more, not {most}")
        self.threads = CapacityLimiter(2 * most)
        self._most = most
        self._free = WeakValueDictionary[str, asyncio.Semaphore]()  # drops tokens without any `Slot`

    def slot(self, who: str) -> Slot:
        """Return a slot for one request of a token, not taken yet."""
        free = self._free.get(who)
        if free is None:
            free = self._free[who] = asyncio.Semaphore(self._most)
        return Slot(free, self._most)


class Slot:
    """The slot of one request among the concurrent ones of its token."""

    def __init__(self, free: asyncio.Semaphore, most: int) -> None:
        self._free, self._most, self._is_held = free, most, False

    async def take(self, *, queues: bool) -> None:
        """Take the slot. Raises `Problem` if all are taken; with `queues`, only after waiting five seconds."""
        with suppress(TimeoutError):
            if not self._free.locked():
                await self._free.acquire()  # without a timer, which would cost more than the rest
                self._is_held = True
            elif queues:
                async with asyncio.timeout(_QUEUE_TIMEOUT):
                    await self._free.acquire()
                self._is_held = True
        if not self._is_held:
            raise Problem(
                "rate_limited",
                f"{self._most} requests of this token are in progress; nothing was done, try again later",
                headers={"retry-after": str(_SOON)},
            )

    def release(self) -> None:
        """Release the slot if it is held, because the request sleeps or is done."""
        if self._is_held:
            self._is_held = False
            self._free.release()
