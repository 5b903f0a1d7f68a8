"""Instants as programs are told them: one form everywhere, ISO 8601 in UTC with a Z."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

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
