"""Haystack through the common suite, and what only this framework does."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import sayso
from sayso.stores.base import Store
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, HELD, WORDS, AdapterSuite, Outcome, Scene, approve
from tests.integrations.adapters.suite import refund as refund_call

framework("haystack", "haystack")
from haystack import component  # noqa: E402
from haystack.components.agents import Agent  # noqa: E402
from haystack.dataclasses import ChatMessage, ToolCall  # noqa: E402
from haystack.tools import create_tool_from_function  # noqa: E402

from sayso.integrations.haystack import ToolApproval  # noqa: E402


@component
class ScriptedModel:
    """A model that emits the turns of a scene, by what the messages say is done."""

    def __init__(self, scene: Scene, nested: bool = False) -> None:  # noqa: FBT002  a component's
        self.scene, self.nested = scene, nested

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> Any:  # noqa: ARG002  an agent gives them
        turn = sum(message.role == "assistant" for message in messages)
        calls = self.scene.turn(turn, nested=self.nested)
        made = [ToolCall(id=call.id, tool_name=call.tool, arguments=dict(call.arguments)) for call in calls]
        return {"replies": [ChatMessage.from_assistant(WORDS if calls else ANSWER, tool_calls=made)]}


def agent_of(scene: Scene, *, nested: bool = False) -> Any:
    tools = [create_tool_from_function(function) for function in (scene.refund, scene.fail, scene.lookup)]
    if scene.nested and not nested:

        async def delegate(task: str) -> str:
            """Hand a task to another agent."""
            result = await agent_of(scene, nested=True).run_async(messages=[ChatMessage.from_user(task)])
            return str(result["last_message"].text)

        tools.append(create_tool_from_function(delegate))
    approval = ToolApproval(HELD[:2], **scene.options)
    model = ScriptedModel(scene, nested)
    return Agent(chat_generator=model, tools=approval.hold(tools), hooks={"before_tool": [approval]})


def outcome_of(result: Any) -> Outcome:
    made = [each for message in result["messages"] for each in message.tool_call_results]
    return Outcome(None, {each.origin.id: str(each.result) for each in made}, result["last_message"].text)


class HaystackDriver:
    """An agent, run in a named run."""

    modes: ClassVar = ("block",)
    is_parallel: ClassVar = True
    has_subagents: ClassVar = True

    async def start(self, scene: Scene) -> Outcome:
        with sayso.run(scene.thread):
            return outcome_of(await agent_of(scene).run_async(messages=[ChatMessage.from_user("go")]))

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        raise NotImplementedError


class TestHaystack(AdapterSuite):
    driver: ClassVar = HaystackDriver()

    def test_sync_run_is_held_too(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")

        async def main() -> Outcome:
            run = agent_of(scene).run
            task = asyncio.ensure_future(asyncio.to_thread(lambda: run(messages=[ChatMessage.from_user("go")])))
            approve(changes={"amount": 20.0})(await self.waiting(memory, "c1", task))
            return outcome_of(await task)

        outcome = asyncio.run(main())
        assert scene.refunds == [20.0]
        assert "refunded 20.00 for A-1" in outcome.told["c1"]
