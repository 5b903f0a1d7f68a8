"""Durations: what is read, what is refused, and how spans are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayso.errors import ConfigError
from sayso.model import duration

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1h 30m", timedelta(hours=1, minutes=30)),
        ("12 s", timedelta(seconds=12)),
        (" 5m ", timedelta(minutes=5)),
        ("500ms", timedelta(milliseconds=500)),
        ("1.5h", timedelta(minutes=90)),
        ("0.29s", timedelta(microseconds=290_000)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("3653d", timedelta(days=3653)),
        (timedelta(seconds=1), timedelta(seconds=1)),
    ],
)
def test_duration_is_read_to_the_microsecond(written: str | timedelta, meant: timedelta) -> None:
    assert duration.parse(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "", " ", "5", "s", "0s", "0.0000001s", "-5s", "+5s", "5y", "5w", "5M", "5S", "5 minutes", "1h30", "1m1h",
        "5m5m", ".5h", "5.h", "1e3s", "1,5h", "5 5s", "\u0663s", "5\u00a0s", "inf s", "nan", "3654d", "9" * 20 + "d",
        "1" * 5_000 + "s", timedelta(0), timedelta(seconds=-1), timedelta.max, 5, 5.0, True, None, b"5s", ["5s"],
    ],
)  # fmt: skip
def test_what_is_no_positive_duration_is_refused_with_the_forms_that_are(written: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        duration.parse(written)
    message = str(refused.value)
    assert "'90s'" in message
    assert "'1h30m'" in message
    assert len(message) < 300
    assert message.isprintable()


@pytest.mark.parametrize(
    ("span", "told"),
    [
        (timedelta(minutes=2), "2m"),
        (timedelta(hours=1, minutes=5), "1h 5m"),
        (timedelta(hours=1, minutes=5, seconds=59), "1h 5m"),
        (timedelta(hours=1, seconds=59), "1h"),
        (timedelta(days=3), "3d"),
        (timedelta(days=1, hours=2, minutes=3), "1d 2h"),
        (timedelta(seconds=12, milliseconds=900), "12 s"),
        (timedelta(seconds=90), "1m 30s"),
        (timedelta(milliseconds=500), "500 ms"),
        (timedelta(microseconds=5), "0 s"),
        (timedelta(0), "0 s"),
        (timedelta(minutes=-2), "-2m"),
    ],
)
def test_span_is_told_in_at_most_two_units(span: timedelta, told: str) -> None:
    assert duration.text(span) == told


@given(st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=3653)))
def test_told_span_reads_back_and_rounds_down_by_less_than_its_smaller_unit(span: timedelta) -> None:
    told = duration.parse(duration.text(span))
    assert told <= span
    assert span - told < max(timedelta(seconds=1), span / 24)


@pytest.mark.parametrize(
    ("past", "told"),
    [
        (timedelta(0), "just now"),
        (timedelta(seconds=1.9), "just now"),
        (timedelta(seconds=-1), "just now"),
        (timedelta(seconds=12), "12 s ago"),
        (timedelta(seconds=59.9), "59 s ago"),
        (timedelta(minutes=3, seconds=59), "3 min ago"),
        (timedelta(hours=2), "2 h ago"),
        (timedelta(hours=24), "1 day ago"),
        (timedelta(days=4), "4 days ago"),
        (timedelta(minutes=-5), "in 5m"),
    ],
)
def test_past_is_told_in_one_unit(past: timedelta, told: str) -> None:
    assert duration.ago(NOW - past, NOW) == told


def test_end_is_expired_at_its_very_instant_and_not_before() -> None:
    assert duration.left(NOW + timedelta(minutes=13), NOW) == "in 13m"
    assert duration.left(NOW + timedelta(microseconds=1), NOW) == "in 0 s"
    assert duration.left(NOW, NOW) == "expired"
    assert duration.left(NOW - timedelta(days=1), NOW) == "expired"
