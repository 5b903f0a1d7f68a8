"""Stand-ins for a program's classes, in a process that does not have its code.

They are made from definitions alone: enums with the same members, dataclasses and models with the same fields. They
carry the real name in `__sayso_name__`, so what is built from them is written down as the real class would be.
Nothing is imported by name.
The invariant: a stand-in holds data and runs no code of the program's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, cast

from sayso.model.canonical import Json, value_of
from sayso.model.shape.limits import Descriptor

__all__ = ["stand_ins"]


def stand_ins(defs: Mapping[str, Descriptor]) -> dict[str, type]:
    """Return a class for every enum, dataclass and model of the definitions, by its name."""
    classes: dict[str, type] = {}
    for name, definition in defs.items():
        match definition.get("kind"):
            case "enum":
                made = _enum(name, definition["members"])
            case "dataclass":
                made = _dataclass(name, definition["fields"], classes)
            case "model":
                made = _model(name, definition["fields"], classes, has_extra=definition.get("extra") is True)
            case _:
                continue
        type.__setattr__(made, "__sayso_name__", name)
        classes[name] = made
    return classes


def _short(name: str) -> str:
    return name.rpartition(":")[2].rpartition(".")[2]


def _enum(name: str, members: list[list[Json]]) -> type:
    # A member's value may be of a class that has no stand-in yet; nothing but its name is ever written down.
    made = Enum(_short(name), [(str(label), _member_value(str(label), rest)) for label, *rest in members])
    return cast(type, made)


def _member_value(label: str, rest: list[Json]) -> object:
    if not rest or isinstance(rest[0], dict):
        return label if not rest else (label, str(rest[0]))
    return rest[0]


def _default(form: Json, classes: Mapping[str, type]) -> Callable[[], object]:
    return partial(value_of, form, classes)


def _dataclass(name: str, fields: list[Descriptor], classes: Mapping[str, type]) -> type:
    made: list[tuple[str, Any, Any]] = []
    for field in fields:
        if not field.get("kept", True):
            continue
        factory: Any = _default(field["default"], classes) if "default" in field else dataclasses.MISSING
        made.append((field["name"], Any, dataclasses.field(default_factory=factory, kw_only=True)))
    return dataclasses.make_dataclass(_short(name), made)


def _model(name: str, fields: list[Descriptor], classes: Mapping[str, type], *, has_extra: bool) -> type:
    from pydantic import ConfigDict, Field, create_model

    config = ConfigDict(extra="allow" if has_extra else "forbid", protected_namespaces=(), arbitrary_types_allowed=True)
    made: dict[str, Any] = {}
    for field in fields:
        default = Field(default_factory=_default(field["default"], classes)) if "default" in field else ...
        made[field["name"]] = (Any, default)
    return create_model(_short(name), __config__=config, **made)
