"""The limits that stand beside a type: in `Annotated[int, Field(ge=1)]`, in annotated_types, in the fields of pydantic.

They are read by their attributes, so neither library is imported.
The invariant: a limit that cannot be put into words is reported, never dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, cast

from sayso.errors import ArgumentError
from sayso.model.canonical import form_of

__all__ = ["Descriptor", "limited"]

Descriptor: TypeAlias = dict[str, Any]
"""A type, a field, a class or a whole shape as JSON; `sayso.model.shape.describe` says which keys there are."""

_ORDER = frozenset({"ge", "gt", "le", "lt"})
_MEASURE = _ORDER | {"multiple_of", "max_digits", "decimal_places"}
_SIZE = frozenset({"min_length", "max_length"})
_TEXT = _SIZE | {"pattern", "strip_whitespace", "to_lower", "to_upper"}
_STRICT = frozenset({"strict"})
_ALL = _MEASURE | _TEXT | _STRICT
# Only JSON's own scalars can be strict: the others are written as text, which a strict type would refuse.
_TAKEN = {
    "str": _TEXT | _STRICT,
    "bool": _STRICT,
    "decimal": _MEASURE,
    **dict.fromkeys(("int", "float"), _ORDER | {"multiple_of"} | _STRICT),
    **dict.fromkeys(("datetime", "date", "time", "timedelta"), _ORDER),
    **dict.fromkeys(("bytes", "secret", "list", "tuple", "dict"), _SIZE),
}
_INLINE_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}


def limited(descriptor: Descriptor, metadata: Iterable[object]) -> tuple[Descriptor, bool]:
    """Return the descriptor with the limits in the metadata, and whether they are all of what the metadata says."""
    is_whole = True
    for item in _flat(metadata):
        limits = _limits(item)
        is_whole = is_whole and _is_told(item, limits)
        descriptor, is_taken = _with_limits(descriptor, limits)
        is_whole = is_whole and is_taken
    return descriptor, is_whole


def _is_ours(item: object) -> bool:
    return type(item).__module__.partition(".")[0] in {"annotated_types", "pydantic"}


def _flat(metadata: Iterable[object]) -> Iterator[object]:
    """Yield single limits: a pydantic `Field` and the grouped ones (`Interval`, `Len`) hold several."""
    for item in metadata:
        if _is_ours(item) and type(item).__name__ == "FieldInfo":
            yield from _flat(cast("Any", item).metadata)
        elif _is_ours(item) and type(item).__name__ != "StringConstraints" and isinstance(item, Iterable):
            yield from _flat(cast("Iterable[object]", item))
        else:
            yield item


def _limits(item: object) -> Descriptor:
    if type(item).__name__ == "UrlConstraints":
        return {}  # only some versions of pydantic have it stand here
    limits: Descriptor = {}
    for name in sorted(_ALL) if _is_ours(item) else ():
        value = getattr(item, name, None)
        if value is None or value is False:
            continue
        try:
            limits[name] = form_of(_pattern(cast("re.Pattern[str]", value)) if isinstance(value, re.Pattern) else value)
        except ArgumentError:
            continue
    return limits


def _pattern(value: re.Pattern[str]) -> str:
    flags = "".join(letter for flag, letter in _INLINE_FLAGS.items() if flag in re.RegexFlag(value.flags))
    return f"(?{flags}){value.pattern}" if flags else value.pattern


def _is_told(item: object, limits: Descriptor) -> bool:
    """Say whether nothing of an item is lost: it is a plain limit, or (as a description) has no say in validation."""
    if type(item).__name__ == "StringConstraints":
        return True
    if _is_ours(item) and getattr(item, "allow_inf_nan", None) is False:
        return False
    if hasattr(item, "func") or hasattr(item, "__get_pydantic_core_schema__"):
        return False
    return bool(limits) or not _is_ours(item) or not ((_MEASURE | _TEXT) & set(dir(item)))


def _with_limits(descriptor: Descriptor, limits: Descriptor) -> tuple[Descriptor, bool]:
    """Return the descriptor with those limits that its kind can have; a union hands them on to its parts."""
    if not limits or descriptor["kind"] == "none":
        return descriptor, True
    if descriptor["kind"] == "union":
        parts = [_with_limits(part, limits) for part in descriptor["of"]]
        return {**descriptor, "of": [part for part, _ in parts]}, all(is_taken for _, is_taken in parts)
    taken = {name: limits[name] for name in limits if name in _TAKEN.get(descriptor["kind"], ())}
    before: Descriptor = descriptor.get("limits", {})
    is_whole = len(taken) == len(limits) and all(before.get(name, form) == form for name, form in taken.items())
    if not taken:
        return descriptor, is_whole
    merged = {**before, **taken}
    return {**descriptor, "limits": {name: merged[name] for name in sorted(merged)}}, is_whole
