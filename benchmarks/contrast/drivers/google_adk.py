"""Google ADK: `require_confirmation`, with its session in SQLite; the answer is a function response of the user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool
from google.genai import types

from benchmarks.contrast.subject import Call, NotApplicable, Subject

REFUND = Call()
ASKS = "adk_request_confirmation"


class Scripted(BaseLlm):
    """Makes the call, and answers once it has a result."""

    call: Any
    run: str

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:  # noqa: FBT001, FBT002
        parts = [part for content in llm_request.contents for part in content.parts]
        is_over = any(part.function_response and part.function_response.name != ASKS for part in parts)
        made = types.FunctionCall(id=f"{self.run}-c1", name=self.call.tool, args=self.call.arguments)
        part = types.Part(text="done") if is_over else types.Part(function_call=made)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


class Alone(Subject):
    async def sent(self, part: Any, call: Call, run: str, *tools: Any) -> list[Any]:
        """Send a part to the agent as its user; return the function calls of its events."""
        agent = LlmAgent(name="agent", model=Scripted(model="scripted", call=call, run=run), tools=list(tools))
        service = SqliteSessionService(str(self.folder / "adk.db"))
        runner = Runner(app_name="shop", agent=agent, session_service=service, auto_create_session=True)
        message = types.Content(role="user", parts=[part])
        events = runner.run_async(user_id="u", session_id=run, new_message=message)
        return [made async for event in events for made in event.get_function_calls()]

    @property
    def held(self) -> list[FunctionTool]:
        return [FunctionTool(each, require_confirmation=True) for each in (self.tools.refund, self.tools.payout)]

    def ask(self, call: Call, run: str) -> Any:
        calls = asyncio.run(self.sent(types.Part(text="go"), call, run, *self.held))
        (asked,) = (made.id for made in calls if made.name == ASKS)
        return {"run": run, "id": asked}

    def decide(self, saved: Any, decision: str) -> Any:
        if decision == "edit":
            raise NotApplicable("with `require_confirmation` it has no edits")
        return {"id": saved["id"], "response": {"confirmed": True if decision == "approve" else decision}}

    def resume(self, saved: Any, answer: Any) -> None:
        response = types.FunctionResponse(id=answer["id"], name=ASKS, response=answer["response"])
        asyncio.run(self.sent(types.Part(function_response=response), REFUND, saved["run"], *self.held))

    async def chat(self, tool: Callable[..., Any], call: Call, run: str) -> None:
        raise NotApplicable("it runs a sync tool on the event loop, which stands still until the tool returns")
