"""A program's own code, as a shape needs it: the descriptor of its parameters, its classes, its defaults.

The counterpart, without any code, is `sayso.model.shape.standin`.
The invariant: reading a callable never raises; what is not understood is taken as `any`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, cast

from sayso.model.canonical.names import class_name, function_name
from sayso.model.canonical.rebuild import dataclass_fields, is_model
from sayso.model.redaction import Redaction
from sayso.model.shape.define import hints_of
from sayso.model.shape.describe import Describer
from sayso.model.shape.limits import Descriptor

__all__ = ["Source", "of_function", "of_type"]

_MODES = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "args",
    inspect.Parameter.VAR_KEYWORD: "kwargs",
}


class Source:
    """What the program's code says, and what of it only the code can do.

    Attributes:
        name: The callable's qualified name.
        fields: The fields, described.
        defaults: The default values themselves, by name.
        checks: Annotations that say more than their descriptor, by name.
    """

    def __init__(self, name: str, redaction: Redaction) -> None:
        self.name = name
        self.fields: list[Descriptor] = []
        self.defaults: dict[str, object] = {}
        self.checks: dict[str, Any] = {}
        self._redaction = redaction
        self._describer = Describer(redaction)

    def add(self, name: str, annotation: Any, mode: str) -> Descriptor:
        """Add a field that must be given."""
        self._describer.is_whole = True
        kind = self._describer.describe(annotation)
        if mode == "args":
            kind = {"kind": "tuple", "items": kind}
        elif mode == "kwargs":
            kind = {"kind": "dict", "values": kind}
        field: Descriptor = {"name": name, "mode": mode, "type": kind, "required": True}
        if not self._describer.is_whole and mode not in {"args", "kwargs"}:
            self.checks[name] = annotation
            self._only_here(field)
        self.fields.append(field)
        return field

    def add_parameter(self, parameter: inspect.Parameter, annotation: Any) -> None:
        """Add the field of a parameter."""
        mode = _MODES[parameter.kind]
        implied: dict[str, object] = {"args": (), "kwargs": {}}
        default: object = implied.get(mode, parameter.default)
        field = self.add(parameter.name, annotation, mode)
        if default is not inspect.Parameter.empty:
            self.defaults[parameter.name] = default
            field |= {"required": False, **self._describer.default(parameter.name, default)}
            if "default" not in field:
                self._only_here(field)

    @property
    def definitions(self) -> dict[str, Descriptor]:
        """The definitions of the classes that the annotations lead to."""
        return self._describer.defs

    @property
    def classes(self) -> dict[str, type]:
        """The classes themselves, with the subclasses that are known by now."""
        found = dict(self._describer.classes)
        for cls in [*self._describer.classes.values(), *self._describer.roots]:
            found |= {class_name(sub): sub for sub in _subclasses(cls)}
        return found

    def more_definitions(self) -> dict[str, Descriptor]:
        """Return the definitions of known subclasses, for a process without the code that reads their instances."""
        wider = Describer(self._redaction)
        wider.defs, wider.classes = dict(self._describer.defs), dict(self._describer.classes)
        bases: dict[str, list[str]] = {}
        for name, cls in self._describer.classes.items():
            for sub in _subclasses(cls):
                wider.describe(sub)
                bases.setdefault(class_name(sub), []).append(name)
        more = {name: told for name, told in wider.defs.items() if name not in self._describer.defs}
        return {name: {**told, "bases": bases.get(name, [])} for name, told in more.items()}

    def _only_here(self, field: Descriptor) -> None:
        # Two functions of one shape share its digest; one whose code says more must not be taken for the other.
        field["only_in"] = self.name


def _subclasses(cls: type) -> Iterator[type]:
    for sub in type.__subclasses__(cls):
        if is_model(sub) or dataclass_fields(sub) is not None:
            yield sub
        yield from _subclasses(sub)


def of_function(function: Callable[..., object], redact: Collection[str]) -> Source:
    """Read a callable's parameters; defaults under a name that marks a secret are not told."""
    source = Source(function_name(function), Redaction(redact))
    hints = hints_of(_annotated(function))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins tell none
        both = {"args": inspect.Parameter.VAR_POSITIONAL, "kwargs": inspect.Parameter.VAR_KEYWORD}
        parameters = [inspect.Parameter(name, kind) for name, kind in both.items()]
    for parameter in parameters:
        stands = Any if isinstance(parameter.annotation, str) else parameter.annotation
        source.add_parameter(parameter, hints.get(parameter.name, stands))
    return source


def of_type(annotation: Any) -> Source:
    """Read the type of an answer, which is one field named `answer`."""
    source = Source("answer", Redaction())
    source.add("answer", annotation, "either")
    return source


def _annotated(function: Callable[..., object]) -> Any:
    """Return where the annotations of a callable stand: on a partial's function, on an object's `__call__`."""
    while isinstance(function, partial):
        function = cast("Callable[..., object]", function.func)  # pyright: ignore[reportUnknownMemberType]
    return function if hasattr(function, "__qualname__") else type(function).__call__
