"""`examples/many-machines`: one of each is killed, and what it prints is what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres import server

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "postgres.md"
VARIES = re.compile(r"\d+\.\d s|Chromium|a session over HTTP")


@pytest.mark.slow
def test_one_of_each_is_killed_and_every_refund_is_paid_once() -> None:
    server()  # left out, or a failure, where there is no Postgres
    command = [sys.executable, str(ROOT / "examples" / "many-machines" / "run.py"), "--no-chromium"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = PAGE.read_text().partition("$ python examples/many-machines/run.py\n")[2].partition("```")[0]
    assert VARIES.sub("_", done.stdout) == VARIES.sub("_", shown)
