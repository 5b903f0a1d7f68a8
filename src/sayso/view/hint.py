"""Describes which values are accepted, in a few words or as a list of choices, for prompts, editors and error messages.

Invariant: names and values that come from a program are escaped in returned text.
"""

from __future__ import annotations

from typing import Any, cast

from sayso.model.escaping import escape
from sayso.model.rendering import brief
from sayso.model.schema import Schema
from sayso.model.words import later, say

_MOST_CHOICES = 50
_MOST_PARTS = 12, 6, 4, 2  # of each level: a short schema can have any number of parts by its references
_ROOM = 60
_LONGEST = 200
_LIMITS = {
    "minimum": later("at least %(value)s"),
    "exclusiveMinimum": later("more than %(value)s"),
    "maximum": later("at most %(value)s"),
    "exclusiveMaximum": later("less than %(value)s"),
    "multipleOf": later("a multiple of %(value)s"),
    "minLength": later("length at least %(value)s"),
    "maxLength": later("length at most %(value)s"),
    "minItems": later("items at least %(value)s"),
    "maxItems": later("items at most %(value)s"),
    "pattern": later("matching %(value)s"),
}

_KINDS = frozenset({
    later("string"), later("number"), later("integer"), later("boolean"), later("array"), later("object"),
    later("date"),
})  # fmt: skip
_FORMATS = frozenset({later("date-time"), later("time"), later("duration"), later("path")})


def _kind(name: Any) -> str:
    return say(str(name)) if name in _KINDS | _FORMATS else str(name)


def choices_of(schema: Schema) -> list[Any]:
    """Return the values that an answer may have, where these are a short list; else nothing."""
    found = cast("list[Any]", schema.resolved(schema.properties["answer"]).get("enum", []))
    return found if len(found) <= _MOST_CHOICES else []


def kinds_of(schema: Schema, *, patterns: bool = True) -> dict[str, str]:
    """Return for each argument what it may be, and what its author says of it: `{"amount": "number, at most 500"}`.

    Without `patterns`, no regular expression is shown, only that a text has a form of its own.
    """
    return {escape(name): _described(schema, part, patterns=patterns) for name, part in schema.properties.items()}


def _described(schema: Schema, part: Any, *, patterns: bool) -> str:
    kind, words = kind_of(schema, part, patterns=patterns), description_of(part)
    return f"{kind}: {words}" if words else kind


def description_of(part: Any) -> str:
    """Return what its author says of a value, escaped; empty where that is nothing."""
    said = cast("dict[str, Any]", part).get("description", "") if isinstance(part, dict) else ""
    words = escape(" ".join(str(said).split()))
    return words if len(words) <= _LONGEST else words[:_LONGEST] + "…"


def is_obvious(kind: str) -> bool:
    """Say whether words about a value name its type alone, which the field for it shows."""
    return kind in {say(name) for name in _KINDS}


def kind_of(schema: Schema, part: Any, depth: int = 0, *, patterns: bool = True) -> str:
    """Return what a value of one schema may be."""
    if depth > 3:
        return "…"
    part, most = schema.resolved(part), _MOST_PARTS[depth]
    if "enum" in part:
        return " | ".join(brief(choice, _ROOM) for choice in part["enum"][:_MOST_CHOICES])
    if "anyOf" in part or "oneOf" in part:
        parts = part.get("anyOf") or part["oneOf"]
        more = ["…"] if len(parts) > most else []
        return say(" or ").join([*(kind_of(schema, one, depth + 1, patterns=patterns) for one in parts[:most]), *more])
    if "const" in part:
        return brief(part["const"], _ROOM)
    named = part.get("type")
    kind = say(" or ").join(map(_kind, cast("list[Any]", named))) if isinstance(named, list) else named and _kind(named)
    if part.get("x-sayso-type") == "decimal":  # written as text, whose pattern says no more than this
        return say("number")
    form = part.get("format") or part.get("contentEncoding")
    words = escape(_kind(form) if form else str(kind or say("anything")))
    if part.get("type") == "array" and isinstance(part.get("items"), dict):
        words = say("array of %(kind)s", kind=kind_of(schema, part["items"], depth + 1, patterns=patterns))
    if part.get("type") == "object" and "properties" in part:
        named = list(part["properties"].items())
        inside = [f"{escape(name)}: {kind_of(schema, one, depth + 1, patterns=patterns)}" for name, one in named[:most]]
        words = say("object (%(fields)s)", fields=", ".join(inside + (["…"] if len(named) > most else [])))
    named = [name for name in _LIMITS if name in part and (patterns or name != "pattern")]
    limits = [say(_LIMITS[name], value=brief(part[name], _ROOM)) for name in named]
    limits += [say("in a form of its own")] if not patterns and "pattern" in part else []
    return ", ".join([words, *limits])
