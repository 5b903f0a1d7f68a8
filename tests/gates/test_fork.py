"""A forked child finds every lock of the package free, whichever the parent's other threads held at that moment.

Each lock is held by another thread while the process forks; in the child that thread does not exist, so that a lock
taken over as it was would never be free again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import config, errors, terminal
from sayso.model import cached_property
from sayso.model.request import State
from sayso.stores import workers
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.testing import sample_call
from tests.support.acting import aheld, approved

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

_PATIENCE = 30


def in_a_child(work: Callable[[], bool]) -> bool:
    """Do this in a forked child; False also when the child does not come back."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:  # noqa: BLE001  # a child must not go on with the tests
            os._exit(2)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def while_another_holds(lock: AbstractContextManager[Any], work: Callable[[], bool]) -> bool:
    held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            is_over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        return in_a_child(work)
    finally:
        is_over.set()
        thread.join()


def test_a_store_can_be_opened_in_a_child() -> None:
    assert while_another_holds(config._lock, lambda: config.open_store("memory:") is not None)


def test_the_terminals_turn_can_be_taken_in_a_child() -> None:
    assert while_another_holds(terminal._turn, lambda: terminal._turn.acquire(timeout=1))


def test_a_store_in_memory_begins_empty_in_a_child() -> None:
    store = MemoryStore()
    approved, review = store.ask(sample_call(key="k")), sayso.Review(store)
    review.grant(approved.id, by="ada", count=5, lasts="1h")

    def goes_on() -> bool:
        with pytest.raises(errors.RequestNotFoundError):  # it would start once more in each child
            store.start(approved.id, "token")
        request = store.ask(sample_call(key="k"))
        return request.state is State.PENDING and review.approve(request.id, by="ada").state is State.APPROVED

    assert while_another_holds(store._lock, goes_on)
    assert store.start(approved.id, "token").state is State.RUNNING


def test_only_the_process_that_started_a_held_call_says_how_it_ended(file_store: Store) -> None:
    handle = sayso.hold("pay", {"amount": 1}, run="order-1")
    assert handle.id is not None
    sayso.Review().approve(handle.id, by="ada")
    handle.start()

    def is_refused() -> bool:
        with pytest.raises(errors.StartRefusedError, match=f"process {os.getppid()} has started"):
            handle.fail("its helper is not there")
        return file_store.get(str(handle.id)).state is State.RUNNING

    assert in_a_child(is_refused)
    handle.finish("paid")
    assert file_store.get(handle.id).state is State.DONE


def test_a_child_that_is_forked_between_the_start_and_the_call_does_not_make_it(
    file_store: Store, tmp_path: Path
) -> None:
    paid, children = tmp_path / "paid", list[int]()

    def effect(order: str) -> str:
        if sayso.Review().list(state="running").requests:
            children.append(os.fork())
        return f"refund:{order}"

    @sayso.gate(wait="raise", effect=effect)
    def refund(order: str) -> None:
        with paid.open("a") as file:
            file.write(f"{order}\n")

    with sayso.run("order-1"):
        request_id = approved(refund, "A-1")
        try:
            refund("A-1")
        finally:
            if children == [0]:
                os._exit(7 if isinstance(sys.exc_info()[1], errors.StartRefusedError) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
    assert paid.read_text() == "A-1\n"
    assert file_store.get(request_id).state is State.DONE


def test_a_child_that_is_forked_by_a_thread_whose_task_was_cancelled_records_nothing(file_store: Store) -> None:
    inside, go_on, codes = threading.Event(), threading.Event(), list[int]()

    def pay(amount: int) -> str:
        inside.set()
        assert go_on.wait(_PATIENCE)
        child = os.fork()
        if child == 0:  # it ends where its thread would look for more work
            type(file_store).finish = lambda *_, **_named: os._exit(1)  # type: ignore[method-assign]
            Future.set_result = lambda *_: os._exit(0)  # type: ignore[method-assign]
            return f"{amount} in the child"
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return f"paid {amount}"

    async def main() -> str:
        tool = sayso.Tool(pay, requires_approval=True)
        with sayso.run("order-1"):
            request_id = (await aheld(tool.acall, amount=1)).confirmation_id
            sayso.Review().approve(request_id, by="ada")
            task = asyncio.ensure_future(tool.acall(amount=1))
            try:
                assert await asyncio.to_thread(inside.wait, _PATIENCE)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            finally:
                go_on.set()
        return request_id

    request_id = asyncio.run(main())
    assert (codes, file_store.get(request_id).state) == ([0], State.DONE)


def test_a_value_that_another_thread_computes_can_be_computed_in_a_child() -> None:
    began, is_over = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, *, waits: bool) -> None:
            self.waits = waits

        @cached_property
        def value(self) -> int:
            if self.waits:
                began.set()
                is_over.wait()
            return 7

    thread = threading.Thread(target=lambda: Slow(waits=True).value)
    thread.start()
    began.wait()
    try:
        assert in_a_child(lambda: Slow(waits=False).value == 7)
    finally:
        is_over.set()
        thread.join()


def test_a_fork_waits_for_what_another_thread_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_slowly.py").write_text("import tests.gates.test_fork as this\nthis.import_slowly()\n")
    monkeypatch.syspath_prepend(tmp_path)
    waits, sleep = list[float](), workers.sleep

    def wait(seconds: float) -> None:
        waits.append(seconds)
        _may_end.set()
        sleep(seconds)

    monkeypatch.setattr(workers, "sleep", wait)
    thread = threading.Thread(target=lambda: import_module("imported_slowly"))
    thread.start()
    assert _has_begun.wait(_PATIENCE)
    assert in_a_child(lambda: import_module("imported_slowly") is not None)
    thread.join(_PATIENCE)
    assert waits


_has_begun, _may_end = threading.Event(), threading.Event()


def import_slowly() -> None:
    """What a module does that another one imports while this process forks."""
    _has_begun.set()
    assert _may_end.wait(_PATIENCE)


def test_every_lock_of_a_module_is_renewed() -> None:
    def locks() -> dict[str, int]:
        return {
            f"{name}.{key}": id(value)
            for name, module in list(sys.modules.items())
            if name.startswith("sayso")
            for key, value in vars(module).items()
            if isinstance(value, type(threading.Lock()) | type(threading.RLock()))
        }

    before = locks()
    assert {"sayso.config._lock", "sayso.terminal._turn"} <= set(before)
    assert in_a_child(lambda: all(locks()[name] != old for name, old in before.items()))
