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

_SOON = 1  # seconds until who has too much under way may try again
_MOST_KNOWN = 10_000  # of those who ask, until it is looked who has not asked lately
_QUEUE_TIMEOUT = 5.0  # seconds in which a request that waits for a change has to get a slot


class Rate:
    """A limit for each of those who ask; raises `ConfigError` where the text is no limit.

    Args:
        limit: `600/minute`, or None for none.
    """

    def __init__(self, limit: str | None) -> None:
        try:
            self._limit = None if limit is None else parse(limit)
        except ValueError as error:
            raise errors.ConfigError(f"rate {limit!r} is no limit; write one like 600/minute") from error
        self._storage = MemoryStorage()
        self._windows = MovingWindowRateLimiter(self._storage)
        self._room = _MOST_KNOWN

    def count(self, who: str) -> None:
        """Count a request of somebody; raises `Problem` where there were too many."""
        if len(self._storage.events) >= self._room:
            self._forget()
        if self._limit is not None and not self._windows.hit(self._limit, who):
            raise self._too_many(self._limit, who)

    def must_have_room(self, who: str) -> None:
        """Count nothing; raises `Problem` where the next request of somebody would be one too many."""
        if self._limit is not None and not self._windows.test(self._limit, who):
            raise self._too_many(self._limit, who)

    def _forget(self) -> None:
        """Forget who has not asked lately: the library keeps an empty list of everybody who ever did."""
        known = self._storage
        for who in list(known.events):
            with known.locks[who]:  # else somebody who asks again meanwhile would find that list gone
                if not known.events.get(who):
                    known.clear(who)
        self._room = max(_MOST_KNOWN, 2 * len(known.events))  # so that a flood does not have each of its requests look

    def _too_many(self, limit: RateLimitItem, who: str) -> Problem:
        free_at = self._windows.get_window_stats(limit, who).reset_time
        wait = max(1, math.ceil(free_at - time.time()))  # noqa: TID251  the library counts by the machine's own clock
        return Problem(
            "rate_limited", f"more than {limit}; nothing was done, try again in {wait} s",
            headers={"retry-after": str(wait)},
        )  # fmt: skip


class InFlight:
    """How many requests of one token are worked on at a time; used in the event loop alone; raises `ConfigError`.

    Attributes:
        threads: In which all requests to the API are worked on. There are twice as many as one token may take, so that
            one that takes all of its slots leaves threads for the others, and pages have threads of their own.

    Args:
        most: For each token.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise errors.ConfigError(f"in_flight must be 1 or more, not {most}; no token could ask anything")
        self.threads = CapacityLimiter(2 * most)
        self._most = most
        self._free = WeakValueDictionary[str, asyncio.Semaphore]()  # of tokens with a slot, taken or not

    def slot(self, who: str) -> Slot:
        """Return a place for a request of somebody, which is not taken yet."""
        free = self._free.get(who)
        if free is None:
            free = self._free[who] = asyncio.Semaphore(self._most)
        return Slot(free, self._most)


class Slot:
    """The place of one request among those of its token that are worked on."""

    def __init__(self, free: asyncio.Semaphore, most: int) -> None:
        self._free, self._most, self._is_held = free, most, False

    async def take(self, *, queues: bool) -> None:
        """Take it; raises `Problem` where all are taken, and with `queues` stay so for five seconds."""
        with suppress(TimeoutError):
            if not self._free.locked():
                await self._free.acquire()  # at once: a timer would cost more than the rest of this
                self._is_held = True
            elif queues:
                async with asyncio.timeout(_QUEUE_TIMEOUT):
                    await self._free.acquire()
                self._is_held = True
        if not self._is_held:
            raise Problem(
                "rate_limited",
                f"{self._most} requests of this token are being worked on; nothing was done, try again",
                headers={"retry-after": str(_SOON)},
            )

    def release(self) -> None:
        """Let it go, where it is held: the request sleeps, or is over."""
        if self._is_held:
            self._is_held = False
            self._free.release()
