"""A slip: a small row that a store keeps beside its requests, such as an API token or a message that is to be sent.

It has a kind, a key that is its own within that kind, a body of JSON values, and perhaps an instant at which it is due.
Who keeps slips of a kind says what stands in them; a store only keeps them, and seals their bodies where it has a key.
Invariant: no secret stands in a slip in the clear, and what comes back is what JSON makes of what was kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast

from sayso import errors
from sayso.clock import instant, microseconds
from sayso.model.canonical.compact import dumps_sorted

__all__ = ["Slip", "SlipRow", "row_of", "slip_of"]


@dataclass(frozen=True)
class Slip:
    """One small row.

    Attributes:
        kind: What it is, e.g. `token`; whoever keeps slips of a kind owns the word.
        key: Which one it is; there is one slip of this kind and key.
        body: JSON values; they are copied when they are kept.
        due: When something is to be done about it; None where nothing is.

    Raises:
        ValueError: The kind or the key is empty or no text that can be written, or the instant has no zone.
    """

    kind: str
    key: str
    body: dict[str, Any]
    due: datetime | None = None

    def __post_init__(self) -> None:
        for name, text in (("kind", self.kind), ("key", self.key)):
            if not text or not _is_writable(text):
                raise ValueError(f"the {name} of a slip is a text that can be written, not {text!a}; nothing was kept")
        if self.due is not None and self.due.tzinfo is None:
            raise ValueError(f"slip {self.key!r} is due at {self.due}, which has no zone; nothing was kept")


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class SlipRow(NamedTuple):
    """A slip as stores write it: the body as sorted JSON, and the instant in microseconds."""

    kind: str
    key: str
    body: str
    due: int | None


def row_of(slip: Slip) -> SlipRow:
    """Return what is written of a slip; raises `TypeError` or `ValueError` where its body is no JSON."""
    return SlipRow(slip.kind, slip.key, dumps_sorted(slip.body), None if slip.due is None else microseconds(slip.due))


def slip_of(row: SlipRow) -> Slip:
    """Return the slip of a row; raises `StoreCorruptError` where somebody wrote something else into it."""
    try:
        body: Any = json.loads(row.body)
        due = None if row.due is None else instant(row.due)
        if isinstance(body, dict):
            return Slip(row.kind, row.key, cast("dict[str, Any]", body), due)
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        pass
    raise errors.StoreCorruptError(
        f"the slip {row.kind} {row.key!r} cannot be read: its row was altered; nothing was changed, restore the store"
    )
