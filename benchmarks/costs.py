"""What each promise costs: the same cycle once whole and once without it, in processes of their own that take turns.

A cost is the median of the whole cycle less that without the piece. A second whole one, from which nothing is taken,
says how far such a difference can be trusted. On disk, both run without the sync of each commit: it is the same in
both, varies by more than most pieces cost, and has a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from .contest import Contest, Entry, Plan
from .rounds import round_trips
from .statistic import median
from .table import Row, Table, seconds
from .without import EVERYTHING, PIECES

__all__ = ["COSTS", "cost_table", "costs"]

COSTS, DISK, MEMORY = "cost of a piece", "sqlite FULL", "memory"
FLOOR, WHOLE = "four statements by hand", "the whole cycle"
UNSYNCED, SYNC = "the whole cycle, commits not synced", "each commit synced"
AGAIN, LEFT = "nothing, for comparison", "what is left without all of these"
NORMAL = "the setting NORMAL, which may lose the last commits"


def costs(plan: Plan) -> list[Row]:
    """Return a row for each piece in a durable cycle, and one for each in a memory cycle."""
    durable = [
        Entry(FLOOR, "baseline:Baseline", "FULL", DISK),
        Entry(WHOLE, "without:Without", "FULL/", DISK),
        Entry(UNSYNCED, "without:Without", "NORMAL/", DISK),
        *_entries("without:Without", "NORMAL", DISK, [name for name, piece in PIECES.items() if piece.durable]),
    ]
    memory = [
        Entry(WHOLE, "without:WithoutInMemory", "memory:/", MEMORY),
        *_entries(
            "without:WithoutInMemory", "memory:", MEMORY, [name for name, piece in PIECES.items() if piece.memory]
        ),
    ]
    return [
        *_measured(plan, durable, UNSYNCED, batch=10, rounds=plan.pick(150, 12), budget=plan.pick(120, 8)),
        *_measured(plan, memory, WHOLE, batch=50, rounds=plan.pick(80, 10), budget=plan.pick(40, 3)),
    ]


def _entries(path: str, variant: str, store: str, names: Sequence[str]) -> list[Entry]:
    again = Entry(AGAIN, path, f"{variant}//", store)
    return [again, *(Entry(name, path, f"{variant}/{name}", store, PIECES[name].how) for name in names)]


def _measured(
    plan: Plan, entries: Sequence[Entry], whole: str, *, batch: int, rounds: int, budget: float
) -> list[Row]:  # fmt: skip
    """Measure the cycles; `whole` names the one that the pieces are taken from."""
    contest = Contest(COSTS, plan)
    taken = round_trips(contest, entries, rounds=rounds, batch=batch, budget=budget)
    rows = [contest.lost[entry] for entry in entries if entry in contest.lost]
    halves = {
        entry.who: (entry, *map(median, times)) for entry, times in taken.items() if entry not in contest.lost
    }  # fmt: skip
    if whole not in halves:
        return [*rows, Row(COSTS, whole, entries[-1].store, note="not measured")]
    samples = min(len(times.clock) for times in taken.values())
    for who, (entry, clock, processor) in halves.items():
        if who in {FLOOR, WHOLE, UNSYNCED}:
            rows.append(_row(who, entry.store, clock, processor, samples))
        else:
            less = halves[whole][1] - clock, halves[whole][2] - processor
            rows.append(_row(who, entry.store, *less, samples, PIECES[who].how if who in PIECES else ""))
        if who == EVERYTHING:
            rows.append(_row(LEFT, entry.store, clock, processor, samples))
    if SYNC not in halves and whole == UNSYNCED and WHOLE in halves:
        (_, *full), (_, *normal) = halves[WHOLE], halves[UNSYNCED]
        rows.append(_row(SYNC, DISK, full[0] - normal[0], full[1] - normal[1], samples, NORMAL))
    return rows


def _row(who: str, store: str, clock: float, processor: float, samples: int, how: str = "") -> Row:
    note = f"processor {seconds(processor)}" + (f"; switched off: {how}" if how else "")
    figures = {"median": clock, "processor": processor}
    return Row(COSTS, who, store, median=seconds(clock), samples=samples, note=note, figures=figures)


def cost_table(rows: Sequence[Row]) -> Table:
    """Put the durable and the memory cycle side by side, in microseconds."""
    found = {(row.who, row.store): row for row in rows if row.measure == COSTS}
    first = [FLOOR, WHOLE, UNSYNCED, AGAIN, SYNC]
    names = [name for name in (*first, *PIECES, LEFT) if any(who == name for who, _ in found)]
    lines: list[tuple[str, ...]] = []
    for name in names:
        cells: list[str] = []
        for store in (DISK, MEMORY):
            row = found.get((name, store))
            cells += ["", ""] if row is None else _cells(row)
        how = PIECES[name].how if name in PIECES else NORMAL if name == SYNC else ""
        missing = [row.note for store in (DISK, MEMORY) if (row := found.get((name, store))) and not row.figures]
        how = "; ".join(missing) or how
        lines.append((name, *cells, how))
    headings = (
        "piece", "on disk, us", "its processor time, us", "in memory, us", "its processor time, us",
        "how it is switched off",
    )  # fmt: skip
    return Table("costs", headings, lines, right=frozenset(range(1, 5)))


def _cells(row: Row) -> list[str]:
    if not row.figures:
        return ["", ""]
    return [f"{row.figures[name] * 1e6:,.0f}" for name in ("median", "processor")]
