"""Rate limits and concurrency limits per token, session or address, counted in this process.

The rate is a moving window (the library `limits`); concurrent requests are counted in slots. Both answer 429 with
`Retry-After`, so a program slows down and loses no call (`sayso.stores.http_transport`).
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio import CapacityLimiter, WouldBlock, move_on_after
from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from sayso import errors
from sayso.server.api.problems import Problem

__all__ = ["InFlight", "Rate", "Slot"]

_SOON = 1  # seconds until who has too much under way may try again
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
        self._windows = MovingWindowRateLimiter(MemoryStorage())

    def count(self, who: str) -> None:
        """Count a request of somebody; raises `Problem` where there were too many."""
        if self._limit is not None and not self._windows.hit(self._limit, who):
            raise self._too_many(self._limit, who)

    def must_have_room(self, who: str) -> None:
        """Count nothing; raises `Problem` where the next request of somebody would be one too many."""
        if self._limit is not None and not self._windows.test(self._limit, who):
            raise self._too_many(self._limit, who)

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
        self._tokens = dict[str, _Token]()

    @asynccontextmanager
    async def one_of(self, who: str, *, queues: bool = False) -> AsyncGenerator[Slot]:
        """Hold a slot while the block runs; raises `Problem` where all of them are taken."""
        token = self._tokens.setdefault(who, _Token(CapacityLimiter(self._most)))
        slot = Slot(token.limiter)
        token.requests += 1
        try:
            if not slot.take() and not (queues and await slot.wait(_QUEUE_TIMEOUT)):
                raise Problem(
                    "rate_limited",
                    f"{self._most} requests of this token are being worked on; nothing was done, try again",
                    headers={"retry-after": str(_SOON)},
                )
            yield slot
        finally:
            slot.release()
            token.requests -= 1
            if not token.requests:
                del self._tokens[who]


@dataclass
class _Token:
    """The requests of one token: `limiter` counts those that are worked on, `requests` also those that wait."""

    limiter: CapacityLimiter
    requests: int = 0


class Slot:
    """One slot among the requests of a token that are worked on."""

    def __init__(self, limiter: CapacityLimiter) -> None:
        self._limiter, self._is_held = limiter, False

    def take(self) -> bool:
        """Take it, and say whether there was one."""
        try:
            self._limiter.acquire_on_behalf_of_nowait(self)
        except WouldBlock:
            return False
        self._is_held = True
        return True

    async def wait(self, seconds: float = math.inf) -> bool:
        """Take it when it is one's turn, and say whether that came in time."""
        with move_on_after(seconds):
            await self._limiter.acquire_on_behalf_of(self)
            self._is_held = True
        return self._is_held

    def release(self) -> None:
        """Let it go, where it is held."""
        if self._is_held:
            self._is_held = False
            self._limiter.release_on_behalf_of(self)

    @asynccontextmanager
    async def released(self) -> AsyncGenerator[None]:
        """Let it go while the block sleeps, and take one again.

        Those that one change wakes get their slots in turn, before requests that come then, and none is refused.
        A block that raises ends the request, which takes no slot again.
        """
        self.release()
        yield
        await self.wait()
