"""Filters that a store does not know, because what they ask for may be sealed there: who asked, who decided, and how.

A list that is filtered so reads requests and keeps those that pass. The invariant: an empty field restricts nothing,
and a field that cannot be read is an error, never an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import get_args

from sayso.model.request import Request, Verb
from sayso.model.reviewer import Identity

__all__ = ["FIELDS", "VERBS", "Sieve", "sieve_of"]

VERBS: tuple[str, ...] = get_args(Verb)
FIELDS = ("agent", "by", "verb", "channel", "from", "to")


@dataclass(frozen=True)
class Sieve:
    """What a request must have to pass.

    Attributes:
        agent: A part of the name of who asked.
        by: A part of the name of somebody who decided or voted.
        verb: What was decided.
        channel: Through which channel.
        since, until: When that was; the second is not in it.
    """

    agent: str = ""
    by: str = ""
    verb: str = ""
    channel: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def lets_all(self) -> bool:
        """Whether everything passes."""
        return self == Sieve()

    def lets(self, request: Request) -> bool:
        """Say whether a request passes."""
        if self.agent and not _is_named(request.requester, self.agent):
            return False
        if self.by and not any(_is_named(who, self.by) for who in _deciders(request)):
            return False
        decision = request.decision
        if self.verb and (decision is None or decision.verb != self.verb):
            return False
        if self.channel and (decision is None or decision.channel.casefold() != self.channel.casefold()):
            return False
        at = _ended(request)
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


def sieve_of(asked: Mapping[str, str]) -> Sieve:
    """Return the sieve that the fields of an address ask for.

    Raises:
        ValueError: A field cannot be read.
    """
    given = {name: asked.get(name, "") for name in FIELDS}
    if given["verb"] and given["verb"] not in VERBS:
        raise ValueError(f"{given['verb']!r} is no decision; there are {', '.join(VERBS)}")
    until = _day(given["to"])
    return Sieve(
        given["agent"], given["by"], given["verb"], given["channel"], _day(given["from"]),
        None if until is None else until + timedelta(days=1),
    )  # fmt: skip


def _day(text: str) -> datetime | None:
    if not text:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        day = None
    if day is None or not 1970 <= day.year <= 9000:
        raise ValueError(f"{text!r} is no day; write it as 2026-01-31")
    return day


def _is_named(who: Identity, part: str) -> bool:
    return part.casefold() in who.qualified.casefold()


def _deciders(request: Request) -> list[Identity]:
    found = [vote.by for vote in request.votes]
    return found if request.decision is None else [*found, request.decision.by]


def _ended(request: Request) -> datetime:
    """Return when a request stopped waiting; for one that nobody decided, when it ends."""
    return request.expires_at if request.decision is None else request.decision.at
