"""What may happen after a call has failed, or nobody knows how it ended: retries, idempotent calls, `verify=`.

And `current_request`, by whose id a service knows that it is asked again. The invariant: an unknown outcome is not
tried again, unless the gate says that the call may be, or somebody found out; and never while the call is seen to run.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

import pytest

import sayso
from sayso import aio, audit, effects, errors
from sayso.gates import execution
from sayso.gates.options import Gate
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.stores import workers
from sayso.stores.base import Store
from sayso.view import full_text
from sayso.view.as_json import request_document
from tests.conftest import Clock
from tests.support.acting import aflaky, aheld, approved, assert_spent, flaky, held, state_of, unknown
from tests.support.ids import stable
from tests.support.running import awaited, ids, reason, started

needs_posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX process ids")


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


def test_a_later_start_that_failed_does_not_tell_how_the_first_one_ended(store: Store, clock: Clock) -> None:
    """Only a person or `verify=` knows that, and until then nothing else has the effect."""
    ran: list[int] = []
    ends = [TimeoutError(), ConnectionRefusedError(), sayso.NotExecuted("the bank is closed")]
    act = flaky(ran, ends, idempotent=True, effect="refund:{amount}", approval_expires="1h")
    with sayso.run("r-1"):
        request_id = approved(act, 1)
        for start, kind in enumerate(map(type, list(ends)), 1):
            with pytest.raises(kind) as raised:
                act(1)
            assert state_of(request_id) is State.UNKNOWN
            command = f"sayso resolve {request_id} --happened" + (f" --start {start}`" if start > 1 else "`")
            assert command in raised.value.__notes__[-1]
    assert "  an earlier start may have taken effect" in list(full_text.outcome_rows(store.get(request_id)))
    assert request_document(store.get(request_id))["execution"]["unresolved"] is True
    clock.tick(hours=2)
    with sayso.run("r-2"):
        other = approved(act, 1)
        with pytest.raises(errors.EffectTakenError, match=request_id):
            act(1)
        sayso.Review().resolve(request_id, happened=False, by="ada", comment="the bank has nothing", start=3)
        assert state_of(request_id) is State.FAILED  # its approval is over
        assert act(1) == "done"
    assert state_of(other) is State.DONE
    assert ran == [1, 1, 1, 1]


def test_a_tool_that_is_idempotent_keeps_its_effect_when_a_later_start_failed(store: Store) -> None:
    ran, ends = list[int](), [TimeoutError(), ConnectionRefusedError()]

    def refund(amount: int) -> None:
        ran.append(amount)
        raise ends.pop(0)

    tool = sayso.Tool(refund, requires_approval=True, idempotent=True, effect="refund:{amount}")
    paused = started(tool, amount=1)
    (request_id,) = ids(paused)
    sayso.Review().approve(request_id, by="ada")
    for _ in range(2):
        output = tool(run_id=paused.run_id).run()
        assert reason(output)[1] == "outcome_unknown"
        assert state_of(request_id) is State.UNKNOWN
    (other,) = ids(paused := started(tool, amount=1))
    sayso.Review().approve(other, by="ada")
    assert "EffectTakenError" in str(tool(run_id=paused.run_id).run().error)
    assert ran == [1, 1]


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


# -- NotExecuted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner_is_held", [False, True], ids=["allowed", "held"])
def test_that_a_call_inside_did_nothing_says_nothing_about_the_call_around_it(
    store: Store, inner_is_held: bool
) -> None:
    paid: list[int] = []

    @sayso.gate(wait="raise", when=lambda: inner_is_held)
    def tell(amount: int) -> None:
        raise sayso.NotExecuted("the customer has no address")

    @sayso.gate(wait="raise", when=lambda: sayso.allow(budget="sum(args.amount) <= 100 per 24h"))
    def pay(amount: int) -> None:
        paid.append(amount)
        tell(amount)

    with sayso.run("r-1"):
        if inner_is_held:
            approved(tell, 100)
        with pytest.raises(sayso.NotExecuted):
            pay(100)
        with pytest.raises(sayso.ConfirmationRequired):  # what it spent is not given back
            pay(100)
    assert paid == [100]


def test_a_timeout_that_a_call_inside_did_nothing_about_is_still_open(store: Store) -> None:
    @sayso.gate(wait="raise", when=lambda: False)
    def tell() -> None:
        raise sayso.NotExecuted("the customer has no address")

    @sayso.gate(wait="raise")
    def pay(amount: int) -> None:
        try:
            raise TimeoutError("no answer")  # noqa: TRY301  as the bank's client does
        except TimeoutError:
            tell()

    request_id = approved(pay, 1)
    with pytest.raises(sayso.NotExecuted):
        pay(1)
    assert state_of(request_id) is State.UNKNOWN


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


@pytest.mark.parametrize(
    ("answer", "value"),
    [(sayso.Happened({"receipt": "A-17"}), {"receipt": "A-17"}), (True, None)],
    ids=["known", "true"],
)
def test_what_a_hook_found_is_the_result_of_the_key(store: Store, answer: Any, value: Any) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], key="{amount}", verify=lambda: answer)
    with sayso.run("order-1"):
        request_id = unknown(act)
        assert [act(1), act(1), act(1)] == [value] * 3
    execution = store.get(request_id).execution
    assert execution is not None
    assert execution.result == (None if value is None else '{"result":{"receipt":"A-17"}}')
    assert ran == [1]
    assert audit.verify(store).broken == ()


def test_a_value_of_a_hook_that_cannot_be_kept_is_told_so(store: Store) -> None:
    act = flaky([], [KeyboardInterrupt()], key="{amount}", verify=lambda: sayso.Happened(object()))
    with sayso.run("order-1"):
        unknown(act)
        act(1)
        with pytest.raises(errors.ValueNotKeptError, match="over 1 MB or no canonical form: object"):
            act(1)


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


@pytest.mark.parametrize("said", [True, False])
def test_what_a_hook_found_out_of_one_start_says_nothing_of_a_later_one(store: Store, said: bool) -> None:
    ran, asked = list[int](), list[str]()

    def look() -> bool | None:
        asked.append("of the first" if len(asked) < 2 else "of the second")
        if len(asked) == 1:  # while this answer is on its way, another caller is told, starts, and is cut off
            with pytest.raises(SystemExit):
                act(1)
            return said
        return False if len(asked) == 2 else None

    act = flaky(ran, [KeyboardInterrupt(), SystemExit()], verify=look, retries=2)
    request_id = unknown(act)
    with pytest.raises(errors.OutcomeUnknownError):
        act(1)
    assert asked == ["of the first", "of the first", "of the second"]
    assert (ran, state_of(request_id)) == ([1, 1], State.UNKNOWN)


def test_hook_that_cannot_tell_leaves_it_unknown(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [KeyboardInterrupt()], verify=lambda: None)
    request_id = unknown(act)
    assert_spent(act, request_id, State.UNKNOWN)
    assert ran == [1]


@pytest.mark.parametrize("answer", [ValueError("down"), KeyError("x"), 1, "yes", {}, [], object()], ids=stable)
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


# -- a call that goes on, although its record says unknown ------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"retries": 1}, {"idempotent": True}])
def test_nobody_is_asked_about_a_call_that_still_runs_in_this_process(
    store: Store, clock: Clock, options: dict[str, Any]
) -> None:
    inside, go_on, ran, asked, ends = threading.Event(), threading.Event(), list[int](), list[int](), list[Any]()

    def look(amount: int) -> bool:
        asked.append(amount)
        return False

    @sayso.gate(wait="raise", verify=look, **options)
    def act(amount: int) -> str:
        ran.append(amount)
        inside.set()
        assert len(ran) > 1 or go_on.wait(30)
        return "done"

    def first() -> None:
        with sayso.run("order-1"):
            ends.append(act(1))

    with sayso.run("order-1"):
        request_id = approved(act, 1)
        thread = threading.Thread(target=first)
        thread.start()
        try:
            assert inside.wait(30)
            clock.tick(hours=1)
            for _ in range(2):
                with pytest.raises(errors.OutcomeUnknownError, match="It is still running in this process"):
                    act(1)
                for keeper in list(workers._keepers.values()):  # as the keeper's thread does later
                    keeper._renew(dict(keeper.held), 0.0)
            assert state_of(request_id) is State.UNKNOWN
        finally:
            go_on.set()
            thread.join(30)
    assert (ran, asked, ends, state_of(request_id)) == ([1], [], ["done"], State.DONE)
    assert workers.running_at(request_id, None) is None


class Cancelled:
    """A sync function in a thread whose task is cancelled, or its coroutine closed, while it runs.

    `asked` counts calls of its `verify=`.
    """

    def __init__(self, end: Any, how: str = "cancelled") -> None:
        self.inside, self.go_on, self.end, self.how = threading.Event(), threading.Event(), end, how
        self.ran, self.asked = list[int](), list[int]()

    def look(self, amount: int) -> bool:
        self.asked.append(amount)
        return False

    def act(self, amount: int) -> str:
        self.ran.append(amount)
        self.inside.set()
        assert self.go_on.wait(30)
        if isinstance(self.end, Exception):
            raise self.end
        return str(self.end)

    async def in_turn(self, call: Callable[[], Awaitable[Any]]) -> str:
        """Make a call, approve it, cancel it inside, and make it again while it goes on; return its request."""
        pause = await aheld(call)
        sayso.Review().approve(pause.confirmation_id, by="ada")
        try:
            await self.end_early(call)
            assert state_of(pause.confirmation_id) is State.UNKNOWN
            with pytest.raises(errors.OutcomeUnknownError):
                await call()
            assert not has_ended(pause.confirmation_id)  # other processes go by this, and by whether this one is alive
        finally:
            self.go_on.set()
        return pause.confirmation_id

    async def end_early(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call, and cancel it, or close its coroutine, inside."""
        if self.how == "closed":
            await self._close(call)
            return
        task = asyncio.ensure_future(call())
        assert await asyncio.to_thread(self.inside.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def _close(self, call: Callable[[], Awaitable[Any]]) -> None:
        coroutine, context = cast("Coroutine[Any, Any, Any]", call()), contextvars.copy_context()
        while not self.inside.is_set():
            step = context.run(coroutine.send, None)  # the next verb, or the call, is under way
            while not (step.done() or self.inside.is_set()):  # noqa: ASYNC110  nobody tells when a thread has ended
                await asyncio.sleep(0)
        contextvars.Context().run(coroutine.close)  # as that of a loop that was stopped and is collected


@pytest.mark.parametrize(("end", "state"), [("done", State.DONE), (ValueError("down"), State.FAILED)])
@pytest.mark.parametrize("way", ["tool", "hold"])
@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_thread_whose_task_was_cancelled_is_waited_for_and_says_how_its_call_ended(
    store: Store, how: str, way: str, end: Any, state: State
) -> None:
    it = Cancelled(end, how)

    async def held_once() -> Any:
        async with await aio.hold("act", {"amount": 1}, run="order-1", key="1") as handle:
            return await handle.once(lambda arguments: it.act(**arguments))

    async def main() -> str:
        tool = sayso.Tool(it.act, name="act", requires_approval=True, verify=it.look)
        with sayso.run("order-1"):
            return await it.in_turn((lambda: tool.acall(amount=1)) if way == "tool" else held_once)

    request_id = asyncio.run(main())  # it ends when its threads have
    assert (it.ran, it.asked, state_of(request_id)) == ([1], [], state)
    assert workers.running_at(request_id, None) is None


def has_ended(request_id: str) -> bool:
    execution = sayso.Review().get(request_id).execution
    assert execution is not None
    return execution.finished_at is not None


@pytest.mark.parametrize("options", [{}, {"retries": 1}, {"idempotent": True}])
@pytest.mark.parametrize("is_cancelled", [False, True])
@awaited
async def test_nobody_is_asked_about_a_call_whose_tasks_go_on(
    store: Store, is_cancelled: bool, options: dict[str, Any]
) -> None:
    is_paying, go_on, paid, asked = asyncio.Event(), asyncio.Event(), list[int](), list[int]()

    async def pay(amount: int) -> None:
        if not is_paying.is_set():
            is_paying.set()
            await go_on.wait()
        paid.append(amount)

    async def fail() -> None:
        await is_paying.wait()
        raise ValueError("no such address")

    def look(amount: int) -> bool:
        asked.append(amount)
        return False

    @sayso.gate(wait="raise", verify=look, **options)
    async def order(amount: int) -> None:
        if is_cancelled:
            await asyncio.shield(pay(amount))
        else:
            await asyncio.gather(pay(amount), fail())

    request_id = (await aheld(order, 1)).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    mine = {asyncio.current_task()}
    ordering = asyncio.ensure_future(order(1))
    await is_paying.wait()
    if is_cancelled:
        ordering.cancel()
    with pytest.raises(asyncio.CancelledError if is_cancelled else ValueError):
        await ordering
    with pytest.raises(errors.OutcomeUnknownError, match="It is still running in this process"):
        await order(1)
    assert not has_ended(request_id)  # other processes go by this, and by whether this one is alive
    go_on.set()
    await asyncio.wait(asyncio.all_tasks() - mine)
    while workers.running_at(request_id, None) is not None:  # noqa: ASYNC110  nobody tells when its end is recorded
        await asyncio.sleep(0)
    assert has_ended(request_id)
    assert (paid, asked, state_of(request_id)) == ([1], [], State.UNKNOWN)


@pytest.mark.parametrize("options", [{"retries": 1}, {"idempotent": True}])
@awaited
async def test_nobody_is_asked_about_a_call_whose_thread_goes_on(store: Store, options: dict[str, Any]) -> None:
    is_paying, go_on, paid, asked = threading.Event(), threading.Event(), list[int](), list[int]()

    def pay(amount: int) -> None:
        is_paying.set()
        assert go_on.wait(60)
        paid.append(amount)

    def look(amount: int) -> bool:
        asked.append(amount)
        return False

    @sayso.gate(wait="raise", verify=look, **options)
    async def order(amount: int) -> None:
        paying = asyncio.ensure_future(asyncio.to_thread(pay, amount))
        await asyncio.to_thread(is_paying.wait)
        paying.cancel()  # as `asyncio.timeout` does
        raise TimeoutError("the bank is slow")

    request_id = (await aheld(order, 1)).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    with pytest.raises(TimeoutError) as caught:
        await order(1)
    try:
        assert caught.value.__notes__[0].startswith("sayso: a ")
        await asyncio.sleep(0)  # the cancelled task ends, and its thread goes on
        with pytest.raises(errors.OutcomeUnknownError, match="It is still running in this process"):
            await order(1)
        assert not has_ended(request_id)
    finally:
        go_on.set()
    while workers.running_at(request_id, None) is not None:  # noqa: ASYNC110  nobody tells when its end is recorded
        await asyncio.sleep(0)
    assert has_ended(request_id)
    assert (paid, asked, state_of(request_id)) == ([1], [], State.UNKNOWN)


@pytest.mark.parametrize("leaves", ["a task", "a thread"])
@awaited
async def test_nobody_is_asked_about_a_call_whose_task_has_left_another_one_or_a_thread(
    store: Store, leaves: str
) -> None:
    may_begin, is_paying, go_on, paid = asyncio.Event(), threading.Event(), threading.Event(), list[int]()
    left: list[asyncio.Future[None]] = []

    def pay() -> None:
        is_paying.set()
        assert go_on.wait(60)
        paid.append(1)

    async def prepare() -> None:
        await may_begin.wait()
        left.append(asyncio.ensure_future(asyncio.to_thread(pay)))
        await asyncio.to_thread(is_paying.wait)
        if leaves == "a thread":
            left[-1].cancel()

    @sayso.gate(wait="raise", idempotent=True)
    async def order() -> None:
        left.append(asyncio.ensure_future(prepare()))
        raise ValueError("no such address")

    request_id = (await aheld(order)).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    with pytest.raises(ValueError, match="no such address"):
        await order()
    may_begin.set()
    await left[0]
    try:
        for _ in range(20):  # its end would be recorded in another thread
            assert not await asyncio.to_thread(has_ended, request_id)
            with pytest.raises(errors.OutcomeUnknownError, match="It is still running in this process"):
                await order()
    finally:
        go_on.set()
    while workers.running_at(request_id, None) is not None:  # noqa: ASYNC110  nobody tells when its end is recorded
        await asyncio.sleep(0)
    assert has_ended(request_id)
    assert (paid, state_of(request_id)) == ([1], State.UNKNOWN)


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "has ended"])
@pytest.mark.parametrize(("option", "earlier"), [("verify", 1), ("effect", 0)])
@awaited
async def test_a_call_that_was_started_while_a_hook_was_asked_is_not_started_beside_it(
    store: Store, option: str, earlier: int, *, goes_on: bool
) -> None:
    asked, answer, go_on, ran, left = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[int](), list[Any]()
    slowly = list[bool]()

    async def look() -> str | None:
        if slowly:
            slowly.clear()
            asked.set()
            await answer.wait()
        return "order:1" if option == "effect" else None

    options: dict[str, Any] = {option: look}

    @sayso.gate(wait="raise", idempotent=True, **options)
    async def order() -> None:
        ran.append(1)
        if goes_on and len(ran) > earlier:
            left.append(asyncio.ensure_future(go_on.wait()))
        raise TimeoutError("the bank is slow")

    request_id = (await aheld(order)).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    for _ in range(earlier):
        with pytest.raises(TimeoutError):
            await order()
    slowly.append(True)
    slow = asyncio.ensure_future(order())
    await asked.wait()
    with pytest.raises(TimeoutError):
        await order()
    answer.set()
    try:
        with pytest.raises(errors.OutcomeUnknownError if goes_on else TimeoutError):
            await slow
    finally:
        go_on.set()
    await asyncio.gather(*left)
    assert (len(ran), state_of(request_id)) == (earlier + (1 if goes_on else 2), State.UNKNOWN)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_thread_inside_of_another_call_does_not_say_how_that_one_ended(store: Store, how: str) -> None:
    it = Cancelled("done", how)
    tool = sayso.Tool(it.act, name="act", requires_approval=True)

    @sayso.gate(wait="raise")
    async def both() -> str:
        return f"both {await tool.acall(amount=1)}"

    async def main() -> tuple[str, str]:
        with sayso.run("order-1"):
            inner, outer = [await aheld(call) for call in (lambda: tool.acall(amount=1), both)]
            for pause in (inner, outer):
                sayso.Review().approve(pause.confirmation_id, by="ada")
            try:
                await it.end_early(both)
            finally:
                it.go_on.set()
            return inner.confirmation_id, outer.confirmation_id

    inner, outer = asyncio.run(main())
    assert (state_of(inner), state_of(outer)) == (State.DONE, State.UNKNOWN)


def test_a_thread_of_a_free_tool_inside_of_a_call_that_is_closed_does_not_say_how_that_one_ended(store: Store) -> None:
    it = Cancelled("done", "closed")
    free = sayso.Tool(it.act, name="act")

    @sayso.gate(wait="raise")
    async def both() -> str:
        return f"both {await free(amount=1).collect()}"

    async def main() -> str:
        with sayso.run("order-1"):
            pause = await aheld(both)
            sayso.Review().approve(pause.confirmation_id, by="ada")
            try:
                await it.end_early(both)
            finally:
                it.go_on.set()
            return pause.confirmation_id

    assert state_of(asyncio.run(main())) is State.UNKNOWN


def test_a_thread_that_is_cancelled_before_it_has_begun_runs_nothing() -> None:
    ran: list[int] = []
    running = effects.InThread(effects.UserCall(ran.append, (1,), {}))
    assert running.left() is None
    running()
    assert ran == []


def test_a_thread_that_has_ended_before_anybody_asks_says_so_at_once() -> None:
    running, ends = effects.InThread(effects.UserCall(str, (1,), {})), list[effects.Attempt]()
    assert running() == effects.Attempt("1", None)
    assert running.left() is running
    running.when_ended(ends.append)
    assert ends == [effects.Attempt("1", None)]


def test_a_thread_that_ended_when_its_task_was_cancelled_leaves_the_next_start_alone(store: Store) -> None:
    def act(amount: int) -> None:
        raise ConnectionRefusedError

    options = Gate(act, retries=1)
    with sayso.run("order-1"):
        request = store.get(approved(sayso.gate(act, wait="raise", retries=1), 1))
    started = effects.drive(execution.begin(options, store, request))
    left = effects.InThread(effects.UserCall(act, (1,), {}))
    left()
    leaving = execution._leave(options, store, started, left)
    settle, following = next(leaving), list[execution.Started]()
    with suppress(errors.StartRefusedError):  # another task, meanwhile
        following.append(effects.drive(execution.begin(options, store, request)))
    settle()
    with suppress(StopIteration):
        leaving.send(None)
    assert state_of(request.id) is (State.RUNNING if following else State.APPROVED)


def test_an_end_that_a_thread_cannot_record_is_told(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Cancelled("done")

    async def main() -> str:
        tool = sayso.Tool(it.act, name="act", requires_approval=True)
        with sayso.run("order-1"):
            return await it.in_turn(lambda: tool.acall(amount=1))

    def away(*_: object) -> None:
        raise errors.StoreUnavailableError("away")

    monkeypatch.setattr(type(store), "finish", away)
    request_id = asyncio.run(main())
    assert state_of(request_id) is State.UNKNOWN
    assert f"the call of {request_id} has ended in its thread" in caplog.text


@needs_posix
@pytest.mark.parametrize(
    ("changed", "finished", "is_asked"),
    [
        ({}, False, False),
        ({"host": "renamed"}, False, False),
        ({}, True, True),
        ({"boot": "far"}, False, True),
        ({"program": "another"}, False, True),
        ({"host": "renamed", "program": "another"}, False, True),
    ],
    ids=["alive", "renamed", "has said unknown itself", "on another machine", "gone", "renamed and gone"],
)
def test_a_hook_is_asked_unless_the_worker_is_seen_to_live(
    store: Store, clock: Clock, changed: dict[str, str], finished: bool, is_asked: bool
) -> None:
    asked: list[int] = []

    def look(amount: int) -> None:
        asked.append(amount)

    act = flaky([], [], verify=look)
    request_id = approved(act, 1)
    parent = workers._Worker(*workers.current().split("/"))._replace(
        pid=str(os.getppid()), started=workers._started(os.getppid()), program=workers._program(os.getppid())
    )
    store.start(request_id, "token", by="/".join(parent._replace(**changed)))
    if finished:
        store.finish(request_id, "token", Outcome("unknown"))
    clock.tick(hours=1)
    with pytest.raises(errors.OutcomeUnknownError) as refusal:
        act(1)
    assert (asked == [1]) is is_asked
    assert (f"process {os.getppid()} of this machine" in str(refusal.value)) is not is_asked
