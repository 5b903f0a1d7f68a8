"""Values on their way through a pause: into the run's record, and back as what they were.

A value is kept in its canonical form, so that an int comes back as an int and a dataclass as itself; its class is
found through the annotation of what returned it. What has no such form is kept as plain JSON values, which is what a
model reads anyway; who needs the value itself is told that it is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import isfinite, isnan
from typing import Any, NamedTuple, cast, get_type_hints

from sayso.errors import ArgumentError, ValueNotKeptError
from sayso.model import canonical
from sayso.model.schema import Schema
from sayso.model.text import storable

__all__ = ["Given", "Later", "Live", "Lost", "Made", "back", "keep", "plain", "recorded", "result_classes"]

_PLAIN = (bool, int)


def keep(value: Any, classes: Mapping[str, type], whose: str) -> str:
    """Return a value's canonical form.

    Args:
        value: What to keep.
        classes: Those that may appear in it, by `module:QualName`.
        whose: Whose value it is, for the error.

    Raises:
        ValueNotKeptError: It has no such form, or would come back as something else.
    """
    try:
        form = canonical.encode({"value": value})
        canonical.check_round_trip(form, classes)
    except ArgumentError as error:
        raise ValueNotKeptError(whose, error.reason) from None
    return form.text


def back(text: str, classes: Mapping[str, type]) -> Any:
    """Return the value whose form was kept."""
    return canonical.decode(text, classes)["value"]


def recorded(result: str) -> Any:
    """Return the result that a request's record tells, as people may see it."""
    return cast("dict[str, Any]", canonical.display(canonical.load(result)))["result"]


def plain(value: Any) -> Any:
    """Return a value as plain JSON values, for events and models; what has no such form as its `str`. Never raises."""
    if isinstance(value, str):
        return storable(value)
    if value is None or isinstance(value, _PLAIN):
        return value
    from pydantic_core import to_jsonable_python

    for mode in ("utf8", "base64"):  # bytes that are no text have a form, too
        with suppress(Exception):  # user code is asked for its words, and what nests too deeply has no form at all
            return _fit(to_jsonable_python(value, fallback=str, bytes_mode=mode, serialize_unknown=True))
    return f"<{type(value).__name__} without a form as JSON>"


def _fit(tree: Any) -> Any:
    """Return JSON values with text where JSON has no number, and without what no file takes."""
    match tree:
        case str():
            return storable(tree)
        case float() if not isfinite(tree):
            return "NaN" if isnan(tree) else "Infinity" if tree > 0 else "-Infinity"
        case list():
            return [_fit(item) for item in cast("list[Any]", tree)]
        case dict():
            return {storable(name): _fit(item) for name, item in cast("dict[str, Any]", tree).items()}
        case _:
            return tree


class Later(ABC):
    """Something that is written down when, and if, its run is kept."""

    @abstractmethod
    def told(self) -> Any:
        """Return what the record keeps of it: JSON values."""


class Live(Later):
    """A value that a step gave.

    Attributes:
        value: The value.
    """

    def __init__(self, value: Any, function: Callable[..., Any], whose: str) -> None:
        self.value = value
        self._function, self._whose = function, whose

    def told(self) -> dict[str, Any]:
        """Return what the record keeps of it: `form`, or else `plain` and why the value itself is `lost`."""
        try:
            return {"form": keep(self.value, result_classes(self._function), self._whose)}
        except ValueNotKeptError as error:
            reason = error.reason
        except Exception as error:  # noqa: BLE001  a value's own code: what it does must not undo that it was given
            reason = f"raised {type(error).__name__} when it was written down"
        return {"plain": plain(self.value), "lost": reason}


class Given(Later):
    """What a run was called with."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments

    def told(self) -> str:
        """Return the canonical form; raises `ArgumentError` where there is none."""
        return canonical.encode(dict(self._arguments)).text


class Made(Later):
    """The default parameters that were made for a call.

    Attributes:
        value: By name.
    """

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    def told(self) -> str | None:
        """Return the canonical form; None where there is none: a resumed run then makes them anew."""
        try:
            return canonical.encode(self.value).text
        except ArgumentError:
            return None


class Lost(NamedTuple):
    """A value that could not be kept: whoever takes it must be told, whoever only shows it has the plain one.

    Attributes:
        plain: As JSON values.
        reason: Why, in a sentence.
    """

    plain: Any
    reason: str


@lru_cache(maxsize=1024)
def result_classes(function: Callable[..., Any]) -> Mapping[str, type]:
    """Return the classes that a function's result may hold, by its annotation; none where it says nothing usable."""
    try:
        annotation = get_type_hints(function, include_extras=True).get("return")
    except Exception:  # noqa: BLE001  annotations are user code; what cannot be read names no class
        return {}
    return {} if annotation is None else Schema.of_type(annotation).classes
