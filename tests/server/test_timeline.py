"""The timeline of a request: a sentence for each row of the journal, and nothing lost where there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sayso.model.journal import Entry
from sayso.server.pages.runs import last_undone, timeline


def row(event: str, channel: str = "web", by: str = "local:ada", **detail: Any) -> Entry:
    return Entry("run_1", 1, 1_763_715_600_000_000, "rq_1", event, by, channel, json.dumps(detail), "link")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (row("asked", "program", "program:agent.py", tool="m:pay"), "agent.py asked"),
        (row("claimed")._replace(by=7), "7 claimed it"),  # pyright: ignore[reportArgumentType]  an altered row
        (
            row("asked", "program", "program:bot", on_behalf_of="local:kim, sso:lee"),
            "bot asked; on behalf of kim, sso:lee",
        ),
        (row("voted", missing=1), "ada approved; 1 more reviewer must approve"),
        (row("approved", held_until="2026-01-01T12:00:05Z"), "ada approved"),
        (
            row("approved", edited=True, votes_reset=2),
            "ada approved with changes; the approvals before no longer count",
        ),
        (row("approved", again=True), "ada approved; although its effect has already happened or is pending"),
        (row("approved", "grant", grant="gr_1"), "A grant let it start without asking"),
        (row("assigned", to="local:bob"), "ada assigned it to bob"),
        (row("released"), "ada unclaimed it"),
        (row("released", claimed_by="local:bob"), "ada unclaimed it for bob"),
        (row("undone"), "ada undid the approval; it is pending again"),
        (row("expired", "clock", "program:bot", what="request"), "It expired, and nobody decided"),
        (row("expired", "clock", "program:bot", what="approval"), "The approval expired before the call started"),
        (row("started", "program", attempt=1, worker="w"), "The call started"),
        (row("started", "program", attempt=2, worker="w"), "The call started; attempt 2"),
        (row("failed", "program", attempt=1, may_try_again=True), "The call failed; it may start again"),
        (row("resolved", happened=False), "ada recorded that the call did not happen"),
    ],
)
def test_a_row_is_a_sentence(entry: Entry, sentence: str) -> None:
    (found,) = timeline([entry])
    assert (found["text"], found["at"], found["utc"]) == (sentence, "2025-11-21T09:00:00Z", "2025-11-21 09:00:00Z")


def test_a_sentence_has_the_channel_of_a_person_and_what_they_wrote() -> None:
    rejected, done = timeline([row("rejected", comment="too much\n<b>"), row("done", "program")])
    assert (rejected["channel"], rejected["words"]) == ("web", "too much\n<b>")
    assert (done["channel"], done["words"]) == ("", "")


def test_an_extension_says_until_when() -> None:
    (found,) = timeline([row("extended", what="expires_at", until="2026-01-01T12:00:00+01:00")])
    assert (found["text"], found["until"]) == ("ada extended it", "2026-01-01T11:00:00Z")


def test_comments_are_shown_elsewhere() -> None:
    assert timeline([row("commented", comment="look")]) == []


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (row("teleported", speed=9), "teleported ada (web) speed: 9"),
        (row("extended", what="the moon"), 'extended ada (web) the "the moon"'),
        (row("claimed")._replace(detail="no JSON"), 'claimed ada (web) "no JSON"'),
        (row("claimed")._replace(detail="[1]"), 'claimed ada (web) "[1]"'),
        (row("claimed")._replace(at=10**30), "claimed ada (web)"),
    ],
)
def test_a_row_that_has_no_sentence_is_shown_as_it_is(entry: Entry, text: str) -> None:
    (found,) = timeline([entry])
    assert found["text"] == text


def test_an_undone_approval_is_the_last_word_until_somebody_decides() -> None:
    before = [row("asked", "program"), row("approved"), row("undone"), row("claimed"), row("commented")]
    undone = last_undone(before)
    assert undone is not None
    assert undone["text"] == "ada undid the approval; it is pending again"
    assert last_undone([*before, row("voted", missing=1)]) is None
    assert last_undone(before[:2]) is None
