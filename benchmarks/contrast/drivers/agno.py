"""Agno: `requires_confirmation`, with its SQLite database; a run is continued by its id and its requirements."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.run.requirement import RunRequirement
from agno.tools import tool

from benchmarks.contrast.subject import Call, NotApplicable, Subject

REFUND = Call()


class Scripted(Model):
    """Makes the call, and answers once it has a result."""

    def __init__(self, call: Call, run: str) -> None:
        super().__init__(id="scripted")
        function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
        self.made = {"id": f"{run}-c1", "type": "function", "function": function}

    def invoke(self, messages: Any, **_: Any) -> ModelResponse:
        if any(message.role == "tool" for message in messages):
            return ModelResponse(role="assistant", content="done")
        return ModelResponse(role="assistant", tool_calls=[self.made])

    async def ainvoke(self, messages: Any, **_: Any) -> ModelResponse:
        return self.invoke(messages)

    def invoke_stream(self, *_: Any, **__: Any) -> Any: ...
    def ainvoke_stream(self, *_: Any, **__: Any) -> Any: ...
    def _parse_provider_response(self, response: Any, **_: Any) -> Any: ...
    def _parse_provider_response_delta(self, response: Any) -> Any: ...


class Alone(Subject):
    def agent(self, call: Call, run: str) -> Agent:
        tools = [tool(requires_confirmation=True)(each) for each in (self.tools.refund, self.tools.payout)]
        return Agent(model=Scripted(call, run), tools=tools, db=SqliteDb(db_file=str(self.folder / "agno.db")))

    def ask(self, call: Call, run: str) -> Any:
        paused = self.agent(call, run).run("go", session_id=run)
        (requirement,) = paused.active_requirements
        return {"run": run, "id": paused.run_id, "requirement": requirement.to_dict()}

    def decide(self, saved: Any, decision: str) -> Any:
        if decision != "approve":
            raise NotApplicable("it has no edits" if decision == "edit" else "a decision is a method that is called")
        requirement = RunRequirement.from_dict(saved["requirement"])
        requirement.confirm()
        return requirement.to_dict()

    def resume(self, saved: Any, answer: Any) -> None:
        self.agent(REFUND, saved["run"]).continue_run(
            run_id=saved["id"], session_id=saved["run"], requirements=[RunRequirement.from_dict(answer)]
        )

    async def chat(self, function: Callable[..., Any], call: Call, run: str) -> None:
        await Agent(model=Scripted(call, run), tools=[function]).arun("go")
