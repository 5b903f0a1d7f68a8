"""Filters and cursors, as every store understands them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sayso.model.call import Call
from sayso.model.lifecycle import is_due
from sayso.model.request import Request, State

if TYPE_CHECKING:
    from sayso.stores.base import Filter

__all__ = ["matches", "read_cursor", "search_text"]


def read_cursor(cursor: str | None) -> int | None:
    """Return the place that a cursor names; raises `ValueError` for what is none."""
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise ValueError(f"{cursor!r} is not a cursor of this list; begin again without one")
    return int(cursor)


def search_text(request: Request) -> str:
    """Return what `Filter.text` is looked for in: never an argument, which may be sealed."""
    subject = request.subject
    name = subject.tool if isinstance(subject, Call) else subject.text
    return "\n".join([request.id, request.run_id, name, request.prompt or ""]).casefold()


def matches(request: Request, wanted: Filter) -> bool:
    """Say whether a request passes a filter."""
    subject = request.subject
    names = (subject.name, subject.tool) if isinstance(subject, Call) else ()
    return (
        (not wanted.states or _state(request, wanted) in wanted.states)
        and (wanted.kind is None or request.kind == wanted.kind)
        and (wanted.run_id is None or request.run_id == wanted.run_id)
        and (wanted.name is None or wanted.name in names)
        and (wanted.risk is None or request.risk == wanted.risk)
        and (wanted.claimed_by is None or _is_claimed_by(request, wanted))
        and (wanted.text is None or wanted.text.casefold() in search_text(request))
    )


def _state(request: Request, wanted: Filter) -> State:
    return State.EXPIRED if wanted.at is not None and is_due(request, wanted.at) else request.state


def _is_claimed_by(request: Request, wanted: Filter) -> bool:
    claimed, by = request.claimed_by, wanted.claimed_by
    return claimed is not None and by is not None and claimed.is_same(by)
