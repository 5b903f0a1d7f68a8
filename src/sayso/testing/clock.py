"""A clock that moves only when the test moves it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from sayso import clock
from sayso.model import duration


class Clock:
    """A clock that stands still; a source for `sayso.clock.use`.

    Attributes:
        at: The instant, aware and in UTC.
    """

    def __init__(self, at: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def tick(self, span: timedelta | str = timedelta(), /, **parts: float) -> datetime:
        """Move on by a span (`"25h"`, a `timedelta`, or its parts: `seconds=-1`), and return the new instant.

        Raises:
            ConfigError: The text is no duration.
        """
        self.at += (duration.parse(span) if isinstance(span, str) else span) + timedelta(**parts)
        return self.at


@contextmanager
def frozen_clock(at: datetime | None = None) -> Generator[Clock]:
    """Freeze sayso's clock inside the block, in every thread of this process; `clock.tick("25h")` moves it."""
    frozen = Clock() if at is None else Clock(at)
    with clock.use(frozen):
        yield frozen
