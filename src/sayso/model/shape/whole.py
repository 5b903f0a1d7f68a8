"""The shape of a call's arguments, or of a question's answer: which names and types it takes.

A shape is made of the program's code (`source`), or of the text that was stored beside a request, in a process that
does not have the code (`standin`). How values are fitted to it is in `fit`.
The invariant: both give the same verdict on the same values, save for what only the program's code can check, which
is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from sayso.errors import ArgumentError
from sayso.model.canonical import check_round_trip, encode, text_of, value_of
from sayso.model.shape.plain import has_type, scalar_of

if TYPE_CHECKING:
    from sayso.model.shape.fit import Fitter
    from sayso.model.shape.limits import Descriptor
    from sayso.model.shape.source import Source

__all__ = ["Shape", "ShapeError"]

_VERSION = 1


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


class Shape:
    """Which arguments a call takes, or what a question's answer may be (one field named `answer`).

    Annotations are read on first use, so a shape costs nothing where nothing is held.
    """

    def __init__(
        self, read: Callable[[], Source] | None, descriptor: Descriptor | None = None, *, around: str | None = None
    ) -> None:
        self._read = read
        self._given = descriptor
        self._around = around

    @classmethod
    def of(cls, function: Callable[..., object], *, redact: Collection[str] = ()) -> Shape:
        """Return the shape of a function's parameters.

        Args:
            function: Any callable.
            redact: Names that mark a secret, besides the usual ones: a default under them is not written down.
        """

        def read() -> Source:
            from sayso.model.shape.source import of_function

            return of_function(function, redact)

        return cls(read)

    @classmethod
    def of_type(cls, annotation: Any) -> Shape:
        """Return the shape of an answer of this type."""

        def read() -> Source:
            from sayso.model.shape.source import of_type

            return of_type(annotation)

        return cls(read)

    @classmethod
    def from_text(cls, text: str) -> Shape:
        """Return the shape that was stored as `text`, with stand-ins for the program's classes; nothing is imported.

        Raises:
            ValueError: It is not the text of a shape, or of a newer one.
        """
        return _from_text(text)

    @classmethod
    def live(cls, digest: str) -> Shape | None:
        """Return the shape with this digest whose classes live in this process, if one was used here."""
        return _live.get(digest)

    def among(self, around: str) -> Shape:
        """Return the shape of the same live function when other values stand around it; it has another digest.

        Args:
            around: Digest of these values (see `sayso.model.fingerprint`).
        """
        return Shape(lambda: cast("Source", self._source), around=around)

    @cached_property
    def _source(self) -> Source | None:
        return None if self._read is None else self._read()

    @cached_property
    def _descriptor(self) -> Descriptor:
        if self._given is not None:
            return self._given
        source = cast("Source", self._source)
        told: Descriptor = {"version": _VERSION, "fields": source.fields, "defs": source.definitions}
        told |= {} if self._around is None else {"around": self._around}
        more = source.more_definitions()
        return {**told, "more": more} if more else told

    @cached_property
    def _defs(self) -> dict[str, Descriptor]:
        return {**self._descriptor["defs"], **self._descriptor.get("more", {})}

    @cached_property
    def _fields(self) -> dict[str, Descriptor]:
        return {field["name"]: field for field in self._descriptor["fields"]}

    @cached_property
    def text(self) -> str:
        """The descriptor as JSON, to be stored beside a request."""
        return text_of(self._descriptor)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the descriptor: parameters and their kinds, types, limits, fields of classes, defaults.

        What is around the function is in it where something plain is.
        Descriptions are not in it, nor are the subclasses that happen to be known, nor the order of a union's types.
        """
        told = {name: part for name, part in self._descriptor.items() if name != "more"}
        if any("description" in field for field in told["fields"]):
            told["fields"] = [{k: part for k, part in field.items() if k != "description"} for field in told["fields"]]
        digest = hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        if self._read is not None:
            _live[digest] = self
        return digest

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(self._fields)

    @property
    def classes(self) -> Mapping[str, type]:
        """The classes that may appear, by `module:QualName`: those of the annotations, and their known subclasses."""
        return self._stand_ins if self._source is None else self._source.classes

    @cached_property
    def _stand_ins(self) -> dict[str, type]:
        from sayso.model.shape.standin import stand_ins

        return stand_ins(self._defs)

    def validate(self, values: Mapping[str, object], *, written: Collection[str] = ()) -> dict[str, object]:
        """Return the values as the call takes them, in the order of its parameters, with defaults filled in.

        Text becomes what the type says (`"80"` an int, ISO text a date, base64 text bytes, a path, a decimal), objects
        become dataclasses and models, enum members go by name or by value; values that have their type already are left
        alone.

        Args:
            values: By the names of the fields.
            written: Fields whose values a person wrote: there `true` is no number, and a number is not `true`.

        Raises:
            ShapeError: With every problem found: unknown or missing names, wrong types, broken limits, no canonical
                form.
        """
        fitter = self._fitter()
        fitted: dict[str, object] = {}
        values, written = self.by_name(values), self.by_name(dict.fromkeys(written))
        for name, field in self._fields.items():
            fitter.is_written = name in written
            if name in values:
                fitted[name] = self._fit(fitter, name, values[name])
            elif field["required"]:
                fitter.problems.append(f"{name}: Field required")
            else:
                fitted[name] = self._default(fitter, name, fitted)
        fitter.problems += [self._unknown(name) for name in values if name not in self._fields]
        fitter.problems += self._taken_twice(fitted)
        if not fitter.problems:
            fitter.problems += _without_form(fitted, self.classes)
        if fitter.problems:
            raise ShapeError(fitter.problems)
        return fitted

    @cached_property
    def _by_alias(self) -> dict[str, str]:
        found = {alias: name for name, field in self._fields.items() for alias in field.get("aliases", ())}
        return {alias: name for alias, name in found.items() if alias not in self._fields}

    def by_name(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values by the names of the fields, where some are given by an alias.

        One that is given twice keeps its alias, by which it will be refused.
        """
        if not self._by_alias.keys() & values.keys():
            return values
        named = {name: value for name, value in values.items() if name not in self._by_alias}
        for alias, name in self._by_alias.items():
            if alias in values:
                named[alias if name in named else name] = values[alias]
        return named

    @cached_property
    def _bounded(self) -> list[str]:
        """The fields that have bounds beside their type, which count for calls that nobody is asked about as well."""
        described = () if self._source is None else self._source.described.keys() & self._source.checks.keys()
        return [name for name, field in self._fields.items() if name in described or _has_limits(field["type"])]

    @property
    def has_bounds(self) -> bool:
        """Whether a field has bounds beside its type."""
        return bool(self._bounded)

    def out_of_bounds(self, values: Mapping[str, object]) -> list[str]:
        """Return what is wrong with those values whose author wrote bounds for them; nothing for the others."""
        if not self._bounded:
            return []
        fitter = self._fitter()
        for name in self._bounded:
            if name in values and not self._has_type(name, values[name]):
                self._fit(fitter, name, values[name])
        return fitter.problems

    def misfits(self, values: Mapping[str, object]) -> list[str]:
        """Return what would keep a call with these values from being edited: problems as `validate` raises them."""
        scalars = self._scalars
        if all(type(value) is scalars.get(name) or self._has_type(name, value) for name, value in values.items()):
            return []
        try:
            self.validate(values)
        except ShapeError as error:
            return error.problems
        return []

    @cached_property
    def _scalars(self) -> dict[str, type]:
        """The fields of which nothing but one plain type is asked; looked up first, because most are."""
        checks = () if self._source is None else self._source.checks
        kinds = {name: scalar_of(field["type"]) for name, field in self._fields.items() if name not in checks}
        return {name: kind for name, kind in kinds.items() if kind is not None}

    def _has_type(self, name: str, value: object) -> bool:
        if name not in self._fields:
            return False
        source = self._source
        if source is not None and name in source.defaults and value is source.defaults[name]:
            return True
        return (source is None or name not in source.checks) and has_type(self._fields[name]["type"], value)

    def parse(self, name: str, text: str) -> object:
        """Return the value that a person typed for one field, e.g. `80`, `2026-01-31`, `["a", "b"]` or `null`.

        Raises:
            ShapeError: There is no such field, or the text does not fit its type.
        """
        name = self._by_alias.get(name, name)
        if name not in self._fields:
            raise ShapeError([self._unknown(name)])
        problems: list[str] = []
        for reading in self._readings(name, text):
            fitter = self._fitter()
            fitter.is_written = True
            value = self._fit(fitter, name, reading)
            if not fitter.problems:
                return value
            problems = problems or fitter.problems
        raise ShapeError(problems)

    def _readings(self, name: str, text: str) -> Iterator[object]:
        kind = self._fields[name]["type"]
        if kind["kind"] == "any" and _is_torn(text):
            raise ShapeError([f"{name}: Input begins like JSON and is none; give such a text in JSON's own quotes"])
        return self._fitter().readings(kind, text)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, as `validate` takes them from JSON."""
        from sayso.model.shape.schema import json_schema

        return json_schema(self._fields.values(), self._defs)

    def _fitter(self) -> Fitter:
        from sayso.model.shape.fit import Fitter

        return Fitter(self._defs, self.classes, has_code=self._source is not None)

    def _fit(self, fitter: Fitter, name: str, value: object) -> object:
        """Fit one field. Where the annotation is here and says more than its descriptor, pydantic checks that too."""
        before = len(fitter.problems)
        fitted = fitter.at(name, self._fields[name]["type"], value)
        if self._source is not None and name in self._source.checks:
            fitted = fitter.checked(name, self._source.checks[name], fitted)
        if len(fitter.problems) > before and self._is_default(name, value):
            del fitter.problems[before:]  # `limit: int = None` is no mistake of whoever leaves it out
            return value
        return fitted

    def _is_default(self, name: str, value: object) -> bool:
        if self._source is not None:
            return name in self._source.defaults and _is_equal(value, self._source.defaults[name])
        field = self._fields[name]
        return "default" in field and _is_equal(value, value_of(field["default"], self._stand_ins))

    def _default(self, fitter: Fitter, name: str, given: Mapping[str, object]) -> object:
        if self._source is not None:
            return self._source.default(name, given)
        field = self._fields[name]
        if "default" not in field:
            fitter.problems.append(f"{name}: has a default that only the program knows; give a value")
            return None
        return value_of(field["default"], self._stand_ins)

    def _taken_twice(self, fitted: Mapping[str, object]) -> list[str]:
        """Return what is wrong with `**kwargs` that name another parameter: that one's value would not be used."""
        stars = next((name for name, field in self._fields.items() if field.get("mode") == "kwargs"), None)
        more = fitted.get(stars) if stars is not None else None
        if not isinstance(more, Mapping):
            return []
        own = {name for name, field in self._fields.items() if field["mode"] in {"either", "keyword"}}
        return [f"{stars}: {name} is a parameter of its own" for name in sorted(own & more.keys())]

    def _unknown(self, name: str) -> str:
        problem = f"{ascii(name)[1:-1]}: there is no such argument ({_listed(self.names)})"
        whole = name.partition(".")[0]
        return (
            problem if whole == name or whole not in self._fields else f"{problem}; give the whole of {whole} as JSON"
        )


@lru_cache(maxsize=128)
def _from_text(text: str) -> Shape:
    # Kept, because stand-ins are made of pydantic models and a list of requests asks for the same few shapes.
    given = json.loads(text)
    if not isinstance(given, dict) or cast("Descriptor", given).get("version") != _VERSION:
        raise ValueError("this is not the text of a shape that this version of sayso knows")
    return Shape(None, cast("Descriptor", given))


_live: WeakValueDictionary[str, Shape] = WeakValueDictionary()


def _has_limits(part: object) -> bool:
    """Say whether a type has limits, or one of the types in it."""
    if isinstance(part, list):
        return any(map(_has_limits, cast("list[object]", part)))
    if not isinstance(part, dict):
        return False
    return "limits" in part or any(map(_has_limits, cast("dict[str, object]", part).values()))


def _listed(names: Collection[str]) -> str:
    return f"there are {', '.join(names)}" if names else "it takes none"


def _is_torn(text: str) -> bool:
    """Say whether a typed text begins like JSON and is none: where anything goes, it would pass as a plain text."""
    if text.strip()[:1] not in {"{", "[", '"'}:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _is_equal(value: object, other: object) -> bool:
    try:
        return encode({"": value}).text == encode({"": other}).text
    except ArgumentError:
        return False


def _without_form(values: Mapping[str, object], classes: Mapping[str, type]) -> list[str]:
    try:
        check_round_trip(encode(values), classes)
    except ArgumentError as error:
        return [f"{error.argument}: {error.reason}"]
    return []
