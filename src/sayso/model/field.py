"""Parameters that are described by pydantic's `Field(...)`, as a default or inside of `Annotated`.

Python takes `Field(...)` for a plain default value; here it is read as its author means it: whether the argument must
be given, what it is else, within which bounds, and by which other names. pydantic is not imported: whoever wrote a
`Field` has done so. The invariant: no function is called with a `Field` in the place of a value.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple, cast

from sayso.errors import ConfigError

__all__ = ["Field", "annotated", "check_fields", "fields_of", "is_field"]


class Field(NamedTuple):
    """What a `Field` says of a parameter.

    Attributes:
        info: pydantic's own object, with that of `Annotated` and that of the default in one.
        aliases: Other names by which the argument may be given; the first one is shown to models.
    """

    info: Any
    aliases: tuple[str, ...]

    @property
    def is_required(self) -> bool:
        """Whether the argument must be given."""
        return bool(self.info.is_required())

    def default(self, given: Mapping[str, object]) -> Any:
        """Return the value for an argument that is not given: its own copy, or what the factory makes.

        Args:
            given: The arguments before it, which some factories ask for.
        """
        if getattr(self.info, "default_factory_takes_validated_data", False):
            return self.info.get_default(call_default_factory=True, validated_data=dict(given))
        return self.info.get_default(call_default_factory=True)

    @property
    def annotation(self) -> Any:
        """The type with its bounds, and without the default."""
        info = self.info
        bounds = tuple(info.metadata)
        if getattr(info, "discriminator", None) is not None:
            bounds += (sys.modules["pydantic.fields"].Field(discriminator=info.discriminator),)
        return Annotated[(info.annotation, *bounds)] if bounds else info.annotation


def is_field(value: object) -> bool:
    """Say whether something is what pydantic's `Field(...)` returns."""
    module: Any = sys.modules.get("pydantic.fields")
    return module is not None and isinstance(value, module.FieldInfo)


def check_fields(parameters: Iterable[inspect.Parameter]) -> None:
    """Refuse a default that is a `Field` of pydantic's first version, which nobody would read.

    Raises:
        ConfigError: There is one.
    """
    for parameter in parameters:
        kind: type[Any] = type(parameter.default)  # pyright: ignore[reportUnknownVariableType]  # of Any
        if kind.__name__ == "FieldInfo" and kind.__module__ == "pydantic.v1.fields":
            raise ConfigError(f"the default of {parameter.name!r} is a Field of pydantic.v1; use pydantic.Field")


def fields_of(parameters: Iterable[inspect.Parameter], hints: Callable[[], Mapping[str, Any]]) -> dict[str, Field]:
    """Return what is said of those parameters that a `Field` describes, by name.

    Args:
        parameters: Those of a function.
        hints: Returns its annotations, resolved as far as they can be.
    """
    module: Any = sys.modules.get("pydantic.fields")
    if module is None:
        return {}
    found: dict[str, Field] = {}
    known: Mapping[str, Any] | None = None
    for parameter in parameters:
        if parameter.annotation is inspect.Parameter.empty and not is_field(parameter.default):
            continue
        known = hints() if known is None else known
        stands = Any if isinstance(parameter.annotation, str) else parameter.annotation
        hint = known.get(parameter.name, stands)
        if is_field(parameter.default) or _has_field(hint):
            found[parameter.name] = _field(module.FieldInfo, hint, parameter.default)
    return found


def annotated(function: Callable[..., Any]) -> Any:
    """Return where the annotations of a callable stand: on a partial's function, on an object's `__call__`."""
    while isinstance(function, partial):
        function = cast("Callable[..., object]", function.func)  # pyright: ignore[reportUnknownMemberType]
    return function if hasattr(function, "__qualname__") else type(function).__call__


def _has_field(hint: Any) -> bool:
    return typing.get_origin(hint) is Annotated and any(map(is_field, hint.__metadata__))


def _field(kind: Any, hint: Any, default: Any) -> Field:
    hint = Any if hint is inspect.Parameter.empty else hint
    if default is inspect.Parameter.empty:
        info = kind.from_annotation(hint)
    else:
        info = kind.from_annotated_attribute(hint, default)
    return Field(info, tuple(dict.fromkeys(_aliases(info))))


def _aliases(info: Any) -> Iterable[str]:
    validation = info.alias if info.validation_alias is None else info.validation_alias
    choices: Iterable[object] = getattr(validation, "choices", (validation,))
    return (name for name in choices if isinstance(name, str))
