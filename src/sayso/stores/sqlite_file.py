"""Connections to a SQLite file: opening and closing them, across forks, and when the file is replaced.

Also here: creating the file, readable by its owner only, and SQLite's errors as `sayso.errors`.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import compress
from operator import call
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from sayso import errors
from sayso.stores.migrate import migrate, refuse_foreign

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


def is_busy(error: Exception) -> bool:
    """Return whether somebody else holds the lock."""
    return _code(error) in _BUSY


def fault(error: Exception, path: str) -> errors.StoreError:
    """Return the error to raise for one of `DATABASE_ERRORS`."""
    code = _code(error)
    if code in _BUSY:
        return errors.StoreBusyError(f"{path} stayed locked by another process; nothing was recorded, try again")
    if code == sqlite3.SQLITE_FULL:
        return errors.StoreFullError(f"no room left to write {path}; nothing was recorded, free some space")
    if code in _READ_ONLY:
        return errors.StoreReadOnlyError(f"{path} cannot be written ({_why(path, error)}); nothing was recorded")
    if code in _CORRUPT or _shows_damage(error):
        return errors.StoreCorruptError(
            f"{path} is not a sayso store or is damaged ({error}); nothing was changed and nothing ran, restore it from"
            " a copy or name another file"
        )
    if code in _UNREACHABLE:
        return errors.StoreUnavailableError(f"{path} cannot be opened or read ({error}); nothing was recorded")
    return errors.StoreError(f"{path}: {error}; nothing was recorded")


def _why(path: str, error: Exception) -> str:
    folder = Path(path).absolute().parent
    if os.access(path, os.W_OK) and not os.access(folder, os.W_OK | os.X_OK):
        return f"SQLite must also be able to write to its folder, {folder}"
    return str(error)


def _shows_damage(error: Exception) -> bool:
    # The module's own error about a row has no code. A missing table or column means that the schema is damaged.
    text = str(error)
    return isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in text or text.startswith("no such ")


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
        changed = found.st_mtime_ns, found.st_ctime_ns
        # Within one tick of the clock, the next change may get the same time stamp.
        seen = (found.st_dev, found.st_ino, *changed) if time.time_ns() - max(changed) > _TICK else None
    if seen is not None and seen == connection.folder:
        return connection
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
    connection.folder = None if os.path.islink(connection.path) else seen  # noqa: PTH114  links lead elsewhere
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
            if not is_busy(error) or time.monotonic() > deadline:
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
    def locks(self) -> Sequence[threading.Lock]: ...

    def disconnect(self) -> None: ...


_PATIENCE = 10.0  # seconds that a fork waits for the verbs of other threads
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
    until, paused = time.monotonic() + _PATIENCE, set[_Store]()
    if not _taken(_turn, until, releases):
        return
    while _taken(_gate, until, releases) and _live:
        stores = [store for store in list(_stores) if store not in paused]
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
    _turn, _gate = threading.RLock(), threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
