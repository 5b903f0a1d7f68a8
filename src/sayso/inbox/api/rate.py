"""How often one token, session or stranger may ask: a moving window in this process (the library `limits`).

The invariant: one who asks too often slows nobody else down, and waiting for room takes none.
"""

from __future__ import annotations

import math
import time

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from sayso import errors
from sayso.inbox.api.problem import Problem

__all__ = ["Rate"]


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
