"""AutoGen through the common suite, and what only this framework does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

import sayso
from sayso.errors import ConfigError
from sayso.model.request import State
from sayso.stores.base import Store
from tests.integrations.adapters import suite
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, HELD, WORDS, AdapterSuite, Outcome, Scene, everything, pending
from tests.integrations.adapters.suite import refund as refund_call

framework("autogen_agentchat", "autogen")
from autogen_agentchat.agents import AssistantAgent  # noqa: E402
from autogen_agentchat.messages import ToolCallExecutionEvent  # noqa: E402
from autogen_core import CancellationToken, FunctionCall  # noqa: E402
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, RequestUsage  # noqa: E402
from autogen_core.tools import FunctionTool, StaticWorkbench  # noqa: E402

from sayso.integrations.autogen import ApprovalWorkbench  # noqa: E402

NO_USAGE = RequestUsage(prompt_tokens=0, completion_tokens=0)


class ScriptedModel(ChatCompletionClient):
    """A model that emits the turns of a scene, by what the messages say is done."""

    model_info: ClassVar = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown",
                       "structured_output": False, "multiple_system_messages": True}  # fmt: skip
    capabilities = model_info

    def __init__(self, scene: Scene, *, nested: bool) -> None:
        self._scene, self._nested = scene, nested

    async def create(self, messages: Any, **_: Any) -> Any:
        turn = sum(isinstance(message, AssistantMessage) for message in messages)
        calls = self._scene.turn(turn, nested=self._nested)
        made = [FunctionCall(id=c.id, name=c.tool, arguments=json.dumps(c.arguments)) for c in calls]
        return CreateResult(
            finish_reason="function_calls" if calls else "stop", content=made or ANSWER, usage=NO_USAGE, cached=False,
            thought=WORDS if calls else None,
        )  # fmt: skip

    async def create_stream(self, messages: Any, **_: Any) -> Any:
        yield await self.create(messages)

    async def close(self) -> None: ...

    def actual_usage(self) -> Any:
        return NO_USAGE

    def total_usage(self) -> Any:
        return NO_USAGE

    def count_tokens(self, *_: Any, **__: Any) -> int:
        return 0

    def remaining_tokens(self, *_: Any, **__: Any) -> int:
        return 1_000


def agent_of(scene: Scene, *, nested: bool = False, held: Sequence[str] = HELD[:2]) -> Any:
    tools = [FunctionTool(each, description=each.__doc__) for each in (scene.refund, scene.fail, scene.lookup)]
    if scene.nested and not nested:

        async def delegate(task: str) -> str:
            return str((await agent_of(scene, nested=True).run(task=task)).messages[-1].content)

        tools.append(FunctionTool(delegate, description="Hand a task to another agent."))
    workbench = ApprovalWorkbench(StaticWorkbench(tools), held, **scene.options)
    model = ScriptedModel(scene, nested=nested)
    return AssistantAgent("shop", model_client=model, workbench=workbench, max_tool_iterations=9)


class AutoGenDriver(suite.BlockingDriver):
    """An assistant with a workbench, run in a named run."""

    cannot: ClassVar = {"the_models_words": "reviewers do not see what the model wrote"}

    async def start(self, scene: Scene) -> Outcome:
        with sayso.run(scene.thread):
            result = await agent_of(scene).run(task="go")
        made = [each for m in result.messages if isinstance(m, ToolCallExecutionEvent) for each in m.content]
        return Outcome(None, {each.call_id: each.content for each in made}, str(result.messages[-1].content))


class TestAutoGen(AdapterSuite):
    driver: ClassVar = AutoGenDriver()

    def test_cancelled_token_withdraws(self, memory: Store) -> None:
        scene, token = Scene([[refund_call()]], "block"), CancellationToken()

        async def main() -> None:
            task = asyncio.ensure_future(agent_of(scene).run(task="go", cancellation_token=token))
            await self.until(lambda: bool(pending(memory)), task)
            token.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.until(lambda: not pending(memory))

        asyncio.run(main())
        assert [request.state for request in everything(memory)] == [State.CANCELLED]
        assert scene.effects == []

    def test_name_that_no_tool_has_ends_the_run(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")

        async def main() -> None:
            async with asyncio.timeout(suite.PATIENCE):
                with pytest.raises(ConfigError, match="no tool 'refnd' to hold, only fail, lookup, refund"):
                    await agent_of(scene, held=["refnd"]).run(task="go")

        asyncio.run(main())
        assert (scene.effects, everything(memory)) == ([], [])

    def test_name_that_a_later_tool_may_have_is_warned_about_and_stops_a_similar_call(self, memory: Store) -> None:
        scene = Scene([], "block")

        class Later(StaticWorkbench):
            async def list_tools(self) -> Any:
                return []

        tools = [FunctionTool(scene.refund, description="Refund an order.")]

        async def main() -> Any:
            return await ApprovalWorkbench(Later(tools), ["refnd"]).call_tool("refund", {"order_id": "A-1"})

        with pytest.warns(RuntimeWarning, match="no known tool matches 'refnd'"):
            result = asyncio.run(main())
        assert "refund is not among the tools to hold, but 'refnd' is" in result.to_text()
        assert (result.is_error, scene.effects, everything(memory)) == (True, [], [])
