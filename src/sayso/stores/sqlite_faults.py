"""What SQLite's errors mean, in the words of `sayso.errors`."""

from __future__ import annotations

import sqlite3

from sayso import errors

__all__ = ["DATABASE_ERRORS", "fault", "is_busy"]

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
