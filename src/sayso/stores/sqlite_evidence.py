"""What evidence is made of, in SQLite, and how nothing stays in the files of what was removed.

The newest row of every chain is found in one walk over the journal's key. Invariant: a scrub changes no row.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from sayso.model.entry import Head
from sayso.stores.sqlite_faults import DATABASE_ERRORS, fault

__all__ = ["SqliteEvidence"]

_PAGE = 1000
# SQLite takes the other columns from the row that has the greatest `seq`.
_HEADS = "SELECT run_id, max(seq), link FROM journal WHERE run_id > ? GROUP BY run_id ORDER BY run_id LIMIT ?"


class SqliteEvidence(ABC):
    """The part of a store that is about evidence."""

    _path: str

    @abstractmethod
    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows."""

    def heads(self) -> Iterator[Head]:
        after: Any = ""
        while True:
            page = self._query(_HEADS, (after, _PAGE))
            yield from map(Head._make, page)
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def scrub(self) -> bool:
        try:
            with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
                # Pages that were split or moved keep copies of what stood in them, and only writing all anew gets rid
                # of those; then the log, which holds the pages as they were.
                connection.execute("VACUUM")
                connection.execute("PRAGMA busy_timeout = 1000")  # who reads for longer is told about instead
                return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        except DATABASE_ERRORS as error:
            raise fault(error, self._path) from error
