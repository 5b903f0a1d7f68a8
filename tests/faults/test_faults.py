"""`make faults --short`: a few of the faults that no other test has; no effect twice, nothing lost, every unknown told.

The command has many of each; its tables are in docs/assets/faults.txt and docs/reliability.md.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.fleet import ROOT
from tests.support.postgres import server

WORDS = ("server killed", "Postgres stopped", "one of two", "connections cut, server", "sent twice")


@pytest.mark.slow
@pytest.mark.timeout(1_000)
def test_faults_double_and_lose_nothing() -> None:
    server()  # left out, or a failure, where there is no Postgres
    # A process of its own, which may leave connections open when it ends.
    command = [sys.executable, "-m", "tests.faults", "--short", *WORDS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| ") == 2 * len(WORDS) + 3, done.stdout  # two tables with their heads, and the sum
