"""`python -m benchmarks [--quick] [name ...]`: measure, and print one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .abuse import abuse
from .contest import Plan
from .core import one_core
from .crowd import paused, workers
from .evidence import evidence
from .footprint import footprint
from .inbox import inbox
from .learning import learning
from .listing import listed
from .machine import describe
from .overhead import allow
from .rounds import durable, memory, thousand
from .runs import call, resume, trip
from .server import restart, server
from .table import Row, as_json, as_markdown, as_text, fill
from .waking import wake

MEASURES: dict[str, Callable[[Plan], list[Row]]] = {
    "allow": allow,
    "memory": memory,
    "durable": durable,
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
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measures that were named, or all, and write the table."""
    options = _options(arguments)
    names = options.names or list(MEASURES)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="sayso-bench-", dir=options.folder) as folder, one_core():
        plan = Plan(Path(folder), options.quick)
        machine = describe(plan.folder)
        begun = time.monotonic()
        for name in names:
            since = time.monotonic()
            rows += MEASURES[name](plan)
            print(f"{name}: {time.monotonic() - since:.1f} s", file=sys.stderr)
    kind = "quick run, fewer samples" if options.quick else "full run"
    machine.append(f"{kind}, {time.monotonic() - begun:.0f} s; of fewer than 20 samples, p95 is the largest")
    if options.markdown:
        fill(options.markdown, as_markdown(rows, machine))
    print(as_json(rows, machine) if options.json else as_text(rows, machine), end="")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure sayso beside its peers.")
    known = ", ".join(MEASURES)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {known}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="fewer samples, under a minute")
    parser.add_argument("--json", action="store_true", help="print JSON with the raw figures")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table there, between its markers")
    parser.add_argument("--folder", type=Path, help="where the stores are made; their disk is what is measured")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in MEASURES]:
        parser.error(f"no measure is called {', '.join(unknown)}; there are {known}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
