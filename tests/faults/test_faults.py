"""One of each kind of fault that no test of deaths has: no effect twice, nothing lost, every unknown told.

`make faults` has many of each, and the kill sweeps; the table is in docs/reliability.md.
"""

from __future__ import annotations

import pytest

from tests.faults.trials import TRIALS, LeftOutError
from tests.support.postgres import server

pytest.importorskip("psycopg", reason="NOT TESTED with Postgres, because psycopg is not installed")
SHORT = [one for one in TRIALS if one[-1] is not None]


@pytest.mark.slow
@pytest.mark.parametrize("trial", SHORT, ids=[f"{name}, {where}" for name, where, *_ in SHORT])
def test_a_fault_doubles_and_loses_nothing(trial: tuple) -> None:
    server()  # where there must be one, its absence is a failure
    _, _, run, _, times = trial
    try:
        counts = run(times)
    except LeftOutError as why:
        pytest.skip(f"NOT TESTED: {why}")
    assert counts.effects > 0
    assert counts.is_right, counts
