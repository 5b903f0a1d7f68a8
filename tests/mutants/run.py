"""Take the guards away one at a time, in a copy of the package; the test that is named for it must turn red.

    python tests/mutants/run.py [WORD...]      only the guards whose words, file or test hold one of these

First every named test is run on the package as it is, in two halves at once, and must pass. Then a few mutants run at a
time, each in a copy and a process of its own. The last line counts; the exit code is 1 when a mutant survives, when a
test was not run, or when a guard's text is no longer there.
"""

from __future__ import annotations

import atexit
import importlib
import os
import select
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from guards import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 3  # one of them most often only waits
SECONDS = 45
BATCH_SECONDS = 600
RED, GREEN = 1, 0  # pytest's exit codes for failed tests and for none
OPTIONS = ["-x", "-q", "--tb=line", "--assert=plain", "-p", "no:cacheprovider"]
OURS = {"sayso", "tests", "conftest", "guards", "__main__", "__mp_main__"}


class Told(NamedTuple):
    """What became of a mutant; `is_red` alone is good."""

    mutant: Mutant
    is_red: bool
    word: str
    seconds: float


class Run:
    """Tests on one copy of the package, in a process that is forked from this one.

    An interpreter of its own would take longer to load pytest and what the tests use than most of them to run. This
    process never loads the package, so that each of them loads its own copy.
    """

    def __init__(self, base: Path, package: Path, tests: list[str], seconds: float) -> None:
        self.began, self.seconds, self._out = time.monotonic(), seconds, package / "out"
        self._child = os.fork()
        if self._child == 0:
            _run(base, package, tests)
        self.ended = os.pidfd_open(self._child)

    @property
    def left(self) -> float:
        return max(0.0, self.began + self.seconds - time.monotonic())

    def result(self) -> tuple[int | None, str]:
        """Return the exit code, None where it did not end in time, and what was written; wait until then."""
        is_over = bool(select.select([self.ended], [], [], self.left)[0])
        with suppress(ProcessLookupError):
            os.killpg(self._child, 9)  # the programs that the test started end with it
        code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        os.close(self.ended)
        return code if is_over else None, self._out.read_text(encoding="utf-8", errors="replace")


def _run(base: Path, package: Path, tests: list[str]) -> NoReturn:
    os.setsid()
    with (package / "out").open("wb") as out:
        for number in (1, 2):
            os.dup2(out.fileno(), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(base)
    os.environ.update(PYTHONPATH=str(package / "src"), PYTHONHASHSEED="0")
    sys.path[0] = str(package / "src")
    code = 3
    try:
        import pytest

        code = int(pytest.main([*OPTIONS, "--basetemp", str(package / "temp"), *(f"tests/{test}" for test in tests)]))
        names = sorted(name for name in sys.modules if name.partition(".")[0] not in OURS)
        (package / "loaded").write_text("\n".join(names), encoding="utf-8")
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        os._exit(code)


def load(names: list[str]) -> None:
    """Load what the tests loaded, but for the package and themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with suppress(Exception):
                importlib.import_module(name)


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


def judged(mutant: Mutant, run: Run) -> Told:
    """Say what became of a mutant whose test has ended, or has had its time."""
    code, out = run.result()
    seconds = time.monotonic() - run.began
    match code:
        case 1:
            return Told(mutant, True, "red", seconds)
        case 0:
            return Told(mutant, False, "SURVIVED", seconds)
        case None:
            return Told(mutant, True, "red, it hung", seconds)
        case _:
            return Told(mutant, False, f"NOT RUN (pytest said {code})\n{out}", seconds)


def tried(base: Path, packages: list[Path], mutants: list[Mutant]) -> Iterator[Told]:
    """Run the test of each mutant in a copy that is free, and say what became of it."""
    left, running = mutants[::-1], list[tuple[Mutant, Run, Path, ExitStack]]()
    while left or running:
        while left and packages:
            mutant, package, stack = left.pop(), packages.pop(), ExitStack()
            stack.enter_context(mutated(package, mutant))
            running.append((mutant, Run(base, package, [mutant.test], SECONDS), package, stack))
        ended = select.select(
            [run.ended for _, run, _, _ in running], [], [], min(run.left for _, run, _, _ in running)
        )
        for one in [one for one in running if one[1].ended in ended[0] or one[1].left == 0]:
            mutant, run, package, stack = one
            yield judged(mutant, run)
            stack.close()
            packages.append(package)
            running.remove(one)


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
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    base = Path(tempfile.mkdtemp(prefix="sayso-mutants-"))  # no TemporaryDirectory: a fork would clean it up as well
    try:
        shutil.copytree(ROOT / "tests", base / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", base)
        tests = sorted({mutant.test for mutant in chosen})
        packages = [copied(base / f"package-{number}") for number in range(AT_ONCE)]
        halves = [(packages[number], part) for number in (0, 1) if (part := tests[number::2])]
        batches = [Run(base, package, part, BATCH_SECONDS) for package, part in halves]
        for code, out in [batch.result() for batch in batches]:
            if code != GREEN:
                print(f"the tests do not pass on the package as it is (pytest said {code})\n{out}")
                return 1
        print(f"{len(tests)} tests pass on the package as it is, {time.monotonic() - began:.0f} s")
        for package, _ in halves:
            load((package / "loaded").read_text(encoding="utf-8").split())
        results: list[Told] = []
        for told in tried(base, packages, chosen):
            results.append(told)
            print(f"{told.seconds:5.1f} s  {told.mutant.file:30}  {told.mutant.guard:52}  {told.word}", flush=True)
    finally:
        shutil.rmtree(base)
    bad = [told for told in results if not told.is_red]
    print(f"{len(results)} guards taken away, {len(results) - len(bad)} noticed, {time.monotonic() - began:.0f} s")
    for told in bad:
        print(f"  {told.mutant.guard} ({told.mutant.file}): {told.mutant.test}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
