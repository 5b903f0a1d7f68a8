"""The OpenAI Agents SDK: `needs_approval` alone, and behind sayso; a run is the text of its `RunState`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import agents

import sayso
from benchmarks.contrast.drivers.plain import Stored
from benchmarks.contrast.drivers.scene import Counted, scene_of
from benchmarks.contrast.subject import Call, NotApplicable, Subject
from sayso.integrations.openai_agents import resume
from tests.integrations.adapters.test_openai_agents import AgentsDriver, agent_of, model

REFUND = Call()
NO_VALUE = "a decision is a method that is called, and takes no value"


class Alone(Subject):
    def agent(self, scene: Counted, turn: int = 0) -> Any:
        tools = [agents.function_tool(tool, needs_approval=True) for tool in scene.tools]
        return agents.Agent(name="agent", model=model(scene, turn), tools=tools)

    def ask(self, call: Call, run: str) -> Any:
        result = asyncio.run(agents.Runner.run(self.agent(scene_of(self.tools, call, run)), "go"))
        return {"run": run, "state": result.to_state().to_string()}

    def decide(self, saved: Any, decision: str) -> Any:
        if decision == "edit":
            raise NotApplicable("it has no edits")
        if decision == "no":
            raise NotApplicable(NO_VALUE)
        return saved["state"]  # the interruptions that were approved are those of this state

    def resume(self, saved: Any, answer: Any) -> None:
        asyncio.run(self.go_on(saved, answer))

    async def go_on(self, saved: Any, answer: str) -> None:
        agent = self.agent(scene_of(self.tools, REFUND, saved["run"]), 1)
        state = await agents.RunState.from_string(agent, saved["state"])
        approved = await agents.RunState.from_string(agent, answer)
        for item in approved.get_interruptions():
            state.approve(item)
        await agents.Runner.run(agent, state)

    async def chat(self, tool: Callable[..., Any], call: Call, run: str) -> None:
        scene = scene_of(self.tools, call, run)
        agent = agents.Agent(name="agent", model=model(scene, 0), tools=[agents.function_tool(tool)])
        await agents.Runner.run(agent, "go")


class Sayso(Stored):
    def ask(self, call: Call, run: str) -> Any:
        outcome = asyncio.run(AgentsDriver().start(scene_of(self.tools, call, run, **self.options)))
        return {"run": run, "state": outcome.saved}

    def native(self, saved: Any, decision: str) -> Any:
        return decision

    def resume(self, saved: Any, answer: Any) -> None:
        asyncio.run(self.go_on(saved, answer))

    async def go_on(self, saved: Any, answer: str) -> None:
        agent = agent_of(scene_of(self.tools, REFUND, saved["run"], **self.options), 1)
        with sayso.run(saved["run"]):
            state = await resume(await agents.RunState.from_string(agent, saved["state"]))
            if answer == "approve" and self.pending(saved["run"]) is not None:  # the SDK's own word, and no person's
                for item in state.get_interruptions():
                    state.approve(item)
            async with asyncio.timeout(4):  # what is not approved waits
                await agents.Runner.run(agent, state)

    async def block(self, call: Call, run: str) -> None:
        await AgentsDriver().start(scene_of(self.tools, call, run, "block"))
