"""What the benchmark switches off to see what it costs is still where the benchmark looks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
