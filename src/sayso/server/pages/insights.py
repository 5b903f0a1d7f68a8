"""The insights page: how often people approve, how long they take, and how often they decide in haste.

The figures are computed from the newest requests of a store, up to a limit, so the cost does not grow with the store. A
request counts for the UTC day on which it was asked; undecided ones are left out of the shares of decisions. A template
draws the figures as bars and columns in inline SVG. The store is read at most once a minute per window, however many
people open the page. Nothing on the page changes a gate.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import ceil, log10
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock
from sayso.learning import HASTE, Report, decisions_by_person, report
from sayso.model import duration
from sayso.model.rendering import quote_if_needed
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import Identity, name_of
from sayso.model.text import later, say
from sayso.server.context import RequestContext
from sayso.server.pages.rendering import brief_span, render
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

MOST = 5_000
QUESTIONS = later("questions")
_MOST_PERIODS = 31


@dataclass
class Tally:
    """Counts of requests and decisions.

    Attributes:
        asked: Requests; for a reviewer, those that the person decided or voted on. Those that a grant or a budget
            approved are counted only here.
        changed: Approved ones that were changed.
        refused: Requests that a person rejected, sent back or cancelled.
        expired: Requests that expired without a decision.
        withdrawn: Requests that the program withdrew.
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
        """Count a request with its decision or its current state; `until` is the current time."""
        decision = request.decision
        if decision is not None and decision.under is None and not decision.is_withdrawal:
            self.add_decision(request, decision)
            return
        self.asked += 1
        if decision is not None:
            self.withdrawn += decision.under is None
        elif request.state is State.EXPIRED or request.expires_at <= until:
            self.expired += 1  # even if it is not recorded as expired yet
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
        """The share of approvals among approved and refused requests; None if there are none."""
        decided = self.approved + self.refused
        return self.approved / decided if decided else None

    @property
    def hasty(self) -> int:
        """The number of decisions that took less than `HASTE`."""
        return sum(span < HASTE for span in self.spans)

    @property
    def hasty_share(self) -> float | None:
        """The share of hasty decisions; None if there are no decisions."""
        return self.hasty / len(self.spans) if self.spans else None

    def within(self, percent: int) -> timedelta | None:
        """Return the time within which this percentage of the decisions were made; None if there are none."""
        return sorted(self.spans)[ceil(len(self.spans) * percent / 100) - 1] if self.spans else None


@dataclass(frozen=True)
class Insight:
    """The figures of a range of time.

    Attributes:
        since, until: The range in which the counted requests were asked.
        whole: All requests.
        tools: By function, the most asked first; all questions together as `QUESTIONS`.
        reviewers: By person, the one with the most decisions first.
        periods: By day, or by week for a long range, with when it begins.
        hours: By the hour of the UTC day at which they were asked; 24 tallies.
        is_cut: Whether there were more requests than the limit, so that only the newest were counted.
    """

    since: datetime
    until: datetime
    whole: Tally
    tools: list[tuple[str, Tally]]
    reviewers: list[tuple[Identity, Tally]]
    periods: list[tuple[datetime, Tally]]
    hours: list[Tally]
    is_cut: bool


def insight(store: Store, *, until: datetime, days: int, most: int = MOST) -> Insight:
    """Return the figures of the requests that were asked in the days up to and including that of `until`.

    No more than the newest `most` requests are read.
    """
    begin = until.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days - 1)
    length = timedelta(days=1 if days <= _MOST_PERIODS else 7)
    periods = [(begin + at * length, Tally()) for at in range(ceil((until - begin) / length) or 1)]
    whole, is_cut, hours = Tally(), False, [Tally() for _ in range(24)]
    tools: dict[str, Tally] = {}
    names: dict[str, Identity] = {}  # spellings of one person are merged under the newest one
    reviewers: dict[Identity, Tally] = {}
    for request in requests_in(store, Filter(), since=begin):
        if whole.asked == most:
            is_cut = True
            break
        _, of_period = periods[min((request.created_at - begin) // length, len(periods) - 1)]
        tool = request.call.tool if request.kind == "call" else QUESTIONS
        for tally in (whole, of_period, hours[request.created_at.hour], tools.setdefault(tool, Tally())):
            tally.add(request, until)
        for decision in decisions_by_person(request):
            who = names.setdefault(decision.by.folded, decision.by)
            reviewers.setdefault(who, Tally()).add_decision(request, decision)

    def most_asked(pair: tuple[object, Tally]) -> tuple[int, str]:
        return -pair[1].asked, str(pair[0])

    by_tool, by_reviewer = sorted(tools.items(), key=most_asked), sorted(reviewers.items(), key=most_asked)
    return Insight(begin, until, whole, by_tool, by_reviewer, periods, hours, is_cut)


WINDOWS = (7, 30, 90)
_FRESH = timedelta(minutes=1)
_MOST_ROWS, _MOST_BARS = 50, 8
_MOST_DECISIONS = 10_000


class Insights:
    """The figures of a store, cached for a minute."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # of concurrent page views, one computes and the others wait for its result
        self._cached: dict[int, tuple[Insight, Report]] = {}

    def of(self, days: int) -> tuple[Insight, Report]:
        """Return the figures of the last days and the report of `sayso.learning`, at most a minute old."""
        with self._lock:
            now, cached = clock.now(), self._cached.get(days)
            if cached is None or not cached[0].until <= now < cached[0].until + _FRESH:
                found = insight(self._store, until=now, days=days)
                cached = found, report(self._store, since=found.since, most=_MOST_DECISIONS)
                self._cached[days] = cached
            return cached


def insights(context: RequestContext) -> Response:
    """Show the figures of the last 7, 30 or 90 days."""
    days = context.query("days") or "30"
    if days not in map(str, WINDOWS):
        raise HTTPException(400, say("choose one of %(days)s days", days=", ".join(map(str, WINDOWS))))
    cache: Insights = context.http.app.state.insights
    found, taught = cache.of(int(days))
    history = partial(context.path, "history")
    tools = _tools(found.tools, history)[:_MOST_ROWS]
    reviewers = [_Named(name_of(who), history(by=who.subject), tally) for who, tally in found.reviewers[:_MOST_ROWS]]
    every_day = [_Named(f"{begin:%Y-%m-%d}", "", tally) for begin, tally in found.periods]
    every_hour = [_Named(f"{hour:02}:00", "", tally) for hour, tally in enumerate(found.hours) if tally.asked]
    edited = sorted(taught.edits, key=lambda one: -one.changed.part)[:_MOST_BARS]
    short = [one.tool.rpartition(":")[2] for one in edited]
    hasty = sorted(reviewers, key=lambda row: -(row.tally.hasty_share or 0))[:_MOST_BARS]
    expired = sorted((row for row in tools if row.tally.expired), key=lambda row: -row.tally.expired)[:_MOST_BARS]
    return render(
        context, "insights.html", days=int(days), windows=WINDOWS, most=MOST, found=found, taught=taught,
        counts=counts_chart(found.periods), waits=waits_chart(found.hours),
        tables={"tool": tools, "reviewer": reviewers, "day": every_day, "hour": every_hour},
        by_tool=_decisions(tools), by_reviewer=_decisions(reviewers),
        edited=[
            _share(
                "changed", f"{quote_if_needed(tool)}: {quote_if_needed(one.name)}",
                history(tool=tool, verb="approve"), *one.changed,
            )
            for one, tool in zip(edited, short, strict=True)
        ],
        hasty=[
            _share("hasty", row.name, row.link, row.tally.hasty, len(row.tally.spans))
            for row in hasty if row.tally.spans
        ],
        expired=[
            _share("expired", row.name, row.link.replace("verb=answer", "state=expired") if "verb=answer" in row.link
                   else f"{row.link}&state=expired", row.tally.expired, row.tally.asked)
            for row in expired
        ],
        requests=history(**{"from": f"{found.since:%Y-%m-%d}", "to": f"{found.until:%Y-%m-%d}"}),
    )  # fmt: skip


class _Named(NamedTuple):
    """The figures of a function, person or period, with the address where its requests are listed, or empty."""

    name: str
    link: str
    tally: Tally


def _tools(tools: Sequence[tuple[str, Tally]], history: Callable[..., str]) -> list[_Named]:
    """Return functions by short name, or by full name if two share it; links to the history use the short one."""
    short = [tool.rpartition(":")[2] for tool, _ in tools]
    count = Counter(short)
    return [
        _Named(say(QUESTIONS), history(verb="answer"), tally) if tool == QUESTIONS
        else _Named(quote_if_needed(name if count[name] == 1 else tool), history(tool=name), tally)
        for (tool, tally), name in zip(tools, short, strict=True)
    ]  # fmt: skip


class Bar(NamedTuple):
    """A bar of a chart: its name, link, parts (kind, offset, width) and label."""

    name: str
    link: str
    parts: Sequence[tuple[str, float, float]]
    label: str


def bar(name: str, link: str, counts: Sequence[tuple[str, int]], whole: int, label: str) -> Bar:
    """Return a bar whose adjoining parts are percentages of `whole`."""
    at, parts = 0.0, list[tuple[str, float, float]]()
    for kind, count in counts:
        width = round(100 * count / whole, 2) if whole else 0.0
        if count:
            parts.append((kind, round(at, 2), width))
        at += width
    return Bar(name, link, parts, label)


def _share(kind: str, name: str, link: str, part: int, whole: int) -> Bar:
    """Return a bar with one part of a whole."""
    label = say("%(part)s of %(whole)s", part=f"{part:,}", whole=f"{whole:,}")
    return bar(name, link, [(kind, part)], whole, label)


def _decisions(rows: Sequence[_Named]) -> list[Bar]:
    most = max((row.tally.asked for row in rows), default=0)
    return [
        bar(row.name, row.link, [
            ("approved", tally.approved - tally.changed), ("changed", tally.changed), ("answered", tally.answered),
            ("refused", tally.refused), ("expired", tally.expired),
        ], most, f"{tally.asked:,}" if rate is None
            else say("%(count)s, %(rate)s approved", count=f"{tally.asked:,}", rate=f"{rate:.0%}"))
        for row in rows[:_MOST_BARS] for tally in [row.tally] for rate in [tally.approval_rate]
    ]  # fmt: skip


_SCALE = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800)  # seconds
_MONTHS = (
    later("%(day)s Jan"), later("%(day)s Feb"), later("%(day)s Mar"), later("%(day)s Apr"), later("%(day)s May"),
    later("%(day)s Jun"), later("%(day)s Jul"), later("%(day)s Aug"), later("%(day)s Sep"), later("%(day)s Oct"),
    later("%(day)s Nov"), later("%(day)s Dec"),
)  # fmt: skip


class Chart(NamedTuple):
    """A chart for a template: columns, and grid lines with their height in percent and their label."""

    columns: Sequence[Bar] = ()
    lines: Sequence[tuple[float, str]] = ()


def counts_chart(periods: Sequence[tuple[datetime, Tally]]) -> Chart:
    """Return the chart of approved, answered, refused and expired requests per period."""
    kinds = (later("approved"), later("answered"), later("refused"), later("expired"))
    counted = [[(kind, getattr(tally, kind)) for kind in kinds] for _, tally in periods]
    most = max((sum(count for _, count in counts) for counts in counted), default=0)
    if not most:
        return Chart()
    names = [say(_MONTHS[begin.month - 1], day=f"{begin:%d}") for begin, _ in periods]
    texts = [", ".join(f"{count} {say(kind)}" for kind, count in counts if count) for counts in counted]
    columns = [
        bar(name, "", counts, most, f"{name}: {text}") for name, counts, text in zip(names, counted, texts, strict=True)
    ]
    return Chart(columns, [(round(100 * count / most, 2), str(count)) for count in sorted({0, most // 2, most})])


def waits_chart(hours: Sequence[Tally]) -> Chart:
    """Return the chart of waiting times per hour of the day, from the median to the 90th percentile."""

    def height(seconds: float) -> float:
        """Return the height of a span in percent, on a logarithmic scale."""
        return round(98 * log10(min(max(seconds, 1), _SCALE[-1])) / log10(_SCALE[-1]), 2)

    columns: list[Bar] = []
    for hour, tally in enumerate(hours):
        name, median, p90 = f"{hour:02}", tally.within(50), tally.within(90)
        if median is None or p90 is None:
            columns.append(Bar(name, "", (), ""))
            continue
        low, high = height(median.total_seconds()), height(p90.total_seconds())
        label = say(
            "asked from %(hour)s:00: 50 %% within %(half)s, 90 %% within %(most)s", hour=name,
            half=brief_span(median), most=brief_span(p90),
        )  # fmt: skip
        columns.append(Bar(name, "", [("span", low, round(max(high - low, 2), 2)), ("median", low, 2)], label))
    if not any(column.parts for column in columns):
        return Chart()
    return Chart(
        columns, [(height(seconds), duration.text(timedelta(seconds=seconds)).replace(" ", "")) for seconds in _SCALE]
    )
