"""`python -m benchmarks.contrast [subject or scenario ...]`: play all of it, or what is named, and print the table."""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.contrast.registry import GROUPS, ROOT, SUBJECTS, Entry, is_brief, packages
from benchmarks.contrast.scenarios import SCENARIOS, Cell
from benchmarks.machine import describe
from benchmarks.table import Table, as_markdown, as_text, fill
from tests.integrations.adapters.environments import environment

LIMIT = 1_200.0  # seconds that one subject may take
CONTROL = "approval"  # what a subject must do rightly for its other cells to say something


@dataclass
class Result:
    """What came of one subject.

    Attributes:
        versions: Of the distributions that are named in the table.
        cells: By scenario.
        absent: Why it is left out.
        date: When it was played, and with which sayso.
    """

    entry: Entry
    date: str = ""
    versions: dict[str, str] = field(default_factory=dict[str, str])
    cells: dict[str, Cell] = field(default_factory=dict[str, Cell])
    absent: str = ""

    @property
    def shown(self) -> str:
        versions = ", ".join(f"{name} {found}" for name, found in self.versions.items())
        return f"{self.entry.shown} ({versions})" if versions else self.entry.shown

    def count(self, kind: str) -> int:
        return sum(cell.kind == kind for name, cell in self.cells.items() if name != CONTROL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what was named, or all; 1 where something ran with sayso in front, or a subject could not be measured."""
    options = _options(arguments)
    subjects = [name for name in SUBJECTS if name in options.names] or list(SUBJECTS)
    scenarios = [name for name in SCENARIOS if name in options.names] or list(SCENARIOS)
    with tempfile.TemporaryDirectory() as folder:
        facts = describe(Path(folder))[:1]  # what runs does not depend on how fast the machine is
    earlier = _read(options.also) if options.also else {}
    played = {name: _played(name, scenarios, facts[0]) for name in subjects}
    results = [(earlier | played)[name] for name in SUBJECTS if name in earlier | played]
    facts.append(f"{platform.python_implementation()} {platform.python_version()}; versions stand beside the names")
    before = {result.date for name, result in earlier.items() if name not in played}
    facts += [f"{date}: the subjects that were not played again" for date in sorted(before)]
    facts += [f"left out: {result.entry.shown}, {result.absent}" for result in results if result.absent]
    measured = [result for result in results if not result.absent]
    tables = [_table(measured, scenarios), _short(measured), _notes(measured)]
    texts = [as_markdown(tables[0], facts), as_markdown(tables[1], ()), _as_list(tables[2])]
    for path in options.markdown:
        written = [fill(path, table.name, text) for table, text in zip(tables, texts, strict=True)]
        if not any(written):
            print(f"{path} has no place for these tables", file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        print("\n".join([*facts, "", as_text(tables[0]), as_text(tables[2])]), end="")
    bad = [
        f"{result.entry.shown}, {name}: {cell.text}: {cell.note}"
        for result in measured
        for name, cell in result.cells.items()
        if cell.kind == "broken" or (result.entry.group == "sayso" and cell.kind not in {"held", "n/a"})
    ]
    print(*bad, sep="\n", end="\n" if bad else "", file=sys.stderr)
    return 1 if bad else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contrast", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name",
        help=f"any of the subjects {', '.join(SUBJECTS)}; and of the scenarios {', '.join(SCENARIOS)}",
    )  # fmt: skip
    parser.add_argument(
        "--also", type=Path, metavar="FILE",
        help="what --json printed before: its subjects are in the tables, too, as they were, if they are not named",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON, with what ran and how it was refused")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", action="append", default=[],
        help="also write the tables there, each between its markers; may be given several times",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in {*SUBJECTS, *SCENARIOS}]:
        parser.error(f"there is no subject or scenario {', '.join(unknown)}")
    return options


def _read(path: Path) -> dict[str, Result]:
    """Return the results that `--json` has printed, by the name of their subject."""
    names = {entry: name for name, entry in SUBJECTS.items()}
    found: dict[str, Result] = {}
    for one in json.loads(path.read_text(encoding="utf-8")):
        entry = Entry(**one["entry"] | {"versions": tuple(one["entry"]["versions"])})
        one |= {"entry": entry, "cells": {name: Cell(**cell) for name, cell in one["cells"].items()}}
        found[names[entry]] = Result(**one)
    return found


def _played(name: str, scenarios: Sequence[str], date: str) -> Result:
    """Play scenarios with one subject in its environment, which is made where it is not there."""
    result = Result(SUBJECTS[name], date)
    try:
        with redirect_stdout(sys.stderr):
            python = environment(f"contrast-{result.entry.environment}", packages(result.entry.environment))
    except subprocess.CalledProcessError:
        result.absent = "not installable here"
        return result
    print(f"{name}: {', '.join(scenarios)}", file=sys.stderr, flush=True)
    command = [python, "-m", "benchmarks.contrast.play", name, *scenarios]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=LIMIT, check=True, text=True)
    except subprocess.SubprocessError as error:
        result.absent = f"it did not end well: {type(error).__name__}"
        return result
    first, *lines = done.stdout.splitlines()
    result.versions = json.loads(first)["versions"]
    for line in map(json.loads, lines):
        name = line.pop("scenario")
        result.cells[name] = Cell(**line)
    return result


def _table(results: Sequence[Result], scenarios: Sequence[str]) -> Table:
    """Return the table: a column for each scenario, a line for each subject, and one for those of sayso that agree."""
    lines: list[list[str]] = []
    for group, words in GROUPS.items():
        who: dict[tuple[str, ...], list[str]] = {}
        for result in (result for result in results if result.entry.group == group):
            cells = tuple(_shown(result.cells[name]) for name in scenarios)
            who.setdefault(cells if group == "sayso" else (*cells, result.shown), []).append(result.shown)
        lines += [[f"*{words}*", *("" for _ in scenarios)]] if who else []
        lines += [["; ".join(names), *cells[: len(scenarios)]] for cells, names in who.items()]
    return Table("contrast", ["", *(SCENARIOS[name].heading for name in scenarios)], lines)


def _shown(cell: Cell) -> str:
    """Return a cell's text; bold and in one word if something ran: how often, or with what."""
    if cell.kind in {"held", "n/a"}:
        return cell.text
    text = re.sub(r"^(\d+) times$", r"\1x", cell.text.removeprefix("ran "))
    return f"**{re.sub(r'^refund of |(?<=^payout) of .*', '', text)}**"


def _short(results: Sequence[Result]) -> Table:
    """Return how many accidents each subject held that asks a person at all; sayso's lines are one."""
    lines = [
        [result.entry.shown, *(str(result.count(kind)) for kind in ("held", "ran", "n/a"))]
        for result in results
        if is_brief(result.entry) and result.cells.get(CONTROL, Cell("", "")).kind == "held"
    ]
    own = [result for result in results if result.entry.group == "sayso"]
    if own:
        counts = [sorted({result.count(kind) for result in own}) for kind in ("held", "ran", "n/a")]
        each = [str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}" for found in counts]
        lines.append([f"**sayso**, alone and in front of {len(own) - 1} frameworks", *each])
    return Table("contrast-short", ["", "held", "ran what should not", "n/a"], lines, frozenset({1, 2, 3}))


def _notes(results: Sequence[Result]) -> Table:
    """Return why cells are not applicable, and what a lost or broken one means; subjects of one reason together."""
    who: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        for name, cell in result.cells.items():
            if cell.kind in {"n/a", "lost", "broken"}:
                who.setdefault((SCENARIOS[name].heading, cell.text, cell.note), []).append(result.entry.shown)
    lines = [[scenario, text, why, ", ".join(names)] for (scenario, text, why), names in sorted(who.items())]
    return Table("contrast-notes", ["scenario", "cell", "why", "subjects"], lines)


def _as_list(notes: Table) -> str:
    """Return the notes as a page has them."""
    return "".join(f"- {scenario}, {text}: {why} ({who})\n" for scenario, text, why, who in notes.lines)


if __name__ == "__main__":
    raise SystemExit(main())
