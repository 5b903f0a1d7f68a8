"""CrewAI through the common suite, and what only this framework does."""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, ClassVar

import pytest

import sayso
from sayso.stores.base import Store
from tests.integrations.adapters import suite
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, WORDS, AdapterSuite, ModelCall, Outcome, Scene, everything
from tests.integrations.adapters.suite import refund as refund_call

if find_spec("crewai") is not None:  # elsewhere, the tests of telemetry run in this process
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
with warnings.catch_warnings():  # its own modules warn of each other
    warnings.simplefilter("ignore")
    framework("crewai", "crewai")
from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import get_before_tool_call_hooks
from crewai.tools import tool

from sayso.integrations.crewai import held_tools

NO_ID = "a retry asks again"
THREAD = "a waiting call takes a thread, which outlives a cancelled task"
pytestmark = pytest.mark.filterwarnings("ignore")  # CrewAI's own


class ScriptedModel(BaseLLM):
    """A model that emits the turns of a scene, by what the messages say is done."""

    scene: Any = None
    is_nested: bool = False
    told: Any = None

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.told |= {m["tool_call_id"]: str(m["content"]) for m in messages if m.get("role") == "tool"}
        turn = sum(bool(message.get("tool_calls")) for message in messages)
        calls = self.scene.turn(turn, nested=self.is_nested)
        return [
            {"id": c.id, "type": "function", "function": {"name": c.tool, "arguments": json.dumps(c.arguments)}}
            for c in calls
        ] or ANSWER

    async def acall(self, *words: Any, **named: Any) -> Any:
        return self.call(*words, **named)


def run(scene: Scene, *, nested: bool = False) -> Outcome:
    def delegate(task: str) -> str:
        """Hand a task to another agent."""
        return str(run(scene, nested=True).answer)

    functions = [scene.refund, scene.fail, scene.lookup, delegate]
    model = ScriptedModel(model="scripted", scene=scene, is_nested=nested, told={})
    agent = Agent(role="clerk", goal="refund", backstory=WORDS, llm=model, tools=[tool(each) for each in functions])
    result = agent.kickoff("go")
    return Outcome(None, model.told, str(result.raw))


class CrewAiDriver(suite.BlockingDriver):
    """An agent in a thread, under hooks of the process."""

    scene: Scene | None = None
    cannot: ClassVar = {
        "the_models_words": "reviewers do not see what the model wrote",
        "swapped_arguments_are_refused": NO_ID,
        "ten_concurrent_replays_start_once_and_tell_the_same": NO_ID,
        "cancelled_run_withdraws_and_starts_nothing": THREAD,
        "cancelled_while_the_request_is_recorded_leaves_nothing_in_the_inbox": THREAD,
        "fifty_waiting_runs_use_no_thread_each_and_wait_in_the_inbox_at_once": THREAD,
    }

    async def start(self, scene: Scene) -> Outcome:
        self.scene = scene
        with held_tools(scene.held, **scene.options):
            return await asyncio.to_thread(run, scene)


class TestCrewAi(AdapterSuite):
    driver: ClassVar = CrewAiDriver()

    @pytest.fixture(autouse=True)
    def _fresh(self) -> Iterator[None]:
        yield
        CrewAiDriver.scene = self.driver.scene = None
        assert get_before_tool_call_hooks() == []

    def test_store_that_cannot_be_reached_runs_nothing(self, memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise sayso.errors.StoreFullError(memory.url)

        monkeypatch.setattr(memory, "ask", fail)
        scene = Scene([[refund_call()]], "block")
        outcome = asyncio.run(self.driver.start(scene))
        assert (scene.effects, everything(memory)) == ([], [])
        assert "was not run" in outcome.told["c1"]

    def test_name_that_no_known_tool_has_is_warned_about_and_a_similar_call_is_not_run(self, memory: Store) -> None:
        turns = [[refund_call(), ModelCall("c2", "lookup", {"order_id": "A-1"})]]
        scene = Scene(turns, "block", held=["refnd"])
        with pytest.warns(RuntimeWarning, match="no known tool matches 'refnd'"):
            told = asyncio.run(self.driver.start(scene)).told
        assert "refund is not among the tools to hold, but 'refnd' is" in told["c1"]
        assert [name for name, _ in scene.effects] == ["lookup"]
        assert everything(memory) == []

    @pytest.mark.usefixtures("memory")
    def test_where_the_warning_is_an_error_no_call_runs(self) -> None:
        turns = [[ModelCall("c1", "lookup", {"order_id": "A-1"})], [ModelCall("c2", "lookup", {"order_id": "A-2"})]]
        scene = Scene(turns, "block", held=["pay"])
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "no known tool matches")
            told = asyncio.run(self.driver.start(scene)).told
        assert ["no known tool matches 'pay'" in text for text in told.values()] == [True, True]
        assert scene.effects == []

    def test_second_tool_of_a_held_name_is_held_too(self, memory: Store) -> None:
        scene = Scene([[ModelCall("c1", "refund_2", refund_call().arguments)]], "block")
        model = ScriptedModel(model="scripted", scene=scene, told={})
        who: dict[str, Any] = {"role": "clerk", "goal": "refund", "backstory": WORDS, "llm": model}
        agent = Agent(tools=[tool(scene.refund), tool(scene.refund)], **who)

        async def main() -> None:
            with held_tools(["refund"]):
                task = asyncio.create_task(asyncio.to_thread(agent.kickoff, "go"))
                await self.until(lambda: bool(suite.pending(memory)), task)
                assert scene.effects == []
                sayso.Review(memory).reject(suite.pending(memory)[0].id, "no", by="ada")
                await task

        asyncio.run(main())
        assert [request.call.name for request in everything(memory)] == ["refund_2"]
        assert scene.effects == []

    @pytest.mark.usefixtures("memory")
    def test_tool_of_another_agent_of_the_crew_is_known(self) -> None:
        scene = Scene([[ModelCall("c1", "lookup", {"order_id": "A-1"})]], "block")
        model = ScriptedModel(model="scripted", scene=scene, told={})
        who: dict[str, Any] = {"goal": "refund", "backstory": WORDS, "llm": model}
        first = Agent(role="clerk", tools=[tool(scene.lookup)], **who)
        second = Agent(role="cashier", tools=[tool(scene.refund)], **who)
        task = Task(description="go", expected_output="done", agent=first)
        with warnings.catch_warnings(), held_tools(["refund"]):
            warnings.simplefilter("error", RuntimeWarning)
            Crew(agents=[first, second], tasks=[task]).kickoff()
        assert [name for name, _ in scene.effects] == ["lookup"]
