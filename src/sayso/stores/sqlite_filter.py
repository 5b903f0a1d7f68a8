"""A filter as a condition in SQL; every value is bound, and the words are constants."""

from __future__ import annotations

from typing import Any

from sayso.model.request import LIVE
from sayso.stores.base import Filter

__all__ = ["where_of"]


def where_of(wanted: Filter) -> tuple[list[str], list[Any]]:
    """Return the parts of a condition that all hold, and the values bound in them."""
    parts: list[str] = []
    values: list[Any] = []
    if wanted.states:
        if wanted.states <= LIVE:
            parts.append("live = 1")
        elif not wanted.states & LIVE:
            parts.append("live IS NULL")
        parts.append(f"state IN ({', '.join('?' * len(wanted.states))})")
        values += sorted(wanted.states)
    for column, value in (("run_id", wanted.run_id), ("risk", wanted.risk), ("kind", wanted.kind)):
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if wanted.name is not None:
        parts.append("? IN (name, tool)")
        values.append(wanted.name)
    if wanted.claimed_by is not None:
        parts.append("claimed_by = ?")
        values.append(wanted.claimed_by.folded)
    if wanted.text is not None:
        parts.append("instr(search, ?) > 0")
        values.append(wanted.text.casefold())
    return parts, values
