"""What the benchmark switches off to see what it costs is still where the benchmark looks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.capacity import on_sqlite

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from pathlib import Path
from benchmarks.without import EVERYTHING, {name}
whole = {name}(Path(sys.argv[1]), "{store}/" + EVERYTHING)
whole.round_trip(7)
assert whole.effects == [7], whole.effects
"""


@pytest.mark.parametrize(("name", "store"), [("Without", "NORMAL"), ("WithoutInMemory", "memory:")])
def test_a_call_runs_once_with_every_piece_switched_off(name: str, store: str, tmp_path: Path) -> None:
    # In a process of its own, which nobody uses afterwards.
    command = [sys.executable, "-c", PROGRAM.format(name=name, store=store), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_an_approval_is_one_request_and_four_rows_of_the_journal(tmp_path: Path) -> None:
    each = {row.who: row.figures["each"] for row in on_sqlite(tmp_path / "store", 4)}
    assert (each["rows in request"], each["rows in journal"]) == (1, 4)
    assert each["bytes written, log too"] > each["bytes kept, indexes too"] > 230  # of arguments alone


@pytest.mark.parametrize("command", ["benchmarks", "benchmarks.scale"])
def test_a_benchmark_finds_all_that_it_imports(command: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", command, "--help"], capture_output=True, text=True, cwd=ROOT, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
