"""A limit for work that would take hours if its guard were away: far above what any machine needs for it.

What counts is the time that this process computes, so that a busy machine takes nothing away.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import pytest

__all__ = ["no_hanging"]


@contextmanager
def no_hanging(seconds: float = 60) -> Generator[None]:
    """Fail a block that computes for so long."""

    def fail(_: int, __: FrameType | None) -> None:
        pytest.fail(f"it did not end within {seconds} s of computing")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
