"""Ctrl-C while a program waits for a person, in real processes without a terminal, and while it records an end.

The invariants: what waits is still pending, and the next start of the run finds it; no call stays `running` for ever;
no lock stays locked.
"""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

import sayso
from sayso.gates import interruptions
from sayso.model.request import State
from sayso.stores import workers
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from tests.conftest import Clock
from tests.support.acting import AHELD, HELD, approved, program, running, state_of

SECONDS = 30

PAY = """
import sys, sayso
sayso.configure(store=sys.argv[1])

@sayso.gate
def pay(amount: int) -> str:
    return "paid"

with sayso.run("order-4721"):
    print(pay(10))
"""
APAY = PAY.replace("@sayso.gate\ndef", "@sayso.gate\nasync def").replace("pay(10)", "asyncio.run(pay(10))")
APAY = APAY.replace("import sys,", "import asyncio, sys,")


def interrupted(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C once the program has said that it waits; return all that it said on stderr."""
    assert process.stderr is not None
    said = ""
    while "decide with" not in said:
        row = process.stderr.readline()
        assert row, said
        said += row
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGINT
    assert out == ""
    return said + rest


def test_ctrl_c_leaves_the_request_pending_and_says_how_to_go_on(file_store: Store) -> None:
    said = interrupted(program(PAY, file_store.url))
    (request,) = sayso.Review().list().requests
    assert request.state is State.PENDING
    after = said[said.index("decide with") + 1 :]
    assert "still waits" in after
    assert "order-4721" in after
    sayso.Review().approve(request.id, by="ada")
    assert running(program(PAY, file_store.url)) == "paid"


def test_ctrl_c_in_an_async_program_leaves_the_request_pending(file_store: Store) -> None:
    interrupted(program(APAY, file_store.url))
    (request,) = sayso.Review().list().requests
    assert request.state is State.PENDING
    sayso.Review().approve(request.id, by="ada")
    assert running(program(APAY, file_store.url)) == "paid"


def test_ctrl_c_in_an_async_program_says_once_how_many_wait(file_store: Store) -> None:
    for calls, end in (("pay(1)", "still waits, expires in"), ("pay(1), pay(2), pay(3)", "while 3 requests waited")):
        text = APAY.replace("asyncio.run(pay(10))", "asyncio.run(main())").replace(
            "with sayso.run", f"async def main():\n    await asyncio.gather({calls})\n\nwith sayso.run"
        )
        process = program(text, file_store.url)
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2 * (calls.count(",") + 1))]
        assert "decide with" in said[-1], said
        process.send_signal(signal.SIGINT)
        rows = process.communicate(timeout=SECONDS)[1].splitlines()
        told = [row for row in rows if row.startswith("sayso  ")]
        assert (len(told), end in told[0]) == (1, True), rows


@pytest.mark.parametrize("text", [HELD, AHELD], ids=["sync", "async"])
def test_ctrl_c_withdraws_the_call_of_a_tool_and_says_so(file_store: Store, text: str) -> None:
    said = interrupted(program(text, SAYSO_STORE=file_store.url))
    (request,) = sayso.Review().list(state="all").requests
    assert request.state is State.CANCELLED
    assert f"{request.id[:11]} was withdrawn, because its program stopped waiting; a new start asks again" in said
    assert "still waits" not in said


# -- a thread that waits ---------------------------------------------------------------------------------------------

THREADS = """
import asyncio, sys, sayso
from concurrent.futures import ThreadPoolExecutor

import anyio, anyio.to_thread

sayso.configure(store=sys.argv[1])

@sayso.gate
def pay(amount: int) -> str:
    return "paid"

def call() -> str:
    if sys.argv[2] == "unnamed":
        return pay(10)
    with sayso.run("order-4721"):
        return pay(10)

async def tool() -> str:
    return await anyio.to_thread.run_sync(call)

def pool_in_a_block():
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()

def pool():
    return ThreadPoolExecutor(1).submit(call).result()

def to_thread():
    return asyncio.run(asyncio.to_thread(call))

def nested_threads():
    return asyncio.run(asyncio.to_thread(pool_in_a_block))

def anyio_run():
    return anyio.run(tool)

print(locals()[sys.argv[3]]())
"""


@pytest.mark.parametrize(("name", "left"), [("unnamed", State.CANCELLED), ("named", State.PENDING)])
@pytest.mark.parametrize("work", ["pool_in_a_block", "pool", "to_thread", "nested_threads", "anyio_run"])
def test_ctrl_c_ends_a_program_whose_thread_waits(file_store: Store, work: str, name: str, left: State) -> None:
    interrupted(program(THREADS, file_store.url, name, work))
    (request,) = sayso.Review().list(state="all").requests
    assert request.state is left


# -- however many threads wait, the process looks for Ctrl-C once in each pace --------------------------------------


class Looks:
    """A clock that the test moves, and how often the frames of all threads were listed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.count, self._frames = 1_000.0, 0, sys._current_frames
        monkeypatch.setattr(interruptions, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(sys, "_current_frames", self._listed)
        monkeypatch.setattr(interruptions, "_looked", (float("-inf"), False))

    def _listed(self) -> dict[int, FrameType]:
        self.count += 1
        return self._frames()


def test_a_thousand_threads_that_wait_look_for_ctrl_c_once_in_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert [interruptions.is_interrupted() for _ in range(1_000)] == [False] * 1_000
    assert looks.count == 1
    looks.now += interruptions.PACE
    interruptions.is_interrupted()
    assert looks.count == 2


def test_ctrl_c_is_seen_by_every_thread_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert not interruptions.is_interrupted()
    monkeypatch.setattr(interruptions, "_is_main_thread_interrupted", lambda: True)
    looks.now += interruptions.PACE
    assert [interruptions.is_interrupted() for _ in range(3)] == [True] * 3


# -- in a store ------------------------------------------------------------------------------------------------------


def is_interrupted_after(steps: int, work: Callable[[], object]) -> bool:
    """Press Ctrl-C where Python looks for it: when a function begins, and when one of C has returned."""
    left = [steps]

    def step(_frame: FrameType, event: str, _arg: object) -> None:
        left[0] -= event in {"call", "c_return"}
        if left[0] == 0:
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


def test_ctrl_c_during_a_read_leaves_no_lock_of_the_store(file_store: Store) -> None:
    act = sayso.gate(lambda amount: amount, name="pay", wait="raise")
    with sayso.run("order-4721"):
        request = file_store.get(approved(act, 1))
    assert isinstance(file_store, SqliteStore)
    for read in (lambda: file_store.get(request.id), lambda: file_store.find(request.fingerprint)):
        assert read() == request
        steps = 1
        while is_interrupted_after(steps, read):
            left = [lock for lock in file_store.locks if lock.locked()]
            for lock in left:
                lock.release()
            assert not left, steps
            steps += 1
        assert steps > 5


class Enough(Exception):
    """Ends the loop of a keeper that has nothing to wait for."""


def looked_after(store: Store) -> list[str]:
    """Let the keeper of a store look once at what it holds, as its thread does; return the calls that it still has."""
    keeper = workers._keepers[store]
    with patch.object(keeper, "_pause", Mock(wait=Mock(side_effect=[None, Enough]))), suppress(Enough):
        keeper._run()
    return [one.id for one in keeper.held.values()]


def test_a_call_whose_end_was_not_recorded_because_of_a_second_ctrl_c_is_unknown_when_its_lease_ends(
    file_store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []

    def finish(*_: object) -> None:
        raise KeyboardInterrupt

    @sayso.gate(wait="raise")
    def pay(amount: int) -> None:
        held.extend(looked_after(file_store))
        raise KeyboardInterrupt

    with sayso.run("order-1"):
        request_id = approved(pay, 5)
        monkeypatch.setattr(file_store, "finish", finish)
        with pytest.raises(KeyboardInterrupt):
            pay(5)
    gc.collect()
    assert (held, looked_after(file_store)) == ([request_id], [])
    assert workers.running_at(request_id, None) is None
    assert state_of(request_id) is State.RUNNING
    clock.tick(seconds=31)
    assert file_store.settle(request_id).state is State.UNKNOWN


@pytest.mark.parametrize("end", ["done", "failed"])
@pytest.mark.parametrize("is_committed", [False, True])
def test_ctrl_c_while_the_end_of_a_call_is_recorded_loses_no_outcome(
    file_store: Store, monkeypatch: pytest.MonkeyPatch, end: str, is_committed: bool
) -> None:
    finish, interrupts = file_store.finish, [KeyboardInterrupt()]

    def interrupted(*args: Any, **options: Any) -> Any:
        if not interrupts:
            return finish(*args, **options)
        if is_committed:
            finish(*args, **options)
        raise interrupts.pop()

    @sayso.gate(wait="raise")
    def pay(amount: int) -> str:
        if end == "failed":
            raise ValueError("no such account")
        return "paid"

    with sayso.run("order-1"):
        request_id = approved(pay, 5)
        monkeypatch.setattr(file_store, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pay(5)
    assert state_of(request_id) == end
    assert [row.event for row in file_store.journal(request_id=request_id)][-2:] == ["started", end]
    assert looked_after(file_store) == []


def test_ctrl_c_in_the_middle_of_a_write_to_memory_loses_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    store, found, steps, is_over = MemoryStore(), list[str](), 0, False
    finish, is_first = store.finish, True

    def interrupted(*args: Any, **options: Any) -> Any:
        nonlocal is_first, is_over
        if not is_first:
            return finish(*args, **options)
        is_first = False
        is_over = not is_interrupted_after(steps, lambda: finish(*args, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "finish", interrupted)
    while not is_over:
        steps, is_first = steps + 1, True
        call = sayso.hold("pay", {"amount": 5}, key=f"call_{steps}", run="order-1", store=store)
        sayso.Review(store).approve(str(call.id), by="ada")
        with pytest.raises(KeyboardInterrupt):
            call.once(lambda _: "paid")
        found.append(call.result())
    assert found == ["paid"] * steps
    assert steps > 30


def test_a_call_that_was_started_by_hand_and_forgotten_is_unknown_when_its_lease_ends(
    file_store: Store, clock: Clock
) -> None:
    held = sayso.hold("pay", {"amount": 5}, run="order-1", store=file_store)
    sayso.Review(reviewer="ada").approve(held.id)
    held.start()
    request_id = str(held.id)
    assert looked_after(file_store) == [request_id]
    del held
    gc.collect()
    assert looked_after(file_store) == []
    clock.tick(seconds=31)
    assert file_store.settle(request_id).state is State.UNKNOWN
