"""What every contender must be able to do: ask for a call, decide it, run it.

The call, its arguments and its effect are the same for all, and the effect is counted, so that a contender which
skipped the call or made it twice is reported as wrong instead of fast.
"""

from __future__ import annotations

import itertools
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["MEMO", "Contender", "make_effect", "timed"]

MEMO = (
    "goodwill refund for the order that arrived two weeks late and with a broken lid, "
    "agreed on the phone with the customer, who asked for it to go to the card that paid; see the note on the order"
)


def make_effect(effects: list[int]) -> Any:
    """Return the function that all contenders gate; it notes each amount in `effects`."""

    def pay(amount: int, to: str, memo: str) -> str:
        effects.append(amount)
        return "paid"

    return pay


def timed(function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """Call it; return the nanoseconds that it took, by the clock and of this process's own processor time."""
    spent, before = time.process_time_ns(), time.perf_counter_ns()
    function(*args)
    return time.perf_counter_ns() - before, time.process_time_ns() - spent


class Contender:
    """One library (or the baseline) with a store in `folder`, driven by `benchmarks.worker`.

    A subclass says how its library asks, decides and runs.
    `decides_when_it_runs` is for a library that has no separate decision: its `decide` is then not timed.
    """

    decides_when_it_runs = False

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder = folder
        self.variant = variant
        self.effects: list[int] = []

    def ask(self, amount: int) -> Any:
        """Call the gated function, which must not run; return what is needed to decide."""
        raise NotImplementedError

    def decide(self, ticket: Any) -> None:
        """Say yes to what `ask` returned."""
        raise NotImplementedError

    def run(self, amount: int, ticket: Any) -> None:
        """Make the approved call run."""
        raise NotImplementedError

    def run_all(self, amounts: Sequence[int], tickets: Sequence[Any]) -> None:
        """Make all approved calls run, in the way that suits the library best."""
        for amount, ticket in zip(amounts, tickets, strict=True):
            self.run(amount, ticket)

    def round_trip(self, amount: int) -> None:
        """Ask, decide and run one call, in the way that suits the library best."""
        ticket = self.ask(amount)
        self.decide(ticket)
        self.run(amount, ticket)

    def close(self) -> None:
        """Let go of the store."""

    def time_round_trips(self, first: int, count: int) -> list[tuple[int, int]]:
        """Return the nanoseconds of `count` round trips, by the clock and of the processor."""
        return [timed(self.round_trip, amount) for amount in range(first, first + count)]

    def time_decision(self, ticket: Any) -> tuple[int, int]:
        """Return the nanoseconds of one decision, by the clock and of the processor."""
        return timed(self.decide, ticket)

    def time_phases(self, count: int) -> dict[str, float | None]:
        """Return the seconds to ask for `count` calls, then decide all, then run all."""
        amounts = range(count)
        marks = [time.perf_counter()]
        tickets = [self.ask(amount) for amount in amounts]
        marks.append(time.perf_counter())
        if not self.decides_when_it_runs:
            for ticket in tickets:
                self.decide(ticket)
        marks.append(time.perf_counter())
        self.run_all(amounts, tickets)
        marks.append(time.perf_counter())
        ask, decide, run = (after - before for before, after in itertools.pairwise(marks))
        return {"ask": ask, "decide": None if self.decides_when_it_runs else decide, "run": run}

    def account(self) -> dict[str, int]:
        """Return how often the effect was made, for how many amounts, and what it took in memory and on disk."""
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stored = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        return {
            "effects": len(self.effects),
            "amounts": len(set(self.effects)),
            "peak_kib": used // 1024 if sys.platform == "darwin" else used,
            "stored_bytes": stored,
        }
