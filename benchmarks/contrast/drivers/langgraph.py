"""LangGraph and LangChain: `interrupt` in a tool, the middleware of LangChain, and sayso's; the thread is in SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from benchmarks.contrast.drivers.plain import WRONG, Stored
from benchmarks.contrast.drivers.scene import scene_of
from benchmarks.contrast.subject import Call, Subject
from tests.integrations.adapters.test_langgraph import ASKED, LangGraph, Scripted, agent_of, in_thread, tools

REFUND = Call()


class Alone(Subject):
    """What the two ways of the framework share."""

    def agent(self, call: Call, run: str, saver: Any) -> Any:
        raise NotImplementedError

    def invoke(self, given: Any, call: Call, run: str) -> None:
        with SqliteSaver.from_conn_string(str(self.folder / "graph.db")) as saver:
            self.agent(call, run, saver).invoke(given, in_thread(run))

    def ask(self, call: Call, run: str) -> Any:
        self.invoke(ASKED, call, run)
        return {"run": run}

    def resume(self, saved: Any, answer: Any) -> None:
        self.invoke(Command(resume=answer), REFUND, saved["run"])

    async def chat(self, tool: Callable[..., Any], call: Call, run: str) -> None:
        model = Scripted(scene=scene_of(self.tools, call, run))
        await create_agent(model, [tools.tool(tool)]).ainvoke(ASKED)


class Interrupt(Alone):
    """`interrupt` as the documentation shows it: `if interrupt(…)`, and an answer that overrides the arguments."""

    def agent(self, call: Call, run: str, saver: Any) -> Any:
        def asking(function: Callable[..., str]) -> Any:
            def tool(order_id: str, amount: float) -> str:
                """Pay."""
                answer = interrupt({"action": function.__name__, "order_id": order_id, "amount": amount})
                if not answer:
                    return "refused"
                edited = answer if isinstance(answer, dict) else {}
                return function(order_id, edited.get("amount", amount))

            tool.__name__ = function.__name__
            return tools.tool(tool)

        own = [asking(self.tools.refund), asking(self.tools.payout)]
        return create_agent(Scripted(scene=scene_of(self.tools, call, run)), own, checkpointer=saver)

    def decide(self, saved: Any, decision: str) -> Any:
        return {"approve": True, "no": "no", "edit": {"amount": WRONG}}[decision]


class Middleware(Alone):
    def agent(self, call: Call, run: str, saver: Any) -> Any:
        own = [tools.tool(function) for function in (self.tools.refund, self.tools.payout)]
        held = HumanInTheLoopMiddleware({"refund": True, "payout": True})
        return create_agent(Scripted(scene=scene_of(self.tools, call, run)), own, middleware=[held], checkpointer=saver)

    def decide(self, saved: Any, decision: str) -> Any:
        edited = {"name": "refund", "args": {**REFUND.arguments, "amount": WRONG}}
        answer = {"type": "edit", "edited_action": edited} if decision == "edit" else {"type": decision}
        return {"decisions": [answer]}


class Sayso(Stored):
    """The driver of the adapter's tests, with its thread in a file; what is brought decides nothing."""

    def ask(self, call: Call, run: str) -> Any:
        asyncio.run(self.go(ASKED, call, run))
        return {"run": run}

    def native(self, saved: Any, decision: str) -> Any:
        return {"decisions": [{"type": decision}]}

    def resume(self, saved: Any, answer: Any) -> None:
        asyncio.run(self.go(Command(resume=answer), REFUND, saved["run"]))

    async def go(self, given: Any, call: Call, run: str) -> None:
        scene = scene_of(self.tools, call, run, **self.options)
        async with AsyncSqliteSaver.from_conn_string(str(self.folder / "graph.db")) as saver:
            await agent_of(scene, saver).ainvoke(given, in_thread(run))

    async def block(self, call: Call, run: str) -> None:
        await LangGraph().start(scene_of(self.tools, call, run, "block"))
