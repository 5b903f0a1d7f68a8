"""Rows of the journal for people: where things stand in them."""

from __future__ import annotations

import json

import pytest

from sayso.model.journal import Entry
from sayso.view.as_json import event_rows


def row(event: str, detail: str = "{}") -> Entry:
    return Entry("run_1", 1, 1_763_715_600_000_000, "rq_1", event, "local:ada", "cli", detail, "link")


def places(*events: str) -> set[int]:
    return {drawn.index("ada (cli)") for drawn in event_rows(map(row, events))}


@pytest.mark.parametrize("longest", ["approved", "plan_approved", "confirm.requested"])
def test_who_did_it_stands_in_one_column_however_long_the_word_before(longest: str) -> None:
    assert places("asked", longest, "done") == {places(longest).pop()}


def test_usual_rows_stand_where_they_always_did() -> None:
    assert event_rows([row("asked"), row("rejected")]) == [
        "2025-11-21 09:00:00Z  asked       ada (cli)",
        "2025-11-21 09:00:00Z  rejected    ada (cli)",
    ]


def test_a_word_that_somebody_wrote_by_hand_moves_no_other_row() -> None:
    assert places("asked", "done") < places("asked", "x" * 70, "done")
    assert event_rows([]) == []


def test_what_only_machines_read_is_left_out() -> None:
    assert event_rows([row("asked", '{"asked": "a", "row_digest": "b", "tool": "m:f"}')])[0].endswith(
        "ada (cli)  tool: m:f"
    )


def test_an_instant_of_a_row_is_told_in_words() -> None:
    for at, told in [("2026-01-01T12:00:05.5Z", "can be undone until 2026-01-01 12:00:05Z"), ("x", '"x"'), (7, "7")]:
        (drawn,) = event_rows([row("approved", json.dumps({"held_until": at}))])
        assert drawn.endswith(told)
