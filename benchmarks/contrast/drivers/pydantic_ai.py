"""Pydantic AI: deferred tools alone, and behind sayso; a run is its messages and its deferred requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelMessagesTypeAdapter

from benchmarks.contrast.drivers.plain import WRONG, Stored
from benchmarks.contrast.drivers.scene import scene_of
from benchmarks.contrast.subject import Call, Subject
from tests.integrations.adapters.test_pydantic_ai import REQUESTS, PydanticDriver, agent_of, model, outcome_of

REFUND = Call()
RESULTS = TypeAdapter(DeferredToolResults)


def as_json(saved: Any, run: str) -> Any:
    messages, requests = saved
    return {"run": run, "messages": messages.decode(), "requests": requests.decode()}


def results(saved: Any, decision: str) -> Any:
    """Return the answer for the requests of a run, as JSON."""
    requests = REQUESTS.validate_json(saved["requests"])
    edited = {"kind": "tool-approved", "override_args": {**REFUND.arguments, "amount": WRONG}}
    answer = {"approve": True, "no": "no", "edit": edited}[decision]
    return {"approvals": {call.tool_call_id: answer for call in requests.approvals}}


class Alone(Subject):
    def agent(self, call: Call, run: str) -> Agent[None, Any]:
        scene = scene_of(self.tools, call, run)
        tools = [Tool(function, requires_approval=True) for function in scene.tools]
        output: Any = [str, DeferredToolRequests]
        return Agent(model(scene), tools=tools, output_type=output)

    def ask(self, call: Call, run: str) -> Any:
        return as_json(outcome_of(self.agent(call, run).run_sync("go")).saved, run)

    def decide(self, saved: Any, decision: str) -> Any:
        return results(saved, decision)

    def resume(self, saved: Any, answer: Any) -> None:
        self.agent(REFUND, saved["run"]).run_sync(
            message_history=ModelMessagesTypeAdapter.validate_json(saved["messages"]),
            deferred_tool_results=RESULTS.validate_python(answer),
        )

    async def chat(self, tool: Callable[..., Any], call: Call, run: str) -> None:
        await Agent(model(scene_of(self.tools, call, run)), tools=[tool]).run("go")


class Sayso(Stored):
    def ask(self, call: Call, run: str) -> Any:
        outcome = asyncio.run(PydanticDriver().start(scene_of(self.tools, call, run, **self.options)))
        return as_json(outcome.saved, run)

    def native(self, saved: Any, decision: str) -> Any:
        return decision

    def resume(self, saved: Any, answer: Any) -> None:
        scene = scene_of(self.tools, REFUND, saved["run"], **self.options)
        asyncio.run(
            agent_of(scene).run(
                message_history=ModelMessagesTypeAdapter.validate_json(saved["messages"]),
                deferred_tool_results=RESULTS.validate_python(results(saved, answer)),  # the program's, and no person's
            )
        )

    async def block(self, call: Call, run: str) -> None:
        await PydanticDriver().start(scene_of(self.tools, call, run, "block"))
