"""The page of figures: how often people agree, how long they take, and what could become a rule.

The numbers are those of `sayso.server.statistics` and `sayso.learning`; here charts become coordinates that a template
draws as inline SVG. Reading them costs the store one look in a minute, however many people ask, and nothing on the page
changes a gate.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
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
from sayso.view.summary import name_of, token

__all__ = [
    "HEIGHT", "WIDTH", "Bar", "Box", "Chart", "Insights", "Label", "bar", "counts_chart", "insights", "waits_chart",
]  # fmt: skip

WINDOWS = (7, 30, 90)
_FRESH = timedelta(minutes=1)
_MOST_ROWS, _MOST_BARS = 50, 8
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
    history = partial(context.path, "history")
    tools = _tools(found.tools, history)[:_MOST_ROWS]
    reviewers = [_Named(name_of(who), history(by=who.subject), tally) for who, tally in found.reviewers[:_MOST_ROWS]]
    every_day = [_Named(f"{begin:%Y-%m-%d}", "", tally) for begin, tally in found.periods]
    every_hour = [_Named(f"{hour:02}:00", "", tally) for hour, tally in enumerate(found.hours) if tally.asked]
    return render(
        context, "insights.html", days=int(days), windows=WINDOWS, most=MOST, found=found, taught=taught,
        width=WIDTH, height=HEIGHT, counts=counts_chart(found.periods), waits=waits_chart(found.hours),
        tables={"tool": tools, "reviewer": reviewers, "day": every_day, "hour": every_hour},
        by_tool=_decisions(tools), by_reviewer=_decisions(reviewers), edited=_edited(taught, history),
        hasty=_hasty(reviewers), expired=_expired(tools),
        requests=history(**{"from": f"{found.since:%Y-%m-%d}", "to": f"{found.until:%Y-%m-%d}"}),
    )  # fmt: skip


class _Named(NamedTuple):
    """Figures of a function, a person or a time: its name, and where its requests are listed, if that is anywhere."""

    name: str
    link: str
    tally: Tally


def _tools(tools: Sequence[tuple[str, Tally]], history: Callable[..., str]) -> list[_Named]:
    """Return functions by their short names, and by whole ones where two have the same; the history knows the short."""
    short = [tool.rpartition(":")[2] for tool, _ in tools]
    count = Counter(short)
    return [
        _Named(QUESTIONS, history(verb="answer"), tally) if tool == QUESTIONS
        else _Named(token(name if count[name] == 1 else tool), history(tool=name), tally)
        for (tool, tally), name in zip(tools, short, strict=True)
    ]  # fmt: skip


class Bar(NamedTuple):
    """A line of a chart: a name, where its requests are listed, its parts (kind, place, width), and what it says."""

    name: str
    link: str
    parts: Sequence[tuple[str, float, float]]
    said: str


def bar(name: str, link: str, counts: Sequence[tuple[str, int]], whole: int, said: str) -> Bar:
    """Return a bar whose parts are shares of `whole`, in hundredths of its length, one after another."""
    at, parts = 0.0, list[tuple[str, float, float]]()
    for kind, count in counts:
        width = round(100 * count / whole, 2) if whole else 0.0
        if count:
            parts.append((kind, round(at, 2), width))
        at += width
    return Bar(name, link, parts, said)


def _decisions(rows: Sequence[_Named]) -> list[Bar]:
    """Return how many requests each has had and what became of them, on one scale."""
    most = max((row.tally.asked for row in rows), default=0)
    return [
        bar(row.name, row.link, [
            ("approved", tally.approved - tally.changed), ("changed", tally.changed), ("answered", tally.answered),
            ("refused", tally.refused), ("expired", tally.expired),
        ], most, f"{tally.asked:,}" + (f", {rate:.0%} approved" if rate is not None else ""))
        for row in rows[:_MOST_BARS] for tally in [row.tally] for rate in [tally.approval_rate]
    ]  # fmt: skip


def _edited(taught: Report, history: Callable[..., str]) -> list[Bar]:
    """Return which arguments people change before they approve, and how often."""
    found = sorted(taught.edits, key=lambda one: -one.changed.part)[:_MOST_BARS]
    return [
        bar(f"{token(one.tool.rpartition(':')[2])}: {token(one.name)}",
            history(tool=one.tool.rpartition(":")[2], verb="approve"),
            [("changed", one.changed.part)], one.changed.whole, f"{one.changed.part:,} of {one.changed.whole:,}")
        for one in found
    ]  # fmt: skip


def _hasty(reviewers: Sequence[_Named]) -> list[Bar]:
    """Return which share of their decisions people took in less time than it takes to read."""
    found = sorted(reviewers, key=lambda row: -(row.tally.hasty_share or 0))[:_MOST_BARS]
    return [
        bar(row.name, row.link, [("hasty", row.tally.hasty)], len(row.tally.spans),
            f"{row.tally.hasty:,} of {len(row.tally.spans):,}")
        for row in found if row.tally.spans
    ]  # fmt: skip


def _expired(tools: Sequence[_Named]) -> list[Bar]:
    """Return which functions' requests end without a decision, and how often."""
    found = sorted((row for row in tools if row.tally.expired), key=lambda row: -row.tally.expired)[:_MOST_BARS]
    return [
        bar(row.name, row.link.replace("verb=answer", "state=expired") if row.name == QUESTIONS
            else f"{row.link}&state=expired", [("expired", row.tally.expired)], row.tally.asked,
            f"{row.tally.expired:,} of {row.tally.asked:,}")
        for row in found
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


def waits_chart(hours: Sequence[Tally]) -> Chart:
    """Return, for each hour of the day, from the median to where nine of ten decisions were taken."""
    boxes: list[Box] = []
    for hour, tally in enumerate(hours):
        median, p90 = tally.median, tally.p90
        if median is None or p90 is None:
            continue
        x, width = _column(hour, len(hours))
        low, high = _height(median.total_seconds()), _height(p90.total_seconds())
        said = f"asked from {hour:02}:00: half within {brief_span(median)}, nine of ten within {brief_span(p90)}"
        boxes.append(Box(x, high, width, round(max(low - high, 2), 1), "span", said))
        boxes.append(Box(x, round(low - 1, 1), width, 3, "median", said))
    if not boxes:
        return Chart()
    columns = {hour: _column(hour, len(hours)) for hour in range(0, len(hours), 6)}
    marks = [Label(round(x + width / 2, 1), f"{hour:02}") for hour, (x, width) in columns.items()]
    return Chart(boxes, [Label(_height(seconds), name) for name, seconds in _SCALE.items()], marks)


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
