"""Slips in this process's memory, for the stores that keep everything there.

Nothing here locks or lasts: that is the store's own business. Bodies stay as they are written, sealed where there is a
key, and are opened when somebody reads them. The invariant: what a transaction writes is seen by it at once, and by
others when it has succeeded.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sayso.stores.seal import Seal
from sayso.stores.slip import SlipRow

__all__ = ["SlipReads", "SlipShelf", "SlipWrites", "slip_column"]

T = TypeVar("T")
Written = tuple[str, str, str | None, int | None]  # kind, key, body as it is kept (None: dropped), due


def slip_column(kind: str) -> str:
    """Return the place for which the body of a slip is sealed, together with its key."""
    return f"slip/{kind}"


class SlipShelf:
    """All slips that a store keeps.

    Args:
        seal: Seals and opens bodies.
    """

    def __init__(self, seal: Seal) -> None:
        self.seal = seal
        self._kinds: dict[str, dict[str, SlipRow]] = {}

    def find(self, kind: str, key: str) -> SlipRow | None:
        """Return a slip, its body opened."""
        row = self._kinds.get(kind, {}).get(key)
        return None if row is None else self._opened(row)

    def keys(self, kind: str) -> Sequence[str]:
        """Return the keys of a kind."""
        found = self._kinds.get(kind)
        return sorted(found) if found else ()  # asked in nearly every transaction, and mostly there is none

    def rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[SlipRow]:
        """Return slips, as `sayso.stores.slip_verbs.SlipVerbs.slips` says."""
        rows = self._kinds.get(kind, {}).values()
        if due_by is None:
            found = heapq.nsmallest(limit, (row for row in rows if row.key > after), key=lambda row: row.key)
        else:
            dated = ((row.due, row.key, row) for row in rows if row.due is not None and row.due <= due_by)
            found = [row for _, _, row in heapq.nsmallest(limit, dated)]
        return [self._opened(row) for row in found]

    def apply(self, written: Iterable[Written]) -> None:
        """Take in what a transaction wrote; raises `LookupError`, `TypeError` or `ValueError` where it is unusable."""
        for kind, key, body, due in written:
            if body is None:
                self._kinds.get(kind, {}).pop(key, None)  # perhaps put and dropped in one transaction
            else:
                self._kinds.setdefault(kind, {})[key] = SlipRow(kind, key, body, due)

    def everything(self) -> list[SlipRow]:
        """Return all slips, their bodies as they are kept."""
        return [row for kind in self._kinds.values() for row in kind.values()]

    def _opened(self, row: SlipRow) -> SlipRow:
        return row._replace(body=self.seal.open(row.body, row.key, slip_column(row.kind)))


class SlipReads(ABC):
    """The part of a store that reads slips."""

    @abstractmethod
    def _read_slips(self, read: Callable[[SlipShelf], T]) -> T:
        """Read the shelf as it stands now, alone."""

    def _slip_row(self, kind: str, key: str) -> SlipRow | None:
        return self._read_slips(lambda shelf: shelf.find(kind, key))

    def _slip_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[SlipRow]:
        return self._read_slips(lambda shelf: shelf.rows(kind, due_by, after, limit))


class SlipWrites:
    """What one transaction writes of slips; nothing is kept before it has succeeded.

    Attributes:
        slips: Those that were written, by kind and key, as they are now; None where one was dropped.
    """

    def __init__(self, shelf: SlipShelf) -> None:
        self._slip_shelf = shelf
        self.slips: dict[tuple[str, str], SlipRow | None] = {}

    def find_slip(self, kind: str, key: str) -> SlipRow | None:
        """Return a slip, as this transaction left it."""
        if self.slips and (kind, key) in self.slips:
            return self.slips[kind, key]
        return self._slip_shelf.find(kind, key)

    def slip_keys(self, kind: str) -> Sequence[str]:
        """Return the keys of a kind, as this transaction left them."""
        keys = self._slip_shelf.keys(kind)
        if not self.slips:
            return keys
        mine = {key: row for (of, key), row in self.slips.items() if of == kind}
        return sorted({key for key in keys if key not in mine} | {key for key, row in mine.items() if row is not None})

    def put_slip(self, row: SlipRow) -> None:
        """Write a slip."""
        self.slips[row.kind, row.key] = row

    def drop_slip(self, kind: str, key: str) -> None:
        """Take a slip away."""
        self.slips[kind, key] = None

    def sealed_slips(self) -> list[Written]:
        """Return what was written, ready to be kept."""
        close = self._slip_shelf.seal.close
        return [
            (kind, key, None, None) if row is None else row._replace(body=close(row.body, key, slip_column(kind)))
            for (kind, key), row in self.slips.items()
        ]
