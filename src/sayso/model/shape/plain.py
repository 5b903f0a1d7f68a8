"""Whether a value has its type already, seen without pydantic: most of a program's calls do, and cost nothing more.

A no says nothing: the value may still fit (`sayso.model.shape.fit`). The invariant: a yes is never given to a value
that a fitting would refuse.
"""

from __future__ import annotations

from typing import cast

from sayso.model.shape.limits import Descriptor

__all__ = ["has_type", "scalar_of"]

_SCALARS: dict[str, type] = {"str": str, "int": int, "bool": bool}


def scalar_of(part: Descriptor) -> type | None:
    """Return the one type of which a value must be, where `part` asks for nothing else."""
    return _SCALARS.get(part["kind"]) if len(part) == 1 else None


def has_type(part: Descriptor, value: object) -> bool:
    """Say whether `value` is surely what `part` describes."""
    match part["kind"]:
        case "any":
            return True
        case "none":
            return value is None
        case "union":
            return any(has_type(kind, value) for kind in part["of"])
        case "list" if part.keys() == {"kind", "items"} and type(value) is list:
            return all(has_type(part["items"], item) for item in cast("list[object]", value))
        case _:
            return type(value) is scalar_of(part)
