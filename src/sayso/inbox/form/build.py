"""A shape and the values that stand, made into fields: of each type the input that fits it.

It is made from the text of the shape that is stored beside a request, so it needs none of the program's code.
What has no input of its own is JSON. The invariant: where a secret is masked, or the program's code would be needed
to check a change, the field cannot be changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from sayso.inbox.form.scalar import scalar_widget
from sayso.inbox.form.text import as_json
from sayso.inbox.form.widget import Way, Widget
from sayso.model.canonical import MASK, Json, display
from sayso.model.canonical.decode import class_in, fields_of, items_of, tag_in
from sayso.model.request import Request
from sayso.model.shape import Shape
from sayso.model.shape.hint import kinds_of
from sayso.model.shape.limits import Descriptor
from sayso.view import escape
from sayso.view.arguments import Layout, brief

__all__ = ["ABSENT", "answer_fields", "argument_fields"]

ABSENT: Json = {"$absent": None}
"""Stands for a value where there is none."""

_DEEPEST, _MOST_PARTS = 5, 60
_ROOM = 60
_WIDTH = 96
_LINES = frozenset({"str", "int", "float", "decimal", "date", "uuid", "path"})


def argument_fields(request: Request, shape: Shape) -> tuple[Widget, ...]:
    """Return the fields of the call that would run, as it stands, in the order of its parameters."""
    builder = _Builder(shape)
    shown = request.effective.shown
    made = [builder.field(field, shown.get(field["name"], _HIDDEN), (at,)) for at, field in enumerate(builder.fields)]
    known = {field["name"] for field in builder.fields}
    more = [name for name in shown if name not in known]
    return (*made, *(_fixed(f"x{at}", name, name, shown[name], "") for at, name in enumerate(more)))


def answer_fields(shape: Shape) -> tuple[Widget, ...]:
    """Return the field of a question's answer, with nothing in it."""
    builder = _Builder(shape)
    return tuple(builder.field(field, ABSENT, (at,)) for at, field in enumerate(builder.fields))


_HIDDEN: Json = MASK


class _Builder:
    def __init__(self, shape: Shape) -> None:
        told = cast("Descriptor", json.loads(shape.text))
        self.fields: list[Descriptor] = told["fields"]
        self._defs: dict[str, Descriptor] = {**told["defs"], **told.get("more", {})}
        self._has_code = Shape.live(shape.digest) is not None
        self._hints = kinds_of(shape)

    def field(self, field: Descriptor, tree: Json, steps: tuple[int, ...], within: str = "") -> Widget:
        """Return the widget of an argument, or of a field of an object."""
        name: str = field["name"]
        path = f"{within}.{name}" if within else name
        key = "f" + ".".join(map(str, steps))
        kind, can_be_null = self._without_none(field["type"])
        why_fixed = self._why_fixed(field, kind, tree)
        if why_fixed is not None:
            return _fixed(key, name, path, tree, why_fixed, is_given="given" not in field)
        if tree is None and not can_be_null:
            made = _json(key, path, tree)
        else:
            made = self._typed(kind, None if tree is ABSENT else tree, key, path, steps)
        ways = self._ways(field, tree, can_be_null=can_be_null)
        return replace(
            made, name=name, path=path, key=key, label=escape(name), tree=tree, ways=ways, way=_way_of(tree, ways),
            hint=_hint_of(field["type"]) if within else self._hints.get(escape(name), ""),
            default=brief(field["default"], _ROOM) if "default" in field else "",
        )  # fmt: skip

    def _why_fixed(self, field: Descriptor, kind: Descriptor, tree: Json) -> str | None:
        """Return why a field cannot be changed; None where it can."""
        if "given" in field:
            return "set by the class itself"
        if _is_masked(tree):
            return "masked; it stays what it really is"
        return "can only be changed where the program's code is" if self._needs_code(kind) else None

    def _ways(self, field: Descriptor, tree: Json, *, can_be_null: bool) -> tuple[Way, ...]:
        has_default = "default" in field or tree is ABSENT or self._has_code
        null: tuple[Way, ...] = ("null",) if can_be_null else ()
        absent: tuple[Way, ...] = ("absent",) if has_default and not field["required"] else ()
        return ("value", *null, *absent)

    def _without_none(self, kind: Descriptor) -> tuple[Descriptor, bool]:
        if kind["kind"] != "union":
            return kind, False
        others = [part for part in kind["of"] if part["kind"] != "none"]
        return (others[0], True) if len(others) == 1 and len(others) < len(kind["of"]) else (kind, False)

    def _needs_code(self, kind: Descriptor) -> bool:
        return not self._has_code and kind["kind"] == "ref" and bool(self._defs[kind["name"]].get("checked"))

    def _typed(self, kind: Descriptor, tree: Json, key: str, path: str, steps: tuple[int, ...]) -> Widget:
        """Return the input of a type; `tree` is None where there is no value yet."""
        made: Widget | None = None
        match kind["kind"]:
            case "ref" if self._defs[kind["name"]]["kind"] == "enum":
                members = [str(member[0]) for member in self._defs[kind["name"]]["members"]]
                made = _choice(key, members, tree)
            case "literal":
                made = _choice(key, [display(form) for form in kind["values"]], tree)
            case "ref":
                made = self._object(kind["name"], tree, key, path, steps)
            case "list" | "tuple" if "items" in kind and kind["items"]["kind"] in _LINES:
                made = _lines(key, tree)
            case _:
                made = scalar_widget(kind, tree, key)
        return made or (Widget(key, "", path, "json", "") if tree is None else _json(key, path, tree))

    def _object(self, name: str, tree: Json, key: str, path: str, steps: tuple[int, ...]) -> Widget | None:
        definition = self._defs[name]
        fields: list[Descriptor] = definition.get("fields", [])
        held = {} if tree is None else fields_of(tree)
        is_plain = definition["kind"] == "typed_dict"
        if held is None or definition.get("root") or len(steps) > _DEEPEST or len(fields) > _MOST_PARTS:
            return None
        if tree is not None and class_in(tree) != (None if is_plain else name):
            return None  # of a subclass, or not yet of this class
        if held.keys() - {field["name"] for field in fields}:
            return None
        parts = tuple(
            self.field(field, held.get(field["name"], ABSENT), (*steps, at), path) for at, field in enumerate(fields)
        )
        return Widget(key, "", path, "fields", "", parts=parts)


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


def _hint_of(kind: Descriptor) -> str:
    """Return what a field of an object may be; its limits are told by what is refused."""
    if kind["kind"] == "union":
        return " or ".join(map(_hint_of, kind["of"]))
    if kind["kind"] == "ref":
        return escape(str(kind["name"]).rpartition(":")[2].rpartition(".")[2])
    limits = cast("Mapping[str, Json]", kind.get("limits", {}))
    said = [f"{name.replace('_', ' ')} {brief(form, _ROOM)}" for name, form in limits.items()]
    return ", ".join([str(kind["kind"]), *said])


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
