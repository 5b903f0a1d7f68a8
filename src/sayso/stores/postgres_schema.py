"""Schema migrations of the Postgres store: numbered SQL files, each applied once, in order, under an advisory lock.

A migration first only adds (expand), so that servers of the previous version continue beside new ones; a later
migration removes what only they need (contract). The first line of a migration names the newest schema of the oldest
sayso that works with it: `-- works from 1`.
"""

from __future__ import annotations

import re
import time
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg
from psycopg import errors as faults

from sayso import errors

_LOCK = 0x5A15_0001
_PATIENCE = 60.0
_FIND = "SELECT version, works_from FROM sayso.version"
_MAKE = """
CREATE SCHEMA IF NOT EXISTS sayso;
CREATE TABLE IF NOT EXISTS sayso.version (version integer NOT NULL, works_from integer NOT NULL);
INSERT INTO sayso.version SELECT 0, 0 WHERE NOT EXISTS (SELECT 1 FROM sayso.version);
"""


class _Script(NamedTuple):
    number: int
    works_from: int
    text: str


@cache
def _scripts() -> tuple[_Script, ...]:
    found = [
        (int(entry.name.split("_")[0]), entry.read_text(encoding="utf-8"))
        for entry in (files("sayso.stores") / "migrations" / "postgres").iterdir()
    ]
    return tuple(_Script(number, _works_from(text), text) for number, text in sorted(found))


def _works_from(text: str) -> int:
    header = re.match(r"-- works from (\d+)\n", text)
    if header is None:
        raise RuntimeError("a migration does not say with which schema it works")
    return int(header[1])


def newest_schema() -> int:
    """Return the schema version that every open Postgres store has."""
    return _scripts()[-1].number


def migrate(connection: psycopg.Connection[Any], place: str) -> None:
    """Apply the missing migrations; write nothing if there are none.

    Each migration is its own transaction, which waits for a table lock for at most two seconds at a time, because a
    waiting lock blocks everybody else.

    Raises:
        StoreVersionError: A newer sayso made tables that this one cannot use.
        StoreCorruptError: The schema `sayso` was made by another program, or the database is not in UTF-8.
        StoreBusyError: Other programs used the tables for a minute without a pause.
    """
    scripts = _scripts()
    version = _version(connection, place)
    deadline = time.monotonic() + _PATIENCE
    while version < scripts[-1].number:
        try:
            version = _next(connection, scripts, place)
        except (faults.LockNotAvailable, faults.DeadlockDetected) as error:
            if time.monotonic() > deadline:
                raise errors.StoreBusyError(f"the tables of {place} stayed in use; nothing was changed") from error
            time.sleep(0.1)


def _version(connection: psycopg.Connection[Any], place: str) -> int:
    try:
        found = connection.execute(_FIND.encode()).fetchone()
    except (faults.UndefinedTable, faults.InvalidSchemaName):
        return 0
    except psycopg.ProgrammingError as error:
        raise errors.StoreCorruptError(
            f"the schema `sayso` of {place} was not made by sayso; nothing was changed"
        ) from error
    version, works_from = found or (0, 0)
    newest = _scripts()[-1].number
    if works_from > newest:
        raise errors.StoreVersionError(
            f"{place} was written by a newer sayso (schema {version}, this one knows {newest}); upgrade sayso to"
            " open it"
        )
    return version


def _next(connection: psycopg.Connection[Any], scripts: tuple[_Script, ...], place: str) -> int:
    """Apply the next migration, unless another process has meanwhile; return the schema version after it."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1)", (_LOCK,))  # two processes may begin at once
        connection.execute("SET LOCAL lock_timeout = '2s'")
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise errors.StoreCorruptError(f"{place} uses the encoding {encoding}, not UTF8; create another database")
        connection.execute(_MAKE)
        version = _version(connection, place)
        script = next((one for one in scripts if one.number > version), None)
        if script is None:
            return version
        connection.execute(script.text.encode())
        connection.execute("UPDATE sayso.version SET version = $1, works_from = $2", (script.number, script.works_from))
        return script.number
