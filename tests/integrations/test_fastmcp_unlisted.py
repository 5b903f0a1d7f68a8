"""Held tools that a server does not list, and equal calls, without the server's own library (see test_fastmcp.py)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import sayso
from sayso.integrations import fastmcp


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = SimpleNamespace(
        ToolResult=SimpleNamespace, CallToolResult=SimpleNamespace, TextContent=SimpleNamespace,
        get_access_token=lambda: None, parse_hashed_backend_name=lambda _: None,
    )  # fmt: skip
    monkeypatch.setattr(fastmcp, "_module", lambda _name: kinds)
    sayso.configure(store="memory:")


async def not_reached(_context: Any) -> Any:
    raise AssertionError("the call was passed on")


def test_a_held_tool_that_fastmcp_does_not_find_is_not_passed_on() -> None:
    async def get_tool(_name: str) -> None:
        return None

    context = SimpleNamespace(
        message=SimpleNamespace(name="wipe", arguments={}),
        fastmcp_context=SimpleNamespace(fastmcp=SimpleNamespace(get_tool=get_tool)),
    )
    result = asyncio.run(fastmcp.ApprovalMiddleware(["wipe"]).on_call_tool(context, not_reached))
    assert result.is_error is True
    assert "wipe was not run" in result.content[0].text


@pytest.mark.parametrize(("name", "arguments"), [("wipe", {}), ("listed", ["x"])])
def test_a_held_call_that_cannot_be_asked_about_is_not_passed_on(name: str, arguments: Any) -> None:
    async def list_tools() -> list[Any]:
        return [SimpleNamespace(name="listed")]

    asks = fastmcp.ServerApproval(SimpleNamespace(list_tools=list_tools))
    call = SimpleNamespace(method="tools/call", params={"name": name, "arguments": arguments})
    result = asyncio.run(asks(call, not_reached))
    assert result.is_error is True
    assert f"{name} was not run" in result.content[0].text


def test_two_equal_calls_at_once_are_two_requests_and_both_run() -> None:
    async def get_tool(_name: str) -> Any:
        return SimpleNamespace(name="refund", parameters={"type": "object"}, description=None)

    async def report_progress(*_: Any, **__: Any) -> None: ...

    async def run(_context: Any) -> Any:
        ran.append(1)
        return SimpleNamespace(is_error=False, content=[], structured_content=None)

    message = SimpleNamespace(name="refund", arguments={"amount": 1}, model_copy=lambda **_: message)
    here = SimpleNamespace(fastmcp=SimpleNamespace(get_tool=get_tool), report_progress=report_progress)
    context = SimpleNamespace(message=message, fastmcp_context=here, copy=lambda **_: context)
    ran, asks = list[int](), fastmcp.ApprovalMiddleware(wait="block")

    async def main() -> None:
        calls = [asyncio.ensure_future(asks.on_call_tool(context, run)) for _ in range(2)]
        async with asyncio.timeout(60):
            while len(waiting := list(sayso.Review().list())) < 2:
                assert not any(call.done() for call in calls)
                await asyncio.sleep(0.005)
            for request in waiting:
                sayso.Review().approve(request.id, by="ada")
            await asyncio.gather(*calls)

    asyncio.run(main())
    assert len(ran) == 2
