"""Function signatures: `bind` turns a call into arguments by name, and `spread` turns them back into a call.

`*args` become a tuple and `**kwargs` a dict, under their own names; defaults are filled in. pydantic's `Field(...)` is
supported, as a default or inside `Annotated`, without importing pydantic. The types of parameters are in
`sayso.model.schema`. Invariants: `spread` calls the function with exactly what `bind` returned, and a `Field` is never
passed as a value.

Also the stable names of classes and functions (`module:QualName`), the notation for a place inside the arguments, and
the search for NaN in them. A name is only compared, or looked up among loaded classes; nothing is imported by name. A
class has the same name however its program was started.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple, cast

from sayso.model import cached_property
from sayso.model.text import closest

_KEY_SHOWN = 40
_PLACE_SHOWN = 20  # steps of a path that are listed
_NO_NUMBER = frozenset({str, int, bool, bytes, type(None)})


def _name(thing: Any) -> str:
    given = cast("dict[str, object]", getattr(thing, "__dict__", {})).get("__sayso_name__")
    if isinstance(given, str):
        return given
    module = getattr(thing, "__module__", None) or "builtins"
    if module == "__main__":  # the name that the main file would have if it were imported
        main = sys.modules.get("__main__")
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name
        elif file is not None:  # not with pathlib, which would be imported just for this
            module = os.path.splitext(os.path.basename(file))[0]  # noqa: PTH119, PTH122
    return f"{module}:{thing.__qualname__}"


@lru_cache(maxsize=1024)
def class_name(cls: type) -> str:
    """Return `module:QualName`, or the `__sayso_name__` that is set on the class itself, as on stand-ins."""
    return _name(cls)


def function_name(function: Callable[..., object]) -> str:
    """Return `module:QualName` of what would run: the function of a partial, the class of a callable object."""
    while isinstance(function, partial):
        function = cast("Callable[..., object]", function.func)  # pyright: ignore[reportUnknownMemberType]
    return _name(function if hasattr(function, "__qualname__") else type(function))


def place(steps: Sequence[str | int], quote: Callable[[str], str] = json.dumps) -> str:
    """Return the path of a value, e.g. `order.lines[2].price`; the first step is the argument's name.

    A name that is not an identifier is quoted, `order["unit price"]`: in ASCII, unless `quote` does it differently.
    """
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier() and (not text or len(step) <= _KEY_SHOWN):
            text += f".{step}" if text else step
        else:
            shown = quote(step if len(step) <= _KEY_SHOWN else step[:_KEY_SHOWN] + "...")
            text += f"[{shown}]" if text else shown
    return text or "arguments"


def nan_in(arguments: Mapping[str, Any]) -> str | None:
    """Return the path of the first NaN, e.g. `order.lines[2].price`; None if there is none.

    Every comparison with NaN is false, so a rule such as `amount > 100` would allow it. The search covers values with a
    canonical form, calls no user code and visits each container once.
    """
    for value in arguments.values():  # most calls have only scalars: a fifth of the time of a call that a rule allows
        if type(value) not in _NO_NUMBER and (type(value) is not float or value != value):  # noqa: PLR0124  true of a NaN alone
            break
    else:
        return None
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), arguments)]
    seen = set[int]()
    while waiting:
        steps, value = waiting.pop()
        # Not by `value != value`, which a subclass may override.
        if (isinstance(value, float) and float.__ne__(value, value)) or (
            isinstance(value, Decimal) and Decimal.is_nan(value)
        ):
            return place(steps) if len(steps) <= _PLACE_SHOWN else f"{place(steps[:_PLACE_SHOWN])}…"
        if id(value) in seen:
            continue
        seen.add(id(value))
        found = [
            ((*steps, key if type(key) is int else str(key))[: _PLACE_SHOWN + 1], part)
            for key, part in parts_in(value)
            if type(part) not in _NO_NUMBER and (type(part) is not float or part != part)  # noqa: PLR0124  true of a NaN alone
        ]
        waiting += reversed(found)
    return None


def parts_in(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the parts of a list, tuple, dict, dataclass or model by name or index; nothing for other values."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).items()
    if isinstance(value, list | tuple):
        return enumerate(cast("list[Any]", value))
    kind = cast("Any", type(value))
    declared = getattr(kind, "__dataclass_fields__", None)
    if declared is not None:
        return [(name, getattr(value, name, None)) for name in declared]
    if hasattr(kind, "__pydantic_fields__"):
        extra: dict[str, Any] = getattr(value, "__pydantic_extra__", None) or {}
        return [*cast("dict[str, Any]", vars(value)).items(), *extra.items()]
    return ()


_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_PLAIN = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


class Signature:
    """The signature of a function.

    Attributes:
        names: The names of its parameters.
        rest: The name of its `**` parameter, with which it takes arguments of any name; None if it has none.

    Raises:
        TypeError: The function is a method without its object, or runs only after its call has returned.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if runs_later(function):
            raise TypeError(
                "a generator, or a context manager made of one, runs in several parts and cannot be gated; gate the"
                " functions that it calls"
            )
        self._signature = inspect.signature(function)
        if next(iter(self._signature.parameters), None) in {"self", "cls"}:
            raise TypeError(method_refusal(function))
        self._function = function
        parameters = self._signature.parameters.values()
        self.names = tuple(self._signature.parameters)
        self._known = frozenset(self.names)
        self._positional = tuple(p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._defaults = {
            p.name: p.default for p in parameters if p.default is not p.empty and not _is_field(p.default)
        }
        self._is_plain = all(p.kind in _PLAIN for p in parameters)
        self._is_positional = self._positional == self.names
        star = next((p.name for p in parameters if p.kind is _VAR_POSITIONAL), None)
        self._leading = tuple(p.name for p in parameters if p.kind is _POSITIONAL_ONLY)
        if star is not None:
            self._leading += self._positional
        self._star = star
        self.rest = next((p.name for p in parameters if p.kind is _VAR_KEYWORD), None)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, in the order of the parameters, defaults filled in.

        Raises:
            TypeError: The call does not fit the signature; the message is Python's own.
        """
        if not kwargs and len(args) == len(self.names) and self._is_positional:
            return dict(zip(self.names, args, strict=True))
        if self.fields:
            return self._bound_by_fields(args, kwargs)
        # `Signature.bind` costs more than everything else a rule needs; most calls do not need it.
        if self._is_plain and len(args) <= len(self._positional):
            given = {**dict(zip(self._positional, args, strict=False)), **kwargs}
            if len(given) == len(args) + len(kwargs) and given.keys() <= self._known:
                try:
                    return {name: given[name] if name in given else self._defaults[name] for name in self.names}
                except KeyError:
                    pass  # an argument is missing; `Signature.bind` below raises Python's message
        try:
            found = self._signature.bind(*args, **kwargs)
        except TypeError as misfit:
            raise self._misfit(misfit) from None
        found.apply_defaults()
        return dict(found.arguments)

    def _bound_by_fields(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            given = self._signature.bind_partial(*args, **self.by_name(kwargs)).arguments
        except TypeError as misfit:
            raise self._misfit(misfit) from None
        bound: dict[str, Any] = {}
        for name in self.names:
            field = self.fields.get(name)
            if name in given:
                bound[name] = given[name]
            elif name in self._defaults:
                bound[name] = self._defaults[name]
            elif field is not None and not field.is_required:
                bound[name] = field.default(bound)
            elif name in {self._star, self.rest}:
                bound[name] = () if name == self._star else {}
            else:
                raise self._misfit(f"missing a required argument: {name!r}")
        return bound

    def _misfit(self, what: object) -> TypeError:
        """Return Python's own error for a call that does not fit, with the function's name as Python shows it."""
        got = "got " if str(what).startswith("too many") else ""
        return TypeError(f"{getattr(annotated(self._function), '__name__', 'it')}() {got}{what}")

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """The pydantic `Field` of each parameter that has one; computed at the first use."""
        return fields_of(self._signature.parameters.values(), lambda: hints_of(annotated(self._function)))

    @cached_property
    def _by_alias(self) -> Mapping[str, str]:
        found = {alias: name for name, field in self.fields.items() for alias in field.aliases}
        return {alias: name for alias, name in found.items() if alias not in self._known}

    def by_name(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments by parameter name, resolving aliases."""
        return by_name(given, self._by_alias) if self.fields else given

    def shown_as(self, name: str) -> str:
        """Return the name that models see for an argument: its first alias if it has one."""
        field = self.fields.get(name)
        return field.aliases[0] if field is not None and field.aliases else name

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name without defaults; arguments may be missing.

        Raises:
            TypeError: There are too many arguments, or one is given twice; the message is Python's own.
        """
        if not args and self._is_plain and kwargs.keys() <= self._known:
            return {name: kwargs[name] for name in self.names if name in kwargs}
        return dict(self._signature.bind_partial(*args, **self.by_name(kwargs)).arguments)

    def spread(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments with which to call the function."""
        if self._is_plain:
            return (), dict(arguments)
        rest = dict(arguments)
        args = tuple(rest.pop(name) for name in self._leading if name in rest)
        if self._star is not None:
            args += tuple(rest.pop(self._star, ()))
        if self.rest is not None:
            more = rest.pop(self.rest, {})
            if not rest.keys().isdisjoint(more):
                raise TypeError(f"{self.rest} contains a name that is also a parameter")
            rest |= more
        return args, rest


def by_name(given: Mapping[str, Any], aliases: Mapping[str, str]) -> Mapping[str, Any]:
    """Return values by name, resolving aliases.

    If a value is given by name and by alias, it also keeps its alias, so that it is refused later.
    """
    if not aliases.keys() & given.keys():
        return given
    named = {name: value for name, value in given.items() if name not in aliases}
    for alias, name in aliases.items():
        if alias in given:
            named[alias if name in named else name] = given[alias]
    return named


def runs_later(function: Callable[..., Any]) -> bool:
    """Return whether calls of this function return before its body runs: a generator, or a context manager of one."""
    while isinstance(function, partial):
        function = cast("Callable[..., object]", function.func)  # pyright: ignore[reportUnknownMemberType]
    # The wrapper that `contextlib` puts around a generator function returns at once; another one may run it to its end.
    if getattr(function, "__globals__", {}).get("__name__") == "contextlib":
        function = inspect.unwrap(function)
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def method_refusal(function: object) -> str:
    """Return the message that a method cannot be gated without its object, and the two ways to do so."""
    whole = str(getattr(function, "__qualname__", "it")).rpartition("<locals>.")[2]
    name = whole.rpartition(".")[2]
    return (
        f"{whole} is a method, and a reviewer could not see which object it acts on; gate it on an object, with a"
        f" name that says which one: sayso.gate(obj.{name}, name='…') or sayso.Tool(obj.{name}, name='…'). Nothing"
        " was gated"
    )


def chosen(function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that selects the arguments that a rule, prompt or hook takes: all of them for `**kwargs`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict
    if any(p.kind is _VAR_KEYWORD for p in parameters):
        return dict
    names = tuple(p.name for p in parameters)
    return lambda arguments: {name: arguments[name] for name in names if name in arguments}


def hints_of(thing: Any) -> dict[str, Any]:
    """Return the resolved annotations of a function or class. One that cannot be resolved is left out."""
    with suppress(Exception):  # annotations are the user's code, and may raise anything
        return typing.get_type_hints(thing, include_extras=True)
    hints: dict[str, Any] = {}
    for owner in reversed(getattr(thing, "__mro__", (thing,))):
        names = dict(vars(sys.modules.get(getattr(owner, "__module__", None) or "", types.SimpleNamespace())))
        for name, annotation in _annotations(owner).items():
            alone = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                hints |= typing.get_type_hints(alone, globalns=names, include_extras=True)
            except Exception:  # noqa: BLE001  # as above: this one cannot be resolved, others may be
                hints.pop(name, None)
    return hints


def _annotations(thing: object) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF)
    return dict(getattr(thing, "__annotations__", {}))


class Field(NamedTuple):
    """The pydantic `Field` of a parameter.

    Attributes:
        info: pydantic's own object; it merges those of `Annotated` and of the default.
        aliases: Other names by which the argument may be given; the first one is shown to models.
    """

    info: Any
    aliases: tuple[str, ...]

    @property
    def is_required(self) -> bool:
        """Whether the argument must be given."""
        return bool(self.info.is_required())

    def default(self, given: Mapping[str, object]) -> Any:
        """Return the value for an argument that is not given: a copy of the default, or what the factory returns.

        Args:
            given: The arguments before it, which some factories take.
        """
        return self.info.get_default(call_default_factory=True, validated_data=dict(given))

    @property
    def annotation(self) -> Any:
        """The type with its bounds, without the default."""
        info = self.info
        bounds = tuple(info.metadata)
        if info.discriminator is not None:
            bounds += (sys.modules["pydantic.fields"].Field(discriminator=info.discriminator),)
        return Annotated[(info.annotation, *bounds)] if bounds else info.annotation


def _is_field(value: object) -> bool:
    """Return whether a value was made by pydantic's `Field(...)`."""
    module: Any = sys.modules.get("pydantic.fields")
    return module is not None and isinstance(value, module.FieldInfo)


def fields_of(parameters: Iterable[inspect.Parameter], hints: Callable[[], Mapping[str, Any]]) -> dict[str, Field]:
    """Return the fields by parameter name, for the parameters that have one.

    Args:
        parameters: The parameters of a function.
        hints: Returns the function's annotations, resolved as far as possible.
    """
    module: Any = sys.modules.get("pydantic.fields")
    if module is None:
        return {}
    found: dict[str, Field] = {}
    known: Mapping[str, Any] | None = None
    for parameter in parameters:
        if parameter.annotation is inspect.Parameter.empty and not _is_field(parameter.default):
            continue
        known = hints() if known is None else known
        fallback = Any if isinstance(parameter.annotation, str) else parameter.annotation
        hint = known.get(parameter.name, fallback)
        has_field = typing.get_origin(hint) is Annotated and any(map(_is_field, hint.__metadata__))
        if not has_field and not _is_field(parameter.default):
            continue
        hint = Any if hint is inspect.Parameter.empty else hint
        if parameter.default is inspect.Parameter.empty:
            info = module.FieldInfo.from_annotation(hint)
        else:
            info = module.FieldInfo.from_annotated_attribute(hint, parameter.default)
        alias = info.alias if info.validation_alias is None else info.validation_alias
        choices: Iterable[object] = getattr(alias, "choices", (alias,))
        aliases = dict.fromkeys(name for name in choices if isinstance(name, str))
        found[parameter.name] = Field(info, tuple(aliases))
    return found


class Parameter(NamedTuple):
    """A parameter and its type.

    Attributes:
        name: Its name.
        annotation: Its resolved annotation; `Any` if it cannot be resolved.
        default: Its default value; empty if it has none or a `Field` computes it.
        field: Its pydantic `Field`.
        stars: `*` or `**` for `*args` or `**kwargs`.
    """

    name: str
    annotation: Any
    default: object = inspect.Parameter.empty
    field: Field | None = None
    stars: str = ""

    @property
    def is_any(self) -> bool:
        """Whether it has no type, or a type that accepts anything."""
        return any(self.annotation is nothing for nothing in (Any, object, inspect.Parameter.empty))

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty if self.field is None else self.field.is_required

    @property
    def type(self) -> Any:
        """The type of its value."""
        if self.stars:
            kind = self.annotation
            return tuple[kind, ...] if self.stars == "*" else dict[str, kind]
        return self.annotation if self.field is None else self.field.annotation


_STARS: dict[Any, tuple[str, object]] = {_VAR_POSITIONAL: ("*", ()), _VAR_KEYWORD: ("**", {})}


def parameters_of(function: Callable[..., Any]) -> tuple[str, list[Parameter]]:
    """Return the signature's names and kinds as Python writes them, and the parameters."""
    hints = hints_of(annotated(function))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have no signature
        both = {"args": _VAR_POSITIONAL, "kwargs": _VAR_KEYWORD}
        signature = inspect.Signature([inspect.Parameter(name, kind) for name, kind in both.items()])
    fields = fields_of(signature.parameters.values(), lambda: hints)
    parameters: list[Parameter] = []
    for name, parameter in signature.parameters.items():
        annotation = hints.get(name, Any if isinstance(parameter.annotation, str) else parameter.annotation)
        field = fields.get(name)
        stars, default = _STARS.get(parameter.kind, ("", parameter.default))
        if field is not None and not stars:
            has_default = not field.is_required and field.info.default_factory is None
            default = field.info.default if has_default else inspect.Parameter.empty
        parameters.append(Parameter(name, annotation, default, None if stars else field, stars))
    bare = [inspect.Parameter(name, parameter.kind) for name, parameter in signature.parameters.items()]
    return str(inspect.Signature(bare)), parameters


def annotated(function: Callable[..., Any]) -> Any:
    """Return the object that has a callable's annotations: a partial's function, or the `__call__` of an instance."""
    while isinstance(function, partial):
        function = cast("Callable[..., object]", function.func)  # pyright: ignore[reportUnknownMemberType]
    return function if hasattr(function, "__qualname__") else type(function).__call__


# What other libraries call an option of ours.
_ELSEWHERE = {
    "approvals": "quorum", "approvers": "quorum", "condition": "when", "min_approvals": "quorum",
    "needs_approval": "when", "requires_approval": "when", "reviewers": "roles", "ttl": "expires",
}  # fmt: skip


def unknown_keyword(name: str, given: str, known: Collection[str]) -> TypeError:
    """Return the error for an unknown keyword argument; `name` is the function's public name."""
    meant = _ELSEWHERE.get(given)
    near = meant if meant in known else closest(given, sorted(known))
    hint = f"it takes {', '.join(sorted(known))}." if near is None else f"did you mean {near}=?"
    return TypeError(f"{name}() has no {given}=; {hint} Nothing was done")
