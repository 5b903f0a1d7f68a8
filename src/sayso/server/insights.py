"""The page of figures: how often people agree, how long they take, and how often they hardly looked.

The numbers are `sayso.insight`'s, the places in its charts `sayso.server.chart`'s. The invariant: reading them costs
the store one look in a minute, however many people ask.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock
from sayso.insight import MOST, QUESTIONS, Insight, Tally, insight
from sayso.learning import report
from sayso.server.chart import HEIGHT, WIDTH, brief_span, counts_chart, percent, spans_chart
from sayso.server.lesson import MOST as LESSONS
from sayso.server.lesson import Lessons, lessons
from sayso.server.page import render
from sayso.server.visit import Visit
from sayso.stores.base import Store
from sayso.view.summary import name_of, token

__all__ = ["Insights", "insights"]

WINDOWS = (7, 30, 90)
_FRESH = timedelta(minutes=1)
_MOST_ROWS = 50


class Insights:
    """What the requests of a store say, kept for a minute."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # so that of many who ask at once one looks and the others wait for it
        self._kept: dict[int, Insight] = {}
        self._taught: dict[int, Lessons] = {}

    def of(self, days: int) -> tuple[Insight, Lessons]:
        """Return what the requests of the last days say, and what they teach, at most a minute old."""
        with self._lock:
            now, kept = clock.now(), self._kept.get(days)
            if kept is None or not kept.until <= now < kept.until + _FRESH:
                kept = self._kept[days] = insight(self._store, until=now, days=days)
                self._taught[days] = lessons(report(self._store, since=kept.since, most=LESSONS))
            return kept, self._taught[days]


class _Figures(NamedTuple):
    """A row of a table, in words."""

    name: str
    asked: int
    approved: int
    changed: int
    refused: int
    answered: int
    expired: int
    rate: str
    median: str
    p90: str
    hasty: str
    bar: int


def insights(visit: Visit) -> Response:
    """Show what the decisions of the last days say."""
    days = visit.asked("days") or "30"
    if days not in map(str, WINDOWS):
        raise HTTPException(400, f"there are figures of {', '.join(map(str, WINDOWS))} days")
    kept: Insights = visit.http.app.state.insights
    found, taught = kept.of(int(days))
    return render(
        visit, "insights.html", days=int(days), windows=WINDOWS, most=MOST, found=found, taught=taught,
        whole=_figures("all", found.whole), width=WIDTH, height=HEIGHT,
        tools=[_figures(name, tally) for name, tally in _named(found.tools[:_MOST_ROWS])],
        reviewers=[_figures(name_of(who), tally) for who, tally in found.reviewers[:_MOST_ROWS]],
        periods=[_figures(f"{begin:%Y-%m-%d}", tally) for begin, tally in found.periods],
        counts=counts_chart(found.periods), spans=spans_chart(found.periods),
    )  # fmt: skip


def _named(tools: Sequence[tuple[str, Tally]]) -> Iterator[tuple[str, Tally]]:
    """Yield functions by their short names, and by whole ones where two have the same."""
    short = Counter(tool.rpartition(":")[2] for tool, _ in tools)
    for tool, tally in tools:
        name = tool.rpartition(":")[2]
        yield tool if tool == QUESTIONS else token(name if short[name] == 1 else tool), tally


def _figures(name: str, tally: Tally) -> _Figures:
    rate = tally.approval_rate
    return _Figures(
        name, tally.asked, tally.approved, tally.changed, tally.refused, tally.answered, tally.expired,
        percent(rate), brief_span(tally.median), brief_span(tally.p90), percent(tally.hasty_share),
        0 if rate is None else round(rate * 100),
    )  # fmt: skip
