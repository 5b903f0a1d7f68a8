"""Durations: parses texts like `"90s"`, `"24h"` and `"1h30m"`, and formats `2m`, `12 s ago` and `in 13m`.

The caller passes the current time. Invariant: a parsed duration is positive and at most ten years long.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from sayso.errors import ConfigError
from sayso.model.text import later, say, say_n

_LONGEST = timedelta(days=3653)
_MICROSECONDS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000}
_FORM = re.compile(
    " *".join(rf"(?:(?P<{unit}>[0-9]{{1,20}}(?:\.[0-9]{{1,20}})?) ?{unit}(?![a-z]))?" for unit in _MICROSECONDS)
)
_FORMS = "write it like '90s', '15m', '24h', '7d', '1h30m', '1.5h' or '500ms'"


def option(name: str, value: timedelta | str) -> timedelta:
    """Return the duration of an option, as `parse`; the error names the option."""
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{name}= takes a duration: {error}") from None


def parse(value: timedelta | str) -> timedelta:
    """Return a duration: `value` itself, or the sum of its numbers with units, the largest unit first, each once.

    Raises:
        ConfigError: `value` is not a duration, is not positive, or is over ten years.
    """
    span = value
    if isinstance(value, str):
        found = _FORM.fullmatch(value.strip(" ")) if len(value) <= 100 else None
        if found is not None and any(found.groups()):
            # Fractions, because a float would make 0.29s one microsecond short; they also have no largest number.
            parts = (Fraction(number) * _MICROSECONDS[unit] for unit, number in found.groupdict("0").items())
            span = timedelta(microseconds=min(int(sum(parts)), 2 * (_LONGEST // timedelta(microseconds=1))))
    if not isinstance(span, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"{_brief(value)} is not a duration; {_FORMS}")
    if span <= timedelta(0):
        raise ConfigError(f"the duration {_brief(value)} is not positive; {_FORMS}")
    if span > _LONGEST:
        raise ConfigError(f"the duration {_brief(value)} is over ten years; {_FORMS}")
    return span


def until(value: datetime | timedelta | str, now: datetime) -> datetime:
    """Return an instant: `value` itself, ISO 8601 (UTC if it has no offset), or a duration after `now`.

    Raises:
        ConfigError: It is none of these.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip()) if len(value) <= 100 else value
        except ValueError:
            value = value.strip()
    try:
        if isinstance(value, datetime):
            return value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC)
        return now + parse(value)
    except (OverflowError, ConfigError):
        raise ConfigError(
            f"{_brief(value)} is neither a time like '2026-01-31 09:00' (UTC) nor a duration like '3d'"
        ) from None


def text(delta: timedelta) -> str:
    """Format a duration for people, with at most two units: `2m`, `1h 5m`, `3d`, `12 s`, `500 ms`."""
    if delta < timedelta(0):
        return f"-{text(-delta)}"
    if delta < timedelta(seconds=1):
        milliseconds = delta // timedelta(milliseconds=1)
        return say("%(count)s ms", count=milliseconds) if milliseconds else say("%(count)s s", count=0)
    seconds = int(delta.total_seconds())
    if seconds < 60:
        return say("%(count)s s", count=seconds)
    sizes = (
        (later("%(count)sd"), 86_400),
        (later("%(count)sh"), 3_600),
        (later("%(count)sm"), 60),
        (later("%(count)ss"), 1),
    )
    first = next(place for place, (_, size) in enumerate(sizes) if seconds >= size)
    parts: list[str] = []
    for unit, size in sizes[first : first + 2]:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(say(unit, count=count))
    return " ".join(parts)


def ago(then: datetime, now: datetime) -> str:
    """Format how long ago `then` was: `just now`, `12 s ago`, `3 min ago`, `2 h ago`, `4 days ago`.

    An instant in the future (the clocks of two machines differ) reads `in 5m`.
    """
    seconds = (now - then).total_seconds()
    if seconds <= -2:
        return say("in %(span)s", span=text(then - now))
    if seconds < 2:
        return say("just now")
    if seconds < 60:
        return say("%(count)s s ago", count=int(seconds))
    if seconds < 3_600:
        return say("%(count)s min ago", count=int(seconds // 60))
    if seconds < 86_400:
        return say("%(count)s h ago", count=int(seconds // 3_600))
    days = int(seconds // 86_400)
    return say_n("%(num)s day ago", "%(num)s days ago", days)


def left(end: datetime, now: datetime) -> str:
    """Format the time until `end`: `in 13m`, or `expired`, which begins at the very instant `end`."""
    return say("in %(span)s", span=text(end - now)) if now < end else say("expired")


def _brief(value: object) -> str:
    shown = ascii(value) if isinstance(value, str | timedelta | int | float) else f"a {type(value).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:40]}… ({len(shown):,} characters)"
