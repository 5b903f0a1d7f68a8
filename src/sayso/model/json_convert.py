"""Converts the JSON that a reviewer enters to the canonical form, as the schema of a signature specifies.

For example, a text becomes a date, or an object a dataclass, without the program's classes. Values are validated before
(`sayso.model.schema_validation`). Invariant: an error says where and what, and never contains the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sayso.model.canonical import Json, display, form_of
from sayso.model.canonical.decode import class_in, fields_of, items_of, tag_in, with_fields, with_items
from sayso.model.canonical.tags import dump
from sayso.model.schema_validation import TYPES, UNKNOWN, Checker, Node, Problem, mapped, resolved, word_of

__all__ = ["CLASSES", "SCALARS", "Converter", "Misfit", "own_checker", "plain_json"]

SCALARS = frozenset({"bytes", "date", "datetime", "decimal", "path", "secret", "str", "time", "timedelta", "uuid"})
"""The first words of an `x-sayso-type` that stands for a scalar."""

CLASSES = frozenset({"model", "dataclass", "root"})
"""Those that stand for a class of the program."""

_INSTANCE = "x-sayso-instance"
_MOST_STEPS = 100_000


# pydantic reads the texts of these, and takes more than the formats do: a time without an offset.
_FORMATS = ("date", "date-time", "time", "duration", "uuid", "path", "password", "binary")


class Misfit(Exception):
    """A value does not fit its schema."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(problems)
        self.problems = problems


def plain_json(tree: Json) -> Any:
    """Return a canonical tree as the JSON that a schema describes, with its secrets; of an object only its class."""
    if class_in(tree) is not None:
        return {_INSTANCE: class_in(tree)}
    if isinstance(tree, dict) and tag_in(tree) == "$secret":
        secret = tree["$secret"]
        return secret[-1] if isinstance(secret, list) else None
    items, named = items_of(tree), fields_of(tree)
    if items is not None:
        return [plain_json(item) for item in items]
    return display(tree) if named is None else {name: plain_json(part) for name, part in named.items()}


def own_checker(tree: Node) -> Checker:
    """Return what holds JSON values to a schema with our own keywords; raises as `Checker`."""
    return Checker(mapped(tree, _checked_by), formats=_FORMATS, keywords={"x-sayso-type": _TypeKeyword})


def _checked_by(node: Node) -> Node:
    """Return what JSON values are checked by in the place of a schema with our own keywords."""
    kind = str(node.get("x-sayso-type", "")).partition(" ")[0]
    if kind in SCALARS:  # pydantic takes more than the formats say: a number for a decimal, a time without an offset
        return {word: node[word] for word in ("title", "x-sayso-type", "x-sayso-limits") if word in node}
    if "x-sayso-also" in node:
        names = node["enum"]
        return {"enum": names + [one for one in node["x-sayso-also"] if one not in names], "x-sayso-names": names}
    if kind not in CLASSES:
        return node
    properties = {name: part for name, part in node.get("properties", {}).items() if not part.get("readOnly")}
    inner = {**node, "properties": properties} if properties else node
    # An object of a class is what it is: it may be of a subclass, and has been read by the program's own code.
    is_instance = {"type": "object", "required": [_INSTANCE]}
    return {"title": node.get("title", kind), "if": is_instance, "else": inner}


class _TypeKeyword:
    """Checks a text that stands for a scalar by pydantic, as a keyword of JSON Schema."""

    def __init__(self, parent: Node, kind: str, _path: list[str | int]) -> None:
        self._kind, self._limits = kind, parent.get("x-sayso-limits", {})
        self._is_scalar = kind.partition(" ")[0] in SCALARS

    def validate(self, value: Any) -> None:
        """Raise `ValueError` with what is wrong."""
        problem = _scalar(self._kind, self._limits, value)[1] if self._is_scalar else None
        if problem is not None:
            raise ValueError(problem)


def _scalar(kind: str, limits: Mapping[str, Json], value: Any) -> tuple[Any, str | None]:
    from sayso.model.schema_of_types import scalar

    return scalar(kind, limits, value)


@dataclass
class Converter:
    """Writes values in canonical form.

    Attributes:
        tree: The whole schema.
        builds: Whether objects of the program's classes are written. Where its code is, it builds them itself.
        fits: Whether a JSON value fits one schema, for the choice between alternatives.
    """

    tree: Node
    builds: bool
    fits: Callable[[Node, Any], bool]
    _left: int = _MOST_STEPS

    def convert(self, node: Any, tree: Json, path: tuple[str | int, ...]) -> Json:
        """Return a value in canonical form.

        Args:
            node: Its schema.
            tree: The value: JSON, or in canonical form already.
            path: Where it stands.

        Raises:
            Misfit: It does not fit.
        """
        self._left -= 1
        if self._left < 0:
            raise Misfit((path, "is too much to be checked"))
        node = resolved(self.tree, node)
        parts: list[Any] = node.get("anyOf") or node.get("oneOf") or []
        kind, _, name = str(node.get("x-sayso-type", "")).partition(" ")
        if class_in(tree) is not None and (parts or kind in CLASSES):
            return tree
        if parts:
            return self._alternative(parts, tree, path)
        if "x-sayso-values" in node:
            return _member(node, tree, path)
        if kind in SCALARS:
            return self._scalar(node, tree, path)
        if kind in CLASSES:
            return self._object(node, kind, name, tree, path)
        return self._plain(node, kind, tree, path)

    def _plain(self, node: Node, kind: str, tree: Json, path: tuple[str | int, ...]) -> Json:
        """Convert what JSON has a word for: a list, an object, a scalar."""
        items, fields = items_of(tree), fields_of(tree)
        is_tagged = class_in(tree) is not None or (tag_in(tree) is not None and items is None and fields is None)
        if is_tagged:
            if "type" in node:
                raise Misfit((path, TYPES.get(str(node["type"]), "Input is of another type")))
            return tree
        if items is not None:
            each, rest = node.get("prefixItems", ()), node.get("items", {})
            made = [
                self.convert(each[place] if place < len(each) else rest, item, (*path, place))
                for place, item in enumerate(items)
            ]
            return {"$tuple": made} if kind == "tuple" else with_items(tree, made)
        if fields is not None:
            return with_fields(tree, self._members(node, fields, path))
        if type(tree) is float and node.get("type") == "integer":
            if "x-sayso-strict" in node:
                raise Misfit((path, TYPES["integer"]))
            return int(tree)
        return float(tree) if kind == "float" and type(tree) is int and abs(tree) < 10**300 else tree

    def _members(self, node: Node, fields: Mapping[str, Json], path: tuple[str | int, ...]) -> dict[str, Json]:
        named, rest = node.get("properties", {}), node.get("additionalProperties", {})
        return {name: self.convert(named.get(name, rest), part, (*path, name)) for name, part in fields.items()}

    def _alternative(self, parts: list[Any], tree: Json, path: tuple[str | int, ...]) -> Json:
        """Take the alternative that the value is already, else the first that it can be turned into."""
        found: list[Json] = []
        misfits: list[Misfit] = []
        value = plain_json(tree)
        for part in parts:
            if not self.fits(part, value):
                continue
            try:
                made = self.convert(part, tree, path)
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
        raise Misfit((path, f"Input fits none of {', '.join(word_of(part, self.tree) for part in parts)}"))

    def _scalar(self, node: Node, tree: Json, path: tuple[str | int, ...]) -> Json:
        kind, tag = str(node["x-sayso-type"]), tag_in(tree)
        if tag is not None:
            if tag != f"${kind.partition(' ')[0]}":
                raise Misfit((path, f"Input should be a valid {kind}"))
            return tree
        value, problem = _scalar(kind, node.get("x-sayso-limits", {}), tree)
        if problem is not None:
            raise Misfit((path, problem))
        return form_of(value)

    def _object(self, node: Node, kind: str, name: str, tree: Json, path: tuple[str | int, ...]) -> Json:
        if self.builds and "x-sayso-code" in node:
            short = name.rpartition(":")[2]
            raise Misfit((path, f"can only be changed where the program's code is, because {short} checks itself"))
        if kind == "root":
            inner = self.convert({word: part for word, part in node.items() if word != "x-sayso-type"}, tree, path)
            return {"$model": [name, {"root": inner}]} if self.builds else inner
        given = fields_of(tree) or {}
        if _INSTANCE in given:
            raise Misfit(((*path, _INSTANCE), UNKNOWN))
        made = self._members(node, given, path)
        if not self.builds:
            return made
        fields: dict[str, Json] = {}
        for field, part in node["properties"].items():
            if field in made:
                fields[field] = made[field]
            elif "default" in part:
                fields[field] = self.default(part, (*path, field))
            elif field not in node.get("required", ()):
                raise Misfit(((*path, field), "has a default that only the program knows; give a value"))
        extra = {field: value for field, value in made.items() if field not in fields}
        if kind == "dataclass":
            return {"$dataclass": [name, fields]}
        unset = sorted(fields.keys() - made.keys())
        rest: dict[str, Json] = {**({"extra": extra} if extra else {}), **({"unset": [*unset]} if unset else {})}
        return {"$model": [name, fields, rest] if rest else [name, fields]}

    def default(self, node: Node, path: tuple[str | int, ...]) -> Json:
        """Return the default of a schema, in canonical form; as it is where it does not fit: `limit: int = None`."""
        try:
            return self.convert(node, node["default"], path)
        except Misfit:
            return cast("Json", node["default"])


def _member(node: Node, tree: Json, path: tuple[str | int, ...]) -> Json:
    """Take an option by its name, which is how members are displayed, else by its value."""
    wanted, values = dump(tree), node["x-sayso-values"]
    for found in (node["enum"], values, node.get("x-sayso-also", ())):
        for place, one in enumerate(found):
            if dump(one) == wanted:
                return values[place]
    listed = map(str if "x-sayso-also" in node else dump, node["enum"])
    raise Misfit((path, f"Input should be one of {', '.join(listed)}"))
