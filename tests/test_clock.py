"""Instants as programs are told them: one form everywhere, ISO 8601 in UTC with a Z."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import sayso
from sayso import clock


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (datetime(2026, 1, 1, 12, tzinfo=UTC), "2026-01-01T12:00:00Z"),
        (datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC), "2026-01-01T12:00:00.000001Z"),
        (datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T10:00:00Z"),
    ],
)
def test_an_instant_is_told_in_utc_with_a_z(moment: datetime, said: str) -> None:
    assert clock.written(moment) == said
    assert datetime.fromisoformat(said) == moment


# Where a text of an instant is no answer: how it is written at all, what is digested, what a page's own script reads,
# and what a token's record keeps.
NO_ANSWERS = {
    "clock.py", "model/canonical/json_tree.py", "mplp/document.py", "mplp/confirm.py",
    "server/pages/rendering.py", "server/pages/listing.py", "server/auth/tokens.py",
}  # fmt: skip


def test_nobody_keeps_the_clock_that_use_replaces() -> None:
    early = re.compile(r"from sayso\.clock import [^\n]*\bnow\b|\bclock\.now\b(?!\()")
    found = {file.name for file in Path(sayso.__file__).parent.rglob("*.py") if early.search(file.read_text("utf-8"))}
    assert found == set(), "call sayso.clock.now(): another reference to it is the system's clock forever"


def test_instants_are_written_in_one_way() -> None:
    source = Path(sayso.__file__).parent
    found = {
        file.relative_to(source).as_posix() for file in source.rglob("*.py") if ".isoformat(" in file.read_text("utf-8")
    }
    assert found - NO_ANSWERS == set(), "an instant is told to programs by sayso.clock.written, with a Z"
