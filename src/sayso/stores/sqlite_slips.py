"""Slips in SQLite: what `SqliteTransaction` writes of them, and what `SqliteStore` reads.

A body is sealed for its kind and key, so that it can be moved nowhere else. What is due is found by an index, however
many slips there are.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from sayso import errors
from sayso.stores.memory_slips import slip_column
from sayso.stores.seal import Seal
from sayso.stores.slip import SlipRow

__all__ = ["SqliteSlipReads", "SqliteSlipWrites"]

_GET = "SELECT kind, key, body, due FROM slip WHERE kind = ? AND key = ?"
_KEYS = "SELECT key FROM slip WHERE kind = ? ORDER BY key"
_PUT = "INSERT OR REPLACE INTO slip (kind, key, body, due) VALUES (?, ?, ?, ?)"
_DROP = "DELETE FROM slip WHERE kind = ? AND key = ?"
_AFTER = "SELECT kind, key, body, due FROM slip WHERE kind = ? AND key > ? ORDER BY key LIMIT ?"
_DUE = "SELECT kind, key, body, due FROM slip WHERE kind = ? AND due <= ? ORDER BY due, key LIMIT ?"


class SqliteSlipWrites:
    """The part of a transaction that is about slips."""

    _execute: Callable[..., sqlite3.Cursor]
    _seal: Seal

    def find_slip(self, kind: str, key: str) -> SlipRow | None:
        """Return a slip, as this transaction left it."""
        try:
            found = self._execute(_GET, (kind, key)).fetchone()
        except UnicodeEncodeError:  # a text with lone surrogates, which no row can hold
            return None
        return None if found is None else _opened(found, self._seal)

    def slip_keys(self, kind: str) -> Sequence[str]:
        """Return the keys of a kind, as this transaction left them."""
        return [key for (key,) in self._execute(_KEYS, (kind,)).fetchall()]

    def put_slip(self, row: SlipRow) -> None:
        """Write a slip."""
        self._execute(_PUT, row._replace(body=self._seal.close(row.body, row.key, slip_column(row.kind))))

    def drop_slip(self, kind: str, key: str) -> None:
        """Take a slip away."""
        self._execute(_DROP, (kind, key))


class SqliteSlipReads(ABC):
    """The part of a store that reads slips."""

    seal: Seal

    @abstractmethod
    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows."""

    def _slip_row(self, kind: str, key: str) -> SlipRow | None:
        found = self._query(_GET, (kind, key))
        return _opened(found[0], self.seal) if found else None

    def _slip_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[SlipRow]:
        sql, bound = (_AFTER, after) if due_by is None else (_DUE, due_by)
        return [_opened(row, self.seal) for row in self._query(sql, (kind, bound, limit))]


def _opened(found: Sequence[Any], seal: Seal) -> SlipRow:
    row = SlipRow._make(found)
    if not isinstance(row.body, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # whatever somebody wrote into the file
        raise errors.StoreCorruptError(
            f"the slip {row.kind} {row.key!r} cannot be read: its row was altered; nothing was changed"
        )
    return row._replace(body=seal.open(row.body, row.key, slip_column(row.kind)))
