"""Statistics of decisions: how often people approve, how long they take, and how often they decide in haste.

They are computed from the newest requests of a store, up to a bound, so the cost does not grow with the store. A
request counts for the day on which it was asked, in UTC. Requests that nobody decided are left out of the shares of
decisions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple, TypeVar

from sayso.learning import HASTE, decisions_by_person
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import Identity
from sayso.stores.base import Filter, Store

__all__ = ["MOST", "QUESTIONS", "Insight", "Period", "Tally", "insight"]

MOST = 5_000
QUESTIONS = "questions"
_PAGE = 1_000
_MOST_PERIODS = 31
_ZERO = timedelta(0)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Tally:
    """Decisions, counted.

    Attributes:
        asked: How many requests there are; for a reviewer, how many that person decided or voted on.
        approved: Approved, with or without changes.
        changed: Of these, with changes.
        refused: Rejected, sent back or cancelled by a person.
        answered: Questions with an answer.
        expired: Those that ended without a decision.
        waiting: Those that wait.
        withdrawn: Those that the program took back.
        spans: How long each decision took, the shortest first.
    """

    asked: int = 0
    approved: int = 0
    changed: int = 0
    refused: int = 0
    answered: int = 0
    expired: int = 0
    waiting: int = 0
    withdrawn: int = 0
    spans: tuple[timedelta, ...] = field(default=(), repr=False)

    @property
    def approval_rate(self) -> float | None:
        """The share of approvals among what was approved or refused; None where nothing was."""
        return _share(self.approved, self.approved + self.refused)

    @property
    def hasty(self) -> int:
        """How many decisions took less than `HASTE`."""
        return sum(span < HASTE for span in self.spans)

    @property
    def hasty_share(self) -> float | None:
        """The share of these; None where nothing was decided."""
        return _share(self.hasty, len(self.spans))

    @property
    def median(self) -> timedelta | None:
        """The span within which half of the decisions were taken."""
        return self._within(50)

    @property
    def p90(self) -> timedelta | None:
        """The span within which nine of ten decisions were taken."""
        return self._within(90)

    def _within(self, percent: int) -> timedelta | None:
        return self.spans[ceil(len(self.spans) * percent / 100) - 1] if self.spans else None


class Period(NamedTuple):
    """A part of the time: from `begin`, up to the next one."""

    begin: datetime
    tally: Tally


@dataclass(frozen=True)
class Insight:
    """What was found.

    Attributes:
        since, until: Which requests were looked at, by when they were asked.
        whole: All of them.
        tools: By function, the most asked first; all questions together as `QUESTIONS`.
        reviewers: By person, who decided most first.
        periods: By day, or by several days where there are many.
        is_cut: There were more than the bound, and only the newest were looked at.
    """

    since: datetime
    until: datetime
    whole: Tally
    tools: tuple[tuple[str, Tally], ...]
    reviewers: tuple[tuple[Identity, Tally], ...]
    periods: tuple[Period, ...]
    is_cut: bool


class _Count:
    """A tally in the making."""

    def __init__(self, until: datetime) -> None:
        self._until = until
        self.asked = self.approved = self.changed = self.refused = self.answered = 0
        self.expired = self.waiting = self.withdrawn = 0
        self.spans: list[timedelta] = []

    def add(self, request: Request) -> None:
        """Count a request, and the decision that ended its wait."""
        self.asked += 1
        if request.decision is not None and request.decision.is_withdrawal:
            self.withdrawn += 1
        elif request.decision is not None:
            self._decided(request, request.decision)
        elif request.state is State.EXPIRED or request.expires_at <= self._until:
            self.expired += 1  # also where nobody has written it down yet
        else:
            self.waiting += 1

    def add_one(self, request: Request, decision: Decision) -> None:
        """Count one person's decision or vote."""
        self.asked += 1
        self._decided(request, decision)

    def _decided(self, request: Request, decision: Decision) -> None:
        match decision.verb:
            case "approve":
                self.approved += 1
                self.changed += decision.edited
            case "answer":
                self.answered += 1
            case "reject" | "feedback" | "cancel":
                self.refused += 1
        self.spans.append(max(decision.at - request.created_at, _ZERO))

    def tally(self) -> Tally:
        return Tally(
            self.asked, self.approved, self.changed, self.refused, self.answered, self.expired, self.waiting,
            self.withdrawn, tuple(sorted(self.spans)),
        )  # fmt: skip


def insight(store: Store, *, until: datetime, days: int, most: int = MOST) -> Insight:
    """Return what the requests say that were asked in the days before `until`.

    Args:
        store: Where they are.
        until: The end, which is now as a rule.
        days: How many days before it.
        most: At most so many requests are read, the newest.
    """
    begin = until.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days - 1)
    whole = _Count(until)
    tools: dict[str, _Count] = {}
    reviewers: dict[str, tuple[Identity, _Count]] = {}
    periods = _periods(begin, until)
    is_cut = False
    for request in _asked_since(store, begin, most + 1):
        if whole.asked == most:
            is_cut = True
            break
        whole.add(request)
        tools.setdefault(_tool_of(request), _Count(until)).add(request)
        _period_of(periods, request.created_at)[1].add(request)
        for decision in decisions_by_person(request):
            reviewers.setdefault(decision.by.folded, (decision.by, _Count(until)))[1].add_one(request, decision)
    return Insight(
        begin, until, whole.tally(),
        _by_count((name, count.tally()) for name, count in tools.items()),
        _by_count((who, count.tally()) for who, count in reviewers.values()),
        tuple(Period(start, count.tally()) for start, count in periods), is_cut,
    )  # fmt: skip


def _asked_since(store: Store, since: datetime, most: int) -> Iterator[Request]:
    """Yield the newest requests first; clocks of two programs differ, so only a whole page of older ones is the end."""
    cursor, left = None, most
    while left > 0:
        page = store.list(Filter(), cursor=cursor, limit=min(_PAGE, left), newest=True)
        recent = [request for request in page.requests if request.created_at >= since]
        yield from recent
        left -= len(recent)
        cursor = page.cursor
        if cursor is None or not recent:
            return


def _tool_of(request: Request) -> str:
    return request.call.tool if request.kind == "call" else QUESTIONS


def _periods(begin: datetime, until: datetime) -> list[tuple[datetime, _Count]]:
    days = (until - begin).days + 1
    length = timedelta(days=1 if days <= _MOST_PERIODS else 7)
    count = ceil((until - begin) / length) or 1
    return [(begin + number * length, _Count(until)) for number in range(count)]


def _period_of(periods: list[tuple[datetime, _Count]], at: datetime) -> tuple[datetime, _Count]:
    if len(periods) == 1:
        return periods[0]
    length = periods[1][0] - periods[0][0]
    return periods[min((at - periods[0][0]) // length, len(periods) - 1)]


def _by_count(counted: Iterable[tuple[K, Tally]]) -> tuple[tuple[K, Tally], ...]:
    return tuple(sorted(counted, key=lambda pair: (-pair[1].asked, str(pair[0]))))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
