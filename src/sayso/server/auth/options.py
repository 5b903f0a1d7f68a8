"""The sign-in options of a server: which ways to sign in are open, and who may review.

The ways are login links (`sayso.server.auth.signing`), a trusted proxy (`sayso.server.auth.proxy`) and an OpenID
provider (`sayso.server.auth.oidc`). Nobody is signed in by a way that is closed, or without being one of the reviewers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from sayso.channels.settings import ReviewerAllowlist
from sayso.model.reviewer import Reviewer
from sayso.server.auth.oidc import Provider
from sayso.server.auth.proxy import Proxy
from sayso.server.auth.sessions import ABSOLUTE

__all__ = ["Attempts", "SignIn"]

_MOST, _WITHIN = 20, 60.0  # failed attempts from one address, seconds
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True)
class SignIn:
    """How people become known to one inbox.

    Attributes:
        has_links: Whether login links begin sessions.
        proxy: The proxy that signs people in, or only passes requests on.
        provider: The OpenID provider.
        reviewers: Who may review at all, as `name` or `issuer:name`, to the letter; None is everybody who is known.
        role: What whoever reviews must have; None is nothing.
        lasts: When a session ends for good.
    """

    has_links: bool = True
    proxy: Proxy | None = None
    provider: Provider | None = None
    reviewers: Collection[str] | None = None
    role: str | None = None
    lasts: timedelta = ABSOLUTE

    def admits(self, reviewer: Reviewer) -> bool:
        """Say whether somebody who is known may review here."""
        return ReviewerAllowlist(self.reviewers, self.role).admits(reviewer)


@dataclass
class Attempts:
    """Failed attempts to sign in, by where they came from; kept in memory, and so for one server only."""

    _failed: dict[str, deque[float]] = field(default_factory=dict[str, deque[float]])
    _lock: threading.Lock = field(default_factory=threading.Lock)  # pages are made in several threads

    def wait(self, origin: str) -> int:
        """Return how many seconds an address has to wait; 0 where it need not."""
        now = time.monotonic()
        with self._lock:
            failed = self._recent(origin, now)
            return 0 if len(failed) < _MOST else 1 + int(failed[0] + _WITHIN - now)

    def fail(self, origin: str) -> None:
        """Count a failed attempt."""
        now = time.monotonic()
        with self._lock:
            if len(self._failed) >= _MOST_ADDRESSES and origin not in self._failed:
                del self._failed[next(iter(self._failed))]  # the one that began longest ago makes room
            self._failed.setdefault(origin, deque(maxlen=_MOST)).append(now)

    def _recent(self, origin: str, now: float) -> deque[float]:
        failed = self._failed.get(origin, deque[float]())
        while failed and failed[0] <= now - _WITHIN:
            failed.popleft()
        return failed
