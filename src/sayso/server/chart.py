"""Charts as places of lines and boxes: numbers go in, coordinates come out, and a template draws them as inline SVG.

There are two kinds: columns of counts, one part on another, and spans from a middle to a high value on a scale of
times. The invariant: no text gets in here but our own and dates, and a chart of nothing has no boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import log10
from typing import NamedTuple

from sayso.insight import Period
from sayso.model.duration import text

__all__ = ["HEIGHT", "WIDTH", "Box", "Chart", "Line", "brief_span", "counts_chart", "percent", "spans_chart"]

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
                boxes.append(Box(x, floor, width, height, kind, f"{_day(period.begin)}: {count} {kind}"))
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
        said = f"{_day(period.begin)}: half within {brief_span(median)}, nine of ten within {brief_span(p90)}"
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
    return tuple(Line(_middle(at, len(periods)), _day(periods[at].begin)) for at in places)


def _middle(at: int, count: int) -> float:
    x, width = _column(at, count)
    return round(min(x + width / 2, _RIGHT - 18), 1)


def _day(at: datetime) -> str:
    return at.strftime("%d %b")
