"""`make faults`: every fault, counted, as two tables in Markdown: by fault and store, and by fault.

python -m tests.faults [WORD…] [--short]     the trials whose names hold one of these words; all of them, else
python -m tests.faults --soak MINUTES        two servers over Postgres under load: memory and connections
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.machine import describe, load_after
from tests.faults.fleet import Counts
from tests.faults.soak import soak
from tests.faults.trials import TRIALS, LeftOutError

HEAD = (
    "| fault | trials | calls | effects | more than once | lost | unknown | recovery, s |",
    "|---|---:|---:|---:|---:|---:|---:|---|",
)


def row(name: str, counts: Counts) -> str:
    times = sorted(counts.recovery)
    recovery = f"{median(times):.1f}, at most {times[-1]:.1f}" if times else ""
    unknown = str(counts.unknown) + f", only {counts.told} told" * (counts.told != counts.unknown)
    cells = (name, counts.trials, counts.calls, counts.effects, counts.doubled, counts.lost + counts.silent,
             unknown, recovery)  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description="Every fault, counted.")
    parser.add_argument("words", nargs="*", help="trials whose name holds one of these")
    parser.add_argument("--short", action="store_true", help="as few of each as the test takes")
    parser.add_argument("--times", type=int, metavar="N", help="so many of each")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="load for so long, and nothing else")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(describe(Path(folder))), end="\n\n", flush=True)
    if options.soak is not None:
        return soak(options.soak)
    print("\n".join(HEAD), flush=True)
    faults: dict[str, Counts] = {}
    is_right, began = True, time.monotonic()
    for name, where, trial, full, short in TRIALS:
        if options.words and not any(word in f"{name}, {where}" for word in options.words):
            continue
        try:
            counts = trial(options.times or ((short or 1) if options.short else full))
        except LeftOutError as why:
            print(f"| {name}, {where} | left out: {why} | | | | | | |", flush=True)
            continue
        except AssertionError as fault:
            print(f"| {name}, {where} | broken off: {fault} | | | | | | |", flush=True)
            is_right = False
            continue
        is_right = is_right and counts.is_right
        faults[name] = faults.get(name, Counts()) + counts
        print(row(f"{name}, {where}", counts), flush=True)
    print("\n".join(["", *HEAD, *(row(name, counts) for name, counts in faults.items())]))
    print(row("**all**", sum(faults.values(), Counts())))
    print("\n".join(["", f"{time.monotonic() - began:.0f} s", *load_after()]))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
