"""Who sits at which browser: sessions in memory, and the single-use links that begin them.

A session is a random cookie on one side and a row here on the other; it ends after a time without use, and at last
for good. Nothing of it is written anywhere, so a restart ends them all. The invariant: a link begins one session,
once, and what is compared with a secret is compared in constant time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hmac import compare_digest

from sayso import clock
from sayso.model.ids import new_token
from sayso.model.reviewer import Reviewer

__all__ = ["ABSOLUTE", "IDLE", "LINK", "Session", "Sessions"]

IDLE, ABSOLUTE, LINK = timedelta(hours=8), timedelta(days=7), timedelta(hours=1)
_MOST = 1_000


@dataclass
class Session:
    """One browser at which one reviewer sits.

    Attributes:
        id: What the cookie holds.
        reviewer: In whose name it decides.
        csrf: What every form of this session carries.
        begun, used: For its two ends.
    """

    id: str = field(repr=False)
    reviewer: Reviewer
    csrf: str = field(repr=False)
    begun: datetime
    used: datetime

    def is_over(self, now: datetime) -> bool:
        """Say whether it has ended, by idleness or for good."""
        return now >= self.used + IDLE or now >= self.begun + ABSOLUTE

    def is_mine(self, csrf: str) -> bool:
        """Say whether a form was made for this session."""
        return compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    """All sessions of one server, and the links that are still good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # pages are made in several threads
        self._open: dict[str, Session] = {}
        self._links: dict[str, tuple[Reviewer, datetime]] = {}

    def new_link(self, reviewer: Reviewer) -> str:
        """Return a token that begins one session of this reviewer, once, within the hour."""
        token, now = new_token() + new_token(), clock.now()
        with self._lock:
            self._links = {key: link for key, link in self._links.items() if now < link[1] + LINK}
            self._links[token] = (reviewer, now)
        return token

    def begin_by(self, token: str) -> Session | None:
        """Use a link up, and return the session that it begins; None where it is none, was used or is too old."""
        with self._lock:
            reviewer, made = self._links.pop(token, (None, clock.now()))
        if reviewer is None or clock.now() >= made + LINK:
            return None
        return self.begin(reviewer)

    def begin(self, reviewer: Reviewer) -> Session:
        """Begin a session of somebody who is known."""
        now = clock.now()
        session = Session(new_token() + new_token(), reviewer, new_token() + new_token(), now, now)
        with self._lock:
            self._open = {key: one for key, one in self._open.items() if not one.is_over(now)}
            if len(self._open) >= _MOST:  # the one that nobody used for longest makes room
                del self._open[min(self._open, key=lambda key: self._open[key].used)]
            self._open[session.id] = session
        return session

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
