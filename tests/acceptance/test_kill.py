"""SIGKILL at every write of a gated call: never two effects, every interrupted start `unknown`, nothing lost.

`SAYSO_KILLS=10` kills ten times at every failpoint (three times by default); `SAYSO_CRASH_TABLE=FILE` writes the table.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sayso import audit
from sayso.model.request import State
from sayso.reviews import Review
from sayso.stores.sqlite import SqliteStore

KILLS = int(os.environ.get("SAYSO_KILLS", "3"))
PROGRAM = Path(__file__).with_name("killed.py")
STEPS = ("before begin", "after begin", "after request", "after journal", "after commit")
FAILPOINTS = [
    *(f"open: {step}" for step in STEPS),
    *(f"start: {step}" for step in STEPS),
    "call: before the effect",
    "call: after the effect",
    *(f"finish: {step}" for step in STEPS),
]
IN_DOUBT = set(FAILPOINTS[FAILPOINTS.index("start: after commit") : FAILPOINTS.index("finish: after commit")])
NOT_RUN = {"start: after commit", "call: before the effect"}

seen: dict[str, Counter[tuple[int, str]]] = {}


@pytest.fixture(scope="module", autouse=True)
def _table() -> Iterator[None]:
    yield
    target = os.environ.get("SAYSO_CRASH_TABLE")
    if target:
        rows = ["| killed at | kills | no effect | one effect | two or more | the record afterwards |", "|---|--:|--:|--:|--:|---|"]
        for point, found in seen.items():
            by_effects = Counter({"0": 0, "1": 0, "2": 0})
            for (effects, _), times in found.items():
                by_effects[str(min(effects, 2))] += times
            states = ", ".join(sorted({state for _, state in found}))
            rows.append(f"| {point} | {found.total()} | {by_effects['0']} | {by_effects['1']} | {by_effects['2']} | {states} |")
        Path(target).write_text("\n".join(rows) + "\n", encoding="utf-8")


def run(store: Path, effects: Path, failpoint: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, PROGRAM, store, effects, failpoint], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in {0, 3, 4, -9}, done.stderr
    return done.returncode, done.stdout.strip()


def drive_to_the_end(folder: Path, failpoint: str) -> tuple[int, State, int]:
    """Start the program again after every kill, approve what it asks; return effects, last state, kills."""
    store_path, effects = folder / "sayso.db", folder / "effects"
    store = SqliteStore(store_path)
    review = Review(store, reviewer="ada")
    kills, request_id = 0, ""
    for _ in range(6):
        code, said = run(store_path, effects, failpoint)
        kills += code == -9
        page = review.list(state="all")  # also writes down what nobody can know any more
        assert len(page.requests) <= 1, "the same call was asked twice"
        if page.requests:
            request_id = page.requests[0].id
        if code == 3:
            assert said == request_id
            review.approve(request_id)
        if request_id and review.get(request_id).state in {State.DONE, State.UNKNOWN}:
            break
    state = review.get(request_id).state
    if state is State.UNKNOWN:
        assert run(store_path, effects, "none") == (4, request_id), "an unknown outcome was not reported, or run again"
    checked = audit.verify(store)
    store.close()
    assert not checked.broken
    with sqlite3.connect(store_path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    lines = effects.read_text().splitlines() if effects.exists() else []
    return len(lines), state, kills


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_killed_call_has_at_most_one_effect_and_a_true_record(failpoint: str, tmp_path: Path) -> None:
    for round_ in range(KILLS):
        folder = tmp_path / str(round_)
        folder.mkdir()
        effects, state, kills = drive_to_the_end(folder, failpoint)
        seen.setdefault(failpoint, Counter())[effects, str(state)] += 1
        assert kills == 1, "the failpoint was not reached"
        assert effects <= 1
        assert effects == (0 if failpoint in NOT_RUN else 1)
        assert state is (State.UNKNOWN if failpoint in IN_DOUBT else State.DONE)
