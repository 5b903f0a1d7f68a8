"""What a model is told about its calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from sayso.model.text import storable
from sayso.runs.halt import Denied
from sayso.runs.models import Message, ModelCall
from sayso.view.for_model import not_run

__all__ = ["approval_words", "call_message", "denial_words", "not_a_tool"]


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
