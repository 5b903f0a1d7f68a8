"""The types of a live function's parameters, through pydantic: their JSON Schema, and the validation of values.

Types that JSON Schema cannot express use the keywords listed in `sayso.model.schema`; validators in code are marked
with `x-sayso-code`. This module imports pydantic, so it is loaded at the first held call. Invariants: reading a
callable never raises, and a type unknown to pydantic accepts anything; equal types give equal schema text, whatever the
order of a union.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import InitVar
from enum import Enum
from functools import partial
from typing import Any, cast

import pydantic
import pydantic_core
from pydantic.json_schema import GenerateJsonSchema

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, class_name, display, form_of, function_name
from sayso.model.canonical.json_tree import dataclass_fields, is_model
from sayso.model.json_edits import words_of
from sayso.model.parameters import Parameter, hints_of, parameters_of
from sayso.model.redaction import Redaction
from sayso.model.schema_validation import Node, Problem, mapped


def _supported(annotation: Any) -> Any:
    """Return a type with each `TypedDict` replaced that pydantic does not accept before Python 3.12."""
    if sys.version_info >= (3, 12):
        return annotation
    if type(annotation).__module__ == "typing" and hasattr(annotation, "__required_keys__"):
        from typing_extensions import TypedDict

        fields: dict[str, Any] = {}
        for name, hint in hints_of(annotation).items():
            qualifier = getattr(typing.get_origin(hint), "_name", None)
            plain = _supported(typing.get_args(hint)[0] if qualifier in {"Required", "NotRequired"} else hint)
            # With string annotations, the class itself reports a `NotRequired` key as required.
            is_required = qualifier != "NotRequired" and name in annotation.__required_keys__
            fields[name] = (
                typing.Required[plain] if is_required or qualifier == "Required" else typing.NotRequired[plain]
            )
        return cast("Any", TypedDict)(annotation.__name__, fields)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return typing.Annotated[(_supported(args[0]), *annotation.__metadata__)]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_supported, args))]  # noqa: UP007  # made of a list
    return cast("Any", origin)[tuple(map(_supported, args))] if origin in (list, dict, tuple) and args else annotation


def _adapter(annotation: Any) -> pydantic.TypeAdapter[Any] | None:
    """Return the validator of a type; None if pydantic does not know the type."""
    for config in (pydantic.ConfigDict(arbitrary_types_allowed=True), None):
        try:
            # A model has its own configuration and accepts no other.
            return pydantic.TypeAdapter[Any](_supported(annotation), config=config)
        except Exception:  # noqa: BLE001, S112  # an annotation may be any object, and run any code when it is read
            continue
    return None


class PythonTypes:
    """The parameters of a function in this process, with the checks that only its code can do.

    Attributes:
        tree: The JSON Schema of the arguments.
        defaults: The default values by name, without those that a factory makes.
    """

    def __init__(self, name: str, signature: str, parameters: list[Parameter], redaction: Redaction) -> None:
        self._parameters = {parameter.name: parameter for parameter in parameters}
        self._redaction = redaction
        self.defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        self._adapters = {p.name: None if p.is_any else _adapter(p.type) for p in parameters}
        known = {name: one for name, one in self._adapters.items() if one is not None}
        found = _generated(known) or _generated({n: one for n, one in known.items() if _generated({n: one})})
        generator, nodes = found or (_Generator(by_alias=False), {})
        tidied = partial(_tidied, redaction)
        nodes = {name: mapped(node, tidied) for name, node in nodes.items()}
        self._classes, self._roots = generator.classes, generator.roots
        properties = {p.name: self._property(p, nodes.get(p.name)) for p in parameters}
        self.tree: Node = {"x-sayso-signature": signature, "type": "object", "properties": properties}
        self.tree["required"] = [p.name for p in parameters if p.is_required]
        self.tree["additionalProperties"] = False
        if generator.definitions:
            definitions = cast("dict[str, Node]", generator.definitions)
            self.tree["$defs"] = {name: mapped(node, tidied) for name, node in definitions.items()}
        if any("x-sayso-code" in node for node in properties.values()):
            # Functions with equal parameters share a digest, so a function with checks in code also needs its name.
            self.tree["x-sayso-function"] = name

    @property
    def classes(self) -> dict[str, type]:
        """The classes that may occur, by name, with their subclasses known so far."""
        found = dict(self._classes)
        for cls in [*self._classes.values(), *self._roots]:
            found |= {class_name(sub): sub for sub in _subclasses(cls)}
        return found

    def default(self, name: str, given: Callable[[], Mapping[str, object]]) -> object:
        """Return the value for an argument that is not given; `given` returns the arguments before it."""
        field = self._parameters[name].field
        if field is None:
            return self.defaults[name]
        return field.default(given() if field.info.default_factory_takes_validated_data else {})

    def check(self, name: str, value: object) -> tuple[object, list[Problem]]:
        """Return an argument converted by its own type, and its problems as paths and messages.

        A value whose converted form has no canonical form (a set, a URL object) is returned unconverted.
        """
        adapter = self._adapters.get(name)
        if adapter is None or (name in self.defaults and value is self.defaults[name]):
            return value, []
        try:
            checked = adapter.validate_python(value, by_alias=True, by_name=True)
        except pydantic.ValidationError as error:
            return value, [((name, *where), what) for where, what in words_of(error)]
        except Exception as error:  # noqa: BLE001  # user code: any error means that the value is invalid
            return value, [((name,), f"is refused by the program's own check ({type(error).__name__})")]
        try:
            form_of(checked)
        except ArgumentError:
            return value, []
        return checked, []

    def says_more(self, name: str) -> bool:
        """Return whether a parameter has bounds that only its code can check."""
        return self._parameters[name].field is not None and "x-sayso-code" in self.tree["properties"][name]

    def _property(self, parameter: Parameter, generated: Node | None) -> Node:
        field, default = parameter.field, parameter.default
        node: Node = dict(generated if generated is not None else {} if parameter.is_any else {"x-sayso-code": True})
        if field is not None:
            if isinstance(field.info.description, str) and field.info.description:
                node["description"] = field.info.description
            if field.aliases:
                node["x-sayso-alias"] = list(field.aliases)
            if any(field.info.default_factory is kind for kind in _EMPTY):
                default = field.info.default_factory()
        if parameter.stars == "**":
            own = [p.name for p in self._parameters.values() if not p.stars]
            node["propertyNames"] = {"not": {"enum": own}}
        if not parameter.is_required:
            node |= self._default(parameter.name, default)
            if "default" not in node:
                node["x-sayso-code"] = True
        return node

    def _default(self, name: str, value: object) -> Node:
        try:
            named = {name: form_of(value)}
        except ArgumentError:
            return {}
        return {"default": display(named[name])} if self._redaction.mask(named) is named else {}


def _subclasses(cls: type) -> Iterator[type]:
    for sub in type.__subclasses__(cls):
        if is_model(sub) or dataclass_fields(sub) is not None:
            yield sub
        yield from _subclasses(sub)


def of_function(function: Callable[..., object], redact: Collection[str]) -> PythonTypes:
    """Read a callable's parameters. A default under a name that marks a secret is left out."""
    kinds, parameters = parameters_of(function)
    return PythonTypes(function_name(function), kinds, parameters, Redaction(redact))


def of_type(annotation: Any) -> PythonTypes:
    """Read the type of an answer: one parameter named `answer`."""
    return PythonTypes("answer", "(answer)", [Parameter("answer", annotation)], Redaction())


# -- JSON Schema ---------------------------------------------------------------------------------------------------

_EMPTY: tuple[Any, ...] = (list, dict, tuple, str, bytes, int, float, bool)  # factories whose default is in the schema
_RANKS = ("integer", "number", "boolean", "typed", "array", "object", "string", "null")
_ORDER = ("ge", "gt", "le", "lt")
_CHANGES_TEXT = ("strip_whitespace", "to_upper", "to_lower")
_LIMITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("date", "datetime", "time", "timedelta"), _ORDER),
    "decimal": (*_ORDER, "multiple_of", "max_digits", "decimal_places"),
    "bytes": ("min_length", "max_length"),
    "float": ("allow_inf_nan",),
    "str": (*_CHANGES_TEXT, "min_length", "max_length"),
    "uuid": (),
}
# Types for which pydantic describes another JSON value than sayso uses.
_NODES: dict[str, Node] = {
    "decimal": {"type": "string", "pattern": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "timedelta": {"type": "string", "format": "duration"},
    "complex": {"x-sayso-code": True},
}
_LISTS = {"tuple": "tuple", "set": "set", "frozenset": "set"}
_JSON_SCALARS = frozenset({"int", "bool", "float", "str"})
# Constraints that the schema of a type does not express, e.g. a date in the past.
_SAYING_MORE = {"date": {"now_op"}, "datetime": {"now_op", "tz_constraint"}, "uuid": {"version"}}
_INLINE_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}
# Settings with which a model changes or checks its input in a way that its schema does not express.
_CONFIG_WITH_EFFECT = frozenset(
    {"use_enum_values", "validate_default", "str_strip_whitespace", "str_to_lower", "str_to_upper", "str_max_length"}
    | {"str_min_length", "coerce_numbers_to_str", "allow_inf_nan", "revalidate_instances", "alias_generator"}
)


def _generated(adapters: Mapping[str, pydantic.TypeAdapter[Any]]) -> tuple[_Generator, dict[str, Node]] | None:
    """Return the schemas of types and the generator that made them; None if one of them has none."""
    generator = _Generator(by_alias=False)
    try:
        inputs: Any = [(name, "validation", adapter.core_schema) for name, adapter in adapters.items()]
        found, generator.definitions = generator.generate_definitions(inputs)
        json.dumps([[*found.values()], generator.definitions], allow_nan=False)
    except Exception:  # noqa: BLE001  # a type may write its own JSON Schema, and fail, or write no JSON
        return None
    return generator, {name: node for (name, _), node in found.items()}


class _Generator(GenerateJsonSchema):
    """pydantic's generator, which also records what only Python knows about a type."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.classes: dict[str, type] = {}
        self.roots: list[type] = []

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  pydantic's own interface
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        pass  # pydantic itself checks a type that is not fully described

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Node:  # noqa: ARG002  as above
        return {"x-sayso-code": True}

    def get_default_value(self, schema: Any) -> Any:
        factory = schema.get("default_factory")
        if any(factory is kind for kind in _EMPTY):
            return factory()
        return super().get_default_value(schema)

    def encode_default(self, dft: Any) -> Any:
        try:
            return display(form_of(dft))
        except ArgumentError as error:
            raise pydantic_core.PydanticSerializationError("it has no canonical form") from error

    def build_schema_type_to_method(self) -> dict[Any, Any]:
        return {
            kind: partial(self._described, method) for kind, method in super().build_schema_type_to_method().items()
        }

    def _described(self, method: Callable[[Any], Node], schema: Any) -> Node:
        """Return pydantic's schema of a type, completed with what it leaves out."""
        kind: str = schema["type"]
        node = dict(_NODES[kind]) if kind in _NODES else dict(method(schema))
        if kind == "str" and isinstance(schema.get("pattern"), re.Pattern):
            pattern: re.Pattern[str] = schema["pattern"]
            flags = "".join(letter for flag, letter in _INLINE_FLAGS.items() if flag in re.RegexFlag(pattern.flags))
            node["pattern"] = f"(?{flags}){pattern.pattern}" if flags else pattern.pattern
        if kind in _LIMITS and (kind != "str" or any(map(schema.get, _CHANGES_TEXT))):
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
        return {**node, "x-sayso-also": [_form_or(member.name, member.value) for member in members]}

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
        # `model_post_init` also exists for private attributes, whose values the schema does not describe either.
        has_code = cls.model_post_init is not pydantic.BaseModel.model_post_init or _has_validators(cls)
        has_effect = any(cls.model_config.get(name) for name in _CONFIG_WITH_EFFECT)
        if has_code or has_effect or getattr(cls, "__pydantic_custom_init__", False):
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


def _form_or(otherwise: str, value: object) -> Json:
    try:
        return form_of(value)
    except ArgumentError:
        return otherwise


def _has_validators(cls: Any) -> bool:
    found = getattr(cls, "__pydantic_decorators__", None)
    kinds = ("validators", "field_validators", "root_validators", "model_validators")
    return any(getattr(found, kind, None) for kind in kinds)


def _tidied(redaction: Redaction, node: Node) -> Node:
    """Return a schema in normal form: independent of the order of a union, and without secrets."""
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
    # A typed text that fits several types becomes the first of these; if text is one of them, it stays a text.
    kind = "typed" if "enum" in node or "$ref" in node else str(node.get("type"))
    if kind == "string" and "x-sayso-type" in node:
        kind = "typed"
    return _RANKS.index(kind) if kind in _RANKS else len(_RANKS), json.dumps(node, sort_keys=True)
