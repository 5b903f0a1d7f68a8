"""The tools that a model may call, by name, and what it is told of each call."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, cast

from sayso import errors
from sayso.model import canonical
from sayso.model.request import Request, State
from sayso.model.text import storable
from sayso.questions import aask
from sayso.runs.halt import Denied
from sayso.runs.models import Message, ModelCall
from sayso.runs.module import Fields
from sayso.runs.tool import Tool
from sayso.runs.values import plain
from sayso.view.for_model import not_run

__all__ = [
    "ASK",
    "FINISH",
    "Observation",
    "approval_words",
    "by_name",
    "call_message",
    "check_turns",
    "denial_words",
    "finish_of",
    "nested",
    "not_a_tool",
    "offer_of",
    "recorded",
    "text_of",
    "with_words",
]


def call_message(call: ModelCall, content: str, *, is_error: bool) -> Message:
    """Return the message that answers a call; without half characters, which no provider takes."""
    text = storable(content)
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text, "is_error": is_error}


def not_a_tool(name: str, tools: Collection[str]) -> str:
    """Return what to say to a call of a tool that there is not."""
    near = get_close_matches(name, tools, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no tool {name!r}.{hint} There are: {', '.join(tools) or 'none'}. Nothing was run."


def approval_words(approval: Mapping[str, Any] | None) -> str:
    """Return what a person wrote or changed when they approved a call, for the line before its result."""
    resolution: Mapping[str, Any] = {} if approval is None else approval.get("resolution", {})
    if approval is None or not resolution.get("approved"):
        return ""
    words = approval.get("message_for_model")
    return f"{words}\n" if words else ""


def denial_words(name: str, denied: Denied, approval: Mapping[str, Any] | None) -> str:
    """Return what to say of a call that was not made."""
    said = None if approval is None else approval.get("message_for_model")
    if said and not approval_words(approval):
        return said
    return approval_words(approval) + not_run(name, denied.message, may_change=denied.is_feedback)


class Observation(NamedTuple):
    """What became of a call, in words."""

    text: str
    is_error: bool = False


def text_of(value: Any) -> str:
    """Return a value as a model reads it: text as it is, else JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)


def recorded(request: Request) -> Observation:
    """Return how a call ended that was made before; it is not made again."""
    done, words = request.execution, request.message_for_model()
    if request.state is State.FAILED:
        return Observation(words, is_error=True)
    if done is not None and done.resolved_by is not None:
        return Observation(words)
    if done is None or done.result is None:
        return _below(words, "it was run; what it returned is not kept")
    return _below(words, text_of(cast("Any", canonical.display(canonical.load(done.result)))["result"]))


def with_words(request: Request, got: Observation) -> Observation:
    """Return what a call gave that was made now, below what a person wrote or changed (`Request.message_for_model`)."""
    return recorded(request) if request.state is State.FAILED else _below(request.message_for_model(), *got)


def _below(words: str, text: str, is_error: bool = False) -> Observation:  # noqa: FBT001, FBT002  an observation's parts
    return Observation(f"{words}\n{text}" if words else text, is_error)


def nested() -> Observation:
    """Return what is told where a function inside of the tool's own waited: where it stood is not kept."""
    return Observation("what this call waited for was decided; make the same call again to go on", is_error=True)


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
