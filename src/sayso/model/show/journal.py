"""A row of the journal as a line for people.

Invariant: every part of a row is escaped, because somebody may have written into the store by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

from sayso.clock import instant
from sayso.model.entry import Entry
from sayso.model.show import escape
from sayso.model.show.label import columns, padded, token
from sayso.model.show.literal import brief

__all__ = ["event_rows", "moment"]

_ROOM = 300
_EVENT_ROOM = 10, 24  # the usual words fit; a longer one widens the column, and a strange one sticks out
_OWN_CHANNELS = frozenset({"clock", "program", "sweep"})
# What the other columns say already, or only machines read.
_SILENT = frozenset({
    "asked", "at", "attempt", "before", "fingerprint", "heads", "key", "kind", "root", "shown", "signature", "stands",
    "worker",
})  # fmt: skip
_WORDS = {
    "comment": "", "edited": "with changes", "missing": "more approvals needed:", "until": "until",
    "what": "the", "reason": "", "on_behalf_of": "on behalf of",
}  # fmt: skip


def moment(at: datetime) -> str:
    """Return an instant in UTC, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def event_rows(entries: Iterable[Entry]) -> list[str]:
    """Return of each when what happened by whom, and what the row says of it; what and whom stand in columns."""
    rows = [(entry, token(entry.event)) for entry in entries]
    usual, most = _EVENT_ROOM
    pad = max([usual, *(size for _, event in rows if (size := columns(event)) <= most)])
    return [_row(entry, padded(event, pad)) for entry, event in rows]


def _row(entry: Entry, event: str) -> str:
    # The program's own steps come through no other channel, so its issuer says nothing more.
    issuer = "program:" if entry.channel in _OWN_CHANNELS else "local:"
    who = f"{token(entry.by.removeprefix(issuer))} ({token(entry.channel)})"
    return f"{_when(entry.at)}  {event}  {who}{_detail(entry.detail)}"


def _when(at: int) -> str:
    try:
        return moment(instant(at))
    except (OverflowError, TypeError, ValueError):  # a row that somebody altered
        return escape(str(at))


def _detail(text: str) -> str:
    try:
        detail = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        detail = text
    if not isinstance(detail, dict):
        return f"  {brief(str(detail), _ROOM)}"
    parts = [_part(name, value) for name, value in cast("dict[str, Any]", detail).items() if name not in _SILENT]
    return "".join(f"  {part}" for part in parts)


def _part(name: str, value: Any) -> str:
    said = _WORDS.get(name, f"{token(name)}:")
    if value is True:
        return said if name in _WORDS else f"{said} yes"
    if name in {"until", "on_behalf_of", "tool", "what"} and isinstance(value, str):
        return f"{said} {token(value)}"
    return f"{said} {brief(value, _ROOM)}".strip()
