"""`held_tool` as a tool of each framework that takes functions: the framework itself calls it.

A framework that is not installed is skipped. What a model is given is what the framework makes of the tool's result.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sayso import config, errors
from sayso.integrations.functions import held_tool
from sayso.model.request import State
from sayso.stores.base import Store
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import AdapterSuite, approve, everything, pending, reject, run_of
from tests.support.threads import few_threads

HELP = AdapterSuite()
ARGUMENTS = {"order_id": "A-1", "amount": 50.0}
Call = Callable[[], Awaitable[Any]]


class Till:
    """The tool, and what it did."""

    def __init__(self) -> None:
        self.refunds: list[float] = []

    def tool(self, **options: Any) -> Any:
        def refund(order_id: str, amount: float) -> str:
            """Refund an order.

            Args:
                order_id: The order.
                amount: How much.
            """
            self.refunds.append(amount)
            return f"refunded {amount:.2f} for {order_id}"

        return held_tool(refund, **options)


def plain_function(function: Any) -> Call:
    return lambda: function(**ARGUMENTS)


def strands(function: Any) -> Call:
    tool = importlib.import_module("strands").tool(function)

    async def call() -> Any:
        use = {"toolUseId": "c1", "name": "refund", "input": ARGUMENTS}
        return [event async for event in tool.stream(use, {})][-1]

    return call


def google_adk(function: Any) -> Call:
    tool = importlib.import_module("google.adk.tools").FunctionTool(function)
    return lambda: tool.run_async(args=dict(ARGUMENTS), tool_context=SimpleNamespace())


def agent_framework(function: Any) -> Call:
    tool = importlib.import_module("agent_framework").tool(function)

    async def call() -> Any:
        return "".join(content.text for content in await tool.invoke(arguments=dict(ARGUMENTS)))

    return call


def haystack(function: Any) -> Call:
    tool = importlib.import_module("haystack.tools").create_tool_from_function(function)
    return lambda: tool.invoke_async(**ARGUMENTS)


def agno(function: Any) -> Call:
    functions = importlib.import_module("agno.tools.function")
    made = functions.Function.from_callable(function)

    async def call() -> Any:
        done = functions.FunctionCall(function=made, arguments=dict(ARGUMENTS), call_id="c1")
        await done.aexecute()
        return done.result or done.error

    return call


def llamaindex(function: Any) -> Call:
    tool = importlib.import_module("llama_index.core.tools").FunctionTool.from_defaults(async_fn=function)
    return lambda: tool.acall(**ARGUMENTS)


def autogen(function: Any) -> Call:
    core = importlib.import_module("autogen_core")
    tool = importlib.import_module("autogen_core.tools").FunctionTool(function, description="Refund an order.")
    return lambda: tool.run_json(dict(ARGUMENTS), core.CancellationToken(), call_id="c1")


def semantic_kernel(function: Any) -> Call:
    kernel = importlib.import_module("semantic_kernel").Kernel()
    decorate = importlib.import_module("semantic_kernel.functions").kernel_function
    made = kernel.add_function("shop", decorate(function))
    return lambda: kernel.invoke(made, **ARGUMENTS)


FRAMEWORKS = {
    "plain": (plain_function, "asyncio"), "strands": (strands, "strands"), "google-adk": (google_adk, "google.adk"),
    "agent-framework": (agent_framework, "agent_framework"), "haystack": (haystack, "haystack"),
    "agno": (agno, "agno"), "llamaindex": (llamaindex, "llama_index.core"), "autogen": (autogen, "autogen_core"),
    "semantic-kernel": (semantic_kernel, "semantic_kernel"),
}  # fmt: skip


@pytest.fixture(params=FRAMEWORKS)
def as_tool(request: pytest.FixtureRequest) -> Callable[[Any], Call]:
    make, module = FRAMEWORKS[request.param]
    try:
        importlib.import_module(module)
    except ImportError:
        pytest.skip(f"NOT TESTED: {request.param} is not installed")
    return make


def told(call: Call, store: Store, decide: Callable[[Any], Any]) -> str:
    async def main() -> str:
        task = asyncio.ensure_future(call())
        await HELP.until(lambda: bool(pending(store)), task)
        decide(pending(store)[0])
        return str(await task)

    return asyncio.run(main())


def test_approved_call_runs_once(as_tool: Any, memory: Store) -> None:
    till = Till()
    assert "refunded 50.00 for A-1" in told(as_tool(till.tool()), memory, approve())
    assert till.refunds == [50.0]
    assert [request.state for request in everything(memory)] == [State.DONE]


def test_changed_call_runs_changed_and_the_model_is_told_so(as_tool: Any, memory: Store) -> None:
    till = Till()
    text = told(as_tool(till.tool()), memory, approve(changes={"amount": 20.0}, comment="half of it"))
    assert till.refunds == [20.0]
    assert "half of it" in text
    assert "refunded 20.00 for A-1" in text


def test_no_is_told_in_words(as_tool: Any, memory: Store) -> None:
    till = Till()
    text = told(as_tool(till.tool()), memory, reject("over the limit"))
    assert till.refunds == []
    assert "over the limit" in text
    assert "do not repeat this call" in text
    assert "Traceback" not in text


def test_rule_allows_without_asking(as_tool: Any, memory: Store) -> None:
    till = Till()

    async def main() -> Any:
        return await as_tool(till.tool(when=lambda amount: amount > 100))()

    assert "refunded 50.00" in str(asyncio.run(main()))
    assert everything(memory) == []


def test_cancelled_run_withdraws_and_starts_nothing(as_tool: Any, memory: Store) -> None:
    till = Till()

    async def main() -> None:
        task = asyncio.ensure_future(as_tool(till.tool())())
        await HELP.until(lambda: bool(pending(memory)), task)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await HELP.until(lambda: not pending(memory))

    asyncio.run(main())
    assert [request.state for request in everything(memory)] == [State.CANCELLED]
    assert till.refunds == []


@pytest.mark.parametrize("run", [None, "order-4721"])
def test_cancelled_while_the_request_is_recorded_asks_once_and_withdraws(
    run: str | None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = config.open_store(f"sqlite:///{place / 'cancelled.db'}")
    till = Till()

    async def main() -> None:
        loop, ask = asyncio.get_running_loop(), store.ask
        task = asyncio.ensure_future(till.tool(store=store, run=run)(**ARGUMENTS))

        def cancel_and_ask(*words: Any, **more: Any) -> Any:
            loop.call_soon_threadsafe(task.cancel)
            return ask(*words, **more)

        monkeypatch.setattr(store, "ask", cancel_and_ask)
        await asyncio.gather(task, return_exceptions=True)
        await HELP.until(lambda: bool(everything(store)) and not pending(store))

    asyncio.run(main())
    assert [request.state for request in everything(store)] == [State.CANCELLED]
    assert till.refunds == []


def test_fifty_calls_wait_at_once_without_a_thread_each(as_tool: Any, memory: Store) -> None:
    till = Till()
    call = as_tool(till.tool())

    async def main() -> list[str]:
        with few_threads() as begun:
            tasks = [asyncio.ensure_future(call()) for _ in range(50)]
            await HELP.until(lambda: len(pending(memory)) == 50)
            for request in pending(memory):
                approve()(request)
            await asyncio.gather(*tasks)
            return begun

    assert len(asyncio.run(main())) < 20
    assert till.refunds == [50.0] * 50


def test_nothing_runs_if_the_request_cannot_be_recorded(
    as_tool: Any, memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise errors.StoreFullError(memory.url)

    monkeypatch.setattr(memory, "ask", fail)
    till = Till()

    async def main() -> None:
        await asyncio.gather(as_tool(till.tool())(), return_exceptions=True)

    asyncio.run(main())
    assert till.refunds == []


def test_sync_tool_refuses_to_block_a_loop(memory: Store) -> None:
    till = Till()

    async def main() -> None:
        till.tool(sync=True)(**ARGUMENTS)

    with pytest.raises(errors.ConfigError, match="event loop"):
        asyncio.run(main())
    assert (till.refunds, everything(memory)) == ([], [])


def test_smolagents_takes_a_sync_tool(memory: Store) -> None:
    smolagents = pytest.importorskip("smolagents", reason="NOT TESTED: smolagents is not installed")
    till = Till()
    tool = smolagents.tool(till.tool(sync=True))
    call = lambda: asyncio.to_thread(lambda: tool(**ARGUMENTS))  # noqa: E731
    assert "over the limit" in told(call, memory, reject("over the limit"))
    assert "refunded 50.00" in told(call, memory, approve())
    assert till.refunds == [50.0]


@pytest.mark.parametrize(("program", "module"), [("llama_index", "llama_index.core"), ("smolagents", "smolagents")])
def test_program_waits_for_a_person(program: str, module: str, place: Path) -> None:
    framework(module, program)
    told = run_of(f"frameworks/{program}_refund.py", place, approve(changes={"amount": 30.0}))
    assert told.endswith("\n\nrefunded 30.00 for A-4721\n")
