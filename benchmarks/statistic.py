"""Median, percentile, and the order in which contenders take turns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import inf
from statistics import median
from typing import TypeVar

__all__ = ["median", "percentile", "turns"]

T = TypeVar("T")


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


def turns(contenders: Sequence[T], rounds: int, *, least: int = 3, budget: float = inf) -> Iterator[tuple[int, T]]:
    """Yield every contender once a round, each round starting with the next one.

    Whatever happens to the machine in a round then happens to all of them, and none is always the first after a pause.
    After `budget` seconds no further round begins, if at least `least` have ended: a slow disk gets fewer samples.
    """
    until = time.monotonic() + budget
    for number in range(rounds if contenders else 0):
        if number >= least and time.monotonic() > until:
            return
        shift = number % len(contenders)
        for contender in [*contenders[shift:], *contenders[:shift]]:
            yield number, contender
