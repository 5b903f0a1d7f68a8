"""The JSON tree of the canonical form: scalars under tags, decoding to Python values, and display.

The scalars that JSON lacks are each written under a tag (`$bytes`, `$date`, `$decimal`, ...), by a fast JSON encoder.
Containers and classes are encoded in `sayso.model.canonical` and decoded here. Invariant: a payload that `read` accepts
is exactly what `write` returns for the value read.
"""

from __future__ import annotations

import binascii
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeGuard, cast
from uuid import UUID

from sayso.errors import ArgumentError
from sayso.model.parameters import place

quote: Callable[[str], str] = json.encoder.encode_basestring_ascii  # pyright: ignore[reportAttributeAccessIssue]  # not in the stub


def _encoder(*, ascii_only: bool, sort_keys: bool) -> Callable[[object, int], Iterable[str]]:
    """Return an encoder that is built only once: `json.JSONEncoder.encode` builds a C encoder for each call.

    It takes a tree and 0, the level of an indentation that is not used, and returns the parts of the text.
    """
    plain = json.JSONEncoder(
        ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False, check_circular=False, sort_keys=sort_keys
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda tree, _: plain.encode(tree)
    text: Any = quote if ascii_only else json.encoder.encode_basestring  # pyright: ignore[reportAttributeAccessIssue]  # as above
    return make(None, plain.default, text, None, ":", ",", sort_keys, False, False)


# What is written at each change of a request is joined from these; everything else uses the functions below.
parts = _encoder(ascii_only=False, sort_keys=False)
parts_sorted = _encoder(ascii_only=False, sort_keys=True)
ascii_parts = _encoder(ascii_only=True, sort_keys=False)
ascii_parts_sorted = _encoder(ascii_only=True, sort_keys=True)


def dump(tree: object) -> str:
    """Return the text of a tree as the canonical form is stored."""
    return "".join(parts(tree, 0))


def dump_sorted(tree: object) -> str:
    """Return the same text with the keys of every object sorted."""
    return "".join(parts_sorted(tree, 0))


def dumps(tree: object) -> str:
    """Return the text in ASCII, because databases reject the lone surrogates that an error message may contain."""
    return "".join(ascii_parts(tree, 0))


def dumps_sorted(tree: object) -> str:
    """Return the text in ASCII with the keys of every object sorted."""
    return "".join(ascii_parts_sorted(tree, 0))


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MASK = "***"
"""Stands for a secret wherever people can see it."""


class Unfit(Exception):
    """A value has no canonical form, or a payload is malformed. The text says why, and never contains the value."""


class Tag(NamedTuple):
    """One scalar type: its class by module and name, and how to write, read and show it."""

    name: str
    module: str
    attribute: str
    write: Callable[[Any], Json]
    read: Callable[[Any], object]
    show: Callable[[Any], Json] = lambda payload: payload

    def shown(self, payload: Any) -> Json:
        """Return a payload as plain JSON; unchanged if it is malformed."""
        try:
            return self.show(payload)
        except (ValueError, TypeError, ArithmeticError):
            return payload

    def value(self, payload: Json) -> object:
        """Return the value of a payload; raises `Unfit` if `write` would not have produced it."""
        try:
            value = self.read(payload)
            row = tag_of(type(value))
            exact = row is not None and row.name == self.name and dump(row.write(value)) == dump(payload)
        except (ValueError, TypeError, ArithmeticError, AttributeError, KeyError) as error:
            raise Unfit(f"has a malformed {self.name}") from error
        if not exact:
            raise Unfit(f"has a {self.name} that is not in canonical form")
        return value


def _write_bytes(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _read_bytes(payload: str) -> bytes:
    return binascii.a2b_base64(payload.encode("ascii"), strict_mode=True)


def _write_decimal(value: Any) -> str:
    if not value.is_finite():
        raise Unfit("is a Decimal that is not a finite number")
    # The thread's decimal context decides between `1e+5` and `1E+5`; the form must not depend on it.
    return str(value).upper()


_ZONED = re.compile(
    r"(?P<iso>[^\[(;]*)(?:\[(?P<key>[A-Za-z0-9_+/-]+)\]|\((?P<name>.*)\))?(?P<fold>;fold=1)?", re.DOTALL
)


def _zone(zone: tzinfo | None) -> str:
    """Return what the offset does not tell about a time zone: the key of a `ZoneInfo`, the name of a named offset."""
    if zone is None:
        return ""
    kind = type(zone)
    if kind is timezone:
        name = zone.tzname(None)
        return "" if name == timezone(zone.utcoffset(None) or timedelta()).tzname(None) else f"({name})"
    if kind is getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None):
        key: str | None = getattr(zone, "key", None)
        if key is None:
            raise Unfit("has a ZoneInfo without a key")
        return f"[{key}]"
    if kind is getattr(sys.modules.get("pydantic_core"), "TzInfo", None):
        return ""
    raise Unfit(f"has a time zone of class {kind.__name__}; convert it with .astimezone(datetime.UTC) or use zoneinfo")


def _write_instant(value: datetime | time) -> str:
    return value.isoformat() + _zone(value.tzinfo) + (";fold=1" if value.fold else "")


def _read_instant(parse: Callable[[str], Any]) -> Callable[[str], object]:
    def read(payload: str) -> object:
        parts = _ZONED.fullmatch(payload)
        if parts is None:
            raise ValueError(payload)
        value = parse(parts["iso"])
        zone: tzinfo | None = value.tzinfo
        if parts["key"] is not None:
            from zoneinfo import ZoneInfo

            zone = ZoneInfo(parts["key"])
        elif parts["name"] is not None:
            zone = timezone(value.utcoffset(), parts["name"])
        return value.replace(tzinfo=zone, fold=1 if parts["fold"] else 0)

    return read


def _show_instant(payload: str) -> str:
    parts = _ZONED.fullmatch(payload)
    return payload if parts is None else parts["iso"]


def _show_timedelta(payload: list[int]) -> str:
    """Return the ISO 8601 duration, e.g. `P1DT2H0.5S`; a minus sign goes in front, as pydantic reads it."""
    span = timedelta(*payload)
    sign, span = ("-", -span) if span < timedelta() else ("", span)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{span.microseconds:06d}".rstrip("0") if span.microseconds else ""
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if seconds or fraction:
        clock += f"{seconds}{fraction}S"
    days = f"{span.days}D" if span.days else ""
    return f"{sign}P{days}{'T' + clock if clock else ''}" if days or clock else "PT0S"


def _read_secret(payload: list[str]) -> object:
    from pydantic import SecretBytes, SecretStr

    kind, content = payload
    if kind == "bytes":
        return SecretBytes(_read_bytes(content))
    if kind == "str" and type(content) is str:
        return SecretStr(content)
    raise ValueError(kind)


def _read_timedelta(payload: list[int]) -> object:
    return timedelta(*payload)


def _write_timedelta(value: timedelta) -> list[Json]:
    return [value.days, value.seconds, value.microseconds]


def _write_path(value: Any) -> str:
    # Forward slashes on every system, so that the same relative path has the same form everywhere.
    return value.as_posix()


def _write_secret(value: Any) -> list[Json]:
    content, kind = value.get_secret_value(), type(value).__name__
    if not isinstance(content, bytes if kind == "SecretBytes" else str):  # pydantic does not check what it is given
        raise Unfit(f"is a {kind} that contains {type(content).__name__}")
    return ["bytes", _write_bytes(content)] if isinstance(content, bytes) else ["str", content]


def _show_secret(_: Json) -> str:
    return MASK


_PATH = "WindowsPath" if os.name == "nt" else "PosixPath"
_ROWS = (
    Tag("$bytes", "builtins", "bytes", _write_bytes, _read_bytes),
    Tag("$decimal", "decimal", "Decimal", _write_decimal, Decimal),
    Tag("$datetime", "datetime", "datetime", _write_instant, _read_instant(datetime.fromisoformat), _show_instant),
    Tag("$date", "datetime", "date", date.isoformat, date.fromisoformat),
    Tag("$time", "datetime", "time", _write_instant, _read_instant(time.fromisoformat), _show_instant),
    Tag("$timedelta", "datetime", "timedelta", _write_timedelta, _read_timedelta, _show_timedelta),
    Tag("$uuid", "uuid", "UUID", str, UUID),
    Tag("$path", "pathlib", _PATH, _write_path, Path),
    Tag("$secret", "pydantic.types", "SecretStr", _write_secret, _read_secret, _show_secret),
    Tag("$secret", "pydantic.types", "SecretBytes", _write_secret, _read_secret, _show_secret),
)

TAGS = {row.name: row for row in _ROWS if row.attribute != "SecretBytes"}
"""Each tag's row, for reading."""


@lru_cache(maxsize=1024)
def tag_of(kind: type) -> Tag | None:
    """Return the row of a scalar's exact class; None if it has no tag."""
    found = (row for row in _ROWS if getattr(sys.modules.get(row.module), row.attribute, None) is kind)
    return next(found, None)


_MORE = ("extra", "private")


def tag_in(tree: Json) -> str | None:
    """Return the tag of a tagged value (`"$tuple"`); None for a plain dict or any other value."""
    if not isinstance(tree, dict) or len(tree) != 1:
        return None
    (name,) = tree
    return name if name.startswith("$") else None


def class_in(tree: Json) -> str | None:
    """Return the `module:QualName` of a dataclass or model; None for any other value."""
    match tree:
        case {"$dataclass": [str(name), dict(), *_]} | {"$model": [str(name), dict(), *_]} if len(tree) == 1:
            return name
        case _:
            return None


def fields_of(tree: Json) -> dict[str, Json] | None:
    """Return the named parts of a dict, dataclass or model (also its extra and private ones); None for other values.

    Also None if two parts have the same name: a reviewer would see one of them, and the other could run.
    """
    if not isinstance(tree, dict):
        return None
    if len(tree) != 1:  # as `tag_in` says, without a call: lists of requests ask this for each argument of each row
        return tree
    match tag_in(tree):
        case None:
            return tree
        case "$dict":
            body = tree["$dict"]
            return body if isinstance(body, dict) else None
        case "$dataclass" | "$model" as tag:
            return _members(tag, tree[tag])
        case _:
            return None


def items_of(tree: Json) -> list[Json] | None:
    """Return the parts of a list or tuple; None for other values."""
    if isinstance(tree, dict):
        body = tree["$tuple"] if tag_in(tree) == "$tuple" else None
        return body if isinstance(body, list) else None
    return tree if isinstance(tree, list) else None


def children_of(tree: Json) -> dict[str | int, Json] | None:
    """Return the parts of a container by name or index; None for a scalar."""
    fields, items = fields_of(tree), items_of(tree)
    if fields is not None:
        return {**fields}
    return None if items is None else dict(enumerate(items))


def with_fields(tree: Json, fields: dict[str, Json]) -> Json:
    """Return a value like `tree`, which `fields_of` takes apart, with other values under its names."""
    match tree:
        case {"$dict": dict()} if len(tree) == 1:
            return {"$dict": fields}
        case {"$dataclass": [str(name), dict()]} if len(tree) == 1:
            return {"$dataclass": [name, fields]}
        case {"$model": [str(name), dict(own), *rest]} if len(tree) == 1:
            return {"$model": [name, {field: fields[field] for field in own}, *(_rest(part, fields) for part in rest)]}
        case _:
            return fields


def with_items(tree: Json, items: list[Json]) -> Json:
    """Return a value like `tree`, a list or tuple, with other parts."""
    return {"$tuple": items} if isinstance(tree, dict) else items


def _members(tag: str, payload: Json) -> dict[str, Json] | None:
    match payload:
        case [str(), dict(fields)]:
            return fields
        case [str(), dict(fields), dict(rest)] if tag == "$model" and rest.keys() <= {*_MORE, "unset"}:
            parts = [fields, *_more(rest).values()]
            named = {name: value for part in parts for name, value in part.items()}
            is_whole = len(parts) == 1 + len(rest.keys() & _MORE) and len(named) == sum(map(len, parts))
            return named if is_whole else None
        case _:
            return None


def _more(rest: dict[str, Json]) -> dict[str, dict[str, Json]]:
    # These are never wrapped: a name in them that looks like a tag is an ordinary name.
    parts = {part: rest.get(part) for part in _MORE}
    return {part: named for part, named in parts.items() if isinstance(named, dict)}


def _rest(rest: Json, fields: dict[str, Json]) -> Json:
    if not isinstance(rest, dict):
        return rest
    return {**rest, **{part: {name: fields[name] for name in named} for part, named in _more(rest).items()}}


def display(tree: Json) -> Json:
    """Return plain JSON for people and web frameworks: the tree of `load` without tags and with secrets masked.

    Dates become ISO text, bytes base64, enum members their name, dataclasses and models objects of their fields,
    tuples lists. Types are lost: the result is for display and editing (`Schema.validate` takes it back), never to run
    a call.
    """
    match tree:
        case list():
            return [display(item) for item in tree]
        case dict() if len(tree) == 1 and (tag := next(iter(tree))).startswith("$"):
            return _display_tagged(tag, tree[tag])
        case dict():
            return {key: display(item) for key, item in tree.items()}
        case _:
            return tree


def _display_tagged(tag: str, payload: Json) -> Json:
    match tag, payload:
        case "$tuple", list():
            return display(payload)
        case "$dict", dict():
            return {key: display(item) for key, item in payload.items()}
        case "$enum", [_, str(member)]:
            return member
        case (("$dataclass" | "$model"), [_, dict(fields), *rest]) if fields_of({tag: payload}) is not None:
            shown = {key: display(item) for key, item in fields.items()}
            for more in rest:
                extra = more.get("extra") if isinstance(more, dict) else None
                shown |= {key: display(item) for key, item in extra.items()} if isinstance(extra, dict) else {}
            return shown
        case _ if tag in TAGS:
            return TAGS[tag].shown(payload)
        case _:
            return {tag: display(payload)}


LIMIT_DEPTH = 64


def is_model(cls: object) -> TypeGuard[type[Any]]:
    """Return whether `cls` is a pydantic model class, without importing pydantic."""
    base = getattr(sys.modules.get("pydantic.main"), "BaseModel", None)
    return base is not None and isinstance(cls, type) and issubclass(cls, base)


@lru_cache(maxsize=1024)
def dataclass_fields(cls: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields; None if it is not a dataclass."""
    fields: dict[str, Any] | None = getattr(cls, "__dataclass_fields__", None)
    if fields is None:
        return None
    # Class variables and init-only ones are in the same dict; only this marker tells them apart.
    return tuple(name for name, field in fields.items() if repr(getattr(field, "_field_type", None)) == "_FIELD")


def dataclass_parts(value: object, names: tuple[str, ...]) -> dict[str, object]:
    """Return a dataclass instance's fields; raises `Unfit` if it has other attributes or lacks a field."""
    cls = type(value)
    held: dict[str, object] = getattr(value, "__dict__", {})
    for name in held.keys() - names:
        # Cached properties can be computed again; so can what typing stores on a generic class.
        if not (isinstance(getattr(cls, name, None), cached_property) or name.startswith("__")):
            raise Unfit(f"is a {cls.__name__} with the attribute {name!r}, which is not one of its fields")
    try:
        return {name: getattr(value, name) for name in names}
    except AttributeError as error:
        raise Unfit(f"is a {cls.__name__} without a value in its field {error.name!r}") from error


class Reader:
    """Converts a canonical tree to values. `path` is the current position.

    Args:
        classes: The classes that may occur, by `module:QualName`.
    """

    def __init__(self, classes: Mapping[str, type]) -> None:
        self.path: list[str | int] = []
        self._classes = classes

    def fields(self, tree: dict[str, Json]) -> dict[str, object]:
        """Return the values of an object's members, in its order."""
        values: dict[str, object] = {}
        self.path.append("")
        for key, form in tree.items():
            self.path[-1] = key
            values[key] = self.value(form)
        self.path.pop()
        return values

    def value(self, form: Json) -> object:
        """Return the value of a form; raises `ArgumentError`."""
        if isinstance(form, dict | list) and len(self.path) > LIMIT_DEPTH:
            self.refuse(f"is nested deeper than {LIMIT_DEPTH} levels")
        match form:
            case dict():
                key = next((key for key in form if key.startswith("$")), None)
                if key is None:
                    return self.fields(form)
                return self._tagged(key, form[key]) if len(form) == 1 else self.refuse("mixes a tag with other keys")
            case list():
                return self._items(form)
            case float() if not math.isfinite(form):
                return self.refuse("is not a finite number")
            case _:
                return form

    def refuse(self, reason: str) -> NoReturn:
        """Raise `ArgumentError` with the current position."""
        raise ArgumentError(place(self.path), reason)

    def _items(self, forms: list[Json]) -> list[object]:
        values: list[object] = []
        self.path.append(0)
        for index, form in enumerate(forms):
            self.path[-1] = index
            values.append(self.value(form))
        self.path.pop()
        return values

    def _tagged(self, tag: str, payload: Json) -> object:
        match tag, payload:
            case "$tuple", list():
                return tuple(self._items(payload))
            case "$dict", dict() if any(key.startswith("$") for key in payload):
                return self.fields(payload)
            case "$enum", [str(name), str(member)]:
                return self._member(self._class(name), member)
            case "$dataclass", [str(name), dict(fields)]:
                return self._dataclass(self._class(name), fields)
            case "$model", [str(name), dict(fields)]:
                return self._model(self._class(name), fields, {})
            case "$model", [str(name), dict(fields), dict(rest)] if rest:
                return self._model(self._class(name), fields, rest)
            case _ if tag in TAGS:
                try:
                    return TAGS[tag].value(payload)
                except Unfit as unfit:
                    self.refuse(str(unfit))
            case _:
                return self.refuse("has an unknown or malformed tag")

    def _class(self, name: str) -> type:
        found = self._classes.get(name)
        if found is None:
            self.refuse(f"is of class {name}, which no annotation mentions; annotate the parameter with it")
        return found

    def _member(self, cls: type, name: str) -> object:
        member = cls.__members__.get(name) if issubclass(cls, Enum) else None
        return member if member is not None else self.refuse(f"is not a member of the current {cls.__name__}")

    def _dataclass(self, cls: type, tree: dict[str, Json]) -> object:
        names = dataclass_fields(cls)
        if names is None or set(names) != set(tree):
            self.refuse(f"does not have the fields of the current {cls.__name__}")
        try:
            value = cast("object", object.__new__(cls))
        except TypeError:
            self.refuse(f"is a {cls.__name__}, which extends a builtin type and cannot be restored")
        for name, field in self.fields(tree).items():
            object.__setattr__(value, name, field)
        return value

    def _model(self, cls: type, tree: dict[str, Json], rest: dict[str, Json]) -> object:
        if not is_model(cls) or not set(tree) <= set(cast("dict[str, object]", cls.model_fields)):
            self.refuse(f"does not have the fields of the current {cls.__name__}")
        match rest.get("extra"), rest.get("private"), rest.get("unset", []):
            case None | dict() as extra, None | dict() as private, list(unset) if all(
                isinstance(name, str) and name in tree for name in unset
            ):
                pass
            case _:
                self.refuse("has a malformed $model")
        # `encode` writes no such model: a reviewer would see one of the two values, and the other would run.
        if any(not name.startswith("_") for name in private or {}):
            self.refuse("has a private attribute without a leading underscore")
        if len({*tree, *(extra or {}), *(private or {})}) < len(tree) + len(extra or {}) + len(private or {}):
            self.refuse("has one name for two values")
        extras = None if extra is None else self.fields(extra)
        fields = self.fields(tree)
        value: object = object.__new__(cls)
        if extras is None and cls.model_config.get("extra") == "allow":
            extras = {}
        parts = (
            ("__dict__", fields),
            ("__pydantic_fields_set__", (set(fields) - set(cast("list[str]", unset))) | set(extras or ())),
            ("__pydantic_extra__", extras),
            ("__pydantic_private__", None if private is None else self.fields(private)),
        )
        for name, part in parts:
            object.__setattr__(value, name, part)
        return value
