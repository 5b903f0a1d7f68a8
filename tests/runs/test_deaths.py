"""SIGKILL at every verb and call of a run: never two effects, every interrupted start unknown, everything else goes on.

The program that dies is `doomed_runs.py`: five kinds of runs, each leg in a process of its own, over the stores that
processes share. The one invariant: an effect is a line that the handler itself wrote.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tests.runs import doomed_runs

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL"),
    pytest.mark.slow,
    pytest.mark.timeout(1_000),  # half a minute of computing, which a busy machine may take long for
]
PAYS = {"tool": [1], "agent": [2, 3, 4], "workflow": [2, 3], "nested": [2, 3], "step": [2]}
LOOKS = {"tool": [], "agent": [1], "workflow": [1, 4], "nested": [1], "step": [1, 3]}


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory, root: Any) -> list[dict[str, Any]]:
    """Every death, and what came of it."""
    folder = str(tmp_path_factory.mktemp("deaths"))
    program = [sys.executable, doomed_runs.__file__, folder]
    jobs = [[*program, store, *doomed_runs.KINDS] for store in ("sqlite", "jsonl")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    running = [subprocess.Popen(job, stdout=subprocess.PIPE, text=True, env=env) for job in jobs]
    lines = [line for job in running for line in job.communicate(timeout=900)[0].splitlines()]
    assert [job.returncode for job in running] == [0, 0]
    return [json.loads(line) for line in lines]


def where(death: dict[str, Any]) -> str:
    return f"{death['store']} {death['kind']}, leg {death['leg']}, {death['point']}: {death}"


def test_every_kind_of_run_died_at_every_point(deaths: list[dict[str, Any]]) -> None:
    seen = Counter((death["store"], death["kind"]) for death in deaths)
    assert set(seen) == {(store, kind) for store in ("sqlite", "jsonl") for kind in doomed_runs.KINDS}
    for store in ("sqlite", "jsonl"):
        assert {death["point"] for death in deaths if death["store"] == store} == set(doomed_runs.POINTS)
    assert len(deaths) > 150
    assert {death["code"] for death in deaths} == {-signal.SIGKILL}


def test_no_gated_call_has_its_effect_twice(deaths: list[dict[str, Any]]) -> None:
    for death in deaths:
        pays = Counter(effect for effect in death["effects"] if effect.startswith("pay"))
        assert not pays or max(pays.values()) == 1, where(death)


def test_an_interrupted_start_is_unknown_and_nothing_else_is(deaths: list[dict[str, Any]]) -> None:
    assert any(death["found"]["running"] for death in deaths)
    for death in deaths:
        reasons = [said["reason"] for said in death["told"]]
        assert ("outcome_unknown" in reasons) == bool(death["found"]["running"]), where(death)


def test_what_had_ended_is_not_done_again(deaths: list[dict[str, Any]]) -> None:
    assert sum(len(death["found"]["ended"]) for death in deaths) > 100
    for death in deaths:
        before, after = Counter(death["killed"]), Counter(death["effects"])
        for label in death["found"]["ended"]:
            assert before[label] == after[label] == 1, where(death)


def test_every_run_goes_on_to_its_end(deaths: list[dict[str, Any]]) -> None:
    for death in deaths:
        last, kind = death["told"][-1], death["kind"]
        lost = [n for n in death["found"]["running"] if f"pay {n}" not in death["killed"]]
        if lost and kind not in {"agent", "nested", "step"}:  # a call that never happened is a failed step
            assert (last["code"], last["reason"]) == ("error", None), where(death)
            continue
        assert (last["code"], last["reason"]) == ("success", None), where(death)
        expected = {f"pay {n}" for n in PAYS[kind]} - {f"pay {n}" for n in lost} | {f"look {n}" for n in LOOKS[kind]}
        assert set(death["effects"]) == expected, where(death)
