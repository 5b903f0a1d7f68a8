"""What a list of waiting requests costs while the number of decided ones grows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from .contest import Contest, Entry, Plan
from .statistic import median, percentile, turns
from .table import Row, seconds

__all__ = ["listed"]

PENDING = 20
# What the installed script does, so that a source tree can be measured too.
COMMAND = "import sys; from sayso.cli import main; sys.argv = ['sayso', 'ls']; main()"
PAGES: dict[str, dict[str, Any]] = {
    "first page, pending": {"state": "pending"},
    "first page, all, newest": {"state": "all", "newest": True},
}


def listed(plan: Plan) -> list[Row]:
    """Time the first page and `sayso ls` on a small and on a large store, in turns."""
    sizes = [100, plan.pick(100_000, 5_000)]
    name = f"list, {PENDING} pending, {sizes[0]:,} or {sizes[1]:,} decided"
    contest = Contest(name, plan)
    entries = {Entry(f"sayso, {size:,} decided", "ours:Listing", "FULL", "sqlite FULL"): size for size in sizes}
    rows: list[Row] = []
    with contest.open(entries) as ready:
        for entry in ready:
            counts = contest.call(entry, "fill", decided=entries[entry], pending=PENDING)
            if counts not in (None, {"decided": entries[entry], "pending": PENDING}):  # noqa: PLR6201 - a dict has no hash
                rows.append(Row(name, entry.who, entry.store, note=f"WRONG: the store holds {counts}"))
        left = [entry for entry in ready if entry not in contest.lost]
        for words, options in PAGES.items():
            rows += _pages(contest, left, words, options, plan)
        rows += _commands(contest, left, plan)
    return [*contest.lost.values(), *rows]


def _pages(contest: Contest, entries: Sequence[Entry], words: str, options: dict[str, Any], plan: Plan) -> list[Row]:
    taken: dict[Entry, list[float]] = {}
    for number, entry in turns(entries, plan.pick(20, 6) + 1):
        nanoseconds = contest.call(entry, "time_pages", count=10, **options)
        if nanoseconds is not None and number > 0:
            taken.setdefault(entry, []).extend(each / 1e9 for each in nanoseconds)
    return [_row(contest.measure, entry, words, values, next(iter(taken.values()))) for entry, values in taken.items()]


def _commands(contest: Contest, entries: Sequence[Entry], plan: Plan) -> list[Row]:
    """Time the whole command, from the start of its process to the end."""
    taken: dict[Entry, list[float]] = {}
    for number, entry in turns(entries, plan.pick(12, 4) + 1):
        store = f"sqlite:///{contest.workers[entry].folder / 'sayso.db'}"
        before = time.perf_counter()
        ended = subprocess.run(
            [sys.executable, "-c", COMMAND],
            env={**os.environ, "SAYSO_STORE": store},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode != 0:
            why = ended.stderr.strip().rpartition("\n")[2]
            return [Row(contest.measure, "sayso ls", note=f"failed: status {ended.returncode}, {why}")]
        if number > 0:
            taken.setdefault(entry, []).append(time.perf_counter() - before)
    words = "command `sayso ls`"
    return [_row(contest.measure, entry, words, values, next(iter(taken.values()))) for entry, values in taken.items()]


def _row(name: str, entry: Entry, words: str, values: Sequence[float], small: Sequence[float]) -> Row:
    ratio = median(values) / median(small)
    return Row(
        name,
        f"{entry.who}: {words}",
        entry.store,
        median=seconds(median(values)),
        p95=seconds(percentile(values, 95)),
        samples=len(values),
        note="" if values is small else f"{ratio:.2f}x the small store (aim: does not grow)",
        figures={"median": median(values), "p95": percentile(values, 95)},
    )
