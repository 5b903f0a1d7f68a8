"""How many calls a worker makes at a time, and what it says of itself to a probe."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from sayso import Agent, OutputEvent, Tool, errors
from sayso.model.request import State
from sayso.runs.worker import Limits, Report, Worker
from sayso.stores.base import Store
from sayso.testing import ScriptedModel
from tests.runs.test_worker import approve, bounded, endings, gated, until, work
from tests.support.running import agent_of, awaited, ids

pytestmark = pytest.mark.usefixtures("store")


class Busy:
    """Handlers that count how many of them are under way; the first ones stay until there are `wanted` of them."""

    def __init__(self, wanted: int = 1) -> None:
        self.now, self.most = Counter[str](), Counter[str]()
        self._wanted, self._are_there = wanted, asyncio.Event()

    async def during(self, name: str) -> None:
        for one in (name, "all"):
            self.now[one] += 1
            self.most[one] = max(self.most[one], self.now[one])
        if self.now["all"] >= self._wanted:
            self._are_there.set()
        await asyncio.wait_for(self._are_there.wait(), 60)
        for _ in range(20):  # for one too many to come
            await asyncio.sleep(0)
        self.now.subtract([name, "all"])

    def tool(self, name: str) -> Tool:
        async def handler(amount: int) -> None:
            await self.during(name)

        return gated(handler, name=name)


async def held(*tools: Tool, each: int) -> list[OutputEvent]:
    """Begin so many runs of each tool, and approve them."""
    outputs = [await tool(amount=n).collect() for tool in tools for n in range(each)]
    for output in outputs:
        approve(output)
    return outputs


@awaited
async def test_calls_are_limited_for_each_tool_and_for_all() -> None:
    busy = Busy(wanted=3)
    tools = [busy.tool("pay"), busy.tool("ship")]
    await held(*tools, each=8)
    told = await work(*tools, concurrency=16, limits=Limits(3, {"pay": 1}))
    assert endings(told) == ["done"] * 16
    assert (busy.most["pay"], busy.most["all"]) == (1, 3)
    assert busy.most["ship"] > 1


@awaited
async def test_a_tool_inside_of_an_agent_has_its_limit_too() -> None:
    busy = Busy()
    clerk = agent_of([busy.tool("pay")], ("pay", {"amount": 1}), name="clerk")
    for output in [await clerk(prompt="").collect() for _ in range(4)]:
        approve(output)
    assert endings(await work(clerk, concurrency=4, limits=Limits(by_tool={"pay": 1}))) == ["done"] * 4
    assert busy.most["pay"] == 1


@awaited
async def test_a_tool_that_calls_a_tool_does_not_wait_for_its_own_place() -> None:
    inner = Tool(lambda: "inside", name="inner")

    async def outer(amount: int) -> Any:
        return (await inner().collect()).output

    tool = gated(outer, name="outer")
    await held(tool, each=2)
    limits = Limits(1, {"outer": 1})
    assert endings(await work(tool, limits=limits)) == ["done", "done"]
    assert limits.going.total() == 0


@awaited
async def test_what_waits_for_a_place_when_the_worker_is_stopped_was_not_started(store: Store) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def pay(amount: int) -> None:
        inside.set()
        await go.wait()

    tool, told = gated(pay, name="pay"), list[Report]()
    outputs = await held(tool, each=2)
    served = Worker([tool], limits=Limits(1), grace="1h", on_report=told.append)
    going = asyncio.create_task(served.run())
    await inside.wait()
    await until(lambda: [one.run is not None for one in served._known.values()] == [True, True])  # both are begun
    served.stop()
    go.set()
    await bounded(going)
    assert sorted(endings(told)) == ["done", "handed_back"]
    assert sorted(store.get(ids(output)[0]).state for output in outputs) == [State.APPROVED, State.DONE]


def test_a_limit_of_a_tool_that_nobody_has_is_refused() -> None:
    clerk = Agent(name="clerk", model=ScriptedModel([]), tools=[gated(name="pay")])
    with pytest.raises(errors.ConfigError, match=r"'refund'.*pay"):
        Worker([clerk], limits=Limits(by_tool={"refund": 1}))
    for most in (0, True, 1.5):
        with pytest.raises(errors.ConfigError, match="at least 1"):
            Limits(most)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@awaited
async def test_a_worker_says_how_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def pay(amount: int) -> None:
        inside.set()
        await go.wait()

    tool = gated(pay, name="pay")
    served = Worker([tool], concurrency=2, limits=Limits(5, {"pay": 3}), grace="1h")
    assert served.health()["status"] == "starting"
    going = asyncio.create_task(served.run())
    await held(tool, each=1)
    await inside.wait()
    health = served.health()
    assert health.pop("last_look") >= 0
    assert health == {
        "status": "ok", "runs": 1, "concurrency": 2, "backlog": 0, "calls": {"pay": 1}, "limit": 5,
        "limits": {"pay": 3}, "ended": {},
    }  # fmt: skip
    with monkeypatch.context() as patched:
        later = time.monotonic() + 11
        patched.setattr("sayso.runs.worker.time.monotonic", lambda: later)
        assert served.health()["status"] == "stuck"
    served.stop()
    assert served.health()["status"] == "draining"
    go.set()
    await bounded(going)
    assert served.health()["ended"] == {"done": 1}


@awaited
async def test_a_worker_whose_store_fails_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise errors.StoreUnavailableError("away")

    with monkeypatch.context() as patched:
        patched.setattr(type(store), "ready_runs", fails)
        served = Worker([gated()])
        going = asyncio.create_task(served.run())
        await until(lambda: served.health()["status"] == "store_failing")
    await until(lambda: served.health()["status"] == "ok")
    served.stop()
    await bounded(going)
