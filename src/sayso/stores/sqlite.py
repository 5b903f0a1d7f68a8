"""The SQLite store: all requests in one file. The default, for any number of processes on one machine.

It uses WAL and `synchronous=FULL`: a verb is atomic, and what it wrote survives a power cut. Verbs that arrive together
share one commit (group commit); reads use their own connection. Also here: `scrub`, which erases purged data from the
file. Connections are opened and closed by `sayso.stores.sqlite_file`. Do not use this store on network file systems,
whose locks are unreliable.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

from sayso import errors
from sayso.model.journal import RowDigests
from sayso.model.request import Request, State
from sayso.stores import sqlite_file
from sayso.stores.base import GroupCommit, Store, Verb, joined, result_of
from sayso.stores.codec import Seal, digests_of
from sayso.stores.sql import SqlStore, Stale
from sayso.stores.sqlite_file import DATABASE_ERRORS, Connection, fault, in_place
from sayso.stores.sqlite_transaction import (
    ENTRY_COLUMNS,
    JOURNAL_TRIGGERS,
    SELECTS,
    VERSION,
    WIDTH,
    RowCache,
    SingleStatement,
    SqliteTransaction,
)
from sayso.stores.watching import BUSY, Bell, Watched, Watcher
from sayso.stores.workers import forget_after_fork

T = TypeVar("T")


_LINKS = "SELECT id, link FROM request WHERE id IN (SELECT value FROM json_each(?))"


class SqliteStore(GroupCommit, Watched, SqlStore):
    """The store behind `sqlite:///path`.

    Args:
        path: The file. It is created with mode 0600, and its folder too, if it does not exist.
        key: Encrypts arguments, answers, the recorded parts of decisions and outcomes, and people's words in the
            journal (see `sayso.stores.codec`).

    Raises:
        StoreError: Or a subclass, at the first use and not before.
    """

    selects = SELECTS

    def __init__(self, path: str | Path, *, key: str | None = None) -> None:
        self._place = str(Path(path).expanduser().absolute())
        self.url = f"sqlite:///{self._place}"
        self.seal = Seal(key)
        self._cache = RowCache()
        self._schemas = self._cache.schemas
        self.after_fork()
        sqlite_file.closed_at_forks(self)
        forget_after_fork(self)

    def after_fork(self) -> None:
        """Begin with new locks, threads and connections in a forked child."""
        self._queue: deque[Verb] = deque()
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._writing: Connection | None = None
        self._reading: Connection | None = None
        self._leader: int | None = None  # the thread that is committing a batch
        self._open: SqliteTransaction | None = None  # the newest transaction; used by its own thread only
        self._bell = Bell()
        self._watcher = Watcher(self._bell, self._version, self._marks)

    @property
    def is_connected(self) -> bool:
        """Whether a connection may be open."""
        return self._writing is not None or self._reading is not None

    @property
    def locks(self) -> Sequence[threading.Lock]:
        """The locks to hold so that no thread uses a connection."""
        return self._write_lock, self._read_lock

    def disconnect(self) -> None:
        """Close both connections; the caller holds both locks."""
        for connection in (self._writing, self._reading):
            if connection is not None:
                sqlite_file.close(connection)
        self._writing = self._reading = None

    # -- connections -------------------------------------------------------------------------------------------

    def _writer(self) -> Connection:
        self._writing = connection = in_place(self._writing)
        if connection is None:
            self._writing = connection = sqlite_file.connect(self._place, JOURNAL_TRIGGERS)
            self._cache = RowCache()  # the cached rows may be from another file
            self._schemas = self._cache.schemas
        return connection

    def _reader(self) -> Connection:
        self._reading = connection = in_place(self._reading)
        if connection is None:
            self._reading = connection = sqlite_file.connect(self._place)
        return connection

    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            if self._leader == threading.get_ident():  # a verb of a batch sees what earlier ones in it wrote
                return (self._writing or self._writer()).execute(sql, values).fetchall()
            # The writing connection has the last written pages in its cache; another connection would read them again.
            if not self._write_lock.locked():
                with self._write_lock:  # not `acquire`, as in `_transact`; a thread that was faster commits first
                    return self._writer().execute(sql, values).fetchall()
            with self._read_lock:
                return self._reader().execute(sql, values).fetchall()
        except UnicodeEncodeError:  # the value is a text with lone surrogates, which no row can contain
            return []
        except DATABASE_ERRORS as error:
            raise fault(error, self._place) from error

    def _listen(self, *_: object) -> None:
        self._watcher.ensure()

    def _version(self) -> int:
        # On the writing connection, whose version changes only by other connections' writes: this store's own writes
        # have already rung the bell, and would make every waiter look twice. If it is in use for long, the reading
        # connection is asked. Its numbers never equal the other's (one is even, one odd), so then everybody does look.
        try:
            if self._write_lock.acquire(timeout=BUSY):
                try:
                    connection = self._writer()
                    return 2 * (connection.number + int(connection.execute(VERSION).fetchone()[0]))
                finally:
                    self._write_lock.release()
            with self._read_lock:
                connection = self._reader()
                return 2 * (connection.number + int(connection.execute(VERSION).fetchone()[0])) + 1
        except DATABASE_ERRORS as error:
            raise fault(error, self._place) from error

    def _marks(self, request_ids: Sequence[str]) -> dict[str, object]:
        return dict(self._query(_LINKS, (json.dumps(request_ids),)))

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self.disconnect()
        self._bell.ring_all()

    def __del__(self) -> None:
        for connection in filter(None, map(self.__dict__.get, ("_writing", "_reading"))):
            sqlite_file.close(connection)  # nobody else will

    # -- writing -----------------------------------------------------------------------------------------------

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        """See `RequestStore._transact`. If nobody else writes, one statement is tried before a whole transaction."""
        result: Any = None
        changed: Sequence[str] | None = None
        if not (self._queue or self._cache.has_channels or self._write_lock.locked()):
            with self._write_lock:  # not `acquire`, after which Ctrl-C could leave it locked for ever
                try:
                    tx = SingleStatement(self._writer(), self._cache, self.seal, self._schema)
                    try:
                        result = work(tx, *args, **options)
                        tx.flush()
                        changed = tx.changed
                    except (Stale, errors.SaysoError):
                        pass  # not enough, or out of date; outside this handler, exceptions have no context
                except DATABASE_ERRORS as error:
                    raise fault(error, self._place) from error
        if changed is None:
            verb = Verb(lambda tx: work(tx, *args, **options))
            self._wait([verb])
            if verb.error is not None:
                raise verb.error
            result = verb.result
        elif self._bell.waiting:
            self._bell.ring(changed)
        if isinstance(result, errors.SaysoError):
            raise result
        return result

    def _once(self, batch: Sequence[Verb]) -> list[str]:
        """Run verbs, one after the other, in one transaction; return what they changed."""
        connection, empty = self._writer(), RowCache()
        tx = self._open = SqliteTransaction(connection, self._cache, self.seal, self._schema)
        is_ready = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            version = int(connection.execute(VERSION).fetchone()[0])
            if version != self._cache.version:
                self._cache.move_to(version)
            for verb in batch:
                verb.result = verb.work(tx)
            is_ready = True
            connection.execute("COMMIT")
        except DATABASE_ERRORS:
            is_ready = False
            raise
        finally:
            if connection.in_transaction:
                is_ready = False
            if is_ready:
                # Even if Ctrl-C arrived during the commit: it happened, and must not happen again. No loop, in which
                # Ctrl-C could arrive as well.
                deque(map(setattr, batch, repeat("is_done"), repeat(True)), 0)
            else:
                # Nothing may continue from a row that is rolled back, also if Ctrl-C arrives meanwhile.
                self._cache, self._schemas = empty, empty.schemas
                if connection.in_transaction:  # if the disk is full, SQLite itself has rolled it back
                    connection.execute("ROLLBACK")
        self._cache.heads |= tx.heads
        self._cache.kept_schemas |= tx.schemas
        return tx.changed + tx.changed_runs

    def together(self, works: Sequence[Callable[[Store], T]]) -> Sequence[T | BaseException]:
        """See `Store.together`: each work is one transaction, and up to 256 share a commit."""
        verbs = [Verb(joined(self, work)) for work in works]
        self._wait(verbs)
        return [result_of(verb.result) if verb.error is None else verb.error for verb in verbs]

    def _commit(self, batch: Sequence[Verb]) -> Sequence[str]:
        self._leader = threading.get_ident()
        try:
            return self._once(batch)
        except Exception as error:  # noqa: BLE001  every exception belongs to this verb's caller
            told: Exception = error
            if isinstance(error, DATABASE_ERRORS):
                told = fault(error, self._place)
                told.__cause__ = error
            is_locked = told is not error and isinstance(told, errors.StoreBusyError)
            if len(batch) == 1 or is_locked:  # one by one, each would wait for the lock again
                for verb in batch:
                    verb.error, verb.is_done = told, True
            return ()
        finally:
            self._leader = None

    def _row_digests(self, found: tuple[Any, ...]) -> RowDigests:
        digests = digests_of(found[:WIDTH], self.seal)
        link, *entry = found[-len(ENTRY_COLUMNS) - 1 :]
        is_same = link != digests.link or tuple(entry) == found[WIDTH : WIDTH + len(entry)]
        return digests if is_same else digests._replace(row_digest="")

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, request_id: str) -> Request:
        if self._leader != threading.get_ident() or self._open is None:
            return super().get(request_id)
        try:
            return self._open.load(request_id)
        except UnicodeEncodeError:  # as in `_query`
            raise errors.RequestNotFoundError(request_id) from None
        except DATABASE_ERRORS as error:
            raise fault(error, self._place) from error

    def find(self, fingerprint: str) -> Request | None:
        if not self._write_lock.locked():
            with self._write_lock:  # as in `_query`
                cache = self._cache
                known = cache.certain.get(cache.holders.get(fingerprint, ""))
                if known is not None and known.request.state is State.APPROVED:
                    try:
                        version = int(self._writer().execute(VERSION).fetchone()[0])
                    except DATABASE_ERRORS as error:
                        raise fault(error, self._place) from error
                    # Used unread, unless somebody else has written since: its start compares the row and the journal.
                    if version == cache.version and cache is self._cache:
                        return known.request
                    self._cache.move_to(version)
        return super().find(fingerprint)

    def scrub(self) -> bool:
        try:
            with self._write_lock, sqlite_file.opened(self._place) as connection:
                # Pages that were split or moved keep copies of their old content, which only VACUUM removes. After it,
                # the log still has the old pages, so it is truncated.
                connection.execute("VACUUM")
                connection.execute("PRAGMA busy_timeout = 1000")  # a reader that takes longer makes this return False
                return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        except DATABASE_ERRORS as error:
            raise fault(error, self._place) from error
