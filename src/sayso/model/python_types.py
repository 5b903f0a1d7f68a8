"""The types of a function's parameters in the process that has the code: read, and checked, by pydantic.

pydantic reads the annotations into JSON Schema; what JSON Schema has no word for stands in keywords of our own, which
`sayso.model.schema` describes. This module imports pydantic, so it is imported at the first held call.
The invariant: reading a callable never raises; what pydantic does not know may be anything.
"""

from __future__ import annotations

import binascii
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

import pydantic

from sayso.errors import ArgumentError
from sayso.model.canonical import MASK, class_name, display, form_of, function_name, value_of
from sayso.model.canonical.decode import dataclass_fields, is_model
from sayso.model.json_schema import Node
from sayso.model.pydantic_schema import EMPTY, TEXT_RULES, generate
from sayso.model.redaction import Redaction
from sayso.model.signature import Field, annotated, fields_of, hints_of

__all__ = ["Parameter", "PythonTypes", "of_function", "of_type", "scalar"]

_SCALARS: dict[str, Any] = {
    "str": str, "bytes": bytes, "date": date, "datetime": datetime, "time": time, "timedelta": timedelta,
    "decimal": Decimal, "uuid": UUID, "path": Path,
    "secret str": pydantic.SecretStr, "secret bytes": pydantic.SecretBytes,
}  # fmt: skip
# Only these messages of pydantic are passed on: others quote the value, or are the program's own words about it.
_DISCREET = frozenset(
    {
        *("bool_parsing", "bool_type", "bytes_too_long", "bytes_too_short", "bytes_type", "date_from_datetime_inexact"),
        *("date_type", "datetime_type", "decimal_max_digits", "decimal_max_places", "decimal_parsing", "decimal_type"),
        *("decimal_whole_digits", "dict_type", "extra_forbidden", "finite_number", "float_parsing", "float_type"),
        *("greater_than", "greater_than_equal", "int_from_float", "int_parsing", "int_parsing_size", "int_type"),
        *("is_instance_of", "less_than", "less_than_equal", "list_type", "missing", "multiple_of"),
        *("string_pattern_mismatch", "string_too_long", "string_too_short", "string_type", "time_delta_type"),
        *("time_type", "too_long", "too_short", "tuple_type", "uuid_type"),
    }
)
_DATETIME = "Input should be a valid datetime, YYYY-MM-DDTHH:MM:SS with an offset if it has one"
_PLAIN_WORDS = {
    "value_error": "is refused by the program's own check",
    "assertion_error": "is refused by the program's own check",
    "date_parsing": "Input should be a valid date, YYYY-MM-DD",
    "date_from_datetime_parsing": "Input should be a valid date, YYYY-MM-DD",
    "datetime_parsing": _DATETIME,
    "datetime_from_date_parsing": _DATETIME,
    "time_parsing": "Input should be a valid time, HH:MM:SS",
    "time_delta_parsing": "Input should be a valid duration, as P1DT2H30M or 26:30:00",
    "uuid_parsing": "Input should be a valid UUID",
    "path_type": "Input should be a valid path",
}


def _spoken(error: Mapping[str, Any]) -> str:
    """Return what a pydantic error may say aloud."""
    kind = str(error["type"])
    return str(error["msg"]) if kind in _DISCREET else _PLAIN_WORDS.get(kind, f"Input is not valid ({kind})")


def _supported(annotation: Any) -> Any:
    """Return a type with those typed dicts replaced that pydantic does not take before Python 3.12."""
    if sys.version_info >= (3, 12):
        return annotation
    if type(annotation).__module__ == "typing" and hasattr(annotation, "__required_keys__"):
        from typing_extensions import TypedDict

        fields: dict[str, Any] = {}
        for name, hint in hints_of(annotation).items():
            qualifier = getattr(typing.get_origin(hint), "_name", None)
            plain = _supported(typing.get_args(hint)[0] if qualifier in {"Required", "NotRequired"} else hint)
            # Where annotations are texts, the class itself takes a `NotRequired` key for a required one.
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
    """Return what validates values of a type; None where pydantic does not know it."""
    for config in (pydantic.ConfigDict(arbitrary_types_allowed=True), None):
        try:
            # A model has its own configuration, and takes no other.
            return pydantic.TypeAdapter[Any](_supported(annotation), config=config)
        except Exception:  # noqa: BLE001, S112  # an annotation may be any object, and do anything when it is read
            continue
    return None


def scalar(kind: str, limits: str, value: Any) -> tuple[Any, str | None]:
    """Return what pydantic makes of a text that stands for a scalar, or nothing and the problem.

    Args:
        kind: An `x-sayso-type`.
        limits: Its `x-sayso-limits`, as JSON text.
        value: The text, or a number; or a value of that kind.
    """
    if kind.startswith("secret") and value == MASK:
        return None, "Input is the mask, not a value; leave it out to keep the secret"
    if kind in ("bytes", "secret bytes") and isinstance(value, str):
        try:
            value = binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
        except ValueError:
            return None, "Input should be base64 text"
    adapter = _scalar_adapter(kind, limits)
    if adapter is None:
        return None, "Input cannot be checked here: the limits of its type are not known to pydantic"
    try:
        return adapter.validate_python(value), None
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return None, "; ".join(_spoken(cast("Mapping[str, Any]", detail)) for detail in found)


@lru_cache(maxsize=1024)
def _scalar_adapter(kind: str, limits: str) -> pydantic.TypeAdapter[Any] | None:
    rules: dict[str, Any] = {rule: value_of(form, {}) for rule, form in json.loads(limits).items()}
    text_rules = {rule: rules.pop(rule) for rule in TEXT_RULES & rules.keys()}
    if kind == "decimal":
        rules["allow_inf_nan"] = False
    metadata: list[Any] = [pydantic.StringConstraints(**text_rules)] if text_rules else []
    metadata += [pydantic.Field(**rules)] if rules else []
    return _adapter(typing.Annotated[(_SCALARS[kind], *metadata)] if metadata else _SCALARS[kind])


class Parameter(NamedTuple):
    """A parameter: `field` is what pydantic's `Field` says of it; `stars` are `*` or `**`."""

    name: str
    annotation: Any
    default: object = inspect.Parameter.empty
    field: Field | None = None
    stars: str = ""


class PythonTypes:
    """What the program's code says of its parameters, and what of it only the code can do.

    Attributes:
        tree: The JSON Schema of the arguments.
        defaults: The default values themselves, by name; those that a factory makes are not among them.
    """

    def __init__(self, name: str, signature: str, parameters: list[Parameter], redaction: Redaction) -> None:
        self._parameters = {parameter.name: parameter for parameter in parameters}
        self._redaction = redaction
        self.defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        self._adapters = {p.name: None if _is_any(p.annotation) else _adapter(_type(p)) for p in parameters}
        told = generate({name: one for name, one in self._adapters.items() if one is not None}, redaction)
        self._classes, self._roots = told.classes, told.roots
        properties = {p.name: self._property(p, told.nodes.get(p.name)) for p in parameters}
        self.tree: Node = {"x-sayso-signature": signature, "type": "object", "properties": properties}
        self.tree["required"] = [p.name for p in parameters if _is_required(p)]
        self.tree["additionalProperties"] = False
        if told.definitions:
            self.tree["$defs"] = told.definitions
        if any("x-sayso-code" in node for node in properties.values()):
            # Two functions with equal parameters share a digest; one whose code says more is not taken for the other.
            self.tree["x-sayso-function"] = name

    @property
    def classes(self) -> dict[str, type]:
        """The classes that may appear, by name, with the subclasses that are known by now."""
        found = dict(self._classes)
        for cls in [*self._classes.values(), *self._roots]:
            found |= {class_name(sub): sub for sub in _subclasses(cls)}
        return found

    def default(self, name: str, given: Callable[[], Mapping[str, object]]) -> object:
        """Return the value of an argument that is not given; `given` returns the arguments before it."""
        field = self._parameters[name].field
        if field is None:
            return self.defaults[name]
        return field.default(given() if getattr(field.info, "default_factory_takes_validated_data", False) else {})

    def check(self, name: str, value: object) -> tuple[object, list[tuple[tuple[str | int, ...], str]]]:
        """Return an argument as its own type has it, and what is wrong with it: where, and what.

        What has no canonical form as such (a set, a URL object) stays the plain value.
        """
        adapter = self._adapters.get(name)
        if adapter is None:
            return value, []
        try:
            checked = adapter.validate_python(value, by_alias=True, by_name=True)
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return value, [((name, *_steps(one["loc"])), _spoken(cast("Mapping[str, Any]", one))) for one in found]
        except Exception as error:  # noqa: BLE001  # user code: whatever it raises means that the value is refused
            return value, [((name,), f"is refused by the program's own check ({type(error).__name__})")]
        try:
            form_of(checked)
        except ArgumentError:
            return value, []
        return checked, []

    def says_more(self, name: str) -> bool:
        """Whether the author wrote bounds for a parameter that only the code can check."""
        return self._parameters[name].field is not None and "x-sayso-code" in self.tree["properties"][name]

    def _property(self, parameter: Parameter, told: Node | None) -> Node:
        said, default = parameter.field, parameter.default
        node: Node = dict(told if told is not None else {} if _is_any(parameter.annotation) else {"x-sayso-code": True})
        if said is not None:
            if isinstance(said.info.description, str) and said.info.description:
                node["description"] = said.info.description
            if said.aliases:
                node["x-sayso-alias"] = list(said.aliases)
            factory = said.info.default_factory
            default = factory() if any(factory is kind for kind in EMPTY) else parameter.default
        if parameter.stars == "**":
            own = [p.name for p in self._parameters.values() if not p.stars]
            node["propertyNames"] = {"not": {"enum": own}}
        if not _is_required(parameter):
            node |= self._default(parameter.name, default)
            if "default" not in node:
                node["x-sayso-code"] = True
        return node

    def _default(self, name: str, value: object) -> Node:
        try:
            told = {name: form_of(value)}
        except ArgumentError:
            return {}
        return {"default": display(told[name])} if self._redaction.mask(told) is told else {}


def _is_any(annotation: Any) -> bool:
    return annotation is Any or annotation is object or annotation is inspect.Parameter.empty


def _type(parameter: Parameter) -> Any:
    if parameter.stars:
        kind = parameter.annotation
        return tuple[kind, ...] if parameter.stars == "*" else dict[str, kind]
    return parameter.annotation if parameter.field is None else parameter.field.annotation


def _is_required(parameter: Parameter) -> bool:
    if parameter.field is not None:
        return parameter.field.is_required
    return parameter.default is inspect.Parameter.empty


def _steps(loc: tuple[str | int, ...]) -> Iterator[str | int]:
    # pydantic names the alternative of a union, a validator, or the side of a dict's item, that it was at.
    return (step for step in loc if isinstance(step, int) or (step.isidentifier() and not step.startswith("function")))


def _subclasses(cls: type) -> Iterator[type]:
    for sub in type.__subclasses__(cls):
        if is_model(sub) or dataclass_fields(sub) is not None:
            yield sub
        yield from _subclasses(sub)


def of_function(function: Callable[..., object], redact: Collection[str]) -> PythonTypes:
    """Read a callable's parameters; defaults under a name that marks a secret are not told."""
    hints = hints_of(annotated(function))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins tell none
        both = {"args": inspect.Parameter.VAR_POSITIONAL, "kwargs": inspect.Parameter.VAR_KEYWORD}
        signature = inspect.Signature([inspect.Parameter(name, kind) for name, kind in both.items()])
    described = fields_of(signature.parameters.values(), lambda: hints)
    parameters: list[Parameter] = []
    for name, parameter in signature.parameters.items():
        stands = Any if isinstance(parameter.annotation, str) else parameter.annotation
        annotation, said = hints.get(name, stands), described.get(name)
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                parameters.append(Parameter(name, annotation, (), stars="*"))
            case inspect.Parameter.VAR_KEYWORD:
                parameters.append(Parameter(name, annotation, {}, stars="**"))
            case _ if said is not None:
                has_default = not said.is_required and said.info.default_factory is None
                default = said.info.default if has_default else inspect.Parameter.empty
                parameters.append(Parameter(name, annotation, default, said))
            case _:
                parameters.append(Parameter(name, annotation, parameter.default))
    bare = [inspect.Parameter(name, parameter.kind) for name, parameter in signature.parameters.items()]
    return PythonTypes(function_name(function), str(inspect.Signature(bare)), parameters, Redaction(redact))


def of_type(annotation: Any) -> PythonTypes:
    """Read the type of an answer, which is one parameter named `answer`."""
    return PythonTypes("answer", "(answer)", [Parameter("answer", annotation)], Redaction())
