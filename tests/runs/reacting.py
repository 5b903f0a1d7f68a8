"""What the tests of `ReAct` share: a model that follows a script, and a tool that waits for a person.

The invariant: a script that is asked more often than it has turns fails, so that no test passes by a turn too many.
"""

from __future__ import annotations

import json
from typing import Any

import sayso
from sayso.runs.agent import Tool, tool
from sayso.runs.react import ReAct
from tests.support.acting import Disk

__all__ = ["ANSWER", "Script", "agent_of", "deleter", "observed", "save"]

ANSWER = [("finish", {"answer": "done"})]


class Script:
    """A model that says one thing after another, and keeps what it was told and offered."""

    __name__ = "script"

    def __init__(self, *turns: Any) -> None:
        self.turns = list(turns)
        self.heard: list[list[dict[str, Any]]] = []
        self.offered: list[list[dict[str, Any]]] = []

    async def __call__(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
        self.heard.append(messages)
        self.offered.append(tools)
        assert self.turns, "the model was asked once too often"
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return turn


def agent_of(model: Any, *tools: Any, **options: Any) -> ReAct:
    """Return an agent with a question and an answer."""
    return ReAct("question -> answer", list(tools), model=model, **options)


def deleter(disk: Disk) -> Tool:
    """Return a tool that waits for a person."""

    @tool(require_confirmation=True)
    def delete_file(path: str) -> str:
        """Delete a file."""
        return disk.delete(path)

    return delete_file


def observed(model: Script) -> list[str]:
    """Return the results of calls that the model was told, as it last heard them."""
    return [message["content"] for message in model.heard[-1] if message["role"] == "tool"]


def save(signal: sayso.ConfirmationRequired) -> sayso.ConfirmationRequired:
    """Return a pause as it comes back from where it was saved as JSON."""
    return sayso.ConfirmationRequired.from_dict(json.loads(json.dumps(signal.to_dict())))
