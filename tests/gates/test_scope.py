"""In which thread, task, run and process a decision counts, and that it counts once.

A run without a name is a thread's or a task's own; a named one is a place for all of them, and for later processes.
The invariant: however many callers find one approval, one of them runs the call.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.confirmation import (
    ConfirmationRequired,
    clear_confirmation,
    get_confirmation_context,
    get_confirmation_status,
    respond_to_confirmation,
)
from sayso.gates import scope
from sayso.model.ids import is_random
from sayso.stores.base import Filter, Store
from tests.support.acting import Disk, aheld, approved, concurrently, forked, held, program, running
from tests.support.rounds import rounds


def test_each_thread_confirms_for_itself(delete: Callable[..., str], disk: Disk) -> None:
    ids: list[str] = []

    def worker() -> str:
        pause = held(delete, "/same")
        ids.append(pause.confirmation_id)
        assert list(get_confirmation_context()) == [pause.confirmation_id]
        respond_to_confirmation(pause.confirmation_id, approved=True)
        return delete("/same")

    assert concurrently(3, worker) == ["Deleted /same"] * 3
    assert len(set(ids)) == 3
    assert len(disk.deleted) == 3


def test_approval_in_one_thread_is_nothing_in_another(delete: Callable[..., str], disk: Disk) -> None:
    mine = approved(delete, "/a")
    seen: list[Any] = []

    def other() -> None:
        seen.append(get_confirmation_context())
        seen.append(held(delete, "/a").confirmation_id)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen[0] == {}
    assert seen[1] != mine
    assert disk.deleted == []


def test_sibling_tasks_share_nothing(adelete: Callable[..., Any], disk: Disk) -> None:
    async def approves() -> str:
        pause = await aheld(adelete, "/a")
        sayso.Review().approve(pause.confirmation_id, by="ada")
        return pause.confirmation_id

    async def tries() -> str:
        assert get_confirmation_context() == {}
        return (await aheld(adelete, "/a")).confirmation_id

    async def main() -> None:
        mine = await asyncio.create_task(approves())
        theirs = await asyncio.gather(*(tries() for _ in range(5)))
        assert len({mine, *theirs}) == 6

    asyncio.run(main())
    assert disk.deleted == []


def test_siblings_of_a_parent_with_a_run_share_nothing(adelete: Callable[..., Any], disk: Disk) -> None:
    async def tries() -> str:
        return (await aheld(adelete, "/a")).confirmation_id

    async def main() -> None:
        await aheld(adelete, "/b")
        assert len(set(await asyncio.gather(*(tries() for _ in range(5))))) == 5

    asyncio.run(main())
    assert disk.deleted == []


def test_what_a_task_was_granted_is_not_granted_to_the_thread_that_began_it(
    delete: Callable[..., str], disk: Disk
) -> None:
    async def agent() -> str:
        return delete("/a")

    held(delete, "/b")  # the thread has a run of its own
    pause = held(lambda: asyncio.run(agent()))
    sayso.Review().approve(pause.confirmation_id, by="ada")
    assert held(delete, "/a").confirmation_id != pause.confirmation_id
    assert disk.deleted == []


def test_child_task_sees_what_its_parent_was_granted(adelete: Callable[..., Any], disk: Disk) -> None:
    async def main() -> None:
        pause = await aheld(adelete, "/a")
        respond_to_confirmation(pause.confirmation_id)
        assert await asyncio.create_task(adelete("/a")) == "Deleted /a"
        await aheld(adelete, "/a")

    asyncio.run(main())
    assert disk.deleted == ["/a"]


def test_child_task_does_not_grant_its_parent(adelete: Callable[..., Any], disk: Disk) -> None:
    async def child() -> str:
        pause = await aheld(adelete, "/a")
        respond_to_confirmation(pause.confirmation_id)
        return pause.confirmation_id

    async def main() -> None:
        get_confirmation_context()  # the parent has a run before the child begins
        theirs = await asyncio.create_task(child())
        assert (await aheld(adelete, "/a")).confirmation_id != theirs

    asyncio.run(main())
    assert disk.deleted == []


def test_pause_of_a_task_is_answered_by_who_awaited_it(adelete: Callable[..., Any], disk: Disk) -> None:
    async def agent() -> str:
        return await adelete("/a")

    async def main() -> str:
        pause = await aheld(lambda: asyncio.create_task(agent()))
        respond_to_confirmation(pause.confirmation_id)
        return await asyncio.create_task(agent())

    assert asyncio.run(main()) == "Deleted /a"
    assert len(disk.deleted) == 1


def test_pause_of_one_loop_is_answered_outside_and_found_by_the_next(adelete: Callable[..., Any], disk: Disk) -> None:
    async def agent() -> str:
        return await adelete("/a")

    pause = held(lambda: asyncio.run(agent()))
    respond_to_confirmation(pause.confirmation_id)
    assert asyncio.run(agent()) == "Deleted /a"
    assert disk.deleted == ["/a"]


def test_to_thread_stands_in_its_callers_run(delete: Callable[..., str], disk: Disk) -> None:
    async def main() -> str:
        pause = held(delete, "/a")
        assert (await aheld(lambda: asyncio.to_thread(delete, "/a"))).confirmation_id == pause.confirmation_id
        sayso.Review().approve(pause.confirmation_id, by="ada")
        return await asyncio.to_thread(delete, "/a")

    assert asyncio.run(main()) == "Deleted /a"
    assert len(disk.deleted) == 1


def test_what_a_worker_thread_asks_first_is_answered_by_its_caller(delete: Callable[..., str], disk: Disk) -> None:
    async def main() -> str:
        pause = await aheld(lambda: asyncio.to_thread(delete, "/a"))
        respond_to_confirmation(pause.confirmation_id)
        return await asyncio.to_thread(delete, "/a")

    assert asyncio.run(main()) == "Deleted /a"
    assert len(disk.deleted) == 1


@pytest.mark.parametrize("name", ["customer-1", f"run_{'0a' * 16}"], ids=["a name", "like a random id"])
def test_who_answers_another_named_run_gets_nothing_of_its_decision(
    delete: Callable[..., str], disk: Disk, name: str
) -> None:
    with sayso.run(name):
        pause = held(delete, "/a")
    with sayso.run("customer-2"):
        respond_to_confirmation(pause.confirmation_id)
        assert held(delete, "/a").confirmation_id != pause.confirmation_id
    respond_to_confirmation(held(delete, "/b").confirmation_id)
    assert delete("/b")
    with sayso.run(name):
        assert delete("/a")


def test_who_answers_a_run_without_a_name_gets_its_decision_too(delete: Callable[..., str], disk: Disk) -> None:
    with sayso.run():
        pause = held(delete, "/a")
    respond_to_confirmation(pause.confirmation_id)
    assert delete("/a")
    assert disk.deleted == ["/a"]


def test_who_answers_a_tools_run_gets_nothing_of_its_decision(disk: Disk) -> None:
    tool = sayso.Tool(disk.delete, name="delete", requires_approval=True)
    paused = tool("/a").run()
    respond_to_confirmation(paused.metadata["pending_approvals"][0]["approval_id"])
    held(tool.call, "/a")
    assert disk.deleted == []
    assert tool(parent_id=paused.run_id).run().output == "Deleted /a"


def test_ten_agents_at_once_each_run_their_own(adelete: Callable[..., Any], disk: Disk) -> None:
    async def agent(number: int) -> str:
        pause = await aheld(adelete, f"/{number % 2}")
        respond_to_confirmation(pause.confirmation_id)
        return await adelete(f"/{number % 2}")

    async def main() -> list[str]:
        return await asyncio.gather(*(agent(number) for number in range(10)))

    assert sorted(asyncio.run(main())) == ["Deleted /0"] * 5 + ["Deleted /1"] * 5
    assert len(disk.deleted) == 10


def test_run_by_name_is_one_place_for_threads_and_tasks(
    delete: Callable[..., str], adelete: Callable[..., Any], disk: Disk
) -> None:
    def elsewhere() -> str:
        with sayso.run("order-1"):
            return held(delete, "/a").confirmation_id

    assert len(set(concurrently(4, elsewhere))) == 1

    async def main() -> set[str]:
        with sayso.run("order-1"):
            pauses = await asyncio.gather(*(asyncio.create_task(aheld(adelete, "/b")) for _ in range(4)))
        return {pause.confirmation_id for pause in pauses}

    assert len(asyncio.run(main())) == 1


def test_other_runs_decide_nothing_here(delete: Callable[..., str], disk: Disk) -> None:
    with sayso.run("order-1"):
        first = approved(delete, "/a")
    with sayso.run("order-2"):
        assert held(delete, "/a").confirmation_id != first
    assert held(delete, "/a").confirmation_id != first
    with sayso.run("order-1"):
        assert delete("/a") == "Deleted /a"


IDS = """
import sys
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Literal
import sayso

class Size(Enum):
    SMALL = "s"
    LARGE = "l"

@dataclass
class Order:
    size: Size
    extra: dict[str, int | str | None]

@sayso.confirm_first
def ship(order: Order, to: str | bytes, when: date, how: Literal["air", "sea"], *tags: str) -> None: ...

sayso.configure(store=sys.argv[1])
with sayso.run("order-4721"):
    try:
        ship(Order(Size.LARGE, {"b": 1, "a": "x", "c": None}), "Bern", date(2026, 1, 31), "sea", "x", "y")
    except sayso.ConfirmationRequired as pause:
        print(pause.confirmation_id)
"""


@pytest.mark.slow
def test_id_is_the_same_in_every_process_and_under_every_hash_seed(file_store: Store) -> None:
    ids: set[str] = set()
    for first in range(0, rounds(4, 20), 2):
        pair = [program(IDS, file_store.url, PYTHONHASHSEED=str(seed)) for seed in (first, first + 1)]
        ids |= {running(process) for process in pair}
    assert len(ids) == 1
    assert get_confirmation_status(ids.pop()) == "pending"
    assert file_store.count(Filter()) == 1


RUN_APPROVED = """
import sys
import sayso

sayso.configure(store=sys.argv[1])

@sayso.confirm_first
def pay(amount: int) -> str:
    with open(sys.argv[2], "a") as ledger:
        ledger.write(f"{amount}\\n")
    return "paid"

with sayso.run("order-4721"):
    try:
        print(pay(10))
    except sayso.ConfirmationRequired as pause:
        print(pause.confirmation_id)
"""


def test_decision_is_found_by_the_next_process_of_the_run(file_store: Store, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    request_id = running(forked(RUN_APPROVED, file_store.url, str(ledger)))
    assert running(forked(RUN_APPROVED, file_store.url, str(ledger))) == request_id
    respond_to_confirmation(request_id)
    assert running(forked(RUN_APPROVED, file_store.url, str(ledger))) == "paid"
    assert running(forked(RUN_APPROVED, file_store.url, str(ledger))).startswith("rq_")
    assert ledger.read_text() == "10\n"


# -- once ------------------------------------------------------------------------------------------------------------


def told_no(outcome: Any) -> bool:
    """Came second: it is running, or it ran and the next one must be asked for."""
    return isinstance(outcome, errors.AlreadyStartedError | ConfirmationRequired)


def test_one_approval_runs_once_under_twenty_threads(delete: Callable[..., str], disk: Disk) -> None:
    def go() -> str:
        with sayso.run("order-1"):
            return delete("/a")

    for attempt in range(3):
        with sayso.run("order-1"):
            approved(delete, "/a")
        outcomes = concurrently(20, go)
        assert outcomes.count("Deleted /a") == 1
        assert sum(map(told_no, outcomes)) == 19
        assert len(disk.deleted) == attempt + 1
        with sayso.run("order-1"):
            clear_confirmation(held(delete, "/a").confirmation_id)


def test_one_approval_runs_once_under_twenty_tasks(adelete: Callable[..., Any], disk: Disk) -> None:
    async def main() -> list[Any]:
        with sayso.run("order-1"):
            pause = await aheld(adelete, "/a")
            respond_to_confirmation(pause.confirmation_id)
            calls = [asyncio.create_task(adelete("/a")) for _ in range(20)]
            return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(main())
    assert outcomes.count("Deleted /a") == 1
    assert sum(map(told_no, outcomes)) == 19
    assert disk.deleted == ["/a"]


FORK = """
import os, sys, sayso
sayso.configure(store=sys.argv[1])

@sayso.confirm_first
def pay(amount: int) -> str:
    return "paid"

def ask() -> str:
    try:
        return pay(10)
    except sayso.ConfirmationRequired as pause:
        return pause.confirmation_id

def ask_in_a_task() -> str:
    import asyncio
    async def main() -> str:
        return ask()
    return asyncio.run(main())

def in_child(work) -> str:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, work().encode())
        os._exit(0)
    os.wait()
    return os.read(reading, 100).decode()

mine = ask()
sayso.Review().approve(mine, by="ada")
theirs = [in_child(ask), in_child(ask_in_a_task)]
with sayso.run("order-1"):
    named = ask()
    theirs_named = in_child(ask)
print(len({mine, *theirs}), theirs_named == named, ask())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_process_shares_a_named_run_and_no_other(file_store: Store) -> None:
    assert running(program(FORK, file_store.url)) == "3 True paid"


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", " ", " x", "x ", "a\nb", "a\u202eb", "a\u200bb", "\udcff", "x" * 201, "a\x00b"])
def test_name_that_cannot_be_seen_for_what_it_is_names_no_run(name: str) -> None:
    with pytest.raises(ValueError, match="run's name"), sayso.run(name):
        raise AssertionError


def test_run_without_a_name_is_a_new_one(disk: Disk, delete: Callable[..., str]) -> None:
    with sayso.run() as first:
        approved(delete, "/a")
    with sayso.run() as second:
        held(delete, "/a")
    assert first != second
    assert first.startswith("run_")


def test_run_ends_with_its_block_also_by_an_error(delete: Callable[..., str]) -> None:
    def run_id() -> str:
        return sayso.Review().get(held(delete, "/a").confirmation_id).run_id

    outside = run_id()
    with sayso.run("größe 4721/ü") as name:
        assert run_id() == name == "größe 4721/ü"
        with suppress(KeyError), sayso.run("inner"):
            assert run_id() == "inner"
            raise KeyError
        assert run_id() == name
    assert run_id() == outside


def test_a_decorated_function_runs_in_the_run_of_its_decorator(store: Store) -> None:
    @sayso.gate(wait="raise")
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    async def inner() -> sayso.ConfirmationRequired:
        await asyncio.sleep(0)
        return await aheld(pay, 5)

    named = sayso.run("order-1", on_behalf_of="ada")
    decorated: dict[str, Callable[[], Any]] = {
        "async": named(inner), "plain": named(lambda: asyncio.run(inner())), "twice": named(named(inner)),
    }  # fmt: skip
    for kind, function in decorated.items():
        waiting = function() if kind == "plain" else asyncio.run(function())
        request = sayso.Review().get(waiting.confirmation_id)
        assert (request.run_id, str(request.on_behalf_of)) == ("order-1", "ada"), kind
        with pytest.raises(errors.OwnRequestError):
            sayso.Review().approve(request.id, by="ada")


def test_a_function_whose_body_runs_after_its_call_is_not_decorated_with_a_run() -> None:
    def one() -> Iterator[int]:
        yield 1

    async def aone() -> AsyncIterator[int]:
        yield 1

    async def later() -> None: ...

    for function in [one, aone, contextmanager(one), asynccontextmanager(aone)]:
        with pytest.raises(errors.ConfigError, match=r"write `with sayso.run\(...\):` around the loop"):
            sayso.run("order-1")(function)
    for lazy in [lambda: later(), lambda: one(), lambda: aone()]:  # noqa: PLW0108  that are none themselves
        with pytest.raises(TypeError, match="outside of its run"):
            sayso.run("order-1")(lazy)()


def test_a_run_that_is_left_in_another_context_says_so() -> None:
    entered, left = contextvars.copy_context(), contextvars.copy_context()
    block = sayso.run("order-1")
    entered.run(block.__enter__)
    with pytest.raises(errors.ConfigError, match=r"'order-1' was left in another context .* `async def`"):
        left.run(block.__exit__, None, None, None)


def test_a_coroutine_or_a_generator_in_a_run_may_be_closed_in_another_context() -> None:
    async def work() -> None:
        with sayso.run("order-1"):
            await asyncio.sleep(0)

    def numbers() -> Iterator[int]:
        with sayso.run("order-2"):
            yield 1

    lazy: Any
    for lazy in (work(), numbers()):
        contextvars.copy_context().run(lazy.send, None)
        contextvars.copy_context().run(lazy.close)
    cancelled = work()
    contextvars.copy_context().run(cancelled.send, None)
    with pytest.raises(asyncio.CancelledError):
        contextvars.copy_context().run(cancelled.throw, asyncio.CancelledError())
    assert run_id() not in {"order-1", "order-2"}


def run_id() -> str:
    return scope.current().run_id


@contextmanager
def in_run(order: str) -> Iterator[str]:
    with sayso.run(order):
        yield order


@contextmanager
def on_a_stack(order: str) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(in_run(order))
        yield


@pytest.mark.parametrize("opened", [sayso.run, in_run, on_a_stack], ids=["run", "context manager", "stack"])
def test_a_generator_does_not_go_on_in_the_run_of_another(delete: Callable[..., str], opened: Any) -> None:
    def work(order: str) -> Iterator[str]:
        with opened(order):
            for path in ("/a", "/b"):
                yield held(delete, path).confirmation_id

    one, other = work("order-1"), work("order-2")
    asked = [next(one), next(other)]
    assert [sayso.Review().get(request_id).run_id for request_id in asked] == ["order-1", "order-2"]
    with pytest.raises(errors.ConfigError, match=r"work goes on in the run 'order-2', .* around the loop"):
        next(one)
    assert sayso.Review().get(next(other)).run_id == "order-2"
    assert list(other) == []
    assert is_random(run_id())


def test_neither_does_an_async_generator_nor_one_in_a_run_of_its_consumer(adelete: Callable[..., Any]) -> None:
    async def work(order: str) -> AsyncIterator[str]:
        with sayso.run(order):
            while True:
                yield (await aheld(adelete, "/a")).confirmation_id

    async def main() -> None:
        one, other = work("order-1"), work("order-2")
        await anext(one)
        with sayso.run("of the consumer"), pytest.raises(errors.ConfigError, match="in the run 'of the consumer'"):
            await anext(one)
        await anext(other)
        assert run_id() == "order-2"
        await other.aclose()
        assert is_random(run_id())

    asyncio.run(main())


def test_nor_does_it_open_a_run_inside_of_another_ones() -> None:
    def work(order: str) -> Iterator[None]:
        with sayso.run(order):
            yield
            with sayso.run("inside"):
                yield

    one, other = work("order-1"), work("order-2")
    next(one), next(other)
    with pytest.raises(errors.ConfigError, match=r"work goes on in the run 'order-2'"):
        next(one)
    assert run_id() == "order-2"
    other.close()  # and not by a collection within another test


def test_runs_that_generators_leave_in_another_order_say_so_and_are_left() -> None:
    def work(order: str) -> Iterator[str]:
        with sayso.run(order):
            yield order

    one, other = work("order-1"), work("order-2")
    assert [next(one), next(other)] == ["order-1", "order-2"]
    with pytest.raises(errors.ConfigError, match=r"'order-1' was left before 'order-2', which was opened later"):
        next(one)
    assert run_id() == "order-2"
    assert list(other) == []
    assert is_random(run_id())
    one, other = work("order-1"), work("order-2")
    next(one), next(other)
    one.close()  # as when nobody consumes it any more
    other.close()
    assert is_random(run_id())


def test_a_run_that_a_fixture_or_a_context_manager_opens_is_its_users() -> None:
    @asynccontextmanager
    async def in_run_async(name: str) -> AsyncIterator[None]:
        with sayso.run(name), in_run(f"{name}, inside"):
            yield
            assert run_id() == f"{name}, inside"

    def work() -> Iterator[str]:
        with sayso.run("generator"):
            yield run_id()
            with in_run("order-1"):
                yield run_id()  # suspended with both
                yield run_id()
            yield run_id()

    async def main() -> list[str]:
        async with in_run_async("async"):
            return [run_id(), *work(), run_id()]

    with in_run("one"), in_run("two"):
        assert run_id() == "two"
        assert asyncio.run(main()) == [
            "async, inside", "generator", "order-1", "order-1", "generator", "async, inside",
        ]  # fmt: skip
        assert run_id() == "two"
    assert is_random(run_id())


def test_only_a_run_nobody_named_is_random() -> None:
    with sayso.run() as run_id:
        assert is_random(run_id)
    for name in ("run_nightly", "run_01h455vb4pex5vsknk084sn02q"):  # the second one is a TypeID
        assert not is_random(name)


def test_a_context_in_which_one_task_follows_the_other_remembers_the_last_64(
    adelete: Callable[..., Any], disk: Disk
) -> None:
    async def look() -> int:
        return len(get_confirmation_context())

    async def ask() -> str:
        return (await aheld(adelete, "/a")).confirmation_id

    with asyncio.Runner() as runner:
        first = runner.run(ask())
        assert runner.run(ask()) == first
        assert [runner.run(look()) for _ in range(70)] == [1] * 63 + [0] * 7
        assert runner.run(ask()) != first
