"""A program's own code, as a shape needs it: the descriptor of its parameters, its classes, its defaults.

The counterpart, without any code, is `sayso.model.shape.standin`.
The invariant: reading a callable never raises; what is not understood is taken as `any`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from sayso.model.canonical.decode import dataclass_fields, is_model
from sayso.model.canonical.names import class_name, function_name
from sayso.model.field import Field, annotated, fields_of
from sayso.model.redaction import Redaction
from sayso.model.shape.define import hints_of, optional
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
        defaults: The default values themselves, by name; those that a factory makes are not among them.
        checks: Annotations that say more than their descriptor, by name.
        described: What pydantic's `Field` says of a parameter, by name.
    """

    def __init__(self, name: str, redaction: Redaction) -> None:
        self.name = name
        self.fields: list[Descriptor] = []
        self.defaults: dict[str, object] = {}
        self.checks: dict[str, Any] = {}
        self.described: dict[str, Field] = {}
        self._redaction = redaction
        self._describer = Describer(redaction)

    def add(self, name: str, annotation: Any, mode: str, bounds: Iterable[object] = ()) -> Descriptor:
        """Add a field that must be given."""
        self._describer.is_whole = True
        kind = self._describer.limited(self._describer.describe(annotation), bounds)
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

    def add_parameter(self, parameter: inspect.Parameter, annotation: Any, said: Field | None = None) -> None:
        """Add the field of a parameter; `said` is what pydantic's `Field` says of it."""
        mode = _MODES[parameter.kind]
        if said is not None and mode not in {"args", "kwargs"}:
            self._add_described(parameter.name, mode, said)
            return
        implied: dict[str, object] = {"args": (), "kwargs": {}}
        default: object = implied.get(mode, parameter.default)
        field = self.add(parameter.name, annotation, mode)
        if default is not inspect.Parameter.empty:
            self.defaults[parameter.name] = default
            field |= {"required": False, **self._describer.default(parameter.name, default)}
            if "default" not in field:
                self._only_here(field)

    def default(self, name: str, given: Mapping[str, object]) -> object:
        """Return the value of an argument that is not given; `given` are the arguments before it."""
        return self.described[name].default(given) if name in self.described else self.defaults[name]

    def _add_described(self, name: str, mode: str, said: Field) -> None:
        info = said.info
        field = self.add(name, info.annotation, mode, info.metadata)
        if name in self.checks or getattr(info, "discriminator", None) is not None:
            self.checks[name] = said.annotation
            self._only_here(field)
        self.described[name] = said
        if isinstance(info.description, str) and info.description:
            field["description"] = info.description
        if said.aliases:
            field["aliases"] = list(said.aliases)
        if said.is_required:
            return
        if info.default_factory is None:
            self.defaults[name] = info.default
        field |= optional(self._describer, name, info.default, info.default_factory)
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
    hints = hints_of(annotated(function))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins tell none
        both = {"args": inspect.Parameter.VAR_POSITIONAL, "kwargs": inspect.Parameter.VAR_KEYWORD}
        parameters = [inspect.Parameter(name, kind) for name, kind in both.items()]
    described = fields_of(parameters, lambda: hints)
    for parameter in parameters:
        stands = Any if isinstance(parameter.annotation, str) else parameter.annotation
        source.add_parameter(parameter, hints.get(parameter.name, stands), described.get(parameter.name))
    return source


def of_type(annotation: Any) -> Source:
    """Read the type of an answer, which is one field named `answer`."""
    source = Source("answer", Redaction())
    source.add("answer", annotation, "either")
    return source
