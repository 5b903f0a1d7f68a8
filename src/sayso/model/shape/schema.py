"""JSON Schema of a descriptor, for forms and API descriptions: it says what `Shape.validate` takes from JSON.

It is made without the program's code and without pydantic.
The invariant: what a value is shown as (`sayso.model.canonical.decode`) is valid against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from sayso.model.canonical import Json, display
from sayso.model.shape.limits import Descriptor

__all__ = ["json_schema"]

_SCALARS: dict[str, dict[str, Json]] = {
    "any": {},
    "none": {"type": "null"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "decimal": {"type": "string", "pattern": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "timedelta": {"type": "string", "format": "duration"},
    "uuid": {"type": "string", "format": "uuid"},
    "path": {"type": "string", "format": "path"},
    "secret": {"type": "string", "format": "password", "writeOnly": True},
}
_NUMERIC = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LENGTHS = {
    "str": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "secret": {"min_length": "minLength", "max_length": "maxLength"},
    "list": {"min_length": "minItems", "max_length": "maxItems"},
    "tuple": {"min_length": "minItems", "max_length": "maxItems"},
    "dict": {"min_length": "minProperties", "max_length": "maxProperties"},
    "int": _NUMERIC,
    "float": _NUMERIC,
}


def json_schema(fields: Iterable[Descriptor], defs: Mapping[str, Descriptor]) -> dict[str, Any]:
    """Return the schema of an object with these fields; classes stand in `$defs`."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_object(fields)}
    if defs:
        schema["$defs"] = {_pointer(name): _definition(definition) for name, definition in defs.items()}
    return schema


def _pointer(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)


def _object(fields: Iterable[Descriptor]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field in fields:
        properties[str(field["name"])] = _type(cast(Descriptor, field["type"]))
        if "default" in field:
            properties[str(field["name"])]["default"] = display(field["default"])
        if "description" in field:
            properties[str(field["name"])]["description"] = field["description"]
    required = [field["name"] for field in fields if field["required"]]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _definition(definition: Descriptor) -> dict[str, Any]:
    if definition["kind"] == "enum":
        return {"enum": [member[0] for member in cast("list[list[Json]]", definition["members"])]}
    fields: list[Descriptor] = definition["fields"]
    if definition.get("root"):
        return _type(cast(Descriptor, fields[0]["type"]))
    found = _object(fields)
    return {**found, "additionalProperties": True} if definition.get("extra") else found


def _type(descriptor: Descriptor) -> dict[str, Any]:
    kind = str(descriptor["kind"])
    match kind:
        case "ref":
            schema: dict[str, Any] = {"$ref": f"#/$defs/{_pointer(str(descriptor['name']))}"}
        case "union":
            schema = {"anyOf": [_type(part) for part in cast("list[Descriptor]", descriptor["of"])]}
        case "literal":
            schema = {"enum": [display(form) for form in cast("list[Json]", descriptor["values"])]}
        case "list":
            schema = {"type": "array", "items": _type(cast(Descriptor, descriptor["items"]))}
        case "tuple":
            schema = _tuple(descriptor)
        case "dict":
            schema = {"type": "object", "additionalProperties": _type(cast(Descriptor, descriptor["values"]))}
        case _:
            schema = dict(_SCALARS[kind])
    limits = cast("dict[str, Json]", descriptor.get("limits", {}))
    words = _LENGTHS.get(kind, {})
    return schema | {words[name]: display(form) for name, form in limits.items() if name in words}


def _tuple(descriptor: Descriptor) -> dict[str, Any]:
    if "each" not in descriptor:
        return {"type": "array", "items": _type(cast(Descriptor, descriptor["items"]))}
    each = [_type(part) for part in cast("list[Descriptor]", descriptor["each"])]
    return {"type": "array", "prefixItems": each, "minItems": len(each), "maxItems": len(each)}
