"""A time limit for work that would take hours without its guard; it is far above what any machine needs.

It measures the CPU time of this process, so other load on the machine does not matter.
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
    """Fail if the block uses this much CPU time."""

    def fail(_: int, __: FrameType | None) -> None:
        pytest.fail(f"it did not end within {seconds} s of computing")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
