"""Microsoft agent-framework through the common suite."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from sayso.stores.base import Store
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import (
    ANSWER,
    HELD,
    WORDS,
    AdapterSuite,
    BlockingDriver,
    Outcome,
    Scene,
    everything,
)

maf: Any = framework("agent_framework", "agent_framework")

from sayso.integrations.agent_framework import ApprovalMiddleware  # noqa: E402  needs the framework


class ScriptedClient(maf.FunctionInvocationLayer, maf.BaseChatClient):
    """A model that emits the turns of a scene, by what the messages say is done."""

    def __init__(self, scene: Scene, *, nested: bool = False) -> None:
        super().__init__()
        self._scene, self._nested = scene, nested

    def _inner_get_response(self, *, messages: Any, stream: bool, **_: Any) -> Any:
        async def respond() -> Any:
            turn = sum(message.role == "assistant" for message in messages)
            calls = self._scene.turn(turn, nested=self._nested)
            contents = [maf.Content.from_text(WORDS if calls else ANSWER)]
            contents += [maf.Content.from_function_call(c.id, c.tool, arguments=dict(c.arguments)) for c in calls]
            return maf.ChatResponse(messages=[maf.Message("assistant", contents)])

        async def updates() -> Any:
            (message,) = (await respond()).messages
            yield maf.ChatResponseUpdate(role="assistant", contents=message.contents)

        return maf.ResponseStream(updates(), finalizer=maf.ChatResponse.from_updates) if stream else respond()


def agent_of(scene: Scene, *, nested: bool = False) -> Any:
    tools = [maf.tool(function) for function in (scene.refund, scene.fail, scene.lookup)]
    if scene.nested and not nested:
        tools.append(agent_of(scene, nested=True).as_tool(name="delegate"))
    client = ScriptedClient(scene, nested=nested)
    return maf.Agent(
        client=client, name="shop", tools=tools, middleware=[ApprovalMiddleware(HELD[:2], **scene.options)]
    )


class AgentFrameworkDriver(BlockingDriver):
    """An agent with a session whose id is the conversation."""

    cannot: ClassVar = {"the_models_words": "reviewers do not see what the model wrote"}

    async def start(self, scene: Scene) -> Outcome:
        session = maf.AgentSession(session_id=scene.thread)
        response = await agent_of(scene).run("go", session=session)
        results = [each for message in response.messages for each in message.contents if each.type == "function_result"]
        return Outcome(
            None, {each.call_id: str(each.result).removeprefix(WORDS) for each in results}, response.messages[-1].text
        )


class TestAgentFramework(AdapterSuite):
    driver: ClassVar = AgentFrameworkDriver()


def test_name_that_no_tool_has_starts_nothing(memory: Store) -> None:
    tools = [maf.tool(name=name)(lambda: None) for name in ("refund", "lookup")]
    held = ApprovalMiddleware(["refnd"])

    async def not_reached() -> None:
        raise AssertionError("the call was passed on")

    def told(**listed: Any) -> str:
        context = maf.FunctionInvocationContext(function=tools[0], arguments={}, **listed)
        asyncio.run(held.process(context, not_reached))
        return context.result

    assert "there is no tool 'refnd' to hold, only lookup, refund" in told(tools=tools)
    with pytest.warns(RuntimeWarning, match="no known tool matches 'refnd'"):
        assert "refund is not among the tools to hold, but 'refnd' is" in told()
    assert everything(memory) == []
