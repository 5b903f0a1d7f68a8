"""Annotations, read into a descriptor: plain JSON that says which values a call takes.

A type is `{"kind": ...}` with its parts; a class is `{"kind": "ref", "name": ...}` and stands under that name in the definitions, so
recursion is no matter. What cannot be expressed is `any`. pydantic is never imported here; its models are read when it is loaded.
The invariant: describing never raises, whatever stands in an annotation.
"""

from __future__ import annotations

import collections.abc as abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, cast

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, class_name, form_of
from sayso.model.rebuild import dataclass_fields, is_model

__all__ = ["ANY", "LIMITS", "Descriptor", "Describer", "hints_of"]

Descriptor = dict[str, Json]

ANY: Descriptor = {"kind": "any"}
LIMITS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "max_digits", "decimal_places")
_LIMITS_OF_TEXT = ("strip_whitespace", "to_lower", "to_upper")
_SIZED = frozenset({"min_length", "max_length"})
_MEASURED = frozenset({"ge", "gt", "le", "lt", "multiple_of", "max_digits", "decimal_places"})
_TAKES = {
    "int": _MEASURED,
    "float": _MEASURED,
    "decimal": _MEASURED,
    **dict.fromkeys(("datetime", "date", "time", "timedelta"), frozenset({"ge", "gt", "le", "lt"})),
    "str": _SIZED | {"pattern", *_LIMITS_OF_TEXT},
    **dict.fromkeys(("bytes", "secret", "list", "tuple", "dict"), _SIZED),
}
_SIMPLE = {
    ("builtins", "NoneType"): "none",
    **{("builtins", name): name for name in ("bool", "int", "float", "str", "bytes")},
    ("decimal", "Decimal"): "decimal",
    **{("datetime", name): name for name in ("datetime", "date", "time", "timedelta")},
    ("uuid", "UUID"): "uuid",
}
_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection, abc.Reversible)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_EMPTY_FACTORIES = (list, dict, tuple, str, bytes, int, float, bool)
_CONFIG_THAT_CHANGES_VALUES = frozenset(
    {"use_enum_values", "validate_default", "str_strip_whitespace", "str_to_lower", "str_to_upper", "str_max_length"}
    | {"str_min_length", "coerce_numbers_to_str", "from_attributes", "allow_inf_nan", "revalidate_instances"}
)


def _annotations(thing: object) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF)
    return dict(getattr(thing, "__annotations__", {}))


def hints_of(thing: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, resolved as far as they can be; one that cannot be is left out."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except Exception:  # annotations are the user's code, and may be anything
        pass
    hints: dict[str, Any] = {}
    names = vars(sys.modules.get(getattr(thing, "__module__", ""), types.SimpleNamespace()))
    for owner in reversed(getattr(thing, "__mro__", (thing,))):
        try:
            raw = _annotations(owner)
        except Exception:  # as above
            continue
        for name, annotation in raw.items():
            alone = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                hints |= typing.get_type_hints(alone, globalns=dict(names), include_extras=True)
            except Exception:  # as above
                hints.pop(name, None)
    return hints


class Describer:
    """Walks annotations and gathers what they lead to.

    Attributes:
        defs: The definition of each class, by name.
        classes: The class itself, by name.
        roots: Plain classes that were met (abstract bases, protocols): their subclasses may be passed.
        is_partial: An annotation said more than its descriptor does (a validator, a type we have no kind for).
    """

    def __init__(self) -> None:
        self.defs: dict[str, Descriptor] = {}
        self.classes: dict[str, type] = {}
        self.roots: list[type] = []
        self.is_partial = False
        self._open: list[object] = []

    def type(self, annotation: Any) -> Descriptor:
        """Return the descriptor of an annotation."""
        if annotation is None:
            return {"kind": "none"}
        if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
            return ANY
        origin = typing.get_origin(annotation)
        if origin is not None:
            return self._generic(annotation, origin)
        supertype = getattr(annotation, "__supertype__", None) or getattr(annotation, "__bound__", None)
        if supertype is not None:
            return self.type(supertype)
        if hasattr(annotation, "__value__"):
            return self._alias(annotation)
        return self._class(annotation) if isinstance(annotation, type) else self._unknown()

    def _unknown(self) -> Descriptor:
        self.is_partial = True
        return ANY

    def _alias(self, alias: Any) -> Descriptor:
        """Return what a `type X = ...` statement names; where it names itself, anything goes."""
        if any(alias is other for other in self._open):
            return self._unknown()
        self._open.append(alias)
        try:
            return self.type(alias.__value__)
        except Exception:  # the right side is evaluated on access, and is the user's code
            return self._unknown()
        finally:
            self._open.pop()

    def _generic(self, annotation: Any, origin: Any) -> Descriptor:
        args = typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.limited(self.type(args[0]), annotation.__metadata__)
        if origin is typing.Union or origin is types.UnionType:
            return _union(self.type(arg) for arg in args)
        if origin is typing.Literal:
            return self._literal(args)
        if origin is tuple:
            return self._tuple(args)
        if origin in _LISTS:
            return {"kind": "list", "items": self.type(args[0])}
        if origin in _DICTS:
            keys = self.type(args[0])
            return {"kind": "dict", "values": self.type(args[1])} | ({} if keys["kind"] in ("str", "any") else {"keys": keys})
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self.type(args[0])
        return self._class(annotation) if isinstance(origin, type) and dataclass_fields(origin) else self._unknown()

    def _tuple(self, args: tuple[Any, ...]) -> Descriptor:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"kind": "tuple", "items": self.type(args[0])}
        return {"kind": "tuple", "each": [self.type(arg) for arg in args if arg != ()]}

    def _literal(self, args: tuple[Any, ...]) -> Descriptor:
        try:
            values = [form_of(arg) for arg in args]
        except ArgumentError:
            return self._unknown()
        for arg in args:
            if isinstance(arg, Enum):
                self._class(type(arg))
        return {"kind": "literal", "values": values}

    def _class(self, cls: Any) -> Descriptor:
        origin: type = typing.get_origin(cls) or cls
        kind = _SIMPLE.get((origin.__module__, origin.__name__))
        if kind is not None:
            return {"kind": kind}
        if origin.__module__.startswith("pathlib") and origin.__name__ in ("Path", "PosixPath", "WindowsPath", "PurePath"):
            return {"kind": "path"}
        if origin.__module__ == "pydantic.types" and origin.__name__ in ("SecretStr", "SecretBytes"):
            return {"kind": "secret", "of": "str" if origin.__name__ == "SecretStr" else "bytes"}
        if origin in _LISTS:
            return {"kind": "list", "items": ANY}
        if origin in _DICTS:
            return {"kind": "dict", "values": ANY}
        if origin is tuple:
            return {"kind": "tuple", "items": ANY}
        return self._own_class(origin)

    def _own_class(self, cls: type) -> Descriptor:
        if typing.is_typeddict(cls) or _is_typeddict(cls):
            return self._define(cls, self._typed_dict)
        if issubclass(cls, Enum):
            return self._define(cls, _enum)
        if is_model(cls) and cls.__module__ != "pydantic.main":
            return self._define(cls, self._model)
        if dataclass_fields(cls) is not None:
            return self._define(cls, self._dataclass)
        self.roots.append(cls)
        return self._unknown()

    def _define(self, cls: type, describe: Callable[[Any], Descriptor]) -> Descriptor:
        name = class_name(cls)
        if name not in self.defs:
            self.defs[name] = {}
            self.classes[name] = cls
            outside, self.is_partial = self.is_partial, False
            # A class checks itself when it is built, so what its descriptor leaves out does not concern the one who refers to it.
            self.defs[name] = describe(cls)
            self.is_partial = outside
        return {"kind": "ref", "name": name}

    def limited(self, descriptor: Descriptor, metadata: Iterable[object]) -> Descriptor:
        """Return a descriptor with the limits that stand in the metadata of `Annotated` or of a pydantic field."""
        limits: Descriptor = {}
        for item in _flat(metadata):
            found = _limits(item)
            limits |= found
            if not found and any(hasattr(item, name) for name in ("__get_pydantic_core_schema__", "func")):
                self.is_partial = True
        return _with_limits(descriptor, limits) if limits else descriptor

    def _typed_dict(self, cls: Any) -> Descriptor:
        hints = hints_of(cls)
        required = cast("frozenset[str]", cls.__required_keys__)
        fields: list[Json] = [
            {"name": name, "type": self.type(hints.get(name, Any)), "required": _is_required(hints.get(name), name in required)}
            for name in [*hints, *(required - set(hints))]
        ]
        return {"kind": "typed_dict", "fields": fields}

    def _dataclass(self, cls: Any) -> Descriptor:
        hints = hints_of(cls)
        infos: dict[str, Any] = getattr(cls, "__pydantic_fields__", {})
        fields: list[Json] = []
        is_checked = hasattr(cls, "__post_init__") or not cls.__dataclass_params__.init or _has_validators(cls)
        names = dataclass_fields(cls) or ()
        for name, field in cls.__dataclass_fields__.items():
            if name not in names:
                is_checked = is_checked or field._field_type.__repr__() == "_FIELD_INITVAR"
                continue
            described = self.type(hints.get(name, Any))
            if name in infos:
                described = self.limited(described, infos[name].metadata)
            entry = {"name": name, "type": described, **_default(field.default, field.default_factory)}
            fields.append(entry if field.init else {**entry, "init": False})
        return {"kind": "dataclass", "fields": fields, "checked": is_checked or self.is_partial}

    def _model(self, cls: Any) -> Descriptor:
        if not cls.__pydantic_complete__:
            cls.model_rebuild(raise_errors=False)
        fields: list[Json] = []
        is_checked = _has_validators(cls)
        for name, info in cls.model_fields.items():
            alias = info.validation_alias if info.validation_alias is not None else info.alias
            described = self.limited(self.type(info.annotation), info.metadata)
            entry = {"name": name, "type": described, **_default(info.default, info.default_factory)}
            is_checked = is_checked or not (alias is None or isinstance(alias, str))
            fields.append({**entry, "alias": alias} if isinstance(alias, str) else entry)
        config = cast("dict[str, Any]", cls.model_config)
        changes = any(config.get(name) for name in _CONFIG_THAT_CHANGES_VALUES)
        described: Descriptor = {"kind": "model", "fields": fields, "checked": is_checked or changes or self.is_partial}
        if config.get("extra") == "allow":
            described["extra"] = True
        if getattr(cls, "__pydantic_root_model__", False):
            described["root"] = True
        return described


def _is_typeddict(cls: type) -> bool:
    """Say whether `cls` is a `TypedDict` of typing_extensions, which typing does not know on older Pythons."""
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__") and hasattr(cls, "__total__")


def _is_required(hint: Any, otherwise: bool) -> bool:
    """Say whether a key of a `TypedDict` must be there; where annotations are strings the class itself does not know."""
    named = getattr(typing.get_origin(hint), "_name", None)
    return named == "Required" if named in ("Required", "NotRequired") else otherwise


def _enum(cls: type[Enum]) -> Descriptor:
    members: list[Json] = []
    for member in cls:
        try:
            members.append([member.name, form_of(_plain_value(member))])
        except ArgumentError:
            members.append([member.name])
    return {"kind": "enum", "members": members}


def _plain_value(member: Enum) -> object:
    return member.value


def _union(parts: Iterable[Descriptor]) -> Descriptor:
    """Return a union with `none` last, so that every way of writing an optional is the same."""
    flat: list[Descriptor] = []
    for part in parts:
        flat.extend(cast("list[Descriptor]", part["of"]) if part["kind"] == "union" else [part])
    unique = [part for place, part in enumerate(flat) if part not in flat[:place]]
    unique.sort(key=lambda part: part["kind"] == "none")
    return unique[0] if len(unique) == 1 else {"kind": "union", "of": cast("list[Json]", unique)}


def _flat(metadata: Iterable[object]) -> Iterator[object]:
    """Yield single limits: pydantic's `Field` and the grouped ones (`Interval`, `Len`, `StringConstraints`) hold several."""
    for item in metadata:
        if type(item).__module__.partition(".")[0] not in ("annotated_types", "pydantic"):
            yield item
        elif type(item).__name__ == "FieldInfo":
            yield from _flat(cast(Any, item).metadata)
        elif type(item).__name__ != "StringConstraints" and isinstance(item, abc.Iterable):
            yield from _flat(cast("Iterable[object]", item))
        else:
            yield item


def _limits(item: object) -> Descriptor:
    if type(item).__module__.partition(".")[0] not in ("annotated_types", "pydantic"):
        return {}
    limits: Descriptor = {}
    for name in (*LIMITS, *_LIMITS_OF_TEXT):
        value = getattr(item, name, None)
        if value is None or value is False:
            continue
        try:
            limits[name] = form_of(getattr(value, "pattern", value))
        except ArgumentError:
            continue
    return limits


def _with_limits(descriptor: Descriptor, limits: Descriptor) -> Descriptor:
    """Return the descriptor with those limits that its kind can have; a union hands them on to its parts."""
    if descriptor["kind"] == "union":
        parts = cast("list[Descriptor]", descriptor["of"])
        return {**descriptor, "of": [_with_limits(part, limits) for part in parts]}
    taken = {name: limits[name] for name in sorted(limits) if name in _TAKES.get(str(descriptor["kind"]), ())}
    before = cast(Descriptor, descriptor.get("limits", {}))
    return {**descriptor, "limits": {**before, **taken}} if taken else descriptor


def _has_validators(cls: Any) -> bool:
    found = getattr(cls, "__pydantic_decorators__", None)
    kinds = ("validators", "field_validators", "root_validators", "model_validators")
    if found is not None and any(getattr(found, kind, None) for kind in kinds):
        return True
    base = getattr(sys.modules.get("pydantic.main"), "BaseModel", None)
    own_hook = is_model(cls) and getattr(cls, "model_post_init", None) is not getattr(base, "model_post_init", None)
    return bool(getattr(cls, "__pydantic_custom_init__", False) or (own_hook and not cls.__private_attributes__))


def _default(default: Any, factory: Any) -> Descriptor:
    """Return `required`, and the default's form where it has one and is no secret."""
    missing = type(default).__name__ in ("_MISSING_TYPE", "PydanticUndefinedType", "ellipsis") or default is inspect.Parameter.empty
    if callable(factory):
        if factory not in _EMPTY_FACTORIES:
            return {"required": False}
        default, missing = cast("Callable[[], object]", factory)(), False
    if missing:
        return {"required": True}
    return {"required": False, **default_form(default)}


def default_form(default: object) -> Descriptor:
    """Return `{"default": form}`, or nothing if it cannot be written down or must not be (a secret)."""
    try:
        form = form_of(default)
    except ArgumentError:
        return {}
    return {} if _holds_secret(form) else {"default": form}


def _holds_secret(form: Json) -> bool:
    match form:
        case dict():
            return "$secret" in form or any(_holds_secret(item) for item in form.values())
        case list():
            return any(_holds_secret(item) for item in form)
        case _:
            return False


def inner_function(function: Callable[..., object]) -> Any:
    """Return where the annotations of a callable stand: in a partial's function, in an object's `__call__`."""
    while isinstance(function, partial):
        function = cast("Callable[..., object]", function.func)  # pyright: ignore[reportUnknownMemberType]
    return function if hasattr(function, "__qualname__") else type(function).__call__
