"""The values that a gated function captures in its closure, its bound object or its `functools.partial`.

Plain immutable values (text, numbers, enum members, tuples of these) are part of the fingerprint, in canonical form,
with their values at the time of the call; a variable that the function itself assigns is not. Other objects (an API
client, a list) are compared by identity, in one process: if two functions of one name captured different ones, the
second that meets a request raises `ConfigError`.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache, partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, cast
from weakref import WeakValueDictionary

from sayso.errors import ArgumentError, ConfigError
from sayso.model import canonical
from sayso.model.canonical.json_tree import tag_of
from sayso.model.ids import captured_digest

_SCALARS = frozenset({bool, int, float, str, bytes, type(None)})
_ASSIGNS = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_NOTHING = object()


ENTERED = "sayso_entered"
"""The attribute in which a wrapper of sayso names the function that it calls, so that it is not taken for captured."""


class CapturedValues:
    """The values that one function captures.

    Args:
        function: The function, or a wrapper that names it in its attribute `ENTERED`.
        has_own_name: Whether its name identifies its code. If a gate was given another name, the code is compared too.
    """

    def __init__(self, function: Callable[..., Any], *, has_own_name: bool = True) -> None:
        self._function, self._has_own_name = _entered(function), has_own_name
        self._cells: list[tuple[CellType, object]] | None = None
        self._objects: list[object] = []
        self._digest: str | None = None

    @property
    def is_none(self) -> bool:
        """Whether the function can never capture anything, so that its name identifies it."""
        function = self._function
        is_plain = type(function) is FunctionType and function.__closure__ is None  # and no object that wraps one
        return self._has_own_name and is_plain and not _hides_defaults(cast("FunctionType", function))

    def digest(self) -> str | None:
        """Return the digest of the plain values; None if there are none.

        It is computed again if a variable was assigned since the last call.
        """
        if self._cells is None or [cell for cell, was in self._cells if _content(cell) is not was]:
            self._cells, self._objects, seen = [], [], set[int]()
            layers = list[Callable[..., Any]]()  # each decorator may capture something, too
            inner = inspect.unwrap(self._function, stop=layers.append)
            forms = [form for layer in (*layers, inner) for form in self._forms("", layer, seen)]
            if not self._has_own_name:
                self._objects.append(getattr(inner, "__code__", None))
            self._digest = captured_digest(forms) if forms else None
        return self._digest

    def check_asked(self, request_id: str, tool: str) -> None:
        """Register that the function asked for or found a request; raises `ConfigError` if another one asked for it."""
        asked = _asked.setdefault(request_id, self)
        if asked is not self and not asked.is_same(self):
            raise ConfigError(
                f"two functions are gated as {tool!r}, that capture different objects, and the other one asked for"
                f" {request_id}; give each its own name=. The call was not run"
            )
        if len(_asked) > _MOST:
            _asked.pop(next(iter(_asked.keys())), None)

    def is_same(self, other: CapturedValues) -> bool:
        """Return whether two functions captured the same objects; equal code counts as the same."""
        for each in (self, other):
            each.digest()
        ours, theirs = self._objects, other._objects
        return len(ours) == len(theirs) and all(
            a is b or (type(a) is CodeType and a == b) for a, b in zip(ours, theirs, strict=True)
        )

    def _forms(self, place: str, value: Any, seen: set[int]) -> Iterator[bytes]:
        # By its real type: `isinstance` uses the object's `__class__`, which a proxy may not have here and now.
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]  # of Any
        if kind is FunctionType:
            yield from self._forms_of_function(place, value, seen)
        elif kind is MethodType:
            yield from self._forms(f"{place}()", value.__func__, seen)
            yield from self._forms(f"{place}.self", value.__self__, seen)
        elif issubclass(kind, partial):
            hiding = cast("partial[Any]", value)
            keywords: Mapping[str, Any] = hiding.keywords
            for name, hidden in (("", hiding.func), *enumerate(hiding.args), *sorted(keywords.items())):
                yield from self._forms(f"{place}({name})", hidden, seen)
        elif _is_plain(value):
            try:
                yield canonical.encode({place: value}).digest_input
            except ArgumentError:  # not a number, a lone surrogate, flags without a name
                self._objects.append(value)
        elif value is not _NOTHING:
            self._objects.append(value)

    def _forms_of_function(self, place: str, function: FunctionType, seen: set[int]) -> Iterator[bytes]:
        itself = self._function
        # A recursive function finds itself in its cell, behind its gate.
        if id(function) in seen or (place and inspect.unwrap(function, stop=lambda one: one is itself) is itself):
            return
        seen.add(id(function))
        if place:
            self._objects.append(function.__code__)
        code, cells = function.__code__, cast("list[tuple[CellType, object]]", self._cells)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name in _assigned(code):
                self._objects.append(cell)
            else:
                cells.append((cell, _content(cell)))
                yield from self._forms(f"{place}{name}", cells[-1][1], seen)
        if place or _hides_defaults(function):  # its own defaults are arguments; those of a captured one are hidden
            for index, hidden in enumerate((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())):
                yield from self._forms(f"{place}={index}", hidden, seen)


_MOST = 10_000
_asked: WeakValueDictionary[str, CapturedValues] = WeakValueDictionary()
"""The function that asked for each recent request, as long as its gate exists."""


def forget(request_id: str) -> None:
    """Forget which function asked for a request whose call has ended."""
    _asked.pop(request_id, None)


def _entered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a wrapper of sayso calls, or the function itself."""
    if type(function) is not FunctionType:  # reading an attribute of a proxy may run its code, and raise
        return function
    entered = function.__dict__.get(ENTERED)
    # A wrapper around the wrapper has a copy of the attribute, and may capture values of its own.
    return entered if entered is not None and function.__dict__.get("__wrapped__") is entered else function


def _hides_defaults(function: FunctionType) -> bool:
    """Return whether a function shows another signature than its own, that of the function that it wraps."""
    return not function.__dict__.keys().isdisjoint({"__signature__", "__wrapped__"})


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return _NOTHING


def _is_plain(value: object) -> bool:
    kind = type(value)
    if kind is tuple:
        return all(_is_plain(item) for item in cast("tuple[object, ...]", value))
    return kind in _SCALARS or issubclass(kind, Enum) or tag_of(kind) is not None


@lru_cache(maxsize=256)
def _assigned(code: CodeType) -> frozenset[str]:
    """Return the outer names that a function, or one inside it, assigns."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in _ASSIGNS}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _assigned(inner)
    return frozenset(names).intersection(code.co_freevars)
