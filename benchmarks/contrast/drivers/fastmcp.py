"""FastMCP: a tool that asks its client for the approval (input required), and sayso's middleware with tickets.

A server has a process of its own at each step, as behind a load balancer, with the key for its state that this needs.
The program keeps the call and what the server gave it, and calls again with both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import mcp_types
from fastmcp import Client, Context, FastMCP
from mcp.server.request_state import RequestStateSecurity

from benchmarks.contrast.drivers.plain import WRONG, Stored
from benchmarks.contrast.subject import Call, Subject
from sayso.integrations.fastmcp import ApprovalMiddleware

REFUND = Call()
KEY = b"one key for each process of it .."


class Alone(Subject):
    """The tool returns a form with a boolean and a number, and reads the answer when it is called again."""

    def server(self) -> FastMCP:
        shop = FastMCP("shop", request_state_security=RequestStateSecurity(keys=[KEY]))
        for function in (self.tools.refund, self.tools.payout):
            shop.tool(self.asking(function))
        return shop

    def asking(self, function: Callable[..., str]) -> Any:
        async def tool(order_id: str, amount: float, ctx: Context) -> str | mcp_types.InputRequiredResult:
            """Pay."""
            if ctx.input_responses is None:
                fields = {"approved": {"type": "boolean"}, "amount": {"type": "number"}}
                schema = {"type": "object", "properties": fields, "required": ["approved"]}
                form = mcp_types.ElicitRequestFormParams(message=f"{amount} for {order_id}?", requested_schema=schema)
                asked = {"approve": mcp_types.ElicitRequest(params=form)}
                return mcp_types.InputRequiredResult(input_requests=asked, request_state="asked")
            answer = ctx.input_responses["approve"]
            if answer.action != "accept" or not answer.content["approved"]:
                return "refused"
            return function(order_id, answer.content.get("amount", amount))

        tool.__name__ = function.__name__
        return tool

    async def call(self, call: Any, **answer: Any) -> Any:
        async with Client(self.server()) as client:
            return await client.session.call_tool(
                name=call["tool"], arguments=call["arguments"], allow_input_required=True, **answer
            )

    def ask(self, call: Call, run: str) -> Any:
        made = {"tool": call.tool, "arguments": call.arguments}
        return {"call": made, "state": asyncio.run(self.call(made)).request_state}

    def decide(self, saved: Any, decision: str) -> Any:
        content = {"approve": {"approved": True}, "no": {"approved": "no"}, "edit": {"approved": True, "amount": WRONG}}
        return {"state": saved["state"], "content": content[decision]}

    def resume(self, saved: Any, answer: Any) -> None:
        given = {"approve": mcp_types.ElicitResult(action="accept", content=answer["content"])}
        asyncio.run(self.call(saved["call"], input_responses=given, request_state=answer["state"]))

    async def chat(self, tool: Callable[..., Any], call: Call, run: str) -> None:
        shop = FastMCP("shop")
        shop.tool(tool)
        async with Client(shop) as client:
            await client.call_tool("refund", call.arguments)


class Sayso(Stored):
    """The middleware holds the tools of the server; the run is the client's, and a call made again finds its ticket."""

    def server_of(self, run: str, wait: str) -> FastMCP:
        held = ApprovalMiddleware(["refund", "payout"], wait=wait, run=run, **self.options)  # type: ignore[arg-type]
        shop = FastMCP("shop", middleware=[held])
        for function in (self.tools.refund, self.tools.payout):
            shop.tool(function)
        return shop

    async def call(self, saved: Any, wait: str = "ticket") -> Any:
        async with Client(self.server_of(saved["run"], wait)) as client:
            return await client.call_tool(saved["tool"], saved["arguments"], raise_on_error=False)

    def ask(self, call: Call, run: str) -> Any:
        saved = {"run": run, "tool": call.tool, "arguments": call.arguments}
        asyncio.run(self.call(saved))
        return saved

    def resume(self, saved: Any, answer: Any) -> None:
        result = asyncio.run(self.call(saved))
        print(json.dumps([block.text for block in result.content]))

    async def block(self, call: Call, run: str) -> None:
        await self.call({"run": run, "tool": call.tool, "arguments": call.arguments}, "block")
