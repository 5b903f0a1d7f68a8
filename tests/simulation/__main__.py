"""Run schedules: `python -m tests.simulation [--seed N] [--schedules N] [--seconds S] [--first N] [--scene NAME]`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from contextlib import ExitStack

from tests.simulation.kernel import simulated
from tests.simulation.network import wired
from tests.simulation.play import SCENES, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    named = {kind.__name__: kind for kind in SCENES}
    choices = [*sorted(named), "database"]
    parser.add_argument("--scene", choices=choices, help="play all seeds as this kind of schedule")
    options = parser.parse_args()
    scenes, more = (named.get(options.scene),), ExitStack()
    if options.scene == "database":  # it needs a server, and is not among the others
        from tests.simulation.database import DATABASE_SCENES, on_database

        scenes = DATABASE_SCENES
        more.enter_context(on_database())
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.schedules)
    began, done, faults = time.process_time(), 0, 0
    with more, simulated() as use, wired():
        for seed in seeds:
            played = play(seed, use, scenes[seed % len(scenes)])
            done, faults = done + 1, faults + len(played.faults)
            if played.broken is not None:
                print(f"schedule {seed} ({played.scene}) broke a promise: {played.broken}; faults: {played.faults}")
                if options.seed is not None:
                    traceback.print_exception(played.broken)
                return 1
            if time.process_time() - began > options.seconds:
                break
    took = time.process_time() - began
    print(f"{done} schedules, {faults} faults, {took:.1f} s, {took / done * 1e3:.2f} ms of processor time each")
    return 0


sys.exit(main())
