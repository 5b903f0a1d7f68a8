"""The recipe for Airflow: its operator defers, its trigger fires with the decision, and the call runs once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.integrations.adapters.installed import framework

RECIPE = Path(__file__).resolve().parents[3] / "examples/frameworks/airflow_refund.py"
STORY = """
import asyncio

import sayso
from airflow.exceptions import TaskDeferred
from airflow_refund import Decided, Refund

context = {"run_id": "manual-1"}


def attempt(event=None):
    operator = Refund(task_id="refund", order_id="A-4721", amount=320.0)
    try:
        print(operator.execute(context, event))
    except TaskDeferred as deferred:
        return deferred


async def event_of(trigger):
    path, options = trigger.serialize()
    assert path == "airflow_refund.Decided"
    fires = asyncio.ensure_future(anext(Decided(**{**options, "poll": 0.01}).run()))
    await asyncio.sleep(0)
    await sayso.aio.Review(by="ada").approve(trigger.request_id, changes={"amount": 160.0})
    return await fires


deferred = attempt()
assert deferred.method_name == "execute"
assert attempt({"request_id": "rq_false"}) is not None  # an event that is false starts nothing
event = asyncio.run(event_of(deferred.trigger))
attempt(event.payload)
attempt(event.payload)
"""


def test_task_is_deferred_until_somebody_has_decided(tmp_path: Path) -> None:
    if importlib.util.find_spec("airflow") is None:  # importing it would make a folder in the home of who tests
        framework("airflow", "the recipe for Airflow")
    shutil.copy(RECIPE, tmp_path)
    (tmp_path / "story").with_suffix(".py").write_text(STORY, encoding="utf-8")
    home = {"AIRFLOW_HOME": str(tmp_path / "airflow"), "SAYSO_STORE": f"sqlite:///{tmp_path / 'sayso.db'}"}
    done = subprocess.run(
        [sys.executable, "-m", "story"], cwd=tmp_path, env={**os.environ, **home}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("refunded")]  # among what Airflow logs
    assert said == ["refunded 160.00 for A-4721"] * 2
