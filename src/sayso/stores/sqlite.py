"""The SQLite store: all requests in one file. The default, for any number of processes on one machine.

It uses WAL and `synchronous=FULL`: a verb is atomic, and what it wrote survives a power cut. Verbs that arrive together
share one commit (group commit); reads use a connection of their own. Also here: creating the file, readable by its
owner only; SQLite's errors as `sayso.errors`; filters as SQL; and `scrub`, which removes purged data from the file. Do
not use this store on network file systems, whose locks are unreliable.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from sayso import errors
from sayso.model.journal import Anchor, Head
from sayso.model.request import Request
from sayso.stores.base import Store, Transaction
from sayso.stores.codec import Seal, anchor_of
from sayso.stores.joined import joined, result_of
from sayso.stores.migrate import migrate, refuse_foreign
from sayso.stores.records import RecordRow
from sayso.stores.sql_requests import Selects, SqlRequestReads
from sayso.stores.sql_tables import SqlTableReads
from sayso.stores.sqlite_transaction import (
    BY_EFFECT,
    COLUMNS,
    ENTRY_COLUMNS,
    JOURNAL_TRIGGERS,
    LOAD,
    WIDTH,
    RowCache,
    SingleStatement,
    SqliteTransaction,
    Stale,
)
from sayso.stores.watch import Bell, Watched, Watcher, forget_after_fork

_SMALLEST = 512  # bytes of a database with one page


def make_file(path: Path) -> None:
    """Make the file with our mode, because SQLite would with the process's umask; -wal and -shm take its mode."""
    # Never opened when it is there: closing any descriptor of a file drops every lock that this process has on it, and
    # then another process may take away the -wal file that the connections of this one still write to.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if path.is_file() and 0 < path.stat().st_size < _SMALLEST:  # SQLite takes it for empty, and would write over it
        raise errors.StoreCorruptError(f"{path} is not a sayso store; nothing was changed, name another file")


DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What the module raises; the second where SQLite quotes damaged bytes in a message, or finds them in a row."""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_UNREACHABLE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code


def is_busy(error: Exception) -> bool:
    """Say whether somebody else holds the lock."""
    return _code(error) in _BUSY


def fault(error: Exception, path: str) -> errors.StoreError:
    """Return the fault to raise for one of `DATABASE_ERRORS`."""
    code = _code(error)
    if code in _BUSY:
        return errors.StoreBusyError(f"{path} stayed locked by another process; nothing was recorded, try again")
    if code == sqlite3.SQLITE_FULL:
        return errors.StoreFullError(f"no room left to write {path}; nothing was recorded, free some space")
    if code in _READ_ONLY:
        return errors.StoreReadOnlyError(f"{path} cannot be written ({error}); nothing was recorded")
    if code in _CORRUPT or _shows_damage(error):
        return errors.StoreCorruptError(
            f"{path} is not a sayso store or is damaged ({error}); nothing was changed and nothing ran, restore it from"
            " a copy or name another file"
        )
    if code in _UNREACHABLE:
        return errors.StoreUnavailableError(f"{path} cannot be opened or read ({error}); nothing was recorded")
    return errors.StoreError(f"{path}: {error}; nothing was recorded")


def _shows_damage(error: Exception) -> bool:
    # The module's own error about a row has no code. A table or column of ours is missing where the schema is damaged.
    text = str(error)
    return isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in text or text.startswith("no such ")


_PAGE = 1000
# SQLite takes the other columns from the row that has the greatest `seq`.
_HEADS = "SELECT run_id, max(seq), link FROM journal WHERE run_id > ? GROUP BY run_id ORDER BY run_id LIMIT ?"


T = TypeVar("T")


_LINKS = "SELECT id, link FROM request WHERE id IN (SELECT value FROM json_each(?))"

_MOST = 256  # verbs in one commit
_BUSY_SECONDS = 30.0


class _Op:
    """One caller's verb, waiting for its commit."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False


def _each(batch: Sequence[_Op], tx: SqliteTransaction) -> None:
    """Run the verbs of a batch, one after the other, on one transaction."""
    for op in batch:
        before = len(tx.changed)
        tx.has_guessed = False
        op.result = op.work(tx)
        if tx.has_guessed and len(tx.changed) == before:
            raise Stale  # as for one alone
    tx.has_guessed = False


class SqliteStore(Watched, SqlRequestReads, SqlTableReads, Store):
    """The store behind `sqlite:///path`.

    Args:
        path: The file; it is made, mode 0600, with its folder, when it is not there.
        key: Seals arguments, answers, what is recorded of decisions and outcomes, and people's words in the journal
            (see `sayso.stores.codec`).

    Raises:
        StoreError: One of its kinds, at the first use and not before.
    """

    selects = Selects(COLUMNS, LOAD, BY_EFFECT)

    def __init__(self, path: str | Path, *, key: str | None = None) -> None:
        self._path = str(Path(path).expanduser().absolute())
        self.url = f"sqlite:///{self._path}"
        self.seal = Seal(key)
        self._cache = RowCache()
        self._schemas = self._cache.schemas
        self._bell = Bell()
        self._begin_afresh()
        _stores.add(self)
        forget_after_fork(self)

    def _begin_afresh(self) -> None:
        self._queue: deque[_Op] = deque()
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._leader: int | None = None  # the thread that commits a batch
        self._open: SqliteTransaction | None = None  # the newest transaction; for its thread alone
        self._watcher = Watcher(self._bell, self._version, self._marks)

    def pause(self, until: float) -> bool:
        """Close both connections before a fork, and let nobody open one; False where a verb is not over by `until`."""
        for n, lock in enumerate(locks := (self._write_lock, self._read_lock)):
            if not lock.acquire(timeout=max(0.0, until - time.monotonic())):
                for held in locks[:n]:
                    held.release()
                return False
        self._disconnect()
        return True

    def go_on(self) -> None:
        """Let verbs go on after a fork, with connections of their own."""
        self._read_lock.release()
        self._write_lock.release()

    def after_fork(self) -> None:
        """Forget locks and threads in a forked child."""
        is_open = self._writing is not None or self._reading is not None or self._write_lock.locked()
        if is_open and self not in getattr(_forking, "paused", ()):
            _inherited.append((self._writing, self._reading))  # they must not be closed here
        self._bell = Bell()
        self._begin_afresh()

    # -- connections -------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        if _inherited:
            raise errors.StoreUnavailableError(
                f"{self._path} cannot be opened here: this process was forked while another thread used a store;"
                " nothing was recorded, start the process anew"
            )
        try:
            path = Path(self._path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            make_file(path)
        except PermissionError as error:
            verb = "written" if os.access(self._path, os.R_OK) or not Path(self._path).exists() else "read"
            raise errors.StoreReadOnlyError(f"{self._path} cannot be {verb} ({error.strerror})") from error
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
                connection.execute("PRAGMA page_size = 2048")  # of a new file; a commit writes whole pages
                # Before the change to WAL, which is written into the file.
                refuse_foreign(connection, self._path)
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
            connection = self._connect()
            for trigger in JOURNAL_TRIGGERS:
                connection.execute(trigger)
            self._writing = connection
            self._cache.holders.clear()  # what was seen over another connection, perhaps of another file
        return self._writing

    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            if self._leader == threading.get_ident():  # a verb of a batch sees what those before it in the batch wrote
                return self._writer().execute(sql, values).fetchall()
            # The writing connection still has the pages that it wrote last, where another one would read them anew.
            if self._write_lock.acquire(blocking=False):
                try:
                    return self._writer().execute(sql, values).fetchall()
                finally:
                    self._write_lock.release()
            with self._read_lock:
                if self._reading is None:
                    self._reading = self._connect()
                return self._reading.execute(sql, values).fetchall()
        except UnicodeEncodeError:  # asked for a text with lone surrogates, which no row can hold
            return []
        except DATABASE_ERRORS as error:
            raise fault(error, self._path) from error

    def _version(self) -> int:
        # On the reading connection, for which everything that is written is somebody else's.
        try:
            with self._read_lock:
                if self._reading is None:
                    self._reading = self._connect()
                return int(self._reading.execute("PRAGMA data_version").fetchone()[0])
        except DATABASE_ERRORS as error:
            raise fault(error, self._path) from error

    def _marks(self, request_ids: Sequence[str]) -> dict[str, object]:
        return dict(self._query(_LINKS, (json.dumps(request_ids),)))

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self._disconnect()
        self._bell.ring_all()

    def _disconnect(self) -> None:
        for connection in (self._writing, self._reading):
            if connection is not None:
                connection.close()
        self._writing = self._reading = None

    def __del__(self) -> None:
        for connection in filter(None, map(self.__dict__.get, ("_writing", "_reading"))):
            connection.close()  # nobody else is left to do it, and newer Pythons warn of one that is open

    # -- writing -----------------------------------------------------------------------------------------------

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        if not self._queue and self._write_lock.acquire(blocking=False):
            try:
                result, changed = self._alone(work, args, options)
            finally:
                self._write_lock.release()
            if not self._bell.is_idle:
                self._bell.ring(changed)
        else:
            result = self._together(lambda tx: work(tx, *args, **options))
        if isinstance(result, errors.SaysoError):
            raise result
        return result

    def _alone(self, work: Callable[..., T], args: tuple[Any, ...], options: dict[str, Any]) -> tuple[T, list[str]]:
        """Run one verb while nobody else waits: in one statement, or where that is not enough, in a transaction."""
        try:
            tx = SingleStatement(self._writing or self._writer(), self._cache, self.seal, self._schema)
            try:
                result = work(tx, *args, **options)
                tx.commit()
            except (Stale, errors.SaysoError):
                pass  # the second try stands outside of this fault, so that what it raises does not tell of it
            else:
                return result, tx.changed
            return self._once(lambda tx: work(tx, *args, **options), is_fresh=True)
        except DATABASE_ERRORS as error:
            raise fault(error, self._path) from error

    def _once(
        self, work: Callable[[SqliteTransaction], T], *, is_fresh: bool, batch: Sequence[_Op] = ()
    ) -> tuple[T, list[str]]:
        connection = self._writing or self._writer()
        tx = self._open = SqliteTransaction(connection, self._cache, self.seal, self._schema, is_fresh=is_fresh)
        is_ready = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = work(tx)
            if tx.has_guessed and not tx.changed:
                raise Stale  # an answer from memory that no compare-and-set has confirmed
            is_ready = True
            connection.execute("COMMIT")
        except DATABASE_ERRORS:
            is_ready = False
            raise
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
                is_ready = False
            if is_ready:
                # Also when Ctrl-C came while the commit was on its way: it happened, and must not happen again.
                for op in batch:
                    op.done = True
            else:  # here, or by SQLite itself where the disk is full
                self._cache.heads.clear()  # no chain goes on from a row that was not committed
        self._cache.committed(tx)
        return result, tx.changed + tx.changed_runs

    def _together(self, work: Callable[[Transaction], T]) -> T:
        """Share a commit with whoever else waits."""
        op = _Op(work)
        self._queue.append(op)
        try:
            with self._write_lock:
                # Whoever had the lock before may have run this verb in its own commit.
                while not op.done:
                    self._lead()
        except BaseException:
            op.done = True  # interrupted: nobody waits for it any more
            raise
        if op.error is not None:
            raise op.error
        return op.result

    def together(self, works: Sequence[Callable[[Store], T]]) -> Sequence[T | BaseException]:
        """Do as `Store.together` says: each work is one transaction, and up to 256 share a commit."""
        ops = [_Op(joined(self, work)) for work in works]
        self._queue.extend(ops)
        try:
            with self._write_lock:
                while not all(op.done for op in ops):
                    self._lead()
        finally:
            for op in ops:
                op.done = True  # interrupted: nobody waits for it any more
        return [result_of(op.result) if op.error is None else op.error for op in ops]

    def _lead(self) -> None:
        """Commit what waits. Verbs leave the queue when they are done, so that an interrupted leader loses none."""
        batch = [op for op in list(self._queue)[:_MOST] if not op.done]
        self._leader = threading.get_ident()
        try:
            if len(batch) == 1 or not self._commit(batch):
                for op in batch:
                    self._commit([op])
        finally:
            self._leader = None
        while self._queue and self._queue[0].done:
            self._queue.popleft()

    def _commit(self, batch: Sequence[_Op]) -> bool:
        """Run a batch in one transaction. False: it failed, and each verb must be tried alone."""
        try:
            changed = self._tried(batch)
            if changed is None:
                return False
        except Exception as error:  # noqa: BLE001  whatever happened is this verb's caller's to hear
            locked_out = isinstance(error, DATABASE_ERRORS) and is_busy(error)
            if len(batch) > 1 and not locked_out:  # trying each alone would make the last wait as often as they are
                return False
            for op in batch:
                op.error = fault(error, self._path) if isinstance(error, DATABASE_ERRORS) else error
                op.done = True
            return True
        self._bell.ring(changed)
        return True

    def _tried(self, batch: Sequence[_Op]) -> Sequence[str] | None:
        """Run a batch and return what it changed; None where rows of several were stale."""
        with suppress(Stale):  # as for one alone
            return self._once(partial(_each, batch), is_fresh=False, batch=batch)[1]
        return self._once(partial(_each, batch), is_fresh=True, batch=batch)[1] if len(batch) == 1 else None

    def _anchor(self, found: tuple[Any, ...]) -> Anchor:
        anchor = anchor_of(found[:WIDTH], self.seal)
        link, *entry = found[-len(ENTRY_COLUMNS) - 1 :]
        is_same = link != anchor.link or tuple(entry) == found[WIDTH : WIDTH + len(entry)]
        return anchor if is_same else anchor._replace(row_digest="")

    @property
    def _place(self) -> str:
        return self._path

    def request_of(self, found: tuple[Any, ...]) -> Request:
        """Return the request of a row."""
        return self._cache.read(found, self.seal, self._schema).request

    # -- reading -----------------------------------------------------------------------------------------------

    def asks_first(self, fingerprint: str) -> bool:
        return fingerprint not in self._cache.holders

    def find(self, fingerprint: str) -> Request | None:
        if self._write_lock.acquire(blocking=False):
            try:  # no look at an approval that was seen here last: its start compares the row and the journal
                known = self._cache.approved(fingerprint, self._file_version)
            finally:
                self._write_lock.release()
            if known is not None:
                return known
        return super().find(fingerprint)

    def _file_version(self) -> int:
        try:
            return int(self._writer().execute("PRAGMA data_version").fetchone()[0])
        except DATABASE_ERRORS as error:
            raise fault(error, self._path) from error

    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        if self._leader == threading.get_ident() and self._open is not None:
            return self._open.find_record(kind, key)
        return super()._record_row(kind, key)

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
            with (
                self._write_lock,  # so that no fork comes meanwhile
                closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection,
            ):
                # Pages that were split or moved keep copies of what stood in them, and only writing all anew gets rid
                # of those; then the log, which holds the pages as they were.
                connection.execute("VACUUM")
                connection.execute("PRAGMA busy_timeout = 1000")  # who reads for longer is told about instead
                return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        except DATABASE_ERRORS as error:
            raise fault(error, self._path) from error


# -- forks -------------------------------------------------------------------------------------------------------------

# SQLite knows the locks of a process on a file from a list in its memory, which a fork copies: a child that opens the
# file anew would take the locks of its parent for its own, lock nothing, and lose what it commits when the parent
# closes the file. A lock of SQLite's memory that another thread has at that moment would never be free in the child.
# So no connection is open, and no thread inside of SQLite, while a process forks.
_PATIENCE = 10.0  # seconds that a fork waits for the verbs of other threads
_stores: WeakSet[SqliteStore] = WeakSet()
_inherited: list[object] = []  # connections that were open when this process was forked all the same
_forking = threading.local()


def _before_fork() -> None:
    until = time.monotonic() + _PATIENCE
    _forking.paused = [store for store in list(_stores) if store.pause(until)]


def _after_fork_in_parent() -> None:
    for store in _forking.paused:
        store.go_on()
    _forking.paused = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
