"""Where a call's arguments hold a NaN.

Every comparison with a NaN is false, so a rule such as `amount > 100` would let it through. Here is the walk that
finds one, in the containers and classes that have a canonical form; what is done about it is the gate's. Invariant:
it asks no user code anything, follows each container once, and costs next to nothing where there are only scalars.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from sayso.model.canonical.names import place

__all__ = ["nan_in"]

_LONGEST = 20  # steps of a place that are written out
_PLAIN = frozenset({str, int, bool, bytes, type(None)})


def nan_in(arguments: Mapping[str, object]) -> str | None:
    """Return where the first NaN stands, e.g. `order.lines[2].price`; None where there is none."""
    for name, value in arguments.items():
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is float:
            if value != value:  # noqa: PLR0124  true of a NaN alone
                return name
            continue
        if _holds_nan(value):
            return _first_below(value, name)
    return None


def _holds_nan(root: object) -> bool:
    waiting: list[object] = [root]
    seen = set[int]()
    while waiting:
        value = waiting.pop()
        parts = _parts(value)
        if parts is None:
            if _is_nan(value):
                return True
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        for part in parts.values() if isinstance(parts, dict) else parts:
            kind = type(part)
            if kind in _PLAIN:
                continue
            if kind is not float:
                waiting.append(part)
            elif part != part:  # noqa: PLR0124
                return True
    return False


class _Step(NamedTuple):
    """A place in a value, linked to the one around it, so that depth costs nothing."""

    around: _Step | None
    name: str | int


def _first_below(root: object, name: str) -> str:
    waiting: list[tuple[_Step, object]] = [(_Step(None, name), root)]
    seen = set[int]()
    while waiting:
        step, value = waiting.pop()
        if _is_nan(value):
            return _written(step)
        parts = _parts(value)
        if parts is None or id(value) in seen:
            continue
        seen.add(id(value))
        named = parts.items() if isinstance(parts, dict) else enumerate(parts)
        inner = [(key if type(key) is int else str(key), part) for key, part in named if type(part) not in _PLAIN]
        waiting += [(_Step(step, key), part) for key, part in reversed(inner)]
    return name


def _written(step: _Step | None) -> str:
    steps: list[str | int] = []
    while step is not None:
        steps.append(step.name)
        step = step.around
    steps.reverse()
    return place(steps) if len(steps) <= _LONGEST else f"{place(steps[:_LONGEST])}…"


def _is_nan(value: object) -> bool:
    if isinstance(value, float):
        return float.__ne__(value, value)
    decimal = sys.modules.get("decimal")  # where nobody imported it, nobody has made one
    return decimal is not None and isinstance(value, decimal.Decimal) and decimal.Decimal.is_nan(value)


def _parts(value: object) -> Sequence[object] | dict[Any, object] | None:
    """Return what a list, tuple, dict, dataclass or model holds; None for all else."""
    if isinstance(value, list | tuple):
        return cast("Sequence[object]", value)
    if isinstance(value, dict):
        return cast("dict[Any, object]", value)
    kind = cast("Any", type(value))
    declared = getattr(kind, "__dataclass_fields__", None)
    if declared is not None:
        return {name: getattr(value, name, None) for name in declared}
    if hasattr(kind, "__pydantic_fields__"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    return None
