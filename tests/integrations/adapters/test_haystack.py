"""Haystack through the common suite, and what only this framework does."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import sayso
from sayso.stores.base import Store
from tests.integrations.adapters import suite
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, HELD, WORDS, AdapterSuite, ModelCall, Outcome, Scene, approve
from tests.integrations.adapters.suite import refund as refund_call

framework("haystack", "haystack")
from haystack import component  # noqa: E402
from haystack.components.agents import Agent  # noqa: E402
from haystack.dataclasses import ChatMessage, ToolCall  # noqa: E402
from haystack.tools import Tool, create_tool_from_function  # noqa: E402

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


class HaystackDriver(suite.BlockingDriver):
    """An agent, run in a named run."""

    async def start(self, scene: Scene) -> Outcome:
        with sayso.run(scene.thread):
            return outcome_of(await agent_of(scene).run_async(messages=[ChatMessage.from_user("go")]))


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

    def sent(self, store: Store, given: dict[str, Any], **decision: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Let the model send a message, and return what the person was shown and what the tool got."""
        got = list[dict[str, Any]]()

        def send(user: str, **arguments: Any) -> str:
            got.append({"user": user, **arguments})
            return "sent"

        shape = {"type": "object", "properties": {"to": {"type": "string"}, "cc": {"type": "string"}}}
        tool = Tool("send", "Send.", {**shape, "required": ["to"]}, send, inputs_from_state={"user": "user"})
        scene = Scene([[ModelCall("c1", "send", given)]], "block")
        approval, model = ToolApproval(), ScriptedModel(scene)
        tools, hooks = approval.hold([tool]), {"before_tool": [approval]}
        agent = Agent(chat_generator=model, tools=tools, hooks=hooks, state_schema={"user": {"type": str}})

        async def main() -> dict[str, Any]:
            with sayso.run(scene.thread):
                run = agent.run_async(messages=[ChatMessage.from_user("go")], user="ada")
                task = asyncio.ensure_future(run)
                request = await self.waiting(store, "c1", task)
                approve(**decision)(request)
                await task
                return request.call.arguments

        return asyncio.run(main()), got[0]

    def test_argument_that_a_person_removed_is_not_passed(self, memory: Store) -> None:
        shown, got = self.sent(memory, {"to": "bob", "cc": "eve"}, arguments={"to": "bob"})
        assert shown == {"to": "bob", "cc": "eve"}
        assert got == {"to": "bob", "user": "ada"}

    def test_argument_that_the_tool_does_not_declare_is_shown(self, memory: Store) -> None:
        shown, got = self.sent(memory, {"to": "bob", "admin": True})
        assert shown == {"to": "bob", "admin": True}
        assert got == {"to": "bob", "admin": True, "user": "ada"}

    def test_argument_that_the_model_gives_in_place_of_the_agent_is_shown(self, memory: Store) -> None:
        shown, got = self.sent(memory, {"to": "bob", "user": "root"})
        assert shown == got == {"to": "bob", "user": "root"}
