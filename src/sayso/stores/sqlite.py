"""Requests in one SQLite file: the default, for any number of processes on one machine.

WAL, `synchronous=FULL`, every change in `BEGIN IMMEDIATE`, so that a verb's read and write cannot be torn apart and
what a verb returned survives a power cut. Callers that arrive together share one commit: whoever gets the write lock
runs everybody's verb (group commit), which costs a lone caller nothing. Reads use a connection of their own.

Not for network file systems, whose locks cannot be trusted.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from sayso import clock, errors
from sayso.model.call import Call, Question
from sayso.model.entry import Entry, chained, first_link
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.stores import row as rows
from sayso.stores.base import Filter, Page, Store, Transaction, Unwatch
from sayso.stores.migrate import migrate
from sayso.stores.row import Row
from sayso.stores.seal import Seal
from sayso.stores.select import read_cursor
from sayso.stores.sqlite_faults import fault, is_busy
from sayso.stores.watch import Bell, Watcher

__all__ = ["SqliteStore"]

T = TypeVar("T")

_COLUMNS = ", ".join(Row._fields)
_GET = f"SELECT {_COLUMNS} FROM request WHERE id = ?"
_FIND = f"SELECT {_COLUMNS} FROM request WHERE holder = ?"
_INSERT = f"INSERT INTO request ({_COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_UPDATE = f"UPDATE request SET {', '.join(f'{name} = ?' for name in rows.PROGRESS_COLUMNS)} WHERE id = ?"
_MATCH = "SELECT id FROM request WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
_DUE = "SELECT id FROM request WHERE ends_at <= ? UNION ALL SELECT id FROM request WHERE state = ?"
_SHAPE = "SELECT text FROM shape WHERE digest = ?"
_ADD_SHAPE = "INSERT OR IGNORE INTO shape (digest, text) VALUES (?, ?)"
_LAST = "SELECT seq, link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_APPEND = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_JOURNAL = (
    "SELECT * FROM journal WHERE (?1 IS NULL OR run_id = ?1) AND (?2 IS NULL OR request_id = ?2)"
    " AND (run_id, seq) > (?3, ?4) ORDER BY run_id, seq LIMIT ?5"
)
_RUN_OF = "SELECT run_id FROM request WHERE id = ?"

_MOST = 256  # verbs in one commit
_BUSY_SECONDS = 30.0
_detail_text = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


class _Op:
    """One caller's verb, waiting for its commit."""

    __slots__ = ("changed", "done", "error", "result", "shapes", "work")

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.changed: list[str] = []
        self.shapes: set[str] = set()


class _Sqlite(Transaction):
    """The open transaction of the writing connection."""

    def __init__(self, connection: sqlite3.Connection, store: SqliteStore) -> None:
        self._execute = connection.execute
        self._store = store
        self.changed: list[str] = []
        self.shapes: set[str] = set()

    def now(self) -> datetime:
        return clock.now()

    def load(self, request_id: str) -> Request:
        found = self._execute(_GET, (request_id,)).fetchone()
        if found is None:
            raise errors.RequestNotFoundError(request_id)
        return self._store.request_of(found)

    def holder(self, fingerprint: str) -> Request | None:
        found = self._execute(_FIND, (fingerprint,)).fetchone()
        return None if found is None else self._store.request_of(found)

    def insert(self, transition: Transition) -> None:
        request, seal = transition.request, self._store.seal
        if self._store.learn_shape(request.subject):
            self._execute(_ADD_SHAPE, (request.subject.shape_digest, request.subject.shape))
            self.shapes.add(request.subject.shape_digest)
        self._execute(_INSERT, rows.asked_values(request, seal) + rows.progress_values(request, seal))
        self._append(transition)

    def update(self, transition: Transition) -> None:
        request = transition.request
        self._execute(_UPDATE, (*rows.progress_values(request, self._store.seal), request.id))
        self._append(transition)

    def _append(self, transition: Transition) -> None:
        request_id = transition.request.id
        run_id = transition.request.run_id
        self._add(run_id, request_id, transition.event, transition.by, transition.channel, transition.detail)
        self.changed.append(request_id)

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        self._add(run_id, "", event, by, channel, detail)

    def _add(
        self, run_id: str, request_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> None:
        last = self._execute(_LAST, (run_id,)).fetchone()
        seq, before = (0, first_link(run_id)) if last is None else last
        at, text = clock.microseconds(clock.now()), _detail_text(detail)
        self._execute(_APPEND, chained(before, run_id, seq + 1, at, request_id, event, by.qualified, channel, text))


class SqliteStore(Store):
    """The store behind `sqlite:///path`.

    Args:
        path: The file; it is made, mode 0600, with its folder, when it is not there.
        key: Seals arguments, answers and comments when given (see `sayso.stores.seal`).

    Raises:
        StoreError: One of its kinds, at the first use and not before.
    """

    def __init__(self, path: str | Path, *, key: str | None = None) -> None:
        self._path = str(Path(path).expanduser().absolute())
        self.url = f"sqlite:///{self._path}"
        self.seal = Seal(key)
        self._shapes: dict[str, str] = {}
        self._kept_shapes: set[str] = set()  # those that are surely committed
        self._bell = Bell()
        self._left_behind: list[sqlite3.Connection] = []
        self._begin_afresh()
        _stores.add(self)

    def _begin_afresh(self) -> None:
        self._queue: deque[_Op] = deque()
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._watcher = Watcher(self._bell, self._version)

    def after_fork(self) -> None:
        """Forget locks and connections in a forked child: SQLite's must not cross a fork, nor be closed there."""
        self._left_behind += [c for c in (self._writing, self._reading) if c is not None]
        self._bell = Bell()
        self._begin_afresh()

    # -- connections -------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        try:
            path = Path(self._path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Made by us first, because SQLite would make it with the process's umask; -wal and -shm take its mode.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except PermissionError as error:
            raise errors.StoreReadOnlyError(f"{self._path} cannot be written ({error.strerror})") from error
        except OSError as error:
            kind = errors.StoreReadOnlyError if error.errno == 30 else errors.StoreUnavailableError
            raise kind(f"{self._path} cannot be opened ({error.strerror})") from error
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                # Changing to WAL does not wait for the lock as other statements do, hence the loop.
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
        connection.execute("PRAGMA synchronous = FULL")
        migrate(connection, self._path)

    def _writer(self) -> sqlite3.Connection:
        if self._writing is None:
            self._writing = self._connect()
        return self._writing

    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            with self._read_lock:
                if self._reading is None:
                    self._reading = self._connect()
                return self._reading.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise fault(error, self._path) from error

    def _version(self) -> int:
        return int(self._query("PRAGMA data_version", ())[0][0])

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            for connection in (self._writing, self._reading):
                if connection is not None:
                    connection.close()
            self._writing = self._reading = None
        self._bell.ring_all()

    # -- writing -----------------------------------------------------------------------------------------------

    def _transact(self, work: Callable[[Transaction], T | errors.SaysoError]) -> T:
        op = _Op(work)
        self._queue.append(op)
        try:
            with self._write_lock:
                # Whoever had the lock before may have run this verb in its own commit.
                while not op.done:
                    self._lead(op)
        except BaseException:
            if op in self._queue:  # interrupted before anybody took it up
                self._queue.remove(op)
            raise
        if op.error is not None:
            raise op.error
        return cast("T", op.result)

    def _lead(self, mine: _Op) -> None:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), _MOST))]
        try:
            if len(batch) == 1 or not self._commit(batch):
                for op in batch:
                    self._commit([op])
        finally:
            # Interrupted in between: hand what is not done to the next caller that gets the lock.
            self._queue.extendleft(op for op in reversed(batch) if not op.done and op is not mine)

    def _commit(self, batch: list[_Op]) -> bool:
        """Run a batch in one transaction. False: it failed, and each verb must be tried alone."""
        try:
            connection = self._writer()
            connection.execute("BEGIN IMMEDIATE")
            try:
                for op in batch:
                    tx = _Sqlite(connection, self)
                    op.result = op.work(tx)
                    op.changed, op.shapes = tx.changed, tx.shapes
                connection.execute("COMMIT")
                for op in batch:
                    op.done = True
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except Exception as error:  # whatever happened is this verb's caller's to hear
            if len(batch) > 1:
                return False
            batch[0].error = fault(error, self._path) if isinstance(error, sqlite3.Error) else error
            batch[0].done = True
            return True
        for op in batch:
            self._kept_shapes |= op.shapes
            if isinstance(op.result, errors.SaysoError):
                op.error = op.result
        self._bell.ring([request_id for op in batch for request_id in op.changed])
        return True

    # -- shapes ------------------------------------------------------------------------------------------------

    def learn_shape(self, subject: Call | Question) -> bool:
        """Remember a shape's text; say whether it has yet to be written."""
        self._shapes[subject.shape_digest] = subject.shape
        return subject.shape_digest not in self._kept_shapes

    def _shape(self, digest: str) -> str:
        text = self._shapes.get(digest)
        if text is None:
            found = self._query(_SHAPE, (digest,))
            if not found:
                raise errors.StoreCorruptError(f"{self._path} misses the shape {digest[:12]} of a request")
            text = self._shapes[digest] = found[0][0]
        return text

    def request_of(self, found: Sequence[Any]) -> Request:
        """Return the request of a row."""
        return rows.request_of(Row._make(found), self.seal, self._shape)

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, request_id: str) -> Request:
        found = self._query(_GET, (request_id,))
        if not found:
            raise errors.RequestNotFoundError(request_id)
        return self.request_of(found[0])

    def find(self, fingerprint: str) -> Request | None:
        found = self._query(_FIND, (fingerprint,))
        return self.request_of(found[0]) if found else None

    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        return [found for (found,) in self._query(_MATCH, (prefix, prefix + "\U0010ffff", limit))]

    def _due(self) -> Sequence[str]:
        values = (clock.microseconds(clock.now()), State.RUNNING.value)
        return [found for (found,) in self._query(_DUE, values)]

    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        where, values = _where(wanted)
        after = read_cursor(cursor)
        if after is not None:
            where.append("n < ?" if newest else "n > ?")
            values.append(after)
        order = "DESC" if newest else "ASC"
        sql = f"SELECT n, {_COLUMNS} FROM request WHERE {' AND '.join(where) or '1'} ORDER BY n {order} LIMIT ?"
        found = self._query(sql, (*values, limit + 1))
        more = len(found) > limit
        return Page(tuple(self.request_of(row[1:]) for row in found[:limit]), str(found[limit - 1][0]) if more else None)

    def count(self, wanted: Filter) -> int:
        where, values = _where(wanted)
        return int(self._query(f"SELECT count(*) FROM request WHERE {' AND '.join(where) or '1'}", values)[0][0])

    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        if request_id is not None and run_id is None:
            # The journal is kept by run; a request's rows all stand in its run's chain.
            found = self._query(_RUN_OF, (request_id,))
            if not found:
                return []
            run_id = found[0][0]
        run, seq = after or ("", 0)
        return [Entry._make(row) for row in self._query(_JOURNAL, (run_id, request_id, run, seq, limit))]

    def watch(self, request_id: str, wake: Callable[[], None]) -> Unwatch:
        remove = self._bell.add(request_id, wake)
        self._watcher.ensure()
        return remove


def _where(wanted: Filter) -> tuple[list[str], list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if wanted.states:
        parts.append(f"state IN ({', '.join('?' * len(wanted.states))})")
        values += sorted(wanted.states)
    for column, value in (("run_id", wanted.run_id), ("risk", wanted.risk), ("kind", wanted.kind)):
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if wanted.name is not None:
        parts.append("? IN (name, tool)")
        values.append(wanted.name)
    if wanted.claimed_by is not None:
        parts.append("claimed_by = ?")
        values.append(wanted.claimed_by.folded)
    if wanted.text is not None:
        parts.append("instr(search, ?) > 0")
        values.append(wanted.text.casefold())
    return parts, values


_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

