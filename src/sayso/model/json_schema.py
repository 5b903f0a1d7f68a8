"""JSON Schema itself, of draft 2020-12, 2019-09 or 7: compiled, walked, and what is wrong with a value in words.

`jsonschema-rs` validates; what Python's types mean in a schema is in `sayso.model.schema`.
The invariants: nothing is ever fetched for a `$ref`; and a problem says where and what, and never holds the value
itself, which may be a secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from sayso.errors import ConfigError

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = [
    "DRAFT",
    "TYPES",
    "UNKNOWN",
    "Node",
    "Problem",
    "compiled",
    "foreign",
    "foreign_answer",
    "lookup",
    "mapped",
    "pointer",
    "problems_of",
    "word_of",
]

Node = dict[str, Any]
Problem = tuple[tuple[str | int, ...], str]

UNKNOWN = "there is no such field"
"""What is wrong with a name that there is not."""

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTED = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset(
    {"items", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contains", "additionalItems"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
TYPES = {
    "string": "Input should be a valid string",
    "integer": "Input should be a valid integer",
    "number": "Input should be a valid number",
    "boolean": "Input should be true or false",
    "array": "Input should be a valid list",
    "object": "Input should be an object",
    "null": "Input should be null",
}
_WORDS: dict[str, str] = {
    "maximum": "Input should be less than or equal to {}",
    "minimum": "Input should be greater than or equal to {}",
    "exclusiveMaximum": "Input should be less than {}",
    "exclusiveMinimum": "Input should be greater than {}",
    "multipleOf": "Input should be a multiple of {}",
    "maxLength": "String should have at most {} characters",
    "minLength": "String should have at least {} characters",
    "maxItems": "Input should have at most {} items",
    "minItems": "Input should have at least {} items",
    "maxProperties": "Input should have at most {} items",
    "minProperties": "Input should have at least {} items",
    "pattern": "String should match pattern {}",
    "const": "Input should be {}",
    "uniqueItems": "Input should not hold the same item twice",
    "not": "Input is one that is not allowed",
    "contains": "Input holds no item of those that it needs",
}
_FORMATS = {
    "date": "Input should be a valid date, YYYY-MM-DD",
    "date-time": "Input should be a valid date and time, YYYY-MM-DDTHH:MM:SSZ",
    "time": "Input should be a valid time, HH:MM:SSZ",
    "duration": "Input should be a valid duration, as P1DT2H30M",
}


def compiled(tree: Node, *, formats: Iterable[str] = ()) -> tuple[jsonschema_rs.Validator, jsonschema_rs.ValidatorMap]:
    """Return the validator of a schema, and those of each schema in it by JSON pointer; `formats` are not looked at.

    Raises:
        ValueError: It is no schema, or refers to one that is not in it. The text says where and what.
    """
    import jsonschema_rs

    options: dict[str, Any] = {
        "formats": dict.fromkeys(formats, _always),
        "validate_formats": True,
        "offline": True,
        # A pattern may come from anybody, and must not hold up who checks a value.
        "pattern_options": jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1_000_000),
    }
    try:
        jsonschema_rs.validator_for(tree, **options)
        return (
            jsonschema_rs.validator_for(tree, mask="Input", **options),
            jsonschema_rs.validator_map_for(tree, mask="Input", **options),
        )
    except jsonschema_rs.ValidationError as error:
        where = "/".join(map(str, error.instance_path))
        raise ValueError(f"{where}: {error.message}" if where else error.message) from None


def foreign(schema: Mapping[str, Any], option: str) -> Node:
    """Return a foreign schema that can be held to; `option` is what the caller calls it.

    Raises:
        ConfigError: It is none, or refers to one that is not in it. Nothing was fetched.
    """
    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # whatever a server sent
        raise ConfigError(f"{option} takes a JSON Schema as a dict, not {type(schema).__name__}")
    try:
        text = json.dumps({"$schema": DRAFT, **schema}, allow_nan=False)
        tree = json.loads(text)
        compiled(tree)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{option} is no JSON Schema that can be held to: {error}. Nothing was asked") from None
    if '"x-sayso-' in text:
        raise ConfigError(f"{option} has keywords that begin with x-sayso-, which are sayso's own. Nothing was asked")
    return cast("Node", tree)


def foreign_answer(schema: Mapping[str, Any], option: str) -> Node:
    """Return the schema of an object whose property `answer` is held to a foreign schema; raises as `foreign`."""
    inner = foreign(schema, option)
    draft = inner.pop("$schema")
    # It stands one level deeper than it was written, and so do the places that it refers to.
    inner = mapped(inner, lambda node: {**node, "$ref": _deeper(node["$ref"])} if "$ref" in node else node)
    tree: Node = {"$schema": draft, "type": "object", "properties": {"answer": inner}, "required": ["answer"]}
    return foreign({**tree, "additionalProperties": False}, option)


def _deeper(reference: object) -> object:
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return reference
    return f"#/properties/answer{reference[1:]}"


def _always(_: str) -> bool:
    return True


def mapped(node: Any, change: Callable[[Node], Node]) -> Any:
    """Return a schema in which every schema, the innermost first, is what `change` makes of it. Data is left alone."""
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


def pointer(at: str, *steps: str | int) -> str:
    """Return the JSON pointer of a schema inside of the one at `at`."""
    return "/".join([at, *(str(step).replace("~", "~0").replace("/", "~1") for step in steps)])


def lookup(tree: Node, at: str) -> Any:
    """Return the schema at a JSON pointer (`#/$defs/Line`); {} where there is none."""
    found: Any = tree
    for step in at.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name) if isinstance(found, list) else name]  # pyright: ignore[reportUnknownVariableType]
        except (LookupError, TypeError, ValueError):
            return {}
    return found


def problems_of(errors: Iterable[Any], tree: Node) -> Iterator[Problem]:
    """Yield what is wrong with a value, from the errors that a validator of `tree` found."""
    for error in errors:
        yield from _problems(error, tree)


def _problems(error: Any, tree: Node) -> Iterator[Problem]:
    kind, at, word = error.kind, tuple(error.instance_path), str(error.kind.name)
    match word:
        case "required":
            yield (*at, kind.property), "Field required"
        case "additionalProperties" | "unevaluatedProperties":
            yield from (((*at, name), UNKNOWN) for name in kind.unexpected)
        case "anyOf" | "oneOf":
            yield from _alternatives(error, tree)
        case "type":
            types: list[str] = kind.types
            yield at, TYPES[types[0]] if len(types) == 1 else f"Input fits none of {', '.join(types)}"
        case "enum":
            yield at, f"Input should be one of {', '.join(json.dumps(one, ensure_ascii=False) for one in kind.options)}"
        case "format":
            yield at, _FORMATS.get(kind.format, f"Input should be a valid {kind.format}")
        case "falseSchema":
            yield at, "Input is not allowed"
        case "propertyNames":
            inner = " or ".join(what for _, what in _problems(kind.error, tree))
            is_taken = kind.error.kind.name == "not"
            why = json.dumps(kind.error.instance, ensure_ascii=False) if is_taken else inner
            yield at, f"Input has a name that is not allowed: {why}"
        case _ if word in _WORDS:
            yield at, _WORDS[word].format(json.dumps(kind.value, ensure_ascii=False))
        case _:
            yield at, error.message


def _alternatives(error: Any, tree: Node) -> Iterator[Problem]:
    """Yield the problems of the one alternative that can have been meant; else that none fits."""
    at, contexts = error.instance_path, error.kind.context
    if not all(contexts):
        yield tuple(at), "Input fits several alternatives that exclude each other"
        return
    present = [one for one in contexts if "null" not in _types_at(one, at)]
    meant = [one for one in present if not _types_at(one, at)] or present
    if len(meant) == 1:
        yield from problems_of(meant[0], tree)
        return
    parts = lookup(tree, pointer("#", *error.schema_path))
    yield tuple(at), f"Input fits none of {', '.join(word_of(part, tree) for part in parts)}"


def _types_at(errors: Iterable[Any], at: list[str | int]) -> set[str]:
    found = (error.kind.types for error in errors if error.kind.name == "type" and error.instance_path == at)
    return {name for types in found for name in types}


def word_of(node: Any, tree: Node) -> str:
    """Return what a schema is called, in a list of alternatives."""
    for _ in range(50):
        if not isinstance(node, dict) or "$ref" not in node:
            break
        node = lookup(tree, str(cast("Node", node)["$ref"]))
    found = cast("Node", node) if isinstance(node, dict) else {}
    words = (found.get(name) for name in ("title", "x-sayso-type", "format", "type"))
    return str(next((word for word in words if word), "other values"))
