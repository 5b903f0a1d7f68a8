"""The OpenAI Agents SDK through the common suite, and what only this SDK does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import sayso
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, HELD, WORDS, AdapterSuite, Outcome, Scene

framework("agents", "openai_agents")
agents: Any = pytest.importorskip("agents")
scripted: Any = pytest.importorskip("agents.testing")

from sayso.integrations.openai_agents import ModelWords, gate, resume  # noqa: E402

agents.set_tracing_disabled(True)


@dataclass
class Task:
    task: str


def model(scene: Scene, turn: int, *, nested: bool = False) -> Any:
    """Return a model that emits the calls of a scene, from this turn on."""

    async def respond(call: Any) -> Any:
        nonlocal turn
        calls, turn = scene.turn(turn, nested=nested), turn + 1
        if not calls:
            return scripted.ModelStep(output=[scripted.assistant_message(ANSWER)])
        emitted = [scripted.function_call(one.tool, one.arguments, call_id=one.id) for one in calls]
        return scripted.ModelStep(output=[scripted.assistant_message(WORDS), *emitted])

    return scripted.ScriptedModel([scripted.ModelStep.respond(respond) for _ in range(20)])


def tool(function: Any, scene: Scene) -> Any:
    made = agents.function_tool(function)
    return gate(made, wait=scene.mode, **scene.options) if made.name in HELD else made


def agent_of(scene: Scene, done: int, nested_done: int = 0) -> Any:
    tools = [tool(function, scene) for function in (scene.refund, scene.fail, scene.lookup)]
    inner = agents.Agent(name="clerk", model=model(scene, nested_done, nested=True), tools=tools)
    delegate = inner.as_tool("delegate", "Give a task to the clerk.", hooks=ModelWords(), parameters=Task)
    held = gate(inner.as_tool("delegate_held", "Give a task to the clerk.", parameters=Task), wait=scene.mode)
    return agents.Agent(name="agent", model=model(scene, done), tools=[*tools, delegate, held])


def outcome_of(result: Any) -> Outcome:
    items = result.to_input_list()
    told = {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}
    saved = result.to_state().to_string() if result.interruptions else None
    return Outcome(saved, told, None if saved is not None else result.final_output)


class AgentsDriver:
    """An agent whose conversation is `scene.thread`, persisted as the SDK's `RunState`."""

    modes: ClassVar = ("block", "pause")
    is_parallel: ClassVar = True
    has_subagents: ClassVar = True

    async def start(self, scene: Scene) -> Outcome:
        with sayso.run(scene.thread):
            return outcome_of(await agents.Runner.run(agent_of(scene, 0), "go", hooks=ModelWords()))

    async def resume(self, scene: Scene, saved: Any) -> Outcome:
        # A scripted model of a new process is told which turn comes next by what has happened.
        agent = agent_of(scene, 1 + max(turns_done(scene, saved), 0), 1)
        with sayso.run(scene.thread):
            state = await resume(await agents.RunState.from_string(agent, saved))
            return outcome_of(await agents.Runner.run(agent, state))


def turns_done(scene: Scene, saved: str) -> int:
    """Return the number of the turn in which the run paused."""
    return max(number for number, turn in enumerate(scene.turns) if any(f'"{call.id}"' in saved for call in turn))


class TestOpenAIAgents(AdapterSuite):
    driver: ClassVar = AgentsDriver()
