"""On which processor cores the run takes place.

Left to the scheduler, workers that take turns land on cores that differ by up to a factor of two (one that was asleep
wakes slowly), and one contender may have the worse core for the whole run.
So the run is tied to one core, except where two processes have to work at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

__all__ = ["all_cores", "one_core"]

ALLOWED: frozenset[int] = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


@contextmanager
def _on(cores: frozenset[int]) -> Iterator[None]:
    """Tie this process, and the children it starts in the block, to these cores; nothing where that cannot be done."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def one_core() -> AbstractContextManager[None]:
    """Tie the block to the last core that this process may use."""
    return _on(frozenset({max(ALLOWED)}) if ALLOWED else ALLOWED)


def all_cores() -> AbstractContextManager[None]:
    """Let the block use every core that this process was given."""
    return _on(ALLOWED)
