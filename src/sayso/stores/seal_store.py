"""Encrypts the rows of a SQLite store that were written before `SAYSO_KEY` was set.

A store with a key rejects plain text, because somebody may have inserted it by hand. This module accepts it, so run it
once, right after the key was set, and only if nobody else can write the file. Journal entries are never rewritten:
their plain texts stay and are counted.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from sayso import errors
from sayso.stores.codec import SEALED_COLUMNS, Seal, sealed_search
from sayso.stores.memory_tables import record_column, step_column
from sayso.stores.migrate import migrate
from sayso.stores.sqlite_file import DATABASE_ERRORS, fault, opened

_READ = f"SELECT id, run_id, tool, {', '.join(SEALED_COLUMNS)} FROM request"  # noqa: S608  only constants
_WRITE = f"UPDATE request SET search = ?, {', '.join(f'{name} = ?' for name in SEALED_COLUMNS)} WHERE id = ?"  # noqa: S608  the same
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
                _seal_the_rest(connection, seal)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log still has the plain text
            return done
    except DATABASE_ERRORS as error:
        raise fault(error, str(path)) from error


def _seal_the_rest(connection: sqlite3.Connection, seal: Seal) -> None:
    """Encrypt the steps of runs and the records."""
    for row, run_id, n, place, body in connection.execute(_STEPS).fetchall():
        if _is_readable(body):
            connection.execute(_WRITE_STEP, (seal.close(body, run_id, step_column(n, place)), row))
    for kind, key, body in connection.execute(_RECORDS).fetchall():
        if _is_readable(body):
            connection.execute(_WRITE_RECORD, (seal.close(body, key, record_column(kind)), kind, key))


def _sealed(connection: sqlite3.Connection, seal: Seal) -> SealReport:
    requests = sealed = 0
    for request_id, run_id, tool, *texts in connection.execute(_READ).fetchall():
        requests += 1
        opened = [
            None if text is None else seal.open_any(text, request_id, column)
            for text, column in zip(texts, SEALED_COLUMNS, strict=True)
        ]
        if not any(_is_readable(text) for text in texts if text is not None):
            continue
        sealed += 1
        closed = [
            None if text is None else seal.close(text, request_id, column)
            for text, column in zip(opened, SEALED_COLUMNS, strict=True)
        ]
        connection.execute(_WRITE, (sealed_search(request_id, run_id, tool), *closed, request_id))
    readable: Any = connection.execute(_READABLE_WORDS).fetchone()[0]
    return SealReport(requests, sealed, readable)


def _is_readable(text: str) -> bool:
    return not text.startswith("sealed:")
