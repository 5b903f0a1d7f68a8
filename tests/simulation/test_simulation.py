"""Schedules of simulated machines keep every promise; and the simulation would notice if one were broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sayso.model import lifecycle
from tests.simulation.kernel import BrokenPromiseError, World, simulated
from tests.simulation.network import wired
from tests.simulation.play import play

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def use() -> Iterator[Callable[[World | None], None]]:
    with simulated() as use, wired():
        yield use


def _play(use: Callable[[World | None], None], seeds: range) -> int:
    for seed in seeds:
        played = play(seed, use)
        assert played.broken is None, f"make simulate ARGS='--seed {seed}': {played.broken!r}, after {played.faults}"
    return len(seeds)


def test_a_few_schedules_keep_every_promise(use: Callable[[World | None], None]) -> None:
    assert _play(use, range(20)) == 20


@pytest.mark.slow
def test_some_hundred_schedules_keep_every_promise(use: Callable[[World | None], None]) -> None:
    assert _play(use, range(1_000, 1_250)) == 250


@pytest.mark.slow
def test_schedules_on_a_database_keep_every_promise(use: Callable[[World | None], None]) -> None:
    pytest.importorskip("psycopg")
    from tests.simulation.database import DATABASE_SCENES, on_database

    with on_database():
        for seed in range(6):
            played = play(seed, use, DATABASE_SCENES[seed % len(DATABASE_SCENES)])
            assert played.broken is None, f"--scene database --seed {seed}: {played.broken!r}, after {played.faults}"


def test_a_seed_gives_the_same_schedule_in_another_process(use: Callable[[World | None], None]) -> None:
    here = [play(seed, use).digest for seed in (3, 6, 8)]
    program = (
        "from tests.simulation.kernel import simulated; from tests.simulation.network import wired\n"
        "from tests.simulation.play import play\n"
        "with simulated() as use, wired():\n    print([play(seed, use).digest for seed in (3, 6, 8)])\n"
    )
    settings = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join((str(_ROOT), *sys.path))}
    done = subprocess.run([sys.executable, "-c", program], env=settings, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(here)


def test_a_second_start_would_be_noticed(use: Callable[[World | None], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_may_try_again", lambda *_: True)  # a failed call may then be started again
    assert any(isinstance(play(seed, use).broken, BrokenPromiseError) for seed in range(300))
