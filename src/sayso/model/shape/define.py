"""Classes of a program, read into definitions: enums, dataclasses, pydantic models and typed dicts, field by field.

A definition is `checked` where building an instance runs code of the program's, or needs more than the definition
says; a stand-in for such a class is never built anew. A field that is not `given` is set by the class itself, one that
is not `kept` is an argument of its initialiser alone. pydantic is not imported.
The invariant: whoever has only the definition either builds what the class itself would have built, or is told that
it cannot.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterable
from dataclasses import InitVar
from enum import Enum
from typing import Any, Protocol, cast

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, form_of
from sayso.model.canonical.decode import dataclass_fields, is_model
from sayso.model.shape.limits import Descriptor

__all__ = ["Walker", "define", "hints_of", "is_definable", "optional"]

_EMPTY: tuple[type[Any], ...] = (list, dict, tuple, str, bytes, int, float, bool)
_MISSING = frozenset({"_MISSING_TYPE", "PydanticUndefinedType", "ellipsis"})
# With these a model changes what it is given, or looks at it in a way that the definition does not tell.
_CONFIG_WITH_EFFECT = frozenset(
    {"use_enum_values", "validate_default", "str_strip_whitespace", "str_to_lower", "str_to_upper", "str_max_length"}
    | {"str_min_length", "coerce_numbers_to_str", "allow_inf_nan", "revalidate_instances", "alias_generator"}
)


class Walker(Protocol):
    """Who describes the annotations of the fields."""

    is_whole: bool

    def describe(self, annotation: Any) -> Descriptor:
        """Return the descriptor of an annotation."""
        ...

    def limited(self, descriptor: Descriptor, metadata: Iterable[object]) -> Descriptor:
        """Return the descriptor with the limits in the metadata."""
        ...

    def default(self, name: str, value: object) -> Descriptor:
        """Return `{"default": form}`, or nothing if it cannot be told."""
        ...


def is_definable(cls: type[Any]) -> bool:
    """Say whether instances of a class can be told field by field (or member by member)."""
    is_own_model = is_model(cls) and cls.__module__ not in {"pydantic.main", "pydantic.root_model"}
    return is_own_model or issubclass(cls, Enum) or _is_typed_dict(cls) or dataclass_fields(cls) is not None


def define(cls: Any, walker: Walker) -> Descriptor:
    """Return the definition of a class for which `is_definable`."""
    if issubclass(cls, Enum):
        return _enum(cls)
    if is_model(cls):
        return _model(cls, walker)
    return _typed_dict(cls, walker) if _is_typed_dict(cls) else _dataclass(cls, walker)


def hints_of(thing: Any) -> dict[str, Any]:
    """Return the annotations of a function or class, resolved as far as they can be; one that cannot be is left out."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except Exception:  # noqa: BLE001  # annotations are the user's code, and may raise anything
        return _hints_one_by_one(thing)


def _hints_one_by_one(thing: Any) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for owner in reversed(getattr(thing, "__mro__", (thing,))):
        names = dict(vars(sys.modules.get(getattr(owner, "__module__", None) or "", types.SimpleNamespace())))
        for name, annotation in _annotations(owner).items():
            alone = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                hints |= typing.get_type_hints(alone, globalns=names, include_extras=True)
            except Exception:  # noqa: BLE001  # as above: this one is not understood, the others are
                hints.pop(name, None)
    return hints


def _annotations(thing: object) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF)
    return dict(getattr(thing, "__annotations__", {}))


def optional(walker: Walker, name: str, default: object, factory: object) -> Descriptor:
    """Return whether a field must be given, and its default where that can be told."""
    if factory is not None and type(factory).__name__ not in _MISSING:
        empty: list[object] = [kind() for kind in _EMPTY if kind is cast("Any", factory)]
        return {"required": False, **(walker.default(name, empty[0]) if empty else {})}
    if type(default).__name__ in _MISSING:
        return {"required": True}
    return {"required": False, **walker.default(name, default)}


def _enum(cls: type[Enum]) -> Descriptor:
    return {"kind": "enum", "members": [[member.name, *_told(member.value)] for member in cls]}


def _told(value: object) -> list[Json]:
    try:
        return [form_of(value)]
    except ArgumentError:
        return []


def _is_typed_dict(cls: Any) -> bool:
    # typing does not know the ones of typing_extensions on every version of Python.
    return hasattr(cls, "__required_keys__") and hasattr(cls, "__total__") and issubclass(cls, dict)


def _typed_dict(cls: Any, walker: Walker) -> Descriptor:
    hints = hints_of(cls)
    fields: list[Descriptor] = []
    for name in [*hints, *sorted(cls.__required_keys__ - hints.keys())]:
        # Where annotations are texts, the class itself takes a `NotRequired` key for a required one.
        said = getattr(typing.get_origin(hints.get(name)), "_name", None)
        is_required = said == "Required" or (said != "NotRequired" and name in cls.__required_keys__)
        fields.append({"name": name, "type": walker.describe(hints.get(name, Any)), "required": is_required})
    return {"kind": "typed_dict", "fields": fields, "checked": False}


def _dataclass(cls: Any, walker: Walker) -> Descriptor:
    hints = hints_of(cls)
    infos: dict[str, Any] = getattr(cls, "__pydantic_fields__", {})
    kept = dataclass_fields(cls) or ()
    fields: list[Descriptor] = []
    for name, own in cls.__dataclass_fields__.items():
        hint: Any = hints.get(name, Any)
        if name not in kept and not isinstance(hint, InitVar):
            continue  # a class variable
        kind = walker.describe(cast("Any", hint).type if isinstance(hint, InitVar) else hint)
        info = infos.get(name, own)
        kind = walker.limited(kind, infos[name].metadata) if name in infos else kind
        place = {"given": False} if not own.init else {} if name in kept else {"kept": False}
        fields.append(
            {"name": name, "type": kind, **optional(walker, name, info.default, info.default_factory), **place}
        )
    is_plain = cls.__dataclass_params__.init and not hasattr(cls, "__post_init__") and not _has_validators(cls)
    is_plain = is_plain and all(field.get("given", True) and field.get("kept", True) for field in fields)
    return {"kind": "dataclass", "fields": fields, "checked": not (is_plain and walker.is_whole)}


def _model(cls: Any, walker: Walker) -> Descriptor:
    if not cls.__pydantic_complete__:
        cls.model_rebuild(raise_errors=False)
    fields: list[Descriptor] = []
    is_checked = _has_validators(cls)
    for name, info in cls.model_fields.items():
        kind = walker.limited(walker.describe(info.annotation), info.metadata)
        field = {"name": name, "type": kind, **optional(walker, name, info.default, info.default_factory)}
        alias: object = info.alias if info.validation_alias is None else info.validation_alias
        is_checked = is_checked or not (alias is None or isinstance(alias, str))
        fields.append({**field, "alias": alias} if isinstance(alias, str) else field)
    config = cast("dict[str, Any]", cls.model_config)
    is_checked = is_checked or any(config.get(name) for name in _CONFIG_WITH_EFFECT)
    told: Descriptor = {"kind": "model", "fields": fields, "checked": is_checked or not walker.is_whole}
    if config.get("extra") == "allow":
        told["extra"] = True
    return told | ({"root": True} if getattr(cls, "__pydantic_root_model__", False) else {})


def _has_validators(cls: Any) -> bool:
    found = getattr(cls, "__pydantic_decorators__", None)
    kinds = ("validators", "field_validators", "root_validators", "model_validators")
    if any(getattr(found, kind, None) for kind in kinds):
        return True
    if not is_model(cls):
        return False
    # A hook after the initialiser is there for private attributes too; their values are not in the definition either.
    base: Any = sys.modules["pydantic.main"]
    return bool(
        getattr(cls, "__pydantic_custom_init__", False) or cls.model_post_init is not base.BaseModel.model_post_init
    )
