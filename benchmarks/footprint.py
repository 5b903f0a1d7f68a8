"""What sayso weighs before it does anything: its import, and the packages that come with it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

from .contest import Plan
from .statistic import median
from .table import Row, seconds

__all__ = ["footprint"]

IMPORT = "import, CPU over bare python"
INSTALL = "install in a fresh environment"
ROOT = Path(__file__).resolve().parent.parent
COUNT = "import importlib.metadata as m; print(' '.join(sorted(d.metadata['Name'] for d in m.distributions())))"


def footprint(plan: Plan) -> list[Row]:
    """Return the rows of both measures; the import is timed where only sayso is installed, if that can be made."""
    python, install = _fresh(plan)
    alone = [("sayso", python)] if python else []
    # Without it, the environment of this run has to do, which may hold an editable install and slower imports.
    modules = [*(alone or [("sayso", sys.executable)]), *((name, sys.executable) for name in ("pydantic", "click"))]
    modules += [(peer, sys.executable) for peer in ("holdpoint", "call4agents", "chowki", "udspy")]
    return [*_imports(modules, plan.pick(15, 5)), install]


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


def _imports(modules: list[tuple[str, str]], repeats: int) -> list[Row]:
    """Time `import name` and nothing in turns; the least of each is what the import itself takes."""
    modules = [(name, python) for name, python in modules if python != sys.executable or find_spec(name)]
    pythons = {python for _, python in modules}
    bare: dict[str, list[float]] = {python: [] for python in pythons}
    taken: dict[str, list[float]] = {name: [] for name, _ in modules}
    for number in range(repeats + 1):
        for python in pythons:
            bare[python].append(_cpu(python, "pass"))
        for name, python in modules:
            taken[name].append(_cpu(python, f"import {name}"))
        if number == 0:  # the first round writes the bytecode and fills the page cache
            for times in (*bare.values(), *taken.values()):
                times.clear()
    return [_import_row(name, taken[name], bare[python]) for name, python in modules]


def _import_row(name: str, taken: list[float], bare: list[float]) -> Row:
    over = min(taken) - min(bare)
    notes = [f"least of the samples; bare python {seconds(min(bare))}"]
    if name == "sayso":
        notes.insert(0, "aim: at most 60 ms")
    figures = {"least": over, "median": median(taken) - median(bare), "bare": min(bare)}
    note = "; ".join(notes)
    return Row(IMPORT, f"import {name}", median=seconds(over), samples=len(taken), note=note, figures=figures)


def _cpu(python: str, program: str) -> float:
    """Return the CPU seconds, own and system, of a whole process that runs `program`."""
    child = subprocess.Popen([python, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime if child.returncode == 0 else float("nan")
