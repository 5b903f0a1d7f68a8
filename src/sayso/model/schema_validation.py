"""JSON Schema of draft 2020-12, 2019-09 or 7: compiling and walking schemas, and describing errors.

`jsonschema-rs` validates; how Python types are represented is in `sayso.model.schema`. Invariants: a `$ref` is never
fetched; validation takes a bounded number of steps; an error says where and what, and never contains the value, which
may be a secret. `foreign` checks the schema of a tool that is not a Python function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import unquote

from sayso.errors import ConfigError

if TYPE_CHECKING:
    import jsonschema_rs

Node = dict[str, Any]
Problem = tuple[tuple[str | int, ...], str]

UNKNOWN = "there is no such field"
"""The problem of a name that does not exist."""

DRAFT = "https://json-schema.org/draft/2020-12/schema"

LARGEST = 262_144
"""The maximum number of characters of a foreign schema, which is stored with each request."""

MOST_STEPS = 50_000
"""The maximum number of times that a validation may apply a part of the schema to a part of a value."""

_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTED = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contains", "additionalItems"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# Without any of these, a validator visits each part of a value once.
_BRANCHING = ('Ref"', 'Of"', '"not"', '"if"', '"contains"', "unevaluated", "patternProperties", "depend")
_MASK = "Input"  # stands for the value in messages, because it may be a secret
_MORE_ITEMS = ("additionalItems", "contains", "unevaluatedItems")


class SchemaError(ValueError):
    """Values do not fit a schema. The problems never contain a value.

    Attributes:
        problems: One line each, `where: what is wrong`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class Checker:
    """Validates JSON values by a schema, in a bounded number of steps.

    Raises:
        ValueError: The schema is invalid, or refers to one outside itself. The text says where and what.
    """

    def __init__(
        self, tree: Node, *, formats: Iterable[str] = (), keywords: Mapping[str, type[Any]] | None = None
    ) -> None:
        """Compile a schema. `formats` are not checked; `keywords` are sayso's own."""
        import jsonschema_rs

        text = json.dumps(tree)
        self._tree = tree
        self._branches = any(word in text for word in _BRANCHING)
        options: dict[str, Any] = {
            "formats": dict.fromkeys(formats, _always),
            "validate_formats": True,
            "offline": True,
            "mask": _MASK,
            "keywords": keywords,
            # A pattern may come from anybody, and must not block the process that validates.
            "pattern_options": jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1_000_000),
        }
        try:
            self._validator: jsonschema_rs.Validator = jsonschema_rs.validator_for(tree, **options)
        except jsonschema_rs.ValidationError as error:
            # Here the value is part of the schema, which is not secret.
            what = error.message.replace(_MASK, json.dumps(error.instance))
            where = "/".join(map(str, error.instance_path))
            raise ValueError(f"{where}: {what}" if where else what) from None

    def problems(self, value: Any) -> list[Problem]:
        """Return the problems of a value.

        Raises:
            ValueError: The validation would take too many steps, or the value is nested too deeply.
        """
        return [problem for error in self._errors(value) for problem in _problems(error, self._tree)]

    def readings(self, value: Any) -> list[tuple[tuple[str | int, ...], Any]]:
        """Return what a person meant by each text for which the schema accepts no text, with its path.

        `"80"` is a number if a number is expected, `"yes"` is true, and `"null"` is null.
        """
        found: list[tuple[tuple[str | int, ...], Any]] = []
        waiting = list(self._errors(value))
        while waiting:
            error = waiting.pop()
            if error.kind.name in {"anyOf", "oneOf"}:
                waiting += [inner for context in error.kind.context for inner in context]
            elif error.kind.name in {"type", "enum"} and isinstance(error.instance, str):
                is_strict = "x-sayso-strict" in _schema_at(self._tree, error.schema_path[:-1])
                found += [] if is_strict else [(tuple(error.instance_path), new) for new in _read(error)]
        return found

    def _errors(self, value: Any) -> Iterator[Any]:
        if self._branches:
            _check_steps(self._tree, value)
        return self._validator.iter_errors(value)


def _read(error: Any) -> list[Any]:
    """Return the meaning of a text for which another type is expected; nothing if it has none."""
    text, is_enum = error.instance.strip(), error.kind.name == "enum"
    types: Collection[str] = () if is_enum else error.kind.types
    if "boolean" in types and text.lower() in _BOOLEANS:
        return [_BOOLEANS[text.lower()]]
    try:
        found = json.loads(text, parse_constant=no_number)
    except (ValueError, RecursionError):
        return []
    if is_enum:
        return [found] if json.dumps(found) in map(json.dumps, error.kind.options) else []
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    is_meant = (found is None and "null" in types) or (is_number and bool({"integer", "number"} & set(types)))
    return [found] if is_meant else []


def no_number(constant: str) -> NoReturn:
    """Refuse NaN and infinity where JSON is parsed."""
    raise ValueError(constant)


def _check_steps(tree: Node, value: Any) -> None:
    """Refuse a validation in which nested alternatives multiply.

    Counts in advance how often a validator applies a part of the schema to a part of the value: to the same part
    through alternatives and references, and to its children through properties and items.

    Raises:
        ValueError: More often than `MOST_STEPS`, or a reference cannot be resolved.
    """
    known: dict[tuple[int, int], int] = {}

    def steps(node: Any, value: Any) -> int:
        at = (id(node), id(value))
        if not isinstance(node, dict) or at in known:
            return known.get(at, 1)
        known[at] = 1  # a circular reference, which a validator does not follow twice
        schema = cast("Node", node)
        total = 1 + sum(steps(part, value) for part in _in_place(tree, schema))
        if "unevaluatedItems" in schema or "unevaluatedProperties" in schema:
            total *= 2  # evaluated in a second pass, after the alternatives
        total += sum(steps(part, inner) for part, inner in _below(schema, value))
        if max(total, len(known)) > MOST_STEPS:
            raise ValueError("it has too many nested alternatives")
        known[at] = total
        return total

    steps(tree, value)


def _in_place(tree: Node, node: Node) -> Iterator[Any]:
    """Yield the subschemas that apply to the same value."""
    for word in ("$dynamicRef", "$recursiveRef"):
        if word in node:
            raise ValueError(f"{word} is not supported; write $ref")
    if "$ref" in node:
        target = _lookup(tree, str(node["$ref"]))
        if target is None:
            raise ValueError(f"$ref {node['$ref']!r} cannot be followed; write one like #/$defs/name")
        yield target
    for word in ("allOf", "anyOf", "oneOf"):
        yield from node.get(word, ())
    yield from (node[word] for word in ("not", "if", "then", "else") if word in node)
    for word in ("dependentSchemas", "dependencies"):
        yield from node.get(word, {}).values()


def all_in_place(tree: Node) -> list[Node]:
    """Return a schema and all its subschemas that apply to the same value."""
    found = {repr(tree): tree}  # by its text, because a reference may be followed to a copy
    queue = [tree]
    for node in queue:  # it grows meanwhile
        for part in (cast("Node", one) for one in _in_place(tree, node) if isinstance(one, dict)):
            if repr(part) not in found:
                found[repr(part)] = part
                queue.append(part)
    return [*found.values()]


def _below(node: Node, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the subschemas that apply to children of the value, with the children."""
    if isinstance(value, dict):
        named, rest = node.get("properties", {}), ("additionalProperties", "unevaluatedProperties")
        for name, part in cast("Node", value).items():
            if name in named:
                yield named[name], part
            else:
                yield from ((node[word], part) for word in rest if word in node)
            yield from ((pattern, part) for pattern in node.get("patternProperties", {}).values())
            if "propertyNames" in node:
                yield node["propertyNames"], name
    elif isinstance(value, list):
        for place, part in enumerate(cast("list[Any]", value)):
            for word in ("prefixItems", "items"):
                each = node.get(word)
                if isinstance(each, list):
                    yield from ((one, part) for one in cast("list[Any]", each)[place : place + 1])
                elif each is not None:
                    yield each, part
            yield from ((node[word], part) for word in _MORE_ITEMS if word in node)


def foreign(schema: Mapping[str, Any], option: str) -> Node:
    """Return a foreign schema that sayso can validate by; `option` is the caller's name for it.

    Raises:
        ConfigError: It is invalid, too large, or refers to a schema outside itself. Nothing is fetched.
    """
    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # whatever a server sent
        raise ConfigError(f"{option} takes a JSON Schema as a dict, not {type(schema).__name__}")
    try:
        text = json.dumps({"$schema": DRAFT, **schema}, allow_nan=False)
        tree: Node = json.loads(text)
        Checker(tree)
        mapped(tree, lambda node: {**node, "followed": [*_in_place(tree, node)]})  # raises if it cannot be
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{option} cannot be used as a JSON Schema: {error}. Nothing was asked") from None
    if '"x-sayso-' in text:
        raise ConfigError(f"{option} has keywords that begin with x-sayso-, which are sayso's own. Nothing was asked")
    if len(text) > LARGEST:
        raise ConfigError(f"{option} has {len(text):,} characters; the maximum is {LARGEST:,}. Nothing was asked")
    return tree


def foreign_answer(schema: Mapping[str, Any]) -> Node:
    """Return the schema of an object whose property `answer` must match a foreign schema; raises as `foreign`."""
    inner = foreign(schema, "response_schema")
    draft = inner.pop("$schema")
    # It is now one level deeper, so references inside it must be adjusted.
    inner = mapped(inner, _one_deeper)
    tree: Node = {"$schema": draft, "type": "object", "properties": {"answer": inner}, "required": ["answer"]}
    return foreign({**tree, "additionalProperties": False}, "response_schema")


def _one_deeper(node: Node) -> Node:
    reference = node.get("$ref")
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return node
    return {**node, "$ref": f"#/properties/answer{reference[1:]}"}


def _always(_: str) -> bool:
    return True


def mapped(node: Any, change: Callable[[Node], Node]) -> Any:
    """Return a schema with `change` applied to each subschema, the innermost first. Data in it is left alone."""
    if not isinstance(node, dict):
        return node
    made: Node = {}
    for key, part in cast("Node", node).items():
        if key in _NAMED and isinstance(part, dict):
            made[key] = {name: mapped(one, change) for name, one in cast("Node", part).items()}
        elif (key in _LISTED or key == "items") and isinstance(part, list):
            made[key] = [mapped(one, change) for one in cast("list[Any]", part)]
        else:
            made[key] = mapped(part, change) if key in _SINGLE else part
    return change(made)


def _lookup(tree: Node, reference: str) -> Any:
    """Return the schema that a reference names by pointer, `$anchor` or `$id`; None if there is none."""
    if reference != "#" and not reference.startswith("#/"):
        named: list[Node] = []
        mapped(tree, lambda node: named.append(node) or node)
        names = (({f"#{node.get('$anchor')}", node.get("$id")}, node) for node in named)
        return next((node for found, node in names if reference in found), None)
    found: Any = tree
    for step in unquote(reference).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name) if isinstance(found, list) else name]  # pyright: ignore[reportUnknownVariableType]
        except (LookupError, TypeError, ValueError):
            return None
    return found


def resolved(tree: Node, node: Any) -> Node:
    """Return the schema that a node refers to, or the node itself; {} if it is not an object."""
    for _ in range(50):
        if not isinstance(node, dict) or "$ref" not in node:
            break
        node = _lookup(tree, str(cast("Node", node)["$ref"]))
    return cast("Node", node) if isinstance(node, dict) else {}


def _problems(error: Any, tree: Node) -> Iterator[Problem]:
    kind, at, word = error.kind, tuple(error.instance_path), str(error.kind.name)
    match word:
        case "required":
            yield (*at, kind.property), "Field required"
        case "additionalProperties" | "unevaluatedProperties":
            yield from (((*at, name), UNKNOWN) for name in kind.unexpected)
        case "anyOf" | "oneOf":
            yield from _alternatives(error, tree)
        case "enum":
            names = _schema_at(tree, error.schema_path[:-1]).get("x-sayso-names")
            listed = names or [json.dumps(one, ensure_ascii=False) for one in kind.options]
            yield at, f"{_MASK} should be one of {', '.join(listed)}"
        case "propertyNames":
            yield at, "Input has a name that is not allowed"
        case _:
            yield at, error.message


def _alternatives(error: Any, tree: Node) -> Iterator[Problem]:
    """Yield the problems of the alternative that was meant, if only one can be; otherwise that none fits."""
    at, contexts = error.instance_path, error.kind.context
    if not all(contexts):
        yield tuple(at), "Input fits several alternatives that exclude each other"
        return
    present = [one for one in contexts if "null" not in _types_at(one, at)]
    meant = [one for one in present if not _types_at(one, at)] or present
    if len(meant) == 1:
        yield from (problem for inner in meant[0] for problem in _problems(inner, tree))
        return
    parts = _schema_at(tree, error.schema_path[:-1])[error.kind.name]
    yield tuple(at), f"Input fits none of {', '.join(word_of(part, tree) for part in parts)}"


def _schema_at(tree: Node, path: Iterable[str | int]) -> Node:
    found: Any = tree
    for step in path:
        found = resolved(tree, found) if step == "$ref" else found[step]
    return found


def _types_at(errors: Iterable[Any], at: list[str | int]) -> set[str]:
    found = (error.kind.types for error in errors if error.kind.name == "type" and error.instance_path == at)
    return {name for types in found for name in types}


def word_of(node: Any, tree: Node) -> str:
    """Return the name of a schema in a list of alternatives."""
    found = resolved(tree, node)
    words = (found.get(name) for name in ("title", "x-sayso-type", "format", "type"))
    return str(next((word for word in words if word), "other values"))
