"""Builds form fields for a call's arguments or a question's answer; `sayso.server.pages.edits` reads what is sent.

The fields are made from the JSON Schema that is stored with a request and that also validates edits, so the program's
code is not needed. Each type gets a suitable input; other values are edited as JSON. An input never hides a character
or changes a value. A field cannot be changed if it is a masked secret, or if validating a change needs the program's
code. Names and hints are escaped here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from sayso.model.canonical import MASK, Json, display
from sayso.model.canonical.json_tree import class_in, fields_of, items_of, tag_in
from sayso.model.edit import mentions_mask, schema_of
from sayso.model.rendering import brief, is_amount
from sayso.model.request import Request
from sayso.model.schema import Schema
from sayso.model.schema_validation import Node
from sayso.model.text import escape, later, say, unisolated
from sayso.server.language import translated
from sayso.server.pages.arguments import in_words, is_plain
from sayso.view.full_text import description_of, is_obvious, kind_of, kinds_of
from sayso.view.summary import Layout

Kind = Literal[
    "text", "long", "number", "bool", "choice", "date", "datetime-local", "time", "lines", "json", "fields", "items",
    "entry", "fixed",
]  # fmt: skip
Way = Literal["value", "null", "absent"]

LABELS: dict[Way, str] = {
    "value": later("given"), "null": later("nothing (null)"), "absent": later("left out")
}  # fmt: skip

_WIDTH = 96
_ONE_LINE = 60
_ROOM = 60
_DEEPEST, _DEEPEST_NEW, _MOST_PARTS, _MORE = 5, 3, 60, 3
_MOST_FIELDS = 1_000  # of a whole form, because references let a short schema have any number of parts
ABSENT: Json = {"$absent": None}  # placeholder for a missing value
_LINES = frozenset({"float", "decimal", "date", "uuid", "path"})
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_WRONG_TYPE = re.compile(
    r'Input (?:is not of type|should be a valid) "?(\w+)"?(?:, (?:unable to parse|got a number) .*)?'
)
_WANTED = {
    "integer": later("write a whole number, such as 12"), "number": later("write a number, such as 12.5"),
    "decimal": later("write a number, such as 12.5"), "boolean": later("write true or false"),
    "string": later("write a text, in double quotes"), "array": later("write a list in JSON, such as [1, 2]"),
    "object": later("write an object in JSON, in curly brackets"),
}  # fmt: skip
_TIMES: dict[str, tuple[Kind, re.Pattern[str]]] = {
    "date": ("date", re.compile(r"\d{4}-\d\d-\d\d")),
    "datetime": ("datetime-local", re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")),
    "time": ("time", re.compile(r"\d\d:\d\d:\d\d")),
}


@dataclass(frozen=True)
class Widget:
    """A form field.

    Attributes:
        kind: The kind of input; `fields` and `items` have parts, an `entry` is a new name and value for a dict, and
            `fixed` cannot be changed.
        value: Text in the input.
        key: Name of the input in the form.
        name: Name of the argument or field.
        path: Its path, as problems name it, such as `order.lines`.
        hint: A short description of valid values.
        tree: The current value in canonical form, masked; None if there is none.
        whole: The whole value as text, if the input may not show all of it.
        limits: Attributes of the input.
        options: For a choice, pairs of the value to send and the text to show, in order.
        parts: The parts of an object, list or entry.
        ways: What can be chosen: a value, null, or leaving it out.
        way: The current choice.
        proposed, proposed_way: If an edit is shown again, the value and choice before it.
        is_given: Whether it is sent with its object; a class sets some of its fields itself.
        problem: What is wrong with what was sent.
        entry: The name that was sent for an `entry`.
        caption: Its label on the page, if not its name.
        is_needed: Whether an empty or blank value is refused.
        boxes: For an answer of several choices, a check box for each: its key, the value to send and the text to show.
        can_be_empty: Whether an empty list is an answer, which needs a tick in a check box of its own, `KEY.none`.
    """

    kind: Kind
    value: str = ""
    key: str = ""
    name: str = ""
    path: str = ""
    hint: str = ""
    tree: Json = field(default=None, repr=False)
    whole: str | None = None
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
    entry: str = ""
    caption: str = ""
    is_needed: bool = False
    boxes: tuple[tuple[str, str, str], ...] = ()
    can_be_empty: bool = False

    @property
    def label(self) -> str:
        """The displayed name."""
        return self.caption or escape(self.name)

    @property
    def is_amount(self) -> bool:
        """Whether the page draws its value as an amount."""
        return is_amount(self.name) and (isinstance(self.tree, int | float) or tag_in(self.tree) == "$decimal")

    @property
    def can_change(self) -> bool:
        """Whether it, or any of its parts, can be changed."""
        has_parts = self.kind in {"fields", "items"}
        return self.kind != "fixed" and (not has_parts or any(part.can_change for part in self.parts))

    def labels(self) -> list[tuple[Way, str]]:
        """Return the ways with their labels."""
        default = {"absent": say("left out (then %(default)s)", default=self.default)} if self.default else {}
        return [(way, default.get(way, say(LABELS[way]))) for way in self.ways]


def with_problems(widgets: Sequence[Widget], problems: Sequence[str]) -> tuple[tuple[Widget, ...], list[str]]:
    """Return the fields with their problems, and the problems that belong to no field."""
    paths = {widget.path for widget in _walk(widgets)}
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    for problem in problems:
        where, _, what = problem.partition(": ")
        within = (path for path in paths if where == path or where.startswith((f"{path}.", f"{path}[")))
        nearest = max(within, key=len, default=None)
        if nearest is None or not what:
            rest.append(_translated(problem))
        else:
            about = "" if where == nearest else f"{unisolated(in_words(where))}: "
            found.setdefault(nearest, []).append(about + _translated(what))
    return tuple(_add_problems(widget, found) for widget in widgets), rest


def flaws(widgets: Sequence[Widget]) -> list[tuple[str, str]]:
    """Return the key of each field with a problem, and the problem with the field's name."""
    found = [(one, in_words(one.path), one.problem) for one in _walk(widgets) if one.problem]
    return [
        (one.key, problem if problem.startswith(path) else f"{one.caption or path}: {problem}")
        for one, path, problem in found
    ]


def _translated(problem: str) -> str:
    """Translate a problem, of the form `what is wrong` or `where: what is wrong`. Pages escape it."""
    where, colon, what = problem.partition(": ")
    wanted = _WANTED.get(wrong[1]) if (wrong := _WRONG_TYPE.fullmatch(what or problem)) else None
    if wanted is not None:  # the message of the validator is for programmers
        return unisolated(f"{where}{colon}{say(wanted)}" if what else say(wanted))
    whole = translated(problem)
    return unisolated(f"{where}{colon}{translated(what)}" if whole == problem and what else whole)


def _walk(widgets: Sequence[Widget]) -> Iterator[Widget]:
    for widget in widgets:
        yield widget
        yield from _walk(widget.parts)


def _add_problems(widget: Widget, found: dict[str, list[str]]) -> Widget:
    parts = tuple(_add_problems(part, found) for part in widget.parts)
    return replace(widget, parts=parts, problem="; ".join(found.get(widget.path, [])) or widget.problem)


def fields_for(request: Request) -> tuple[Widget, ...]:
    """Return the fields of the call that would run, in the order of its parameters, or of a question's answer.

    Raises:
        StoreCorruptError: The stored schema cannot be read by this version.
    """
    schema = schema_of(request)
    return _argument_fields(request, schema) if request.kind == "call" else _answer_fields(schema)


def _argument_fields(request: Request, schema: Schema) -> tuple[Widget, ...]:
    builder = _Builder(schema)
    shown = fields_of(cast("Json", request.effective.shown)) or {}
    # A gate sends all arguments of its function, so a missing one is masked. A foreign call may omit arguments.
    absent: Json = MASK if schema.is_own else ABSENT
    made = [builder.argument(at, name, shown.get(name, absent)) for at, name in enumerate(schema.names)]
    more = [name for name in shown if name not in schema.properties]
    return (*made, *(_fixed(f"x{at}", name, name, shown[name], "") for at, name in enumerate(more)))


def _answer_fields(schema: Schema) -> tuple[Widget, ...]:
    """Return the empty field of a question's answer; a text gets an input of several lines."""
    builder = _Builder(schema)
    yes_no = (("", say("choose…")), ("true", say("yes")), ("false", say("no")))
    found = list[Widget]()
    for at, name in enumerate(schema.names):
        one = replace(builder.argument(at, name, ABSENT), caption=say("answer"))
        if one.kind == "bool":
            one = replace(one, options=yes_no)
        elif one.kind in {"text", "json"}:
            node = schema.resolved(schema.properties[name])
            may_be_empty = node.get("minLength") == 0 or node.get("default") == ""
            is_long = one.kind == "text" and "data-moment" not in one.limits
            one = replace(one, kind="long" if is_long else one.kind, is_needed=not may_be_empty)
        elif one.kind == "items" and any(row.parts for row in one.parts):
            one = replace(one, is_needed=schema.resolved(schema.properties[name]).get("minItems") != 0)
        elif one.kind in {"items", "lines"}:
            fewest, row = builder.fewest(name), next(iter(one.parts), one)
            pairs = zip(one.parts, [option for option in row.options if option[0]], strict=False)
            boxes = tuple((part.key, *option) for part, option in pairs) if row.kind == "choice" else ()
            # Too few to choose from: one of them is needed twice, which a row for each allows.
            boxes = boxes if fewest <= len(boxes) == len(row.choices) else ()
            one = replace(one, is_needed=fewest > 0, boxes=boxes, can_be_empty=fewest == 0)
        found.append(one)
    return tuple(found)


class _Builder:
    """Builds the fields of one form."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._has_code = Schema.live(schema.digest) is not None
        self._hints = kinds_of(schema, plain=True)
        self._left = _MOST_FIELDS

    def argument(self, at: int, name: str, tree: Json) -> Widget:
        return self._field(name, self._schema.properties[name], tree, (at,), is_required=name in self._schema.required)

    def fewest(self, name: str) -> int:
        """Return how many items a list needs."""
        kind, _ = self._without_null(cast("Node", self._schema.properties[name]))
        return int(kind.get("minItems", 0))

    def _field(
        self, name: str, part: Any, tree: Json, steps: tuple[int, ...], within: str = "", *, is_required: bool,
        is_item: bool = False, path: str = "",
    ) -> Widget:  # fmt: skip
        """Return the widget for an argument, an object's field, or a list's item, which can always be left out."""
        part = cast("Node", part) if isinstance(part, dict) else {}
        path, key = path or _path(within, name), "f" + ".".join(map(str, steps))
        kind, can_be_null = self._without_null(part)
        why_fixed = self._why_fixed(part, kind, tree)
        if why_fixed is not None:
            return _fixed(key, name, path, tree, why_fixed, is_given="readOnly" not in part)
        made = None
        if tree is not None or can_be_null:
            made = self._typed(kind, None if tree is ABSENT else tree, path, steps)
            if made is None and (tree is None or tree is ABSENT):
                made = Widget("json")
        has_default = is_item or "default" in part or tree is ABSENT or self._has_code
        null: tuple[Way, ...] = ("null",) if can_be_null else ()
        absent: tuple[Way, ...] = ("absent",) if has_default and not is_required else ()
        way: Way = "absent" if tree is ABSENT and absent else "null" if tree is None and null else "value"
        if made is not None and (made.kind in {"bool", "choice"} or made.parts):  # which say themselves what they take
            hint = "" if within else description_of(part)
        else:
            hint = kind_of(self._schema, part, plain=True) if within else self._hints.get(escape(name), "")
            hint = "" if is_obvious(hint) else hint
        found = made or _json(tree)
        if kind.get("format") == "date-time" and found.kind == "text":  # with its zone; a script adds a picker
            found = replace(found, limits={**found.limits, "data-moment": ""})
            example = say("a date and time, such as 2026-03-31T14:30:00+02:00")
            hint = hint.replace(say("date and time"), example, 1)
        if not found.parts and mentions_mask(tree):
            kept = say("*** is a masked value; leave it as it is to keep the real one")
            hint = f"{hint}; {kept}" if hint else kept
        return replace(
            found, name=name, path=path, key=key, tree=tree, ways=("value", *null, *absent), way=way, hint=hint,
            default=brief(part["default"], _ROOM) if "default" in part else "",
        )  # fmt: skip

    def _why_fixed(self, part: Node, kind: Node, tree: Json) -> str | None:
        """Return why a field cannot be changed; None if it can."""
        if part.get("readOnly") is True and not self._has_code:
            return say("set by the class itself")
        if tree == MASK or tag_in(tree) == "$secret":
            return say("masked; the real value is kept")
        needs_code = not self._has_code and "x-sayso-code" in kind and _class_of(kind) is not None
        return say("can only be changed where the program's code is") if needs_code else None

    def _without_null(self, part: Node) -> tuple[Node, bool]:
        """Return the schema without null, and whether null is allowed."""
        found = self._schema.resolved(part)
        parts: list[Any] = found.get("anyOf") or found.get("oneOf") or []
        others = [one for one in map(self._schema.resolved, parts) if one.get("type") != "null"]
        if len(others) == 1 and len(parts) > 1:
            return others[0], True
        match found.get("type"):
            case [first, second] if "null" in (first, second):
                return {**found, "type": second if first == "null" else first}, True
            case _:
                return found, False

    def _typed(self, kind: Node, tree: Json, path: str, steps: tuple[int, ...]) -> Widget | None:
        """Return the input for a type; None if it has none. `tree` is None if there is no value yet."""
        items: Any = kind.get("items")
        if "enum" in kind:
            return _choice(kind["enum"], tree)
        if "properties" in kind:
            return self._object(kind, tree, path, steps)
        if kind.get("type") == "array" and isinstance(items, dict):
            item = self._schema.resolved(items)
            if "enum" in item or "properties" in item or item.get("type") == "boolean":
                return self._items(cast("Node", items), tree, path, steps)
            is_line = item.get("type") in {"string", "integer", "number"}
            if is_line and item.get("x-sayso-type", "float") in _LINES:
                return _lines(tree)
        if isinstance(kind.get("additionalProperties"), dict):
            return self._mapping(kind["additionalProperties"], tree, path, steps)
        return _scalar(kind, tree)

    def _items(self, kind: Node, tree: Json, path: str, steps: tuple[int, ...]) -> Widget | None:
        """Return a list of choices or objects with a row for each, and rows for a few more."""
        items, item, left = [] if tree is None else items_of(tree), self._schema.resolved(kind), self._left
        # No row can be added to the page, so there are a few empty ones; of choices one for each if there are none yet.
        more = _MORE if tree is not None else max(_MORE, len(item.get("enum", ())))
        self._left -= 0 if items is None else len(items) + more
        if items is None or max(len(items), more) > _MOST_PARTS or self._left < 0:
            return None
        if tree is None and "properties" in item and len(steps) > _DEEPEST_NEW:
            return None  # such a list in each new row of another one would make the form too long
        parts = [
            self._field(
                str(at + 1), kind, one, (*steps, at), path, is_required=False, is_item=True, path=f"{path}[{at}]"
            )
            for at, one in enumerate([*items, *[ABSENT] * more])
        ]
        if any(part.kind == "json" for part in parts):
            self._left = left
            return None
        rows = [replace(part, hint="") for part in parts if part.tree is not ABSENT or part.can_change]
        # An object that is added is left out as long as nothing stands in its fields; nobody needs to choose that.
        return Widget("items", parts=tuple(
            replace(row, ways=("absent",)) if row.parts and row.tree is ABSENT else row for row in rows
        ))  # fmt: skip

    def _mapping(self, kind: Node, tree: Json, path: str, steps: tuple[int, ...]) -> Widget | None:
        """Return a dict of plain values with a row per item, and a few empty rows."""
        held = fields_of(tree) if tree is not None and class_in(tree) is None else None
        if (
            held is None
            or len(held) > _MOST_PARTS
            or not all(name and name == name.strip() == escape(name) for name in held)
        ):
            return None
        self._left -= len(held) + _MORE
        if self._left < 0:
            return None
        parts = [
            self._field(name, kind, item, (*steps, at), path, is_required=False, is_item=True)
            for at, (name, item) in enumerate(held.items())
        ]
        for at in range(len(held), len(held) + _MORE):
            key, new = "f" + ".".join(map(str, (*steps, at))), f"{path} (new {at - len(held) + 1})"
            value = self._field("value", kind, ABSENT, (*steps, at, 0), new, is_required=False, is_item=True)
            parts.append(Widget("entry", key=key, path=new, parts=(replace(value, hint=""),)))
        is_plain = all(part.kind not in {"json", "fields", "items"} for part in (*parts, *(parts[-1].parts)))
        rows = [replace(part, hint="") if part.can_change else part for part in parts]
        return Widget("fields", parts=tuple(rows)) if is_plain else None

    def _object(self, kind: Node, tree: Json, path: str, steps: tuple[int, ...]) -> Widget | None:
        properties: dict[str, Any] = kind["properties"]
        held = {} if tree is None else fields_of(tree)
        self._left -= len(properties)
        if held is None or len(steps) > _DEEPEST or len(properties) > _MOST_PARTS or self._left < 0:
            return None
        if tree is not None and class_in(tree) != _class_of(kind):
            return None  # a subclass, or a value that is not of this class
        if held.keys() - properties.keys():
            return None
        required = kind.get("required", ())
        return Widget("fields", parts=tuple(
            self._field(name, part, held.get(name, ABSENT), (*steps, at), path, is_required=name in required)
            for at, (name, part) in enumerate(properties.items())
        ))  # fmt: skip


def _path(within: str, name: str) -> str:
    """Return the path of a field, as problems name it (`sayso.model.parameters.place`)."""
    if name.isidentifier():
        return f"{within}.{name}" if within else name
    return f"{within}[{json.dumps(name)}]" if within else json.dumps(name)


def _class_of(kind: Node) -> str | None:
    made_of, _, name = str(kind.get("x-sayso-type", "")).partition(" ")
    return name if made_of in {"model", "dataclass", "root"} else None


def _fixed(key: str, name: str, path: str, tree: Json, why: str, *, is_given: bool = True) -> Widget:
    whole = "" if tree is ABSENT else MASK if tree == MASK else _rows_of(tree)
    return Widget("fixed", key=key, name=name, path=path, hint=why, tree=tree, whole=whole, is_given=is_given)


def _rows_of(tree: Json) -> str:
    return "\n".join(Layout(_WIDTH, None).rows(tree))


def _json(tree: Json) -> Widget:
    """Return a field with the value as JSON, with invisible characters as JSON escapes."""
    text = json.dumps(display(tree), indent=2, ensure_ascii=False)
    if not _is_visible(text):
        text = "".join(one if one == "\n" or escape(one) == one else json.dumps(one)[1:-1] for one in text)
    return Widget("json", text, whole=_rows_of(tree))


def _is_visible(text: str) -> bool:
    """Return whether every character of a text is visible and unambiguous; line feeds count as visible."""
    return escape(text, block=True) == text


def _choice(values: list[Any], tree: Json) -> Widget | None:
    options = [  # a plain text that cannot be mistaken for anything else has no quotes
        (str(place), one if isinstance(one, str) and len(one) <= _ROOM and is_plain(one) else brief(one, _ROOM))
        for place, one in enumerate(values)
    ]
    if tree is None:
        return Widget("choice", options=(("", say("choose…")), *options), choices=tuple(values))
    shown = display(tree)
    places = [str(place) for place, one in enumerate(values) if type(one) is type(shown) and one == shown]
    return Widget("choice", places[0], options=tuple(options), choices=tuple(values)) if places else None


def _lines(tree: Json) -> Widget | None:
    """Return a field with one item per line; None if an item is not a plain line."""
    if tree is None:
        return Widget("lines")
    items = items_of(tree)
    if items is None or any(isinstance(display(item), bool | list | dict | None) for item in items):
        return None
    texts = [str(display(item)) for item in items]
    is_plain = all(text and text == text.strip() == escape(text) for text in texts) and MASK not in texts
    return Widget("lines", "\n".join(texts), whole=_rows_of(tree)) if is_plain else None


def _scalar(kind: Node, tree: Json) -> Widget | None:
    """Return the field of a single value; None if its type has no input."""
    match kind.get("type"):
        case "boolean":
            options = (("true", "true"), ("false", "false"))
            if tree is None:
                return Widget("bool", options=(("", say("choose…")), *options))
            return Widget("bool", "true" if tree else "false", options=options) if isinstance(tree, bool) else None
        case "integer" | "number" as named:
            return _number(tree, kind, int if named == "integer" else int | float)
        case "string":
            return _string(tree, kind)
        case _:
            return None


def _number(tree: Json, kind: Node, fitting: Any) -> Widget | None:
    value = "" if tree is None else repr(tree)
    is_number = isinstance(tree, fitting) and not isinstance(tree, bool) and _NUMBER.fullmatch(value) is not None
    if tree is not None and not is_number:
        return None
    limits = {"step": "1" if fitting is int else "any"}
    for attribute, limit in (("min", kind.get("minimum")), ("max", kind.get("maximum"))):
        if isinstance(limit, int | float):
            limits[attribute] = repr(limit)
    return Widget("number", value, limits=limits)


def _string(tree: Json, kind: Node) -> Widget | None:
    name = str(kind.get("x-sayso-type") or (kind.get("format") if kind.get("format") == "date" else "str"))
    # Not `maxlength`: browsers count UTF-16 units, so it would refuse texts that the function accepts.
    limits = {"data-longest": str(kind["maxLength"])} if isinstance(kind.get("maxLength"), int) else {}
    if name == "decimal":
        limits["inputmode"] = "decimal"
    if tree is None:
        return Widget(_TIMES[name][0] if name in {"date", "time"} else "text", limits=limits)
    is_text = "x-sayso-type" not in kind or name == "str"
    text = str(display(tree))
    if not (isinstance(tree, str) if is_text else tag_in(tree) == f"${name}") or not _is_visible(text):
        return None  # not of the declared type, or with invisible characters: edited as JSON
    if name in _TIMES and _TIMES[name][1].fullmatch(text):
        return Widget(_TIMES[name][0], text, limits={} if name == "date" else {"step": "1"})
    if "\n" in text or len(text) > _ONE_LINE:
        return Widget("long", text, whole=_rows_of(tree), limits=limits)
    return Widget("text", text, limits=limits)
