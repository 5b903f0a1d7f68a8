"""pydantic's JSON Schema of Python's types, with what JSON has no word for: `sayso.model.schema` says which keywords.

What a type does beyond its schema is marked with `x-sayso-code`. This module imports pydantic.
The invariant: the same types have the same text, however a union was written and in whatever order it was met.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import InitVar
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, cast

import pydantic
import pydantic_core
from pydantic.json_schema import GenerateJsonSchema

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, class_name, display, form_of
from sayso.model.canonical.decode import dataclass_fields
from sayso.model.json_schema import Node, mapped
from sayso.model.redaction import Redaction
from sayso.model.signature import hints_of

__all__ = ["EMPTY", "TEXT_RULES", "Generated", "generate"]

EMPTY: tuple[Any, ...] = (list, dict, tuple, str, bytes, int, float, bool)
"""Factories whose default can be told."""

TEXT_RULES = frozenset({"strip_whitespace", "to_upper", "to_lower"})
"""Limits of a text that change it."""

_RANKS = ("integer", "number", "boolean", "typed", "array", "object", "string", "null")
_ORDER = ("ge", "gt", "le", "lt")
_LIMITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("date", "datetime", "time", "timedelta"), _ORDER),
    "decimal": (*_ORDER, "multiple_of", "max_digits", "decimal_places"),
    "bytes": ("min_length", "max_length"),
    "float": ("allow_inf_nan",),
    "uuid": (),
}
# Where pydantic tells of a JSON value that ours is not.
_NODES: dict[str, Node] = {
    "decimal": {"type": "string", "pattern": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "timedelta": {"type": "string", "format": "duration"},
    "complex": {"x-sayso-code": True},
}
_LISTS = {"tuple": "tuple", "set": "set", "frozenset": "set"}
_JSON_SCALARS = frozenset({"int", "bool", "float", "str"})
_SAYING_MORE = {"date": {"now_op"}, "datetime": {"now_op", "tz_constraint"}, "uuid": {"version"}}
_INLINE_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}
# With these a model changes what it is given, or looks at it in a way that its schema does not tell.
_CONFIG_WITH_EFFECT = frozenset(
    {"use_enum_values", "validate_default", "str_strip_whitespace", "str_to_lower", "str_to_upper", "str_max_length"}
    | {"str_min_length", "coerce_numbers_to_str", "allow_inf_nan", "revalidate_instances", "alias_generator"}
)


class Generated(NamedTuple):
    """The schema of each type, by name, with the definitions and classes that they lead to.

    Attributes:
        nodes: By the names of the types.
        definitions: What their references lead to.
        classes: Enums, dataclasses and models, by `module:QualName`.
        roots: Other classes that were met (abstract bases): instances of their subclasses may be passed.
    """

    nodes: dict[str, Node]
    definitions: dict[str, Node]
    classes: dict[str, type]
    roots: list[type]


def generate(adapters: Mapping[str, pydantic.TypeAdapter[Any]], redaction: Redaction) -> Generated:
    """Return the schemas of types; one that has none is marked as code, and no reason to fail."""
    found = _generated(adapters)
    if found is None:
        found = _generated({n: adapter for n, adapter in adapters.items() if _generated({n: adapter}) is not None})
    tidied = partial(_tidied, redaction)
    nodes, definitions, classes, roots = found or Generated({}, {}, {}, [])
    nodes = {name: mapped(nodes.get(name, {"x-sayso-code": True}), tidied) for name in adapters}
    return Generated(nodes, {name: mapped(node, tidied) for name, node in definitions.items()}, classes, roots)


def _generated(adapters: Mapping[str, pydantic.TypeAdapter[Any]]) -> Generated | None:
    generator = _Generator(by_alias=False)
    try:
        inputs: Any = [(name, "validation", adapter.core_schema) for name, adapter in adapters.items()]
        found, definitions = generator.generate_definitions(inputs)
        made: dict[str, Node] = {key[0]: node for key, node in found.items()}
        json.dumps([made, definitions], allow_nan=False)
    except Exception:  # noqa: BLE001  # a type may write its own JSON Schema, and fail, or write no JSON
        return None
    named = {str(name): node for name, node in definitions.items()}
    return Generated(made, named, generator.classes, generator.roots)


class _Generator(GenerateJsonSchema):
    """pydantic's generator, which also says what only Python knows of a type."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.classes: dict[str, type] = {}
        self.roots: list[type] = []

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  pydantic's own interface
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        pass  # a type that is not told in full is checked by pydantic itself

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Node:  # noqa: ARG002  as above
        return {"x-sayso-code": True}

    def get_default_value(self, schema: Any) -> Any:
        factory = schema.get("default_factory")
        if any(factory is kind for kind in EMPTY):
            return factory()
        return super().get_default_value(schema)

    def encode_default(self, dft: Any) -> Any:
        try:
            return display(form_of(dft))
        except ArgumentError as error:
            raise pydantic_core.PydanticSerializationError("it has no canonical form") from error

    def build_schema_type_to_method(self) -> dict[Any, Any]:
        return {kind: partial(self._told, method) for kind, method in super().build_schema_type_to_method().items()}

    def _told(self, method: Callable[[Any], Node], schema: Any) -> Node:
        """Return what pydantic tells of a type, with what it leaves out."""
        kind: str = schema["type"]
        node = dict(_NODES[kind]) if kind in _NODES else dict(method(schema))
        if kind == "str":
            changes = {rule: True for rule in sorted(TEXT_RULES) if schema.get(rule)}
            node |= {"x-sayso-type": "str", "x-sayso-limits": changes} if changes else {}
            pattern = schema.get("pattern")
            node |= {"pattern": _inline(cast("re.Pattern[str]", pattern))} if isinstance(pattern, re.Pattern) else {}
        if kind in _LIMITS:
            limits = {name: form_of(schema[name]) for name in _LIMITS[kind] if schema.get(name) is not None}
            node |= {"x-sayso-type": kind, **({"x-sayso-limits": limits} if limits else {})}
        if kind in _LISTS:
            node["x-sayso-type"] = _LISTS[kind]
        if kind in _JSON_SCALARS and schema.get("strict"):
            node["x-sayso-strict"] = True
        if kind.startswith("function-") or _LISTS.get(kind) == "set" or schema.keys() & _SAYING_MORE.get(kind, set()):
            node["x-sayso-code"] = True
        return node

    def is_instance_schema(self, schema: Any) -> Node:
        if isinstance(schema["cls"], type):
            self.roots.append(schema["cls"])
        return {"x-sayso-code": True}

    def literal_schema(self, schema: Any) -> Node:
        forms = [form_of(value) for value in schema["expected"]]
        for value in schema["expected"]:
            if isinstance(value, Enum):
                self.classes[class_name(type(value))] = type(value)
        shown = [display(form) for form in forms]
        node: Node = {"enum": shown} if shown == forms else {"enum": shown, "x-sayso-values": forms}
        return {**node, "type": "string"} if all(isinstance(one, str) for one in shown) else node

    def enum_schema(self, schema: Any) -> Node:
        cls, members = schema["cls"], schema["members"]
        name = class_name(cls)
        self.classes[name] = cls
        node: Node = {"title": cls.__name__, "enum": [member.name for member in members], "type": "string"}
        node["x-sayso-values"] = [{"$enum": [name, member.name]} for member in members]
        return {**node, "x-sayso-also": [_told(member.value, member.name) for member in members]}

    # -- classes ---------------------------------------------------------------------------------------------------

    def model_schema(self, schema: Any) -> Node:
        cls = schema["cls"]
        if cls.__module__ in {"pydantic.main", "pydantic.root_model"}:
            self.roots.append(cls)
            return {"x-sayso-code": True}
        is_root = bool(getattr(cls, "__pydantic_root_model__", False))
        node = self._of_class(super().model_schema(schema), cls, "root" if is_root else "model")
        infos: dict[str, Any] = {} if is_root else cls.model_fields
        for name, info in infos.items():
            alias: object = info.alias if info.validation_alias is None else info.validation_alias
            if isinstance(alias, str):
                node["properties"][name] = {**node["properties"][name], "x-sayso-alias": [alias]}
            elif alias is not None:
                node["x-sayso-code"] = True
        if any(cls.model_config.get(name) for name in _CONFIG_WITH_EFFECT) or _does_more(cls):
            node["x-sayso-code"] = True
        return node

    def dataclass_schema(self, schema: Any) -> Node:
        cls = schema["cls"]
        node = self._of_class(super().dataclass_schema(schema), cls, "dataclass")
        fields, hints = cls.__dataclass_fields__, hints_of(cls)
        for name, field in fields.items():
            if not field.init:
                node["properties"][name] = {**node["properties"].get(name, {}), "readOnly": True}
                node["required"] = [other for other in node.get("required", ()) if other != name]
        is_plain = cls.__dataclass_params__.init and not hasattr(cls, "__post_init__") and not _has_validators(cls)
        if not is_plain or set(dataclass_fields(cls) or ()) != set(node.get("properties", ())):
            node["x-sayso-code"] = True
        if any(not field.init for field in fields.values()) or any(isinstance(h, InitVar) for h in hints.values()):
            node["x-sayso-code"] = True
        return node

    def typed_dict_schema(self, schema: Any) -> Node:
        node = super().typed_dict_schema(schema)
        return {"additionalProperties": False, **node}

    def _of_class(self, node: Node, cls: type, kind: str) -> Node:
        self.classes[class_name(cls)] = cls
        made: Node = {**node, "x-sayso-type": f"{kind} {class_name(cls)}"}
        if kind != "root":
            made = {"additionalProperties": False, **made, "properties": dict(node.get("properties", {}))}
        if any("x-sayso-code" in part for part in made.get("properties", {}).values()):
            made["x-sayso-code"] = True
        return made


def _inline(pattern: re.Pattern[str]) -> str:
    flags = "".join(letter for flag, letter in _INLINE_FLAGS.items() if flag in re.RegexFlag(pattern.flags))
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern


def _told(value: object, otherwise: str) -> Json:
    try:
        return form_of(value)
    except ArgumentError:
        return otherwise


def _has_validators(cls: Any) -> bool:
    found = getattr(cls, "__pydantic_decorators__", None)
    kinds = ("validators", "field_validators", "root_validators", "model_validators")
    return any(getattr(found, kind, None) for kind in kinds)


def _does_more(cls: Any) -> bool:
    # A hook after the initialiser is there for private attributes too; their values are not in the schema either.
    has_hook = cls.model_post_init is not pydantic.BaseModel.model_post_init
    return _has_validators(cls) or bool(getattr(cls, "__pydantic_custom_init__", False)) or has_hook


def _tidied(redaction: Redaction, node: Node) -> Node:
    """Return a schema as it is written: the same however a union was written, and without secrets."""
    if node.get("format") == "path":
        words = {name: part for name, part in node.items() if name in {"default", "description"}}
        node = {"type": "string", "format": "path", "x-sayso-type": "path", **words}
    if node.get("format") == "password" and node.get("writeOnly"):
        kind = "secret bytes" if node.get("x-sayso-type") == "bytes" else "secret str"
        node = {**_without(node, "x-sayso-code"), "x-sayso-type": kind}
    if "anyOf" in node:
        node = {**node, "anyOf": sorted(node["anyOf"], key=_rank)}
        if any("x-sayso-code" in part for part in node["anyOf"]):
            node["x-sayso-code"] = True
    named = cast("dict[str, Node]", node.get("properties", {}))
    for name, part in named.items():
        if "default" in part and redaction.mask({name: part["default"]}) != {name: part["default"]}:
            node = {**node, "properties": {**node["properties"], name: _without(part, "default")}}
    return node


def _without(node: Node, word: str) -> Node:
    return {key: part for key, part in node.items() if key != word}


def _rank(node: Node) -> tuple[int, str]:
    # A typed text that fits several becomes the first of these; it stays a text where a text is one of them.
    kind = "typed" if "enum" in node or "$ref" in node else str(node.get("type"))
    if kind == "string" and "x-sayso-type" in node:
        kind = "typed"
    return _RANKS.index(kind) if kind in _RANKS else len(_RANKS), json.dumps(node, sort_keys=True)
