"""The page of figures: how often people agree, how long they take, and what could become a rule.

The numbers are those of `sayso.server.statistics` and `sayso.learning`; here charts become coordinates that a template
draws as inline SVG. Reading them costs the store one look in a minute, however many people ask, and nothing on the page
changes a gate.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import log10
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock
from sayso.learning import Report, report
from sayso.server.context import RequestContext
from sayso.server.pages.rendering import brief_span, render
from sayso.server.statistics import MOST, QUESTIONS, Insight, Period, Tally, insight
from sayso.stores.base import Store
from sayso.view.summary import token

__all__ = ["HEIGHT", "WIDTH", "Box", "Chart", "Insights", "Label", "counts_chart", "insights", "spans_chart"]

WINDOWS = (7, 30, 90)
_FRESH = timedelta(minutes=1)
_MOST_ROWS = 50
_MOST_DECISIONS = 10_000


class Insights:
    """What the requests of a store say, kept for a minute."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # so that of many who ask at once one looks and the others wait for it
        self._cached: dict[int, tuple[Insight, Report]] = {}

    def of(self, days: int) -> tuple[Insight, Report]:
        """Return what the requests of the last days say, and what they teach, at most a minute old."""
        with self._lock:
            now, cached = clock.now(), self._cached.get(days)
            if cached is None or not cached[0].until <= now < cached[0].until + _FRESH:
                found = insight(self._store, until=now, days=days)
                cached = found, report(self._store, since=found.since, most=_MOST_DECISIONS)
                self._cached[days] = cached
            return cached


def insights(context: RequestContext) -> Response:
    """Show what the decisions of the last days say."""
    days = context.query("days") or "30"
    if days not in map(str, WINDOWS):
        raise HTTPException(400, f"there are figures of {', '.join(map(str, WINDOWS))} days")
    cache: Insights = context.http.app.state.insights
    found, taught = cache.of(int(days))
    return render(
        context, "insights.html", days=int(days), windows=WINDOWS, most=MOST, found=found, taught=taught,
        width=WIDTH, height=HEIGHT, tools=_named(found.tools[:_MOST_ROWS]), reviewers=found.reviewers[:_MOST_ROWS],
        counts=counts_chart(found.periods), spans=spans_chart(found.periods),
    )  # fmt: skip


def _named(tools: Sequence[tuple[str, Tally]]) -> list[tuple[str, Tally]]:
    """Return functions by their short names, and by whole ones where two have the same."""
    names = Counter(tool.rpartition(":")[2] for tool, _ in tools)
    return [
        (tool if tool == QUESTIONS else token(short if names[short] == 1 else tool), tally)
        for tool, tally in tools for short in [tool.rpartition(":")[2]]
    ]  # fmt: skip


WIDTH, HEIGHT = 400, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 396, 8, 146
_SCALE = {"1s": 1, "10s": 10, "1m": 60, "10m": 600, "1h": 3_600, "6h": 21_600, "1d": 86_400, "7d": 604_800}
_LONGEST = _SCALE["7d"]


class Box(NamedTuple):
    """A rectangle, of which kind it is, and what it says when it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    said: str


class Label(NamedTuple):
    """A line across at a height, or a mark below at a place, with its text."""

    at: float
    label: str


class Chart(NamedTuple):
    """What a template draws: the figures, lines across, and labels below."""

    boxes: Sequence[Box] = ()
    lines: Sequence[Label] = ()
    marks: Sequence[Label] = ()


def counts_chart(periods: Sequence[Period]) -> Chart:
    """Return how many were approved, refused and answered, and how many ended without a decision."""
    kinds = ("approved", "answered", "refused", "expired")
    counted = [[(kind, getattr(period.tally, kind)) for kind in kinds] for period in periods]
    most = max((sum(count for _, count in counts) for counts in counted), default=0)
    if not most:
        return Chart()
    scale, boxes = (_BOTTOM - _TOP) / most, list[Box]()
    for at, counts in enumerate(counted):
        (x, width), floor = _column(at, len(periods)), float(_BOTTOM)
        for kind, count in counts:
            height = round(count * scale, 1)
            floor = round(floor - height, 1)
            if count:
                boxes.append(Box(x, floor, width, height, kind, f"{_day(periods[at].begin)}: {count} {kind}"))
    lines = [Label(round(_BOTTOM - count * scale, 1), str(count)) for count in sorted({0, most // 2, most})]
    return Chart(boxes, lines, _marks(periods))


def spans_chart(periods: Sequence[Period]) -> Chart:
    """Return from the median to where nine of ten decisions were taken, on a scale of times."""
    boxes: list[Box] = []
    for at, (begin, tally) in enumerate(periods):
        median, p90 = tally.median, tally.p90
        if median is None or p90 is None:
            continue
        x, width = _column(at, len(periods))
        low, high = _height(median.total_seconds()), _height(p90.total_seconds())
        said = f"{_day(begin)}: half within {brief_span(median)}, nine of ten within {brief_span(p90)}"
        boxes.append(Box(x, high, width, round(max(low - high, 2), 1), "span", said))
        boxes.append(Box(x, round(low - 1, 1), width, 3, "median", said))
    if not boxes:
        return Chart()
    return Chart(boxes, [Label(_height(seconds), name) for name, seconds in _SCALE.items()], _marks(periods))


def _column(at: int, count: int) -> tuple[float, float]:
    room = (_RIGHT - _LEFT) / count
    return round(_LEFT + at * room + room * 0.1, 1), round(room * 0.8, 1)


def _height(seconds: float) -> float:
    """Return how high a span stands: each tenfold is as high as the one below it."""
    return round(_BOTTOM - log10(min(max(seconds, 1), _LONGEST)) / log10(_LONGEST) * (_BOTTOM - _TOP), 1)


def _marks(periods: Sequence[Period]) -> list[Label]:
    count = len(periods)
    middles = {at: sum(_column(at, count)) - _column(at, count)[1] / 2 for at in (0, count // 2, count - 1)}
    return [Label(round(min(x, _RIGHT - 18), 1), _day(periods[at].begin)) for at, x in sorted(middles.items())]


def _day(at: datetime) -> str:
    return at.strftime("%d %b")
