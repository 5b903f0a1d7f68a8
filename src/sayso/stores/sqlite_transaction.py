"""One open transaction on SQLite, and what this process remembers of the rows between them.

A verb first runs on the request as this process last saw it, and its write is a compare-and-set on the row's `link`
(the hash of the journal row that made it what it is): if another process changed the row since, nothing is written,
and the verb runs again on fresh rows (`Stale`). So what is remembered is only ever a guess, never trusted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
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
from sayso.stores.progress import changed_values, progress_values
from sayso.stores.row import ASKED_COLUMNS, Row
from sayso.stores.seal import Seal
from sayso.stores.sqlite_runs import SqliteRunWrites
from sayso.stores.sqlite_slips import SqliteSlipWrites
from sayso.stores.words import sealed

__all__ = ["COLUMNS", "FIND", "GET", "Memo", "SqliteTransaction", "Stale"]

COLUMNS = ", ".join(Row._fields)
GET = f"SELECT {COLUMNS} FROM request WHERE id = ?"
FIND = f"SELECT {COLUMNS} FROM request WHERE fingerprint = ? AND holds = 1"
_INSERT = f"INSERT INTO request ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_ADD_SHAPE = "INSERT OR IGNORE INTO shape (digest, text) VALUES (?, ?)"
_LAST = "SELECT seq, link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_NEWEST = "SELECT link, detail FROM journal WHERE run_id = ? AND request_id = ? ORDER BY seq DESC LIMIT 1"
_APPEND = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

_REMEMBERED = 512
_PLACES = {name: place for place, name in enumerate(Row._fields)}
_LINK = _PLACES["link"]


class Stale(Exception):
    """What was remembered is not what the store holds any more; nothing was written."""


class Memo:
    """Rows as this process last saw them, with what they mean; the ends of chains; the shapes that are written."""

    def __init__(self) -> None:
        self._requests: dict[str, tuple[tuple[Any, ...], Request]] = {}
        self._asked: dict[str, tuple[tuple[Any, ...], str]] = {}
        self._written: dict[str, tuple[Any, ...]] = {}
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
            self._asked.clear()
            self._written.clear()
        self._requests[request.id] = row, request

    def stands_digest(self, row: Sequence[Any], seal: Seal) -> str:
        """Return the digest of a whole row; what was asked, which may be long, is serialized once."""
        asked = tuple(row[: len(ASKED_COLUMNS)])
        known = self._asked.get(row[0])
        if known is None or known[0] != asked:
            known = self._asked[row[0]] = asked, rows.asked_digest(asked, seal)
        return rows.stands_digest(row, seal, known[1])

    def knows_asked(self, asked: tuple[Any, ...], digest: str) -> None:
        """Remember the digest of what never changes of a request."""
        self._asked[asked[0]] = asked, digest

    def wrote(self, row: tuple[Any, ...], request: Request) -> None:
        """Remember a row that this process writes, and that needs no other witness."""
        self.put(row, request)
        self._written[request.id] = row

    def is_written(self, row: tuple[Any, ...]) -> bool:
        """Say whether this very row was written here, and not read."""
        return self._written.get(row[0]) is row

    def committed(self, heads: dict[str, tuple[int, str]], shapes: set[str]) -> None:
        """Remember what a transaction left behind."""
        if len(self.heads) >= _REMEMBERED:
            self.heads.clear()
        self.heads |= heads
        self.kept_shapes |= shapes


@cache
def _update(changed: tuple[str, ...]) -> str:
    return f"UPDATE request SET {' = ?, '.join((*changed, 'link'))} = ? WHERE id = ? AND link = ?"


class SqliteTransaction(SqliteRunWrites, SqliteSlipWrites, Transaction):
    """The verbs' view of the writing connection between BEGIN and COMMIT.

    Args:
        connection: In a transaction.
        memo: What is remembered.
        seal: Seals and opens texts.
        shape: Looks a shape's text up.
        is_fresh: Read everything anew, guess nothing.

    Attributes:
        changed: Ids of requests that were written.
        changed_runs: Ids of runs that were written.
        heads, shapes: For `Memo.committed`.
        has_guessed: Whether a row was taken from memory.
    """

    def __init__(
        self, connection: sqlite3.Connection, memo: Memo, seal: Seal, shape: Callable[[str], str], *, is_fresh: bool
    ) -> None:
        self._execute = connection.execute
        self._memo, self._seal, self._shape, self._is_fresh = memo, seal, shape, is_fresh
        self._loaded: tuple[tuple[Any, ...], Request] | None = None  # the last one, with its row
        self._borne_out: tuple[Any, ...] | None = None  # the last row that was compared with the journal
        self._now: datetime | None = None
        self.has_guessed = False
        self.changed: list[str] = []
        self.changed_runs = list[str]()
        self.heads: dict[str, tuple[int, str]] = {}
        self.shapes: set[str] = set()

    def now(self) -> datetime:
        self._now = clock.now()
        return self._now

    def load(self, request_id: str) -> Request:
        known = None if self._is_fresh else self._memo.get(request_id)
        if known is not None:
            self.has_guessed = True
            self._loaded = known
            return known[1]
        row = self._execute(GET, (request_id,)).fetchone()
        if row is None:
            raise errors.RequestNotFoundError(request_id)
        return self._read(row)

    def holder(self, fingerprint: str) -> Request | None:
        if not self._is_fresh:
            return None  # whoever asks has just looked; if somebody was faster, the unique index says so
        row = self._execute(FIND, (fingerprint,)).fetchone()
        return None if row is None else self._read(row)

    def _read(self, row: tuple[Any, ...]) -> Request:
        request = self._memo.request_of(row, self._seal, self._shape)
        self._loaded = row, request
        return request

    def insert(self, transition: Transition) -> None:
        request, seal, memo = transition.request, self._seal, self._memo
        subject = request.subject
        key = rows.text_key(subject.shape)
        if key not in memo.kept_shapes:
            memo.shapes[key] = subject.shape
            self._execute(_ADD_SHAPE, (key, subject.shape))
            self.shapes.add(key)
        asked = rows.asked_values(request, seal)
        row = [*asked, *progress_values(request, seal, "")]
        digest = transition.detail["asked"] = rows.asked_digest(asked, seal)
        memo.knows_asked(asked, digest)
        transition.detail["stands"] = rows.stands_digest(row, seal, digest)
        entry = self._entry(request.run_id, request.id, *transition[1:])
        row[_LINK] = entry.link
        self._write(_INSERT, tuple(row))
        self._keep(tuple(row), request, entry)

    def update(self, transition: Transition) -> None:
        request = transition.request
        before, was = self._the_loaded(request)
        if not self.stands(was):
            raise rows.altered(request.id)
        asked = rows.asked_again(was, request, self._seal, transition.detail)
        changed = asked | changed_values(was, request, self._seal)
        row = list(before)
        for name, value in changed.items():
            row[_PLACES[name]] = value
        transition.detail["stands"] = self._memo.stands_digest(row, self._seal)
        entry = self._entry(request.run_id, request.id, *transition[1:])
        row[_LINK] = entry.link
        values = (*changed.values(), entry.link, request.id, before[_LINK])
        if self._execute(_update(tuple(changed)), values).rowcount != 1:
            raise Stale
        self._keep(tuple(row), request, entry)

    def stands(self, request: Request) -> bool:
        row, _ = self._the_loaded(request)
        if self._borne_out is row or self._memo.is_written(row):
            return True
        newest = self._execute(_NEWEST, (request.run_id, request.id)).fetchone()
        if rows.is_borne_out(row, newest, self._seal):
            self._borne_out = row
            return True
        if self._is_fresh:
            return False
        raise Stale

    def _the_loaded(self, request: Request) -> tuple[tuple[Any, ...], Request]:
        loaded = self._loaded
        if loaded is None or loaded[1].id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # they load first
        return loaded

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        self._append(self._entry(run_id, "", event, by, channel, detail))

    def _keep(self, row: tuple[Any, ...], request: Request, entry: Entry) -> None:
        self._append(entry)
        self._loaded = row, request
        self._memo.wrote(row, request)
        self.changed.append(request.id)

    def _entry(
        self, run_id: str, request_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> Entry:
        head = self.heads.get(run_id)
        if head is None:
            head = None if self._is_fresh else self._memo.heads.get(run_id)
            if head is None and event == "asked" and not self._is_fresh:
                head = 0, first_link(run_id)  # most begin their run; where not, the place is taken
            if head is None:
                head = self._execute(_LAST, (run_id,)).fetchone() or (0, first_link(run_id))
        if not self._seal.is_open:
            detail = sealed(detail, request_id or run_id, self._seal)
        at = clock.microseconds(self._now or clock.now())
        seq, before = head
        return chained(before, run_id, seq + 1, at, request_id, event, by.qualified, channel, dumps_sorted(detail))

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
