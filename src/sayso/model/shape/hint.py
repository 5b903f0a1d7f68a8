"""What a value may be, in a few words or as a list to choose from: for prompts, editors and error messages.

It is read from the JSON Schema that a shape gives of itself. Invariant: names and values that a program chose are
escaped in what is returned as text.
"""

from __future__ import annotations

from typing import Any, cast

from sayso.model.shape import Shape
from sayso.model.text import escape
from sayso.view.arguments import brief

__all__ = ["choices_of", "kinds_of"]

_MOST_CHOICES = 50
_ROOM = 60
_MOST_SAID = 200
_LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "items at least",
    "maxItems": "items at most",
    "pattern": "matching",
}


def choices_of(shape: Shape) -> list[Any]:
    """Return the values that an answer may have, where these are a short list; else nothing."""
    schema = shape.json_schema()
    found = cast("list[Any]", _resolved(schema, schema["properties"]["answer"]).get("enum", []))
    return found if len(found) <= _MOST_CHOICES else []


def kinds_of(shape: Shape) -> dict[str, str]:
    """Return for each argument what it may be, and what its author says of it: `{"amount": "number, at most 500"}`."""
    schema = shape.json_schema()
    return {escape(name): _described(schema, part) for name, part in schema["properties"].items()}


def _described(schema: dict[str, Any], part: dict[str, Any]) -> str:
    kind, said = _kind(schema, part), escape(" ".join(str(part.get("description", "")).split()))
    return f"{kind}: {said if len(said) <= _MOST_SAID else said[:_MOST_SAID] + '…'}" if said else kind


def _resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    reference = part.get("$ref")
    return part if reference is None else schema["$defs"][str(reference).removeprefix("#/$defs/")]


def _kind(schema: dict[str, Any], part: dict[str, Any], depth: int = 0) -> str:
    if depth > 3:
        return "…"
    part = _resolved(schema, part)
    if "enum" in part:
        return " | ".join(brief(choice, _ROOM) for choice in part["enum"][:_MOST_CHOICES])
    if "anyOf" in part:
        return " or ".join(_kind(schema, one, depth + 1) for one in part["anyOf"])
    words = str(part.get("format") or part.get("contentEncoding") or part.get("type") or "anything")
    if part.get("type") == "array" and "items" in part:
        words = f"array of {_kind(schema, part['items'], depth + 1)}"
    if part.get("type") == "object" and "properties" in part:
        inside = (f"{escape(name)}: {_kind(schema, one, depth + 1)}" for name, one in part["properties"].items())
        words = f"object ({', '.join(inside)})"
    limits = (f"{said} {brief(part[name], _ROOM)}" for name, said in _LIMITS.items() if name in part)
    return ", ".join([words, *limits])
