"""Take the guards away one at a time, in a copy of the package; the test that is named for it must turn red.

    python tests/mutants/run.py [WORD...]      only the guards whose words, file or test hold one of these

First every named test is run on the package as it is, and must pass. Then two mutants run at a time, each in its
worker's own copy. The last line counts; the exit code is 1 when a mutant survives, when a test was not run, or when a
guard's text is no longer there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from guards import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 2
SECONDS = 90
BATCH_SECONDS = 600
RED, GREEN = 1, 0  # pytest's exit codes for failed tests and for none


class Told(NamedTuple):
    """What became of a mutant; `is_red` alone is good."""

    mutant: Mutant
    is_red: bool
    word: str
    seconds: float


def pytest(base: Path, package: Path, tests: list[str], seconds: float) -> tuple[int | None, str]:
    """Run tests on the package that lies there; the exit code is None where they did not end in time."""
    # Without the plugin of one test, which takes longer to load than most of these tests to run.
    options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    options += ["--basetemp", str(package / "temp")]
    words = [sys.executable, "-m", "pytest", *options, *(f"tests/{test}" for test in tests)]
    environment = {**os.environ, "PYTHONPATH": str(package / "src"), "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        words, cwd=base, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # Its own session: the programs that the test started end with it.
            os.killpg(process.pid, 9)
            process.communicate()
            return None, ""
    return process.returncode, out


def copied(place: Path) -> Path:
    """Copy the package; compiled files come along, so that only a mutant's own file is compiled anew."""
    shutil.copytree(ROOT / "src", place / "src")
    shutil.copytree(ROOT / "examples", place / "examples")  # the demo is a program there
    return place


@contextmanager
def mutated(package: Path, mutant: Mutant) -> Iterator[None]:
    """Take the guard away, and put it back at the end."""
    file = package / "src" / "sayso" / mutant.file
    text = file.read_text(encoding="utf-8")
    try:
        write(file, text.replace(mutant.old, mutant.new))
        yield
    finally:
        write(file, text)


def write(file: Path, text: str) -> None:
    """Write a file of the package, and let nobody take what was compiled of the one before for its own."""
    file.write_text(text, encoding="utf-8")
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def tried(base: Path, packages: SimpleQueue[Path], mutant: Mutant) -> Told:
    """Run a mutant's test in a copy that is free, and say what became of it."""
    began, package = time.monotonic(), packages.get()
    try:
        with mutated(package, mutant):
            code, out = pytest(base, package, [mutant.test], SECONDS)
    finally:
        packages.put(package)
    seconds = time.monotonic() - began
    match code:
        case 1:
            return Told(mutant, True, "red", seconds)
        case 0:
            return Told(mutant, False, "SURVIVED", seconds)
        case None:
            return Told(mutant, True, "red, it hung", seconds)
        case _:
            return Told(mutant, False, f"NOT RUN (pytest said {code})\n{out}", seconds)


def misplaced(mutants: list[Mutant]) -> list[str]:
    """Return the guards whose text does not stand exactly once in its file."""
    counts = [((ROOT / "src" / "sayso" / m.file).read_text(encoding="utf-8").count(m.old), m) for m in mutants]
    return [f"{m.file}: {count} times, not once: {m.old!r}" for count, m in counts if count != 1]


def main(words: list[str]) -> int:
    chosen = [m for m in MUTANTS if not words or any(word in f"{m.guard} {m.file} {m.test}" for word in words)]
    gone = misplaced(chosen)
    if gone or not chosen:
        print("\n".join(gone) or "no guard is called that")
        return 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sayso-mutants-") as folder:
        base = Path(folder)
        shutil.copytree(ROOT / "tests", base / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", base)
        tests = sorted({mutant.test for mutant in chosen})
        packages = SimpleQueue[Path]()
        for number in range(AT_ONCE):
            packages.put(copied(base / f"package-{number}"))
        whole = packages.get()
        code, out = pytest(base, whole, tests, BATCH_SECONDS)
        packages.put(whole)
        if code != GREEN:
            print(f"the tests do not pass on the package as it is (pytest said {code})\n{out}")
            return 1
        print(f"{len(tests)} tests pass on the package as it is")
        results: list[Told] = []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for told in pool.map(partial(tried, base, packages), chosen):
                results.append(told)
                print(f"{told.seconds:5.1f} s  {told.mutant.file:30}  {told.mutant.guard:52}  {told.word}", flush=True)
    bad = [told for told in results if not told.is_red]
    print(f"{len(results)} guards taken away, {len(results) - len(bad)} noticed, {time.monotonic() - began:.0f} s")
    for told in bad:
        print(f"  {told.mutant.guard} ({told.mutant.file}): {told.mutant.test}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
