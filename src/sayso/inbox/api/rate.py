"""How often, and how much at a time, one token, session or stranger may ask; counted in this process.

How often is a moving window (the library `limits`), and how much at a time is what is being worked on. Both answer 429
with `Retry-After`, so that a program is slowed down and loses no call (`sayso.stores.http_line`). The invariant: one
who asks too much slows nobody else down, and waiting for room takes none.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from sayso import errors
from sayso.inbox.api.problem import Problem

__all__ = ["InFlight", "Rate"]

_SOON = 1  # seconds until who has too much under way may try again


class Rate:
    """A limit for each of those who ask.

    Args:
        limit: `600/minute`, or None for none.

    Raises:
        ConfigError: The text is no limit.
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
    """How many requests of one token are worked on at a time; used in the event loop alone.

    Args:
        most: For each token.

    Raises:
        ConfigError: Not one would be.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise errors.ConfigError(f"in_flight must be 1 or more, not {most}; no token could ask anything")
        self._most = most
        self._now = Counter[str]()

    @contextmanager
    def one_of(self, who: str) -> Generator[None]:
        """Count one while the block runs; raises `Problem` where there are too many."""
        if self._now[who] >= self._most:
            raise Problem(
                "rate_limited", f"{self._most} requests of this token are being worked on; nothing was done, try again",
                headers={"retry-after": str(_SOON)},
            )  # fmt: skip
        self._now[who] += 1
        try:
            yield
        finally:
            self._now[who] -= 1
            if not self._now[who]:
                del self._now[who]
