"""Agno through the common suite, and what only this framework does."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import warnings
from typing import Any, ClassVar

import pytest

from sayso.stores.base import Store
from tests.integrations.adapters import suite
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import HELD, WORDS, AdapterSuite, ModelCall, Outcome, Scene, approve, everything
from tests.integrations.adapters.suite import refund as refund_call

framework("agno", "agno")
from agno.agent import Agent  # noqa: E402
from agno.agent import _tools as agent_tools  # noqa: E402
from agno.agent._messages import agent_compaction  # noqa: E402
from agno.models.base import Model  # noqa: E402
from agno.models.response import ModelResponse  # noqa: E402
from agno.team import Team  # noqa: E402
from agno.team import _tools as team_tools  # noqa: E402

from sayso.integrations.agno import _ADDS_TOOLS, approval_hooks  # noqa: E402

# What Agno also reads where it lists the tools of an agent or team, and what adds none by itself.
ADD_NO_TOOLS = {
    "_learning", "_tool_instructions", "db", "determine_input_for_members", "enable_agentic_knowledge_filters",
    "filesystem_instance", "get_member_information", "get_member_information_tool", "id", "memory_manager", "mode",
    "num_past_session_runs_in_search", "num_past_sessions_to_search", "parser_model", "search_knowledge", "tool_hooks",
    "update_knowledge", "use_json_mode",
}  # fmt: skip


class ScriptedModel(Model):
    """A model that emits the turns of a scene, by what the messages say is done."""

    def __init__(self, scene: Scene, *, nested: bool) -> None:
        super().__init__(id="scripted")
        self._scene, self._nested = scene, nested

    def invoke(self, *_: Any, messages: Any, **__: Any) -> Any:
        turn = sum(message.role == "assistant" for message in messages if message.tool_calls or message.content)
        calls = self._scene.turn(turn, nested=self._nested)
        made = [
            {"id": c.id, "type": "function", "function": {"name": c.tool, "arguments": json.dumps(c.arguments)}}
            for c in calls
        ]
        return ModelResponse(role="assistant", content=WORDS if calls else suite.ANSWER, tool_calls=made)

    async def ainvoke(self, *_: Any, messages: Any, **__: Any) -> Any:
        return self.invoke(messages=messages)

    def invoke_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    ainvoke_stream = _parse_provider_response = _parse_provider_response_delta = invoke_stream


def agent_of(scene: Scene, *, nested: bool = False, hooks: Any = None, **options: Any) -> Any:
    tools: list[Any] = [scene.refund, scene.fail, scene.lookup]
    if scene.nested and not nested:

        async def delegate(task: str) -> str:
            """Hand a task to another agent."""
            return str((await agent_of(scene, nested=True).arun(task)).content).replace(WORDS, "")

        tools.append(delegate)
    hooks = hooks or approval_hooks(scene.held, **scene.options)
    model = ScriptedModel(scene, nested=nested)
    return Agent(model=model, tools=tools, tool_hooks=hooks, telemetry=False, **options)


def outcome_of(run: Any) -> Outcome:
    told = {message.tool_call_id: str(message.content) for message in run.messages if message.role == "tool"}
    return Outcome(None, told, str(run.content).replace(WORDS, ""))


class AgnoDriver(suite.BlockingDriver):
    """An agent whose session is the conversation."""

    async def start(self, scene: Scene) -> Outcome:
        return outcome_of(await agent_of(scene).arun("go", session_id=scene.thread))


class TestAgno(AdapterSuite):
    driver: ClassVar = AgnoDriver()

    def test_sync_run_is_held_too(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")

        async def main() -> Outcome:
            task = asyncio.ensure_future(asyncio.to_thread(agent_of(scene).run, "go", session_id=scene.thread))
            await self.until(lambda: bool(everything(memory)), task)
            assert scene.refunds == []
            approve(changes={"amount": 20.0})(await self.waiting(memory, "c1", task))
            return outcome_of(await task)

        outcome = asyncio.run(main())
        assert scene.refunds == [20.0]
        assert "refunded 20.00 for A-1" in outcome.told["c1"]

    def test_hooks_that_do_not_come_first_run_nothing(self, memory: Store) -> None:
        scene = Scene([[refund_call()]], "block")

        async def audit(function_name: str, function_call: Any, arguments: dict[str, Any]) -> Any:
            return await function_call(**arguments)

        hooks = [audit, *approval_hooks(HELD[:2])]
        outcome = outcome_of(asyncio.run(agent_of(scene, hooks=hooks).arun("go", session_id=scene.thread)))
        assert "must be the first" in outcome.told["c1"]
        assert (scene.effects, everything(memory)) == ([], [])

    def test_name_that_no_tool_has_runs_nothing(self, memory: Store) -> None:
        scene = Scene([[refund_call("c1"), ModelCall("c2", "lookup", {"order_id": "A-1"})]], "block", held=["refnd"])
        told = asyncio.run(self.driver.start(scene)).told
        assert [words.partition(", only")[0] for words in told.values()] == ["there is no tool 'refnd' to hold"] * 2
        assert (scene.effects, everything(memory)) == ([], [])

    @pytest.mark.usefixtures("memory")
    def test_name_that_may_be_of_a_tool_of_agno_is_warned_about(self) -> None:
        scene = Scene([[refund_call("c1"), ModelCall("c2", "lookup", {"order_id": "A-1"})]], "block", held=["refnd"])
        with pytest.warns(RuntimeWarning, match="no known tool matches 'refnd'"):
            told = outcome_of(asyncio.run(agent_of(scene, read_chat_history=True).arun("go"))).told
        assert "refund is not among the tools to hold, but 'refnd' is" in told["c1"]
        assert [name for name, _ in scene.effects] == ["lookup"]

    @pytest.mark.usefixtures("memory")
    def test_tool_of_another_member_of_the_team_is_known(self) -> None:
        turns, hooks = [[ModelCall("c1", "lookup", {"order_id": "A-1"})]], approval_hooks(["refund"])
        leader, member = (Scene(each, "block") for each in (turns, turns))
        member_agent = agent_of(member, hooks=hooks)
        team = Team(
            members=[member_agent], model=ScriptedModel(leader, nested=False), tools=[leader.lookup], tool_hooks=hooks,
            telemetry=False,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            asyncio.run(team.arun("go"))
        assert [name for name, _ in leader.effects] == ["lookup"]

    def test_every_setting_for_which_agno_adds_tools_is_known(self) -> None:
        makers = (
            agent_tools.get_tools, agent_tools.aget_tools, agent_tools._append_filesystem_tools, agent_compaction,
            team_tools._determine_tools_for_model,
        )  # fmt: skip
        source = "".join(inspect.getsource(each) for each in makers)
        read = {*re.findall(r"(?<![\w.])(?:agent|team)\.(\w+)", source)}
        assert len(read) > 20
        assert read - {*_ADDS_TOOLS} - ADD_NO_TOOLS == set()
        assert {*re.findall(r"(_append\w+)\((?:agent|team)", source)} == {"_append_filesystem_tools"}
