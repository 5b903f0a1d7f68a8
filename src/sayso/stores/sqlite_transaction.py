"""One open transaction on SQLite, and what this process remembers of the rows between them.

A verb first runs on the request as this process last saw it, and its write is a compare-and-set on the row's `link`
(the hash of the journal row that made it what it is): if another process changed the row since, nothing is written,
and the verb runs again on fresh rows (`Stale`). So what is remembered is only ever a guess, never trusted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

from sayso import clock, errors
from sayso.model.canonical.compact import dumps_sorted
from sayso.model.entry import Entry, chained, first_link
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.stores import row as rows
from sayso.stores.base import Transaction
from sayso.stores.row import Row
from sayso.stores.seal import Seal

__all__ = ["COLUMNS", "FIND", "GET", "Memo", "SqliteTransaction", "Stale"]

COLUMNS = ", ".join(Row._fields)
GET = f"SELECT {COLUMNS} FROM request WHERE id = ?"
FIND = f"SELECT {COLUMNS} FROM request WHERE holder = ?"
_INSERT = f"INSERT INTO request ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_ADD_SHAPE = "INSERT OR IGNORE INTO shape (digest, text) VALUES (?, ?)"
_LAST = "SELECT seq, link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_APPEND = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

_REMEMBERED = 512
_ASKED = len(rows.ASKED_COLUMNS)
_LINK = Row._fields.index("link")


class Stale(Exception):
    """What was remembered is not what the store holds any more; nothing was written."""


class Memo:
    """Rows as this process last saw them, with what they mean; the ends of chains; the shapes that are written."""

    def __init__(self) -> None:
        self._requests: dict[str, tuple[tuple[Any, ...], Request]] = {}
        self.heads: dict[str, tuple[int, str]] = {}
        self.shapes: dict[str, str] = {}
        self.kept_shapes: set[str] = set()  # those that are surely committed

    def get(self, request_id: str) -> tuple[tuple[Any, ...], Request] | None:
        """Return the row of a request and the request."""
        return self._requests.get(request_id)

    def request_of(self, row: tuple[Any, ...], seal: Seal, shape: Callable[[str], str]) -> Request:
        """Return the request of a row; the same object as before while the row is the same to the letter."""
        known = self._requests.get(row[0])
        if known is not None and known[0] == row:
            return known[1]
        request = rows.request_of(Row._make(row), seal, shape)
        self.put(row, request)
        return request

    def put(self, row: tuple[Any, ...], request: Request) -> None:
        """Remember a row and what it means."""
        if len(self._requests) >= _REMEMBERED:
            self._requests.clear()
        self._requests[request.id] = row, request

    def committed(self, heads: dict[str, tuple[int, str]], shapes: set[str]) -> None:
        """Remember what a transaction left behind."""
        if len(self.heads) >= _REMEMBERED:
            self.heads.clear()
        self.heads |= heads
        self.kept_shapes |= shapes


@cache
def _update(changed: tuple[int, ...]) -> str:
    columns = ", ".join(f"{rows.PROGRESS_COLUMNS[n]} = ?" for n in changed)
    return f"UPDATE request SET {columns} WHERE id = ? AND link = ?"


class SqliteTransaction(Transaction):
    """The verbs' view of the writing connection between BEGIN and COMMIT.

    Args:
        connection: In a transaction.
        memo: What is remembered.
        seal: Seals and opens texts.
        shape: Looks a shape's text up.
        is_fresh: Read everything anew, guess nothing.

    Attributes:
        changed: Ids of requests that were written.
        heads, shapes: For `Memo.committed`.
        has_guessed: Whether a row was taken from memory.
    """

    def __init__(
        self, connection: sqlite3.Connection, memo: Memo, seal: Seal, shape: Callable[[str], str], *, is_fresh: bool
    ) -> None:
        self._execute = connection.execute
        self._memo, self._seal, self._shape, self._is_fresh = memo, seal, shape, is_fresh
        self._row: tuple[Any, ...] | None = None  # of the request that was loaded last
        self.has_guessed = False
        self.changed: list[str] = []
        self.heads: dict[str, tuple[int, str]] = {}
        self.shapes: set[str] = set()

    def now(self) -> datetime:
        return clock.now()

    def load(self, request_id: str) -> Request:
        known = None if self._is_fresh else self._memo.get(request_id)
        if known is not None:
            self.has_guessed = True
            self._row, request = known
            return request
        self._row = self._execute(GET, (request_id,)).fetchone()
        if self._row is None:
            raise errors.RequestNotFoundError(request_id)
        return self._memo.request_of(self._row, self._seal, self._shape)

    def holder(self, fingerprint: str) -> Request | None:
        if not self._is_fresh:
            return None  # whoever asks has just looked; if somebody was faster, the unique index says so
        self._row = self._execute(FIND, (fingerprint,)).fetchone()
        return None if self._row is None else self._memo.request_of(self._row, self._seal, self._shape)

    def insert(self, transition: Transition) -> None:
        request, entry = transition.request, self._entry(transition)
        subject = request.subject
        self._memo.shapes[subject.shape_digest] = subject.shape
        if subject.shape_digest not in self._memo.kept_shapes:
            self._execute(_ADD_SHAPE, (subject.shape_digest, subject.shape))
            self.shapes.add(subject.shape_digest)
        row = rows.asked_values(request, self._seal) + rows.progress_values(request, self._seal, entry.link)
        self._write(_INSERT, row)
        self._keep(row, request, entry)

    def update(self, transition: Transition) -> None:
        request, entry = transition.request, self._entry(transition)
        before = self._row
        if before is None or before[0] != request.id:
            raise RuntimeError("a change of a request that was not loaded")  # the verbs load first
        values = rows.progress_values(request, self._seal, entry.link)
        # Only what changed: writing an index's column again, even with the same value, rewrites the index.
        changed = tuple(n for n, value in enumerate(values) if value != before[_ASKED + n])
        new = (*(values[n] for n in changed), request.id, before[_LINK])
        if self._execute(_update(changed), new).rowcount != 1:
            raise Stale
        self._keep(before[:_ASKED] + values, request, entry)

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        self._append(self._chained(run_id, "", event, by, channel, detail))

    def _keep(self, row: tuple[Any, ...], request: Request, entry: Entry) -> None:
        self._append(entry)
        self._row = row
        self._memo.put(row, request)
        self.changed.append(request.id)

    def _entry(self, transition: Transition) -> Entry:
        request, event, by, channel, detail = transition
        return self._chained(request.run_id, request.id, event, by, channel, detail)

    def _chained(
        self, run_id: str, request_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> Entry:
        seq, before = self._head(run_id)
        at = clock.microseconds(clock.now())
        return chained(before, run_id, seq + 1, at, request_id, event, by.qualified, channel, dumps_sorted(detail))

    def _head(self, run_id: str) -> tuple[int, str]:
        head = self.heads.get(run_id)
        if head is None and not self._is_fresh:
            head = self._memo.heads.get(run_id)
        if head is None:
            head = self._execute(_LAST, (run_id,)).fetchone() or (0, first_link(run_id))
        return head

    def _append(self, entry: Entry) -> None:
        self._write(_APPEND, entry)
        self.heads[entry.run_id] = entry.seq, entry.link

    def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        try:
            self._execute(sql, values)
        except sqlite3.IntegrityError:
            # Somebody else has this place in the chain, or holds this fingerprint.
            if self._is_fresh:
                raise
            raise Stale from None
