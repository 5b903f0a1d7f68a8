"""Servers of FastMCP and of the official SDK behind sayso, called by their own clients.

Needs `pip install "sayso[fastmcp]"`; without it everything here is skipped, unless SAYSO_FRAMEWORKS=required.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.stores.base import Store
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import AdapterSuite, approve, everything, pending, reject, run_of

fastmcp: Any = framework("fastmcp", "fastmcp")
mcpserver: Any = framework("mcp.server.mcpserver", "fastmcp")
from sayso.integrations.fastmcp import ApprovalMiddleware, ServerApproval  # noqa: E402  needs the framework

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
HELP = AdapterSuite()


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

        if kind == "fastmcp":
            self.server = fastmcp.FastMCP("shop", middleware=[ApprovalMiddleware(["ref*"], **options)])
        else:
            self.server = mcpserver.MCPServer("shop")
            self.server.middleware.append(ServerApproval(self.server, ["ref*"], **options))
        for tool in (refund, lookup):
            self.server.tool()(tool)

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


def test_change_that_does_not_fit_the_tools_schema_is_refused(kind: str, memory: Store) -> None:
    def bungle(request: Any) -> None:
        with pytest.raises(errors.SaysoError):
            sayso.Review(by="ada").approve(request.id, changes={"amount": "much"})
        approve()(request)

    assert in_block(kind, memory, bungle)[0].refunds == [50.0]


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


def test_free_tools_and_calls_that_a_rule_allows_ask_nobody(kind: str, memory: Store) -> None:
    shop = Shop(kind, when=lambda amount: amount > 100)

    async def main() -> Any:
        async with shop.client() as client:
            await client.call_tool("lookup", {"order_id": "A-1"})
            return await refund(client)

    assert text(asyncio.run(main())) == "refunded 50.00 for A-1"
    assert (shop.refunds, shop.looked_up, everything(memory)) == ([50.0], 1, [])


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


def test_client_that_gives_up_withdraws_and_starts_nothing(kind: str, memory: Store) -> None:
    shop = Shop(kind, wait="block")

    async def main() -> None:
        async with shop.client() as client:
            task = asyncio.ensure_future(refund(client))
            await HELP.until(lambda: bool(pending(memory)), task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await HELP.until(lambda: not pending(memory))

    asyncio.run(main())
    assert [request.state for request in everything(memory)] == [State.CANCELLED]
    assert shop.refunds == []


def test_nothing_runs_if_the_request_cannot_be_recorded(
    kind: str, memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise errors.StoreFullError(memory.url)

    monkeypatch.setattr(memory, "ask", fail)
    shop = Shop(kind)

    async def main() -> Any:
        async with shop.client() as client:
            return await asyncio.gather(refund(client), return_exceptions=True)

    asyncio.run(main())
    assert shop.refunds == []


def test_fifty_calls_wait_in_the_inbox_at_once(kind: str, memory: Store) -> None:
    shop = Shop(kind, wait="block")

    async def main() -> None:
        async with shop.client() as client:
            tasks = [asyncio.ensure_future(refund(client, amount)) for amount in range(100, 150)]
            await HELP.until(lambda: len(pending(memory)) == 50)
            for request in pending(memory):
                approve()(request)
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert sorted(shop.refunds) == list(range(100, 150))


def test_options_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match="wait="):
        ApprovalMiddleware(wait="later")  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="tools="):
        ApprovalMiddleware("refund")
    with pytest.raises(TypeError, match="quorums"):
        ApprovalMiddleware(quorums=2)  # type: ignore[call-arg]


def test_example_waits_and_refunds_what_was_approved(place: Path) -> None:
    told = run_of("fastmcp_refund.py", place, approve(changes={"amount": 30.0}))
    assert "refunded 30.00 for A-4721" in told
