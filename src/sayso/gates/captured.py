"""The values that a gated function captures in its closure, its bound object or its `functools.partial`.

Plain immutable values (text, numbers, enum members, tuples of these) are part of the fingerprint, in canonical form.
Other objects (an API client, a list) are compared by identity within one process. For a variable that the function
itself assigns, the closure cell is compared and not the value. Invariant: two functions with the same code but
different captured values are never mistaken for one another.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache, partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, cast

from sayso.errors import ArgumentError
from sayso.model import canonical
from sayso.model.canonical.tags import tag_of
from sayso.model.fingerprint import around_digest

__all__ = ["Captured", "CapturedValues", "captures_nothing", "is_same"]

_SCALARS = frozenset({bool, int, float, str, bytes, type(None)})
_ASSIGNS = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_NOTHING = object()


class Captured(NamedTuple):
    """What a function captured.

    Attributes:
        digest: Digest of the plain values; None where there are none.
        objects: Everything else, in a fixed order; compare it by `is_same`.
    """

    digest: str | None
    objects: list[object]


def captures_nothing(function: Callable[..., Any]) -> bool:
    """Return whether a function captures nothing, now and later."""
    return not isinstance(function, FunctionType | MethodType | partial) or (
        isinstance(function, FunctionType) and function.__closure__ is None
    )


class CapturedValues:
    """The captured values of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._last: tuple[Captured, list[tuple[CellType, object]]] | None = None

    def now(self) -> Captured:
        """Return them as they are now; a variable may have been assigned since the last call."""
        last = self._last
        if last is None or _has_changed(last[1]):
            walk = _walked(self._function)
            found = Captured(around_digest(walk.plain) if walk.plain else None, walk.objects)
            last = self._last = found, walk.cells
        return last[0]


def _walked(function: Callable[..., Any]) -> _Walk:
    walk = _Walk(function)
    if isinstance(function, FunctionType):
        walk.function("", function)
        return walk
    walk.value("", function)
    inner = inspect.unwrap(function)
    if inner is not function:
        walk.value("", inner)
    return walk


def _has_changed(cells: list[tuple[CellType, object]]) -> bool:
    # Asked several times in every call, hence no `any` over a generator.
    for cell, was in cells:  # noqa: SIM110
        if _content(cell) is not was:
            return True
    return False


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return _NOTHING


def is_same(ours: list[object], theirs: list[object]) -> bool:
    """Return whether two functions captured the same objects; equal code counts as the same."""
    return len(ours) == len(theirs) and all(
        a is b or (isinstance(a, CodeType) and a == b) for a, b in zip(ours, theirs, strict=True)
    )


class _Walk:
    """A walk through the cells of a function, and of the functions in these."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain: list[bytes] = []
        self.objects: list[object] = []
        self.cells: list[tuple[CellType, object]] = []
        self._itself = function
        self._seen: set[int] = set()

    def function(self, place: str, function: FunctionType) -> None:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name in _assigned(code):
                self.objects.append(cell)
            else:
                self._cell(f"{place}{name}", cell)

    def value(self, place: str, value: Any) -> None:
        # By its real type: `isinstance` asks the object itself, and a proxy may have no answer here and now.
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]  # of Any
        if kind is FunctionType:
            self._inner(place, value)
        elif kind is MethodType:
            self.value(f"{place}()", value.__func__)
            self.value(f"{place}.self", value.__self__)
        elif issubclass(kind, partial):
            for part, hidden in _parts(cast("partial[Any]", value)):
                self.value(f"{place}({part})", hidden)
        elif (form := _form(place, value)) is not None:
            self.plain.append(form)
        else:
            self.objects.append(value)

    def _cell(self, place: str, cell: CellType) -> None:
        value = _content(cell)
        self.cells.append((cell, value))
        if value is not _NOTHING:
            self.value(place, value)

    def _inner(self, place: str, function: FunctionType) -> None:
        # A function that calls itself finds itself in its cell, behind its gate.
        if inspect.unwrap(function, stop=self._is_itself) is self._itself:
            return
        self.objects.append(function.__code__)
        self.function(f"{place}.", function)
        hidden = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        for index, value in enumerate(hidden):
            self.value(f"{place}={index}", value)

    def _is_itself(self, function: object) -> bool:
        return function is self._itself


def _parts(hiding: partial[Any]) -> Iterator[tuple[str, Any]]:
    yield "", hiding.func
    yield from ((str(index), value) for index, value in enumerate(hiding.args))
    keywords: Mapping[str, Any] = hiding.keywords
    yield from sorted(keywords.items())


def _form(place: str, value: object) -> bytes | None:
    if not _is_plain(value):
        return None
    try:
        return canonical.encode({place: value}).digest_input
    except ArgumentError:  # not a number, a lone surrogate, flags without a name
        return None


def _is_plain(value: object) -> bool:
    kind = type(value)
    if kind is tuple:
        return all(_is_plain(item) for item in cast("tuple[object, ...]", value))
    return kind in _SCALARS or issubclass(kind, Enum) or tag_of(kind) is not None


@lru_cache(maxsize=256)
def _assigned(code: CodeType) -> frozenset[str]:
    """Return the names from outside that a function, or one inside of it, assigns."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in _ASSIGNS}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _assigned(inner)
    return frozenset(names).intersection(code.co_freevars)
