"""Validates JSON edits by the schema of a call and converts them to canonical form.

For example, a text becomes a date, or an object a dataclass, without the program's classes. `jsonschema-rs` validates a
value first; then each part is converted to the type that its schema names. This module imports pydantic, which parses
scalars from text, so it is loaded at the first held call. Invariant: an error says where and what, and never contains
the value.
"""

from __future__ import annotations

import binascii
import json
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pydantic
import pydantic_core

from sayso.model.canonical import MASK, Json, display, form_of, value_of
from sayso.model.canonical.json_tree import class_in, dump, fields_of, items_of, tag_in, with_fields, with_items
from sayso.model.schema_validation import UNKNOWN, Checker, Node, Problem, SchemaError, mapped, resolved, word_of

_SCALARS: dict[str, Any] = {
    "str": str, "bytes": bytes, "date": date, "datetime": datetime, "time": time, "timedelta": timedelta,
    "decimal": Decimal, "uuid": UUID, "path": Path,
    "secret str": pydantic.SecretStr, "secret bytes": pydantic.SecretBytes,
}  # fmt: skip
_CLASSES = frozenset({"model", "dataclass", "root"})
_INSTANCE = "x-sayso-instance"
_MOST_STEPS = 100_000
# pydantic parses the texts of these formats and accepts more than they define, e.g. a time without an offset.
_FORMATS = ("date", "date-time", "time", "duration", "uuid", "path", "password", "binary")

# pydantic's messages are passed on only if they contain nothing but bounds. Others quote the value or the program.
_KNOWN = frozenset(typing.get_args(pydantic_core.core_schema.ErrorType))
_BOUNDS = frozenset(
    {"ge", "gt", "le", "lt", "multiple_of", "pattern", "class", "field_type", "min_length", "max_length"}
    | {"actual_length", "max_digits", "decimal_places", "whole_digits"}
)
_DATE = "Input should be a valid date, YYYY-MM-DD"
_DATETIME = "Input should be a valid datetime, YYYY-MM-DDTHH:MM:SS with an offset if it has one"
_TIME = "Input should be a valid time, HH:MM:SS"
# pydantic takes a bare number, such as 20261201, for seconds since 1970, and a date alone for its midnight.
_MOMENTS = {
    "date": (re.compile(r"\d{4}-"), _DATE), "datetime": (re.compile(r"\d{4}-\d\d-\d\d[Tt _]"), _DATETIME),
    "time": (re.compile(r"\d\d:"), _TIME),
}  # fmt: skip
_REFUSED = "is refused by the program's own check"
_PLAIN_WORDS = {
    "value_error": _REFUSED,
    "assertion_error": _REFUSED,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "datetime_parsing": _DATETIME,
    "datetime_from_date_parsing": _DATETIME,
    "time_parsing": _TIME,
    "time_delta_parsing": "Input should be a valid duration, as P1DT2H30M or 26:30:00",
    "uuid_parsing": "Input should be a valid UUID",
    "path_type": "Input should be a valid path",
}


class Misfit(Exception):
    """A value does not fit its schema."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(problems)
        self.problems = problems


def words_of(error: pydantic.ValidationError) -> Iterator[Problem]:
    """Yield the path and the message of each problem, without the value."""
    for found in error.errors(include_url=False, include_input=False):
        kind = str(found["type"])
        is_discreet = kind in _KNOWN and found.get("ctx", {}).keys() <= _BOUNDS
        what = _PLAIN_WORDS.get(kind) or (found["msg"] if is_discreet else f"Input is not valid ({kind})")
        # A step may also be the alternative of a union, a validator, or the side of a dict's item: left out.
        steps = (s for s in found["loc"] if isinstance(s, int) or (s.isidentifier() and not s.startswith("function")))
        yield tuple(steps), what


def scalar_of(node: Node) -> str | None:
    """Return the `x-sayso-type` of a text that encodes a scalar; None for any other schema."""
    kind = str(node.get("x-sayso-type"))
    return kind if kind in _SCALARS else None


def _scalar(node: Node, value: Any) -> Any:
    """Parse a JSON value that encodes a scalar, with pydantic.

    Raises:
        ValueError: The value is not valid; the text says why.
    """
    kind = node["x-sayso-type"]
    is_text = kind.startswith("secret")
    if not isinstance(value, str) and (is_text or isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"Input should be a valid {'string' if is_text else kind}")
    shape, what = _MOMENTS.get(kind, (None, ""))
    if shape is not None and not (isinstance(value, str) and shape.match(value.strip())):
        raise ValueError(what)
    if is_text and value == MASK:
        raise ValueError("Input is the mask, not a value; leave it out to keep the secret")
    if kind in ("bytes", "secret bytes") and isinstance(value, str):
        try:
            value = binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
        except ValueError:
            raise ValueError("Input should be base64 text") from None
    try:
        return _adapter(kind, json.dumps(node.get("x-sayso-limits", {}))).validate_python(value)
    except pydantic.ValidationError as error:
        raise ValueError("; ".join(what for _, what in words_of(error))) from None


@lru_cache(maxsize=1024)
def _adapter(kind: str, limits: str) -> pydantic.TypeAdapter[Any]:
    rules: dict[str, Any] = {rule: value_of(form, {}) for rule, form in json.loads(limits).items()}
    if kind == "decimal":
        rules["allow_inf_nan"] = False
    metadata: Any = pydantic.StringConstraints(**rules) if kind == "str" else pydantic.Field(**rules)
    annotation: Any = typing.Annotated[_SCALARS[kind], metadata] if rules else _SCALARS[kind]  # pyright: ignore[reportInvalidTypeForm]
    try:
        return pydantic.TypeAdapter[Any](annotation)
    except Exception:  # noqa: BLE001  # pydantic raises many kinds of errors for limits that a type does not support
        raise ValueError("Input cannot be checked here: the limits of its type are not known to pydantic") from None


class _ScalarKeyword:
    """The keyword `x-sayso-type` for the validator: a text that encodes a scalar."""

    def __init__(self, parent: Node, kind: str, _path: list[str | int]) -> None:
        self._node = parent if kind in _SCALARS else None

    def validate(self, value: Any) -> None:
        """Raise `ValueError` with the problem if the value is not valid."""
        if self._node is not None:
            _scalar(self._node, value)


def _checked_by(node: Node) -> Node:
    """Return the plain JSON Schema that replaces a schema with sayso's own keywords in the validator."""
    if scalar_of(node) is not None:  # pydantic accepts more than the format, e.g. a number for a decimal
        return {word: node[word] for word in ("title", "x-sayso-type", "x-sayso-limits") if word in node}
    if "x-sayso-also" in node:
        names = node["enum"]
        return {"enum": names + [one for one in node["x-sayso-also"] if one not in names], "x-sayso-names": names}
    kind = str(node.get("x-sayso-type", "")).partition(" ")[0]
    if kind not in _CLASSES:
        return node
    properties = {name: part for name, part in node.get("properties", {}).items() if not part.get("readOnly")}
    inner = {**node, "properties": properties} if properties else node
    # An instance of a class is not validated: it may be of a subclass, and the program's own code has made it.
    is_instance = {"type": "object", "required": [_INSTANCE]}
    return {"title": node.get("title", kind), "if": is_instance, "else": inner}


def _plain(tree: Json) -> Any:
    """Return a canonical tree as the JSON that a schema describes, secrets included; of an instance only its class."""
    if class_in(tree) is not None:
        return {_INSTANCE: class_in(tree)}
    if isinstance(tree, dict) and tag_in(tree) == "$secret":
        secret = tree["$secret"]
        return secret[-1] if isinstance(secret, list) else None
    items, named = items_of(tree), fields_of(tree)
    if items is not None:
        return [_plain(item) for item in items]
    return display(tree) if named is None else {name: _plain(part) for name, part in named.items()}


class JsonEdits:
    """Validates JSON values by a schema and converts them to canonical form.

    Args:
        tree: The whole schema.
        is_own: Whether the schema was made from a signature. Values of a foreign schema are not converted.
        builds: Whether instances of the program's classes are written. The program itself builds them from the fields.
    """

    def __init__(self, tree: Node, *, is_own: bool, builds: bool) -> None:
        self._tree, self._is_own, self._builds = tree, is_own, builds
        self._checker = self._compiled(tree)
        self._parts: dict[str, Checker] = {}
        self._left = 0

    def _compiled(self, tree: Node) -> Checker:
        try:
            if not self._is_own:
                return Checker(tree)
            return Checker(mapped(tree, _checked_by), formats=_FORMATS, keywords={"x-sayso-type": _ScalarKeyword})
        except ValueError as error:
            raise SchemaError([f"the schema cannot be read ({error})"]) from None

    def problems(self, forms: Mapping[str, Json]) -> list[Problem]:
        """Return the problems of arguments, given in canonical form or as JSON."""
        return _bounded(self._checker.problems, {name: _plain(form) for name, form in forms.items()})

    def typed(self, values: Mapping[str, Json], kept: Collection[str]) -> dict[str, Json]:
        """Return the values with a text parsed where its place takes a number, truth value or null."""
        given = dict(values)
        plain = {name: form for name, form in values.items() if name not in kept and _plain(form) == form}
        for (name, *steps), new in _bounded(self._checker.readings, plain):
            given[str(name)] = _replaced(given[str(name)], steps, new)
        return given

    def write(self, name: str, tree: Json) -> Json:
        """Convert a validated argument to canonical form.

        Raises:
            Misfit: The value does not fit.
        """
        if not self._is_own:
            return tree
        self._left = _MOST_STEPS
        node = self._tree.get("properties", {}).get(name, self._tree.get("additionalProperties", {}))
        return self._write(node, tree, (name,))

    def default(self, node: Node, path: tuple[str | int, ...]) -> Json:
        """Return the default of a schema in canonical form; unchanged if it does not fit its type, as `int = None`."""
        self._left = max(self._left, _MOST_STEPS // 2)
        try:
            return self._write(node, node["default"], path)
        except Misfit:
            return cast("Json", node["default"])

    def _write(self, node: Any, tree: Json, path: tuple[str | int, ...]) -> Json:
        self._left -= 1
        if self._left < 0:
            raise Misfit((path, "is too large to be checked"))
        node = resolved(self._tree, node)
        parts: list[Any] = node.get("anyOf") or node.get("oneOf") or []
        kind, _, name = str(node.get("x-sayso-type", "")).partition(" ")
        if class_in(tree) is not None and (parts or kind in _CLASSES):
            return tree
        if parts:
            return self._alternative(parts, tree, path)
        if "x-sayso-values" in node:
            return _member(node, tree, path)
        if scalar_of(node) is not None:
            kind, tag = node["x-sayso-type"], tag_in(tree)
            if tag is not None:
                if tag != f"${kind.partition(' ')[0]}":
                    raise Misfit((path, f"Input should be a valid {kind}"))
                return tree
            try:
                return form_of(_scalar(node, tree))
            except ValueError as error:
                raise Misfit((path, str(error))) from None
        if kind in _CLASSES:
            return self._object(node, kind, name, tree, path)
        return self._plain(node, kind, tree, path)

    def _plain(self, node: Node, kind: str, tree: Json, path: tuple[str | int, ...]) -> Json:
        """Write a value that JSON has a type for: a list, an object, a number."""
        items, fields = items_of(tree), fields_of(tree)
        if class_in(tree) is not None or (tag_in(tree) is not None and items is None and fields is None):
            if "type" in node:
                raise Misfit((path, f'Input is not of type "{node["type"]}"'))
            if "enum" in node:  # of JSON values, of which a path or date may look like one
                raise Misfit((path, f"Input should be one of {', '.join(map(dump, node['enum']))}"))
            return tree
        if items is not None:
            each, rest = node.get("prefixItems", ()), node.get("items", {})
            made = [
                self._write(each[place] if place < len(each) else rest, item, (*path, place))
                for place, item in enumerate(items)
            ]
            return {"$tuple": made} if kind == "tuple" else with_items(tree, made)
        if fields is not None:
            return with_fields(tree, self._members(node, fields, path))
        if type(tree) is float and node.get("type") == "integer":
            if "x-sayso-strict" in node:
                raise Misfit((path, 'Input is not of type "integer"'))
            return int(tree)
        return float(tree) if kind == "float" and type(tree) is int and abs(tree) < 10**300 else tree

    def _members(self, node: Node, fields: Mapping[str, Json], path: tuple[str | int, ...]) -> dict[str, Json]:
        named, rest = node.get("properties", {}), node.get("additionalProperties", {})
        return {name: self._write(named.get(name, rest), part, (*path, name)) for name, part in fields.items()}

    def _alternative(self, parts: list[Any], tree: Json, path: tuple[str | int, ...]) -> Json:
        """Take the alternative that the value already is, else the first one that it can be converted to."""
        found: list[Json] = []
        misfits: list[Misfit] = []
        value = _plain(tree)
        for part in parts:
            text = json.dumps(part)
            if text not in self._parts:
                self._parts[text] = self._compiled({"$defs": self._tree.get("$defs", {}), "allOf": [part]})
            if _bounded(self._parts[text].problems, value):
                continue
            try:
                made = self._write(part, tree, path)
            except Misfit as misfit:
                misfits.append(misfit)
                continue
            if dump(made) == dump(tree):
                return made
            found.append(made)
        if found:
            return found[0]
        if len(misfits) == 1:
            raise misfits[0]
        raise Misfit((path, f"Input fits none of {', '.join(word_of(part, self._tree) for part in parts)}"))

    def _object(self, node: Node, kind: str, name: str, tree: Json, path: tuple[str | int, ...]) -> Json:
        """Write an instance of a class with the defaults of its fields, or without them if the program builds it."""
        if self._builds and "x-sayso-code" in node:
            short = name.rpartition(":")[2]
            raise Misfit((path, f"can only be changed in the program itself, because {short} has its own validator"))
        if kind == "root":
            inner = self._write({word: part for word, part in node.items() if word != "x-sayso-type"}, tree, path)
            return {"$model": [name, {"root": inner}]} if self._builds else inner
        given = fields_of(tree) or {}
        if _INSTANCE in given:
            raise Misfit(((*path, _INSTANCE), UNKNOWN))
        made = self._members(node, given, path)
        if not self._builds:
            return made
        fields: dict[str, Json] = {}
        for field, part in node["properties"].items():
            if field in made:
                fields[field] = made[field]
            elif "default" in part:
                fields[field] = self.default(part, (*path, field))
            elif field not in node.get("required", ()):
                raise Misfit(((*path, field), "has a default that only the program knows; enter a value"))
        extra = {field: value for field, value in made.items() if field not in fields}
        if kind == "dataclass":
            return {"$dataclass": [name, fields]}
        unset = sorted(fields.keys() - made.keys())
        rest: dict[str, Json] = {**({"extra": extra} if extra else {}), **({"unset": [*unset]} if unset else {})}
        return {"$model": [name, fields, rest] if rest else [name, fields]}


def _bounded(look: Callable[[Any], list[Any]], value: Any) -> list[Any]:
    try:
        return look(value)
    except (ValueError, RecursionError) as error:
        raise SchemaError([f"arguments: cannot be checked ({error})"]) from None


def _replaced(tree: Any, steps: list[str | int], new: Any) -> Any:
    """Return a copy of a JSON value with the value at a path replaced."""
    if not steps:
        return new
    copy = tree.copy()
    copy[steps[0]] = _replaced(tree[steps[0]], steps[1:], new)
    return copy


def _member(node: Node, tree: Json, path: tuple[str | int, ...]) -> Json:
    """Return the option with this name (members are displayed by name), else the one with this value."""
    wanted, values = dump(tree), node["x-sayso-values"]
    for found in (node["enum"], values, node.get("x-sayso-also", ())):
        for place, one in enumerate(found):
            if dump(one) == wanted:
                return values[place]
    listed = map(str if "x-sayso-also" in node else dump, node["enum"])
    raise Misfit((path, f"Input should be one of {', '.join(listed)}"))
