"""What a worker goes on with, what it leaves alone, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sayso
from sayso import Agent, OutputEvent, Tool, Workflow, errors, suspend
from sayso.model.lifecycle import Outcome
from sayso.model.run import RunState
from sayso.runs import worker
from sayso.runs.runnable import Runnable
from sayso.runs.worker import Ending, Report, Worker
from sayso.stores import workers
from sayso.stores.base import Store
from sayso.stores.workers import Lease
from sayso.testing import ScriptedModel
from tests.support.running import agent_of, awaited, ids, questions, reason, started

pytestmark = pytest.mark.usefixtures("store")


def pay(amount: int) -> str:
    return f"paid {amount}"


def gated(handler: Callable[..., Any] = pay, **options: Any) -> Tool:
    return Tool(handler, requires_approval=True, **options)


def approve(output: OutputEvent, reviewer: str = "ada") -> None:
    for request_id in ids(output):
        sayso.Review(reviewer=reviewer).approve(request_id)


def state(store: Store, output: OutputEvent) -> RunState:
    return store.get_run(output.run_id).run.state


async def work(*runnables: Runnable, **options: Any) -> list[Report]:
    """Let a new worker go on with what is ready."""
    told: list[Report] = []
    await bounded(Worker(runnables, on_report=told.append, **options).run(once=True))
    return told


def endings(told: list[Report]) -> list[str]:
    return [report.ending.value for report in told]


async def bounded(going: Awaitable[None]) -> None:
    """A worker that finds no end fails its test."""
    async with asyncio.timeout(60):
        await going


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  what is waited for is no event
            await asyncio.sleep(0.002)


# -- what it goes on with --------------------------------------------------------------------------------------


def test_a_run_goes_on_when_a_person_has_decided(store: Store) -> None:
    clerk = agent_of([gated()], ("pay", {"amount": 7}), name="clerk")
    output = started(clerk, prompt="pay 7")
    assert asyncio.run(work(clerk)) == []

    approve(output)
    (report,) = asyncio.run(work(clerk))
    assert (report.run_id, report.name, report.ending) == (output.run_id, "clerk", Ending.DONE)
    assert state(store, output) is RunState.ENDED
    assert store.get(ids(output)[0]).state == "done"
    assert asyncio.run(work(clerk)) == []


def test_the_lease_of_a_run_is_renewed_only_while_it_is_in_hand(store: Store) -> None:
    renewed: list[set[str]] = []

    def look(amount: int) -> int:
        renewed.append({held.id for held in workers._keepers[store].held.values() if held.is_run})
        return amount

    tool = gated(look)
    output = started(tool, amount=1)
    assert store not in workers._keepers
    approve(output)
    asyncio.run(work(tool))
    assert renewed == [{output.run_id}]
    assert workers._keepers[store].held == {}


def test_every_end_of_a_run_is_told_by_its_name(store: Store) -> None:
    def fail(amount: int) -> str:
        raise OSError(f"no {amount}")

    tools = [gated(name=name) for name in ("done", "denied", "cancelled")] + [gated(fail, name="failed")]
    held = {tool.name: started(tool, amount=1) for tool in tools}
    review = sayso.Review(reviewer="ada")
    approve(held["done"])
    approve(held["failed"])
    review.reject(ids(held["denied"])[0], "no")
    review.cancel(ids(held["cancelled"])[0], "stop")
    assert {report.name: report.ending.value for report in asyncio.run(work(*tools))} == {
        name: name for name in ("done", "denied", "cancelled", "failed")
    }


def test_those_that_nobody_touched_for_longest_come_first() -> None:
    tool = gated()
    held = [started(tool, amount=n) for n in range(12)]
    for output in reversed(held):
        approve(output)
    told = asyncio.run(work(tool, concurrency=1))
    assert [report.run_id for report in told] == [output.run_id for output in held]


@awaited
async def test_two_workers_claim_different_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, take_run = list[str](), Store.take_run

    def counted(self: Store, run_id: str, *args: Any, **options: Any) -> Any:
        try:
            return take_run(self, run_id, *args, **options)
        except errors.RunBusyError:
            lost.append(run_id)
            raise

    async def slow(amount: int) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    monkeypatch.setattr(Store, "take_run", counted)
    tool = gated(slow)
    held = [await tool(amount=n, run_id=f"order-{n}").collect() for n in range(24)]
    for output in held:
        approve(output)
    told: list[list[Report]] = [[], []]
    workers = [Worker([tool], concurrency=1, on_report=reports.append) for reports in told]
    await bounded(asyncio.gather(*(one.run(once=True) for one in workers)))

    claimed = [{report.run_id for report in reports} for reports in told]
    assert claimed[0] | claimed[1] == {output.run_id for output in held}
    assert not claimed[0] & claimed[1]
    assert min(map(len, claimed)) > 2  # neither waits for the other; how they share is the scheduler's
    assert len(lost) < 12  # 24 where both always begin with the oldest


@awaited
async def test_beside_others_a_worker_takes_its_own_part_of_many_ready_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def ready(_: object, limit: int) -> list[str]:
        return [f"order-{n:03}" for n in range(limit)]

    async def part(one: Worker) -> list[str]:
        one._backlog.clear()
        await one._look()
        return [run_id for _, run_id in one._backlog]

    monkeypatch.setattr(worker._StoreView, "ready", ready)
    workers = [Worker([gated()], concurrency=1) for _ in range(2)]
    assert await part(workers[0]) == await part(workers[1]) == ready(None, 16)
    for one in workers:
        one._has_company = True
    parts = [await part(one) for one in workers]
    assert [len(set(runs)) for runs in parts] == [16, 16]
    assert len(set(parts[0]) & set(parts[1])) < 8


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_runs_are_under_way_than_it_was_told(concurrency: int) -> None:
    now, most, are_all_there = 0, 0, asyncio.Event()

    async def slow(amount: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == concurrency:
            are_all_there.set()
        await are_all_there.wait()
        await asyncio.sleep(0.005)  # for one too many to come
        now -= 1

    tool = gated(slow)
    for n in range(9):
        approve(started(tool, amount=n))
    assert len(asyncio.run(work(tool, concurrency=concurrency))) == 9
    assert most == concurrency


@awaited
async def test_a_decision_is_heard_while_it_waits() -> None:
    tool, told = gated(), list[Report]()
    served = Worker([tool], on_report=told.append)
    going = asyncio.create_task(served.run())
    output = await tool(amount=1).collect()
    await asyncio.sleep(0.1)
    assert told == []
    approve(output)
    await until(lambda: told)
    assert endings(told) == ["done"]
    served.stop()
    await going


# -- what it leaves alone --------------------------------------------------------------------------------------


@awaited
async def test_a_run_that_waits_again_is_not_begun_again_until_something_changes() -> None:
    begun = 0

    def ask() -> str:
        return suspend({"question": "how much?"})

    def price() -> int:
        nonlocal begun
        begun += 1
        return suspend({"question": "sure?"})

    flow = Workflow(name="flow").step(ask).step(price, depends_on=["ask"])
    output = await flow().collect()
    sayso.Review(reviewer="ada").answer(questions(output)[0], "7")
    told: list[Report] = []
    served = Worker([flow], on_report=told.append)
    for _ in range(5):
        await bounded(served.run(once=True))
    # Begun in vain at most once: the store goes on to call it ready, because its first question is answered.
    assert endings(told) == ["paused"]
    assert begun <= 2

    sayso.Review(reviewer="ada").answer(told[0].waits[0], "yes")
    await bounded(served.run(once=True))
    assert endings(told) == ["paused", "done"]


@awaited
async def test_a_worker_forgets_the_runs_that_another_one_has_ended() -> None:
    def ask() -> str:
        return suspend({"question": "how much?"})

    def check() -> str:
        return suspend({"question": "sure?"})

    flow = Workflow(name="flow").step(ask).step(check, depends_on=["ask"])
    output = await flow().collect()
    sayso.Review(reviewer="ada").answer(questions(output)[0], "7")
    told: list[Report] = []
    first = Worker([flow], on_report=told.append)
    await bounded(first.run(once=True))
    assert endings(told) == ["paused"]
    sayso.Review(reviewer="ada").answer(told[0].waits[0], "yes")
    await bounded(Worker([flow]).run(once=True))
    await bounded(first.run(once=True))
    assert first._known == {}


def test_a_run_of_another_name_is_left_alone_and_named_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    mine, other = gated(name="mine"), gated(name="other")
    held = [started(other, amount=n) for n in range(2)]
    for output in held:
        approve(output)

    @awaited
    async def twice() -> None:
        served = Worker([mine])
        await bounded(served.run(once=True))
        await bounded(served.run(once=True))

    with caplog.at_level(logging.WARNING, "sayso"):
        twice()
    assert [record.getMessage().split("'")[1] for record in caplog.records] == ["other"]
    assert {state(store, output) for output in held} == {RunState.PAUSED}


@awaited
async def test_a_run_whose_code_has_changed_is_reported_once_and_not_begun(caplog: pytest.LogCaptureFixture) -> None:
    def flow(handler: Callable[..., Any]) -> Workflow:
        return Workflow(name="flow").step(gated(handler, name="first")).step(gated(name="second"))

    ran: list[str] = []

    def other(amount: str) -> None:
        ran.append(amount)

    output = await flow(pay)(amount=1).collect()
    told: list[Report] = []
    served = Worker([flow(other)], on_report=told.append)
    for request_id in ids(output):
        sayso.Review(reviewer="ada").approve(request_id)
        await bounded(served.run(once=True))
    assert (endings(told), ran) == (["changed"], [])
    assert "takes other arguments" in str(told[0].message)
    assert [record.levelname for record in caplog.records if output.run_id in record.getMessage()] == ["WARNING"]

    assert endings(await work(flow(pay))) == ["done"]  # by a worker that has the code it began with


@awaited
async def test_a_run_that_another_has_in_hand_is_no_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = gated()
    output = await tool(amount=1).collect()
    approve(output)
    lease = Lease()
    store.take_run(output.run_id, lease.holder)
    # As if it had been taken after this worker had looked.
    monkeypatch.setattr(store, "ready_runs", lambda *_: [output.run_id])
    told: list[Report] = []
    served = Worker([tool], on_report=told.append)
    await bounded(served.run(once=True))
    assert (told, store.get(ids(output)[0]).state) == ([], "approved")

    lease.release()  # whoever had it has died without a word
    served._known.clear()  # as if the pause were over
    await bounded(served.run(once=True))
    assert endings(told) == ["done"]
    await bounded(served.run(once=True))
    assert endings(told) == ["done"]


def test_an_unknown_outcome_is_told_and_never_tried_again(store: Store) -> None:
    def vanish(amount: int) -> None:
        ran.append(amount)
        raise asyncio.CancelledError

    ran: list[int] = []
    tool = gated(vanish)
    output = started(tool, amount=1)
    approve(output)
    first = asyncio.run(work(tool))
    assert [*endings(first), *endings(asyncio.run(work(tool)))][-1] == "unknown"
    assert ran == [1]
    assert store.get(ids(output)[0]).state == "unknown"

    sayso.Review(reviewer="ada").resolve(ids(output)[0], happened=True)
    assert endings(asyncio.run(work(tool))) == ["done"]
    assert ran == [1]


def test_a_run_goes_on_when_the_unknown_outcome_of_a_call_inside_its_handler_is_resolved(store: Store) -> None:
    @sayso.gate(wait="raise")
    def ship(amount: int) -> str:
        ran.append(amount)
        raise TimeoutError

    def order(amount: int) -> str:
        return f"shipped: {ship(amount)}"

    ran: list[int] = []
    tool = Tool(order)
    output = started(tool, amount=1)
    approve(output)
    assert endings(asyncio.run(work(tool))) == ["unknown"]
    assert endings(asyncio.run(work(tool))) == []

    sayso.Review(reviewer="ada").resolve(ids(output)[0], happened=True)
    assert endings(asyncio.run(work(tool))) == ["done"]
    assert ran == [1]


@pytest.mark.parametrize("inside", [False, True], ids=["gated", "inside a handler"])
def test_a_stop_of_all_starts_ends_no_run(store: Store, inside: bool) -> None:
    ship = sayso.gate(pay, wait="raise")

    def order(amount: int) -> str:
        return ship(amount)

    tool = Tool(order) if inside else gated()
    output = started(tool, amount=1)
    approve(output)
    review = sayso.Review(reviewer="ada")
    review.stop()
    assert endings(asyncio.run(work(tool))) == ["retry"]
    review.go()
    assert endings(asyncio.run(work(tool))) == ["done"]
    assert store.get(ids(output)[0]).state == "done"


@pytest.mark.parametrize("inside", [False, True], ids=["gated", "inside a handler"])
def test_a_call_whose_effect_may_yet_fail_ends_no_run(store: Store, inside: bool) -> None:
    ship = sayso.gate(pay, wait="raise", effect="pay")

    def order(amount: int) -> str:
        return ship(amount)

    tool = Tool(order) if inside else gated(effect="pay")
    first, second = started(tool, amount=1), started(tool, amount=2)
    approve(first)
    approve(second)
    (met,) = ids(first)
    store.start(met, "t")
    assert endings(asyncio.run(work(tool))) == ["retry"]
    store.finish(met, "t", Outcome("failed", error="OSError: no"))
    assert {report.run_id: report.ending for report in asyncio.run(work(tool))}[second.run_id] is Ending.DONE


@pytest.mark.parametrize("inside", [False, True], ids=["gated", "inside a handler"])
def test_a_call_that_runs_elsewhere_ends_no_run(store: Store, inside: bool) -> None:
    ship = sayso.gate(pay, wait="raise")

    def order(amount: int) -> str:
        return ship(amount)

    tool = Tool(order) if inside else gated()
    output = started(tool, amount=1)
    approve(output)
    (met,) = ids(output)
    store.start(met, "t")
    assert reason(tool(parent_id=output.run_id).run()) == ("cancelled", "approval_already_claimed")
    store.finish(met, "t", Outcome("done"))
    assert endings(asyncio.run(work(tool))) == ["done"]


# -- faults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["take_run", "start", "ready_runs"])
@awaited
async def test_a_store_that_fails_is_tried_again_after_pauses(
    store: Store, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(worker, "_SHORTEST", 0.01)
    tool, faults = gated(), 3
    output = await tool(amount=1).collect()
    approve(output)
    sound = getattr(store, verb)

    def failing(*args: Any, **options: Any) -> Any:
        nonlocal faults
        faults -= 1
        if faults >= 0:
            raise errors.StoreBusyError("others kept it locked")
        return sound(*args, **options)

    monkeypatch.setattr(store, verb, failing)
    told: list[Report] = []
    served = Worker([tool], on_report=told.append)
    going = asyncio.create_task(served.run())
    await until(lambda: told and told[-1].ending is Ending.DONE)
    assert endings(told) == (["done"] if verb == "ready_runs" else ["retry", "done"])
    assert store.get(ids(output)[0]).state == "done"
    served.stop()
    await going


@pytest.mark.parametrize(("verb", "after"), [("save_run", "paused"), ("ask", "paused"), ("finish", "unknown")])
def test_a_store_that_fails_within_a_step_ends_no_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, verb: str, after: str
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise errors.StoreUnavailableError("away")

    @sayso.gate(wait="raise")
    def ship(amount: int) -> str:
        return "shipped"

    def note(pay: str) -> str:
        return f"noted: {pay}"

    def book(note: str) -> str:
        return ship(1)

    flow = Workflow(name="flow").step(gated()).step(Tool(note)).step(Tool(book))
    output = started(flow, amount=1)
    approve(output)
    with monkeypatch.context() as away:
        away.setattr(type(store), verb, failing)
        assert endings(asyncio.run(work(flow))) == ["retry"]
    workers.stop_all()  # whoever made the call whose end was not recorded, is gone
    store.settle(ids(output)[0], gone=workers.current())
    assert endings(asyncio.run(work(flow))) == [after]
    assert state(store, output) is RunState.PAUSED


def test_pauses_grow_to_a_minute() -> None:
    pauses = [worker._pause_after(n) for n in range(1, 40)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60


@awaited
async def test_a_model_out_of_reach_is_not_asked_without_a_pause() -> None:
    asked = 0

    def away(_: object) -> str:
        nonlocal asked
        asked += 1
        raise errors.StoreBusyError("the provider is down")

    clerk = Agent(name="clerk", model=ScriptedModel([("pay", {"amount": 1}), away]), tools=[gated()])
    output = await clerk(prompt="").collect()
    approve(output)
    served = Worker([clerk])
    going = asyncio.create_task(served.run())
    await until(lambda: asked)
    await asyncio.sleep(0.2)
    assert asked == 1
    served.stop()
    await going


def test_a_handler_that_exits_ends_its_own_run_only(store: Store) -> None:
    def leave(amount: int) -> None:
        raise SystemExit(3)

    bad, good = gated(leave, name="bad"), gated()
    for output in (started(bad, amount=1), started(good, amount=2)):
        approve(output)
    told = asyncio.run(work(bad, good))
    assert "done" in {report.ending.value for report in told if report.name == "pay"}


@pytest.mark.parametrize(
    ("runnables", "options", "said"),
    [
        ([], {}, "at least one runnable"),
        ([gated(name="one"), gated(name="one")], {}, "two runnables are called 'one'"),
        ([gated()], {"concurrency": 0}, "concurrency"),
        ([gated()], {"concurrency": True}, "concurrency"),
        ([gated()], {"grace": "soon"}, "not a duration"),
    ],
)
def test_what_cannot_be_served_is_refused(runnables: list[Tool], options: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        Worker(runnables, **options)


def test_whom_a_run_acts_for_is_barred_from_what_it_asks_later(store: Store) -> None:
    clerk = agent_of([gated(), gated(name="post")], ("pay", {"amount": 1}), ("post", {"amount": 2}), name="clerk")
    with sayso.run("today", on_behalf_of="bob"):
        output = started(clerk, prompt="")
    approve(output)
    (report,) = asyncio.run(work(clerk))
    assert report.ending is Ending.PAUSED
    with pytest.raises(errors.OwnRequestError):
        sayso.Review(reviewer="bob").approve(report.waits[0])


# -- stopping --------------------------------------------------------------------------------------------------


@awaited
async def test_a_handler_that_ends_within_the_grace_is_recorded_and_nothing_new_begins(store: Store) -> None:
    inside, go, ran = asyncio.Event(), asyncio.Event(), list[str]()

    async def first(amount: int) -> str:
        ran.append("first")
        inside.set()
        await go.wait()
        return "one"

    async def second(amount: int) -> None:
        ran.append("second")

    turns = [("first", {"amount": 1}), ("second", {"amount": 2})]
    clerk = agent_of([gated(first), Tool(second)], *turns, name="clerk")
    outputs = [await clerk(prompt="").collect() for _ in range(2)]
    for output in outputs:
        approve(output)
    told: list[Report] = []
    served = Worker([clerk], concurrency=1, grace="1h", on_report=told.append)
    going = asyncio.create_task(served.run())
    await inside.wait()
    served.stop()
    asyncio.get_running_loop().call_later(0.05, go.set)  # in the middle of the grace
    await bounded(going)
    assert (endings(told), ran, served.is_cut_short) == (["handed_back"], ["first"], False)
    assert [state(store, output) for output in outputs] == [RunState.BROKEN, RunState.PAUSED]

    assert endings(await work(clerk)) == ["done", "done"]
    assert sorted(ran) == ["first", "first", "second", "second"]  # each once for each run


@awaited
async def test_a_handler_that_takes_longer_is_unknown_and_a_free_step_is_done_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.runs.worker._LAST", 60.0)  # for a machine that takes long to write down what was cut off
    begun: list[str] = []
    is_patient = False

    async def transfer(amount: int) -> None:
        begun.append("transfer")
        await asyncio.sleep(0 if is_patient else 3600)

    async def fetch(amount: int) -> None:
        begun.append("fetch")
        await asyncio.sleep(0 if is_patient else 3600)

    clerk = agent_of([gated(transfer)], ("transfer", {"amount": 1}), name="clerk")
    other = agent_of([gated(), Tool(fetch)], ("pay", {"amount": 1}), ("fetch", {"amount": 1}), name="other")
    held = [await clerk(prompt="").collect(), await other(prompt="").collect()]
    for output in held:
        approve(output)
    told: list[Report] = []
    served = Worker([clerk, other], grace="50ms", on_report=told.append)
    going = asyncio.create_task(served.run())
    await until(lambda: len(begun) == 2)
    served.stop()
    await going
    assert (endings(told), served.is_cut_short) == (["handed_back", "handed_back"], True)
    assert [state(store, output) for output in held] == [RunState.BROKEN, RunState.BROKEN]

    is_patient = True
    again = {report.name: report.ending.value for report in await work(clerk, other)}
    assert again == {"clerk": "unknown", "other": "done"}
    assert sorted(begun) == ["fetch", "fetch", "transfer"]


@awaited
async def test_it_can_be_stopped_from_any_thread_and_before_it_begins() -> None:
    served = Worker([gated()])
    going = asyncio.create_task(served.run())
    await asyncio.sleep(0.01)
    threading.Thread(target=served.stop).start()
    await bounded(going)

    early = Worker([gated()])
    early.stop()
    await bounded(early.run())
