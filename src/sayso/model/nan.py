"""Finds NaN in the arguments of a call.

Every comparison with NaN is false, so a rule such as `amount > 100` would let it through. The search covers the
containers and classes that have a canonical form; the gate decides what to do. Invariant: no user code is called, each
container is visited once, and scalars cost next to nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sayso.model.canonical.names import place

__all__ = ["nan_in"]

_LONGEST = 20  # steps of a place that are written out
_PLAIN = frozenset({str, int, bool, bytes, type(None)})

# A place in a value, linked to the one around it, so that depth costs nothing.
_Step = tuple["_Step | None", "str | int"]


def nan_in(arguments: Mapping[str, Any]) -> str | None:
    """Return where the first NaN stands, e.g. `order.lines[2].price`; None where there is none."""
    for value in arguments.values():  # most calls have nothing but scalars
        if type(value) not in _PLAIN and (type(value) is not float or value != value):  # noqa: PLR0124
            break
    else:
        return None
    waiting = _worth_a_look(None, arguments)
    seen = set[int]()
    while waiting:
        step, value = waiting.pop()
        if _is_nan(value):
            return _written(step)
        parts = _parts(value)
        if parts is not None and id(value) not in seen:
            seen.add(id(value))
            waiting += _worth_a_look(step, parts)
    return None


def _worth_a_look(around: _Step | None, parts: Mapping[Any, Any] | Sequence[Any]) -> list[tuple[_Step, Any]]:
    """Return the parts of a value that are or may hold a NaN, the last one first."""
    named = enumerate(parts) if isinstance(parts, (list, tuple)) else cast("Mapping[Any, Any]", parts).items()
    found: list[tuple[_Step, Any]] = []
    for key, part in named:
        if type(part) not in _PLAIN and (type(part) is not float or part != part):  # noqa: PLR0124  true of a NaN alone
            found.append(((around, key if type(key) is int else str(key)), part))
    found.reverse()
    return found


def _written(step: _Step | None) -> str:
    steps: list[str | int] = []
    while step is not None:
        step, name = step
        steps.append(name)
    steps.reverse()
    return place(steps) if len(steps) <= _LONGEST else f"{place(steps[:_LONGEST])}…"


def _is_nan(value: object) -> bool:
    if isinstance(value, float):
        return float.__ne__(value, value)
    decimal = sys.modules.get("decimal")  # where nobody imported it, nobody has made one
    return decimal is not None and isinstance(value, decimal.Decimal) and decimal.Decimal.is_nan(value)


def _parts(value: Any) -> dict[Any, Any] | list[Any] | tuple[Any, ...] | None:
    """Return what a list, tuple, dict, dataclass or model holds; None for all else."""
    if isinstance(value, list | tuple | dict):
        return cast("Any", value)
    kind = cast("Any", type(value))
    declared = getattr(kind, "__dataclass_fields__", None)
    if declared is not None:
        return {name: getattr(value, name, None) for name in declared}
    if hasattr(kind, "__pydantic_fields__"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    return None
