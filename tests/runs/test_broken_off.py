"""Runs that are broken off: by a consumer that leaves its loop, by `aclose`, by a cancelled task, by a timeout.

Each is broken off at every place there is, and then gone on with to its end. The one invariant: what had finished is
not done a second time, and a gated handler that was broken off inside is `unknown`.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

import sayso
from sayso import Agent, ApprovalEvent, Tool, Workflow, errors, load_run, policy
from sayso.model.request import State
from sayso.model.run import RunState, RunUpdate
from sayso.runs.events import Event
from sayso.stores.base import Store
from sayso.testing import ScriptedModel
from tests.support.running import agent_of, awaited, ids, reason, yes

WAYS = ("break", "aclose", "raise", "dropped")


class Desk:
    """An agent with a free tool, a gated one and a gated agent below it; what ran is in `ran`."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        look = Tool(self._noted("look"), name="look")
        pay = Tool(self._noted("pay"), name="pay", requires_approval=True)
        below = agent_of([pay], {"text": "let me see", "calls": [("pay", {"n": 3})]}, name="below")
        turns: list[Any] = [
            {
                "text": "one moment please",
                "calls": [("look", {"n": 1}), ("pay", {"n": 2}), ("below", {"prompt": "go"})],
            },
            [("look", {"n": 4})],
            "all done",
        ]
        self.agent = Agent(name="desk", model=ScriptedModel(turns), tools=[look, pay, below])

    def _noted(self, what: str) -> Any:
        async def note(n: int) -> str:
            self.ran.append(f"{what} {n}")
            await asyncio.sleep(0)
            return f"{what} {n}"

        return note

    async def to_its_end(self, run_id: str | None) -> sayso.OutputEvent:
        """Go on, saying yes to everything."""
        output = await self.agent(prompt="go", parent_id=run_id).collect()
        while output.status.reason == "approval_required":
            output = await self.agent(parent_id=output.run_id, resume=yes(output)).collect()
        return output


async def _count(each_store: Store) -> int:
    desk = Desk()
    return len([event async for event in desk.agent(prompt="go")])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@awaited
async def test_a_stream_that_its_consumer_leaves_can_be_gone_on_with(each_store: Store, way: str) -> None:
    for n in range(WAYS.index(way) % 2, await _count(each_store), 2):  # two ways at each place
        desk = Desk()
        run_id = await _left(aiter(desk.agent(prompt="go")), n, way)
        output = await desk.to_its_end(run_id)
        assert (reason(output), output.output) == (("success", None), "all done"), n
        assert sorted(desk.ran) == ["look 1", "look 4", "pay 2", "pay 3"], n


async def _left(events: AsyncIterator[Event], after: int, way: str) -> str:
    """Take some events and leave; return the run's id."""
    seen = 0
    run_id = ""
    if way == "aclose":
        async with aclosing(events) as stream:  # type: ignore[type-var]
            async for event in stream:
                run_id, seen = event.run_id, seen + 1
                if seen > after:
                    break
        return run_id
    with suppress(LookupError):
        async for event in events:
            run_id, seen = event.run_id, seen + 1
            if seen > after and way == "raise":
                raise LookupError
            if seen > after:
                break
    if way == "dropped":
        del events
        gc.collect()
    return run_id


@awaited
async def test_a_consumer_that_leaves_at_the_gate_can_decide_at_once(each_store: Store) -> None:
    ran: list[int] = []
    pay = Tool(lambda n: ran.append(n), name="pay", requires_approval=True)  # noqa: PLW0108
    agent = agent_of([pay], [("pay", {"n": 1})])
    held = ""
    async for event in agent(prompt="go"):
        if isinstance(event, ApprovalEvent):
            held = event.approval_id
            break
    output = await agent(prompt="go", approval_decisions={held: True}).collect()
    assert (reason(output), ran) == (("success", None), [1])


@pytest.mark.parametrize("way", ["cancel", "timeout"])
@awaited
async def test_a_task_that_is_cancelled_while_it_streams_can_be_gone_on_with(each_store: Store, way: str) -> None:
    for n in range(await _count(each_store)):
        desk, ids_seen = Desk(), list[str]()

        async def consume(
            break_off: Callable[[], object], desk: Desk = desk, after: int = n, known: Any = ids_seen
        ) -> None:
            count = 0
            async for event in desk.agent(prompt="go"):
                known.append(event.run_id)
                count += 1
                if count > after:
                    break_off()
                    await asyncio.sleep(3600)

        if way == "cancel":
            seen = asyncio.Event()
            task = asyncio.ensure_future(consume(seen.set))
            await seen.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    await consume(lambda limit=limit: limit.reschedule(0))
        output = await desk.to_its_end(ids_seen[0])
        assert (reason(output), output.output) == (("success", None), "all done"), n
        assert sorted(desk.ran) == ["look 1", "look 4", "pay 2", "pay 3"], n


@pytest.mark.parametrize("within", ["count() <= 8 per 1h", None], ids=["within a budget", "without a request"])
@pytest.mark.parametrize("way", ["thread", "stream"])
@awaited
async def test_an_allowed_call_whose_run_is_left_while_its_rule_decides_does_not_start(
    each_store: Store, way: str, within: str | None
) -> None:
    ran: list[int] = []
    is_asked, may_answer, has_ended = threading.Event(), threading.Event(), threading.Event()

    async def rule(n: int) -> object:
        is_asked.set()
        assert await asyncio.to_thread(may_answer.wait, 60)
        return policy.allow(budget=within)

    async def note(n: int) -> None:
        ran.append(n)

    pay = Tool(note, name="pay", requires_approval=rule)

    def in_thread() -> None:
        pay(n=1, run_id="left").run()
        has_ended.set()

    if way == "thread":
        task = asyncio.create_task(asyncio.to_thread(in_thread))
        assert await asyncio.to_thread(is_asked.wait, 60)
        task.cancel()
        await asyncio.wait([task])
        may_answer.set()
        assert await asyncio.to_thread(has_ended.wait, 60)
    else:
        events = aiter(pay(n=1, run_id="left"))
        await anext(events)
        assert await asyncio.to_thread(is_asked.wait, 60)
        task = asyncio.create_task(events.aclose())  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        may_answer.set()
        await task
    assert ran == []
    output = await pay(parent_id="left").collect()
    assert (reason(output), ran) == (("success", None), [1])


@awaited
async def test_a_stream_that_is_left_while_its_approval_can_be_undone_starts_nothing(
    each_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    refused, loop, start = asyncio.Event(), asyncio.get_running_loop(), each_store.start

    def refused_at_first(*args: Any, **options: Any) -> Any:
        try:
            return start(*args, **options)
        except errors.ApprovalHeldError:
            loop.call_soon_threadsafe(refused.set)
            raise

    pay = Tool(lambda n: ran.append(n), name="pay", requires_approval=True)  # noqa: PLW0108
    (request_id,) = ids(await pay(n=1, run_id="left").collect())
    sayso.Review(each_store, by="ada", undo_within="300ms").approve(request_id)
    monkeypatch.setattr(each_store, "start", refused_at_first)
    events = aiter(pay(parent_id="left"))
    await anext(events)
    await refused.wait()
    await events.aclose()  # type: ignore[attr-defined]
    assert (each_store.get(request_id).state, ran) == (State.APPROVED, [])
    output = await pay(parent_id="left").collect()
    assert (reason(output), ran) == (("success", None), [1])


@awaited
async def test_a_call_that_loses_its_run_to_another_worker_half_way_is_unknown(each_store: Store) -> None:
    ran: list[str] = []

    @sayso.gate(wait="raise")
    async def inner(n: int) -> int:
        ran.append("inner")
        holder = each_store.get_run("taken").run.holder  # its lease has ended, as another machine sees it
        each_store.take_run("taken", "another worker", gone=holder)
        each_store.leave_run(RunUpdate(each_store.get_run("taken").run, ()), RunState.BROKEN)
        return n

    async def handler(n: int) -> None:
        await inner(n)
        ran.append("after")

    pay = Tool(handler, name="pay", requires_approval=True)
    output = await pay(n=1, run_id="taken").collect()
    (outer,) = ids(output)
    output = await pay(resume=yes(output), parent_id="taken").collect()
    (nested,) = ids(output)
    output = await pay(resume=yes(output), parent_id="taken").collect()
    assert (reason(output), ran) == (("error", "outcome_unknown"), ["inner"])
    assert (each_store.get(outer).state, each_store.get(nested).state) == (State.UNKNOWN, State.DONE)


@awaited
async def test_a_second_cancellation_is_not_lost_while_a_stream_closes(each_store: Store) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        inside.set()
        await go.wait()

    events = aiter(agent_of([Tool(slow)], [("slow", {})])(prompt="go"))
    await anext(events)
    await anext(events)

    async def close() -> str:
        await events.aclose()  # type: ignore[attr-defined]
        return "closed"

    task = asyncio.ensure_future(close())
    await inside.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.01)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("gated", [False, True])
@awaited
async def test_a_gated_handler_that_is_cancelled_inside_is_unknown(each_store: Store, gated: bool) -> None:
    ran: list[str] = []
    inside = asyncio.Event()

    async def pay() -> str:
        ran.append("begun")
        inside.set()
        await asyncio.sleep(60)
        return "paid"

    async def look() -> str:
        ran.append("looked")
        return "seen"

    flow = Workflow(name="flow", requires_approval=gated).step(look)
    flow.step(Tool(pay, requires_approval=True, key="pay" if gated else None))
    output = await flow().collect()
    if gated:
        output = await flow(resume=yes(output)).collect()
    (held,) = ids(output)
    task = asyncio.ensure_future(flow(resume={held: True}).collect())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sayso.Review().get(held).state == "unknown"
    for _ in range(2):
        output = await flow(parent_id=output.run_id).collect()
        assert reason(output) == ("error", "outcome_unknown")
    assert sorted(ran) == ["begun", "looked"]
    sayso.Review(reviewer="ada").resolve(held, happened=True)
    output = await flow(parent_id=output.run_id).collect()
    assert (reason(output), sorted(ran)) == (("success", None), ["begun", "looked"])


@awaited
async def test_a_free_step_that_is_cancelled_inside_is_done_by_who_goes_on(each_store: Store) -> None:
    ran: list[str] = []
    inside = asyncio.Event()

    async def slow() -> str:
        ran.append("slow")
        inside.set()
        await asyncio.sleep(0 if len(ran) > 2 else 60)
        return "done"

    flow = Workflow(name="flow").step(lambda: ran.append("first"), name="first").step(slow, depends_on=["first"])
    task = asyncio.ensure_future(flow(run_id="order-1").collect())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert load_run("order-1").record.state == "broken"
    output = await flow(parent_id="order-1").collect()
    assert (reason(output), ran) == (("success", None), ["first", "slow", "slow"])


@awaited
async def test_a_run_in_hand_is_left_alone_by_all_others(each_store: Store) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def pay() -> str:
        inside.set()
        await go.wait()
        return "paid"

    tool = Tool(pay, requires_approval=True)
    paused = await tool().collect()
    first = asyncio.ensure_future(tool(resume=yes(paused)).collect())
    await inside.wait()
    second = await tool(resume=yes(paused)).collect()
    assert reason(second) == ("cancelled", "approval_already_claimed")
    go.set()
    assert reason(await first) == ("success", None)
