"""Servers of FastMCP and of the official SDK through the common suite, and what is peculiar to them.

Needs `pip install "sayso[fastmcp]"`; without it everything here is skipped, unless SAYSO_FRAMEWORKS=required. A server
has no agent, so a client plays the model: it makes the calls of a turn at once, and those that got a ticket again.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import (
    ANSWER,
    AdapterSuite,
    ModelCall,
    Outcome,
    Scene,
    approve,
    everything,
    pending,
    reject,
    run_of,
)

fastmcp: Any = framework("fastmcp", "fastmcp")
mcpserver: Any = framework("mcp.server.mcpserver", "fastmcp")
from sayso.integrations.fastmcp import ApprovalMiddleware, ServerApproval  # noqa: E402  needs the framework

HELP = AdapterSuite()
NO_ID = "calls are known by tool and arguments"


def server_of(kind: str, held: Sequence[str], tools: Sequence[Callable[..., str]], **options: Any) -> Any:
    """Return a server as a user would make it."""
    if kind == "fastmcp":
        server = fastmcp.FastMCP("shop", middleware=[ApprovalMiddleware(held, **options)])
    else:
        server = mcpserver.MCPServer("shop")
        server.middleware.append(ServerApproval(server, held, **options))
    for tool in tools:
        server.tool()(tool)
    return server


async def told_by(client: Any, tool: str, arguments: dict[str, Any]) -> str:
    """Call a tool; a call whose decision another client is just carrying out is made again, as its ticket says."""
    while True:
        told = text(await client.call_tool(tool, arguments, raise_on_error=False))
        (found,) = re.findall(r"must approve (rq_\w+)", told) or [None]
        if found is None or sayso.Review().get(found).state is State.PENDING:
            return told
        await asyncio.sleep(0.005)


class FastMCP:
    """A client and its server. Saved are the turn, what its calls were told, and the calls that got a ticket."""

    modes: ClassVar = ("block", "pause")
    is_parallel: ClassVar = True
    has_subagents: ClassVar = False
    kind: ClassVar = "fastmcp"
    scene: Scene | None = None
    cannot: ClassVar[dict[str, str]] = {
        "the_models_words": "reviewers do not see what the model wrote",
        "swapped_arguments_are_refused": NO_ID,
        "ten_concurrent_replays_start_once_and_tell_the_same": NO_ID,
        "two_equal_calls_of_one_turn_are_two_requests[pause]": NO_ID,
    }

    async def start(self, scene: Scene) -> Outcome:
        self.scene = scene
        return await self.go(scene, 0, {}, scene.turn(0))

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        return await self.go(scene, *saved)

    async def go(self, scene: Scene, number: int, told: dict[str, str], calls: Sequence[ModelCall]) -> Outcome:
        waits = {"wait": "block"} if scene.mode == "block" else {"wait": "ticket", "run": scene.thread}
        async with fastmcp.Client(server_of(self.kind, scene.held, scene.tools, **waits, **scene.options)) as client:
            while calls:
                results = await asyncio.gather(*(told_by(client, call.tool, call.arguments) for call in calls))
                left = [call for call, words in zip(calls, results, strict=True) if words.startswith("Not run yet")]
                told |= {call.id: words for call, words in zip(calls, results, strict=True) if call not in left}
                if left:
                    return Outcome((number, dict(told), left), told, None)
                number += 1
                calls = scene.turn(number)
        return Outcome(None, told, ANSWER)


class SDK(FastMCP):
    kind: ClassVar = "sdk"
    cannot: ClassVar = {
        **FastMCP.cannot,
        "call_that_fails_is_recorded_and_not_run_again": "a client is not told why a tool failed",
    }


class TestFastMCP(AdapterSuite):
    driver = FastMCP()


class TestSDK(AdapterSuite):
    driver = SDK()


class Shop:
    """A server with a held tool and a free one."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.refunds: list[float] = []
        self.looked_up = 0

        def refund(order_id: str, amount: float) -> str:
            """Refund an order."""
            if amount == 13:
                raise ValueError("the bank is closed")
            self.refunds.append(amount)
            return f"refunded {amount:.2f} for {order_id}"

        def lookup(order_id: str) -> str:
            """Look an order up."""
            self.looked_up += 1
            return f"{order_id} was paid twice"

        self.server = server_of(kind, ["ref*"], [refund, lookup], **options)

    def client(self) -> Any:
        return fastmcp.Client(self.server)


async def refund(client: Any, amount: float = 50.0, **options: Any) -> Any:
    return await client.call_tool("refund", {"order_id": "A-1", "amount": amount}, raise_on_error=False, **options)


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


@pytest.fixture(params=["fastmcp", "sdk"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def in_block(kind: str, store: Store, decide: Callable[[Any], Any]) -> tuple[Shop, Any]:
    shop = Shop(kind, wait="block")

    async def main() -> Any:
        async with shop.client() as client:
            task = asyncio.ensure_future(refund(client))
            await HELP.until(lambda: bool(pending(store)), task)
            decide(pending(store)[0])
            return await task

    return shop, asyncio.run(main())


def test_approved_call_runs_once_and_comes_back_as_it_is(kind: str, memory: Store) -> None:
    shop, result = in_block(kind, memory, approve())
    assert (shop.refunds, text(result), result.is_error) == ([50.0], "refunded 50.00 for A-1", False)
    assert result.structured_content == {"result": "refunded 50.00 for A-1"}
    assert [request.state for request in everything(memory)] == [State.DONE]


def test_changed_call_is_told_before_its_result(kind: str, memory: Store) -> None:
    shop, result = in_block(kind, memory, approve(changes={"amount": 20.0}, comment="half of it"))
    assert shop.refunds == [20.0]
    assert "half of it" in text(result)
    assert text(result).endswith("refunded 20.00 for A-1")
    assert result.structured_content == {"result": "refunded 20.00 for A-1"}


def test_no_is_a_result_in_words_and_no_traceback(kind: str, memory: Store, caplog: pytest.LogCaptureFixture) -> None:
    shop, result = in_block(kind, memory, reject("over the limit"))
    (request,) = everything(memory)
    assert (shop.refunds, result.is_error) == ([], True)
    assert text(result) == request.message_for_model()
    assert "over the limit" in text(result)
    assert "Traceback" not in caplog.text


def test_failed_tool_is_told_by_the_framework_and_recorded(kind: str, memory: Store) -> None:
    shop = Shop(kind, when=lambda amount: amount > 0, wait="block")

    async def main() -> Any:
        async with shop.client() as client:
            task = asyncio.ensure_future(refund(client, 13))
            await HELP.until(lambda: bool(pending(memory)), task)
            approve()(pending(memory)[0])
            return await task

    assert asyncio.run(main()).is_error
    assert [request.state for request in everything(memory)] == [State.FAILED]


def test_ticket_is_given_at_once_and_the_same_call_finds_its_result(kind: str, memory: Store) -> None:
    shop = Shop(kind, wait="ticket")

    async def main() -> list[Any]:
        async with shop.client() as client:
            first = await refund(client)
            again = await refund(client)
            assert shop.refunds == []
            approve()(pending(memory)[0])
            return [first, again, *await asyncio.gather(*(refund(client) for _ in range(10)))]

    first, again, *others = asyncio.run(main())
    assert "call again with the same arguments" in text(first)
    assert text(first) == text(again)
    assert shop.refunds == [50.0]
    told = {text(result) for result in others}
    assert "refunded 50.00 for A-1" in told
    assert all(words.startswith(("refunded", "Not run yet")) for words in told)  # what comes after the result is anew


def test_equal_call_after_the_result_waits_anew_and_after_a_no_is_told_it_again(kind: str, memory: Store) -> None:
    shop = Shop(kind, wait="ticket")

    async def main() -> list[str]:
        async with shop.client() as client:
            await refund(client)
            approve()(pending(memory)[0])
            told = [text(await refund(client)), text(await refund(client))]
            reject("once is enough")(pending(memory)[0])
            return [*told, text(await refund(client)), text(await refund(client))]

    done, anew, no, still_no = asyncio.run(main())
    assert done == "refunded 50.00 for A-1"
    assert "Not run yet" in anew
    assert "once is enough" in no
    assert no == still_no
    assert (shop.refunds, len(everything(memory))) == ([50.0], 2)


def test_after_a_restart_an_equal_call_gets_the_result_for_ten_minutes_and_then_waits_anew(
    kind: str, memory: Store, clock: Clock
) -> None:
    async def told() -> str:
        shop = Shop(kind, wait="ticket", run="shop")  # as after each restart
        async with shop.client() as client:
            return text(await refund(client))

    async def main() -> list[str]:
        first = await told()
        approve()(pending(memory)[0])
        results = [await told()]
        clock.at += timedelta(minutes=9)
        results.append(await told())
        clock.at += timedelta(minutes=2)
        return [first, *results, await told()]

    first, done, again, anew = asyncio.run(main())
    assert done == again == "refunded 50.00 for A-1"
    assert "Not run yet" in first
    assert "Not run yet" in anew
    assert len(everything(memory)) == 2


def test_options_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match="wait="):
        ApprovalMiddleware(wait="later")  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="tools="):
        ApprovalMiddleware("refund")
    with pytest.raises(TypeError, match="quorums"):
        ApprovalMiddleware(quorums=2)  # type: ignore[call-arg]


async def told_to(client: Any, *tools: str) -> list[str]:
    results = [await client.call_tool(tool, {"order_id": "A-1"}, raise_on_error=False) for tool in tools]
    return [text(result) for result in results]


def lookup(order_id: str) -> str:
    """Look an order up."""
    return f"{order_id} was paid twice"


def test_name_that_no_tool_has_is_an_error_of_the_list_and_of_each_call(kind: str, memory: Store) -> None:
    ran = list[str]()

    def refund(order_id: str) -> str:
        ran.append(order_id)
        return "refunded"

    server = server_of(kind, ["refnd"], [refund, lookup])

    async def main() -> list[str]:
        async with fastmcp.Client(server) as client:
            with pytest.raises(Exception, match="Internal server error"):
                await client.list_tools()
            told = await told_to(client, "refund", "lookup", "refnd")
            server.tool(name="refnd")(refund)  # a tool that comes later
            assert len(await client.list_tools()) == 3
            return [*told, *await told_to(client, "lookup")]

    *refused, passed = asyncio.run(main())
    assert all("there is no tool 'refnd' to hold, only lookup, refund" in words for words in refused)
    assert (len(refused), passed, ran, everything(memory)) == (3, "A-1 was paid twice", [], [])


def hidden(server: Any) -> None:
    server.disable(names={"refund"})


def behind_a_catalog(server: Any) -> None:
    server.add_transform(importlib.import_module("fastmcp.server.transforms.search").RegexSearchTransform())


def for_others(server: Any) -> None:
    server.local_provider.remove_tool("refund")
    server.tool(name="refund", auth=lambda _: False)(lambda: None)


@pytest.mark.parametrize("hide", [hidden, behind_a_catalog, for_others])
@pytest.mark.parametrize("names", [["refund"], ["ref*"]])
@pytest.mark.parametrize("is_mounted", [False, True])
def test_name_of_a_tool_that_the_client_is_not_shown_is_no_error(
    hide: Callable[[Any], None], names: list[str], is_mounted: bool, memory: Store
) -> None:
    server = shop = fastmcp.FastMCP("shop")
    shop.tool(name="refund")(lambda: None)
    shop.tool()(lookup)
    hide(shop)
    if is_mounted:
        server = fastmcp.FastMCP("all")
        server.mount(shop, namespace="shop")
        names = [f"shop_{name}" for name in names]
    server.add_middleware(ApprovalMiddleware(names))

    async def main() -> list[str]:
        async with fastmcp.Client(server) as client:
            assert await client.list_tools()
            return await told_to(client, "shop_lookup" if is_mounted else "lookup")

    assert asyncio.run(main()) == ["A-1 was paid twice"]
    assert everything(memory) == []


def test_name_of_a_tool_that_its_provider_finds_and_does_not_list_is_no_error(memory: Store) -> None:
    providers, tools = importlib.import_module("fastmcp.server.providers"), importlib.import_module("fastmcp.tools")

    class Finds(providers.Provider):
        async def _get_tool(self, name: str, _: Any = None) -> Any:
            return tools.Tool.from_function(lambda: None, name=name) if name == "refund" else None

    server = fastmcp.FastMCP("shop", providers=[Finds()], middleware=[ApprovalMiddleware(["refund"])])
    server.tool()(lookup)

    async def main() -> list[str]:
        async with fastmcp.Client(server) as client:
            return await told_to(client, "lookup")

    assert asyncio.run(main()) == ["A-1 was paid twice"]


@pytest.mark.parametrize("is_mounted", [False, True])
def test_call_by_the_name_with_a_hash_that_apps_use_is_held(is_mounted: bool, memory: Store) -> None:
    app, ran = fastmcp.FastMCPApp("till"), list[str]()

    def refund(order_id: str) -> str:
        ran.append(order_id)
        return "refunded"

    app.tool()(refund)
    app.tool()(lookup)
    server = shop = fastmcp.FastMCP("shop", providers=[app])
    held = "refund"
    if is_mounted:
        server, held = fastmcp.FastMCP("all"), "shop_refund"
        server.mount(shop, namespace="shop")
    server.add_middleware(ApprovalMiddleware([held], wait="ticket"))
    hashed = importlib.import_module("fastmcp.server.providers.addressing").hashed_backend_name

    async def main() -> list[str]:
        async with fastmcp.Client(server) as client:
            first = await told_to(client, hashed("till", "lookup"), hashed("till", "refund"), held)
            assert ran == []
            (request,) = pending(memory)
            assert request.call.name == held
            approve()(request)
            return [*first, *await told_to(client, hashed("till", "refund"))]

    free, ticket, again, done = asyncio.run(main())
    assert (free, again, done, ran) == ("A-1 was paid twice", ticket, "refunded", ["A-1"])


def test_call_by_a_hash_that_no_listed_tool_has_is_refused(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    app, ran = fastmcp.FastMCPApp("till"), list[str]()

    def refund(order_id: str) -> str:
        ran.append(order_id)
        return "refunded"

    app.tool()(refund)
    server = fastmcp.FastMCP("shop", providers=[app], middleware=[ApprovalMiddleware(["refund"], wait="ticket")])
    server.tool()(lookup)
    hashed = importlib.import_module("fastmcp.server.providers.addressing").hashed_backend_name
    names_of = importlib.import_module("sayso.integrations.fastmcp")

    async def nothing(provider: Any, failures: list[Exception]) -> list[Any]:
        failures.append(OSError("the provider lists nothing now"))
        return []

    async def main() -> list[str]:
        async with fastmcp.Client(server) as client:
            monkeypatch.setattr(names_of, "_every_tool", nothing)
            return await told_to(client, hashed("till", "refund"))

    (told,) = asyncio.run(main())
    assert "no tool of this name" in told
    assert (ran, pending(memory)) == ([], [])


def test_name_without_the_namespace_of_a_mounted_server_is_an_error(memory: Store) -> None:
    server, shop = fastmcp.FastMCP("all", middleware=[ApprovalMiddleware(["lookup"])]), fastmcp.FastMCP("shop")
    shop.tool()(lookup)
    server.mount(shop, namespace="shop")

    async def main() -> list[str]:
        async with fastmcp.Client(server) as client:
            return await told_to(client, "shop_lookup")

    (told,) = asyncio.run(main())
    assert "there is no tool 'lookup' to hold, only shop_lookup" in told


def test_name_that_a_proxied_server_may_have_is_warned_about_and_stops_a_similar_call(memory: Store) -> None:
    ran = list[str]()

    def refund(order_id: str) -> str:
        ran.append(order_id)
        return "refunded"

    bank, is_away = fastmcp.FastMCP("bank"), [True]
    bank.tool()(refund)

    def connect() -> Any:
        if is_away:
            raise ConnectionError("the bank is away")
        return fastmcp.Client(bank)

    proxy = importlib.import_module("fastmcp.server.providers.proxy").ProxyProvider(connect, cache_ttl=0)
    shop = fastmcp.FastMCP("shop", providers=[proxy])
    server = fastmcp.FastMCP("all", middleware=[ApprovalMiddleware(["refnd"])])
    server.tool()(lookup)
    server.mount(shop)  # which itself skips a provider that fails

    async def main() -> list[str]:
        async with fastmcp.Client(server) as client:
            with pytest.warns(RuntimeWarning, match="no known tool matches 'refnd'"):
                assert [tool.name for tool in await client.list_tools()] == ["lookup"]
            told = await told_to(client, "lookup", "refund")  # a second warning would be an error
            is_away.clear()
            return [*told, *await told_to(client, "refund", "lookup")]

    passed, near, *others = asyncio.run(main())
    assert passed == "A-1 was paid twice"
    assert "refund is not among the tools to hold, but 'refnd' is" in near
    assert all("there is no tool 'refnd' to hold, only lookup, refund" in words for words in others)
    assert (ran, everything(memory)) == ([], [])


def test_example_waits_and_refunds_what_was_approved(place: Path) -> None:
    told = run_of("fastmcp_refund.py", place, approve(changes={"amount": 30.0}))
    assert "refunded 30.00 for A-4721" in told
