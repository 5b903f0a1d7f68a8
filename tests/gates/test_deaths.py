"""SIGKILL at every write: never two effects, every interrupted start is reported `unknown`, everything else goes on.

The program that dies is `doomed.py`; it is killed by the real signal, and effects are counted in a file that only it
appends to. `make test-full` writes the figures to `build/deaths.md`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.stores.sqlite import SqliteStore
from tests.gates import doomed
from tests.support.rounds import IS_FULL, rounds

TIMES = rounds(3, 10)
STORMS = rounds(50, 150)
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL"),
    pytest.mark.timeout(1_000),  # hundreds of deaths, which a busy machine may take long for
]

# What stands in the store after a death there: not asked, waiting, approved, started, or ended.
COMMITTED = {"schema": None, "ask": "pending", "decide": "approved", "start": "running", "finish": "done"}
BEFORE = {"schema": None, "ask": None, "decide": "pending", "start": "approved", "finish": "running"}


def expected(point: str) -> tuple[str | None, int]:
    """Return the state that a death at this point leaves, and how many effects."""
    verb, _, place = point.partition(": ")
    if verb == "call":
        return "running", int(place == "after the effect")
    state = COMMITTED[verb] if place == f"after {doomed.STATEMENTS[verb][-1]}" else BEFORE[verb]
    return state, int(verb == "finish")


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every death, and what came of it."""
    folder = tmp_path_factory.mktemp("deaths")
    command = [sys.executable, doomed.__file__, "sweep", str(folder), str(TIMES)]
    halves = [
        subprocess.Popen([*command, *doomed.POINTS[half::2]], stdout=subprocess.PIPE, text=True) for half in (0, 1)
    ]
    lines = [line for half in halves for line in half.communicate(timeout=900)[0].splitlines()]
    assert [half.returncode for half in halves] == [0, 0]
    found: list[dict[str, Any]] = sorted(map(json.loads, lines), key=lambda death: doomed.POINTS.index(death["point"]))
    write_table(found)
    return found


def of(deaths: list[dict[str, Any]], point: str) -> list[dict[str, Any]]:
    here = [death for death in deaths if death["point"] == point]
    assert len(here) == TIMES
    return here


def test_there_are_more_than_a_dozen_places_to_die() -> None:
    assert len(set(doomed.POINTS)) == len(doomed.POINTS) >= 16


@pytest.mark.slow
@pytest.mark.parametrize("point", doomed.POINTS)
def test_who_is_killed_leaves_a_whole_record(deaths: list[dict[str, Any]], point: str) -> None:
    state, done = expected(point)
    for death in of(deaths, point):
        assert (death["code"], death["said"]) == (-signal.SIGKILL, None)
        assert death["back"] == 0, death["told"]
        assert death["told"]["found"] == ([] if state is None else [state])
        assert len(death["killed"]) == done
        assert (death["told"]["broken"], death["told"]["integrity"]) == ([], "ok")


@pytest.mark.slow
@pytest.mark.parametrize("point", doomed.POINTS)
def test_an_interrupted_start_is_unknown_and_everything_else_runs_once(
    deaths: list[dict[str, Any]], point: str
) -> None:
    state, done = expected(point)
    for death in of(deaths, point):
        told = death["told"]
        if state == "running":
            assert (told["went"], told["again"], told["states"]) == ("unknown", "unknown", ["unknown"])
            assert told["effects"] == death["killed"]  # the restart had no effect
            assert told["resolved"] == (["done"] if done else ["failed"])
        else:
            assert told["went"] == ("was done" if state == "done" else "paid")
            assert (told["states"], told["effects"]) == (["done"], ["1"])


@pytest.mark.slow
def test_no_death_has_an_effect_twice(deaths: list[dict[str, Any]]) -> None:
    assert len(deaths) == TIMES * len(doomed.POINTS)
    assert max(len(death["told"]["effects"]) for death in deaths) == 1


def outcome_of(here: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    """Return what came of the deaths at one point: state and effects by then, effects after a restart, the report."""
    return (
        " or ".join(sorted({", ".join(death["told"]["found"]) or "nothing" for death in here})),
        " or ".join(sorted({str(len(death["killed"])) for death in here})),
        " or ".join(sorted({str(len(death["told"]["effects"])) for death in here})),
        " or ".join(sorted({death["told"]["states"][0] for death in here})),
    )


def write_table(deaths: list[dict[str, Any]]) -> None:
    """Write the figures of all rounds."""
    if not IS_FULL:
        return
    rows = [
        "| killed at | kills | then in the store | effects by then | effects after a restart | reported as | twice |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome, group in groupby(doomed.POINTS, key=lambda point: outcome_of(of(deaths, point))):
        points = list(group)
        here = [death for point in points for death in of(deaths, point)]
        where = points[0] if len(points) == 1 else f"{points[0]}, to {points[-1]} ({len(points)} points)"
        twice = sum(len(death["told"]["effects"]) > 1 for death in here)
        rows.append(f"| {where} | {len(here)} | {' | '.join(outcome)} | {twice} |")
    doubles = sum(len(death["told"]["effects"]) > 1 for death in deaths)
    rows.append(f"| **all {len(doomed.POINTS)} points** | **{len(deaths)}** | | | | | **{doubles}** |")
    path = Path(__file__).resolve().parents[2] / "build" / "deaths.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


# -- at any moment -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_at_random_moments_no_call_has_its_effect_twice(tmp_path: Path) -> None:
    program = [sys.executable, doomed.__file__, "storm", str(tmp_path), str(STORMS)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=900)
    result = json.loads(done.stdout)
    effects, went = Counter(result["effects"]), result["told"]["went"]
    assert (result["kills"], result["code"], result["told"]["broken"]) == (STORMS, 0, 0)
    assert len(went) >= STORMS // 3  # it was at work when it was killed
    assert set(effects.values()) == {1}
    assert set(went) <= {"paid", "was done", "unknown"}
    assert [n for n, how in enumerate(went) if how != "unknown" and effects[str(n)] != 1] == []
    assert STORMS // 10 <= went.count("unknown") <= STORMS


# -- not dead ------------------------------------------------------------------------------------------------------


def test_a_worker_that_only_sleeps_is_not_taken_for_dead(tmp_path: Path) -> None:
    program = [sys.executable, doomed.__file__, "hold", str(tmp_path)]
    sleeper = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert sleeper.stdout is not None
    try:
        assert sleeper.stdout.readline() == "inside\n"
        sleeper.send_signal(signal.SIGSTOP)
        with closing(SqliteStore(tmp_path / "requests.db")) as store:
            review = sayso.Review(store)
            (request,) = review.list().requests
            assert request.state == "running"
            with pytest.raises(errors.NotUnknownError):
                review.resolve(request.id, happened=False, by="ada")
            with pytest.raises(errors.AlreadyStartedError):
                store.start(request.id, "another")
            sleeper.send_signal(signal.SIGCONT)
            out, _ = sleeper.communicate("wake\n", timeout=60)
            assert (out, review.get(request.id).state) == ("paid 1\n", "done")
    finally:
        sleeper.send_signal(signal.SIGCONT)
        sleeper.kill()
        sleeper.wait()


def test_a_worker_that_died_in_its_call_is_unknown_to_whoever_looks(tmp_path: Path) -> None:
    program = [sys.executable, doomed.__file__, "hold", str(tmp_path)]
    victim = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "inside\n"
    victim.kill()
    victim.communicate()
    with closing(SqliteStore(tmp_path / "requests.db")) as store:
        review = sayso.Review(store)
        (request,) = review.list(state="unknown").requests
        assert [entry.event for entry in store.journal()][-1] == "unknown"
        assert review.resolve(request.id, happened=False, by="ada").state == "failed"
