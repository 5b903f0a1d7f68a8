"""What each promise costs: the same cycle once whole and once without it, in processes of their own that take turns.

A cost is the median of the whole cycle less that without the piece. A second whole one, from which nothing is taken,
says how far such a difference can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

from .contest import Contest, Entry, Plan
from .rounds import Times, round_trips
from .statistic import median
from .table import Row, Table, seconds
from .without import PIECES

__all__ = ["COSTS", "cost_table", "costs"]

COSTS = "cost of a piece"
WHOLE, AGAIN = "the whole cycle", "nothing, for comparison"
FLOOR = "four statements by hand"


def costs(plan: Plan) -> list[Row]:
    """Return a row for each piece in a durable cycle, and one for each in a memory cycle."""
    durable = [
        Entry(FLOOR, "baseline:Baseline", "FULL", "sqlite FULL"),
        *_entries("without:Without", "FULL", "sqlite FULL", [name for name, piece in PIECES.items() if piece.durable]),
    ]
    memory = _entries(
        "without:WithoutInMemory", "memory:", "memory", [name for name, piece in PIECES.items() if piece.memory]
    )
    return [
        *_measured(plan, durable, batch=10, rounds=plan.pick(150, 12), budget=plan.pick(120, 8)),
        *_measured(plan, memory, batch=50, rounds=plan.pick(80, 10), budget=plan.pick(40, 3)),
    ]


def _entries(path: str, variant: str, store: str, names: Sequence[str]) -> list[Entry]:
    whole = [Entry(who, path, f"{variant}/", store, who) for who in (WHOLE, AGAIN)]
    return [*whole, *(Entry(name, path, f"{variant}/{name}", store, PIECES[name].how) for name in names)]


def _measured(plan: Plan, entries: Sequence[Entry], *, batch: int, rounds: int, budget: float) -> list[Row]:
    contest = Contest(COSTS, plan)
    taken = round_trips(contest, entries, rounds=rounds, batch=batch, budget=budget)
    whole = next((times for entry, times in taken.items() if entry.who == WHOLE and entry not in contest.lost), None)
    return [contest.lost.get(entry) or _row(entry, taken.get(entry), whole) for entry in entries]


def _row(entry: Entry, taken: Times | None, whole: Times | None) -> Row:
    if taken is None or whole is None:
        return Row(COSTS, entry.who, entry.store, note="not measured")
    clock, processor = map(median, taken)
    note = ""
    if entry.who not in {WHOLE, FLOOR}:
        clock, processor = median(whole.clock) - clock, median(whole.processor) - processor
        note = f", {processor / median(whole.processor):.0%} of the cycle's; switched off: {entry.note}"
    return Row(
        COSTS,
        entry.who,
        entry.store,
        median=seconds(clock),
        samples=len(taken.clock),
        note=f"processor {seconds(processor)}{note}",
        figures={"median": clock, "processor": processor},
    )


def cost_table(rows: Sequence[Row]) -> Table:
    """Put the durable and the memory cycle side by side, in microseconds."""
    found = {(row.who, row.store): row for row in rows if row.measure == COSTS}
    names = list(dict.fromkeys(who for who, _ in found))
    lines: list[tuple[str, ...]] = []
    for name in names:
        cells: list[str] = []
        for store in ("sqlite FULL", "memory"):
            row = found.get((name, store))
            cells += ["", ""] if row is None else _cells(row)
        how = PIECES[name].how if name in PIECES else ""
        lines.append((name, *cells, how))
    headings = (
        "piece", "durable, us", "processor, us", "memory, us", "processor, us in memory", "how it is switched off",
    )  # fmt: skip
    return Table("costs", headings, lines, right=frozenset(range(1, 5)))


def _cells(row: Row) -> list[str]:
    if not row.figures:
        return [row.note, ""]
    return [f"{row.figures[name] * 1e6:,.0f}" for name in ("median", "processor")]
