"""Schema migrations of the SQLite store: numbered SQL files, each applied once, in order, under the write lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from sayso import errors

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
        _apply(connection, _pragma(connection, "user_version"))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _apply(connection: sqlite3.Connection, version: int) -> None:
    for number, script in _scripts():
        if number > version:
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
