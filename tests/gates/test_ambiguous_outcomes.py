"""A call whose error leaves it open whether it took effect ends as `unknown`, and nothing tries it again by itself.

Which errors these are is in `test_ambiguous_errors.py`. Here a call goes through its gate, by a plain function, a
tool, an agent, a workflow, `ReAct` and a worker, and some talk to real sockets on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import inspect
import multiprocessing
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from types import FrameType
from typing import Any, cast

import anyio
import pytest

import sayso
from sayso import Tool, Workflow, audit, config, errors
from sayso.model.request import State
from sayso.runs.worker import Worker
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.runs import reacting
from tests.support.acting import aflaky, aheld, approved, flaky, held, state_of
from tests.support.running import agent_of, awaited, ids, reason, started

SENT = "the order was sent"


def time_out(words: str) -> None:
    raise TimeoutError(words)


class Frozen(TimeoutError):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    def add_note(self, note: str) -> None:
        raise AttributeError(note)


def error_of(store: Store, request_id: str) -> str:
    execution = store.get(request_id).execution
    assert execution is not None
    assert execution.error is not None
    return execution.error


# -- the plain gate ---------------------------------------------------------------------------------------------------


def test_a_timeout_reaches_the_caller_with_a_note_and_is_recorded_as_unknown(store: Store) -> None:
    ran: list[int] = []
    error = TimeoutError(SENT)
    request_id = approved(act := flaky(ran, [error]), 1)
    with pytest.raises(TimeoutError) as caught:
        act(1)
    assert caught.value is error
    (note,) = error.__notes__
    assert f"the outcome of {request_id} is unknown" in note
    assert "not retried" in note
    assert f"sayso resolve {request_id} --happened" in note
    assert state_of(request_id) is State.UNKNOWN
    assert error_of(store, request_id) == f"TimeoutError: {SENT}"
    assert [entry.event for entry in store.journal(request_id=request_id)][-1] == "unknown"
    for _ in range(2):
        with pytest.raises(errors.OutcomeUnknownError, match=request_id):
            act(1)
    assert ran == [1]


class Stopped(Exception):
    """What a program makes of an interruption."""


@awaited
async def test_a_cancellation_of_which_the_function_makes_another_error_is_unknown(store: Store) -> None:
    ran, is_paying = list[str](), asyncio.Event()

    @sayso.gate(wait="raise", retries=1, effect="pay:{to}")
    async def pay(to: str) -> None:
        ran.append(to)
        is_paying.set()
        try:
            await asyncio.sleep(3600 if len(ran) == 1 else 0)
        except asyncio.CancelledError:
            raise Stopped from None

    sayso.Review().approve((await aheld(pay, "bob")).confirmation_id, by="ada")
    task = asyncio.create_task(pay("bob"))
    await is_paying.wait()
    task.cancel()
    with pytest.raises(Stopped):
        await task
    with pytest.raises(errors.OutcomeUnknownError):
        await pay("bob")
    assert ran == ["bob"]


async def in_asyncio(*tasks: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(task())  # type: ignore[arg-type]


async def in_anyio(*tasks: Callable[[], Awaitable[Any]]) -> None:
    async with anyio.create_task_group() as group:
        for task in tasks:
            group.start_soon(task)


@pytest.mark.parametrize("together", [in_asyncio, in_anyio])
@awaited
async def test_a_payment_that_a_task_group_cancels_for_its_sibling_is_unknown(
    store: Store, together: Callable[..., Awaitable[None]]
) -> None:
    sent: list[str] = []

    @sayso.gate(wait="raise", retries=1)
    async def pay(to: str) -> None:
        is_sent = asyncio.Event()

        async def send() -> None:
            sent.append(to)
            is_sent.set()
            await asyncio.sleep(3600)

        async def check() -> None:
            await is_sent.wait()
            raise ValueError("no such customer")

        await together(send, check)

    sayso.Review().approve((await aheld(pay, "bob")).confirmation_id, by="ada")
    with pytest.raises(ExceptionGroup):
        await pay("bob")
    with pytest.raises(errors.OutcomeUnknownError):
        await pay("bob")
    assert sent == ["bob"]


async def in_gather(*tasks: Callable[[], Awaitable[Any]]) -> None:
    await asyncio.gather(*(task() for task in tasks))


async def in_threads(*tasks: Callable[[], Awaitable[Any]]) -> None:
    loop = asyncio.get_running_loop()
    calls = (asyncio.to_thread(asyncio.run_coroutine_threadsafe(task(), loop).result) for task in tasks)
    await asyncio.gather(*calls)


@pytest.mark.parametrize("start", [in_gather, in_threads])
@pytest.mark.parametrize("retries", [0, 1])
@awaited
async def test_a_call_that_fails_while_a_task_that_it_started_runs_is_unknown(
    store: Store, start: Callable[..., Awaitable[None]], retries: int
) -> None:
    is_paying, go_on, paid = asyncio.Event(), asyncio.Event(), list[int]()

    async def pay() -> None:
        is_paying.set()
        await go_on.wait()
        paid.append(1)

    async def fail() -> None:
        await is_paying.wait()
        raise ValueError("no such address")

    @sayso.gate(wait="raise", retries=retries)
    async def order() -> None:
        await start(pay, fail)

    request_id = (await aheld(order)).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    with pytest.raises(ValueError, match="no such address") as caught:
        await order()
    state = state_of(request_id)
    go_on.set()
    assert state is State.UNKNOWN
    assert caught.value.__notes__[0] == "sayso: a task that order started was still running when this error ended it"
    assert "is unknown" in caught.value.__notes__[1]
    with pytest.raises(errors.OutcomeUnknownError):
        await order()
    if left := asyncio.all_tasks() - {cast("Any", asyncio.current_task())}:
        await asyncio.wait(left)
    assert paid == [1]


@awaited
async def test_a_call_with_a_gate_inside_that_waits_while_its_task_runs_is_said_to_be_unknown_and_not_failed(
    store: Store,
) -> None:
    left: list[asyncio.Task[None]] = []

    @sayso.gate(wait="raise")
    async def pay() -> None: ...

    @sayso.gate(wait="raise")
    async def order() -> None:
        left.append(asyncio.create_task(asyncio.sleep(3600)))
        await pay()

    request_id = (await aheld(order)).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    notes = (await aheld(order)).__notes__[2:]  # after those on how to go on
    left[0].cancel()
    await asyncio.wait(left)
    assert state_of(request_id) is State.UNKNOWN
    assert notes[0] == "sayso: a task that order started was still running when this error ended it"
    assert f"the outcome of {request_id} is unknown" in notes[1]
    assert len(notes) == 2


@awaited
async def test_a_call_whose_tasks_have_ended_or_are_not_its_own_fails(store: Store) -> None:
    async def fail() -> None:
        raise ValueError("no such address")

    @sayso.gate(wait="raise")
    async def waits_for_all() -> None:
        ends = await asyncio.gather(asyncio.sleep(0), fail(), return_exceptions=True)
        raise cast("ValueError", ends[1])

    @sayso.gate(wait="raise")
    async def says_so() -> None:
        left.append(asyncio.create_task(asyncio.sleep(3600)))
        raise sayso.NotExecuted("the task only reads")

    left = [asyncio.create_task(asyncio.sleep(3600))]
    for order, kind in ((waits_for_all, ValueError), (says_so, sayso.NotExecuted)):
        request_id = (await aheld(order)).confirmation_id
        sayso.Review().approve(request_id, by="ada")
        with pytest.raises(kind):
            await order()
        assert state_of(request_id) is State.FAILED
    for task in left:
        task.cancel()
    await asyncio.wait(left)


def session_of_mcp() -> Any:
    """Return an async context manager as `mcp.client.session` has it, with a task group of its own around the block."""
    source: dict[str, Any] = {"__name__": "mcp.client.session", "contextlib": contextlib, "anyio": anyio}
    text = """
    @contextlib.asynccontextmanager
    async def session(reads):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reads)
            yield
            tasks.cancel_scope.cancel()
    """
    exec(textwrap.dedent(text), source)  # noqa: S102  a frame with the name of the real one
    return source["session"]


@pytest.mark.parametrize(("is_lost", "state"), [(False, State.FAILED), (True, State.UNKNOWN)])
@awaited
async def test_an_error_in_the_block_of_an_mcp_session_is_judged_by_itself_and_one_of_its_tasks_is_unknown(
    store: Store, is_lost: bool, state: State
) -> None:
    async def reads() -> None:
        if is_lost:
            raise ValueError("no such message")
        await asyncio.sleep(3600)

    @sayso.gate(wait="raise")
    async def pay(to: str) -> None:
        async with session_of_mcp()(reads):
            if is_lost:
                await asyncio.sleep(3600)
            raise ValueError("the tool says no")

    pause = await aheld(pay, "bob")
    sayso.Review().approve(pause.confirmation_id, by="ada")
    with pytest.raises(ExceptionGroup):
        await pay("bob")
    assert state_of(pause.confirmation_id) is state


def interrupt(kind: type[BaseException]) -> None:
    raise kind


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_which_the_function_makes_another_error_is_unknown(
    store: Store, kind: type[BaseException]
) -> None:
    ran: list[str] = []

    @sayso.gate(wait="raise", retries=1)
    def pay(to: str) -> None:
        ran.append(to)
        try:
            interrupt(kind)
        except kind as error:
            raise Stopped from error

    request_id = approved(pay, "bob")
    with pytest.raises(Stopped):
        pay("bob")
    assert state_of(request_id) is State.UNKNOWN
    assert ran == ["bob"]


def stop(number: int, frame: FrameType | None) -> None:
    raise Stopped("it takes too long")


def stop_by_any(*_: Any) -> None:
    raise Stopped("it takes too long")


@pytest.mark.parametrize("handler", [stop, stop_by_any])
def test_an_error_of_a_signal_handler_is_unknown_whatever_its_class(
    store: Store, handler: Callable[[int, FrameType | None], None]
) -> None:
    paid: list[str] = []

    @sayso.gate(wait="raise", retries=1)
    def pay(to: str) -> None:
        paid.append(to)
        signal.raise_signal(signal.SIGTERM)  # as an alarm does, or a job queue at its time limit

    request_id = approved(pay, "bob")
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(Stopped):
            pay("bob")
        with pytest.raises(errors.OutcomeUnknownError):
            pay("bob")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert state_of(request_id) is State.UNKNOWN
    assert paid == ["bob"]


def look_at_caller(to: str) -> None:  # as checkers of types do, to find the names in an annotation
    caller = sys._getframe(1)
    raise ValueError(f"no such account: {to}, in {caller.f_code.co_name}")


def parse(*given: Any) -> None:
    given = argparse.Namespace(to=given[0])  # type: ignore[assignment]
    raise ValueError(f"no such account: {given}")


@pytest.mark.parametrize("check", [look_at_caller, parse])
def test_an_error_of_a_function_that_was_not_given_the_frame_is_not_that_of_a_signal_handler(
    store: Store, check: Callable[[str], None]
) -> None:
    @sayso.gate(wait="raise")
    def pay(to: str) -> None:
        check(to)

    request_id = approved(pay, "bob")
    with pytest.raises(ValueError, match="no such account"):
        pay("bob")
    assert state_of(request_id) is State.FAILED


@pytest.mark.parametrize("again", [False, True], ids=["by its error", "by a second call of it"])
def test_a_call_that_an_unknown_call_inside_it_ended_is_unknown(store: Store, *, again: bool) -> None:
    paid: list[str] = []

    @sayso.gate(wait="raise", ambiguous=Stopped)
    def pay(to: str) -> None:
        paid.append(to)
        raise Stopped("the bank does not say")

    @sayso.gate(wait="raise", retries=1, suspends=sayso.ConfirmationRequired)
    def order(to: str) -> None:
        try:
            pay(to)
        except Stopped:
            if not again:
                raise ValueError("not paid") from None
        pay(to)

    request_id, inner = approved(order, "bob"), approved(order, "bob")
    with pytest.raises((ValueError, errors.OutcomeUnknownError), match=f"not paid|{inner}"):
        order("bob")
    assert (state_of(inner), state_of(request_id)) == (State.UNKNOWN, State.UNKNOWN)
    with pytest.raises(errors.OutcomeUnknownError, match=request_id):
        order("bob")
    assert paid == ["bob"]


def test_a_call_that_finds_an_unknown_call_inside_it_is_unknown(store: Store) -> None:
    sent: list[str] = []

    @sayso.gate(wait="raise")
    def send(to: str) -> None:
        sent.append(to)
        raise TimeoutError(SENT)

    @sayso.gate(wait="raise", suspends=sayso.ConfirmationRequired, effect="order:{to}")
    def order(to: str) -> None:
        with contextlib.suppress(TimeoutError):
            send(to)
        note(to)

    @sayso.gate(wait="raise")
    def note(to: str) -> None: ...

    request_id, _, _ = approved(order, "bob"), approved(order, "bob"), approved(order, "bob")
    assert state_of(request_id) is State.APPROVED, "it has stopped half-way"
    with pytest.raises(errors.OutcomeUnknownError):
        order("bob")
    assert (sent, state_of(request_id)) == (["bob"], State.UNKNOWN)


def in_executor(work: Callable[[str], Any], text: str) -> Any:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, text).result()


def in_pool(work: Callable[[str], Any], text: str) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, (text,))


FROM_NONE = "try: raise TimeoutError\nexcept TimeoutError: raise ValueError('not paid') from None"


@pytest.mark.parametrize(
    ("run", "work", "text", "state"),
    [
        (in_executor, exec, FROM_NONE, State.UNKNOWN),
        (in_executor, exec, "import sayso; raise sayso.NotExecuted('not paid')", State.FAILED),
        (in_pool, exec, "raise ValueError('not paid')", State.UNKNOWN),
        (in_pool, eval, "lambda: 'paid'", State.UNKNOWN),
    ],
    ids=["from another one", "NotExecuted", "alone", "a result that cannot be sent"],
)
def test_an_error_of_a_worker_process_does_not_show_what_it_was_made_of(
    store: Store, run: Callable[..., Any], work: Callable[[str], Any], text: str, state: State
) -> None:
    @sayso.gate(wait="raise")
    def pay(to: str) -> None:
        run(work, text)

    request_id = approved(pay, "bob")
    with pytest.raises(Exception, match=r"not paid|Error sending result"):
        pay("bob")
    assert state_of(request_id) is state


def test_an_error_that_the_program_was_handling_counts_if_the_call_meets_it_again(store: Store) -> None:
    """Some clients store the error of a broken connection and raise the same object for each use."""
    broken, sent = ConnectionResetError("the line broke"), list[str]()

    def send(text: str) -> None:
        sent.append(text)
        raise broken

    @sayso.gate(wait="raise", retries=1)
    def pay(to: str) -> None:
        try:
            send(to)
        except ConnectionResetError:
            raise Stopped("payment failed")  # noqa: B904  as programs do

    request_id = approved(pay, "bob")
    try:
        send("hello")
    except ConnectionResetError:
        with pytest.raises(Stopped):
            pay("bob")
    assert state_of(request_id) is State.UNKNOWN
    assert sent == ["hello", "bob"]


@awaited
async def test_an_async_call_is_told_in_the_same_way(store: Store) -> None:
    ran: list[int] = []
    act = aflaky(ran, [TimeoutError(SENT)])
    pause = await aheld(act, 1)
    sayso.Review().approve(pause.confirmation_id, by="ada")
    with pytest.raises(TimeoutError) as caught:
        await act(1)
    assert pause.confirmation_id in caught.value.__notes__[0]
    assert state_of(pause.confirmation_id) is State.UNKNOWN
    with pytest.raises(errors.OutcomeUnknownError):
        await act(1)
    assert ran == [1]


def test_not_executed_is_failed_and_keeps_its_words(store: Store) -> None:
    def pay(amount: int) -> None:
        try:
            time_out(SENT)
        except TimeoutError as error:
            raise sayso.NotExecuted("the bank promises that it booked nothing") from error

    act = sayso.gate(pay, wait="raise")
    request_id = approved(act, 1)
    with pytest.raises(sayso.NotExecuted, match="booked nothing") as caught:
        act(1)
    assert not hasattr(caught.value, "__notes__")
    assert state_of(request_id) is State.FAILED
    assert error_of(store, request_id) == "NotExecuted: the bank promises that it booked nothing"
    assert held(act, 1).confirmation_id != request_id, "the approval is spent"


def test_the_author_of_a_gate_names_more(store: Store) -> None:
    class BankError(Exception):
        pass

    ran: list[int] = []
    for ambiguous in (BankError, (KeyError, BankError)):

        @sayso.gate(wait="raise", name=f"pay{len(ran)}", ambiguous=ambiguous)
        def pay(amount: int) -> None:
            ran.append(amount)
            raise BankError(SENT)

        request_id = approved(pay, 1)
        with pytest.raises(BankError):
            pay(1)
        assert state_of(request_id) is State.UNKNOWN
    assert ran == [1, 1]


def test_retries_do_not_cover_what_nobody_knows(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [TimeoutError(SENT)], retries=5)
    request_id = approved(act, 1)
    with pytest.raises(TimeoutError):
        act(1)
    with pytest.raises(errors.OutcomeUnknownError):
        act(1)
    assert ran == [1]
    sayso.Review(reviewer="ada").resolve(request_id, happened=False)
    assert act(1) == "done", "once it is known that it did not happen, the rest of them counts"
    assert ran == [1, 1]


def test_what_is_idempotent_may_be_started_again(store: Store) -> None:
    ran: list[int] = []
    act = flaky(ran, [TimeoutError(SENT)], idempotent=True)
    request_id = approved(act, 1)
    with pytest.raises(TimeoutError) as caught:
        act(1)
    assert "may be started again" in caught.value.__notes__[0]
    assert state_of(request_id) is State.UNKNOWN
    assert act(1) == "done"
    assert state_of(request_id) is State.DONE


def test_a_pause_after_an_unknown_start_is_not_called_unknown(store: Store) -> None:
    act = flaky([], [TimeoutError(SENT), LookupError("paused")], idempotent=True, suspends=LookupError)
    request_id = approved(act, 1)
    with pytest.raises(TimeoutError):
        act(1)
    with pytest.raises(LookupError) as paused:
        act(1)
    assert state_of(request_id) is State.APPROVED
    assert not hasattr(paused.value, "__notes__")


@pytest.mark.parametrize("end", ["clock", "withdraw", "cancel", "ask"])
def test_an_approval_that_ends_after_an_unknown_start_and_a_pause_leaves_the_call_unknown(
    store: Store, clock: Clock, end: str
) -> None:
    act = flaky([], [TimeoutError(SENT), LookupError("paused")], idempotent=True, suspends=LookupError)
    request_id = approved(act, 1)
    for kind in (TimeoutError, LookupError):
        with pytest.raises(kind):
            act(1)
    if end == "withdraw":
        store.withdraw(request_id, config.requester())
    elif end == "cancel":
        sayso.Review().cancel(request_id, by="ada")
    else:
        clock.tick(days=2)
    if end == "ask":
        with pytest.raises(errors.OutcomeUnknownError):  # and not asked anew
            act(1)
    assert store.settle(request_id).state is State.UNKNOWN
    assert audit.verify(store).broken == ()
    assert sayso.Review().resolve(request_id, happened=True, by="ada", start=2).state is State.DONE


@pytest.mark.parametrize("by", ["reviewer", "program"])
def test_a_cancelled_approval_starts_nothing_although_an_earlier_start_is_unknown(store: Store, by: str) -> None:
    ran: list[int] = []
    act = flaky(ran, [TimeoutError(SENT), LookupError("paused")], idempotent=True, suspends=LookupError)
    request_id = approved(act, 1)
    for kind in (TimeoutError, LookupError):
        with pytest.raises(kind):
            act(1)
    if by == "reviewer":
        sayso.Review().cancel(request_id, by="ada")
    else:
        store.withdraw(request_id, config.requester())
    with pytest.raises(errors.OutcomeUnknownError):
        act(1)
    resolved = sayso.Review().resolve(request_id, happened=False, by="ada", start=2)
    assert resolved.state is State.FAILED
    assert ran == [1, 1]
    assert audit.verify(store).broken == ()


def test_an_edit_that_is_sent_back_after_an_unknown_start_and_a_pause_cannot_be_rejected_as_not_run(
    store: Store,
) -> None:
    effect, ends = ["refund"], [TimeoutError(SENT), LookupError("paused")]
    act = flaky([], ends, idempotent=True, suspends=LookupError, effect=lambda amount: effect[0])  # noqa: ARG005
    request_id = held(act, 1).confirmation_id
    sayso.Review().approve(request_id, by="ada", changes={"amount": 2})
    for kind in (TimeoutError, LookupError):
        with pytest.raises(kind):
            act(1)
    effect[0] = "another refund"
    assert held(act, 1).confirmation_id == request_id
    rejected = sayso.Review().reject(request_id, "not this one", by="ada")
    assert rejected.state is State.UNKNOWN
    assert audit.verify(store).broken == ()
    with pytest.raises(errors.OutcomeUnknownError):
        act(1)
    assert sayso.Review().resolve(request_id, happened=True, by="ada", start=2).state is State.DONE


@pytest.mark.parametrize(("answer", "state"), [(True, State.DONE), (False, State.FAILED)], ids=["happened", "did not"])
def test_verify_is_asked_before_a_person_is(store: Store, answer: bool, state: State) -> None:
    ran: list[int] = []
    act = flaky(ran, [TimeoutError(SENT)], verify=lambda: answer)
    request_id = approved(act, 1)
    with pytest.raises(TimeoutError):
        act(1)
    if answer:
        assert act(1) is None
    else:
        held(act, 1)
    assert state_of(request_id) is state
    assert ran == [1]


def test_what_the_caller_was_handling_is_not_the_calls_own(store: Store) -> None:
    act = flaky([], [ValueError("bad amount")])
    request_id = approved(act, 1)
    try:
        time_out("the first bank did not answer")
    except TimeoutError:
        with pytest.raises(ValueError, match="bad amount") as caught:
            act(1)
        assert isinstance(caught.value.__context__, TimeoutError)
    assert state_of(request_id) is State.FAILED


def test_an_error_that_cannot_be_changed_reaches_the_caller_all_the_same(store: Store) -> None:
    request_id = approved(act := flaky([], [Frozen(SENT)]), 1)
    with pytest.raises(Frozen):
        act(1)
    assert state_of(request_id) is State.UNKNOWN


@pytest.mark.parametrize("declare", [sayso.gate, sayso.confirm_first, sayso.tool], ids=lambda one: one.__name__)
@pytest.mark.parametrize("wrong", ["httpx.ReadTimeout", int, [ValueError, "x"]], ids=str)
def test_what_is_no_exception_class_is_refused_at_the_declaration(declare: Any, wrong: Any) -> None:
    def pay(amount: int) -> None: ...

    with pytest.raises(errors.ConfigError, match=r"^ambiguous= takes exception classes, not "):
        declare(pay, ambiguous=wrong)


@pytest.mark.parametrize("kind", [sayso.Agent, sayso.Workflow], ids=["agent", "workflow"])
def test_an_agent_and_a_workflow_have_no_such_option_because_their_tools_do(kind: Any) -> None:
    with pytest.raises(TypeError, match="ambiguous"):
        kind(name="shop", ambiguous=ValueError, **({"model": "openai:x"} if kind is sayso.Agent else {}))


# -- runs -------------------------------------------------------------------------------------------------------------


def slow_tool(ran: list[int], **options: Any) -> Tool:
    """Return a tool that waits for a person, and whose first call times out."""

    def pay(amount: int) -> str:
        """Send money."""
        ran.append(amount)
        if len(ran) == 1:
            raise TimeoutError(SENT)
        return f"paid {amount}"

    return Tool(pay, requires_approval=True, **options)


def made(what: str, tool: Tool) -> Any:
    """Return a tool, or an agent or a workflow that calls it."""
    if what == "tool":
        return lambda **options: tool(amount=7, **options)
    if what == "agent":
        agent = agent_of([tool], ("pay", {"amount": 7}))
        return lambda **options: agent(prompt="pay 7", **options)
    return Workflow(name="flow").step(tool, amount=7)


@pytest.mark.parametrize("what", ["tool", "agent", "workflow"])
def test_a_run_stops_at_an_unknown_outcome_until_somebody_finds_out(store: Store, what: str) -> None:
    ran: list[int] = []
    run = made(what, slow_tool(ran))
    paused = run().run()
    (request_id,) = ids(paused)
    output = run(parent_id=paused.run_id, approval_decisions={request_id: True}).run()
    for _ in range(2):
        assert reason(output) == ("error", "outcome_unknown")
        assert request_id in (output.status.message or "")
        output = run(parent_id=paused.run_id).run()
    assert (state_of(request_id), ran) == (State.UNKNOWN, [7])
    assert error_of(store, request_id) == f"TimeoutError: {SENT}"
    sayso.Review(reviewer="ada").resolve(request_id, happened=True)
    output = run(parent_id=paused.run_id).run()
    assert (reason(output), ran) == (("success", None), [7])


def test_an_error_that_nobody_can_mark_stops_the_run_as_well(store: Store) -> None:
    def pay(amount: int) -> str:
        raise Frozen(SENT)

    run = made("agent", Tool(pay, requires_approval=True))
    paused = run().run()
    (request_id,) = ids(paused)
    output = run(parent_id=paused.run_id, approval_decisions={request_id: True}).run()
    assert reason(output) == ("error", "outcome_unknown")
    assert state_of(request_id) is State.UNKNOWN


def test_an_idempotent_tool_is_started_again_when_its_run_goes_on(store: Store) -> None:
    ran: list[int] = []
    run = made("agent", slow_tool(ran, idempotent=True))
    paused = run().run()
    (request_id,) = ids(paused)
    output = run(parent_id=paused.run_id, approval_decisions={request_id: True}).run()
    assert reason(output) == ("error", "outcome_unknown")
    assert reason(run(parent_id=paused.run_id).run()) == ("success", None)
    assert (state_of(request_id), ran) == (State.DONE, [7, 7])


def test_a_gated_function_inside_of_a_tool_stops_the_run_as_well(store: Store) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise")
    def wire(amount: int) -> None:
        ran.append(amount)
        raise TimeoutError(SENT)

    def pay(amount: int) -> str:
        try:
            wire(amount)
        except TimeoutError as error:
            raise RuntimeError("could not pay") from error
        return "paid"

    agent = agent_of([Tool(pay)], ("pay", {"amount": 7}))
    paused = started(agent, prompt="pay 7")
    (request_id,) = ids(paused)
    output = agent(prompt="pay 7", parent_id=paused.run_id, approval_decisions={request_id: True}).run()
    for _ in range(2):
        assert reason(output) == ("error", "outcome_unknown")
        output = agent(prompt="pay 7", parent_id=paused.run_id).run()
    assert (state_of(request_id), ran) == (State.UNKNOWN, [7])


def test_a_gated_function_in_a_task_group_of_a_tool_stops_the_run_as_well(store: Store) -> None:
    ran: list[int] = []

    @sayso.gate(wait="raise")
    async def wire(amount: int) -> None:
        ran.append(amount)
        raise TimeoutError(SENT)

    async def pay(amount: int) -> str:
        with sayso.run("wires"):
            await in_asyncio(lambda: wire(amount))
        return "paid"

    def run() -> Any:
        return agent_of([Tool(pay)], ("pay", {"amount": 7}))(prompt="pay 7").run()

    run()
    (request_id,) = [request.id for request in store.list(Filter()).requests]
    sayso.Review(reviewer="ada").approve(request_id)
    assert reason(run()) == ("error", "outcome_unknown")
    assert (state_of(request_id), ran) == (State.UNKNOWN, [7])


def test_not_executed_is_told_to_the_model_and_the_run_goes_on(store: Store) -> None:
    def pay(amount: int) -> str:
        raise sayso.NotExecuted("the account is locked")

    agent = agent_of([Tool(pay, requires_approval=True)], ("pay", {"amount": 7}))
    paused = started(agent, prompt="pay 7")
    (request_id,) = ids(paused)
    output = agent(prompt="pay 7", parent_id=paused.run_id, approval_decisions={request_id: True}).run()
    assert reason(output) == ("success", None)
    assert "the account is locked" in output.output
    assert state_of(request_id) is State.FAILED


def test_a_worker_leaves_a_run_whose_outcome_is_unknown_alone(store: Store) -> None:
    ran: list[int] = []
    clerk = agent_of([slow_tool(ran)], ("pay", {"amount": 7}), name="clerk")
    paused = started(clerk, prompt="pay 7")
    sayso.Review(reviewer="ada").approve(ids(paused)[0])
    told: list[str] = []

    def work() -> None:
        asyncio.run(Worker([clerk], on_report=lambda report: told.append(report.ending.value)).run(once=True))

    work()
    work()
    assert (told, ran) == (["unknown"], [7])
    sayso.Review(reviewer="ada").resolve(ids(paused)[0], happened=True)
    work()
    assert (told, ran) == (["unknown", "done"], [7])


@awaited
async def test_react_ends_with_the_unknown_outcome_and_its_model_is_not_asked_again(store: Store) -> None:
    ran: list[int] = []
    model = reacting.Script([("pay", {"amount": 7})])
    agent = reacting.agent_of(model, slow_tool(ran))
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        await agent.aforward(question="pay 7")
    request_id = caught.value.confirmation_id
    for _ in range(2):
        with pytest.raises(errors.OutcomeUnknownError, match=request_id):
            await agent.aresume("yes", caught.value)
    assert (len(model.heard), ran) == (1, [7])


def test_the_package_of_no_client_is_imported() -> None:
    text = inspect.getsource(importlib.import_module("sayso.gates.ambiguous"))
    imports = {line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imports <= {*sys.stdlib_module_names, "sayso"}
