"""A JSON Schema as a Python type, so that answers are held to it by the same rules as every other value.

What is understood: `type` (also a list of types), `enum`, `const`, `anyOf` and `oneOf`, `items`, `properties` with
`required`, `additionalProperties`, and the limits on lengths, sizes and numbers. The invariant: a keyword that would
not be held to is refused by its name when the question is asked, never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, cast

from sayso.errors import ConfigError

__all__ = ["annotation_of", "plain_answer"]

Schema = Mapping[str, Any]
_WORDS = frozenset({"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"})
_SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
_LIMITS = {
    "minLength": "min_length", "maxLength": "max_length", "pattern": "pattern", "minItems": "min_length",
    "maxItems": "max_length", "minimum": "ge", "exclusiveMinimum": "gt", "maximum": "le", "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}  # fmt: skip
_KEYWORDS = {
    "string": {"minLength", "maxLength", "pattern"},
    "integer": {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"},
    "number": {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"},
    "boolean": set[str](),
    "null": set[str](),
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
}


def annotation_of(schema: Schema) -> Any:
    """Return the type of the values that fit a schema.

    Raises:
        ConfigError: It says something that answers would not be held to.
    """
    try:
        return _read(json.dumps(schema, sort_keys=True))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"response_schema is no JSON: {error}") from None


@lru_cache(maxsize=256)
def _read(text: str) -> Any:
    return _type(json.loads(text), "Answer")


def _type(schema: Any, name: str) -> Any:
    if schema is True or schema == {}:
        return Any
    if not isinstance(schema, Mapping):
        raise ConfigError(f"response_schema: {schema!r} is no schema")
    schema = cast("Schema", schema)
    said = {word for word in schema if word not in _WORDS}
    for word in ("enum", "const", "anyOf", "oneOf"):
        if word in said:
            return _chosen(schema, word, said, name)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        parts = [_one(schema, str(kind), said, name, is_mixed=True) for kind in cast("list[Any]", kinds)]
        return _either(parts)
    return _one(schema, str(kinds), said, name, is_mixed=False)


def _either(parts: list[Any]) -> Any:
    return Union[tuple(parts)]  # noqa: UP007  made of a list


def _chosen(schema: Schema, word: str, said: set[str], name: str) -> Any:
    _only(said, {word, "type"})
    if word in {"anyOf", "oneOf"}:
        return _either([_type(part, f"{name}{n}") for n, part in enumerate(schema[word])])
    values: Any = schema["enum"] if word == "enum" else [schema["const"]]
    if not isinstance(values, list) or not values:
        raise ConfigError("response_schema: enum is a list of at least one value")
    fixed = cast("list[Any]", values)
    if not all(value is None or isinstance(value, str | int | bool) for value in fixed):
        raise ConfigError("response_schema: enum takes texts, whole numbers, booleans and null")
    return Literal[tuple(fixed)]


def _one(schema: Schema, kind: str, said: set[str], name: str, *, is_mixed: bool) -> Any:
    if kind not in _KEYWORDS:
        raise ConfigError(f"response_schema: there is no type {kind!r}")
    known = set[str]().union(*_KEYWORDS.values()) if is_mixed else _KEYWORDS[kind]
    _only(said, known | {"type"})
    limits = {_LIMITS[word]: schema[word] for word in said & _KEYWORDS[kind] if word in _LIMITS}
    if kind == "array":
        base: Any = list[_type(schema.get("items", True), f"{name}Item")]
    elif kind == "object":
        base = _object(schema, name)
    else:
        base = _SCALARS[kind]
    if not limits:
        return base
    from pydantic import Field

    return Annotated[base, Field(**limits)]


def _object(schema: Schema, name: str) -> Any:
    more = schema.get("additionalProperties", True)
    if "properties" not in schema:
        return dict[str, _type(more, f"{name}Value")]
    from pydantic import ConfigDict, create_model

    required, fields = set(schema.get("required", ())), dict[str, Any]()
    for field, part in cast("Schema", schema["properties"]).items():
        kind = _type(part, f"{name}{field.title()}")
        fields[field] = (kind, ...) if field in required else (kind | None, None)
    if more not in (True, False):
        raise ConfigError("response_schema: additionalProperties beside properties is true or false")
    return create_model(name, __config__=ConfigDict(extra="forbid"), __module__=__name__, **fields)


def _only(said: set[str], known: set[str]) -> None:
    strange = sorted(said - known)
    if strange:
        raise ConfigError(f"response_schema: answers cannot be held to {strange[0]!r}; leave it out or ask in words")


def plain_answer(value: Any) -> Any:
    """Return an answer as the JSON values that its schema speaks of; what was left out of an object stays out."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return {name: plain_answer(part) for name, part in value if name in value.model_fields_set}
    if isinstance(value, list):
        return [plain_answer(part) for part in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: plain_answer(part) for name, part in cast("dict[str, Any]", value).items()}
    return value
