"""AG2 through the common suite."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import pytest
from anyio import to_thread

import sayso
from sayso.errors import ConfigError
from sayso.stores.base import Store
from tests.integrations.adapters import suite
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import WORDS, AdapterSuite, ModelCall, Outcome, Scene, approve, everything
from tests.integrations.adapters.suite import refund as refund_call

framework("ag2", "ag2")
from ag2 import Agent, TaskConfig, tool  # noqa: E402
from ag2.config import LLMClient, ModelConfig  # noqa: E402
from ag2.events import ModelMessage, ModelResponse, ToolCallEvent, ToolCallsEvent, ToolResultsEvent  # noqa: E402

from sayso.integrations.ag2 import hold_tools  # noqa: E402


class ScriptedClient(LLMClient):
    """A model that emits the turns of a scene, by what the messages say is done."""

    def __init__(self, scene: Scene, *, nested: bool) -> None:
        self._scene, self._nested = scene, nested

    async def __call__(self, messages: Any, *_: Any, **__: Any) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        calls = self._scene.turn(turn, nested=self._nested)
        made = [ToolCallEvent(call.tool, id=call.id, arguments=json.dumps(call.arguments)) for call in calls]
        message = ModelMessage(WORDS if calls else suite.ANSWER)
        return ModelResponse(message, tool_calls=ToolCallsEvent(made)) if calls else ModelResponse(message)


class ScriptedConfig(ModelConfig):
    def __init__(self, scene: Scene, *, nested: bool) -> None:
        self._client = ScriptedClient(scene, nested=nested)

    def copy(self, **_: Any) -> Any:
        return self

    def create(self) -> Any:
        return self._client

    def create_files_client(self) -> Any:
        raise NotImplementedError

    @property
    def provider(self) -> Any:
        return None


def agent_of(scene: Scene, *, nested: bool = False) -> Any:
    tools = [tool(function) for function in (scene.refund, scene.fail, scene.lookup)]
    if scene.nested and not nested:

        @tool
        async def delegate(task: str) -> str:
            """Hand a task to another agent."""
            return str((await agent_of(scene, nested=True).ask(task)).body)

        tools.append(delegate)
    config = ScriptedConfig(scene, nested=nested)
    agent = Agent("shop", config=config, tools=tools)
    hold_tools(agent, scene.held, **scene.options)
    return agent


class Ag2Driver(suite.BlockingDriver):
    """An agent, run in a named run."""

    async def start(self, scene: Scene) -> Outcome:
        to_thread.current_default_thread_limiter().total_tokens = 5  # AG2 has its own use of threads, and keeps them
        with sayso.run(scene.thread):
            reply = await agent_of(scene).ask("go")
        told = {}
        for event in await reply.context.stream.history.get_events():
            if isinstance(event, ToolResultsEvent):
                told |= {r.parent_id: "\n\n".join(str(part.content) for part in r.result.parts) for r in event.results}
        return Outcome(None, told, reply.body)


class TestAg2(AdapterSuite):
    driver: ClassVar = Ag2Driver()

    def test_subtasks_with_a_held_tool_are_refused(self) -> None:
        scene = Scene([], "block")
        tools = [tool(function) for function in (scene.refund, scene.lookup)]

        def hold(tasks: Any, held: Any = ("refund",)) -> Any:
            agent = Agent("shop", config=ScriptedConfig(scene, nested=False), tools=tools, tasks=tasks)
            hold_tools(agent, held)
            return agent

        for tasks in (TaskConfig(), TaskConfig(include_tools=["refund"]), TaskConfig(extra_tools=[scene.refund])):
            with pytest.raises(ConfigError, match=r"would run refund without .*exclude_tools=\['refund'\]"):
                hold(tasks)
        with pytest.raises(ConfigError, match="would run lookup, refund without"):
            hold(TaskConfig(), None)
        for tasks in (TaskConfig(exclude_tools=["refund"]), TaskConfig(include_tools=["lookup"]), False):
            hold(tasks)

    def test_tool_that_subtasks_get_later_is_refused_before_the_next_model_call(self, memory: Store) -> None:
        scene = Scene([[ModelCall("s1", "run_subtask", {"task": "refund A-1"})]], "block", nested=[[refund_call()]])
        agent = Agent("shop", config=ScriptedConfig(scene, nested=False), tasks=TaskConfig())
        hold_tools(agent, ["refund"])
        agent.tools.append(tool(scene.refund))
        with pytest.raises(ConfigError, match="would run refund without"):
            asyncio.run(agent.ask("go"))
        assert (scene.effects, scene.models, everything(memory)) == ([], 0, [])

    def test_name_that_no_tool_has_is_refused_before_the_first_model_call(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block", held=["refnd"])
        with pytest.raises(ConfigError, match="no tool 'refnd' to hold, only fail, lookup, refund"):
            asyncio.run(self.driver.start(scene))
        assert (scene.effects, scene.models, everything(memory)) == ([], 0, [])

    def test_tool_that_only_one_question_brings_is_held(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")
        agent = Agent("shop", config=ScriptedConfig(scene, nested=False))
        hold_tools(agent, ["refund"])

        async def main() -> None:
            task = asyncio.ensure_future(agent.ask("go", tools=[tool(scene.refund)]))
            request = await self.waiting(memory, "c1", task)
            assert "amount" in request.call.schema
            approve()(request)
            await task

        asyncio.run(main())
        assert scene.refunds == [50.0]
