"""What decisions say in numbers, and where the parts of a chart stand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

import sayso
from sayso import clock as sayso_clock
from sayso.model.request import Request, State
from sayso.model.reviewer import PROGRAM, Identity, Quorum
from sayso.server.pages.insights import QUESTIONS, Insight, Tally, bar, counts_chart, insight, waits_chart
from sayso.server.pages.rendering import brief_span, percent
from sayso.stores.memory import MemoryStore
from sayso.testing import sample_call, sample_question
from tests.conftest import Clock


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def decided(store: MemoryStore, clock: Clock, verb: str, seconds: float, by: str = "ada", **changes: Any) -> Request:
    """Let somebody decide a request that was asked so many seconds ago."""
    request = store.ask(sample_call(None, {"amount": 10, "to": "kim", "password": "x"}))
    clock.tick(seconds=seconds)
    review = sayso.Review(store, reviewer=by)
    match verb:
        case "approve":
            return review.approve(request.id, changes=changes or None)
        case "feedback":
            return review.feedback(request.id, "not so")
        case "cancel":
            return review.cancel(request.id)
        case _:
            return review.reject(request.id)


def seen(store: MemoryStore, days: int = 30, **options: Any) -> Insight:
    return insight(store, until=sayso_clock.now(), days=days, **options)


def test_what_a_grant_approved_is_nobodys_decision(store: MemoryStore, clock: Clock) -> None:
    first = store.ask(sample_call(None, {"amount": 10, "to": "kim"}))
    clock.tick(seconds=60)
    sayso.Review(store, reviewer="ada").grant(first.id, count=5, lasts="1h", seen=first.fingerprint)
    for _ in range(3):
        assert store.ask(sample_call(None, {"amount": 10, "to": "kim"})).state is State.APPROVED
    found = seen(store)
    assert (found.whole.asked, found.whole.approved, found.whole.hasty) == (4, 1, 0)
    ((who, tally),) = found.reviewers
    assert (who.subject, tally.asked, tally.hasty) == ("ada", 1, 0)


def test_shares_and_spans_are_of_what_people_decided(store: MemoryStore, clock: Clock) -> None:
    for verb, seconds in [("approve", 1), ("approve", 10), ("approve", 20), ("reject", 30), ("feedback", 2.9)]:
        decided(store, clock, verb, seconds)
    decided(store, clock, "approve", 40, amount=7)
    store.ask(sample_call(expires_at=clock.at + timedelta(seconds=1)))
    clock.tick(seconds=5)
    store.ask(sample_call())
    whole = seen(store).whole
    assert (whole.asked, whole.approved, whole.changed, whole.refused) == (8, 4, 1, 2)
    assert (whole.answered, whole.expired, whole.waiting) == (0, 1, 1)
    assert whole.approval_rate == 4 / 6
    assert (whole.within(50), whole.within(90)) == (timedelta(seconds=10), timedelta(seconds=40))
    assert (whole.hasty, whole.hasty_share) == (2, 2 / 6)


def test_what_the_program_takes_back_is_nobodys_decision(store: MemoryStore, clock: Clock) -> None:
    decided(store, clock, "cancel", 10)
    asked = store.ask(sample_call())
    clock.tick(seconds=1)
    store.withdraw(asked.id, Identity(PROGRAM, "tests"))
    found = seen(store)
    assert (found.whole.asked, found.whole.refused, found.whole.withdrawn) == (2, 1, 1)
    assert (found.whole.spans, found.whole.hasty) == ([timedelta(seconds=10)], 0)
    assert [str(who) for who, _ in found.reviewers] == ["ada"]


def test_where_nobody_decided_there_is_no_share(store: MemoryStore, clock: Clock) -> None:
    store.ask(sample_call())
    whole = seen(store).whole
    assert (whole.approval_rate, whole.within(50), whole.within(90), whole.hasty_share) == (None, None, None, None)


def test_a_decision_in_exactly_three_seconds_is_not_hasty(store: MemoryStore, clock: Clock) -> None:
    decided(store, clock, "approve", 3)
    assert seen(store).whole.hasty == 0


def test_figures_are_by_tool_and_by_reviewer(store: MemoryStore, clock: Clock) -> None:
    decided(store, clock, "approve", 1, "ada")
    decided(store, clock, "reject", 9, "Ada")
    decided(store, clock, "approve", 5, "bob")
    question = store.ask(sample_question())
    sayso.Review(store, reviewer="bob").answer(question.id, "main")
    found = seen(store)
    tools = dict(found.tools)
    assert tools[QUESTIONS].answered == 1
    assert next(iter(tools)) == sample_call().call.tool
    assert [(who.subject, tally.asked, tally.hasty) for who, tally in found.reviewers] == [("Ada", 2, 1), ("bob", 2, 1)]


def test_each_vote_of_a_quorum_counts_for_its_reviewer_once(store: MemoryStore, clock: Clock) -> None:
    request = store.ask(sample_call(quorum=Quorum(2)))
    for by, seconds in [("ada", 2), ("bob", 60)]:
        clock.tick(seconds=seconds)
        sayso.Review(store, reviewer=by).approve(request.id)
    found = seen(store)
    assert {who.subject: tally.spans for who, tally in found.reviewers} == {
        "ada": [timedelta(seconds=2)],
        "bob": [timedelta(seconds=62)],
    }
    assert (found.whole.asked, found.whole.spans) == (1, [timedelta(seconds=62)])


def test_only_what_was_asked_in_the_window_counts(store: MemoryStore, clock: Clock) -> None:
    decided(store, clock, "approve", 1)
    clock.tick(days=6, hours=11)  # the first day counts from its beginning
    decided(store, clock, "reject", 1)
    assert [(tally.approved, tally.refused) for tally in (seen(store, 7).whole, seen(store, 6).whole)] == [
        (1, 1), (0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(("days", "pieces"), [(1, 1), (7, 7), (30, 30), (90, 13)])
def test_a_window_is_cut_into_days_or_weeks_and_none_is_lost(
    store: MemoryStore, clock: Clock, days: int, pieces: int
) -> None:
    for _ in range(days):
        decided(store, clock, "approve", 1)
        clock.tick(days=1, seconds=-1)
    clock.tick(days=-1)
    found = seen(store, days)
    assert len(found.periods) == pieces
    assert sum(tally.approved for _, tally in found.periods) == found.whole.approved == days
    assert found.periods[0][0] == found.since
    assert all(begin.hour == begin.minute == 0 for begin, _ in found.periods)


def test_more_than_the_bound_is_not_read_and_that_is_said(store: MemoryStore, clock: Clock) -> None:
    for _ in range(5):
        decided(store, clock, "approve", 1)
        clock.tick(seconds=1)
    assert (seen(store, most=5).is_cut, seen(store, most=5).whole.asked) == (False, 5)
    assert (seen(store, most=4).is_cut, seen(store, most=4).whole.asked) == (True, 4)


def test_it_reads_and_never_writes(store: MemoryStore, clock: Clock) -> None:
    request = store.ask(sample_call(expires_at=clock.at + timedelta(seconds=1)))
    clock.tick(hours=1)
    assert seen(store).whole.expired == 1
    assert store.get(request.id) == request
    assert len(store.journal()) == 1


# -- charts ----------------------------------------------------------------------------------------------------


def periods(*tallies: Tally) -> list[tuple[datetime, Tally]]:
    begin = datetime.fromisoformat("2026-01-01T00:00+00:00")
    return [(begin + timedelta(days=day), tally) for day, tally in enumerate(tallies)]


def test_parts_of_a_column_stand_one_on_another_within_the_picture() -> None:
    chart = counts_chart(periods(Tally(approved=3, refused=1), Tally(), Tally(answered=2, expired=2)))
    assert [column.label for column in chart.columns] == [
        "01 Jan: 3 approved, 1 refused", "02 Jan: ", "03 Jan: 2 answered, 2 expired",
    ]  # fmt: skip
    assert [column.parts for column in chart.columns] == [
        [("approved", 0, 75), ("refused", 75, 25)], [], [("answered", 0, 50), ("expired", 50, 50)],
    ]  # fmt: skip
    assert chart.lines == [(0, "0"), (50, "2"), (100, "4")]


def test_longer_waits_stand_higher_and_none_leaves_the_picture() -> None:
    spans = [timedelta(0), timedelta(seconds=30), timedelta(hours=2), timedelta(days=400)]
    chart = waits_chart([Tally(spans=[spans[hour]]) if hour < len(spans) else Tally() for hour in range(24)])
    parts = [part for column in chart.columns for part in column.parts]
    heights = [at for kind, at, _ in parts if kind == "median"]
    assert heights == sorted(heights)
    assert all(at >= 0 and length > 0 and at + length <= 100 for _, at, length in parts)
    assert [column.name for column in chart.columns] == [f"{hour:02}" for hour in range(24)]


def test_a_request_counts_for_the_hour_at_which_it_was_asked(store: MemoryStore, clock: Clock) -> None:
    asked = [clock.at.hour, (clock.at.hour + 5) % 24]
    decided(store, clock, "approve", 60)
    clock.tick(hours=5)
    decided(store, clock, "reject", 7_200)
    hours = seen(store).hours
    assert len(hours) == 24
    assert {hour: (tally.asked, tally.within(50)) for hour, tally in enumerate(hours) if tally.asked} == {
        asked[0]: (1, timedelta(seconds=60)), asked[1]: (1, timedelta(hours=2)),
    }  # fmt: skip


def test_the_parts_of_a_bar_follow_one_another_and_empty_ones_are_left_out() -> None:
    found = bar("refund", "/history", [("approved", 3), ("changed", 0), ("refused", 1)], 8, "4")
    assert found.parts == [("approved", 0, 37.5), ("refused", 37.5, 12.5)]
    assert bar("x", "", [("approved", 0)], 0, "0").parts == []


@pytest.mark.parametrize("tallies", [[], [Tally()], [Tally(), Tally(waiting=4)]])
def test_a_chart_of_nothing_has_no_columns(tallies: list[Tally]) -> None:
    assert counts_chart(periods(*tallies)).columns == ()
    assert waits_chart(tallies).columns == ()


def test_figures_are_said_as_people_read_them() -> None:
    assert [percent(share) for share in (None, 0.0, 0.005, 0.666, 1.0)] == ["-", "0%", "0%", "67%", "100%"]
    spans = [None, timedelta(0), timedelta(seconds=2.94), timedelta(seconds=89.6), timedelta(hours=25)]
    assert [brief_span(span) for span in spans] == ["-", "0.0s", "2.9s", "1m 30s", "1d 1h"]
