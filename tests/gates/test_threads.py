"""What a thread that waits looks at, to see that Ctrl-C is ending the program.

What it then does is tested in `integration/test_ctrl_c.py`, with real programs. The invariant: however many threads
wait, the process looks once in each pace, and no answer is older than that.
"""

from __future__ import annotations

import sys
from types import FrameType, SimpleNamespace

import pytest

from sayso.gates import threads


class Looks:
    """A clock that the test moves, and how often the frames of all threads were listed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.count, self._frames = 1_000.0, 0, sys._current_frames
        monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(sys, "_current_frames", self._listed)
        monkeypatch.setattr(threads, "_looked", (float("-inf"), False))

    def _listed(self) -> dict[int, FrameType]:
        self.count += 1
        return self._frames()


def test_a_thousand_threads_that_wait_look_for_ctrl_c_once_in_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert [threads.is_interrupted() for _ in range(1_000)] == [False] * 1_000
    assert looks.count == 1
    looks.now += threads.PACE
    threads.is_interrupted()
    assert looks.count == 2


def test_ctrl_c_is_seen_by_every_thread_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert not threads.is_interrupted()
    monkeypatch.setattr(threads, "_is_main_thread_interrupted", lambda: True)
    looks.now += threads.PACE
    assert [threads.is_interrupted() for _ in range(3)] == [True] * 3
