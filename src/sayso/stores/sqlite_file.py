"""The file of the SQLite store: its connections, its schema migrations, and the encryption of rows written in plain.

Connections are opened and closed here, across forks, and when the file is replaced. The file is created readable by its
owner only; SQLite's errors become `sayso.errors`. Migrations are numbered SQL files, each applied once, in order, under
the write lock.

`seal_store` encrypts the rows that were written before `SAYSO_KEY` was set. A store with a key rejects plain text,
because somebody may have inserted it by hand. `seal_store` accepts it, so run it once, right after the key was set, and
only if nobody else can write the file. Journal entries are never rewritten: their plain texts stay and are counted.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from itertools import compress
from operator import call
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from sayso import errors
from sayso.stores.codec import SEALED_COLUMNS, Seal, record_column, sealed_search, step_column

APPLICATION_ID = 0x5A150001  # identifies sayso's files, see `PRAGMA application_id`


@cache
def _scripts() -> tuple[tuple[int, str], ...]:
    found = [
        (int(entry.name.split("_")[0]), entry.read_text(encoding="utf-8"))
        for entry in (files("sayso.stores") / "migrations").iterdir()
        if entry.name.endswith(".sql")
    ]
    return tuple(sorted(found))


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def newest_schema() -> int:
    """Return the schema version that every open SQLite store has."""
    return _scripts()[-1][0]


def refuse_foreign(connection: sqlite3.Connection, path: str) -> None:
    """Reject a file that is not a sayso store, before anything is written to it.

    Raises:
        StoreVersionError: A newer sayso wrote the file.
        StoreCorruptError: The file is another program's database.
    """
    # In this order: another process may be creating the file, and marks it before it creates tables.
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    ours = _pragma(connection, "application_id") == APPLICATION_ID
    version, newest = _pragma(connection, "user_version"), _scripts()[-1][0]
    if tables and not ours:
        raise errors.StoreCorruptError(f"{path} is another program's database; nothing was changed, name another file")
    if ours and version > newest:
        raise errors.StoreVersionError(
            f"{path} was written by a newer sayso (schema {version}, this one knows {newest}); upgrade sayso to open it"
        )


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Apply the missing migrations; write nothing if there are none. Raises as `refuse_foreign`."""
    newest = _scripts()[-1][0]
    if _pragma(connection, "user_version") == newest and _pragma(connection, "application_id") == APPLICATION_ID:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Check again under the lock: another process may have migrated while this one waited.
        refuse_foreign(connection, path)
        version = _pragma(connection, "user_version")
        for number, script in _scripts():
            if number > version:
                for statement in _statements(script):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""The exceptions of the module; the second if SQLite quotes damaged bytes in a message or finds them in a row."""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_UNREACHABLE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}
_SMALLEST = 512  # size in bytes of the smallest database, one page
_BUSY_SECONDS = 30.0
_TICK = 2_000_000_000  # nanoseconds: the coarsest time stamps of a file system, FAT's
_log = logging.getLogger("sayso")


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code


def fault(error: Exception, path: str) -> errors.StoreError:
    """Return the error to raise for one of `DATABASE_ERRORS`."""
    code = _code(error)
    if code in _BUSY:
        return errors.StoreBusyError(f"{path} stayed locked by another process; nothing was recorded, try again")
    if code == sqlite3.SQLITE_FULL:
        return errors.StoreFullError(f"no room left to write {path}; nothing was recorded, free some space")
    text = str(error)
    if code in _READ_ONLY:
        folder = Path(path).absolute().parent
        if os.access(path, os.W_OK) and not os.access(folder, os.W_OK | os.X_OK):
            text = f"SQLite must also be able to write to its folder, {folder}"
        return errors.StoreReadOnlyError(f"{path} cannot be written ({text}); nothing was recorded")
    # The module's own error about a row has no code. A missing table or column means that the schema is damaged.
    shows_damage = isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in text or text.startswith("no such ")
    if code in _CORRUPT or shows_damage:
        return errors.StoreCorruptError(
            f"{path} is not a sayso store or is damaged ({error}); nothing was changed and nothing ran, restore it from"
            " a copy or name another file"
        )
    if code in _UNREACHABLE:
        return errors.StoreUnavailableError(f"{path} cannot be opened or read ({error}); nothing was recorded")
    return errors.StoreError(f"{path}: {error}; nothing was recorded")


# -- opening and closing -----------------------------------------------------------------------------------------------


class Connection(sqlite3.Connection):
    """A connection that knows which files were at its path when it was opened.

    Attributes:
        path: The path of the database.
        home: The path of its folder.
        log: The path of its write-ahead log.
        file, log_file: The identities of these files; None if there was none.
        folder: The folder's identity and change times; None if they would not reveal another change.
        number: Differs for each file.
    """

    path, home, log, number = "", "", "", 0
    file: tuple[int, int] | None = None
    log_file: tuple[int, int] | None = None
    folder: tuple[int, ...] | None = None


def in_place(connection: Connection | None) -> Connection | None:
    """Return a connection; None if its file was removed or replaced, so that its writes would be lost.

    Raises:
        StoreCorruptError: The file exists, but its log was removed or replaced.
    """
    if connection is None:
        return None
    # Removing or replacing a file changes its folder. Checking the files themselves at every verb costs much more:
    # Linux gives a file whose times were read a finer time stamp at its next write, which it must then store.
    try:
        found = os.stat(connection.home)  # noqa: PTH116  runs at every verb, and a `Path` would cost more than the rest
    except OSError:
        seen = None
    else:
        # `mtime` can be set back, as tools that restore a copy do (`rsync -a`, `tar`); on POSIX, `ctime` cannot.
        seen = found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
        if seen == connection.folder:
            return connection
        # Within one tick of the clock, the next change may get the same time stamp.
        if time.time_ns() - max(seen[2:]) <= _TICK:
            seen = None
    file, log_file = _identities(connection.path, connection.log)
    if file != connection.file:
        close(connection)
        _log.warning("%s was removed or replaced while this program used it, and is opened again", connection.path)
        return None
    if log_file != connection.log_file:
        raise errors.StoreCorruptError(
            f"{connection.log} was removed or replaced while this program used {connection.path}; nothing was recorded,"
            " stop all programs that use the file, and start them again"
        )
    # Links lead elsewhere.
    connection.folder = None if seen is None or os.path.islink(connection.path) else seen  # noqa: PTH114
    return connection


def _identities(*paths: str) -> list[tuple[int, int] | None]:
    """Return the identities of the files at these paths; None for a missing one."""
    identities: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            found = os.stat(path)  # noqa: PTH116  as above
        except OSError:
            identities.append(None)
        else:
            identities.append((found.st_dev, found.st_ino))
    return identities


def _make_file(path: Path) -> None:
    """Create the file with mode 0600, because SQLite would use the umask; -wal and -shm get the same mode."""
    # An existing file is not opened here. Closing any descriptor of a file drops all locks of this process on it, and
    # another process could then remove the -wal file to which this process's connections still write.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    found = path.stat()
    if path.is_file() and found.st_nlink > 1:  # each name has its own -wal: users of two see two stores
        raise errors.StoreUnavailableError(
            f"{path} has {found.st_nlink} names (hard links), and SQLite would keep a log for each, so that what is"
            " recorded under one is lost under the other; nothing was recorded, remove all names but one (a symbolic"
            " link may stay)"
        )
    if path.is_file() and 0 < found.st_size < _SMALLEST:  # SQLite treats it as empty, and would overwrite it
        raise errors.StoreCorruptError(f"{path} is not a sayso store; nothing was changed, name another file")


def connect(path: str, also: Iterable[str] = ()) -> Connection:
    """Return a connection to the file; the file and its folder are created if they do not exist.

    Args:
        path: An absolute path.
        also: Statements to execute on the new connection.

    Raises:
        StoreError: It cannot be opened, or is not a store.
        sqlite3.Error: The same, as raised by SQLite.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_file(Path(path))
    except PermissionError as error:
        verb = "written" if os.access(path, os.R_OK) or not Path(path).exists() else "read"
        raise errors.StoreReadOnlyError(f"{path} cannot be {verb} ({error.strerror})") from error
    except OSError as error:
        kind = errors.StoreReadOnlyError if error.errno == 30 else errors.StoreUnavailableError
        raise kind(f"{path} cannot be opened ({error.strerror})") from error
    (file,) = _identities(path)  # before opening: a file that replaces it meanwhile counts as another one
    connection = _open(path)
    try:
        _prepare(connection, path)
        for statement in also:
            connection.execute(statement)
    except BaseException:
        close(connection)
        raise
    connection.path, connection.home, connection.log = path, str(Path(path).parent), f"{os.path.realpath(path)}-wal"
    connection.file, connection.log_file = file, *_identities(connection.log)
    connection.number = 0 if file is None else file[1] * 1_000_003
    return connection


def _prepare(connection: Connection, path: str) -> None:
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA page_size = 2048")  # for a new file; a commit writes whole pages
            # Before the change to WAL, which is written into the file.
            refuse_foreign(connection, path)
            # Changing to WAL does not wait for the lock as other statements do, hence the loop.
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if _code(error) not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
    connection.execute("PRAGMA synchronous = FULL")
    migrate(connection, path)


@contextmanager
def opened(path: str) -> Generator[Connection]:
    """Open a separate connection to an existing file for the block."""
    connection = _open(path)
    try:
        yield connection
    finally:
        close(connection)


def _open(path: str) -> Connection:
    until = time.monotonic() + _YIELD
    while _waiting and time.monotonic() < until:
        time.sleep(0.001)  # threads that open one store after the other would make a fork wait forever
    with _gate:
        if _inherited:
            raise errors.StoreUnavailableError(
                f"{path} cannot be opened here: this process was forked while a store was open, because a call was"
                f" being recorded for more than {_PATIENCE:g} seconds or because the fork was not made by Python;"
                " nothing was recorded. Restart the process, or open stores only after the fork"
            )
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64,
            factory=Connection,
        )  # fmt: skip
        _live.add(connection)
    return connection


def close(connection: Connection) -> None:
    """Close a connection that `connect` returned."""
    with _gate:
        connection.close()
        _live.discard(connection)


# -- forks -------------------------------------------------------------------------------------------------------------

# SQLite keeps the locks of a process on a file in its memory, which a fork copies. A child that opens the file would
# take its parent's locks for its own, lock nothing, and lose its commits when the parent closes the file. And an
# internal lock of SQLite that another thread holds at that moment would never be released in the child. So no
# connection is open, and no thread is inside SQLite, while a process forks.


class _Store(Protocol):
    @property
    def is_connected(self) -> bool: ...

    @property
    def locks(self) -> Sequence[threading.Lock]: ...

    def disconnect(self) -> None: ...


_PATIENCE = 10.0  # seconds that a fork waits for the verbs of other threads
_YIELD = 0.1  # seconds that opening a connection waits for a fork; a verb that opens one may hold up the fork itself
_waiting = deque[None]()  # an item for each fork that waits
_stores: WeakSet[_Store] = WeakSet()
_live: set[Connection] = set()
_inherited: list[Connection | None] = []  # connections that were open when this process was forked nevertheless
# `_turn`: if two threads fork, one waits. `_gate`: nobody opens or closes a connection during a fork. Both are
# reentrant, because a store can be garbage-collected, and a signal handler can fork, at any moment.
_turn, _gate = threading.RLock(), threading.RLock()


class _Forking(threading.local):
    """The forks in progress of a thread, the innermost last: the functions that release the locks taken for each."""

    def __init__(self) -> None:
        self.releases: list[list[Callable[[], object]]] = []


_forking = _Forking()


def closed_at_forks(store: _Store) -> None:
    """Close the connections of a store at every fork of this process, as long as the store exists."""
    with _gate:
        _stores.add(store)


def _before_fork() -> None:
    releases: list[Callable[[], object]] = []
    _forking.releases.append(releases)
    _waiting.append(None)
    try:
        _pause_stores(releases)
    finally:
        _waiting.pop()


def _pause_stores(releases: list[Callable[[], object]]) -> None:
    """Wait until no connection is open, and keep all from opening one; `releases` gets what ends that."""
    until, paused = time.monotonic() + _PATIENCE, set[_Store]()
    if not _taken(_turn, until, releases):
        return
    while _taken(_gate, until, releases) and _live:
        stores = [store for store in list(_stores) if store not in paused and store.is_connected]
        releases.pop()()  # a verb may need it to finish
        for store in stores:
            if not all(_taken(lock, until, releases) for lock in store.locks):
                return
            paused.add(store)
            store.disconnect()
        if time.monotonic() > until:
            return
        time.sleep(0 if stores else 0.001)  # another thread is about to close one of a collected store


def _taken(lock: Any, until: float, releases: list[Callable[[], object]]) -> bool:
    before, patience = len(releases), max(0.0, until - time.monotonic())
    # Atomic with respect to Ctrl-C: a lock that was taken but not noted would never be released.
    releases.extend(compress((lock.release,), map(lock.acquire, (True,), (patience,))))
    return len(releases) > before


def _after_fork_in_parent() -> None:
    deque(map(call, reversed(_forking.releases.pop())), 0)  # atomic too


def _after_fork_in_child() -> None:
    global _turn, _gate
    is_alone = _gate.acquire(blocking=False)
    if _live or not is_alone:
        _inherited.extend(_live or [None])  # they must not be closed here
    _live.clear()
    _forking.releases.clear()
    _waiting.clear()
    _turn, _gate = threading.RLock(), threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


_READ = f"SELECT id, run_id, tool, {', '.join(SEALED_COLUMNS)} FROM request"
_WRITE = f"UPDATE request SET search = ?, {', '.join(f'{name} = ?' for name in SEALED_COLUMNS)} WHERE id = ?"
_STEPS = "SELECT rowid, run_id, n, place, body FROM step"
_RECORDS = "SELECT kind, key, body FROM record"
_WRITE_STEP, _WRITE_RECORD = (
    "UPDATE step SET body = ? WHERE rowid = ?",
    "UPDATE record SET body = ? WHERE kind = ? AND key = ?",
)
_READABLE_WORDS = """
SELECT count(*) FROM journal WHERE (detail LIKE '%"comment":%' OR detail LIKE '%"reason":%')
AND detail NOT LIKE '%"comment":"sealed:%' AND detail NOT LIKE '%"reason":"sealed:%'
"""


class SealReport(NamedTuple):
    """The result of encrypting a store.

    Attributes:
        requests: How many requests there are.
        sealed: How many of them had plain text, which is now encrypted.
        readable_rows: How many journal entries have people's words in plain text; they cannot be changed.
    """

    requests: int
    sealed: int
    readable_rows: int


def seal_store(path: str | Path, key: str) -> SealReport:
    """Encrypt all plain text in the store (requests, steps of runs, records), in one transaction.

    Raises:
        StoreSealedError: A request was encrypted with another key; nothing was changed.
        StoreError: The file cannot be written, or is not a store.
    """
    seal = Seal(key)
    if not Path(path).is_file():
        raise errors.StoreUnavailableError(f"{path} is not there; nothing was changed")
    try:
        with opened(str(path)) as connection:
            migrate(connection, str(path))
            connection.execute("PRAGMA secure_delete = ON")  # overwrite the plain text
            connection.execute("BEGIN IMMEDIATE")
            try:
                done = _sealed(connection, seal)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log still has the plain text
            return done
    except DATABASE_ERRORS as error:
        raise fault(error, str(path)) from error


def _sealed(connection: sqlite3.Connection, seal: Seal) -> SealReport:
    for row, run_id, n, place, body in connection.execute(_STEPS).fetchall():
        if _is_readable(body):
            connection.execute(_WRITE_STEP, (seal.encrypt(body, run_id, step_column(n, place)), row))
    for kind, key, body in connection.execute(_RECORDS).fetchall():
        if _is_readable(body):
            connection.execute(_WRITE_RECORD, (seal.encrypt(body, key, record_column(kind)), kind, key))
    requests = sealed = 0
    for request_id, run_id, tool, *texts in connection.execute(_READ).fetchall():
        requests += 1
        opened = [
            text if text is None or _is_readable(text) else seal.decrypt(text, request_id, column)
            for text, column in zip(texts, SEALED_COLUMNS, strict=True)
        ]
        if not any(_is_readable(text) for text in texts if text is not None):
            continue
        sealed += 1
        closed = [
            None if text is None else seal.encrypt(text, request_id, column)
            for text, column in zip(opened, SEALED_COLUMNS, strict=True)
        ]
        connection.execute(_WRITE, (sealed_search(request_id, run_id, tool), *closed, request_id))
    readable: Any = connection.execute(_READABLE_WORDS).fetchone()[0]
    return SealReport(requests, sealed, readable)


def _is_readable(text: str) -> bool:
    return not text.startswith("sealed:")
