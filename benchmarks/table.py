"""One table: its rows, and the three ways to write it (aligned text, Markdown, JSON).

Numbers are kept in seconds and turned into words only here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .statistic import median, percentile

__all__ = ["Row", "as_json", "as_markdown", "as_text", "fill", "seconds"]

BEGIN, END = "<!-- benchmark table: begin -->", "<!-- benchmark table: end -->"
HEADINGS = ("measure", "who", "store", "median", "p95", "per second", "samples", "note")
RIGHT = frozenset({"median", "p95", "per second", "samples"})


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


def _without_repeats(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Name each measure on its first row only, so that the eye finds the groups."""
    lines: list[tuple[str, ...]] = []
    before = ""
    for row in rows:
        cells = row.cells()
        lines.append(("" if row.measure == before else cells[0], *cells[1:]))
        before = row.measure
    return lines


def as_text(rows: Sequence[Row], machine: Sequence[str]) -> str:
    """Return the table in aligned columns under the lines that name the machine."""
    lines = _without_repeats(rows)
    widths = [max(len(line[place]) for line in [HEADINGS, *lines]) for place in range(len(HEADINGS))]

    def aligned(cells: Sequence[str]) -> str:
        pairs = zip(HEADINGS, cells, widths, strict=True)
        return "  ".join(cell.rjust(w) if head in RIGHT else cell.ljust(w) for head, cell, w in pairs).rstrip()

    out = [*machine, "", aligned(HEADINGS), aligned(["-" * width for width in widths])]
    for line in lines:
        if line[0] and len(out) > len(machine) + 3:
            out.append("")
        out.append(aligned(line))
    return "\n".join(out) + "\n"


def as_markdown(rows: Sequence[Row], machine: Sequence[str]) -> str:
    """Return the same table in Markdown, with the machine in a list above it."""
    rules = ["---:" if head in RIGHT else "---" for head in HEADINGS]
    lines = [HEADINGS, rules, *_without_repeats(rows)]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([*(f"- {fact}" for fact in machine), "", *table]) + "\n"


def as_json(rows: Sequence[Row], machine: Sequence[str]) -> str:
    """Return the same table with the raw figures, for programs."""
    return json.dumps({"machine": list(machine), "rows": [asdict(row) for row in rows]}, indent=2) + "\n"


def fill(path: Path, table: str) -> None:
    """Write `table` to `path`; a file that has the two markers keeps everything outside them."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if BEGIN in before and END in before:
        head, _, rest = before.partition(BEGIN)
        _, _, tail = rest.partition(END)
        table = f"{head}{BEGIN}\n{table}{END}{tail}"
    path.write_text(table, encoding="utf-8")
