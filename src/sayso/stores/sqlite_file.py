"""Making the file of a SQLite store, before SQLite opens it.

Invariant: only its owner can read it, and no descriptor of a file that is there is ever opened and closed here.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from sayso import errors

__all__ = ["make_file"]

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
