"""The tools that a model may call, by name: those that were given, and the two that come with `ReAct`.

Invariant: no two tools have one name, so that what a person approved is what the model called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from sayso import errors
from sayso.questions import aask
from sayso.runs.signature import Fields
from sayso.runs.tool import Tool

__all__ = ["ASK", "FINISH", "by_name", "check_turns", "finish_of", "offer_of"]

FINISH, ASK = "finish", "ask_to_user"


def by_name(tools: Iterable[Any], *, may_ask: bool) -> dict[str, Tool]:
    """Return the tools by name; `may_ask` adds the one that asks the user.

    Raises:
        ConfigError: Two have one name, or something is no tool.
    """
    found: dict[str, Tool] = {}
    if not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise errors.ConfigError(f"tools= takes a list, not {tools!r}")
    own = [Tool(_ask_to_user, name=ASK)] if may_ask else []
    for given in [*tools, *own]:
        tool = _tool_of(given)
        if tool.name in found or tool.name == FINISH:
            raise errors.ConfigError(f"two tools are called {tool.name!r}")
        found[tool.name] = tool
    return found


def check_turns(max_iters: object, on_rejection: object) -> None:
    """Refuse options of `ReAct` that cannot be used.

    Raises:
        ConfigError: There is one.
    """
    if type(max_iters) is not int or max_iters < 1:
        raise errors.ConfigError(f"max_iters= takes a whole number from 1, not {max_iters!r}")
    if on_rejection not in {"raise", "continue"}:
        raise errors.ConfigError(f"on_rejection= takes 'raise' or 'continue', not {on_rejection!r}")


def _tool_of(given: Any) -> Tool:
    if isinstance(given, Tool):
        return cast("Tool", given)
    handler = getattr(given, "func", None)
    if callable(handler) and isinstance(getattr(given, "name", None), str):
        return Tool(
            handler, name=given.name, description=getattr(given, "desc", None) or getattr(given, "description", None)
        )
    if not callable(given):
        raise errors.ConfigError(f"{given!r} is no tool: give a Tool, a function, or an object with name and func")
    return Tool(given)


def offer_of(tool: Tool) -> dict[str, Any]:
    """Return a tool as a model is offered it."""
    return {"name": tool.name, "description": tool.description or "", "parameters": tool.schema}


def finish_of(outputs: Fields) -> dict[str, Any]:
    """Return the tool by which a model gives its answer, as the model is offered it; it is never called."""
    return {
        "name": FINISH,
        "description": f"Give the answer: {', '.join(outputs.names)}. Ends the task.",
        "parameters": outputs.schema,
    }


async def _ask_to_user(question: str) -> str:
    """Ask the user a question and wait for the answer."""
    return await aask(question, wait="raise")
