"""How an approved call ends, and what its record then says: done, failed or unknown.

That a killed process leaves `unknown` is shown with real kills elsewhere; here the call ends by itself, is broken off,
or somebody is faster. Trying again is in `test_again`. The invariant: one approval has at most one effect.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest

import sayso
from sayso import effects, errors
from sayso.model.request import State
from sayso.stores.base import Store
from tests.support.acting import aflaky, aheld, approved, assert_spent, flaky, held, state_of


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Custom(BaseException):
    pass


class Strange:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("do not look at me")


FAILURES: list[BaseException] = [
    ValueError("bad"), StopIteration(5), ConnectionRefusedError(), OSError(28, "No space left"), AssertionError(),
    Odd(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ValueError("bad \udcff name"), RecursionError(), MemoryError(),
    ExceptionGroup("many", [ValueError("one")]), sayso.ConfirmationRequired("mine"), errors.StoreBusyError("mine"),
]  # fmt: skip
BREAKS: list[BaseException] = [
    KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), Custom("x"),
    BaseExceptionGroup("many", [KeyboardInterrupt()]), TimeoutError(),
]  # fmt: skip
ENDS = [(error, State.FAILED) for error in FAILURES] + [(error, State.UNKNOWN) for error in BREAKS]


def told(error: BaseException) -> str:
    return type(error).__name__


# -- the table of ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [None, 0, "paid", {"a": [1, {"b": None}]}, b"\xff", float("nan"), {1, 2}, "x" * 100_000]
)
def test_returned_value_is_done_and_comes_back_as_it_is(store: Store, value: Any) -> None:
    act = flaky([], [value])
    request_id = approved(act, 1)
    assert act(1) is value
    assert state_of(request_id) is State.DONE


def test_result_that_nobody_can_read_is_done_all_the_same(store: Store) -> None:
    strange = Strange()

    @sayso.gate(wait="raise")
    def act() -> Strange:
        return strange

    request_id = approved(act)
    assert act() is strange
    assert state_of(request_id) is State.DONE


@pytest.mark.parametrize(("error", "state"), ENDS, ids=[told(error) for error, _ in ENDS])
def test_end_of_a_sync_call_gives_its_state(store: Store, error: BaseException, state: State) -> None:
    ran: list[int] = []
    act = flaky(ran, [error])
    request_id = approved(act, 1)
    with pytest.raises(type(error)) as caught:
        act(1)
    assert caught.value is error
    assert state_of(request_id) is state
    assert_spent(act, request_id, state)
    assert ran == [1]


@pytest.mark.parametrize(("error", "state"), ENDS, ids=[told(error) for error, _ in ENDS])
def test_end_of_an_async_call_gives_its_state(store: Store, error: BaseException, state: State) -> None:
    ran: list[int] = []
    act = aflaky(ran, [error])
    heard: list[BaseException] = []

    async def main() -> str:
        pause = await aheld(act, 1)
        sayso.Review().approve(pause.confirmation_id, by="ada")
        try:
            await act(1)
        except BaseException as raised:  # noqa: BLE001  the loop must not hear of an exit
            heard.append(raised)
        return pause.confirmation_id

    request_id = asyncio.run(main())
    if isinstance(error, StopIteration):  # Python itself lets no coroutine raise it
        assert type(heard[0]) is RuntimeError
    else:
        assert heard == [error]
    assert state_of(request_id) is state
    assert ran == [1]


def test_record_keeps_the_kind_and_words_of_an_error(store: Store) -> None:
    request_id = approved(act := flaky([], [ValueError("bad \udcff name" + "x" * 5_000)]), 1)
    with pytest.raises(ValueError, match="bad"):
        act(1)
    execution = store.get(request_id).execution
    assert execution is not None
    assert execution.error is not None
    assert execution.error.startswith("ValueError: bad \\udcff name")
    assert execution.error.endswith("more characters)")
    assert len(execution.error) < 2_100


def test_record_keeps_an_error_without_words(store: Store) -> None:
    request_id = approved(act := flaky([], [Odd()]), 1)
    with pytest.raises(Odd):
        act(1)
    execution = store.get(request_id).execution
    assert execution is not None
    assert execution.error is not None
    assert execution.error.startswith("Odd")


class Unhashable(type):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


class Lazy(type):
    def __getattr__(cls, name: str) -> Any:
        raise RuntimeError(f"{name} is not loaded")


@pytest.mark.parametrize("kind", [Unhashable, Lazy])
def test_a_result_whose_class_raises_when_it_is_looked_at_leaves_no_call_running(store: Store, kind: type) -> None:
    @sayso.gate(wait="raise")
    def act(unhashable: bool) -> Any:
        return (Unhashable if unhashable else Lazy)("Result", (), {})()

    request_id = approved(act, kind is Unhashable)
    with pytest.raises((TypeError, RuntimeError), match=r"unhashable|is not loaded"):
        act(kind is Unhashable)
    assert state_of(request_id) is State.UNKNOWN


def test_call_that_is_interrupted_as_it_returns_is_unknown(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come when the function has returned, and before its end is looked at."""
    act = flaky([], [])
    request_id = approved(act, 1)
    call = effects.UserCall.__call__

    def interrupted(self: effects.UserCall) -> effects.Attempt:
        call(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(effects.UserCall, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        act(1)
    assert state_of(request_id) is State.UNKNOWN


def test_call_whose_end_is_broken_off_before_it_is_recorded_is_unknown(store: Store) -> None:
    class Interrupting(Exception):  # as Ctrl-C at the moment when its words are read
        def __str__(self) -> str:
            raise KeyboardInterrupt

    ran: list[int] = []
    act = flaky(ran, [Interrupting()])
    request_id = approved(act, 1)
    with pytest.raises(KeyboardInterrupt):
        act(1)
    assert_spent(act, request_id, State.UNKNOWN)  # and does not run for ever: this process goes on
    assert ran == [1]


@contextmanager
def as_block(ran: list[int]) -> Iterator[None]:
    ran.append(1)
    yield


def one_by_one(ran: list[int]) -> Iterator[int]:
    ran.append(1)
    yield 1


async def later(ran: list[int]) -> None:
    ran.append(1)


def in_task(ran: list[int]) -> Any:
    return asyncio.ensure_future(later(ran))


def in_pool(_: list[int]) -> Any:
    return Future[None]()


def in_map(ran: list[int]) -> Any:
    return map(ran.append, [1])


def in_filter(ran: list[int]) -> Any:
    return filter(ran.append, [1])


def in_starmap(ran: list[int]) -> Any:
    return itertools.starmap(ran.append, [(1,)])


def in_map_of_pool(ran: list[int]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.map(ran.append, [1])


def in_job_of_pool(ran: list[int]) -> Any:
    with ThreadPool(1) as pool:
        job = pool.apply_async(ran.append, [1])
        pool.close()
        pool.join()
        return job


def half(ran: list[int]) -> Any:
    numbers = one_by_one(ran)
    next(numbers)
    return numbers


async def payments(ran: list[int]) -> AsyncIterator[int]:
    ran.append(1)
    yield 1


def half_async(ran: list[int]) -> Any:
    numbers = payments(ran)
    with suppress(StopIteration):  # which has the first number
        anext(numbers).__await__().send(None)
    return numbers


# What a function may hand back in place of having done it, and whether that may have begun by then.
UNFINISHED: list[tuple[Callable[[list[int]], Any], State]] = [
    (as_block, State.FAILED), (one_by_one, State.FAILED), (later, State.FAILED), (in_task, State.UNKNOWN),
    (in_pool, State.UNKNOWN), (in_map, State.UNKNOWN), (in_filter, State.UNKNOWN),
    (in_starmap, State.UNKNOWN), (in_map_of_pool, State.UNKNOWN), (in_job_of_pool, State.UNKNOWN),
    (half, State.UNKNOWN), (half_async, State.UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("made", "state"), UNFINISHED, ids=[made.__name__ for made, _ in UNFINISHED])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_returns_what_is_to_run_later_is_not_called_done(
    store: Store, made: Callable[[list[int]], Any], state: State, is_async: bool
) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise")
    def act() -> Any:
        return made(ran)

    @sayso.gate(wait="raise")
    async def aact() -> Any:
        return made(ran)

    async def main() -> str:
        request_id = (await aheld(aact)).confirmation_id if is_async else held(act).confirmation_id
        sayso.Review().approve(request_id, by="ada")
        with pytest.raises(TypeError, match="gate the async function that does it"):
            _ = (await aact()) if is_async else act()
        assert ran == [] or state is State.UNKNOWN
        return request_id

    assert state_of(asyncio.run(main())) is state


def test_a_generator_that_another_thread_is_reading_has_begun(store: Store) -> None:
    is_paying, go_on = threading.Event(), threading.Event()

    def numbers() -> Iterator[int]:
        is_paying.set()
        assert go_on.wait(60)
        yield 1

    @sayso.gate(wait="raise", retries=1)
    def act() -> Any:
        made = numbers()
        threading.Thread(target=list, args=(made,)).start()
        assert is_paying.wait(60)
        return made

    request_id = approved(act)
    try:
        with pytest.raises(TypeError, match="gate the async function that does it"):
            act()
    finally:
        go_on.set()
    assert state_of(request_id) is State.UNKNOWN


def test_a_context_manager_is_refused_at_the_decoration() -> None:
    for function in [contextmanager(one_by_one), functools.partial(contextmanager(one_by_one)), as_block]:
        with pytest.raises(TypeError, match="cannot be gated"):
            sayso.gate(function, name="act")
        with pytest.raises(TypeError, match="runs after its call has ended"):
            sayso.Tool(function, name="act")


@pytest.mark.parametrize("keeps", [False, True])
def test_a_call_that_meets_another_gate_says_so_and_keeps_its_approval_where_the_author_wants_it(
    store: Store, keeps: bool
) -> None:
    before: list[int] = []
    fee = flaky([], [])

    @sayso.gate(wait="raise", suspends=sayso.ConfirmationRequired if keeps else ())
    def refund() -> str:
        before.append(1)
        return fee(1)

    request_id = approved(refund)
    inner = held(refund)
    sayso.Review().approve(inner.confirmation_id, by="ada")
    assert state_of(request_id) is (State.APPROVED if keeps else State.FAILED)
    notes = "\n".join(getattr(inner, "__notes__", ()))
    assert ("refund was approved and started" in notes) is not keeps
    if not keeps:
        execution = store.get(request_id).execution
        assert execution is not None
        assert "inside it waits for a person; what it did before is done" in str(execution.error)
        assert approved(refund) != request_id
    refund()
    assert before == [1, 1]


# -- broken off ------------------------------------------------------------------------------------------------------


class Sleeper:
    """An approved async call that sleeps in mid-effect."""

    def __init__(self) -> None:
        self.effects = 0
        self.begun = asyncio.Event()
        self.request_id = ""

        @sayso.gate(wait="raise")
        async def act() -> None:
            self.effects += 1
            self.begun.set()
            await asyncio.sleep(3600)
            self.effects += 1

        self.act = act

    async def start(self) -> asyncio.Task[None]:
        pause = await aheld(self.act)
        self.request_id = pause.confirmation_id
        sayso.Review().approve(self.request_id, by="ada")
        task: asyncio.Task[None] = asyncio.ensure_future(self.act())  # type: ignore[assignment]
        await self.begun.wait()
        assert state_of(self.request_id) is State.RUNNING
        return task

    def assert_unknown(self) -> None:
        assert state_of(self.request_id) is State.UNKNOWN
        assert self.effects == 1


def test_cancelled_call_is_unknown(store: Store) -> None:
    async def main() -> None:
        sleeper = Sleeper()
        task = await sleeper.start()
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        sleeper.assert_unknown()
        with pytest.raises(errors.OutcomeUnknownError):
            await sleeper.act()
        sleeper.assert_unknown()

    asyncio.run(main())


def test_call_that_runs_out_of_its_callers_patience_is_unknown(store: Store) -> None:
    async def main() -> None:
        sleeper = Sleeper()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(await sleeper.start(), 0.01)  # it began before, and takes an hour
        sleeper.assert_unknown()

    asyncio.run(main())


def test_call_whose_sibling_in_a_task_group_failed_is_unknown(store: Store) -> None:
    sleepers: list[Sleeper] = []

    async def main() -> None:
        sleepers.append(Sleeper())
        async with asyncio.TaskGroup() as group:
            group.create_task(outlive(sleepers[0]))
            await asyncio.sleep(0.01)
            await sleepers[0].begun.wait()
            raise ValueError("sibling")

    async def outlive(sleeper: Sleeper) -> None:
        await (await sleeper.start())

    with pytest.raises(ExceptionGroup):
        asyncio.run(main())
    sleepers[0].assert_unknown()


def test_call_whose_coroutine_is_thrown_away_is_unknown(store: Store) -> None:
    sleepers: list[Sleeper] = []

    async def main() -> None:
        sleepers.append(Sleeper())
        await sleepers[0].start()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(main())
    loop.close()
    del loop
    gc.collect()
    sleepers[0].assert_unknown()


@pytest.mark.parametrize("ticks", range(8))
def test_call_cancelled_on_its_way_has_a_state_and_at_most_one_effect(store: Store, ticks: int) -> None:
    effects: list[int] = []

    @sayso.gate(wait="raise")
    async def act() -> None:
        effects.append(1)
        await asyncio.sleep(0)

    async def main() -> str:
        pause = await aheld(act)
        sayso.Review().approve(pause.confirmation_id, by="ada")
        task = asyncio.ensure_future(act())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return pause.confirmation_id

    state = state_of(asyncio.run(main()))
    allowed = {State.APPROVED, State.FAILED} if not effects else {State.UNKNOWN, State.DONE}
    assert state in allowed
    assert len(effects) <= 1
