"""A program on Postgres that is killed at any place has no effect twice, and an interrupted start is `unknown`.

Ten processes race for one approval, too. The processes are real, and are killed by SIGKILL.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sayso import audit
from sayso.model.request import Request, State
from sayso.stores.base import Filter
from sayso.testing import sample_call
from tests.support import warm
from tests.support.postgres import server

pytest.importorskip("psycopg", reason="NOT TESTED with Postgres, because psycopg is not installed")

from sayso.stores.postgres import PostgresStore
from tests.stores import doomed_postgres
from tests.stores.test_postgres import decide

# What stands in the store after each death, and how often the effect happened once the program was run again.
STATES = {
    "before ask": ({None}, 1), "after ask": ({State.PENDING}, 1), "before decide": ({State.PENDING}, 1),
    "after decide": ({State.APPROVED}, 1), "before start": ({State.APPROVED}, 1), "after start": ({State.UNKNOWN}, 0),
    "sent start": ({State.APPROVED, State.UNKNOWN}, None), "before call": ({State.UNKNOWN}, 0),
    "after call": ({State.UNKNOWN}, 1), "before finish": ({State.UNKNOWN}, 1), "within finish": ({State.UNKNOWN}, 1),
    "after finish": ({State.DONE}, 1),
}  # fmt: skip


def run(url: str, effects: Path, point: str) -> subprocess.CompletedProcess[str]:
    words = [doomed_postgres.__file__, url, str(effects), point]
    code, out, err = warm.run(words, {**os.environ})
    return subprocess.CompletedProcess(words, code, out.decode(), err.decode())


@pytest.mark.slow
def test_who_is_killed_leaves_a_whole_record_and_no_effect_twice(url: str, tmp_path: Path) -> None:
    assert sorted(STATES) == sorted(doomed_postgres.POINTS)
    here, wrong = server(), list[str]()
    for point, (states, effects) in STATES.items():
        address, file = here.new(), tmp_path / point.replace(" ", "-")
        died = run(address, file, point)
        assert died.returncode == -9, died.stderr
        with closing(PostgresStore(address)) as store:
            store.sweep()
            found = list(store.list(Filter()).requests)
            state = found[0].state if found else None
            again = run(address, file, "none")
            happened = file.read_text().count("o1") if file.exists() else 0
            expected = (0 if state is State.UNKNOWN else 1) if effects is None else effects
            if state not in states or happened != expected or audit.verify(store).broken:
                wrong.append(f"{point}: {state}, {happened} effects; then {again.returncode} {again.stderr[-200:]}")
            if state is State.UNKNOWN:
                assert "unknown" in again.stderr.lower(), again.stderr
        here.drop(address)
    assert wrong == []


RACER = """
import sys
from sayso import errors
from sayso.stores.postgres import PostgresStore
store = PostgresStore(sys.argv[1])
store.get(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    store.start(sys.argv[2], sys.argv[3])
    print("started", flush=True)
    sys.stdin.readline()
except errors.AlreadyStartedError:
    print("late", flush=True)
"""


def test_of_ten_processes_one_starts_an_approved_call(url: str) -> None:
    with closing(PostgresStore(url)) as store:
        request: Request = store.ask(sample_call(None))
        decide(store, request)
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", RACER, url, request.id, f"token-{n}"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for n in range(10)
        ]  # fmt: skip
        pipes = [(one.stdin, one.stdout) for one in racers if one.stdin is not None and one.stdout is not None]
        assert [out.readline() for _, out in pipes] == ["ready\n"] * 10
        for go, _ in pipes:
            go.write("go\n")
            go.flush()
        told = sorted(out.readline() for _, out in pipes)
        assert told == ["late\n"] * 9 + ["started\n"]
        for one in racers:
            one.communicate("end\n")
        assert [entry.event for entry in store.journal(request_id=request.id)].count("started") == 1
