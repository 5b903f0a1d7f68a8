"""The page of figures: how often people agree, how long they take, and what could become a rule.

The numbers are those of `sayso.server.statistics` and `sayso.learning`; here they become words, and charts as
coordinates that a template draws as inline SVG. Reading them costs the store one look in a minute, however many people
ask, and nothing on the page changes a gate.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from math import log10
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock
from sayso.learning import Candidate, Edit, Report, Stamp, report
from sayso.model.duration import text
from sayso.model.escaping import escape
from sayso.server.context import RequestContext
from sayso.server.pages.rendering import render
from sayso.server.statistics import MOST, QUESTIONS, Insight, Period, Tally, insight
from sayso.stores.base import Store
from sayso.view.summary import name_of, token

__all__ = [
    "HEIGHT",
    "MOST_DECISIONS",
    "WIDTH",
    "Box",
    "Chart",
    "Insights",
    "LearningReport",
    "Line",
    "brief_span",
    "counts_chart",
    "draw_report",
    "insights",
    "percent",
    "spans_chart",
]

WINDOWS = (7, 30, 90)
_FRESH = timedelta(minutes=1)
_MOST_ROWS = 50


class Insights:
    """What the requests of a store say, kept for a minute."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # so that of many who ask at once one looks and the others wait for it
        self._kept: dict[int, Insight] = {}
        self._taught: dict[int, LearningReport] = {}

    def of(self, days: int) -> tuple[Insight, LearningReport]:
        """Return what the requests of the last days say, and what they teach, at most a minute old."""
        with self._lock:
            now, kept = clock.now(), self._kept.get(days)
            if kept is None or not kept.until <= now < kept.until + _FRESH:
                kept = self._kept[days] = insight(self._store, until=now, days=days)
                self._taught[days] = draw_report(report(self._store, since=kept.since, most=MOST_DECISIONS))
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


def insights(context: RequestContext) -> Response:
    """Show what the decisions of the last days say."""
    days = context.query("days") or "30"
    if days not in map(str, WINDOWS):
        raise HTTPException(400, f"there are figures of {', '.join(map(str, WINDOWS))} days")
    kept: Insights = context.http.app.state.insights
    found, taught = kept.of(int(days))
    return render(
        context, "insights.html", days=int(days), windows=WINDOWS, most=MOST, found=found, taught=taught,
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


WIDTH, HEIGHT = 400, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 396, 8, 146
_SCALE = [(timedelta(seconds=count), name) for count, name in (
    (1, "1s"), (10, "10s"), (60, "1m"), (600, "10m"), (3_600, "1h"), (21_600, "6h"), (86_400, "1d"), (604_800, "7d"),
)]  # fmt: skip


class Box(NamedTuple):
    """A rectangle, of which kind it is, and what it says when it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    said: str


class Line(NamedTuple):
    """A line across at a height, or a mark below at a place, with its label."""

    at: float
    label: str


class Chart(NamedTuple):
    """What a template draws.

    Attributes:
        boxes: The figures.
        lines: Lines across.
        marks: Labels below.
    """

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    marks: tuple[Line, ...]


def counts_chart(periods: Sequence[Period]) -> Chart:
    """Return how many were approved, refused and answered, and how many ended without a decision."""
    most = max([_decided(period) for period in periods], default=0)
    if not most:
        return Chart((), (), ())
    boxes: list[Box] = []
    for at, period in enumerate(periods):
        x, width = _column(at, len(periods))
        floor = float(_BOTTOM)
        for kind, count in _counted(period):
            height = round(count / most * (_BOTTOM - _TOP), 1)
            floor = round(floor - height, 1)
            if count:
                boxes.append(Box(x, floor, width, height, kind, f"{_day_label(period.begin)}: {count} {kind}"))
    lines = tuple(Line(round(_BOTTOM - count / most * (_BOTTOM - _TOP), 1), str(count)) for count in _rungs(most))
    return Chart(tuple(boxes), lines, _marks(periods))


def spans_chart(periods: Sequence[Period]) -> Chart:
    """Return from the median to where nine of ten decisions were taken, on a scale of times."""
    boxes: list[Box] = []
    for at, period in enumerate(periods):
        median, p90 = period.tally.median, period.tally.p90
        if median is None or p90 is None:
            continue
        x, width = _column(at, len(periods))
        low, high = _height(median), _height(p90)
        said = f"{_day_label(period.begin)}: half within {brief_span(median)}, nine of ten within {brief_span(p90)}"
        boxes.append(Box(x, high, width, round(max(low - high, 2), 1), "span", said))
        boxes.append(Box(x, round(low - 1, 1), width, 3, "median", said))
    if not boxes:
        return Chart((), (), ())
    return Chart(tuple(boxes), tuple(Line(_height(span), name) for span, name in _SCALE), _marks(periods))


def percent(share: float | None) -> str:
    """Return a share as people read it."""
    return "-" if share is None else f"{share:.0%}"


def brief_span(span: timedelta | None) -> str:
    """Return a span as people read it, to a tenth of a second where it is short."""
    if span is None:
        return "-"
    seconds = span.total_seconds()
    return f"{seconds:.1f}s" if seconds < 10 else text(timedelta(seconds=round(seconds)))


def _decided(period: Period) -> int:
    return sum(count for _, count in _counted(period))


def _counted(period: Period) -> list[tuple[str, int]]:
    tally = period.tally
    return [
        ("approved", tally.approved), ("answered", tally.answered), ("refused", tally.refused),
        ("expired", tally.expired),
    ]  # fmt: skip


def _column(at: int, count: int) -> tuple[float, float]:
    room = (_RIGHT - _LEFT) / count
    return round(_LEFT + at * room + room * 0.1, 1), round(room * 0.8, 1)


def _rungs(most: int) -> list[int]:
    return sorted({0, most // 2, most})


def _height(span: timedelta) -> float:
    """Return how high a span stands: each tenfold is as high as the one below it."""
    low, high = _SCALE[0][0].total_seconds(), _SCALE[-1][0].total_seconds()
    seconds = min(max(span.total_seconds(), low), high)
    return round(_BOTTOM - log10(seconds / low) / log10(high / low) * (_BOTTOM - _TOP), 1)


def _marks(periods: Sequence[Period]) -> tuple[Line, ...]:
    places = sorted({0, len(periods) // 2, len(periods) - 1})
    return tuple(Line(_middle(at, len(periods)), _day_label(periods[at].begin)) for at in places)


def _middle(at: int, count: int) -> float:
    x, width = _column(at, count)
    return round(min(x + width / 2, _RIGHT - 18), 1)


def _day_label(at: datetime) -> str:
    return at.strftime("%d %b")


MOST_DECISIONS = 10_000
_MOST_FINDINGS = 20
_REASON_ROOM = 200


class _RuleCandidate(NamedTuple):
    tool: str
    risk: str
    approved: str
    reviewers: int
    median: str
    is_hasty: bool
    went_wrong: int
    fields: list[tuple[str, str]]
    rule: str


class LearningReport(NamedTuple):
    """A report in words, each list no longer than a page takes."""

    decisions: int
    is_cut: bool
    candidates: list[_RuleCandidate]
    edits: list[tuple[str, str, str, str]]
    stamps: list[tuple[str, str, str, str, bool]]
    reasons: list[tuple[int, str, str]]


def draw_report(found: Report) -> LearningReport:
    """Return a report in words."""
    return LearningReport(
        found.decisions,
        found.is_cut,
        [_candidate_row(one) for one in found.candidates[:_MOST_FINDINGS]],
        [_edit_row(one) for one in found.edits[:_MOST_FINDINGS]],
        [_quick_approver(one) for one in found.stamps[:_MOST_FINDINGS]],
        [
            (one.count, escape(one.words[:_REASON_ROOM]) or "without a word", ", ".join(map(token, one.tools[:3])))
            for one in found.reasons
        ],
    )


def _candidate_row(one: Candidate) -> _RuleCandidate:
    return _RuleCandidate(
        token(one.tool), token(one.risk) if one.risk else "", str(one.approved), one.reviewers, brief_span(one.median),
        one.is_hasty, one.went_wrong, [(token(name), escape(said)) for name, said in one.fields.items()],
        "" if one.rule is None else escape(one.rule, block=True),
    )  # fmt: skip


def _edit_row(one: Edit) -> tuple[str, str, str, str]:
    ways = [f"{count:,} {way}" for count, way in ((one.lowered, "lowered"), (one.raised, "raised")) if count]
    return token(one.tool), token(one.name), str(one.changed), ", ".join(ways)


def _quick_approver(one: Stamp) -> tuple[str, str, str, str, bool]:
    risk = token(one.risk) if one.risk else "-"
    return name_of(one.reviewer), risk, brief_span(one.median), str(one.hasty), one.is_warning
