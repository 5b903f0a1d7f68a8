"""How an approved call ends, and what its record then says: done, failed or unknown, and whether it may start again.

That a killed process leaves `unknown` is shown with real kills elsewhere; here the call ends by itself, is broken off,
or the store fails around it. The invariant: one approval has at most one effect, unless the gate says that it may have
more.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.integration.acting import aheld, approved, held


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Custom(BaseException):
    pass


class Strange:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("do not look at me")


FAILURES: list[BaseException] = [
    ValueError("bad"), StopIteration(5), TimeoutError(), OSError(28, "No space left"), AssertionError(), Odd(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ValueError("bad \udcff name"), RecursionError(), MemoryError(),
    ExceptionGroup("many", [ValueError("one")]), sayso.ConfirmationRequired("mine"), errors.StoreBusyError("mine"),
]  # fmt: skip
BREAKS: list[BaseException] = [
    KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), Custom("x"),
    BaseExceptionGroup("many", [KeyboardInterrupt()]),
]  # fmt: skip
ENDS = [(error, State.FAILED) for error in FAILURES] + [(error, State.UNKNOWN) for error in BREAKS]


def told(error: BaseException) -> str:
    return type(error).__name__


def state_of(request_id: str) -> State:
    return sayso.Review().get(request_id).state


def flaky(ran: list[int], ends: list[Any], **options: Any) -> Callable[[int], Any]:
    """A gated call that ends as told, one after another, and counts its effects."""

    @sayso.gate(wait="raise", **options)
    def act(amount: int) -> Any:
        ran.append(amount)
        end = ends.pop(0) if ends else "done"
        if isinstance(end, BaseException):
            raise end
        return end

    return act


def aflaky(ran: list[int], ends: list[Any], **options: Any) -> Callable[[int], Any]:
    @sayso.gate(wait="raise", **options)
    async def act(amount: int) -> Any:
        ran.append(amount)
        await asyncio.sleep(0)
        end = ends.pop(0) if ends else "done"
        if isinstance(end, BaseException):
            raise end
        return end

    return act


def unknown(act: Callable[[int], Any]) -> str:
    """Make a call whose outcome nobody knows, and return the id of its request."""
    request_id = approved(act, 1)
    with pytest.raises(KeyboardInterrupt):
        act(1)
    assert state_of(request_id) is State.UNKNOWN
    return request_id


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


def assert_spent(act: Callable[[int], Any], request_id: str, state: State) -> None:
    if state is State.FAILED:
        assert held(act, 1).confirmation_id != request_id
        return
    for _ in range(2):
        with pytest.raises(errors.OutcomeUnknownError, match=request_id) as caught:
            act(1)
        assert caught.value.request_id == request_id


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


def test_coroutine_behind_a_plain_function_is_not_called_done(store: Store) -> None:
    ran: list[int] = []

    async def later() -> None:
        ran.append(1)

    @sayso.gate(wait="raise")
    def act() -> Any:
        return later()

    request_id = approved(act)
    with pytest.raises(TypeError, match="gate the async one"):
        act()
    assert state_of(request_id) is State.FAILED
    assert ran == []


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
            await asyncio.wait_for(await sleeper.start(), 0.01)
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


# -- again -----------------------------------------------------------------------------------------------------------


def test_failed_call_may_start_as_often_as_the_gate_says(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [ValueError("1"), ValueError("2"), ValueError("3")], retries=2)
    request_id = approved(act, 1)
    for words, state in (("1", State.APPROVED), ("2", State.APPROVED), ("3", State.FAILED)):
        with pytest.raises(ValueError, match=words):
            act(1)
        assert state_of(request_id) is state
    assert held(act, 1).confirmation_id != request_id
    assert ran == [1, 1, 1]
    execution = store.get(request_id).execution
    assert execution is not None
    assert execution.attempt == 3


def test_call_that_succeeds_has_used_its_retries(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [ValueError("1"), "paid"], retries=5)
    request_id = approved(act, 1)
    with pytest.raises(ValueError, match="1"):
        act(1)
    assert act(1) == "paid"
    assert held(act, 1).confirmation_id != request_id
    assert ran == [1, 1]


def test_retries_do_not_reach_over_an_unknown_outcome(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], retries=5)
    assert_spent(act, unknown(act), State.UNKNOWN)
    assert ran == [1]


def test_retries_end_with_the_approval(store: Store, clock: Clock) -> None:
    ran: list[int] = []
    act = flaky(ran, [ValueError("1")], retries=5, approval_expires="1h")
    request_id = approved(act, 1)
    with pytest.raises(ValueError, match="1"):
        act(1)
    clock.tick(hours=1)
    assert held(act, 1).confirmation_id != request_id
    assert ran == [1]


def test_idempotent_call_runs_again_after_an_unknown_outcome_under_the_same_id(store: Store) -> None:
    keys: list[str] = []
    ends: list[BaseException] = [KeyboardInterrupt(), ValueError("down"), SystemExit()]

    @sayso.gate(wait="raise", idempotent=True)
    def act(amount: int) -> str:
        request = sayso.current_request()
        assert request is not None
        keys.append(request.id)
        if ends:
            raise ends.pop(0)
        return "paid"

    request_id = approved(act, 1)
    for kind in (KeyboardInterrupt, ValueError, SystemExit):
        with pytest.raises(kind):
            act(1)
    assert act(1) == "paid"
    assert keys == [request_id] * 4
    assert state_of(request_id) is State.DONE


def test_idempotent_call_is_not_run_again_after_its_approval_ended(store: Store, clock: Clock) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], idempotent=True, approval_expires="1h")
    unknown(act)
    clock.tick(hours=1)
    with pytest.raises(errors.OutcomeUnknownError):
        act(1)
    assert ran == [1]


@pytest.mark.parametrize("happened", [True, False])
def test_person_resolves_an_unknown_outcome_and_the_next_call_asks_anew(store: Store, happened: bool) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()])
    request_id = unknown(act)
    request = sayso.Review().resolve(request_id, happened=happened, by="ada", comment="looked at the bank")
    assert request.state is (State.DONE if happened else State.FAILED)
    assert held(act, 1).confirmation_id != request_id
    assert ran == [1]


def test_call_resolved_as_not_happened_may_run_again_where_the_gate_allows_it(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], retries=1)
    request_id = unknown(act)
    assert sayso.Review().resolve(request_id, happened=False, by="ada").state is State.APPROVED
    assert act(1) == "done"
    assert state_of(request_id) is State.DONE
    assert ran == [1, 1]


# -- verify= ---------------------------------------------------------------------------------------------------------


def test_hook_that_says_it_happened_ends_the_call_without_running_it(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], verify=lambda: True)
    request_id = unknown(act)
    assert act(1) is None
    assert state_of(request_id) is State.DONE
    assert ran == [1]
    assert sayso.get_confirmation_context() == {}
    execution = store.get(request_id).execution
    assert execution is not None
    assert execution.resolved_by is not None
    assert "verify=" in execution.resolved_by.subject


def test_hook_that_knows_the_result_gives_it_to_the_caller(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], verify=lambda amount: sayso.Happened({"paid": amount}))
    unknown(act)
    assert act(1) == {"paid": 1}
    assert ran == [1]


def test_hook_that_says_it_did_not_happen_makes_the_call_ask_anew(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], verify=lambda: False)
    request_id = unknown(act)
    assert held(act, 1).confirmation_id != request_id
    assert state_of(request_id) is State.FAILED
    assert ran == [1]


@pytest.mark.parametrize("options", [{"retries": 1}, {"idempotent": True}])
def test_hook_that_says_it_did_not_happen_lets_a_repeatable_call_run(store: Store, options: dict[str, Any]) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], verify=lambda: False, **options)
    unknown(act)
    assert act(1) == "done"
    assert ran == [1, 1]


def test_hook_that_cannot_tell_leaves_it_unknown(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], verify=lambda: None)
    request_id = unknown(act)
    assert_spent(act, request_id, State.UNKNOWN)
    assert ran == [1]


@pytest.mark.parametrize("answer", [ValueError("down"), KeyError("x"), 1, "yes", {}, [], object()], ids=repr)
def test_hook_that_fails_runs_nothing_and_decides_nothing(store: Store, answer: Any) -> None:
    def look() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], verify=look, idempotent=True)
    request_id = unknown(act)
    with pytest.raises(errors.PolicyError, match="verify= of act"):
        act(1)
    assert state_of(request_id) is State.UNKNOWN
    assert ran == [1]


def test_hook_is_asked_about_the_call_as_it_ran(store: Store) -> None:
    seen: list[Any] = []

    def look(amount: int, **rest: Any) -> bool:
        request = sayso.current_request()
        seen.append((amount, rest, request.id if request is not None else None))
        return True

    act = flaky([], [KeyboardInterrupt()], verify=look)
    pause = held(act, 1)
    sayso.Review().approve(pause.confirmation_id, by="ada", changes={"amount": 7})
    with pytest.raises(KeyboardInterrupt):
        act(1)
    act(1)
    assert seen == [(7, {}, pause.confirmation_id)]
    assert sayso.current_request() is None


def test_async_hook_is_awaited(store: Store) -> None:
    async def look(amount: int) -> sayso.Happened:
        await asyncio.sleep(0)
        return sayso.Happened(amount)

    act = aflaky([], [SystemExit()], verify=look)

    async def main() -> Any:
        pause = await aheld(act, 1)
        sayso.Review().approve(pause.confirmation_id, by="ada")
        try:
            await act(1)
        except SystemExit:
            return await act(1)

    assert asyncio.run(main()) == 1


# -- current_request -------------------------------------------------------------------------------------------------


def test_running_call_knows_its_request_and_nobody_else_does(store: Store) -> None:
    seen: list[Request | None] = []

    def rule() -> bool:
        seen.append(sayso.current_request())
        return True

    @sayso.gate(wait="raise", when=rule)
    def inner() -> None:
        seen.append(sayso.current_request())

    @sayso.gate(wait="raise")
    def outer() -> None:
        seen.append(sayso.current_request())
        approved(inner)
        inner()
        seen.append(sayso.current_request())
        raise ValueError("over")

    assert sayso.current_request() is None
    outer_id = approved(outer)
    with pytest.raises(ValueError, match="over"):
        outer()
    assert sayso.current_request() is None
    first, asked, ready, inside, last = seen
    assert first is not None
    assert inside is not None
    assert (first.id, first.state) == (outer_id, State.RUNNING)
    assert inside.id != outer_id
    assert last == asked == ready == first


def test_tasks_of_a_running_call_know_its_request(store: Store) -> None:
    @sayso.gate(wait="raise")
    async def act() -> set[str | None]:
        def mine() -> str | None:
            request = sayso.current_request()
            return None if request is None else request.id

        async def child() -> str | None:
            return mine()

        return {mine(), await asyncio.create_task(child()), await asyncio.to_thread(mine)}

    async def main() -> None:
        pause = await aheld(act)
        sayso.Review().approve(pause.confirmation_id, by="ada")
        assert await act() == {pause.confirmation_id}
        assert sayso.current_request() is None

    asyncio.run(main())


# -- the store fails -------------------------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, store: Store, verb: str, *, after: bool = False) -> None:
    """Let a verb of the store fail, before or after it has done its work."""
    real = getattr(store, verb)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if after:
            real(*args, **kwargs)
        raise errors.StoreFullError("no room left")

    monkeypatch.setattr(store, verb, fail)


def test_outcome_that_cannot_be_recorded_is_told_with_the_result(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    act = flaky(ran, ["paid"])
    request_id = approved(act, 1)
    failing(monkeypatch, store, "finish")
    with pytest.raises(errors.OutcomeNotRecordedError, match="no room left") as caught:
        act(1)
    assert (caught.value.request_id, caught.value.result) == (request_id, "paid")
    monkeypatch.undo()
    assert store.get(request_id).state is State.RUNNING
    with pytest.raises(errors.AlreadyStartedError):
        act(1)
    assert ran == [1]


def test_error_of_a_call_is_raised_with_a_note_when_it_cannot_be_recorded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = flaky([], [ValueError("mine")])
    request_id = approved(act, 1)
    failing(monkeypatch, store, "finish")
    with pytest.raises(ValueError, match="mine") as caught:
        act(1)
    assert any(request_id in note and "no room left" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("verb", ["find", "open"])
def test_call_that_cannot_be_asked_does_not_run(store: Store, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    ran: list[int] = []
    failing(monkeypatch, store, verb)
    with pytest.raises(errors.StoreFullError):
        flaky(ran, [])(1)
    with pytest.raises(errors.StoreFullError):
        asyncio.run(aflaky(ran, [])(1))
    assert ran == []


@pytest.mark.parametrize("after", [False, True])
def test_call_whose_start_cannot_be_recorded_does_not_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    ran: list[int] = []
    act = flaky(ran, [])
    request_id = approved(act, 1)
    failing(monkeypatch, store, "start", after=after)
    with pytest.raises(errors.StoreFullError):
        act(1)
    monkeypatch.undo()
    assert ran == []
    # Where the start was recorded after all, the record says that nothing ran.
    assert store.get(request_id).state is (State.FAILED if after else State.APPROVED)


def test_denial_that_cannot_be_recorded_is_still_no_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    failing(monkeypatch, store, "note")
    with pytest.raises(errors.StoreFullError):
        flaky(ran, [], when=lambda: sayso.deny("no"))(1)
    assert ran == []


@pytest.mark.parametrize("address", ["sqlite:////proc/nowhere/sayso.db", "sqlite:///."])
def test_store_that_cannot_be_opened_runs_nothing(address: str) -> None:
    ran: list[int] = []
    with pytest.raises(errors.StoreError):
        flaky(ran, [], store=address)(1)
    assert ran == []


# -- too late --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("milliseconds", "runs"), [(-1, True), (0, False), (1, False)])
def test_approval_ends_at_its_very_instant(store: Store, clock: Clock, milliseconds: int, runs: bool) -> None:
    ran: list[int] = []
    act = flaky(ran, [], approval_expires="1h")
    request_id = approved(act, 1)
    clock.tick(hours=1, milliseconds=milliseconds)
    if runs:
        assert act(1) == "done"
    else:
        assert held(act, 1).confirmation_id != request_id
        assert store.get(request_id).state is State.EXPIRED
    assert len(ran) == runs


def before_start(monkeypatch: pytest.MonkeyPatch, store: Store, happens: Callable[[], Any]) -> None:
    """Let something happen between the check that found an approval and the start."""
    start = store.start

    def late(*args: Any) -> Request:
        happens()
        return start(*args)

    monkeypatch.setattr(store, "start", late)


def test_approval_that_ends_between_check_and_start_runs_nothing(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    act = flaky(ran, [], approval_expires="1h")
    request_id = approved(act, 1)
    before_start(monkeypatch, store, lambda: clock.tick(hours=1))
    assert held(act, 1).confirmation_id != request_id
    assert store.get(request_id).state is State.EXPIRED
    assert ran == []


def test_cancellation_between_check_and_start_runs_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    act = flaky(ran, [])
    request_id = approved(act, 1)
    before_start(monkeypatch, store, lambda: sayso.Review().cancel(request_id, "stop", by="ada"))
    with pytest.raises(sayso.ConfirmationCancelled, match="stop"):
        act(1)
    assert ran == []


def test_start_by_somebody_else_between_check_and_start_runs_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    act = flaky(ran, [])
    request_id = approved(act, 1)
    start = store.start
    before_start(monkeypatch, store, lambda: start(request_id, "somebody else's"))
    with pytest.raises(errors.AlreadyStartedError, match="not started again") as caught:
        act(1)
    assert (caught.value.request_id, caught.value.state) == (request_id, "running")
    assert ran == []


def test_clock_that_goes_back_revives_nothing(store: Store, clock: Clock) -> None:
    ran: list[int] = []
    act = flaky(ran, [], approval_expires="1h")
    request_id = approved(act, 1)
    clock.tick(hours=1)
    assert state_of(request_id) is State.EXPIRED
    clock.tick(hours=-1)
    assert held(act, 1).confirmation_id != request_id
    assert state_of(request_id) is State.EXPIRED
    assert ran == []
    assert store.count(Filter(states=frozenset({State.PENDING}))) == 1
