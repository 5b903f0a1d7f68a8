"""Tables: their rows, and the three ways to write them (aligned text, Markdown between two markers, JSON).

Numbers are kept in seconds and turned into words only here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .statistic import median, percentile

__all__ = ["Row", "Table", "as_json", "as_markdown", "as_text", "brief", "facts_of", "fill", "seconds", "table_of"]

HEADINGS = ("measure", "who", "store", "median", "p95", "per second", "samples", "note")
RIGHT = frozenset(range(3, 7))
# Columns that are printed and that a page leaves out.
PRINTED_ONLY = {
    "store",
    "p95",
    "per second",
    "samples",
    "its processor time, us",
    "how it is switched off",
    "clients ms",
    "ask ms",
    "approve ms",
    "start ms",
    "finish ms",
}


@dataclass(frozen=True)
class Row:
    """One line: `median`, `p95` and `rate` are words for people, `figures` the raw numbers (seconds unless named)."""

    measure: str
    who: str
    store: str = ""
    median: str = ""
    p95: str = ""
    rate: str = ""
    samples: int | None = None
    note: str = ""
    figures: dict[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def of(
        cls, measure: str, who: str, store: str, values: Sequence[float], *, rate: str = "", note: str = "",
        **figures: float,
    ) -> Row:  # fmt: skip
        """Return the row of some measured times, in seconds; `figures` are further raw numbers."""
        middle, most = median(values), percentile(values, 95)
        return cls(
            measure, who, store, seconds(middle), seconds(most), rate, len(values), note,
            {"median": middle, "p95": most, **figures},
        )  # fmt: skip

    def cells(self) -> tuple[str, ...]:
        """Return the words of the row, in the order of the headings."""
        samples = "" if self.samples is None else f"{self.samples:,}"
        return (self.measure, self.who, self.store, self.median, self.p95, self.rate, samples, self.note)


def seconds(value: float) -> str:
    """Return a duration with three figures and the unit that suits it."""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if abs(value) < limit:
            return f"{_three(value * factor)} {unit}"
    return f"{_three(value)} s"


def _three(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


@dataclass(frozen=True)
class Table:
    """Words in columns, under the name that its markers in a page have; columns in `right` hold numbers."""

    name: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()


def table_of(name: str, rows: Iterable[Row]) -> Table:
    """Put rows into a table; each measure is named on its first row only, so that the eye finds the groups."""
    lines: list[tuple[str, ...]] = []
    before = ""
    for row in rows:
        cells = row.cells()
        lines.append(("" if row.measure == before else cells[0], *cells[1:]))
        before = row.measure
    return Table(name, HEADINGS, lines, RIGHT)


def brief(table: Table, measures: tuple[str, ...] = ("",)) -> Table:
    """Return a table as a page has it, without some columns; the command prints all of it.

    Targets are those that were measured. Rows are of measures that begin with one of `measures`, without stores that
    do not sync. Of a note, only what compares a row with others is left, and why there is no figure.
    """
    if table.name == "targets":
        return Table(table.name, table.headings, [line for line in table.lines if line[2]], table.right)
    if tuple(table.headings) != HEADINGS:
        return _without(PRINTED_ONLY, table)
    groups: list[list[Sequence[str]]] = []
    for line in table.lines:
        if line[0] or not groups:
            groups.append([])
        groups[-1].append(line)
    lines: list[tuple[str, ...]] = []
    for whole in groups:
        group = [line for line in whole if not line[2].endswith("NORMAL")] if whole[0][0].startswith(measures) else []
        if not group:
            continue
        lines += [(*line[:-1], _compared(line[-1]) if line[3] else line[-1]) for line in group]
    headings = [*HEADINGS[:-1], "beside others"]
    return _without(PRINTED_ONLY, Table(table.name, headings, lines, table.right))


def _compared(note: str) -> str:
    """Return the ratios in a note, without the aims, which the table of the targets has."""
    plain = re.sub(r" \(aim: [^)]*\)", "", note)
    return "; ".join(part for part in plain.split("; ") if re.match(r"[\d.,]+x ", part))


def _without(headings: Container[str], table: Table) -> Table:
    kept = [place for place, heading in enumerate(table.headings) if heading not in headings]
    lines = [[line[place] for place in kept] for line in (table.headings, *table.lines)]
    return Table(
        table.name, lines[0], lines[1:], frozenset(kept.index(place) for place in table.right if place in kept)
    )


def as_text(table: Table) -> str:
    """Return the table in aligned columns, with a blank line between the groups of its first one."""
    every = [table.headings, *table.lines]
    widths = [max(len(line[place]) for line in every) for place in range(len(table.headings))]

    def aligned(cells: Sequence[str]) -> str:
        pairs = enumerate(zip(cells, widths, strict=True))
        return "  ".join(c.rjust(w) if place in table.right else c.ljust(w) for place, (c, w) in pairs).rstrip()

    out = [aligned(table.headings), aligned(["-" * width for width in widths])]
    has_groups = any(not line[0] for line in table.lines)
    for place, line in enumerate(table.lines):
        if has_groups and line[0] and place:
            out.append("")
        out.append(aligned(line))
    return "\n".join(out) + "\n"


def as_markdown(table: Table, facts: Sequence[str]) -> str:
    """Return the table in Markdown, under a list of facts about it; a line that only names a group has one cell."""
    rules = ["---:" if place in table.right else "---" for place in range(len(table.headings))]
    lines = [
        "| " + " | ".join(c.replace("|", "\\|") for c in (line if any(line[1:]) else line[:1])) + " |"
        for line in (table.headings, rules, *table.lines)
    ]
    return "\n".join([*(f"- {fact}" for fact in facts), "", *lines]) + "\n"


def facts_of(table: Table, tables: Sequence[Table], machine: Sequence[str], busy: Sequence[str]) -> list[str]:
    """Return what a page says above a table: on the first one the machine, then which run it was and if it was busy.

    Counts are the same on each machine.
    """
    if table.name == "capacity":
        return [machine[0]]
    first = next((one for one in tables if one.name == "targets"), tables[0])
    return [*machine[:2], *busy] if table is first else [f"{machine[0]}; the machine was busy" if busy else machine[0]]


def as_json(rows: Sequence[Row], machine: Sequence[str]) -> str:
    """Return the same table with the raw figures, for programs."""
    return json.dumps({"machine": list(machine), "rows": [asdict(row) for row in rows]}, indent=2) + "\n"


def fill(path: Path, name: str, text: str) -> bool:
    """Put `text` between the two markers of this name in a page, and say whether it has them; all else stays."""
    begin, end = f"<!-- benchmark {name}: begin -->", f"<!-- benchmark {name}: end -->"
    page = path.read_text(encoding="utf-8")
    head, has_begin, rest = page.partition(begin)
    _, has_end, tail = rest.partition(end)
    if not (has_begin and has_end):
        return False
    path.write_text(f"{head}{begin}\n{text}{end}{tail}", encoding="utf-8")
    return True
