"""Waiting where the call stands, on a machine without a terminal: the decision comes from elsewhere and wakes it.

What a person at a terminal sees is tested beside the terminal; questions are in `test_ask`. The invariant: however the
wait ends, the request is decided by a person or still pending.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

import sayso
from sayso import config, errors
from sayso.effects import drive
from sayso.gates import dialog, scope, stderr, wait
from sayso.gates.caller import Block
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import forked, held, running
from tests.support.threads import few_threads

SECONDS = 30


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[Request]:
    """Every request that somebody has begun to wait for, once its wait was announced."""
    begun: SimpleQueue[Request] = SimpleQueue()
    announce = stderr.announce

    def announce_and_tell(store: Store, request: Request) -> None:
        announce(store, request)
        begun.put(request)

    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: False)
    monkeypatch.setattr(stderr, "announce", announce_and_tell)
    # Only a wake-up ends a wait in these tests, not the look that is taken now and then.
    monkeypatch.setattr(wait, "_LOOK_AGAIN", 3600.0)
    monkeypatch.setattr(Store, "look_again", 3600.0)
    return begun


class Waiter:
    """A call that blocks in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._outcome: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._outcome.put(call())
        except Exception as error:  # noqa: BLE001  the test looks at it
            self._outcome.put(error)

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive() and self._outcome.empty()

    def outcome(self) -> Any:
        outcome = self._outcome.get(timeout=SECONDS)
        self._thread.join(SECONDS)
        return outcome


def payer(paid: list[int], **options: Any) -> Callable[[int], str]:
    @sayso.gate(**options)
    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    return pay


def apayer(paid: list[int], **options: Any) -> Callable[[int], Any]:
    @sayso.gate(**options)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    return pay


# -- decided elsewhere -----------------------------------------------------------------------------------------------


def test_blocked_call_runs_when_another_thread_approves(store: Store, announced: SimpleQueue[Request]) -> None:
    paid: list[int] = []
    waiter = Waiter(lambda: payer(paid)(10))
    request = announced.get(timeout=SECONDS)
    assert waiter.is_waiting
    assert paid == []
    sayso.Review().approve(request.id, by="ada", changes={"amount": 7})
    assert waiter.outcome() == "paid 7"
    assert paid == [7]


@pytest.mark.parametrize("make", [payer, apayer])
def test_what_was_said_of_a_call_that_waits_counts_though_its_rule_lets_it_through_by_then(
    store: Store, announced: SimpleQueue[Request], make: Callable[..., Callable[[int], Any]]
) -> None:
    def blocked(paid: list[int]) -> tuple[Waiter, Request]:
        is_night = iter([True])  # then no more: as a rule that looks at the clock, or a policy file that was changed
        pay = make(paid, when=lambda: next(is_night, False))
        call: Callable[[], Any] = lambda: asyncio.run(pay(10)) if make is apayer else pay(10)  # noqa: E731  (of `pay`)
        return Waiter(call), announced.get(timeout=SECONDS)

    paid: list[int] = []
    waiter, request = blocked(paid)
    sayso.Review().reject(request.id, by="ada")
    assert isinstance(waiter.outcome(), sayso.ConfirmationRejected)
    waiter, request = blocked(paid)
    sayso.Review().approve(request.id, by="ada", changes={"amount": 7})
    assert waiter.outcome() == "paid 7"
    assert paid == [7]
    waiter, request = blocked(paid)
    store.withdraw(request.id, request.requester, "nobody was asked in the end")
    assert waiter.outcome() == "paid 10"


@pytest.mark.parametrize(
    ("verb", "refusal"),
    [
        ("reject", sayso.ConfirmationRejected),
        ("feedback", sayso.ConfirmationFeedback),
        ("cancel", sayso.ConfirmationCancelled),
    ],
)
def test_blocked_call_is_told_the_no(
    store: Store, announced: SimpleQueue[Request], verb: str, refusal: type[Exception]
) -> None:
    paid: list[int] = []
    waiter = Waiter(lambda: payer(paid)(10))
    request = announced.get(timeout=SECONDS)
    getattr(sayso.Review(), verb)(request.id, "too much", by="ada")
    outcome = waiter.outcome()
    assert type(outcome) is refusal
    assert "too much" in str(outcome)
    assert paid == []


def test_blocked_call_waits_on_through_a_vote_and_a_claim(store: Store, announced: SimpleQueue[Request]) -> None:
    paid: list[int] = []
    waiter = Waiter(lambda: payer(paid, quorum=2)(10))
    request = announced.get(timeout=SECONDS)
    review = sayso.Review()
    review.claim(request.id, by="ada")
    review.approve(request.id, by="ada")
    assert waiter.is_waiting
    review.approve(request.id, by="bob")
    assert waiter.outcome() == "paid 10"


APPROVE = "import sys, sayso; sayso.Review(sys.argv[1]).approve(sys.argv[2], by='ada')"


def test_blocked_call_is_woken_by_another_process(file_store: Store, announced: SimpleQueue[Request]) -> None:
    waiter = Waiter(lambda: payer([])(10))
    request = announced.get(timeout=SECONDS)
    running(forked(APPROVE, file_store.url, request.id))
    assert waiter.outcome() == "paid 10"


def test_awaiting_task_is_woken_by_another_thread(store: Store, announced: SimpleQueue[Request]) -> None:
    async def main() -> str:
        call = asyncio.ensure_future(apayer([])(10))
        request = await asyncio.to_thread(announced.get, timeout=SECONDS)
        assert not call.done()
        await asyncio.to_thread(sayso.Review().approve, request.id, by="ada")
        return await call

    assert asyncio.run(main()) == "paid 10"


def test_awaiting_task_is_woken_by_another_process(file_store: Store, announced: SimpleQueue[Request]) -> None:
    async def main() -> str:
        call = asyncio.ensure_future(apayer([])(10))
        request = await asyncio.to_thread(announced.get, timeout=SECONDS)
        await asyncio.to_thread(running, forked(APPROVE, file_store.url, request.id))
        return await call

    assert asyncio.run(main()) == "paid 10"


def test_loop_goes_on_while_a_task_waits_for_a_person(store: Store, announced: SimpleQueue[Request]) -> None:
    turns: list[None] = []

    async def turn() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    async def main() -> None:
        turning = asyncio.ensure_future(turn())
        call = asyncio.ensure_future(apayer([])(10))
        request = await asyncio.to_thread(announced.get, timeout=SECONDS)
        before = len(turns)
        await asyncio.sleep(0.01)
        assert not call.done()
        assert len(turns) > before + 1
        await sayso.aio.Review().approve(request.id, by="ada")
        assert await call == "paid 10"
        turning.cancel()

    asyncio.run(main())


def test_call_that_was_decided_before_does_not_wait(store: Store, announced: SimpleQueue[Request]) -> None:
    paid: list[int] = []
    pay = payer(paid, timeout="1ms")
    sayso.Review().approve(held(pay, 10).confirmation_id, by="ada")
    assert announced.get_nowait()
    assert pay(10) == "paid 10"
    assert announced.empty()


# -- what is said ----------------------------------------------------------------------------------------------------


def test_wait_is_announced_with_the_place_to_decide(
    file_store: Store, announced: SimpleQueue[Request], capfd: pytest.CaptureFixture[str]
) -> None:
    pause = held(payer([], timeout="1ms"), 10)
    out, err = capfd.readouterr()
    assert out == ""
    assert "pay(amount=10)" in err
    assert "sayso --store" in err
    assert file_store.url in err
    words = err.split()
    named = words[words.index("approve") + 1]
    assert sayso.Review().get(named).id == pause.confirmation_id


def test_announcement_says_when_only_this_process_can_decide(
    announced: SimpleQueue[Request], capfd: pytest.CaptureFixture[str]
) -> None:
    config.configure(store="memory:")
    held(payer([], timeout="1ms"), 10)
    assert "memory" in capfd.readouterr().err


def test_closed_stderr_does_not_break_the_wait(
    store: Store, announced: SimpleQueue[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    pause = held(payer([], timeout="1ms"), 10)
    assert store.get(pause.confirmation_id).state is State.PENDING


# -- the wait ends without a decision --------------------------------------------------------------------------------


def test_after_the_timeout_the_request_still_waits(store: Store, announced: SimpleQueue[Request]) -> None:
    paid: list[int] = []
    pay = payer(paid, timeout="20ms")
    pause = held(pay, 10)
    assert store.get(pause.confirmation_id).state is State.PENDING
    assert held(pay, 10).confirmation_id == pause.confirmation_id
    sayso.Review().approve(pause.confirmation_id, by="ada")
    assert pay(10) == "paid 10"
    assert paid == [10]


def test_after_the_timeout_of_a_task_the_request_still_waits(store: Store, announced: SimpleQueue[Request]) -> None:
    pay = apayer([], timeout="20ms")

    async def main() -> str:
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            await pay(10)
        assert store.get(caught.value.confirmation_id).state is State.PENDING
        sayso.Review().approve(caught.value.confirmation_id, by="ada")
        return await pay(10)

    assert asyncio.run(main()) == "paid 10"


@pytest.mark.parametrize("run", [None, "order-1"])
def test_the_timeout_also_ends_the_wait_for_an_approval_that_can_be_undone(
    store: Store, announced: SimpleQueue[Request], clock: Clock, run: str | None
) -> None:
    paid: list[int] = []
    pay = payer(paid, timeout="20ms")
    with nullcontext() if run is None else sayso.run(run):
        pause = held(pay, 10)
        sayso.Review(by="ada", undo_within="60s").approve(pause.confirmation_id)
        again = held(pay, 10)
        assert again.confirmation_id == pause.confirmation_id
        assert "the approval of" in again.__notes__[0]
        assert again.__context__ is None  # a traceback would print it, with the frames of sayso
        assert store.get(again.confirmation_id).state is State.APPROVED
        clock.tick(seconds=60)
        assert pay(10) == "paid 10"
    assert paid == [10]


def test_the_timeout_also_ends_the_wait_of_a_task_for_an_approval_that_can_be_undone(
    store: Store, announced: SimpleQueue[Request], clock: Clock
) -> None:
    pay = apayer([], timeout="20ms")

    async def main() -> str:
        with pytest.raises(sayso.ConfirmationRequired) as pause:
            await pay(10)
        sayso.Review(by="ada", undo_within="60s").approve(pause.value.confirmation_id)
        with pytest.raises(sayso.ConfirmationRequired) as again:
            await pay(10)
        assert again.value.confirmation_id == pause.value.confirmation_id
        clock.tick(seconds=60)
        return await pay(10)

    assert asyncio.run(main()) == "paid 10"


def test_a_call_with_a_key_waits_for_the_one_that_runs_until_its_timeout(store: Store) -> None:
    request = store.ask(sample_call("run_1", key="1"))
    sayso.Review(store).approve(request.id, by="ada")
    store.start(request.id, "t")
    waiter = wait.Waiter(scope.current(), store, Block(timedelta(microseconds=1)))
    with pytest.raises(errors.AlreadyStartedError, match="is running"):
        drive(waiter.running(store.get(request.id)))


def test_nobody_in_time_is_a_no(store: Store, announced: SimpleQueue[Request], clock: Clock) -> None:
    paid: list[int] = []
    waiter = Waiter(lambda: payer(paid, expires="1h")(10))
    request = announced.get(timeout=SECONDS)
    clock.tick(hours=1)
    assert sayso.Review().get(request.id).state is State.EXPIRED
    outcome = waiter.outcome()
    assert isinstance(outcome, sayso.ConfirmationExpired)
    assert outcome.confirmation_id == request.id
    assert paid == []


def test_a_decision_reaches_its_call_although_the_hook_of_the_key_gives_another_one(
    store: Store, announced: SimpleQueue[Request]
) -> None:
    paid, keys = list[int](), iter(["first", "second"])

    def pay() -> str:
        with sayso.run("order-1"):
            return payer(paid, key=lambda amount: next(keys))(10)  # noqa: ARG005

    waiter = Waiter(pay)
    sayso.Review().approve(announced.get(timeout=SECONDS).id, by="ada")
    assert (waiter.outcome(), paid) == ("paid 10", [10])


def test_expired_request_is_asked_anew_where_the_gate_says_so(
    store: Store, announced: SimpleQueue[Request], clock: Clock
) -> None:
    paid: list[int] = []
    waiter = Waiter(lambda: payer(paid, expires="1h", on_expiry="ask")(10))
    first = announced.get(timeout=SECONDS)
    clock.tick(hours=1)
    assert sayso.Review().get(first.id).state is State.EXPIRED
    second = announced.get(timeout=SECONDS)
    assert second.id != first.id
    assert paid == []
    sayso.Review().approve(second.id, by="ada")
    assert waiter.outcome() == "paid 10"


@pytest.mark.parametrize("kind", ["call", "task", "question"])
def test_timeout_counts_from_the_first_asking_where_an_expired_request_is_asked_anew(
    store: Store, announced: SimpleQueue[Request], clock: Clock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: clock().timestamp()))
    paid: list[int] = []
    options: Any = {"expires": "1h", "timeout": "90m", "on_expiry": "ask"}
    waiter = Waiter({
        "call": lambda: payer(paid, **options)(10),
        "task": lambda: asyncio.run(apayer(paid, **options)(10)),
        "question": lambda: sayso.ask("Go on?", **options),
    }[kind])  # fmt: skip
    first = announced.get(timeout=SECONDS)
    clock.tick(hours=1)
    assert sayso.Review().get(first.id).state is State.EXPIRED
    second = announced.get(timeout=SECONDS)
    clock.tick(minutes=30)
    sayso.Review().claim(second.id, by="ada")  # wakes it
    outcome = waiter.outcome()
    assert isinstance(outcome, sayso.ConfirmationRequired)
    assert outcome.confirmation_id == second.id
    assert store.get(second.id).state is State.PENDING
    assert paid == []


def test_expiry_of_an_awaiting_task_is_a_no_too(store: Store, announced: SimpleQueue[Request], clock: Clock) -> None:
    async def main() -> None:
        call = asyncio.ensure_future(apayer([], expires="1h")(10))
        request = await asyncio.to_thread(announced.get, timeout=SECONDS)
        clock.tick(hours=1)
        sayso.Review().get(request.id)
        with pytest.raises(sayso.ConfirmationExpired):
            await call

    asyncio.run(main())


async def cancelled(call: Coroutine[Any, Any, str], announced: SimpleQueue[Request]) -> Request:
    task = asyncio.ensure_future(call)
    request = await asyncio.to_thread(announced.get, timeout=SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return request


def test_cancelled_task_withdraws_its_request(store: Store, announced: SimpleQueue[Request]) -> None:
    paid: list[int] = []
    request = asyncio.run(cancelled(apayer(paid)(10), announced))
    assert store.get(request.id).state is State.CANCELLED
    last = store.journal(request_id=request.id)[-1]
    assert last.event == "withdrawn"
    assert "the program stopped waiting (CancelledError)" in last.detail
    with pytest.raises(errors.AlreadyDecidedError):
        sayso.Review().approve(request.id, by="ada")
    assert paid == []


def test_cancelled_task_of_a_named_run_leaves_the_request_pending(
    store: Store, announced: SimpleQueue[Request]
) -> None:
    paid: list[int] = []
    with sayso.run("order-1"):
        request = asyncio.run(cancelled(apayer(paid)(10), announced))
    assert store.get(request.id).state is State.PENDING
    sayso.Review().approve(request.id, by="ada")
    assert paid == []


@pytest.mark.parametrize("ticks", range(6))
def test_cancellation_that_comes_with_a_wake_up_is_not_lost(
    store: Store, announced: SimpleQueue[Request], ticks: int
) -> None:
    async def main() -> None:
        call = asyncio.ensure_future(apayer([])(10))
        request = await asyncio.to_thread(announced.get, timeout=SECONDS)
        for _ in range(10):
            await asyncio.sleep(0.001)
        sayso.Review().claim(request.id, by="ada")
        for _ in range(ticks):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call], timeout=SECONDS)
        assert call.cancelled()

    asyncio.run(main())


def test_a_wait_that_stops_an_event_loop_warns_once_and_names_the_way_out(
    store: Store, announced: SimpleQueue[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "_warned", {})
    pay = payer([], timeout="1ms")

    async def main() -> None:
        for _ in range(2):
            held(pay, 5)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        asyncio.run(main())
    (warning,) = heard
    assert (warning.category, Path(warning.filename).name) == (RuntimeWarning, "acting.py")
    assert "pay() waits for a person" in str(warning.message)
    assert "`await asyncio.to_thread(pay, ...)`" in str(warning.message)
    held(pay, 5)  # no loop
    asyncio.run(asyncio.to_thread(held, pay, 5))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    asyncio.run(main())


def test_tasks_at_a_terminal_take_one_thread_and_hear_what_is_decided_elsewhere_before_their_turn(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: SimpleQueue[str] = SimpleQueue()
    is_talking = threading.Lock()

    def converse(store: Store, request: Request, is_over: Callable[[], bool], _: object) -> Request:
        assert is_talking.acquire(blocking=False), "two dialogs at once"
        asked.put(request.id)
        for _ in range(SECONDS * 100):
            if is_over():
                break
            threading.Event().wait(0.01)
        is_talking.release()
        return store.get(request.id)

    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: True)
    monkeypatch.setattr(dialog, "_load", lambda: converse)
    monkeypatch.setattr(Store, "look_again", 3600.0)
    paid: list[int] = []
    pay = apayer(paid)

    async def main() -> list[str]:
        with sayso.run("batch"), few_threads() as begun:
            calls = [asyncio.ensure_future(pay(amount)) for amount in range(10)]
            async with asyncio.timeout(SECONDS):
                first = await asyncio.to_thread(asked.get, timeout=SECONDS)
                while len(waiting := file_store.list(Filter()).requests) < len(calls):  # noqa: ASYNC110  no event tells
                    await asyncio.sleep(0.01)
                other = next(one for one in waiting if one.id != first and one.call.arguments["amount"])
                await sayso.aio.Review().approve(other.id, by="ada")
                assert await calls[other.call.arguments["amount"]] == f"paid {paid[0]}"
                assert await asyncio.to_thread(sum, [1, 2]) == 3
                calls[0].cancel()  # before or in its turn: the others come to theirs
                for request in waiting:
                    if request.id != other.id and request.call.arguments["amount"]:
                        await sayso.aio.Review().approve(request.id, by="ada")
                assert len(await asyncio.gather(*calls[1:])) == 9
        return begun

    assert len([name for name in asyncio.run(main()) if name.startswith("sayso-dialog")]) <= 1
    assert sorted(paid) == list(range(1, 10))


@pytest.mark.slow
def test_a_thousand_waiting_tasks_take_no_thread_each(
    store: Store, announced: SimpleQueue[Request], capfd: pytest.CaptureFixture[str]
) -> None:
    paid: list[int] = []
    pay = apayer(paid)

    async def main() -> list[str]:
        with sayso.run("thousand"), few_threads() as begun:
            calls = [asyncio.ensure_future(pay(amount)) for amount in range(1000)]
            waiting = [await asyncio.to_thread(announced.get, timeout=SECONDS) for _ in calls]
            for request in waiting[::100]:
                await sayso.aio.Review().approve(request.id, by="ada")
            await asyncio.gather(*(calls[request.call.arguments["amount"]] for request in waiting[::100]))
            assert sum(call.done() for call in calls) == 10
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        return begun

    assert len(asyncio.run(main())) < 20
    assert store.count(Filter(states=frozenset({State.PENDING}))) == 990
    assert len(paid) == 10
