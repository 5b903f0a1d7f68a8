"""DSPy: `ReAct` alone, which asks nobody before a tool runs, and behind sayso; a run is its suspended state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import dspy

from benchmarks.contrast.drivers.plain import Stored
from benchmarks.contrast.drivers.scene import scene_of
from benchmarks.contrast.subject import Call, Subject
from tests.integrations.adapters.test_dspy import DSPy, Model

REFUND = Call()


class Alone(Subject):
    def agent(self, tools: list[Callable[..., Any]], call: Call, run: str) -> Any:
        agent: Any = dspy.ReAct("question -> answer", tools=tools)
        scene = scene_of(self.tools, call, run)
        agent.react = Model(scene, agent.react, nested=False)
        agent.extract = Model(scene, agent.extract.predict, nested=False)
        return agent

    def ask(self, call: Call, run: str) -> Any:
        self.agent([self.tools.refund, self.tools.payout], call, run)(question="help")
        return {"run": run}

    async def cancelled(self, call: Call, run: str) -> None:
        self.ask(call, run)


class Sayso(Stored):
    def ask(self, call: Call, run: str) -> Any:
        outcome = asyncio.run(DSPy().start(scene_of(self.tools, call, run, **self.options)))
        return {"run": run, "state": json.loads(outcome.saved)}

    def resume(self, saved: Any, answer: Any) -> None:
        scene = scene_of(self.tools, REFUND, saved["run"], **self.options)
        asyncio.run(DSPy().resume(scene, json.dumps(saved["state"])))

    async def block(self, call: Call, run: str) -> None:
        await DSPy().start(scene_of(self.tools, call, run, "block"))
