"""Microsoft agent-framework: `approval_mode="always_require"`; a run is its session and the request for an approval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from benchmarks.contrast.subject import Call, NotApplicable, Subject

REFUND = Call()


class Model(FunctionInvocationLayer, BaseChatClient):
    """Makes the call, and answers once it has a result."""

    def __init__(self, call: Call, run: str) -> None:
        super().__init__()
        self.made = Content.from_function_call(f"{run}-c1", call.tool, arguments=call.arguments)

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        async def respond() -> Any:
            is_over = any(content.type == "function_result" for message in messages for content in message.contents)
            return ChatResponse(messages=[Message("assistant", ["done"] if is_over else [self.made])])

        return respond()


class Alone(Subject):
    def agent(self, call: Call, run: str) -> Any:
        tools = [tool(each, approval_mode="always_require") for each in (self.tools.refund, self.tools.payout)]
        return Agent(Model(call, run), tools=tools)

    def ask(self, call: Call, run: str) -> Any:
        async def main() -> Any:
            agent, session = self.agent(call, run), AgentSession()
            (request,) = (await agent.run("go", session=session)).user_input_requests
            return {"run": run, "session": session.to_dict(), "request": request.to_dict()}

        return asyncio.run(main())

    def decide(self, saved: Any, decision: str) -> Any:
        if decision == "edit":
            raise NotApplicable("it has no edits")
        approved: Any = True if decision == "approve" else decision
        return Content.from_dict(saved["request"]).to_function_approval_response(approved).to_dict()

    def resume(self, saved: Any, answer: Any) -> None:
        session = AgentSession.from_dict(saved["session"])
        message = Message("user", [Content.from_dict(answer)])
        asyncio.run(self.agent(REFUND, saved["run"]).run(message, session=session))

    async def chat(self, tool: Callable[..., Any], call: Call, run: str) -> None:
        await Agent(Model(call, run), tools=[tool]).run("go")
