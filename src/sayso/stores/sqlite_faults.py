"""What SQLite's errors mean, in the words of `sayso.errors`."""

from __future__ import annotations

import sqlite3

from sayso import errors

__all__ = ["fault", "is_busy"]

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_UNREACHABLE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether somebody else holds the lock."""
    return _code(error) in _BUSY


def fault(error: sqlite3.Error, path: str) -> errors.StoreError:
    """Return the fault to raise for an error of SQLite."""
    code = _code(error)
    if code in _BUSY:
        return errors.StoreBusyError(f"{path} stayed locked by another process; nothing was recorded, try again")
    if code == sqlite3.SQLITE_FULL:
        return errors.StoreFullError(f"no room left to write {path}; nothing was recorded, free some space")
    if code in _READ_ONLY:
        return errors.StoreReadOnlyError(f"{path} cannot be written ({error}); nothing was recorded")
    if code in _CORRUPT or "decode to UTF-8" in str(error):  # the module's own error, which has no code
        return errors.StoreCorruptError(
            f"{path} is not a sayso store or is damaged ({error}); nothing was changed, restore it or name another file"
        )
    if code in _UNREACHABLE:
        return errors.StoreUnavailableError(f"{path} cannot be opened or read ({error}); nothing was recorded")
    return errors.StoreError(f"{path}: {error}; nothing was recorded")
