"""Strands Agents through the common suite."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import sayso
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, HELD, WORDS, AdapterSuite, BlockingDriver, Outcome, Scene

strands: Any = framework("strands", "strands")
from strands.models import Model  # noqa: E402

from sayso.integrations.strands import ToolApproval  # noqa: E402


class ScriptedModel(Model):
    """A model that emits the turns of a scene, by what the messages say is done."""

    def __init__(self, scene: Scene, *, nested: bool) -> None:
        self._scene, self._nested = scene, nested

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    async def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError
        yield

    async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
        turn = sum(message["role"] == "assistant" for message in messages)
        calls = self._scene.turn(turn, nested=self._nested)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": WORDS if calls else ANSWER}}}
        yield {"contentBlockStop": {}}
        for call in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": call.tool, "toolUseId": call.id}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call.arguments)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def agent_of(scene: Scene, *, nested: bool = False) -> Any:
    tools = [strands.tool(function) for function in (scene.refund, scene.fail, scene.lookup)]
    if scene.nested and not nested:

        @strands.tool
        async def delegate(task: str) -> str:
            """Hand a task to another agent."""
            return str(await agent_of(scene, nested=True).invoke_async(task)).strip()

        tools.append(delegate)
    gate = ToolApproval(HELD[:2], **scene.options)
    return strands.Agent(ScriptedModel(scene, nested=nested), tools=tools, plugins=[gate], callback_handler=None)


class StrandsDriver(BlockingDriver):
    """An agent without a session manager, run in a named run."""

    async def start(self, scene: Scene) -> Outcome:
        agent = agent_of(scene)
        with sayso.run(scene.thread):
            answer = str(await agent.invoke_async("go")).strip()
        results = [part["toolResult"] for m in agent.messages for part in m["content"] if "toolResult" in part]
        told = {each["toolUseId"]: "\n\n".join(part["text"] for part in each["content"]) for each in results}
        return Outcome(None, told, answer)


class TestStrands(AdapterSuite):
    driver: ClassVar = StrandsDriver()
