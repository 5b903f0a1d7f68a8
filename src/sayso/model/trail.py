"""Where each step of the journal leaves its request: the state machine, read backwards from its record.

`sayso.model.lifecycle` makes the steps; this says only what can be known from a step's row. Invariant: a step that
this version does not know claims nothing.
"""

from __future__ import annotations

import json
from typing import Any, cast

from sayso.model.request import State

__all__ = ["asked_digest_in", "states_after"]

_LEADS_TO = {
    "asked": State.PENDING,
    "voted": State.PENDING,
    "claimed": State.PENDING,
    "escalated": State.PENDING,
    "released": State.PENDING,
    "approved": State.APPROVED,
    "rejected": State.REJECTED,
    "feedback": State.FEEDBACK,
    "answered": State.ANSWERED,
    "cancelled": State.CANCELLED,
    "withdrawn": State.CANCELLED,
    "expired": State.EXPIRED,
    "started": State.RUNNING,
    "suspended": State.APPROVED,
    "done": State.DONE,
    "unknown": State.UNKNOWN,
}
_ALONE = {event: frozenset({state.value}) for event, state in _LEADS_TO.items()}
_NOT_HAPPENED = frozenset({State.FAILED.value, State.APPROVED.value})
_ANY = frozenset(state.value for state in State)


def states_after(event: str, detail: str, before: frozenset[str]) -> frozenset[str]:
    """Return the states in which a request can stand after a step, as their words.

    Args:
        event: What happened.
        detail: The row's detail, a JSON object as text.
        before: What the step before left possible.
    """
    alone = _ALONE.get(event)
    if alone is not None:
        return alone
    match event:
        case "failed":
            return frozenset({State.APPROVED if _read(detail).get("may_try_again") else State.FAILED})
        case "resolved":
            return frozenset({State.DONE.value}) if _read(detail).get("happened") else _NOT_HAPPENED
        case "extended" | "cleared" | "purged":
            return before
        case _:
            return _ANY


def asked_digest_in(detail: str) -> str | None:
    """Return the digest of what was asked that an `asked` row carries, or of what was left that a `purged` row does."""
    digest = _read(detail).get("asked")
    return digest if isinstance(digest, str) else None


def _read(detail: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(detail)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
