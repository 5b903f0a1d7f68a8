"""`examples/many-machines`: one of each is killed, and it prints what it says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.postgres import server

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "many-machines" / "run.py"
VARIES = re.compile(r"\d+\.\d s|Chromium|a session over HTTP")


@pytest.mark.slow
def test_one_of_each_is_killed_and_every_refund_is_paid_once() -> None:
    server()  # left out, or a failure, where there is no Postgres
    command = [sys.executable, str(PROGRAM), "--no-chromium"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = ast.get_docstring(ast.parse(PROGRAM.read_text(encoding="utf-8"))) or ""
    shown = textwrap.dedent(said.partition("but for the time:\n\n")[2].partition("\n\n")[0]) + "\n"
    assert VARIES.sub("_", done.stdout) == VARIES.sub("_", shown)
