"""Ids, names and ends as people read them in a line of ours.

Invariant: a name that a program or a person chose stands there as it is only if it is one plain word; else it is in
quotes, so that it cannot go on as our own text. What is shortened says so.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime, timedelta

from sayso.model.duration import left
from sayso.model.ids import ID_LENGTH
from sayso.model.reviewer import LOCAL, Identity
from sayso.model.show import escape
from sayso.model.show.literal import brief

__all__ = ["RUN_ROOM", "SHORT", "columns", "in_short", "is_random", "name_of", "padded", "short", "time_left", "token"]

SHORT = len("rq_") + 8
RUN_ROOM = 48
"""What a list leaves to the id of a run: people copy it, and `confirm:` with a UUID has 44 characters."""

_ROOM = 80
_SHORTEST_ISSUER = 12
_PLAIN = re.compile(r"[\w.@:/#+<>-]+")
_WHOLE_ID = re.compile(rf"\brq_[0-9a-z]{{{ID_LENGTH - 3}}}\b")
_RANDOM_RUN = re.compile("run_[0-9a-z]{26,32}")


def short(request_id: str) -> str:
    """Return the beginning of an id that people type; commands take it where it fits no other."""
    return escape(request_id[:SHORT])


def in_short(text: str) -> str:
    """Return a message of ours with every id in it as people type it."""
    return _WHOLE_ID.sub(lambda found: found[0][:SHORT], text)


def is_random(run_id: str) -> bool:
    """Say whether nobody named this run, so that no later process can be in it again."""
    return _RANDOM_RUN.fullmatch(run_id) is not None


def token(text: str, room: int = _ROOM) -> str:
    """Return a name for a line of ours: as it is where it is one plain word, else in quotes, escaped and shortened."""
    if len(text) <= room and _PLAIN.fullmatch(text) is not None and text == escape(text):
        return text
    return brief(text, room)


def name_of(who: Identity, room: int = _ROOM) -> str:
    """Return how a person or program is named to people; the issuer is left out for people of this machine."""
    if who.issuer == LOCAL:
        return token(who.subject, room)
    issuer = token(who.issuer, max(room // 2, _SHORTEST_ISSUER))
    return f"{token(who.subject, max(room - len(issuer) - 3, _SHORTEST_ISSUER))} ({issuer})"


def time_left(end: datetime, now: datetime) -> str:
    """Return how long it is until `end`, so that 24 hours that have just begun do not read as 23h 59m."""
    return left(end + timedelta(milliseconds=500), now) if now < end else left(end, now)


def columns(text: str) -> int:
    """Return how many columns of a terminal an escaped text takes."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(one) in "WF" else 0 if unicodedata.combining(one) else 1 for one in text
    )


def padded(text: str, width: int) -> str:
    """Return an escaped text with spaces behind it up to `width` columns."""
    return text + " " * (width - columns(text))
