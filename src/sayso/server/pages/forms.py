"""A call's arguments, or a question's answer, as fields of a form.

The fields are made from the JSON Schema that is stored beside a request, the same one that edits are checked by, so
none of the program's code is needed. Each type gets the input that fits it, and the rest is edited as JSON: an input
never hides a character or changes a value. Where a secret is masked, or the program's code would be needed to check a
change, the field cannot be changed. Names and hints are escaped here. `form_input` reads a submitted form back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from sayso.model.canonical import MASK, Json, display
from sayso.model.canonical.decode import class_in, fields_of, items_of, tag_in
from sayso.model.escaping import escape
from sayso.model.rendering import brief
from sayso.model.request import Request
from sayso.model.schema import Schema
from sayso.model.schema_validation import Node
from sayso.view.hint import kind_of, kinds_of
from sayso.view.layout import Layout

__all__ = [
    "ABSENT",
    "LABELS",
    "Kind",
    "Way",
    "Widget",
    "answer_fields",
    "argument_fields",
    "as_json",
    "is_same",
    "is_visible",
    "read_json",
    "scalar_widget",
    "unified",
    "walk",
    "with_problems",
]


def is_visible(text: str) -> bool:
    """Say whether people see every character of a text for what it is; line feeds count as seen."""
    return escape(text, block=True) == text


def as_json(tree: Json) -> str:
    """Return a value as JSON to be edited, with characters that cannot be seen as JSON escapes."""
    text = json.dumps(display(tree), indent=2, ensure_ascii=False)
    return text if is_visible(text) else "".join(map(_seen, text))


def _seen(character: str) -> str:
    if character == "\n" or escape(character) == character:
        return character
    return json.dumps(character)[1:-1]


def read_json(text: str) -> Any:
    """Return what a JSON text says.

    Raises:
        ValueError: It is none, or a name stands twice in one object.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return dict(pairs)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def unified(text: str) -> str:
    """Return a text with line ends as we write them; browsers send a carriage return, too."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_same(kind: str, sent: str, shown: str) -> bool:
    """Say whether a field came back as it was shown; some browsers leave out the seconds of a full minute."""
    if unified(sent) == unified(shown):
        return True
    return kind in {"datetime-local", "time"} and bool(sent) and f"{sent}:00" == shown


Kind = Literal[
    "text", "long", "number", "bool", "choice", "date", "datetime-local", "time", "lines", "json", "fields", "fixed"
]
Way = Literal["value", "null", "absent"]

LABELS: dict[Way, str] = {"value": "this value", "null": "null", "absent": "leave out"}


@dataclass(frozen=True)
class Widget:
    """A field.

    Attributes:
        key: What the input is called in the form.
        name: The argument's or field's own name.
        path: Where it stands, as problems name it: `order.lines`.
        kind: Which input it is; `fields` has parts, and `fixed` cannot be changed.
        label: The name as people see it.
        hint: What it may be, in a few words.
        value: What stands in the input.
        tree: The value as it stands, of the canonical form, masked; None where there is none.
        drawn: The whole value, drawn by us, where the input may not show all of it.
        limits: Attributes of the input.
        options: For a choice, what is sent and what is read, in order.
        choices: What each option stands for.
        parts: For `fields`, its own.
        ways: What can be said of it: a value, null, or nothing at all.
        way: What is said now.
        proposed: Where an edit is shown again, what stood in the input before it.
        proposed_way: Where an edit is shown again, what was said before it.
        is_given: Whether it is sent with its object; a class sets some of its fields itself.
        problem: What is wrong with what was sent.
    """

    key: str
    name: str
    path: str
    kind: Kind
    label: str
    hint: str = ""
    value: str = ""
    tree: Json = field(default=None, repr=False)
    drawn: str | None = None
    limits: dict[str, str] = field(default_factory=dict[str, str])
    options: tuple[tuple[str, str], ...] = ()
    choices: tuple[Any, ...] = ()
    parts: tuple[Widget, ...] = ()
    ways: tuple[Way, ...] = ("value",)
    way: Way = "value"
    proposed: str | None = None
    proposed_way: Way | None = None
    default: str = ""
    is_given: bool = True
    problem: str | None = None

    @property
    def can_change(self) -> bool:
        """Whether anything of it can be changed."""
        return self.kind != "fixed" and (self.kind != "fields" or any(part.can_change for part in self.parts))

    def labels(self) -> list[tuple[Way, str]]:
        """Return the ways with their words."""
        words = {**LABELS}
        if self.default:
            words["absent"] = f"leave out ({self.default})"
        return [(way, words[way]) for way in self.ways]


def walk(widgets: Sequence[Widget]) -> Iterator[Widget]:
    """Yield fields and the fields in them."""
    for widget in widgets:
        yield widget
        yield from walk(widget.parts)


def with_problems(widgets: Sequence[Widget], problems: Sequence[str]) -> tuple[tuple[Widget, ...], list[str]]:
    """Return the fields with the problems that are about them, and the problems that are about none."""
    paths = {widget.path for widget in walk(widgets)}
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    for problem in problems:
        where, _, what = problem.partition(": ")
        nearest = max((path for path in paths if _is_within(where, path)), key=len, default=None)
        if nearest is None or not what:
            rest.append(problem)
        else:
            found.setdefault(nearest, []).append(what if where == nearest else problem)
    return tuple(_marked(widget, found) for widget in widgets), rest


def _is_within(where: str, path: str) -> bool:
    return where == path or where.startswith((f"{path}.", f"{path}["))


def _marked(widget: Widget, found: dict[str, list[str]]) -> Widget:
    mine = found.get(widget.path)
    parts = tuple(_marked(part, found) for part in widget.parts)
    return replace(widget, parts=parts, problem="; ".join(mine) if mine else widget.problem)


_WIDTH = 96
_ONE_LINE = 60
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_WHEN: dict[str, tuple[Kind, re.Pattern[str]]] = {
    "date": ("date", re.compile(r"\d{4}-\d\d-\d\d")),
    "datetime": ("datetime-local", re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")),
    "time": ("time", re.compile(r"\d\d:\d\d:\d\d")),
}


def scalar_widget(kind: Node, tree: Json, key: str) -> Widget | None:
    """Return the field of a single value; None where it has no input of its own. `tree` is None without a value."""
    named = kind.get("type")
    if named == "boolean":
        return _bool(key, tree)
    if named in {"integer", "number"}:
        return _number(key, named == "integer", tree, kind)
    if named != "string":
        return None
    name = str(kind.get("x-sayso-type") or (kind.get("format") if kind.get("format") == "date" else "str"))
    if tree is None:
        return Widget(key, "", "", "date" if name == "date" else "text", "", limits=_lengths(kind))
    is_text = "x-sayso-type" not in kind or name == "str"
    if not (isinstance(tree, str) if is_text else tag_in(tree) == f"${name}"):
        return None  # what stands here is not of the declared type: it is shown as what it is
    return _text(key, name, str(display(tree)), tree, _lengths(kind))


def _bool(key: str, tree: Json) -> Widget | None:
    if tree is not None and not isinstance(tree, bool):
        return None
    empty = [("", "choose…")] if tree is None else []
    value = "" if tree is None else "true" if tree else "false"
    return Widget(key, "", "", "bool", "", value=value, options=(*empty, ("true", "true"), ("false", "false")))


def _number(key: str, is_whole: bool, tree: Json, kind: Node) -> Widget | None:  # noqa: FBT001
    is_fit = isinstance(tree, int if is_whole else int | float) and not isinstance(tree, bool)
    value = "" if tree is None else repr(tree)
    if (tree is not None and not is_fit) or (value and _NUMBER.fullmatch(value) is None):
        return None
    said = {"step": "1" if is_whole else "any"}
    for attribute, limit in (("min", kind.get("minimum")), ("max", kind.get("maximum"))):
        if isinstance(limit, int | float):
            said[attribute] = repr(limit)
    return Widget(key, "", "", "number", "", value=value, limits=said)


def _text(key: str, name: str, text: str, tree: Json, limits: dict[str, str]) -> Widget | None:
    if not is_visible(text):
        return None
    if name in _WHEN and _WHEN[name][1].fullmatch(text) and "[" not in text:
        return Widget(key, "", "", _WHEN[name][0], "", value=text, limits={} if name == "date" else {"step": "1"})
    if "\n" in text or len(text) > _ONE_LINE:
        drawn = "\n".join(Layout(_WIDTH, None).rows(tree))
        return Widget(key, "", "", "long", "", value=text, drawn=drawn, limits=limits)
    return Widget(key, "", "", "text", "", value=text, limits=limits)


def _lengths(kind: Node) -> dict[str, str]:
    # A browser counts in UTF-16 units, so a limit of ours would refuse what the function takes; only the hint says it.
    return {"data-longest": str(kind["maxLength"])} if isinstance(kind.get("maxLength"), int) else {}


ABSENT: Json = {"$absent": None}
"""Stands for a value where there is none."""

_DEEPEST, _MOST_PARTS = 5, 60
_MOST_FIELDS = 1_000  # of a whole form: a short schema can have any number of parts by its references
_ROOM = 60

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
        self._left = _MOST_FIELDS

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
        self._left -= len(properties)
        if held is None or len(steps) > _DEEPEST or len(properties) > _MOST_PARTS or self._left < 0:
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
