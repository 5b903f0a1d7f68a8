"""Who sits at which browser: the sessions of one server, in memory.

A session is a random cookie on one side and a row here on the other; it ends after a time without use, and at last
for good. Nothing of it is written anywhere, so a restart ends them all. The invariant: a session's id is made here,
when it begins, and never taken from a browser; what is compared with a secret is compared in constant time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hmac import compare_digest

from sayso import clock
from sayso.model.ids import new_token
from sayso.model.reviewer import Reviewer

__all__ = ["ABSOLUTE", "IDLE", "Session", "Sessions"]

IDLE, ABSOLUTE = timedelta(hours=8), timedelta(days=7)
_MOST = 10_000
_MOST_OF_ONE = 20


@dataclass
class Session:
    """One browser at which one reviewer sits.

    Attributes:
        id: What the cookie holds.
        reviewer: In whose name it decides.
        csrf: What every form of this session carries.
        used, ends: For its two ends: without use, and for good.
    """

    id: str = field(repr=False)
    reviewer: Reviewer
    csrf: str = field(repr=False)
    used: datetime
    ends: datetime

    def is_over(self, now: datetime) -> bool:
        """Say whether it has ended, by idleness or for good."""
        return now >= self.used + IDLE or now >= self.ends

    def is_mine(self, csrf: str) -> bool:
        """Say whether a form was made for this session."""
        return compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    """All sessions of one server.

    Args:
        lasts: When a session ends for good.
    """

    def __init__(self, lasts: timedelta = ABSOLUTE) -> None:
        self._lasts = lasts
        self._lock = threading.Lock()  # pages are made in several threads
        self._open: dict[str, Session] = {}

    def begin(self, reviewer: Reviewer) -> Session:
        """Begin a session of somebody who is known."""
        now = clock.now()
        session = Session(new_token() + new_token(), reviewer, new_token() + new_token(), now, now + self._lasts)
        with self._lock:
            self._open = {key: one for key, one in self._open.items() if not one.is_over(now)}
            self._make_room(reviewer)
            self._open[session.id] = session
        return session

    def _make_room(self, reviewer: Reviewer) -> None:
        """End the session that was not used for longest, of a person who has many, or else of all where there are many.

        A browser that keeps no cookie begins one with each page: it must end nobody's sessions but its own person's.
        """
        who = reviewer.identity
        mine = [one for one in self._open.values() if one.reviewer.identity == who]
        for many, most in ((mine, _MOST_OF_ONE), (list(self._open.values()), _MOST)):
            if len(many) >= most:
                self._open.pop(min(many, key=lambda one: one.used).id)
                return

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie, if it has not ended, and count this as a use of it."""
        now = clock.now()
        with self._lock:
            session = None if cookie is None else self._open.get(cookie)
            if session is None:
                return None
            if session.is_over(now):
                del self._open[session.id]
                return None
            session.used = now
            return session

    def is_open(self, session: Session) -> bool:
        """Say whether a session still lasts; this is no use of it."""
        with self._lock:
            return self._open.get(session.id) is session and not session.is_over(clock.now())

    def end(self, session: Session) -> None:
        """End a session."""
        with self._lock:
            self._open.pop(session.id, None)
