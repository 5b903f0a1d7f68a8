"""Shared steps of the tests of runs: take a run to its pause, decide, and read its output."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from sayso import Agent, OutputEvent, Tool
from sayso.runs.runnable import Runnable
from sayso.testing import ScriptedModel

__all__ = ["agent_of", "answers", "awaited", "ids", "paying", "questions", "reason", "started", "tool_texts", "yes"]


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn an async test into a sync one."""

    @functools.wraps(test)
    def plain(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return plain


def tool_texts(messages: list[dict[str, Any]]) -> str:
    """Return the results of the tools in the last turn."""
    last = next(n for n in range(len(messages), 0, -1) if messages[n - 1]["role"] == "assistant")
    return " | ".join(message["content"] for message in messages[last:])


def agent_of(tools: Sequence[Any], *turns: Any, name: str = "agent", **options: Any) -> Agent:
    """Return an agent whose model makes these calls, turn by turn, and finally repeats the tools' results."""
    return Agent(name=name, model=ScriptedModel([*turns, tool_texts]), tools=tools, **options)


def paying(ran: list[Any]) -> Tool:
    """Return a gated tool that records what it paid."""

    def pay(amount: int) -> str:
        """Send money."""
        ran.append(amount)
        return f"paid {amount}"

    return Tool(pay, requires_approval=True, approval_prompt=lambda amount: f"Pay {amount}?")


def started(runnable: Runnable, **given: Any) -> OutputEvent:
    """Start a run, and return its output at the first pause."""
    output = runnable(**given).run()
    assert output.status.code == "cancelled", output
    return output


def ids(output: OutputEvent) -> list[str]:
    """Return the ids of the calls that wait."""
    return [entry["approval_id"] for entry in output.metadata.get("pending_approvals", [])]


def questions(output: OutputEvent) -> list[str]:
    """Return the ids of the questions that wait."""
    return [entry["interaction_id"] for entry in output.metadata.get("pending_interactions", [])]


def yes(output: OutputEvent) -> dict[str, Any]:
    """Return an approval for every call that waits."""
    return dict.fromkeys(ids(output), True)


def answers(output: OutputEvent, value: Any) -> dict[str, Any]:
    """Return the same answer for every question that waits."""
    return dict.fromkeys(questions(output), value)


def reason(output: OutputEvent) -> tuple[str, str | None]:
    """Return the reason of a run's end."""
    return output.status.code, output.status.reason
