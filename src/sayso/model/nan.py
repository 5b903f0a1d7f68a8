"""Finds NaN in the arguments of a call.

Every comparison with NaN is false, so a rule such as `amount > 100` would let it through. The search covers the
containers and classes that have a canonical form; the gate decides what to do. Invariant: no user code is called, each
container is visited once, and scalars cost next to nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, cast

from sayso.model.canonical.names import place

_LONGEST = 20  # steps of a place that are written out
_PLAIN = frozenset({str, int, bool, bytes, type(None)})


def nan_in(arguments: Mapping[str, Any]) -> str | None:
    """Return where the first NaN stands, e.g. `order.lines[2].price`; None where there is none."""
    for value in arguments.values():  # most calls have nothing but scalars
        if type(value) not in _PLAIN and (type(value) is not float or value != value):  # noqa: PLR0124  true of a NaN alone
            break
    else:
        return None
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), arguments)]
    seen = set[int]()
    while waiting:
        steps, value = waiting.pop()
        if _is_nan(value):
            return place(steps) if len(steps) <= _LONGEST else f"{place(steps[:_LONGEST])}…"
        if id(value) in seen:
            continue
        seen.add(id(value))
        found = [
            ((*steps, key if type(key) is int else str(key))[: _LONGEST + 1], part)
            for key, part in _parts(value)
            if type(part) not in _PLAIN and (type(part) is not float or part != part)  # noqa: PLR0124  as above
        ]
        waiting += reversed(found)
    return None


def _is_nan(value: object) -> bool:
    if isinstance(value, float):
        return float.__ne__(value, value)
    decimal = sys.modules.get("decimal")  # where nobody imported it, nobody has made one
    return decimal is not None and isinstance(value, decimal.Decimal) and decimal.Decimal.is_nan(value)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return what a list, tuple, dict, dataclass or model holds, by name or place; nothing for all else."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).items()
    if isinstance(value, list | tuple):
        return enumerate(cast("list[Any]", value))
    kind = cast("Any", type(value))
    declared = getattr(kind, "__dataclass_fields__", None)
    if declared is not None:
        return [(name, getattr(value, name, None)) for name in declared]
    if hasattr(kind, "__pydantic_fields__"):
        extra: dict[str, Any] = getattr(value, "__pydantic_extra__", None) or {}
        return [*cast("dict[str, Any]", vars(value)).items(), *extra.items()]
    return ()
