"""Statistics of decisions: how often people approve, how long they take, and how often they decide in haste.

They are computed from the newest requests of a store, up to a bound, so the cost does not grow with the store. A
request counts for the day on which it was asked, in UTC. Requests that nobody decided are left out of the shares of
decisions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
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

K = TypeVar("K", bound=Hashable)


@dataclass
class Tally:
    """Decisions, counted.

    Attributes:
        asked: How many requests there are; for a reviewer, how many that person decided or voted on.
        changed: How many of the approved ones were changed.
        refused: Rejected, sent back or cancelled by a person.
        expired: Those that ended without a decision.
        withdrawn: Those that the program took back.
        spans: How long each decision took.
    """

    asked: int = 0
    approved: int = 0
    changed: int = 0
    refused: int = 0
    answered: int = 0
    expired: int = 0
    waiting: int = 0
    withdrawn: int = 0
    spans: list[timedelta] = field(default_factory=list[timedelta], repr=False)

    def add(self, request: Request, until: datetime) -> None:
        """Count a request, and the decision that ended its wait."""
        if request.decision is not None and not request.decision.is_withdrawal:
            self.add_decision(request, request.decision)
            return
        self.asked += 1
        if request.decision is not None:
            self.withdrawn += 1
        elif request.state is State.EXPIRED or request.expires_at <= until:
            self.expired += 1  # also where nobody has written it down yet
        else:
            self.waiting += 1

    def add_decision(self, request: Request, decision: Decision) -> None:
        """Count one person's decision or vote."""
        self.asked += 1
        match decision.verb:
            case "approve":
                self.approved += 1
                self.changed += decision.edited
            case "answer":
                self.answered += 1
            case "reject" | "feedback" | "cancel":
                self.refused += 1
        self.spans.append(max(decision.at - request.created_at, timedelta(0)))

    @property
    def approval_rate(self) -> float | None:
        """The share of approvals among what was approved or refused; None where nothing was."""
        decided = self.approved + self.refused
        return self.approved / decided if decided else None

    @property
    def hasty(self) -> int:
        """How many decisions took less than `HASTE`."""
        return sum(span < HASTE for span in self.spans)

    @property
    def hasty_share(self) -> float | None:
        """The share of these; None where nothing was decided."""
        return self.hasty / len(self.spans) if self.spans else None

    @property
    def median(self) -> timedelta | None:
        """The span within which half of the decisions were taken."""
        return self._within(50)

    @property
    def p90(self) -> timedelta | None:
        """The span within which nine of ten decisions were taken."""
        return self._within(90)

    def _within(self, percent: int) -> timedelta | None:
        return sorted(self.spans)[ceil(len(self.spans) * percent / 100) - 1] if self.spans else None


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
        hours: By the hour of the day, in UTC, at which they were asked; 24 of them.
        is_cut: There were more than the bound, and only the newest were looked at.
    """

    since: datetime
    until: datetime
    whole: Tally
    tools: list[tuple[str, Tally]]
    reviewers: list[tuple[Identity, Tally]]
    periods: list[Period]
    hours: list[Tally]
    is_cut: bool


def insight(store: Store, *, until: datetime, days: int, most: int = MOST) -> Insight:
    """Return what the requests say that were asked in the days before `until`.

    Args:
        store: Where they are.
        until: The end, which is now as a rule.
        days: How many days before it.
        most: At most so many requests are read, the newest.
    """
    begin = until.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days - 1)
    length = timedelta(days=1 if days <= _MOST_PERIODS else 7)
    periods = [Period(begin + at * length, Tally()) for at in range(ceil((until - begin) / length) or 1)]
    whole, is_cut, hours = Tally(), False, [Tally() for _ in range(24)]
    tools: dict[str, Tally] = {}
    names: dict[str, Identity] = {}  # two spellings of one person are one, under the newest of them
    reviewers: dict[Identity, Tally] = {}
    for request in _asked_since(store, begin, most + 1):
        if whole.asked == most:
            is_cut = True
            break
        period = periods[min((request.created_at - begin) // length, len(periods) - 1)]
        tool = request.call.tool if request.kind == "call" else QUESTIONS
        for tally in (whole, period.tally, hours[request.created_at.hour], tools.setdefault(tool, Tally())):
            tally.add(request, until)
        for decision in decisions_by_person(request):
            who = names.setdefault(decision.by.folded, decision.by)
            reviewers.setdefault(who, Tally()).add_decision(request, decision)
    return Insight(begin, until, whole, _by_count(tools), _by_count(reviewers), periods, hours, is_cut)


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


def _by_count(counted: Mapping[K, Tally]) -> list[tuple[K, Tally]]:
    return sorted(counted.items(), key=lambda pair: (-pair[1].asked, str(pair[0])))
