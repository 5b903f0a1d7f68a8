"""A filter as a condition in SQL; every value is bound, and the words are constants."""

from __future__ import annotations

from typing import Any

from sayso.clock import microseconds
from sayso.model.request import LIVE, State
from sayso.stores.base import Filter

__all__ = ["where_of"]


def where_of(wanted: Filter) -> tuple[list[str], list[Any]]:
    """Return the parts of a condition that all hold, and the values bound in them."""
    parts: list[str] = []
    values: list[Any] = []
    if wanted.states:
        part, values = _in_states(wanted)
        parts.append(part)
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


def _in_states(wanted: Filter) -> tuple[str, list[Any]]:
    part, values = f"state IN ({', '.join('?' * len(wanted.states))})", list[Any](sorted(wanted.states))
    if wanted.states <= LIVE:
        part = f"live = 1 AND {part}"
    elif not wanted.states & LIVE:
        part = f"live IS NULL AND {part}"
    if wanted.at is None:
        return part, values
    at = microseconds(wanted.at)
    # Only what is live has an end.
    part, values = f"{part} AND (ends_at IS NULL OR ends_at > ?)", [*values, at]
    if State.EXPIRED in wanted.states:
        part, values = f"({part} OR (live = 1 AND ends_at <= ?))", [*values, at]
    return part, values
