"""The real case of a human gate: the program and the reviewer are two processes, each with a store of its own.

Both open one file. The program asks, the reviewer decides, the program runs; each part is timed where it happens, so
the way between the two processes is not in the figure, and what each must read anew because the other wrote is.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from .contender import Contender, timed
from .contest import PRIVATE, SCANS, Contest, Entry, Plan
from .rounds import report, round_trips
from .table import Row
from .worker import Worker

__all__ = ["Apart", "processes"]

NAME = "program and reviewer in two processes"
ONE = "baseline, by hand, one process"
TWO = "baseline, by hand"
APART = "processes:Apart"
ENTRIES = (
    Entry(ONE, "baseline:Baseline", "FULL", "sqlite FULL", "four commits on one connection"),
    Entry(TWO, APART, "FULL/baseline:Baseline", "sqlite FULL", "four commits on two connections"),
    Entry("sayso", APART, "FULL/ours:Durable", "sqlite FULL", "its default"),
    Entry("holdpoint", APART, "FULL/peers.holdpoint:Holdpoint", "sqlite FULL", PRIVATE),
    Entry("call4agents", APART, "FULL/peers.call4agents:Call4agents", "sqlite FULL", SCANS),
    Entry("ctrlrun", APART, "FULL/peers.ctrlrun:Ctrlrun", "sqlite FULL", PRIVATE),
)
CHOWKI = Row(NAME, "chowki", "sqlite FULL", note="not possible: its API decides and runs in one call, in one process")


class Apart(Contender):
    """A program that asks and runs here, and a reviewer in a process below this one; `variant` names sync and class."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        sync, _, path = variant.partition("/")
        module, _, name = path.partition(":")
        self.program: Any = getattr(importlib.import_module(f"benchmarks.{module}"), name)(folder, sync)
        self.effects = self.program.effects
        self.reviewer = Worker(path, folder, sync)

    def time_round_trips(self, first: int, count: int) -> list[tuple[int, int]]:
        return [self._one(amount) for amount in range(first, first + count)]

    def _one(self, amount: int) -> tuple[int, int]:
        tickets: list[Any] = []
        asked = timed(lambda: tickets.append(self.program.ask(amount)))
        decided = self.reviewer.step("time_decision", ticket=tickets[0])
        ran = timed(self.program.run, amount, tickets[0])
        return asked[0] + decided[0] + ran[0], asked[1] + decided[1] + ran[1]

    def close(self) -> None:
        self.reviewer.close()
        self.program.close()


def processes(plan: Plan) -> list[Row]:
    """One call at a time, asked and run by one process, decided by another."""
    contest = Contest(NAME, plan)
    taken = round_trips(
        contest, ENTRIES, rounds=plan.pick(30, 6), batch=plan.pick(30, 15), budget=plan.pick(45, 12)
    )  # fmt: skip
    return [*report(contest, ENTRIES, taken, {ONE: 2.5, TWO: None}), CHOWKI]
