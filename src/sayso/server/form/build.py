"""A schema and the values that stand, made into fields: of each type the input that fits it.

It is made from the text of the schema that is stored beside a request, so it needs none of the program's code.
What has no input of its own is JSON. The invariant: where a secret is masked, or the program's code would be needed
to check a change, the field cannot be changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from sayso.model.canonical import MASK, Json, display
from sayso.model.canonical.decode import class_in, fields_of, items_of, tag_in
from sayso.model.json_schema import Node
from sayso.model.request import Request
from sayso.model.schema import Schema
from sayso.server.form.scalar import scalar_widget
from sayso.server.form.text import as_json
from sayso.server.form.widget import Way, Widget
from sayso.view import escape
from sayso.view.arguments import Layout, brief
from sayso.view.hint import kind_of, kinds_of

__all__ = ["ABSENT", "answer_fields", "argument_fields"]

ABSENT: Json = {"$absent": None}
"""Stands for a value where there is none."""

_DEEPEST, _MOST_PARTS = 5, 60
_ROOM = 60
_WIDTH = 96
_LINES = frozenset({"float", "decimal", "date", "uuid", "path"})


def argument_fields(request: Request, schema: Schema) -> tuple[Widget, ...]:
    """Return the fields of the call that would run, as it stands, in the order of its parameters."""
    builder = _Builder(schema)
    shown = fields_of(cast("Json", request.effective.shown)) or {}
    # A gate gives all of its function's arguments, and one that is not shown is hidden; a foreign call may do without.
    absent = _HIDDEN if schema.is_own else ABSENT
    made = [builder.argument(at, name, shown.get(name, absent)) for at, name in enumerate(schema.names)]
    more = [name for name in shown if name not in schema.properties]
    return (*made, *(_fixed(f"x{at}", name, name, shown[name], "") for at, name in enumerate(more)))


def answer_fields(schema: Schema) -> tuple[Widget, ...]:
    """Return the field of a question's answer, with nothing in it."""
    builder = _Builder(schema)
    return tuple(builder.argument(at, name, ABSENT) for at, name in enumerate(schema.names))


_HIDDEN: Json = MASK


class _Builder:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._has_code = Schema.live(schema.digest) is not None
        self._hints = kinds_of(schema)

    def argument(self, at: int, name: str, tree: Json) -> Widget:
        """Return the widget of an argument."""
        node = self._schema.properties[name]
        return self.field(name, node, tree, (at,), is_required=name in self._schema.required)

    def field(
        self, name: str, part: Any, tree: Json, steps: tuple[int, ...], within: str = "", *, is_required: bool
    ) -> Widget:
        """Return the widget of an argument, or of a field of an object."""
        part = cast("Node", part) if isinstance(part, dict) else {}
        path = f"{within}.{name}" if within else name
        key = "f" + ".".join(map(str, steps))
        kind, can_be_null = self._without_null(part)
        why_fixed = self._why_fixed(part, kind, tree)
        if why_fixed is not None:
            return _fixed(key, name, path, tree, why_fixed, is_given="readOnly" not in part)
        if tree is None and not can_be_null:
            made = _json(key, path, tree)
        else:
            made = self._typed(kind, None if tree is ABSENT else tree, key, path, steps)
        ways = self._ways(part, tree, can_be_null=can_be_null, is_required=is_required)
        return replace(
            made, name=name, path=path, key=key, label=escape(name), tree=tree, ways=ways, way=_way_of(tree, ways),
            hint=kind_of(self._schema, part) if within else self._hints.get(escape(name), ""),
            default=brief(part["default"], _ROOM) if "default" in part else "",
        )  # fmt: skip

    def _why_fixed(self, part: Node, kind: Node, tree: Json) -> str | None:
        """Return why a field cannot be changed; None where it can."""
        if part.get("readOnly") is True and not self._has_code:
            return "set by the class itself"
        if _is_masked(tree):
            return "masked; it stays what it really is"
        return "can only be changed where the program's code is" if self._needs_code(kind) else None

    def _ways(self, part: Node, tree: Json, *, can_be_null: bool, is_required: bool) -> tuple[Way, ...]:
        has_default = "default" in part or tree is ABSENT or self._has_code
        null: tuple[Way, ...] = ("null",) if can_be_null else ()
        absent: tuple[Way, ...] = ("absent",) if has_default and not is_required else ()
        return ("value", *null, *absent)

    def _without_null(self, part: Node) -> tuple[Node, bool]:
        found = self._schema.resolved(part)
        parts: list[Any] = found.get("anyOf") or found.get("oneOf") or []
        others = [one for one in map(self._schema.resolved, parts) if one.get("type") != "null"]
        if len(others) == 1 and len(parts) > 1:
            return others[0], True
        named = found.get("type")
        if isinstance(named, list) and "null" in named and len(cast("list[str]", named)) == 2:
            (only,) = (one for one in cast("list[str]", named) if one != "null")
            return {**found, "type": only}, True
        return found, False

    def _needs_code(self, kind: Node) -> bool:
        return not self._has_code and "x-sayso-code" in kind and _class_of(kind) is not None

    def _typed(self, kind: Node, tree: Json, key: str, path: str, steps: tuple[int, ...]) -> Widget:
        """Return the input of a type; `tree` is None where there is no value yet."""
        made: Widget | None = None
        items: Any = kind.get("items")
        if "enum" in kind:
            made = _choice(key, kind["enum"], tree)
        elif "properties" in kind:
            made = self._object(kind, tree, key, path, steps)
        elif kind.get("type") == "array" and isinstance(items, dict) and _is_a_line(self._schema.resolved(items)):
            made = _lines(key, tree)
        else:
            made = scalar_widget(kind, tree, key)
        return made or (Widget(key, "", path, "json", "") if tree is None else _json(key, path, tree))

    def _object(self, kind: Node, tree: Json, key: str, path: str, steps: tuple[int, ...]) -> Widget | None:
        properties: dict[str, Any] = kind["properties"]
        held = {} if tree is None else fields_of(tree)
        if held is None or len(steps) > _DEEPEST or len(properties) > _MOST_PARTS:
            return None
        if tree is not None and class_in(tree) != _class_of(kind):
            return None  # of a subclass, or not yet of this class
        if held.keys() - properties.keys():
            return None
        required = kind.get("required", ())
        parts = tuple(
            self.field(name, part, held.get(name, ABSENT), (*steps, at), path, is_required=name in required)
            for at, (name, part) in enumerate(properties.items())
        )
        return Widget(key, "", path, "fields", "", parts=parts)


def _class_of(kind: Node) -> str | None:
    made_of, _, name = str(kind.get("x-sayso-type", "")).partition(" ")
    return name if made_of in {"model", "dataclass", "root"} else None


def _is_a_line(kind: Node) -> bool:
    """Say whether a value of this kind is one line of text."""
    return kind.get("type") in {"string", "integer", "number"} and kind.get("x-sayso-type", "float") in _LINES


def _way_of(tree: Json, ways: tuple[Way, ...]) -> Way:
    """Return what is said of a value as it stands."""
    if tree is ABSENT and "absent" in ways:
        return "absent"
    return "null" if tree is None and "null" in ways else "value"


def _json(key: str, path: str, tree: Json) -> Widget:
    return Widget(key, "", path, "json", "", value=as_json(tree), drawn=_drawn(tree))


def _is_masked(tree: Json) -> bool:
    return tree == MASK or tag_in(tree) == "$secret"


def _fixed(key: str, name: str, path: str, tree: Json, why: str, *, is_given: bool = True) -> Widget:
    drawn = "" if tree is ABSENT else _drawn(tree)
    return Widget(key, name, path, "fixed", escape(name), hint=why, tree=tree, drawn=drawn, is_given=is_given)


def _drawn(tree: Json) -> str:
    return "\n".join(Layout(_WIDTH, None).rows(tree))


def _choice(key: str, values: list[Any], tree: Json) -> Widget | None:
    if tree is None:
        at = ""
    else:
        shown = display(tree)
        places = [str(place) for place, one in enumerate(values) if type(one) is type(shown) and one == shown]
        if not places:
            return None
        at = places[0]
    options = [(str(place), brief(one, _ROOM)) for place, one in enumerate(values)]
    empty = [("", "choose…")] if tree is None else []
    return Widget(key, "", "", "choice", "", value=at, options=(*empty, *options), choices=tuple(values))


def _lines(key: str, tree: Json) -> Widget | None:
    """Return a field with one item on each line, where every item is one plain line."""
    items = [] if tree is None else items_of(tree)
    if items is None:
        return None
    texts = [str(display(item)) for item in items]
    is_plain = all(text and text == text.strip() == escape(text) for text in texts) and MASK not in texts
    if not is_plain or any(isinstance(display(item), bool | list | dict | None) for item in items):
        return None
    return Widget(key, "", "", "lines", "", value="\n".join(texts), drawn=None if tree is None else _drawn(tree))
