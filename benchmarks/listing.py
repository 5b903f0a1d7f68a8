"""What a list of waiting requests costs while the number of decided ones grows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .contest import Contest, Entry, Plan
from .statistic import median, turns
from .table import Row
from .worker import WorkerFailedError

__all__ = ["listed"]

PENDING = 20
# What the installed script does, so that a source tree can be measured too.
COMMAND = "import sys; from sayso.cli import main; sys.argv = ['sayso', 'ls']; main()"
PAGES: dict[str, dict[str, Any]] = {
    "first page, pending": {"state": "pending"},
    "first page, all, newest": {"state": "all", "newest": True},
}


def listed(plan: Plan) -> list[Row]:
    """Time the first pages and `sayso ls` on a small and on a large store, in turns."""
    sizes = [100, plan.pick(100_000, 2_000)]
    name = f"list, {PENDING} pending, {sizes[0]:,} or {sizes[1]:,} decided"
    contest = Contest(name, plan)
    entries = {Entry(f"sayso, {size:,} decided", "ours:Listing", "FULL", "sqlite FULL"): size for size in sizes}
    rows: list[Row] = []
    with contest.open(entries) as ready:
        for entry in ready:
            counts = contest.call(entry, "fill", decided=entries[entry], pending=PENDING)
            if counts is not None and counts != {"decided": entries[entry], "pending": PENDING}:
                rows.append(Row(name, entry.who, entry.store, note=f"WRONG: the store holds {counts}"))
        left = [entry for entry in ready if entry not in contest.lost]
        for words, options in PAGES.items():
            rows += _compare(contest, left, words, plan.pick(20, 6), partial(_pages, contest, options))
        rows += _compare(contest, left, "command `sayso ls`", plan.pick(12, 4), partial(_command, contest))
    return [*contest.lost.values(), *rows]


def _compare(
    contest: Contest, entries: Sequence[Entry], words: str, rounds: int, once: Callable[[Entry], list[float]]
) -> list[Row]:
    """Call `once` for the stores in turns, the first round to warm up, and make a row of each."""
    taken: dict[Entry, list[float]] = {entry: [] for entry in entries}
    try:
        for number, entry in turns(entries, rounds + 1, budget=10):
            found = once(entry)
            if number > 0:
                taken[entry] += found
    except WorkerFailedError as failure:
        return [Row(contest.measure, f"sayso: {words}", note=f"failed: {failure}")]
    small = next(iter(taken.values()), [])
    return [_row(contest.measure, entry, words, values, small) for entry, values in taken.items()]


def _pages(contest: Contest, options: dict[str, Any], entry: Entry) -> list[float]:
    return [each / 1e9 for each in contest.workers[entry].call("time_pages", count=10, **options)]


def _command(contest: Contest, entry: Entry) -> list[float]:
    """Time the whole command, from the start of its process to the end."""
    store = f"sqlite:///{contest.workers[entry].folder / 'sayso.db'}"
    before = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND],
        env={**os.environ, "SAYSO_STORE": store},
        capture_output=True,
        text=True,
        check=False,
    )
    taken = time.perf_counter() - before
    if ended.returncode != 0 or ended.stdout.count("pay") < PENDING:
        words = (ended.stderr or ended.stdout).strip().rpartition("\n")[2]
        raise WorkerFailedError(f"status {ended.returncode}, {words}")
    return [taken]


def _row(name: str, entry: Entry, words: str, values: Sequence[float], small: Sequence[float]) -> Row:
    ratio = median(values) / median(small)
    return Row.of(
        name,
        f"{entry.who}: {words}",
        entry.store,
        values,
        note="" if values is small else f"{ratio:.2f}x the small store (aim: does not grow)",
    )
