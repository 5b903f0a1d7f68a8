"""What sayso weighs before it does anything: its import, and the packages that come with it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

from .contest import Plan
from .statistic import median, turns
from .table import Row, seconds

__all__ = ["footprint"]

OTHERS = ("pydantic", "click", "holdpoint", "call4agents", "chowki", "ctrlrun", "udspy")
IMPORT = "import, CPU over bare python"
INSTALL = "install in a fresh environment"
ROOT = Path(__file__).resolve().parent.parent
COUNT = "import importlib.metadata as m; print(' '.join(sorted(d.metadata['Name'] for d in m.distributions())))"


# The package loads what it needs at its first use, so its import alone says less than a program that gates something.
PROGRAMS = {
    "import sayso": "import sayso",
    "import sayso, one gate made": "import sayso\n@sayso.gate\ndef pay(amount: int, to: str) -> str: ...",
}


def footprint(plan: Plan) -> list[Row]:
    """Return the rows of both measures; the import is timed where only sayso is installed, if that can be made."""
    python, install = _fresh(plan)
    # Without it, the environment of this run has to do, which may hold an editable install and slower imports.
    programs = [(words, program, python or sys.executable) for words, program in PROGRAMS.items()]
    programs += [(f"import {name}", f"import {name}", sys.executable) for name in OTHERS if find_spec(name)]
    return [*_imports(programs, plan.pick(10, 4), plan.pick(30, 10)), install]


def _fresh(plan: Plan) -> tuple[str | None, Row]:
    """Make an environment with sayso alone; return its python and the row that counts its packages."""
    folder = plan.new_folder("fresh")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input", str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        said = [line.strip() for line in ended.stderr.splitlines() if "rror" in line]
        return None, Row(INSTALL, "sayso", note=f"absent (pip could not install: {(said or ['no reason given'])[-1]})")
    names = subprocess.run([python, "-c", COUNT], capture_output=True, text=True, check=True).stdout.split()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return str(python), Row(
        INSTALL,
        "sayso",
        median=f"{len(names)} packages",
        samples=1,
        note=f"aim: at most 8; {size / 1e6:.1f} MB: {', '.join(names)}",
        figures={"packages": float(len(names)), "bytes": float(size)},
    )


def _imports(programs: list[tuple[str, str, str]], repeats: int, budget: float) -> list[Row]:
    """Time each (words, program, python) and an empty program in turns."""
    pythons = {python for _, _, python in programs}
    bare: dict[str, list[float]] = {python: [] for python in pythons}
    taken: dict[str, list[float]] = {words: [] for words, _, _ in programs}
    everything = [(bare[python], "pass", python) for python in pythons]
    everything += [(taken[words], program, python) for words, program, python in programs]
    for number, (times, program, python) in turns(everything, repeats + 1, budget=budget):
        spent = _cpu(python, program)
        if number > 0:  # the first round writes the bytecode and fills the page cache
            times.append(spent)
    return [_import_row(words, taken[words], bare[python]) for words, _, python in programs]


def _import_row(words: str, taken: list[float], bare: list[float]) -> Row:
    over = min(taken) - min(bare)  # the least is what the import itself takes; noise only adds
    aim = "aim: at most 60 ms; " if words == "import sayso" else ""
    note = f"{aim}least of the samples; bare python {seconds(min(bare))}"
    figures = {"least": over, "median": median(taken) - median(bare), "bare": min(bare)}
    return Row(IMPORT, words, median=seconds(over), samples=len(taken), note=note, figures=figures)


def _cpu(python: str, program: str) -> float:
    """Return the CPU seconds, own and system, of a whole process that runs `program`."""
    child = subprocess.Popen([python, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime if child.returncode == 0 else float("nan")
