"""JSON values, fitted to a schema: a text becomes the date that it means, an object the model that it is one of.

Values are trees of the canonical form, so none of the program's classes is needed; `jsonschema-rs` and pydantic's own
scalars check them. The invariant: a problem says where and what, and never holds the value itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sayso.model.canonical import Json, display, form_of
from sayso.model.canonical.decode import class_in, fields_of, items_of, tag_in, with_fields, with_items
from sayso.model.canonical.tags import TAGS, Unfit, dump
from sayso.model.json_schema import TYPES, Node, Problem, pointer, problems_of, word_of

if TYPE_CHECKING:
    import jsonschema_rs

    from sayso.model.schema import Schema

__all__ = ["Fitter", "is_torn", "readings"]

_MOST_STEPS = 100_000
_YES = frozenset({"true", "yes", "on"})
_NO = frozenset({"false", "no", "off"})
_KINDS = frozenset(
    {"bytes", "date", "datetime", "decimal", "path", "secret bytes", "secret str", "str", "time", "timedelta", "uuid"}
)
_MADE_OF = ("model", "dataclass", "root")


class Fitter:
    """One fitting of some values.

    Attributes:
        problems: What did not fit.

    Args:
        schema: What they are fitted to.
        builds: Write objects of the program's classes in canonical form. Where the code is, it builds them itself.
    """

    def __init__(self, schema: Schema, *, builds: bool) -> None:
        self.problems: list[Problem] = []
        self._schema, self._builds = schema, builds
        self._path: list[str | int] = []
        self._opaque: set[tuple[str | int, ...]] = set()
        self._left = _MOST_STEPS

    def at(self, name: str, tree: Json) -> Json:
        """Return the fitted value of an argument; what does not fit is among the problems."""
        return self._member(self._schema.tree, "#", name, tree)

    def default(self, name: str, form: Json) -> Json:
        """Return the default of an argument, fitted; as it is where it does not fit: `limit: int = None`."""
        before, self.problems = self.problems, []
        fitted = self.at(name, form)
        self.check_one(name, fitted)
        problems, self.problems = self.problems, before
        return form if problems else fitted

    def check(self, fitted: Mapping[str, Json], spared: Collection[str]) -> None:
        """Add the problems that the whole has by its JSON Schema; those of the spared arguments are none."""
        self._check("#", {name: _json_of(form) for name, form in fitted.items()}, spared)

    def check_one(self, name: str, form: Json) -> None:
        """Add the problems that one argument has by its JSON Schema."""
        self._path.append(name)
        self._check(pointer("#", "properties", name), _json_of(form), ())
        self._path.pop()

    def _check(self, at: str, value: Any, spared: Collection[str]) -> None:
        before = [problem[0] for problem in self.problems]
        for error in self._errors(at, value):
            for where, what in problems_of([error], self._schema.tree):
                whole = (*self._path, *where)
                if whole and (whole[0] in spared and len(self._path) == 0):
                    continue
                if not any(whole[: len(other)] == other or other[: len(whole)] == whole for other in before):
                    self.problems.append((whole, what))

    def _errors(self, at: str, value: Any) -> Iterator[jsonschema_rs.ValidationError]:
        """Yield what is wrong with a value; an instance of a class is what it is, and is not looked into."""
        whole, parts = self._schema.validators
        validator = whole if at == "#" else parts.get(at)
        try:
            errors = [] if validator is None else list(validator.iter_errors(value))
        except ValueError:  # it is nested more deeply than a checker goes
            self._wrong(None, "cannot be checked")
            return
        for error in errors:
            where = (*self._path, *error.instance_path)
            if not any(where[: len(opaque)] == opaque for opaque in self._opaque):
                yield error

    def _wrong(self, tree: Json, what: str, *steps: str | int) -> Json:
        self.problems.append(((*self._path, *steps), what))
        return tree

    # -- the walk ----------------------------------------------------------------------------------------------

    def _fit(self, node: Any, tree: Json, at: str) -> Json:
        self._left -= 1
        if self._left < 0:
            return self._wrong(tree, "is too much to be checked")
        if isinstance(node, dict) and "$ref" in node:
            at, node = str(cast("Node", node)["$ref"]), self._schema.resolved(cast("Node", node))
        node = cast("Node", node) if isinstance(node, dict) else {}
        word = next((word for word in ("anyOf", "oneOf") if word in node), None)
        if word is not None:
            return self._choose(node[word], tree, pointer(at, word))
        for place, part in enumerate(node.get("allOf", ())):
            tree = self._fit(part, tree, pointer(at, "allOf", place))
        kind = str(node.get("x-sayso-type", ""))
        if "enum" in node:
            return self._picked(node, tree)
        if kind in _KINDS:
            return self._scalar(kind, node, tree)
        if kind.partition(" ")[0] in _MADE_OF:
            made_of, _, name = kind.partition(" ")
            return self._instance(node, at, made_of, name, tree)
        return self._plain(node, at, kind, tree)

    def _plain(self, node: Node, at: str, kind: str, tree: Json) -> Json:
        """Fit what JSON has a word for: a list, an object, a scalar."""
        items, fields = items_of(tree), fields_of(tree)
        if class_in(tree) is not None or (tag_in(tree) is not None and items is None and fields is None):
            return self._wrong(tree, _wanted(node)) if "type" in node else self._seen(tree)
        if items is not None:
            fitted = self._items(node, at, items)
            return {"$tuple": fitted} if kind == "tuple" else with_items(tree, fitted)
        if fields is not None:
            return with_fields(tree, {name: self._member(node, at, name, part) for name, part in fields.items()})
        if "x-sayso-strict" in node and isinstance(tree, float) and node.get("type") == "integer":
            return self._wrong(tree, _wanted(node))
        return _read(node, tree)

    def _seen(self, tree: Json) -> Json:
        if class_in(tree) is not None:
            self._opaque.add(tuple(self._path))
        return tree

    def _member(self, node: Node, at: str, name: str, tree: Json) -> Json:
        self._path.append(name)
        if name in node.get("properties", {}):
            fitted = self._fit(node["properties"][name], tree, pointer(at, "properties", name))
        else:
            fitted = self._fit(node.get("additionalProperties", {}), tree, pointer(at, "additionalProperties"))
        self._path.pop()
        return fitted

    def _items(self, node: Node, at: str, items: list[Json]) -> list[Json]:
        first = "items" if isinstance(node.get("items"), list) else "prefixItems"  # as draft 7 has it
        each: list[Any] = node.get(first, [])
        rest = "additionalItems" if first == "items" else "items"
        fitted: list[Json] = []
        for place, item in enumerate(items):
            self._path.append(place)
            is_own = place < len(each)
            where = pointer(at, first, place) if is_own else pointer(at, rest)
            fitted.append(self._fit(each[place] if is_own else node.get(rest, {}), item, where))
            self._path.pop()
        return fitted

    def _choose(self, parts: list[Any], tree: Json, at: str) -> Json:
        """Take the alternative that the value is already, else the first that it can be turned into."""
        if class_in(tree) is not None:
            return self._seen(tree)
        fits: list[Json] = []
        heard: list[list[Problem]] = []
        before, whole = self.problems, dump(tree)
        for place, part in enumerate(parts):
            self.problems = []
            fitted = self._fit(part, tree, pointer(at, place))
            if not self.problems:
                self._check(pointer(at, place), _json_of(fitted), ())
            if not self.problems and dump(fitted) == whole:
                self.problems = before
                return fitted
            if not self.problems:
                fits.append(fitted)
            elif self._schema.resolved(part).get("type") != "null":
                heard.append(self.problems)
        self.problems = before
        if fits:
            return fits[0]
        if len(heard) == 1:  # with one alternative that can have been meant, its own problems say more
            self.problems += heard[0]
            return tree
        return self._wrong(tree, f"Input fits none of {', '.join(word_of(part, self._schema.tree) for part in parts)}")

    def _picked(self, node: Node, tree: Json) -> Json:
        """Take an option by its name, which is how members are displayed, else by its value or the value's text."""
        names: list[Json] = node["enum"]
        values: list[Json] = node.get("x-sayso-values", names)
        also: list[Json] = node.get("x-sayso-also", names)
        wanted = dump(tree)
        for found in (names, values, also):
            for place, one in enumerate(found):
                if dump(one) == wanted or (found is also and isinstance(tree, str) and dump(one) == tree):
                    return values[place]
        if "x-sayso-values" not in node:
            return next(
                (one for one in names if type(one) is not bool and type(tree) is not bool and one == tree), tree
            )
        listed = map(str, names) if "x-sayso-also" in node else map(dump, names)
        return self._wrong(tree, f"Input should be one of {', '.join(listed)}")

    # -- what JSON has no word for -----------------------------------------------------------------------------

    def _instance(self, node: Node, at: str, kind: str, name: str, tree: Json) -> Json:
        if class_in(tree) is not None:
            return self._seen(tree)
        if "x-sayso-code" in node and self._builds:
            short = name.rpartition(":")[2]
            return self._wrong(tree, f"can only be changed where the program's code is, because {short} checks itself")
        if kind == "root":
            fitted = self._fit({word: part for word, part in node.items() if word != "x-sayso-type"}, tree, at)
            return {"$model": [name, {"root": fitted}]} if self._builds else fitted
        fields = fields_of(tree)
        if fields is None:
            return self._wrong(tree, "Input should be an object")
        given: dict[str, Json] = fields
        properties: dict[str, Node] = node["properties"]
        for field, part in properties.items():
            for alias in part.get("x-sayso-alias", ()):
                if alias in given and field not in given and alias not in properties:
                    given = {field if key == alias else key: value for key, value in given.items()}
            if part.get("readOnly") and field in given:
                self._wrong(tree, "is set by the class itself; leave it out", field)
        made = {field: self._member(node, at, field, value) for field, value in given.items()}
        return self._built(node, at, kind, name, made) if self._builds else with_fields({}, made)

    def _built(self, node: Node, at: str, kind: str, name: str, made: dict[str, Json]) -> Json:
        fields: dict[str, Json] = {}
        for field, part in node["properties"].items():
            if field in made:
                fields[field] = made[field]
            elif "default" in part:
                fields[field] = self._default(part, field, pointer(at, "properties", field))
            elif field not in node.get("required", ()):
                self._wrong(None, "has a default that only the program knows; give a value", field)
        extra = {field: value for field, value in made.items() if field not in fields}
        if kind == "dataclass":
            return {"$dataclass": [name, {**fields, **extra}]}
        rest: dict[str, Json] = {"extra": extra} if extra else {}
        unset = sorted(fields.keys() - made.keys())
        return {
            "$model": [
                name,
                fields,
                *([{**rest, "unset": list[Json](unset)} if unset else rest] if rest or unset else []),
            ]
        }

    def _default(self, part: Node, name: str, at: str) -> Json:
        before, self.problems = self.problems, []
        self._path.append(name)
        fitted = self._fit(part, part["default"], at)
        self._path.pop()
        problems, self.problems = self.problems, before
        return cast("Json", part["default"]) if problems else fitted

    def _scalar(self, kind: str, node: Node, tree: Json) -> Json:
        from sayso.model.python_types import scalar

        tag, value = tag_in(tree), cast("Any", tree)
        if tag is not None and isinstance(tree, dict):
            if tag != f"${kind.partition(' ')[0]}":
                return self._wrong(tree, f"Input should be a valid {kind}")
            try:
                value = TAGS[tag].value(tree[tag])
            except Unfit as unfit:
                return self._wrong(tree, str(unfit))
        elif not isinstance(tree, str) and (isinstance(tree, bool) or not isinstance(tree, int | float)):
            return self._wrong(tree, f"Input should be a valid {'string' if kind.startswith(('str', 'sec')) else kind}")
        fitted, problem = scalar(kind, json.dumps(node.get("x-sayso-limits", {})), value)
        if problem is not None:
            return self._wrong(tree, problem)
        return tree if tag is not None else form_of(fitted)


def _wanted(node: Node) -> str:
    return TYPES.get(str(node.get("type")), "Input is of another type")


def _read(node: Node, tree: Json) -> Json:
    """Return a JSON scalar as the one that its type means: a text that a person typed may be a number."""
    named = node.get("type", ())
    types: Collection[str] = (named,) if isinstance(named, str) else cast("list[str]", named)
    if isinstance(tree, str) and types and "string" not in types and "x-sayso-strict" not in node:
        tree = _parsed(tree.strip(), types)
    if isinstance(tree, float) and "integer" in types and "number" not in types and tree.is_integer():
        return int(tree)
    if node.get("x-sayso-type") == "float" and type(tree) is int:
        return float(tree) if abs(tree) < 10**300 else tree
    return tree


def _parsed(text: str, types: Collection[str]) -> Json:
    if "boolean" in types and text.lower() in _YES | _NO:
        return text.lower() in _YES
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if (found is None and "null" in types) or (is_number and {"integer", "number"} & set(types)):
        return cast("Json", found)
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _json_of(tree: Json) -> Any:
    """Return a canonical tree as the JSON that a schema speaks of, with its secrets."""
    items, named = items_of(tree), fields_of(tree)
    match tree:
        case {"$secret": [_, content]} if len(tree) == 1:
            return content
        case {"$dataclass": [str(), dict(fields)]} | {"$model": [str(), dict(fields)]} if len(tree) == 1:
            named = fields
        case {"$model": [str(), dict(fields), dict(rest)]} if len(tree) == 1:
            extra = rest.get("extra")
            named = {**fields, **extra} if isinstance(extra, dict) else fields
        case _:
            pass
    if items is not None:
        return [_json_of(item) for item in items]
    if named is None:
        return display(tree)
    is_root = class_in(tree) is not None and named.keys() == {"root"}
    return _json_of(named["root"]) if is_root else {name: _json_of(part) for name, part in named.items()}


# -- what a person types ---------------------------------------------------------------------------------------


def readings(schema: Schema, name: str, text: str) -> Iterator[object]:
    """Yield the JSON values that a typed text may mean, the likelier first."""
    try:
        parsed: list[Any] = [json.loads(text, parse_constant=_refuse)]
    except (ValueError, RecursionError):
        parsed = []
    nodes = _alternatives(schema, schema.properties.get(name, {}))
    texts = [
        node for node in nodes if node.get("type") == "string" and "x-sayso-type" not in node and "enum" not in node
    ]
    others = [node for node in nodes if node not in texts]
    if texts:
        yield from (one for one in parsed if any(_is_exactly(node, one) for node in others))
        yield text
    elif all("enum" in node or node.get("type") in ("string", "null") for node in others) and others:
        yield from (one for one in parsed if one is None and any(node.get("type") == "null" for node in others))
        yield text
        yield from parsed
    else:
        yield from parsed
        yield text


def _alternatives(schema: Schema, node: Any) -> list[Node]:
    found = schema.resolved(node)
    parts = found.get("anyOf") or found.get("oneOf")
    return [inner for part in parts for inner in _alternatives(schema, part)] if parts else [found]


def _is_exactly(node: Node, value: Any) -> bool:
    named = node.get("type", ())
    types: Collection[str] = (named,) if isinstance(named, str) else cast("list[str]", named)
    kinds = {"NoneType": "null", "bool": "boolean", "int": "integer", "float": "number", "list": "array"}
    found = kinds.get(type(value).__name__, "string" if isinstance(value, str) else "object")
    is_picked = "enum" in node and any(dump(one) == dump(value) for one in node["enum"])
    return is_picked or (found in types and "x-sayso-type" not in node) or (found == "integer" and "number" in types)


def is_torn(text: str) -> bool:
    """Say whether a typed text begins like JSON and is none: where anything goes, it would pass as a plain text."""
    if text.strip()[:1] not in {"{", "[", '"'}:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False
