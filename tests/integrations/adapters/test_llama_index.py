"""LlamaIndex through the common suite: its agent, with held functions as tools."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from sayso.integrations.functions import held_tool
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, HELD, WORDS, AdapterSuite, BlockingDriver, Outcome, Scene

framework("llama_index.core", "functions")
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult  # noqa: E402
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock  # noqa: E402
from llama_index.core.llms.mock import MockFunctionCallingLLM  # noqa: E402
from llama_index.core.tools import FunctionTool  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own use of pydantic
NO_ID = "a retry asks again"


def agent_of(scene: Scene, *, nested: bool = False) -> Any:
    def script(messages: Any, **_: Any) -> Any:
        turn = sum(message.role == "assistant" for message in messages)
        calls = scene.turn(turn, nested=nested)
        blocks = [TextBlock(text=WORDS if calls else ANSWER)]
        blocks += [ToolCallBlock(tool_call_id=c.id, tool_name=c.tool, tool_kwargs=dict(c.arguments)) for c in calls]
        return ChatMessage(role="assistant", blocks=blocks)

    async def delegate(task: str) -> str:
        """Hand a task to another agent."""
        return str(await agent_of(scene, nested=True).run(task))

    free = [function for function in scene.tools if function.__name__ not in HELD]
    held = [held_tool(function, **scene.options) for function in scene.tools if function.__name__ in HELD]
    tools = [FunctionTool.from_defaults(fn=function) for function in free]
    tools += [FunctionTool.from_defaults(async_fn=function) for function in [*held, delegate]]
    return FunctionAgent(llm=MockFunctionCallingLLM(response_generator=script), tools=tools, streaming=False)


class LlamaIndexDriver(BlockingDriver):
    """An agent of functions."""

    scene: Scene | None = None
    cannot: ClassVar = {
        "the_models_words": "reviewers do not see what the model wrote",
        "swapped_arguments_are_refused": NO_ID,
        "ten_concurrent_replays_start_once_and_tell_the_same": NO_ID,
    }

    async def start(self, scene: Scene) -> Outcome:
        self.scene = scene
        run, told = agent_of(scene).run("go"), dict[str, str]()
        try:
            async for event in run.stream_events():
                if isinstance(event, ToolCallResult):
                    told[event.tool_id] = str(event.tool_output.content)
            return Outcome(None, told, str(await run))
        finally:
            if not run.done():
                await run.cancel_run()


class TestLlamaIndex(AdapterSuite):
    driver: ClassVar = LlamaIndexDriver()
