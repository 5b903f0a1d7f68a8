"""A thread of a pool serves one caller after another: what one of them was granted or refused is nothing to the next.

The invariant: without a named run, a decision reaches the call that asked for it and no other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from multiprocessing.pool import ThreadPool
from socketserver import StreamRequestHandler, TCPServer
from typing import Any

import anyio.to_thread
import pytest

import sayso
from sayso import errors
from sayso.confirmation import get_confirmation_context, respond_to_confirmation
from sayso.gates import dialog, interruptions
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from tests.support.acting import Disk, concurrently, held, payer, waiting_in

PATIENCE = 30


@pytest.fixture(autouse=True)
def nobody_is_at_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: False)


@pytest.fixture
def pay(disk: Disk) -> Callable[[str], str]:
    @sayso.gate
    def remove(path: str) -> str:
        return disk.delete(path)

    return remove


def in_one_thread(store: Store, first: Callable[[], Any], decide: Callable[[str], object]) -> tuple[Any, Request]:
    """Make a call in a pool of one thread, decide it, make it again; return its end and what the second asked."""
    with ThreadPoolExecutor(1) as pool:
        one = pool.submit(first)
        (asked,) = waiting_in(store)
        decide(asked.id)
        end = one.exception(PATIENCE) or one.result()
        two = pool.submit(first)
        (again,) = waiting_in(store)
        sayso.Review().cancel(again.id, by="ada")
        assert isinstance(two.exception(PATIENCE), sayso.ConfirmationCancelled)
    assert again.id != asked.id
    return end, again


def test_an_approval_that_was_not_used_runs_nothing_of_the_threads_next_caller(store: Store, disk: Disk) -> None:
    @sayso.gate(timeout="1ms")
    def remove(path: str) -> str:
        return disk.delete(path)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(remove, "/a").exception(PATIENCE)
        second = pool.submit(remove, "/a").exception(PATIENCE)
    assert isinstance(first, sayso.ConfirmationExpired)
    assert isinstance(second, sayso.ConfirmationExpired)
    assert first.confirmation_id != second.confirmation_id
    assert "timeout=0:00:00.001000" in first.message
    assert store.get(str(first.confirmation_id)).state is State.CANCELLED  # nobody could have come back to it
    assert disk.deleted == []


def test_a_no_does_not_stick_to_the_thread(store: Store, pay: Callable[[str], str], disk: Disk) -> None:
    end, _ = in_one_thread(store, lambda: pay("/a"), lambda one: sayso.Review().reject(one, by="ada"))
    assert isinstance(end, sayso.ConfirmationRejected)
    assert disk.deleted == []


def test_an_answer_is_not_heard_by_the_threads_next_caller(store: Store) -> None:
    end, again = in_one_thread(
        store, lambda: sayso.ask("Go on?", type=bool), lambda one: sayso.Review().answer(one, True, by="ada")
    )
    assert end is True
    assert again.kind == "question"


def test_a_try_that_is_left_is_the_callers_own(store: Store, disk: Disk) -> None:
    ran: list[str] = []

    @sayso.gate(retries=1)
    def flaky(path: str) -> str:
        ran.append(path)
        if len(ran) == 1:
            raise OSError("busy")
        return disk.delete(path)

    def twice() -> str:
        try:
            return flaky("/a")
        except OSError:
            return flaky("/a")

    def once() -> str:
        return flaky("/a")

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(twice)
        sayso.Review().approve(waiting_in(store)[0].id, by="ada")
        assert first.result(PATIENCE) == "Deleted /a"
        ran.clear()
        second = pool.submit(once)
        sayso.Review().approve(waiting_in(store)[0].id, by="ada")
        assert isinstance(second.exception(PATIENCE), OSError)
        third = pool.submit(once)
        (asked,) = waiting_in(store)
        sayso.Review().reject(asked.id, by="ada")
        assert isinstance(third.exception(PATIENCE), sayso.ConfirmationRejected)
    assert disk.deleted == ["/a"]


def test_equal_calls_that_block_at_once_wait_for_a_decision_each(
    store: Store, pay: Callable[[str], str], disk: Disk
) -> None:
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(pay, "/a") for _ in range(2)]
        one, other = waiting_in(store, 2)
        sayso.Review().approve(one.id, by="ada")
        sayso.Review().reject(other.id, by="ada")
        ends = [call.exception(PATIENCE) for call in calls]
    assert sorted(type(end).__name__ for end in ends) == ["ConfirmationRejected", "NoneType"]
    assert disk.deleted == ["/a"]


def test_what_was_decided_before_counts_for_no_call_that_blocks_outside_of_a_named_run(
    store: Store, pay: Callable[[str], str], disk: Disk
) -> None:
    def work() -> None:  # a loop of the program's own, which cannot be told from a thread that does one job
        for _ in range(2):
            with pytest.raises(sayso.ConfirmationRejected):
                pay("/a")

    thread = threading.Thread(target=work)
    thread.start()
    asked = [waiting_in(store)[0].id]
    sayso.Review().reject(asked[0], by="ada")
    asked.append(waiting_in(store)[0].id)
    sayso.Review().reject(asked[1], by="ada")
    thread.join(PATIENCE)
    assert len(set(asked)) == 2


def test_a_call_that_blocks_in_a_named_run_finds_what_was_decided_there(store: Store, disk: Disk) -> None:
    @sayso.gate(timeout="1ms")
    def remove(path: str) -> str:
        return disk.delete(path)

    def job() -> str:
        with sayso.run("order-1"):
            return remove("/a")

    with ThreadPoolExecutor(1) as pool:
        pause = pool.submit(job).exception(PATIENCE)
        assert isinstance(pause, sayso.ConfirmationRequired)
        sayso.Review().approve(pause.confirmation_id, by="ada")
        assert pool.submit(job).result(PATIENCE) == "Deleted /a"


# -- what would have to be come back to ------------------------------------------------------------------------------


def with_executor(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(PATIENCE)


def with_run_in_executor(work: Callable[[], Any]) -> Any:
    async def main() -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    return asyncio.run(main())


def with_thread_pool(work: Callable[[], Any]) -> Any:
    with ThreadPool(1) as pool:
        return pool.apply(work)


def with_anyio(work: Callable[[], Any]) -> Any:
    async def main() -> Any:
        return await anyio.to_thread.run_sync(work)

    return anyio.run(main)


def with_server(work: Callable[[], Any]) -> Any:
    got: list[Any] = []

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            try:
                got.append(work())
            except Exception as error:  # noqa: BLE001  raised below
                got.append(error)

    import socket

    with (
        TCPServer(("127.0.0.1", 0), Handler) as server,
        socket.create_connection(("127.0.0.1", server.server_address[1])),
    ):
        server.handle_request()
    if isinstance(got[0], Exception):
        raise got[0]
    return got[0]


def with_foreign_thread(work: Callable[[], Any]) -> Any:
    import _thread

    got: list[Any] = []
    done = threading.Event()

    def foreign() -> None:
        try:
            got.append(work())
        except Exception as error:  # noqa: BLE001  raised below
            got.append(error)
        done.set()

    _thread.start_new_thread(foreign, ())
    assert done.wait(PATIENCE)
    if isinstance(got[0], Exception):
        raise got[0]
    return got[0]


@pytest.fixture(
    params=[with_executor, with_run_in_executor, with_thread_pool, with_anyio, with_server, with_foreign_thread],
    ids=["executor", "run_in_executor", "ThreadPool", "anyio", "socketserver", "foreign"],
)
def pool(request: pytest.FixtureRequest) -> Callable[[Callable[[], Any]], Any]:
    """What runs a function in a thread that serves others, too."""
    return request.param


def test_a_call_that_raises_is_refused_in_a_pools_thread_and_told_to_name_the_run(
    memory: Store, pool: Callable[[Callable[[], Any]], Any]
) -> None:
    for work in (lambda: payer()(5), lambda: sayso.ask("Go on?", type=bool, wait="raise")):
        with pytest.raises(errors.ConfigError, match=r"nothing was asked and nothing ran\..*sayso\.run"):
            pool(work)
    assert memory.count(Filter()) == 0
    assert pool(lambda: payer(when=lambda amount: amount > 100)(5)) == "paid 5 to alice"  # it asks nobody


def test_a_pools_thread_counts_as_one_though_its_job_is_not_found(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where a library has renamed what is private to it.
    monkeypatch.setattr(interruptions, "_FINDS", dict.fromkeys(interruptions._FINDS, lambda *_: None))
    for pool in (with_executor, with_run_in_executor, with_anyio):
        with pytest.raises(errors.ConfigError, match=r"nothing was asked and nothing ran\..*sayso\.run"):
            pool(lambda: payer()(5))
    assert memory.count(Filter()) == 0
    assert held(payer(), 5).confirmation_id  # this thread is the program's own


def test_the_private_names_by_which_a_job_is_found_are_there() -> None:
    def look() -> tuple[bool, bool, bool]:
        job = interruptions.job() or pytest.fail("no job")
        return job.is_over, job.is_lent, job._cancel_scope() is not None

    assert with_executor(look) == with_run_in_executor(look) == (False, False, False)
    assert with_anyio(look) == (False, False, True)
    assert asyncio.run(asyncio.to_thread(look)) == (False, True, False)


def test_a_named_run_inside_of_a_pools_thread_is_come_back_to(
    memory: Store, pool: Callable[[Callable[[], Any]], Any]
) -> None:
    pay = payer()

    def job() -> str:
        with sayso.run("order-1"):
            return pay(5)

    pause = held(pool, job)
    sayso.Review().approve(pause.confirmation_id, by="ada")
    assert pool(job) == "paid 5 to alice"


def test_what_a_job_of_a_pool_was_told_is_not_known_to_the_next(
    store: Store, pool: Callable[[Callable[[], Any]], Any]
) -> None:
    pay = payer()
    (pause,) = concurrently(1, lambda: held(pay, 5))

    def respond() -> None:
        respond_to_confirmation(pause.confirmation_id, approved=True)

    pool(respond)
    assert pool(get_confirmation_context) == {}
    with pytest.raises(errors.ConfigError):
        pool(lambda: pay(5))


def test_a_loop_in_a_pools_thread_inherits_nothing_from_the_job_before(store: Store) -> None:
    pay = payer()

    async def agent() -> str:
        return pay(5)

    pause = held(pay, 5)

    def respond() -> None:
        respond_to_confirmation(pause.confirmation_id, approved=True)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(respond).result(PATIENCE)
        again = pool.submit(asyncio.run, agent()).exception(PATIENCE)
    assert isinstance(again, sayso.ConfirmationRequired)
    assert again.confirmation_id != pause.confirmation_id


def test_a_pools_thread_does_not_stand_in_the_run_of_its_callers_parent(store: Store) -> None:
    pay = payer()

    async def main() -> None:
        held(payer(), 7)  # the parent has a run
        for _ in range(2):
            with pytest.raises(errors.ConfigError, match=r"nothing was asked and nothing ran\..*sayso\.run"):
                await asyncio.create_task(anyio.to_thread.run_sync(pay, 5))

    asyncio.run(main())
    assert store.count(Filter()) == 1


def test_a_try_that_is_left_in_a_tasks_thread_is_no_other_tasks(store: Store) -> None:
    ran, ends = list[str](), list[Any]()

    @sayso.gate(retries=1)
    def flaky(path: str) -> None:
        ran.append(path)
        raise OSError("busy")

    async def main() -> None:
        get_confirmation_context()  # the parent has a run
        for decide in (sayso.Review().approve, sayso.Review().reject):
            task = asyncio.create_task(asyncio.to_thread(flaky, "/a"))
            (request,) = await asyncio.to_thread(waiting_in, store)
            decide(request.id, by="ada")
            ends.extend(await asyncio.gather(task, return_exceptions=True))

    asyncio.run(main())
    assert list(map(type, ends)) == [OSError, sayso.ConfirmationRejected]
    assert ran == ["/a"]


def test_a_pools_thread_that_was_handed_its_callers_run_stands_in_it(store: Store) -> None:
    pay = payer()

    async def main() -> str:
        pause = held(pay, 5)  # the task has a run
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            await anyio.to_thread.run_sync(pay, 5)
        assert caught.value.confirmation_id == pause.confirmation_id
        sayso.Review().approve(pause.confirmation_id, by="ada")
        return await anyio.to_thread.run_sync(pay, 5)

    assert asyncio.run(main()) == "paid 5 to alice"


def test_a_context_that_has_served_a_job_is_in_the_run_that_it_was_in_before(store: Store) -> None:
    pay = payer()

    async def main() -> None:
        asked, context, loop = [held(pay, 5)], copy_context(), asyncio.get_running_loop()
        asked += [await loop.run_in_executor(None, lambda: context.run(held, pay, 5)) for _ in range(2)]
        for variable in context:
            variable.set(context[variable])  # as asgiref's sync_to_async does
        asked.append(held(pay, 5))
        assert len({pause.confirmation_id for pause in asked}) == 1

    asyncio.run(main())


def test_a_thread_that_has_its_tasks_run_hands_it_on_to_no_thread_of_its_own(store: Store) -> None:
    pay, asked = payer(), list[str]()

    def in_tasks_of_its_own(_: Any) -> None:
        async def user() -> None:
            asked.append((await asyncio.to_thread(held, pay, 5)).confirmation_id)
            sayso.Review().approve(asked[-1], by="ada")

        async def users() -> None:
            for _ in range(2):
                await asyncio.create_task(user())

        asyncio.run(users())

    async def main() -> None:
        await (await sayso.aio.hold("x", {}, when=False)).once(in_tasks_of_its_own)

    asyncio.run(main())
    assert asked[0] != asked[1]
