"""The recipe for Procrastinate, as its reader runs it; that for Celery is run by its page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.integrations.adapters.installed import framework

RECIPE = Path(__file__).resolve().parents[3] / "examples/frameworks/procrastinate_refund.py"


def test_job_of_procrastinate_is_queued_again_until_somebody_has_decided(tmp_path: Path) -> None:
    framework("procrastinate", "the recipe for Procrastinate")
    environment = {**os.environ, "SAYSO_STORE": f"sqlite:///{tmp_path / 'sayso.db'}"}
    done = subprocess.run(
        [sys.executable, RECIPE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "refunded 320.00 for A-4721\n"), done.stderr
