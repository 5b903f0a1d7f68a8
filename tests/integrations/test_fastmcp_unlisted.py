"""Held tools that a server does not list, without the server's own library (see adapters/test_fastmcp.py)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import sayso
from sayso.integrations import fastmcp


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = SimpleNamespace(ToolResult=SimpleNamespace, CallToolResult=SimpleNamespace, TextContent=SimpleNamespace)
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
