"""`sayso worker` as other processes meet it: shared work, signals, sudden deaths, and what it says of bad targets."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import config
from sayso.cli import worker as cli_worker
from sayso.model import duration
from sayso.model.run import RunState
from sayso.stores.base import Store
from sayso.stores.filter import RunFilter
from tests.support import shop, warm
from tests.support.postgres import server

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals"), pytest.mark.slow]

AN_HOUR = "3600"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def store(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store, in a file unless the test says where, and the shop's program in the working folder."""
    is_postgres = getattr(request, "param", "sqlite") == "postgres"
    url = server().new() if is_postgres else f"sqlite:///{place / 'sayso.db'}"
    monkeypatch.setenv("SAYSO_STORE", url)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copy(shop.__file__, place)
    with closing(config.open_store(url)) as store:
        yield store
    if is_postgres:
        server().drop(url)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers, and ends those that a failed test left."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sayso", "worker", *words]
        started.append(
            subprocess.Popen(
                command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def wait(store: Store, how_many: int) -> None:
    """Have so many runs wait, and approve them all."""
    code, _, err = warm.run(["shop.py", str(how_many)], {**os.environ})
    assert code == 0, err.decode()
    review = sayso.Review(store, reviewer="ada")
    waiting = review.list(limit=1000).requests
    assert len(waiting) == how_many
    for request in waiting:
        review.approve(request.id)


def effects(verb: str = "refund") -> Counter[str]:
    ledger = Path("effects")
    return Counter(line for line in ledger.read_text().splitlines() if line.startswith(verb))


def until(condition: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def states(store: Store) -> Counter[RunState]:
    return Counter(run.state for run in store.runs(RunFilter(), limit=1000)[0])


def ended(worker: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    """Send a signal; return the exit code and what was printed."""
    worker.send_signal(number)
    out, err = worker.communicate(timeout=60)
    assert "Traceback" not in err, err
    return worker.returncode, out


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
def test_each_handler_runs_once_where_two_workers_share_the_work(store: Store, start: Start) -> None:
    going = [start("shop:clerk", "--json") for _ in range(2)]
    wait(store, 100)
    until(lambda: states(store) == {RunState.ENDED: 100})
    told = [json.loads(line) for worker in going for line in ended(worker)[1].splitlines()]
    assert effects() == {f"refund {n}": 1 for n in range(100)}
    assert effects("look") == {f"look {n}": 1 for n in range(100)}
    assert Counter(one["ending"] for one in told) == {"done": 100}
    assert len({one["run"] for one in told}) == 100


@pytest.mark.slow
def test_another_takes_over_from_one_that_was_killed(store: Store, start: Start) -> None:
    wait(store, 12)
    first = start("shop:make", "--concurrency", "3", TAKES=AN_HOUR)
    until(lambda: len(effects()) == 3)
    first.kill()
    first.wait()
    second = start("shop:make")
    until(lambda: states(store).get(RunState.RUNNING, 0) == 0 and len(effects()) == 12)
    until(lambda: states(store)[RunState.ENDED] == 9)
    code, out = ended(second)
    assert code == 0
    assert max(effects().values()) == 1
    assert (out.count("unknown outcome"), out.count(" done")) == (3, 9)
    assert Counter(request.state for request in sayso.Review(store).list(state="unknown").requests) == {"unknown": 3}


FAR = """
import socket

from sayso.stores import workers

socket.gethostname = workers._boot_id = lambda: "far"
workers._named.cache_clear()
from shop import make
"""


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
def test_another_machine_takes_over_when_the_leases_of_one_that_was_killed_have_ended(
    store: Store, start: Start, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "far.py").write_text(FAR)
    monkeypatch.setenv("SAYSO_LEASE", "2s")
    wait(store, 6)
    far = start("far:make", "--concurrency", "3", TAKES=AN_HOUR)
    until(lambda: len(effects()) == 3)
    near = start("shop:make")
    until(lambda: states(store)[RunState.ENDED] == 3)
    held = store.runs(RunFilter(frozenset({RunState.RUNNING})))[0]
    # While it lives, it renews its leases, and nobody takes its runs.
    until(lambda: all(store.get_run(run.id).run.updated_at > run.updated_at for run in held))
    assert {store.get_run(run.id).run.holder for run in held} == {run.holder for run in held}
    far.kill()
    far.wait()
    until(lambda: states(store).get(RunState.RUNNING, 0) == 0)
    code, out = ended(near)
    assert (code, out.count("unknown outcome"), out.count(" done")) == (0, 3, 3)
    assert effects() == {f"refund {n}": 1 for n in range(6)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("environment", [{}, {"STUCK": "1"}], ids=["in a thread", "in the event loop"])
def test_a_signal_ends_it_in_the_middle_of_a_handler(
    store: Store, start: Start, monkeypatch: pytest.MonkeyPatch, number: int, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    wait(store, 2)
    worker = start("shop:clerk", "--concurrency", "1", TAKES=AN_HOUR)
    until(lambda: len(effects()) == 1)
    assert ended(worker, number)[0] == 0
    assert len(effects()) == 1

    _, again, _ = warm.run(["-m", "sayso", "worker", "shop:clerk", "--once"], {**os.environ})
    assert max(effects().values()) == 1
    assert (again.count(b"unknown outcome"), again.count(b" done")) == (1, 1)


def test_a_handler_that_ends_in_time_is_finished(store: Store, start: Start) -> None:
    wait(store, 1)
    worker = start("shop:clerk", "--grace", "60s", TAKES="0.3", PYTHONUNBUFFERED="1")
    until(lambda: len(effects()) == 1)
    code, out = ended(worker)
    assert (code, len(effects())) == (0, 1)
    assert "handed back" in out or " done" in out
    assert [request.state for request in sayso.Review(store).list(state="all").requests] == ["done"]


def test_the_grace_and_what_follows_it_are_less_than_a_second() -> None:
    (grace,) = (option.default for option in cli_worker.worker.params if option.name == "grace")
    assert duration.parse(grace) + timedelta(seconds=cli_worker._AFTER_GRACE) < timedelta(seconds=1)


def test_a_second_signal_ends_it_in_the_middle_of_the_grace(store: Store, start: Start) -> None:
    wait(store, 1)
    worker = start("shop:clerk", "--grace", "1h", TAKES=AN_HOUR)
    until(lambda: len(effects()) == 1)
    worker.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert worker.poll() is None  # the handler has its grace

    def has_ended() -> bool:
        worker.send_signal(signal.SIGTERM)
        return worker.poll() is not None

    until(has_ended)  # again and again, since two that come before it looks are one
    assert worker.returncode == 128 + signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="makes a pipe small")
def test_a_reader_that_does_not_read_keeps_nobody_from_ending_it(store: Store, start: Start) -> None:
    wait(store, 60)
    worker = start("shop:clerk", "--json")
    assert worker.stdout is not None
    fcntl.fcntl(worker.stdout, fcntl.F_SETPIPE_SZ, 4096)
    until(lambda: len(effects()) >= 30)
    time.sleep(0.5)  # for it to run into the full pipe
    assert len(effects()) < 60
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("shop", 2, "does not have the form module:name"),
        ("shop:", 2, "does not have the form module:name"),
        ("../shop:clerk", 2, "does not have the form module:name"),
        ("nowhere:clerk", 1, "there is no module 'nowhere'"),
        ("shop:nobody", 1, "there is no 'nobody' in shop"),
        ("shop:number", 1, "a worker takes a Tool, Agent or Workflow"),
        ("shop:make_nothing", 1, "a worker takes a Tool, Agent or Workflow"),
        ("shop:calls", 1, "calling it raised TypeError"),
        ("broken:clerk", 1, "importing it raised ZeroDivisionError: division by zero (broken.py, line 2)"),
        ("lost:clerk", 1, "importing it raised ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_a_line(store: Store, target: str, code: int, said: str) -> None:
    Path("broken.py").write_text("clerk = 1\nclerk / 0\n")
    Path("lost.py").write_text("import package_that_is_not_here\n")
    ended_with, out, err = warm.run(["-m", "sayso", "worker", target], {**os.environ})
    assert (ended_with, out) == (code, b"")
    assert said in err.decode()
    assert b"Traceback" not in err


def test_a_store_in_memory_is_refused(store: Store, start: Start) -> None:
    worker = start("shop:clerk", SAYSO_STORE="memory:")
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert "only its own program can see a store in memory" in err


def test_a_run_whose_code_has_changed_stands_in_the_summary(store: Store, start: Start) -> None:
    wait(store, 1)
    program = Path("shop.py")
    program.write_text(program.read_text().replace("def look(order: int)", "def look(order: str)"))
    worker = start("shop:clerk", "--once")
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert "not resumed" in out
    assert "clerk.look takes other arguments than when the run was begun" in err.splitlines()[-1]
    assert effects() == {}
