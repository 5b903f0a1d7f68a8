"""Many processes, threads and tasks at one request: one start, one decision, one request, whoever comes first."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path

import pytest

import sayso
from sayso import audit, errors
from sayso.model.request import State
from sayso.stores.base import Store
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore

RACER = Path(__file__).with_name("racer.py")
ROUNDS = 20


class Racers:
    def __init__(self, store: Store, folder: Path, mode: str, count: int) -> None:
        self.effects = folder / "effects"
        self._count = count
        words = [sys.executable, RACER, store.url, self.effects, mode, str(count)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self, number: int, request_id: str = "") -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{number} {request_id}\n")
        self._process.stdin.flush()
        return [self._process.stdout.readline().strip() for _ in range(self._count)]

    def stop(self) -> None:
        self._process.communicate(timeout=60)


@contextmanager
def racers(store: Store, folder: Path, mode: str, count: int) -> Iterator[Racers]:
    running = Racers(store, folder, mode, count)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(params=["sqlite", "jsonl"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kinds: dict[str, Callable[[], Store]] = {
        "sqlite": lambda: SqliteStore(tmp_path / "sayso.db"),
        "jsonl": lambda: JsonlStore(tmp_path / "sayso.jsonl"),
    }
    store = kinds[request.param]()
    yield store
    store.close()


@pytest.fixture(params=["memory", "here"])
def where(request: pytest.FixtureRequest, store: Store) -> Store:
    """A store that threads and tasks of this process race for."""
    return store if request.param == "here" else MemoryStore()


@pytest.mark.slow
def test_fifty_processes_start_one_approval_exactly_once_in_each_of_twenty_rounds(store: Store, tmp_path: Path) -> None:
    review = sayso.Review(store, reviewer="ada")
    with racers(store, tmp_path, "ask", 1) as one:
        asked = [one.round(number)[0].removeprefix("asked ") for number in range(ROUNDS)]
    for request_id in asked:
        review.approve(request_id)
    with racers(store, tmp_path, "start", 50) as fifty:
        said = [Counter(fifty.round(number)) for number in range(ROUNDS)]
        effects = Counter(int(line.split()[0]) for line in fifty.effects.read_text().splitlines())
    assert effects == dict.fromkeys(range(ROUNDS), 1)
    assert all(round_["paid"] == 1 and round_.total() == 50 for round_ in said)
    assert {review.get(request_id).state for request_id in asked} == {State.DONE}


@pytest.mark.slow
def test_of_eight_deciders_one_wins_and_seven_are_told_who(store: Store, tmp_path: Path) -> None:
    review = sayso.Review(store, reviewer="ada")
    with racers(store, tmp_path, "ask", 1) as one:
        asked = [one.round(number)[0].removeprefix("asked ") for number in range(15)]
    with racers(store, tmp_path, "decide", 8) as eight:
        for number, request_id in enumerate(asked):
            said = eight.round(number, request_id)
            won = [line for line in said if line.startswith("won")]
            assert len(won) == 1
            winner = won[0].removeprefix("won ")
            decided = review.get(request_id).decision
            assert decided is not None
            assert decided.by.subject == winner
            told = [line.split() for line in said if line.startswith("told")]
            assert len(told) == 7
            assert all(
                line[1] == winner and line[2] == "race" and line[4] == "True" for line in told if "that" not in line
            )


@pytest.mark.slow
def test_two_processes_that_ask_the_same_at_once_get_one_request(store: Store, tmp_path: Path) -> None:
    with racers(store, tmp_path, "ask", 8) as eight:
        said = [set(eight.round(number)) for number in range(20)]
    assert all(len(ids) == 1 for ids in said)
    assert len({next(iter(ids)) for ids in said}) == 20
    assert not audit.verify(store).broken


def test_twenty_threads_run_one_approved_call_once(where: Store) -> None:
    ran, together, answered = list[int](), threading.Barrier(20), threading.Barrier(20)

    @sayso.gate(wait="raise", store=where)
    def pay(amount: int) -> str:
        ran.append(amount)
        answered.wait(60)  # it runs until all the others have their answer, or run as well
        return "paid"

    with sayso.run("order-1"):
        with pytest.raises(sayso.ConfirmationRequired) as held:
            pay(7)
        sayso.Review(where).approve(held.value.confirmation_id, by="ada")

        def once() -> str:
            together.wait()
            try:
                return pay(7)
            except (errors.AlreadyStartedError, sayso.ConfirmationRequired) as told:
                answered.wait(60)
                return type(told).__name__

        contexts = [copy_context() for _ in range(20)]
        with ThreadPoolExecutor(20) as pool:
            said = [future.result() for future in [pool.submit(context.run, once) for context in contexts]]
    assert ran == [7]
    assert said.count("paid") == 1


def test_twenty_tasks_run_one_approved_call_once(where: Store) -> None:
    ran, answered = list[int](), asyncio.Barrier(20)

    @sayso.gate(wait="raise", store=where)
    async def pay(amount: int) -> str:
        ran.append(amount)
        await answered.wait()  # as above
        return "paid"

    async def once() -> str:
        try:
            return await pay(7)
        except (errors.AlreadyStartedError, sayso.ConfirmationRequired) as told:
            await answered.wait()
            return type(told).__name__

    async def main() -> list[str]:
        with sayso.run("order-1"):
            with pytest.raises(sayso.ConfirmationRequired) as held:
                await pay(7)
            await sayso.aio.Review(where).approve(held.value.confirmation_id, by="ada")
            async with asyncio.timeout(60):
                return await asyncio.gather(*(once() for _ in range(20)))

    said = asyncio.run(main())
    assert ran == [7]
    assert said.count("paid") == 1


@pytest.mark.slow
def test_cancelled_approval_is_never_also_run(store: Store, tmp_path: Path) -> None:
    review = sayso.Review(store, reviewer="ada")
    with racers(store, tmp_path, "ask", 1) as one:
        asked = [one.round(number)[0].removeprefix("asked ") for number in range(20)]
    for request_id in asked:
        review.approve(request_id)
    with racers(store, tmp_path, "start", 6) as six:
        for number, request_id in enumerate(asked):
            cancelled: list[bool] = []

            def cancel(request_id: str = request_id, cancelled: list[bool] = cancelled) -> None:
                try:
                    review.cancel(request_id)
                except errors.DecisionRefusedError:
                    cancelled.append(False)
                else:
                    cancelled.append(True)

            rival = threading.Thread(target=cancel)
            rival.start()
            said = six.round(number)
            rival.join()
            assert said.count("paid") == (0 if cancelled[0] else 1)
            assert review.get(request_id).state is (State.CANCELLED if cancelled[0] else State.DONE)


def test_waiter_is_woken_by_a_decision_of_another_process(store: Store, tmp_path: Path) -> None:
    with racers(store, tmp_path, "ask", 1) as one:
        request_id = one.round(1)[0].removeprefix("asked ")
    woken = threading.Event()
    unwatch = store.watch(request_id, woken.set)
    try:
        with racers(store, tmp_path, "decide", 1) as decider:
            assert decider.round(1, request_id) == ["won racer-0"]
            assert woken.wait(30)
    finally:
        unwatch()
    assert store.get(request_id).state is State.APPROVED
