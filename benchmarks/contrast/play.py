"""Plays scenarios with one subject, in the environment in which that is installed: each step is a process, forked here.

    python -m benchmarks.contrast.play SUBJECT SCENARIO ...

It prints a line of JSON with the versions, and one for each cell. All imports come before the first fork, so that ten
processes that race begin at once.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.contrast.registry import SUBJECTS
from benchmarks.contrast.scenarios import SCENARIOS, UNASKED, Cell
from benchmarks.contrast.steps import Broken, Play, Unasked
from benchmarks.contrast.subject import NotApplicable

__all__ = ["cell", "main"]


def cell(make: Any, scenario: str, folder: Path) -> Cell:
    """Play one scenario in a folder and return what came of it."""
    folder.mkdir(parents=True)
    play = Play(make, folder)
    try:
        play.serve()
        return SCENARIOS[scenario].play(play)
    except NotApplicable as why:
        return Cell("n/a", "n/a", str(why))
    except Unasked:
        return UNASKED
    except Broken as why:
        return Cell("broken", "broken", str(why))
    finally:
        play.close()


def main(words: Sequence[str]) -> None:
    """Play the scenarios that are named with a subject; print one line of JSON for each."""
    entry = SUBJECTS[words[0]]
    module, _, name = entry.driver.partition(":")
    make = getattr(importlib.import_module(f"benchmarks.contrast.drivers.{module}"), name)
    print(json.dumps({"versions": {name: version(name) for name in entry.versions}}), flush=True)
    with tempfile.TemporaryDirectory(prefix="sayso-contrast-") as folder:
        for scenario in words[1:]:
            found = cell(make, scenario, Path(folder) / scenario)
            for count in range(2, SCENARIOS[scenario].rounds + 1):
                if found.kind == "held":
                    found = cell(make, scenario, Path(folder) / f"{scenario}-{count}")
            print(json.dumps({"scenario": scenario, **asdict(found)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
