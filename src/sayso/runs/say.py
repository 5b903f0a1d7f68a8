"""What a model is told about its calls."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from sayso.model.show.escape import storable
from sayso.runs.models import Message, ModelCall
from sayso.runs.values import plain

__all__ = ["call_message", "not_a_tool", "result_text"]


def call_message(call: ModelCall, content: str, *, is_error: bool) -> Message:
    """Return the message that answers a call; without half characters, which no provider takes."""
    text = storable(content)
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text, "is_error": is_error}


def not_a_tool(name: str, tools: Collection[str]) -> str:
    """Return what to say to a call of a tool that there is not."""
    near = get_close_matches(name, tools, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"There is no tool {name!r}.{hint} There are: {', '.join(tools) or 'none'}. Nothing was run."


def result_text(value: Any, approval: Mapping[str, Any] | None) -> str:
    """Return a call's result as text, and what a person changed before it ran."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    changed = None if approval is None else approval.get("changed")
    if not changed:
        return text
    changes = "; ".join(f"{name}: {was} -> {now}" for name, was, now in changed)
    return f"{text}\n[A person changed the arguments before it ran: {changes}. The result is that of the changed call.]"
