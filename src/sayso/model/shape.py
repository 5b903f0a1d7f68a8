"""The shape of a call's arguments, or of a question's answer: which names and types it takes.

A shape is made of a function's annotations, or of the text that was stored beside a request, in a process that does not have the
program's code. How annotations are read is in `sayso.model.describe`, how values are fitted in `sayso.model.fit`.
The invariant: both ways give the same verdict on the same values, save for what only the program's own code can check, which is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from weakref import WeakValueDictionary
from typing import Any, cast

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, encode, value_of
from sayso.model.describe import Describer, Descriptor, default_form, hints_of, inner_function
from sayso.model.fit import MISFIT, Fitter
from sayso.model.rebuild import dataclass_fields, is_model
from sayso.model.scalar import spoken
from sayso.model.schema import json_schema
from sayso.model.standin import stand_ins
from sayso.model.tags import dump

__all__ = ["Shape", "ShapeError"]

_VERSION = 1
# Their text is taken as it was typed; for all others `1`, `true` and `[...]` are read as JSON first.
_TEXTUAL = frozenset({"str", "decimal", "datetime", "date", "time", "timedelta", "uuid", "path", "secret", "bytes", "literal"})


class ShapeError(ValueError):
    """Values do not fit a shape. No problem contains a value.

    Attributes:
        problems: One line each, `where: what is wrong`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class _Source:
    """What the program's own code adds to a descriptor: classes, defaults, validators in annotations."""

    def __init__(self) -> None:
        self.describer = Describer()
        self.fields: list[Descriptor] = []
        self.defaults: dict[str, object] = {}
        self.checks: dict[str, Any] = {}

    def add(self, name: str, hint: Any, mode: str, descriptor: Callable[[Descriptor], Descriptor] = lambda d: d) -> Descriptor:
        self.describer.is_partial = False
        kind = self.describer.type(hint)
        if self.describer.is_partial:
            self.checks[name] = hint
        field: Descriptor = {"name": name, "mode": mode, "type": descriptor(kind), "required": True}
        self.fields.append(field)
        return field

    def add_parameter(self, parameter: inspect.Parameter, hint: Any) -> None:
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                field = self.add(parameter.name, hint, "args", lambda kind: {"kind": "tuple", "items": kind})
                default: object = ()
            case inspect.Parameter.VAR_KEYWORD:
                field = self.add(parameter.name, hint, "kwargs", lambda kind: {"kind": "dict", "values": kind})
                default = {}
            case kind:
                modes = {inspect.Parameter.POSITIONAL_ONLY: "positional", inspect.Parameter.KEYWORD_ONLY: "keyword"}
                field = self.add(parameter.name, hint, modes.get(kind, "either"))
                default = parameter.default
        if field["mode"] in ("args", "kwargs"):
            self.checks.pop(parameter.name, None)
        if default is not inspect.Parameter.empty:
            self.defaults[parameter.name] = default
            field |= {"required": False, **default_form(default)}


class Shape:
    """Which arguments a call takes, or what a question's answer may be (one field named `answer`).

    Annotations are read on first use, so a shape costs nothing where nothing is held.
    """

    def __init__(self, source: Callable[[], _Source] | None, descriptor: Descriptor | None = None) -> None:
        self._make = source
        self._given = descriptor

    @classmethod
    def of(cls, function: Callable[..., object]) -> Shape:
        """Return the shape of a function's parameters."""
        return cls(lambda: _of_function(function))

    @classmethod
    def of_type(cls, annotation: Any) -> Shape:
        """Return the shape of an answer of this type."""
        return cls(lambda: _of_type(annotation))

    @classmethod
    def from_text(cls, text: str) -> Shape:
        """Return the shape that was stored as `text`. The program's classes are replaced by stand-ins; nothing is imported.

        Raises:
            ValueError: It is not the text of a shape, or of a newer one.
        """
        given = json.loads(text)
        if not isinstance(given, dict) or cast("dict[str, Any]", given).get("version") != _VERSION:
            raise ValueError("not the text of a shape that this version of sayso knows")
        return cls(None, cast(Descriptor, given))

    @cached_property
    def _source(self) -> _Source | None:
        return None if self._make is None else self._make()

    @cached_property
    def _descriptor(self) -> Descriptor:
        if self._given is not None:
            return self._given
        source = cast(_Source, self._source)
        found: Descriptor = {"version": _VERSION, "fields": cast("list[Json]", source.fields), "defs": cast(Json, source.describer.defs)}
        return found | _subclasses(source.describer)

    @property
    def _fields(self) -> list[Descriptor]:
        return cast("list[Descriptor]", self._descriptor["fields"])

    @cached_property
    def _defs(self) -> dict[str, Descriptor]:
        return {**cast("dict[str, Descriptor]", self._descriptor["defs"]), **cast(Any, self._descriptor.get("more", {}))}

    @cached_property
    def text(self) -> str:
        """The descriptor as JSON, to be stored beside a request."""
        return dump(self._descriptor)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of what a call must fit: names, kinds of parameters, types, limits, fields, whether there is a default.

        The defaults themselves are left out (they may differ from process to process, and what was asked has them filled in), and so is
        the order in which a union's types are written.
        """
        essence = _essence({"fields": self._descriptor["fields"], "defs": self._descriptor["defs"]})
        digest = hashlib.sha256(json.dumps(essence, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        if self._make is not None:
            _live[digest] = self
        return digest

    @classmethod
    def live(cls, digest: str) -> Shape | None:
        """Return the shape with this digest whose classes live in this process, if one was used here."""
        return _live.get(digest)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(str(field["name"]) for field in self._fields)

    @property
    def classes(self) -> Mapping[str, type]:
        """The classes that the annotations lead to, by `module:QualName`, with the subclasses that are known by now."""
        source = self._source
        if source is None:
            return self._stand_ins
        found = dict(source.describer.classes)
        for cls in [*source.describer.classes.values(), *source.describer.roots]:
            found |= {name: sub for name, sub in _subclasses_of(cls)}
        return found

    @cached_property
    def _stand_ins(self) -> dict[str, type]:
        return stand_ins(self._defs)

    def validate(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the values as the call takes them, in the order of its parameters, with defaults filled in.

        Text becomes what the type says (`"80"` an int, ISO text a date, base64 text bytes, a path, a decimal), objects become dataclasses
        and models, enum members go by value or by name; values that have their type already are left alone.

        Raises:
            ShapeError: With every problem found: unknown and missing names, wrong types, broken limits, no canonical form.
        """
        classes = self.classes
        fitter = Fitter(self._defs, classes, has_code=self._source is not None)
        fitted: dict[str, object] = {}
        for field in self._fields:
            name = str(field["name"])
            if name in values:
                fitted[name] = self._checked(fitter, name, fitter.at(name, cast(Descriptor, field["type"]), values[name]), field)
            elif field["required"]:
                fitter.problems.append(f"{name}: Field required")
            else:
                fitted[name] = self._default(fitter, name, field)
        known = self.names
        fitter.problems += [f"{_shown(name)}: there is no such argument; there are {', '.join(known)}" for name in values if name not in known]
        if not fitter.problems:
            try:
                encode(fitted)
            except ArgumentError as error:
                fitter.problems.append(f"{error.argument}: {error.reason}")
        if fitter.problems:
            raise ShapeError(fitter.problems)
        return fitted

    def _default(self, fitter: Fitter, name: str, field: Descriptor) -> object:
        if self._source is not None:
            return self._source.defaults[name]
        if "default" in field:
            return value_of(field["default"], self._stand_ins)
        fitter.problems.append(f"{name}: has a default that only the program knows; give a value")
        return MISFIT

    def _checked(self, fitter: Fitter, name: str, value: Any, field: Descriptor) -> Any:
        """Let pydantic check what the annotation says beyond its descriptor, where it can and the annotation is at hand."""
        if value is MISFIT or self._source is None or name not in self._source.checks:
            return value
        import pydantic

        try:
            adapter = pydantic.TypeAdapter[Any](self._source.checks[name])
        except Exception:  # an annotation of the program's that pydantic has no schema for: then there is nothing to check
            return value
        try:
            checked = adapter.validate_python(value)
        except pydantic.ValidationError as error:
            for detail in error.errors(include_url=False, include_context=False, include_input=False):
                fitter.problems.append(f"{name}: {spoken(detail)}")
            return MISFIT
        except Exception as error:  # the program's own validator; its words may quote the value
            fitter.problems.append(f"{name}: is refused by the program's own check ({type(error).__name__})")
            return MISFIT
        return value if cast(Descriptor, field["type"])["kind"] == "any" else checked

    def parse(self, name: str, text: str) -> object:
        """Return the value that a person typed for one field, e.g. on a command line: `80`, `2026-01-31`, `["a", "b"]`, `null`.

        Raises:
            ShapeError: There is no such field, or the text does not fit its type.
        """
        field = next((field for field in self._fields if field["name"] == name), None)
        if field is None:
            raise ShapeError([f"{_shown(name)}: there is no such argument; there are {', '.join(self.names)}"])
        kind = cast(Descriptor, field["type"])
        problems: list[str] = []
        for candidate in _readings(kind, text, self._defs):
            fitter = Fitter(self._defs, self.classes, has_code=self._source is not None)
            value = self._checked(fitter, name, fitter.at(name, kind, candidate), field)
            if not fitter.problems:
                return value
            problems = problems or fitter.problems
        raise ShapeError(problems)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, as `validate` takes them from JSON."""
        return json_schema(self._fields, self._defs)


_live: WeakValueDictionary[str, Shape] = WeakValueDictionary()


def _shown(name: str) -> str:
    return ascii(name)[1:-1]


def _readings(kind: Descriptor, text: str, defs: Mapping[str, Descriptor]) -> Iterator[object]:
    """Yield what a typed text may mean, the likelier first."""
    parts = cast("list[Descriptor]", kind["of"]) if kind["kind"] == "union" else [kind]
    kinds = {str(defs[str(part["name"])]["kind"] if part["kind"] == "ref" else part["kind"]) for part in parts}
    if kinds == {"str"}:
        yield text
        return
    try:
        parsed: list[object] = [json.loads(text)]
    except (ValueError, RecursionError):
        parsed = []
    if kinds - {"none"} <= _TEXTUAL | {"enum"}:
        yield from ([None] if parsed == [None] and "none" in kinds else [])
        yield text
        yield from parsed
    else:
        yield from parsed
        yield text


def _essence(part: Any) -> Any:
    """Return a descriptor without defaults and with every union in one order."""
    if isinstance(part, list):
        return [_essence(item) for item in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    found = {key: _essence(item) for key, item in cast("dict[str, Any]", part).items() if key != "default"}
    if found.get("kind") == "union":
        found["of"].sort(key=lambda item: json.dumps(item, sort_keys=True))
    return found


def _subclasses_of(cls: type) -> Iterator[tuple[str, type]]:
    from sayso.model.names import class_name

    for sub in type.__subclasses__(cls):
        if is_model(sub) or dataclass_fields(sub) is not None:
            yield class_name(sub), sub
        yield from _subclasses_of(sub)


def _subclasses(describer: Describer) -> Descriptor:
    """Describe the subclasses that are known by now, so that a process without the code can read their instances too."""
    known = Describer()
    known.classes = dict(describer.classes)
    known.defs = dict(describer.defs)
    for cls in list(describer.classes.values()):
        for _, sub in _subclasses_of(cls):
            known.type(sub)
    more = {name: definition for name, definition in known.defs.items() if name not in describer.defs}
    return {"more": cast(Json, more)} if more else {}


def _of_function(function: Callable[..., object]) -> _Source:
    source = _Source()
    hints = hints_of(inner_function(function))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins have none
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = [inspect.Parameter(name, kind) for name, kind in zip(("args", "kwargs"), kinds, strict=True)]
    for parameter in parameters:
        stands = parameter.annotation if not isinstance(parameter.annotation, str) else Any
        source.add_parameter(parameter, hints.get(parameter.name, stands))
    return source


def _of_type(annotation: Any) -> _Source:
    source = _Source()
    resolved = hints_of(_Answer(annotation)).get("answer", Any) if isinstance(annotation, str) else annotation
    source.add("answer", resolved, "either")
    return source


class _Answer:
    def __init__(self, annotation: Any) -> None:
        self.__annotations__ = {"answer": annotation}

