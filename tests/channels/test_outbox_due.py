"""What is said next about a request, and when: a plain function of what was said and how the request stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from sayso.channels.outbox import Delivery, due_at, due_mark
from sayso.model.request import Request, State
from sayso.model.reviewer import Escalation
from sayso.stores.records import Record
from sayso.testing import Clock, frozen_clock, sample_call

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> Iterator[Clock]:
    with frozen_clock() as frozen:
        yield frozen


def new(request: Request, *told: str, **fields: object) -> Delivery:
    return replace(Delivery(request.id, 0, told), **fields)  # pyright: ignore[reportArgumentType]


def test_a_delivery_comes_back_from_its_record_as_it_was(clock: Clock) -> None:
    request = sample_call()
    full = new(
        request, "asked", "50", reference="r", sent_at=clock(), holder="w#t", tries=3, failing_since=clock(),
        error="OSError: no", given_up=True, changes=7,
    )  # fmt: skip
    for delivery in (new(request), full):
        record = delivery.record("ops", clock())
        assert Delivery.of(record) == delivery
        assert (record.kind, record.key, record.due) == ("delivery/ops", request.id, clock())
    assert Delivery.of(Record("delivery/ops", request.id, {"changes": 0, "sent": []})) == new(request)


@pytest.mark.parametrize("state", sorted(set(State) - {State.PENDING, State.RUNNING}))
def test_each_state_after_the_wait_is_told_once(clock: Clock, state: State) -> None:
    request = replace(sample_call(), state=state)
    due = due_mark(new(request, "asked"), request, clock())
    assert due == state.value
    assert due_mark(new(request, "asked", state.value), request, clock()) is None
    assert due_at(new(request, "asked", state.value), request, clock()) is None


def test_a_call_that_runs_is_told_as_approved_and_not_again_when_it_runs_again(clock: Clock) -> None:
    request = replace(sample_call(), state=State.RUNNING)
    assert due_mark(new(request, "asked"), request, clock()) == "approved"
    for told in ("approved", "unknown", "failed"):
        assert due_mark(new(request, "asked", told), request, clock()) is None


def test_the_announcement_comes_first_and_takes_with_it_what_is_past(clock: Clock) -> None:
    request = sample_call(expires_at=clock() + 10 * HOUR, escalation=Escalation(HOUR, frozenset({"cfo"})))
    late = clock.tick("6h")
    escalated = replace(request, escalated_at=late)
    due = due_mark(new(request), escalated, late)
    assert due == "asked"
    said = new(request).after_sending(due, escalated, "ref", late)
    assert said.sent == ("50", "asked", "escalated")
    assert (said.reference, said.sent_at) == ("ref", late)
    assert due_mark(said, escalated, late) is None
    assert due_at(said, escalated, late) == request.created_at + 9 * HOUR


def test_the_later_reminder_stands_for_the_earlier_one(clock: Clock) -> None:
    request = sample_call(expires_at=clock() + 10 * HOUR)
    now = clock.tick("9h30m")
    due = due_mark(new(request, "asked"), request, now)
    assert due == "90"
    said = new(request, "asked").after_sending(due, request, None, now)
    assert set(said.sent) == {"asked", "50", "90"}
    assert due_at(said, request, now) is None


def test_no_reminder_follows_another_message_within_a_minute(clock: Clock) -> None:
    request = sample_call(expires_at=clock() + timedelta(minutes=10))
    at = request.created_at + timedelta(minutes=5)
    delivery = new(request, "asked", sent_at=at - timedelta(seconds=10))
    assert due_mark(delivery, request, at) is None
    assert due_at(delivery, request, at) == at + timedelta(seconds=50)
    assert due_mark(delivery, request, at + timedelta(seconds=50)) == "50"


def test_a_request_that_is_extended_is_reminded_of_by_its_new_end(clock: Clock) -> None:
    request = sample_call(expires_at=clock() + 10 * HOUR)
    longer = replace(request, expires_at=request.created_at + 40 * HOUR)
    assert due_at(new(request, "asked"), longer, clock()) == request.created_at + 20 * HOUR
    assert due_mark(new(request, "asked", "50", "90"), longer, request.created_at + 39 * HOUR) is None


def test_a_call_that_waits_again_because_its_change_was_refused_is_told_at_once_and_once(clock: Clock) -> None:
    request = replace(sample_call(), returned="amount: is no number")
    for sent in (("asked",), ("approved", "asked")):
        due = due_mark(new(request, *sent), request, clock())
        assert due == "returned"
        assert due_at(new(request, *sent), request, clock()) == clock()
        said = new(request, *sent).after_sending(due, request, None, clock())
        assert due_mark(said, request, clock()) is None
    first = new(request).after_sending("asked", request, None, clock())
    assert due_mark(first, request, clock()) is None


def test_a_failure_forgets_nothing_and_a_success_forgets_the_failures(clock: Clock) -> None:
    request = sample_call()
    failed, due = new(request, "asked", reference="r").after_failure("OSError: no", clock(), for_good=False)
    assert (failed.sent, failed.reference, failed.tries, due) == (
        ("asked",),
        "r",
        1,
        clock() + timedelta(seconds=5),
    )
    again, due = failed.after_failure("OSError: no", clock.tick("10s"), for_good=False)
    assert (again.tries, again.failing_since, due) == (2, failed.failing_since, clock() + timedelta(seconds=10))
    said = again.after_sending("50", request, "other", clock())
    assert (said.tries, said.failing_since, said.error, said.reference) == (0, None, None, "r")
