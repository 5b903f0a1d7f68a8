"""Subscribers and the journal are told what happens to Confirms, in the trace that a Confirm has."""

from __future__ import annotations

import json
from typing import Any

import pytest

import sayso
from sayso import audit
from sayso.mplp import (
    StageEvent,
    Trace,
    create_confirm,
    document_of,
    process_decision,
    read_confirm,
    refresh,
    submit_plan_for_approval,
    subscribe,
)
from sayso.mplp.schema import new_id
from tests.support.submitting import plan_of_three, reviewer, submitted, told, yes

pytestmark = pytest.mark.usefixtures("memory")


# -- events ---------------------------------------------------------------------------------------------------------


def test_subscribers_and_the_journal_are_told_what_happened() -> None:
    with told() as heard:
        _, confirm, request = submitted()
        reviewer().reject(request.id, "no")
        refresh(confirm)
        refresh(confirm)
        again = submit_plan_for_approval(plan_of_three(), "agent")
        process_decision(again, yes())
    said = [event.event_type for event in heard]
    assert said == [
        "confirm.requested", "confirm.decided", "plan_rejected",
        "confirm.requested", "confirm.decided", "plan_approved",
    ]  # fmt: skip
    rows = list(audit.entries(confirm.origin.store, run_id=f"confirm:{confirm.confirm_id}"))
    assert [row.event for row in rows if row.event != "confirm.decision"] == said
    assert [json.loads(row.detail)["event_id"] for row in rows if row.event != "confirm.decision"] == [
        event.event_id for event in heard
    ]
    assert audit.verify(confirm.origin.store).broken == ()


def test_the_event_of_the_pipeline_is_the_one_of_the_description() -> None:
    with told() as heard:
        plan, confirm, _ = submitted()
        process_decision(confirm, yes())
    event = heard[-1]
    assert isinstance(event, StageEvent)
    assert (event.event_family, event.event_type) == ("pipeline_stage", "plan_approved")
    assert event.payload == {"confirm_id": confirm.confirm_id, "plan_id": plan.plan_id, "decided_by": "dba"}


def test_a_cancelled_confirm_says_so_and_its_plan_is_not_approved() -> None:
    with told() as heard:
        _, confirm, request = submitted()
        reviewer().cancel(request.id)
        read_confirm(confirm.confirm_id)
    assert [event.event_type for event in heard] == ["confirm.requested", "confirm.cancelled", "plan_rejected"]


def test_events_of_the_document_are_those_that_subscribers_heard() -> None:
    with told() as heard:
        _, confirm, _ = submitted()
        process_decision(confirm, yes())
    assert confirm.events == [event for event in heard if not isinstance(event, StageEvent)]


def test_a_subscriber_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Any) -> None:
        raise ValueError("not today")

    unsubscribe = subscribe(fails)
    try:
        _, confirm, _ = submitted()
        process_decision(confirm, yes())
    finally:
        unsubscribe()
        unsubscribe()
    assert confirm.status == "approved"
    assert "a subscriber failed at plan_approved" in caplog.text


def test_what_is_only_looked_at_is_not_written() -> None:
    _, confirm, request = submitted()
    reviewer().approve(request.id)
    store = sayso.Review().store
    before = len(list(audit.entries(store)))
    assert document_of(store, confirm.confirm_id)["status"] == "approved"
    assert len(list(audit.entries(store))) == before


# -- trace ----------------------------------------------------------------------------------------------------------


def test_a_trace_that_is_given_is_followed() -> None:
    plan, trace = plan_of_three(), Trace(trace_id=new_id(), span_id=new_id())
    given = create_confirm("plan", plan.plan_id, "agent")
    given.trace = trace
    confirm = submit_plan_for_approval(plan, "agent", confirm=given)
    assert confirm.trace == trace
    assert [event.trace_id for event in confirm.events or ()] == [trace.trace_id]


def test_without_a_trace_there_is_none() -> None:
    assert submitted()[1].trace is None
