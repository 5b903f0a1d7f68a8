"""What ends a wait but a decision: its run was left, or nobody waits any more for the thread that it stands in.

Real threads and loops, no timed assertions. The invariant: a call that nobody waits for does not start, whatever is
decided later; its request is withdrawn, or pending in a run with a name.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import anyio
import anyio.to_thread
import pytest

import sayso
from sayso import errors
from sayso.config import requester
from sayso.confirmation import get_confirmation_context
from sayso.gates import dialog, wait
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from sayso.testing import sample_call
from tests.support.acting import Disk, held, waiting_in

PATIENCE = 30
Remove = Callable[[str], str]


@pytest.fixture(autouse=True)
def only_events_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is at the terminal, and no look that is taken now and then ends a wait."""
    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: False)
    monkeypatch.setattr(wait, "_LOOK_AGAIN", 3600.0)
    monkeypatch.setattr(Store, "look_again", 3600.0)


@pytest.fixture
def ends() -> list[BaseException]:
    """What the calls raised in their threads."""
    return []


@pytest.fixture
def remove(disk: Disk, ends: list[BaseException]) -> Remove:
    @sayso.gate
    def remove_file(path: str) -> str:
        return disk.delete(path)

    def noting(path: str) -> str:
        try:
            return remove_file(path)
        except BaseException as error:
            ends.append(error)
            raise

    return noting


@pytest.fixture
def aremove(disk: Disk) -> Callable[[str], Coroutine[Any, Any, str]]:
    @sayso.gate
    async def remove_file(path: str) -> str:
        return disk.delete(path)

    return remove_file


def assert_withdrawn(store: Store, request: Request, disk: Disk, why: str) -> None:
    after, last = store.get(request.id), store.journal(request_id=request.id)[-1]
    assert (after.state, last.event, last.channel) == (State.CANCELLED, "withdrawn", "program")
    assert why in last.detail
    assert store.count(Filter(states=frozenset({State.PENDING}))) == 0
    with pytest.raises(errors.AlreadyDecidedError):
        sayso.Review().approve(request.id, by="ada")
    assert disk.deleted == []


class Workers:
    """Threads that stand in the run of whoever hands out the work."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4)
        self.calls: list[Future[Any]] = []

    def does(self, work: Callable[..., Any], *args: Any) -> None:
        self.calls.append(self._pool.submit(contextvars.copy_context().run, work, *args))

    def end(self) -> list[BaseException | None]:
        found = [call.exception(PATIENCE) for call in self.calls]
        self._pool.shutdown()
        return found


@contextmanager
def workers() -> Generator[Workers]:
    mine = Workers()
    yield mine
    mine.end()


# -- a run that is left ----------------------------------------------------------------------------------------------


def by_its_end() -> None:
    """Leave the run by its end."""


def by_an_error() -> None:
    raise KeyError("broken")


def by_ctrl_c() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("leave", [by_its_end, by_an_error, by_ctrl_c], ids=["end", "error", "ctrl-c"])
def test_leaving_a_run_ends_every_wait_inside_of_it(
    store: Store, remove: Remove, disk: Disk, leave: Callable[[], None]
) -> None:
    requests: list[Request] = []
    with workers() as threads:
        with suppress(KeyError, KeyboardInterrupt), sayso.run():
            threads.does(remove, "/a")
            threads.does(remove, "/b")
            threads.does(sayso.ask, "Go on?")
            requests += waiting_in(store, 3)
            leave()
        raised = threads.end()
    assert {type(error) for error in raised} == {sayso.ConfirmationCancelled}
    assert "did not run: its run was left while it waited" in str(raised[0])
    for request in requests:
        assert_withdrawn(store, request, disk, "its run was left while it waited")


def test_leaving_a_run_while_a_start_is_refused_starts_nothing_later(
    store: Store, remove: Remove, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call has begun when its run is left, and then goes back to waiting: its approval was taken back meanwhile."""
    is_starting, is_left, start = threading.Event(), threading.Event(), store.start

    def taken_back(request_id: str, token: str, **options: Any) -> Request:
        store.withdraw(request_id, requester())
        is_starting.set()
        assert is_left.wait(PATIENCE)
        return start(request_id, token, **options)

    monkeypatch.setattr(store, "start", taken_back)
    with workers() as threads:
        with sayso.run():
            threads.does(remove, "/a")
            (request,) = waiting_in(store)
            sayso.Review().approve(request.id, by="ada")
            assert is_starting.wait(PATIENCE)
        is_left.set()
        (raised,) = threads.end()
    assert isinstance(raised, sayso.ConfirmationCancelled)
    assert "its run was left while it waited" in str(raised)
    assert sayso.Review().count(state="pending") == 0
    assert disk.deleted == []


def test_leaving_a_named_run_ends_its_waits_and_leaves_the_requests_to_the_next_process(
    store: Store, remove: Remove, disk: Disk
) -> None:
    with workers() as threads:
        with sayso.run("order-1"):
            threads.does(remove, "/a")
            (request,) = waiting_in(store)
        assert isinstance(threads.end()[0], sayso.ConfirmationCancelled)
    assert store.get(request.id).state is State.PENDING
    sayso.Review().approve(request.id, by="ada")
    assert disk.deleted == []
    with sayso.run("order-1"):
        assert remove("/a") == "Deleted /a"
    assert disk.deleted == ["/a"]


def test_leaving_a_run_ends_the_waits_of_the_runs_inside_of_it(store: Store, remove: Remove, disk: Disk) -> None:
    def inner() -> None:
        with sayso.run():
            remove("/a")

    with workers() as threads:
        with sayso.run("order-1"):
            threads.does(inner)
            (request,) = waiting_in(store)
        assert isinstance(threads.end()[0], sayso.ConfirmationCancelled)
    assert_withdrawn(store, request, disk, "its run was left")


def test_leaving_a_run_inside_of_another_leaves_the_others_waits_alone(
    store: Store, remove: Remove, disk: Disk
) -> None:
    with workers() as threads, sayso.run("outer"):
        threads.does(remove, "/a")
        (request,) = waiting_in(store)
        with sayso.run("inner"):
            pass
        sayso.Review().approve(request.id, by="ada")
        assert threads.end() == [None]
    assert disk.deleted == ["/a"]


def test_a_task_that_outlives_its_run_does_not_go_on_waiting(
    store: Store, aremove: Callable[[str], Coroutine[Any, Any, str]], disk: Disk
) -> None:
    async def main() -> Request:
        with sayso.run():
            call = asyncio.create_task(aremove("/a"))
            (request,) = await asyncio.to_thread(waiting_in, store)
        with pytest.raises(sayso.ConfirmationCancelled, match="its run was left"):
            await call
        return request

    assert_withdrawn(store, asyncio.run(main()), disk, "its run was left")


def test_a_call_that_begins_after_its_run_was_left_asks_nobody_for_long_and_does_not_run(
    store: Store, remove: Remove, disk: Disk
) -> None:
    with sayso.run():
        context = contextvars.copy_context()
    with pytest.raises(sayso.ConfirmationCancelled):
        context.run(remove, "/a")
    assert store.count(Filter(states=frozenset({State.PENDING}))) == 0


def test_an_approved_call_does_not_start_in_a_run_that_was_left(store: Store, disk: Disk) -> None:
    @sayso.gate(wait="raise")
    def remove(path: str) -> str:
        return disk.delete(path)

    with sayso.run("order-1"):
        sayso.Review().approve(held(remove, "/a").confirmation_id, by="ada")
        context = contextvars.copy_context()
    with pytest.raises(sayso.ConfirmationCancelled):
        context.run(remove, "/a")
    assert disk.deleted == []
    with sayso.run("order-1"):
        assert remove("/a") == "Deleted /a"


def test_a_wait_ends_without_a_start_although_the_withdrawal_cannot_be_written(
    store: Store, remove: Remove, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: object, **options: object) -> Request:
        raise errors.StoreError("the disk is full")

    with workers() as threads:
        with sayso.run():
            threads.does(remove, "/a")
            (request,) = waiting_in(store)
            monkeypatch.setattr(store, "withdraw", gone)
        assert isinstance(threads.end()[0], sayso.ConfirmationCancelled)
    assert f"{request.id} could not be withdrawn (the disk is full); no call waits for it any more" in caplog.text
    sayso.Review().approve(request.id, by="ada")
    assert disk.deleted == []


def test_two_calls_that_wait_for_one_request_withdraw_it_when_the_last_one_goes(
    store: Store, aremove: Callable[[str], Coroutine[Any, Any, str]], disk: Disk
) -> None:
    async def main() -> Request:
        with sayso.run():
            calls = [asyncio.create_task(aremove("/a")) for _ in range(2)]
            (request,) = await asyncio.to_thread(waiting_in, store)
            await until(lambda: standing(request) == 2)
            calls[0].cancel()
            await asyncio.wait(calls[:1])
            assert store.get(request.id).state is State.PENDING
            calls[1].cancel()
            await asyncio.wait(calls)
        return request

    assert_withdrawn(store, asyncio.run(main()), disk, "the program stopped waiting (CancelledError)")


def standing(request: Request) -> int:
    from sayso.gates import wait

    return wait._waits[request.id]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110  nobody tells when a thread has ended
            await asyncio.sleep(0.001)


# -- a call that is broken off while its request is stored ------------------------------------------------------------

ASKS = {
    "call": (lambda aremove: aremove("/a"), lambda remove: remove("/a")),
    "question": (lambda _: sayso.aio.ask("Go on?"), lambda _: sayso.ask("Go on?")),
    "call that raises": (
        lambda _: sayso.gate(areturn, wait="raise")("/a"),
        lambda _: sayso.gate(returned, wait="raise")("/a"),
    ),
}


def returned(path: str) -> str:
    return path


async def areturn(path: str) -> str:
    return path


def assert_none_is_left(store: Store, disk: Disk, cause: str) -> None:
    (request,) = store.list(Filter(states=frozenset(State))).requests
    assert_withdrawn(store, request, disk, f"the program stopped waiting ({cause})")


@pytest.mark.parametrize("what", ASKS)
@pytest.mark.parametrize("around", [nullcontext, sayso.run], ids=["no run", "run without a name"])
def test_ctrl_c_while_a_request_is_stored_withdraws_it(
    store: Store, remove: Remove, disk: Disk, monkeypatch: pytest.MonkeyPatch, what: str, around: Callable[[], Any]
) -> None:
    opened = store.ask

    def interrupted(request: Request, *saved: Any) -> Request:
        opened(request, *saved)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt), around():
        ASKS[what][1](remove)
    assert_none_is_left(store, disk, "KeyboardInterrupt")


class Storing:
    """A store's `open` that stops in its thread, before it stores or after, until the test lets it go on."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool) -> None:
        self._opened, self._is_stored = store.ask, is_stored
        self.begun, self.go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(store, "ask", self._open)
        monkeypatch.setattr(store, "blocks", True)  # so that one in memory has a thread as well

    def _open(self, request: Request, *saved: Any) -> Request:
        found = self._opened(request, *saved) if self._is_stored else None
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        return found or self._opened(request, *saved)


@pytest.mark.parametrize("is_stored", [False, True], ids=["before it is stored", "after"])
@pytest.mark.parametrize("what", ASKS)
@pytest.mark.parametrize("around", [nullcontext, sayso.run], ids=["no run", "run without a name"])
def test_a_task_that_is_cancelled_while_its_request_is_stored_withdraws_it(
    store: Store, aremove: Callable[[str], Coroutine[Any, Any, str]], disk: Disk, monkeypatch: pytest.MonkeyPatch,
    what: str, around: Callable[[], Any], is_stored: bool,
) -> None:  # fmt: skip
    storing = Storing(store, monkeypatch, is_stored=is_stored)

    async def work() -> None:
        with around():
            await ASKS[what][0](aremove)

    async def main() -> None:
        task = asyncio.create_task(work())
        assert await asyncio.to_thread(storing.begun.wait, PATIENCE)
        task.cancel()
        asyncio.get_running_loop().call_soon(storing.go_on.set)
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
    assert_none_is_left(store, disk, "CancelledError")


@pytest.mark.parametrize("is_stored", [False, True], ids=["before it is stored", "after"])
def test_a_coroutine_that_is_closed_while_its_request_is_stored_withdraws_it(
    store: Store, aremove: Callable[[str], Coroutine[Any, Any, str]], disk: Disk, monkeypatch: pytest.MonkeyPatch,
    is_stored: bool,
) -> None:  # fmt: skip
    storing = Storing(store, monkeypatch, is_stored=is_stored)

    async def main() -> None:
        call = aremove("/a")
        while not storing.begun.is_set():
            step = call.send(None)  # the next verb is under way
            await until(lambda step=step: step.done() or storing.begun.is_set())
        call.close()
        storing.go_on.set()
        await until(lambda: store.count(Filter(states=frozenset({State.CANCELLED}))) == 1)

    asyncio.run(main())
    assert_none_is_left(store, disk, "GeneratorExit")


def test_a_task_that_is_cancelled_while_its_request_is_stored_in_a_named_run_leaves_it_pending(
    store: Store, aremove: Callable[[str], Coroutine[Any, Any, str]], disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing = Storing(store, monkeypatch, is_stored=True)

    async def work() -> str:
        with sayso.run("order-1"):
            return await aremove("/a")

    async def main() -> str:
        task = asyncio.create_task(work())
        assert await asyncio.to_thread(storing.begun.wait, PATIENCE)
        task.cancel()
        storing.go_on.set()
        await asyncio.wait([task])
        (request,) = store.list(Filter(states=frozenset(State))).requests
        await sayso.aio.Review().approve(request.id, by="ada")
        assert disk.deleted == []
        return await work()

    assert asyncio.run(main()) == "Deleted /a"


# -- a task that is cancelled while a thread waits for it --------------------------------------------------------------


async def to_thread(work: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(work, *args)


async def to_thread_with_a_run(work: Callable[..., Any], *args: Any) -> Any:
    get_confirmation_context()  # the task has a run of its own, which its thread stands in
    return await asyncio.to_thread(work, *args)


async def in_executor(work: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work, *args)


async def in_copied_context(work: Callable[..., Any], *args: Any) -> Any:
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(None, lambda: run(work, *args))


async def with_anyio(work: Callable[..., Any], *args: Any) -> Any:
    return await anyio.to_thread.run_sync(work, *args)


async def with_anyio_abandoned(work: Callable[..., Any], *args: Any) -> Any:
    return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=True)


@pytest.mark.parametrize(
    "hand_over",
    [to_thread, to_thread_with_a_run, in_executor, in_copied_context, with_anyio, with_anyio_abandoned],
    ids=["to_thread", "task with a run", "run_in_executor", "copied context", "anyio", "anyio abandoned"],
)
def test_a_wait_in_a_thread_ends_when_the_task_that_waits_for_it_is_cancelled(
    store: Store, remove: Remove, disk: Disk, ends: list[BaseException], hand_over: Callable[..., Any]
) -> None:
    async def main() -> Request:
        call = asyncio.create_task(hand_over(remove, "/a"))
        (request,) = await asyncio.to_thread(waiting_in, store)
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        await until(lambda: bool(ends))
        return request

    request = asyncio.run(main())
    assert isinstance(ends[0], sayso.ConfirmationCancelled)
    assert_withdrawn(store, request, disk, "the task that it was made for has ended")


def test_a_wait_in_a_thread_of_anyio_ends_when_its_scope_is_cancelled(
    store: Store, remove: Remove, disk: Disk, ends: list[BaseException]
) -> None:
    requests: list[Request] = []

    async def call() -> None:
        with suppress(sayso.ConfirmationCancelled):  # anyio waits for its thread, and then for nothing
            await anyio.to_thread.run_sync(remove, "/a")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            requests.extend(await anyio.to_thread.run_sync(waiting_in, store))
            group.cancel_scope.cancel()

    anyio.run(main)
    (request,) = requests
    assert isinstance(ends[0], sayso.ConfirmationCancelled)
    assert_withdrawn(store, request, disk, "the task that it was made for has ended")


def test_a_thread_whose_task_was_cancelled_in_a_named_run_leaves_the_request_pending(
    store: Store, remove: Remove, disk: Disk, ends: list[BaseException]
) -> None:
    async def conversation() -> None:
        with sayso.run("order-1"):
            await asyncio.to_thread(remove, "/a")

    async def main() -> Request:
        call = asyncio.create_task(conversation())
        (request,) = await asyncio.to_thread(waiting_in, store)
        call.cancel()
        await asyncio.wait([call])
        return request

    request = asyncio.run(main())
    assert isinstance(ends[0], sayso.ConfirmationCancelled)
    assert store.get(request.id).state is State.PENDING
    sayso.Review().approve(request.id, by="ada")
    assert disk.deleted == []


def test_a_child_task_goes_on_waiting_when_its_parent_has_ended(
    store: Store, aremove: Callable[[str], Coroutine[Any, Any, str]], disk: Disk
) -> None:
    async def parent() -> asyncio.Task[str]:
        get_confirmation_context()
        return asyncio.create_task(aremove("/a"))

    async def main() -> str:
        child = await asyncio.create_task(parent())
        (request,) = await asyncio.to_thread(waiting_in, store)
        await sayso.aio.Review().approve(request.id, by="ada")
        return await child

    assert asyncio.run(main()) == "Deleted /a"


def test_a_call_whose_effect_is_taken_leaves_no_approval_behind_that_holds_the_effect(store: Store) -> None:
    """Nobody comes back to it in a run without a name, and it would keep the effect from all others for a day."""
    is_paying, go_on, ran = threading.Event(), threading.Event(), list[str]()

    @sayso.gate(effect="pay:{to}")
    def pay(to: str) -> None:
        ran.append(to)
        if len(ran) == 1:
            is_paying.set()
            assert go_on.wait(PATIENCE)
            raise ValueError("no account")

    def approve() -> Request:
        (request,) = waiting_in(store)
        return sayso.Review().approve(request.id, by="ada")

    with workers() as threads:
        threads.does(pay, "bob")
        approve()
        assert is_paying.wait(PATIENCE)
        with workers() as others:
            others.does(pay, "bob")
            refused = approve()
            (raised,) = others.end()
        assert isinstance(raised, errors.EffectTakenError)
        assert store.get(refused.id).state is State.CANCELLED
        go_on.set()
        threads.end()
    with workers() as threads:
        threads.does(pay, "bob")
        approve()
        assert threads.end() == [None]
    assert ran == ["bob", "bob"]


def test_a_call_that_finds_its_approval_at_once_leaves_none_behind_either(store: Store) -> None:
    first = store.ask(sample_call("run_1", effect="pay:bob"))
    sayso.Review().approve(first.id, by="ada")
    store.start(first.id, "t")

    @sayso.gate(effect="pay:{to}", when=lambda: sayso.allow(budget="count() <= 9 per 1h"))
    def pay(to: str) -> None: ...

    with pytest.raises(errors.EffectTakenError):
        pay("bob")
    assert [request.state for request in store.list(Filter()).requests] == [State.RUNNING, State.CANCELLED]


# -- between the decision and the start --------------------------------------------------------------------------------


async def cancelled(
    call: Callable[[], None], store: Store, is_there: threading.Event, go_on: threading.Event, ends: list[BaseException]
) -> Request:
    """Approve a call in a thread, and cancel its task where it stands until `go_on`; return its request."""
    task = asyncio.create_task(asyncio.to_thread(call))
    (request,) = await asyncio.to_thread(waiting_in, store)
    sayso.Review().approve(request.id, by="ada")
    assert await asyncio.to_thread(is_there.wait, PATIENCE)
    task.cancel()
    await asyncio.wait([task])
    go_on.set()
    await until(lambda: bool(ends))
    return request


def test_a_call_does_not_start_when_its_task_is_cancelled_after_the_decision(
    store: Store, disk: Disk, ends: list[BaseException]
) -> None:
    """The rule is asked again when the decision is there: it stands in the window before the start."""
    asked, is_late, go_on = list[str](), threading.Event(), threading.Event()

    def rule(path: str) -> bool:
        asked.append(path)
        if len(asked) > 1:
            is_late.set()
            assert go_on.wait(PATIENCE)
        return True

    @sayso.gate(when=rule)
    def remove(path: str) -> str:
        return disk.delete(path)

    def call() -> None:
        try:
            remove("/a")
        except sayso.ConfirmationCancelled as error:
            ends.append(error)

    request = asyncio.run(cancelled(call, store, is_late, go_on, ends))
    assert store.get(request.id).state is State.CANCELLED
    assert disk.deleted == []


def test_a_wait_in_an_event_loop_of_a_pools_thread_ends_when_the_task_of_the_thread_is_cancelled(
    store: Store, disk: Disk, ends: list[BaseException]
) -> None:
    @sayso.gate
    async def remove(path: str) -> str:
        return disk.delete(path)

    is_awaited = threading.Event()

    def call() -> None:
        assert is_awaited.wait(PATIENCE)
        try:
            asyncio.run(remove("/a"))
        except sayso.ConfirmationCancelled as error:
            ends.append(error)

    async def work() -> Request:
        task = asyncio.create_task(asyncio.to_thread(call))
        await asyncio.sleep(0)
        is_awaited.set()
        (request,) = await asyncio.to_thread(waiting_in, store)
        task.cancel()
        await until(lambda: bool(ends))
        return request

    assert store.get(asyncio.run(work()).id).state is State.CANCELLED
    assert disk.deleted == []


@pytest.mark.parametrize(("run", "state"), [(None, State.CANCELLED), ("order-1", State.APPROVED)])
def test_a_call_is_not_started_by_hand_when_its_task_is_cancelled_after_the_decision(
    store: Store, ends: list[BaseException], run: str | None, state: State
) -> None:
    is_late, go_on, got = threading.Event(), threading.Event(), list[Any]()

    def call() -> None:
        held = sayso.hold("remove", {"path": "/a"}, **({} if run is None else {"run": run}))
        held.wait()
        is_late.set()
        assert go_on.wait(PATIENCE)
        try:
            got.append(held.start())
        except sayso.ConfirmationCancelled as error:
            ends.append(error)

    request = asyncio.run(cancelled(call, store, is_late, go_on, ends))
    assert (store.get(request.id).state, got) == (state, [])


@pytest.mark.parametrize("retries", [0, 1])
def test_a_call_does_not_run_when_its_task_is_cancelled_while_the_store_records_the_start(
    store: Store, disk: Disk, ends: list[BaseException], monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """A database may be locked for a while, and a server may be slow."""
    is_starting, go_on, start = threading.Event(), threading.Event(), store.start

    @sayso.gate(retries=retries)
    def remove(path: str) -> str:
        return disk.delete(path)

    def call() -> None:
        try:
            remove("/a")
        except sayso.ConfirmationCancelled as error:
            ends.append(error)

    def slow(request_id: str, token: str, **options: Any) -> Request:
        is_starting.set()
        assert go_on.wait(PATIENCE)
        return start(request_id, token, **options)

    monkeypatch.setattr(store, "start", slow)

    request = asyncio.run(cancelled(call, store, is_starting, go_on, ends))
    assert isinstance(ends[0], sayso.ConfirmationCancelled)
    assert disk.deleted == []
    ended = store.get(request.id)
    # Its approval is used up, or withdrawn where it would last: nobody comes back to it.
    assert ended.state is (State.CANCELLED if retries else State.FAILED)
    assert ended.execution is not None
    assert ended.execution.error == "not run: ConfirmationCancelled"


def test_an_async_call_does_not_start_when_its_task_is_cancelled_after_the_decision(store: Store, disk: Disk) -> None:
    asked = list[str]()

    async def main() -> Request:
        is_late = asyncio.Event()

        async def rule(path: str) -> bool:
            asked.append(path)
            if len(asked) > 1:
                is_late.set()
                await asyncio.sleep(3600)
            return True

        @sayso.gate(when=rule)
        async def remove(path: str) -> str:
            return disk.delete(path)

        task = asyncio.create_task(remove("/a"))
        (request,) = await asyncio.to_thread(waiting_in, store)
        await sayso.aio.Review().approve(request.id, by="ada")
        await is_late.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return request

    request = asyncio.run(main())
    assert store.get(request.id).state is State.CANCELLED
    assert disk.deleted == []


# -- the runs of sayso -------------------------------------------------------------------------------------------------


async def cancel(run: Any, store: Store) -> Request:
    task = asyncio.ensure_future(run.collect())
    (request,) = await asyncio.to_thread(waiting_in, store)
    task.cancel()
    await asyncio.wait([task])
    return request


async def close(run: Any, store: Store) -> Request:
    events = run.__aiter__()
    await anext(events)
    (request,) = await asyncio.to_thread(waiting_in, store)
    await events.aclose()
    return request


@pytest.mark.parametrize("leave", [cancel, close], ids=["cancelled", "closed"])
@pytest.mark.parametrize("kind", ["tool", "workflow"])
def test_a_run_that_is_left_ends_what_its_handlers_wait_for(
    store: Store, remove: Remove, disk: Disk, ends: list[BaseException], leave: Callable[..., Any], kind: str
) -> None:
    @sayso.tool
    def clean(path: str) -> str:
        return remove(path)

    runnable = clean if kind == "tool" else sayso.Workflow(name="tidy").step(clean, path="/a")
    request = asyncio.run(leave(runnable(path="/a") if kind == "tool" else runnable(), store))
    assert isinstance(ends[0], sayso.ConfirmationCancelled)
    assert_withdrawn(store, request, disk, "")
