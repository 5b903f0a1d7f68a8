"""Pydantic AI through the common suite, and what only this framework does."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import TypeAdapter

from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, WORDS, AdapterSuite, Outcome, Scene

framework("pydantic_ai", "pydantic_ai")

from pydantic_ai import Agent, DeferredToolRequests, RunContext  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402  # noqa: E402
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel  # noqa: E402

from sayso.integrations.pydantic_ai import Gate, resume, run_subagent  # noqa: E402

REQUESTS = TypeAdapter(DeferredToolRequests)


def model(scene: Scene, *, nested: bool = False) -> FunctionModel:
    """Return a model that emits the turns of a scene, by what the messages say is done."""

    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        calls = [ToolCallPart(call.tool, call.arguments, call.id) for call in scene.turn(turn, nested=nested)]
        return ModelResponse([TextPart(WORDS), *calls] if calls else [TextPart(ANSWER)])

    return FunctionModel(respond)


def agent_of(scene: Scene) -> Agent[None, Any]:
    functions: list[Any] = scene.tools
    output: Any = [str, DeferredToolRequests] if scene.mode == "pause" else str
    inner_gate = Gate[None](scene.held, wait=scene.mode, **scene.options)
    inner = Agent(model(scene, nested=True), tools=functions, output_type=output, capabilities=[inner_gate])

    async def delegate(ctx: RunContext[None], task: str) -> Any:
        return await run_subagent(inner, task, ctx)

    async def delegate_held(ctx: RunContext[None], task: str) -> Any:
        return await run_subagent(inner, task, ctx)

    outer_gate = Gate[None](scene.held, wait=scene.mode, **scene.options)
    tools = [*functions, delegate, delegate_held]
    return Agent(model(scene), tools=tools, output_type=output, capabilities=[outer_gate])


def outcome_of(result: Any) -> Outcome:
    parts = [part for message in result.all_messages() for part in message.parts]
    told = {part.tool_call_id: part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)}
    if not isinstance(result.output, DeferredToolRequests):
        return Outcome(None, told, result.output)
    return Outcome((result.all_messages_json(), REQUESTS.dump_json(result.output)), told, None)


class PydanticDriver:
    """An agent whose conversation is `scene.thread`, persisted as its messages and deferred requests."""

    modes: ClassVar = ("block", "pause")
    is_parallel: ClassVar = True
    has_subagents: ClassVar = True

    async def start(self, scene: Scene) -> Outcome:
        return outcome_of(await agent_of(scene).run("go", conversation_id=scene.thread))

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        messages, requests = saved
        result = await agent_of(scene).run(
            message_history=ModelMessagesTypeAdapter.validate_json(messages),
            deferred_tool_results=resume(REQUESTS.validate_json(requests)),
        )
        return outcome_of(result)


class TestPydanticAI(AdapterSuite):
    driver: ClassVar = PydanticDriver()
