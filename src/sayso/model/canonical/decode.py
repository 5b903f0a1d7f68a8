"""Decodes the canonical form to Python values, and walks, changes or displays its JSON tree."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, NoReturn, TypeGuard, cast

from sayso.errors import ArgumentError
from sayso.model.canonical.names import place
from sayso.model.canonical.tags import TAGS, Json, Unfit

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
            return _display_fields(fields, rest)
        case _ if tag in TAGS:
            return TAGS[tag].shown(payload)
        case _:
            return {tag: display(payload)}


def _display_fields(fields: dict[str, Json], rest: Iterable[Json]) -> Json:
    shown = {key: display(item) for key, item in fields.items()}
    for more in rest:
        extra = more.get("extra") if isinstance(more, dict) else None
        shown |= {key: display(item) for key, item in extra.items()} if isinstance(extra, dict) else {}
    return shown


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
        value = self._bare(cls)
        for name, field in self.fields(tree).items():
            object.__setattr__(value, name, field)
        return value

    def _bare(self, cls: Any) -> object:
        try:
            return object.__new__(cls)
        except TypeError:
            self.refuse(f"is a {cls.__name__}, which extends a builtin type and cannot be restored")

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
        self._must_have_distinct_names(tree, extra or {}, private or {})
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

    def _must_have_distinct_names(self, *parts: dict[str, Json]) -> None:
        # `encode` writes no such model: a reviewer would see one of the two values, and the other would run.
        if any(not name.startswith("_") for name in parts[-1]):
            self.refuse("has a private attribute without a leading underscore")
        if len(set[str]().union(*parts)) < sum(map(len, parts)):
            self.refuse("has one name for two values")
