"""What becomes of a call whose worker is killed, or stopped for longer than its lease: real processes, one store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

import sayso
from sayso import config, errors
from sayso.model.request import Request, State
from sayso.stores import workers
from sayso.stores.base import Store
from tests.support.postgres import server

needs_posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")

# A program that makes one approved call, which ends when the test says so by a file.
PROGRAM = """
import sys, time
from pathlib import Path
import sayso

@sayso.gate(wait="raise")
def pay(order: str) -> str:
    with open("effects", "a") as file:
        print(order, file=file)
    while not Path("go").exists():
        time.sleep(0.01)
    return "paid"

try:
    with sayso.run("order"):
        print(pay("A-4721"), flush=True)
except sayso.ConfirmationRequired as held:
    print(held.confirmation_id, flush=True)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a store that other processes share, in the environment."""
    kind, place = request.param, None
    if kind == "postgres":
        place = server(0)
        url = place.new()
    else:
        url = f"sqlite:///{tmp_path / 'sayso.db'}"
    monkeypatch.setenv("SAYSO_STORE", url)
    monkeypatch.setenv("SAYSO_LEASE", "2s")
    Path("pay.py").write_text(PROGRAM)
    yield url
    config.open_store(url).close()
    if place is not None:
        place.drop(url)


def begin() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "pay.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def running_call(url: str) -> Iterator[tuple[Store, str, subprocess.Popen[str]]]:
    """Let a program make its approved call, and be in the middle of it."""
    asking, store = begin(), config.open_store(url)
    request_id = asking.communicate(timeout=60)[0].strip()
    sayso.Review(store, reviewer="ada").approve(request_id)
    child = begin()
    try:
        until(lambda: effects() == ["A-4721"])
        yield store, request_id, child
    finally:
        child.kill()
        child.communicate()


def effects() -> list[str]:
    path = Path("effects")
    return path.read_text().splitlines() if path.exists() else []


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def stop(store: Store, request_id: str, child: subprocess.Popen[str]) -> None:
    """Stop a worker that has just renewed its lease, and so is in no transaction, whose locks it would keep."""
    until(lambda: store.record("lease", request_id) is not None)
    assert store.settle(request_id).state is State.RUNNING
    before = store.record("lease", request_id)
    until(lambda: store.record("lease", request_id) != before)
    child.send_signal(signal.SIGSTOP)


def becomes(store: Store, request_id: str, state: State) -> Request:
    until(lambda: store.settle(request_id).state is state)
    return store.get(request_id)


@needs_posix
@pytest.mark.slow
def test_a_worker_stopped_past_its_lease_loses_it_and_still_says_how_its_call_ended(address: str) -> None:
    with running_call(address) as (store, request_id, child):
        stop(store, request_id, child)
        lost = becomes(store, request_id, State.UNKNOWN)
        with pytest.raises(errors.OutcomeUnknownError):
            store.start(request_id, "another")
        again = begin()
        assert "OutcomeUnknownError" in again.communicate(timeout=60)[1]
        assert lost.execution is not None

        Path("go").touch()
        child.send_signal(signal.SIGCONT)
        assert child.communicate(timeout=60)[0].strip() == "paid"
        assert store.get(request_id).state is State.DONE
    assert effects() == ["A-4721"]
    assert store.records("lease") == []


@needs_posix
@pytest.mark.slow
def test_a_worker_that_is_late_changes_nothing_that_a_person_said(address: str) -> None:
    with running_call(address) as (store, request_id, child):
        stop(store, request_id, child)
        becomes(store, request_id, State.UNKNOWN)
        sayso.Review(store, reviewer="ada").resolve(request_id, happened=False)
        Path("go").touch()
        child.send_signal(signal.SIGCONT)
        out, err = child.communicate(timeout=60)
        assert out.strip() == "paid"
        assert "its worker was presumed dead" in err
        assert store.get(request_id).state is State.FAILED
        late = [row for row in store.journal(run_id="order") if row.event == "late"]
        assert [json.loads(row.detail)["agrees"] for row in late] == [False]
    assert effects() == ["A-4721"]


@needs_posix
@pytest.mark.slow
def test_a_worker_killed_where_nobody_can_see_it_is_found_by_its_lease(address: str) -> None:
    with running_call(address) as (store, request_id, child):
        child.kill()
        with patch.object(workers, "is_gone", return_value=False):  # as from another machine
            becomes(store, request_id, State.UNKNOWN)
        (row,) = [row for row in store.journal(request_id=request_id) if row.event == "unknown"]
        assert json.loads(row.detail)["lease"] == "lost"
    assert effects() == ["A-4721"]


@needs_posix
@pytest.mark.slow
def test_a_probe_hears_how_a_worker_is_and_that_it_drains(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    Path("shop.py").write_text(PROGRAM.split("try:", maxsplit=1)[0].replace('@sayso.gate(wait="raise")\n', "") + (
        "tool = sayso.Tool(pay, requires_approval=True)\n"
    ))  # fmt: skip
    begun = subprocess.run(
        [sys.executable, "-c", "from shop import tool; print(tool(order='A-4721').run().status.message)"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    sayso.Review(reviewer="ada").approve(begun.stdout.split()[0])
    command = [sys.executable, "-m", "sayso", "worker", "shop:tool", "--health", "0", "--grace", "1h", "--limit", "2"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert served.stderr is not None
        url = served.stderr.readline().split()[-1]
        until(lambda: effects() == ["A-4721"])
        status, health = probe(url)
        assert (status, health["status"], health["calls"], health["limit"]) == (200, "ok", {"pay": 1}, 2)
        served.send_signal(signal.SIGTERM)
        until(lambda: probe(url)[1]["status"] == "draining")
        assert probe(url)[0] == 503
        assert probe(url.replace("readyz", "healthz"))[0] == 200
        assert probe(url.replace("readyz", "else"))[0] == 404
        Path("go").touch()
        assert "done" in served.communicate(timeout=60)[0]
        assert served.returncode == 0
    finally:
        served.kill()
        served.communicate()


def probe(url: str) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=10)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        return answer.status, json.load(answer)
    finally:
        connection.close()
