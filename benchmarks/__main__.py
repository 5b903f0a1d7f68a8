"""`python -m benchmarks [--quick] [name ...]`: measure, and print one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .abuse import abuse
from .capacity import capacity, capacity_table
from .contest import Plan
from .core import one_core
from .costs import cost_table, costs
from .crowd import fleet, paused, workers
from .evidence import evidence
from .footprint import footprint
from .inbox import inbox
from .learning import learning
from .listing import listed
from .machine import describe, load_after
from .overhead import allow
from .postgres import postgres
from .processes import processes
from .rounds import durable, memory, thousand
from .runs import call, resume, trip
from .server import restart, server
from .table import Row, Table, as_json, as_markdown, as_text, brief, facts_of, fill, table_of
from .targets import DISK, MEMORY, target_table
from .waking import wake
from .walk import walk

MEASURES: dict[str, Callable[[Plan], list[Row]]] = {
    "allow": allow,
    "memory": memory,
    "durable": durable,
    "processes": processes,
    "thousand": thousand,
    "wake": wake,
    "list": listed,
    "call": call,
    "trip": trip,
    "resume": resume,
    "workers": workers,
    "paused": paused,
    "inbox": inbox,
    "server": server,
    "restart": restart,
    "evidence": evidence,
    "learning": learning,
    "abuse": abuse,
    "import": footprint,
    "walk": walk,
    "costs": costs,
    "postgres": postgres,
    "fleet": fleet,
    "capacity": capacity,
}
# What the targets are about; and what does not stand in the main table.
TARGETED = {"allow", "memory", "durable", "processes", "trip", "server", "import", "walk"}
APART = {"inbox", "server", "restart", "evidence", "learning", "abuse", "costs", "postgres", "fleet", "capacity"}
# The measures that a page shows; the others are printed only.
ON_A_PAGE = (MEMORY, DISK)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measures that were named, or all, and write the tables."""
    options = _options(arguments)
    names = options.names or list(MEASURES)
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="sayso-bench-", dir=options.folder) as folder, one_core():
        plan = Plan(Path(folder), options.quick)
        machine = describe(plan.folder)
        begun = time.monotonic()
        for name in names:
            since = time.monotonic()
            found[name] = MEASURES[name](plan)
            print(f"{name}: {time.monotonic() - since:.1f} s", file=sys.stderr)
    kind = "quick run, fewer samples" if options.quick else "full run"
    machine.append(f"{kind}, {time.monotonic() - begun:.0f} s; of fewer than 20 samples, p95 is the largest")
    after = load_after()
    machine += after
    rows = [row for name in names for row in found[name]]
    tables = _tables(found, rows, is_busy=bool(after))
    if options.markdown:
        for table in tables:
            shown, facts = brief(table, ON_A_PAGE), facts_of(table, tables, machine, after)
            if shown.lines and not fill(options.markdown, table.name, as_markdown(shown, facts)):
                print(
                    f"{options.markdown} has no place for the table `{table.name}`, which is only printed",
                    file=sys.stderr,
                )
    text = "\n".join([*machine, *(f"\n{as_text(table)}" for table in tables)])
    print(as_json(rows, machine) if options.json else text, end="")
    return 0


def _tables(found: Mapping[str, Sequence[Row]], rows: Sequence[Row], *, is_busy: bool) -> list[Table]:
    """Return the tables of a run: the main one, those with a place of their own, and the targets if all of it ran."""
    main_rows = [row for name, some in found.items() if name not in APART for row in some]
    tables = [table_of("table", main_rows)] if main_rows else []
    if "costs" in found:
        tables.append(cost_table(found["costs"]))
    if "capacity" in found:
        tables.append(capacity_table(found["capacity"]))
    apart = [row for name, some in found.items() if name in APART - {"costs", "capacity"} for row in some]
    if apart:
        tables.append(table_of("apart", apart))
    if found.keys() >= TARGETED:
        tables.append(target_table(rows, is_busy=is_busy))
    return tables


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure sayso beside its peers.")
    known = ", ".join(MEASURES)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {known}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="fewer samples, under four minutes on an idle machine")
    parser.add_argument("--json", action="store_true", help="print JSON with the raw figures")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="also write the tables there, each between its markers"
    )
    parser.add_argument("--folder", type=Path, help="where the stores are made; their disk is what is measured")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in MEASURES]:
        parser.error(f"no measure is called {', '.join(unknown)}; there are {known}")
    if options.markdown and not options.markdown.is_file():
        parser.error(f"there is no file {options.markdown}; --markdown fills a page that has markers for the tables")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
