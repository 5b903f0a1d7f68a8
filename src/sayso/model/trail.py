"""What the rows of the journal say of one request: the state machine, read backwards from its record.

`sayso.model.lifecycle` makes the steps; this says only what can be known from their rows, and which step cannot have
followed from those before it. Invariant: a step that this version does not know claims nothing.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from sayso.model.request import State

__all__ = ["Trail", "stands_in"]

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


def _states(*states: State) -> frozenset[str]:
    return frozenset(state.value for state in states)


_WAITS = _states(State.PENDING)
_OPEN = _states(State.PENDING, State.APPROVED)
_BEGUN = _states(State.RUNNING, State.UNKNOWN)
_COMES_FROM = {
    "voted": _WAITS, "claimed": _WAITS, "escalated": _WAITS, "released": _WAITS, "approved": _WAITS,
    "rejected": _WAITS, "feedback": _WAITS, "answered": _WAITS, "cancelled": _OPEN, "withdrawn": _OPEN,
    "expired": _OPEN, "extended": _OPEN, "started": _states(State.APPROVED, State.UNKNOWN), "suspended": _BEGUN,
    "done": _BEGUN, "failed": _BEGUN, "unknown": _BEGUN, "resolved": _BEGUN,
    "cleared": _states(State.REJECTED, State.FEEDBACK, State.ANSWERED, State.CANCELLED),
}  # fmt: skip


class Trail(NamedTuple):
    """What the rows of a request say of it, up to one of them.

    Attributes:
        states: The states in which it can stand, as their words; none before its first row.
        asked: Digest of what was asked, or of what a purge left of it.
        stands: Digest of its whole row since; None where a row of the journal carries none.
        approved: Fingerprint of what was approved last.
    """

    states: frozenset[str] = frozenset()
    asked: str | None = None
    stands: str | None = None
    approved: str | None = None

    def after(self, event: str, detail: str) -> tuple[Trail, str | None]:
        """Return what its rows say with the next one, and why that one cannot follow; None where it can.

        Args:
            event: What happened.
            detail: The row's detail, a JSON object as text.
        """
        read = _read(detail)
        asked = _text(read, "asked") if event == "purged" or not self.states else self.asked
        approved = _text(read, "fingerprint") if event == "approved" else self.approved
        new = Trail(self._states_after(event, read), asked, _text(read, "stands"), approved)
        return new, self._problem(event, read)

    def _states_after(self, event: str, read: dict[str, Any]) -> frozenset[str]:
        alone = _ALONE.get(event)
        if alone is not None:
            return alone
        match event:
            case "failed":
                return _states(State.APPROVED if read.get("may_try_again") else State.FAILED)
            case "resolved":
                return _states(State.DONE) if read.get("happened") else _NOT_HAPPENED
            case "extended" | "cleared" | "purged":
                return self.states
            case _:
                return _ANY

    def _problem(self, event: str, read: dict[str, Any]) -> str | None:
        if (event == "asked") is bool(self.states):
            return "asked a second time" if self.states else f"{event} before it was asked"
        before = _COMES_FROM.get(event)
        if before is not None and not before & self.states:
            return f"{event}, and it was {' or '.join(sorted(self.states))}"
        if event == "started" and _text(read, "fingerprint") != self.approved:
            return "started with another call than the one that was approved"
        return None


def stands_in(detail: str) -> str | None:
    """Return the digest of the whole row of its request that a row of the journal carries."""
    return _text(_read(detail), "stands")


def _text(read: dict[str, Any], name: str) -> str | None:
    found = read.get(name)
    return found if isinstance(found, str) else None


def _read(detail: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(detail)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
