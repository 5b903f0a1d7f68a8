"""Strands: the intervention `HumanInTheLoop`, which interrupts; the session is in files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager
from strands.vended_interventions.hitl import HumanInTheLoop

from benchmarks.contrast.subject import Call, NotApplicable, Subject

REFUND = Call()


class Scripted(Model):
    """Makes the call, and answers once it has a result."""

    def __init__(self, call: Call, run: str) -> None:
        self.call, self.run = call, run

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
        import json

        is_over = any("toolResult" in block for message in messages for block in message["content"])
        use = {"toolUse": {"name": self.call.tool, "toolUseId": f"{self.run}-c1"}}
        text = {"text": "done"} if is_over else {"toolUse": {"input": json.dumps(self.call.arguments)}}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {} if is_over else use}}
        yield {"contentBlockDelta": {"delta": text}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if is_over else "tool_use"}}


class Alone(Subject):
    def agent(self, call: Call, run: str) -> Any:
        return Agent(
            Scripted(call, run), tools=[tool(self.tools.refund), tool(self.tools.payout)], callback_handler=None,
            interventions=[HumanInTheLoop()], session_manager=FileSessionManager(run, str(self.folder / "sessions")),
        )  # fmt: skip

    def ask(self, call: Call, run: str) -> Any:
        (interrupt,) = self.agent(call, run)("go").interrupts
        return {"run": run, "interrupt": interrupt.id}

    def decide(self, saved: Any, decision: str) -> Any:
        if decision == "edit":
            raise NotApplicable("it has no edits")
        answer = "yes" if decision == "approve" else decision
        return [{"interruptResponse": {"interruptId": saved["interrupt"], "response": answer}}]

    def resume(self, saved: Any, answer: Any) -> None:
        self.agent(REFUND, saved["run"])(answer)

    async def chat(self, function: Callable[..., Any], call: Call, run: str) -> None:
        await Agent(Scripted(call, run), tools=[tool(function)], callback_handler=None).invoke_async("go")
