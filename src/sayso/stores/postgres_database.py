"""The database of the Postgres store: its schema migrations, its statements, and the feed of its changes.

Migrations are numbered SQL files, each applied once, in order, under an advisory lock. A migration first only adds
(expand), so that servers of the previous version continue beside new ones; a later migration removes what only they
need (contract). The first line of a migration names the newest schema of the oldest sayso that works with it: `-- works
from 1`.

A change of a request is one statement, which also writes its journal entry. It is a compare-and-set on `link`, the hash
of the request's newest journal entry, and on the position in the run's chain, which is the journal's primary key. If
another process was faster, it writes nothing.

One thread and one connection per process and store wake callers that wait. Asking and deciding send a notification in
their own transaction, which LISTEN receives at once. Everything else, such as starts and runs, is found by polling:
journal rows carry the transaction that wrote them, and each poll reads those that the snapshot of the previous poll did
not include. Ordering by time or number would miss a transaction that began earlier and committed later. The next poll
also finds what a lost connection missed.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import psycopg
from psycopg import errors as faults

from sayso import errors
from sayso.effects import daemon_thread
from sayso.model.journal import Entry
from sayso.stores import sql
from sayso.stores.codec import ASKED_COLUMNS, PROGRESS_COLUMNS, RequestRow
from sayso.stores.postgres_connection import translated
from sayso.stores.sql import Selects, none_of
from sayso.stores.watching import BUSY, IDLE, Bell

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
    found = list[_Script]()
    for entry in (files("sayso.stores") / "migrations" / "postgres").iterdir():
        text = entry.read_text(encoding="utf-8")
        header = re.match(r"-- works from (\d+)\n", text)
        if header is None:
            raise RuntimeError("a migration does not say with which schema it works")
        found.append(_Script(int(entry.name.split("_")[0]), int(header[1]), text))
    return tuple(sorted(found))


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
    except faults.InsufficientPrivilege:
        raise
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


# Where the types of an operator or function do not match exactly, it is qualified: one that another user made in a
# schema of the search path would match better, and would run with our rights.
CLOCK = "(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint"
_COLUMNS, _ENTRY = ", ".join(RequestRow._fields), ", ".join(Entry._fields)
# With the request's newest journal entry, which its row must match, the end of its chain, and the versions of its rows.
_LOAD = f"""
SELECT {", ".join([*(f"r.{name}" for name in RequestRow._fields), *(f"j.{name}" for name in Entry._fields)])},
h.seq, h.link, r.n, r.asked_version, r.version, j.version
FROM request AS r LEFT JOIN LATERAL (
    SELECT {_ENTRY}, xmin AS version FROM journal
    WHERE run_id = r.run_id AND request_id = r.id ORDER BY seq DESC LIMIT 1
) AS j ON TRUE LEFT JOIN LATERAL (
    SELECT seq, link FROM journal WHERE run_id = r.run_id ORDER BY seq DESC LIMIT 1
) AS h ON TRUE WHERE """


def _asked_with(name: str) -> str:
    """Return the condition that an entry of the journal asks with a key or an effect."""
    return f"""event = 'asked' AND detail LIKE '%"{name}":"%' AND substring(detail FROM '"{name}":"([^"]*)"') = $1"""


SELECTS = Selects.of(
    _COLUMNS, _LOAD, *(
        f"SELECT id FROM asked WHERE {name}_digest = $1 UNION SELECT request_id FROM journal WHERE {_asked_with(name)}"
        for name in ("key", "effect")
    )
)  # fmt: skip
_KEY_IS_NEW = (
    "NOT EXISTS (SELECT 1 FROM asked WHERE key_digest = ?)",
    f"NOT EXISTS (SELECT 1 FROM journal WHERE {_asked_with('key').replace('$1', '?')})",
)

# A position in the chain is taken once, and only after the entry from which the link is computed.
_FOLLOWS = "(SELECT link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1) = ?"
_BEGINS = "NOT EXISTS (SELECT 1 FROM journal WHERE run_id = ?)"
_APPEND = f"INSERT INTO journal ({_ENTRY}) SELECT {', '.join('?' * len(Entry._fields))}"
_NOTIFY = ", pg_notify('sayso', ?)"
_VERSION = "pg_current_xact_id()::xid"  # the `xmin` of the rows that a statement writes
# A manual change since this process read the rows must be found before the call runs. Each change of a row makes
# another version of it, so a start compares the versions of all three rows. Every other statement compares those of the
# rows that it writes: it makes another version itself, behind which an earlier change would not be found any more.
_ASKED_UNCHANGED = ("a.id = s.id", "a.n = s.n", "a.xmin = ?")
_JOURNAL_UNCHANGED = (
    "j.run_id = ?", "j.seq = ?", "j.xmin = ?",
    "NOT EXISTS (SELECT 1 FROM journal WHERE run_id = ? AND seq > ? AND request_id = ?)",
)  # fmt: skip
ASKED_OF = tuple(name for name in ASKED_COLUMNS if name != "fingerprint")
LOCK = "SELECT pg_advisory_xact_lock(pg_catalog.hashtextextended(?, 0))"
# Who takes a run passes over one that another transaction is writing.
TAKE_RUN = f"{sql.GET_RUN} FOR UPDATE OF run SKIP LOCKED"
PUT_RUN = f"{sql.PUT_RUN} WHERE run.link = ? RETURNING 1"
NEW_RECORD = "INSERT INTO record (kind, key, body, due) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"


def _marks(count: int) -> str:
    return ", ".join("?" * count)


@cache
def insert_of(*, is_first: bool, kinds: tuple[str, ...], has_key: bool, with_schema: bool, notifies: bool) -> str:
    """Return the statement that records a new request."""
    # Checked here, so that only a write at the very same moment hits a unique index and fails.
    guards = [
        _BEGINS if is_first else _FOLLOWS,
        "NOT EXISTS (SELECT 1 FROM standing WHERE fingerprint = ? AND holds = 1)",
    ]
    guards += [*_KEY_IS_NEW] * has_key + [none_of(kinds)] * bool(kinds)
    # An older copy of the database may have been restored since this process wrote the schema.
    guards += ["EXISTS (SELECT 1 FROM schema_text WHERE id = ?)"] * (not with_schema)
    schema = "known AS (INSERT INTO schema_text (id, text) VALUES (?, ?) ON CONFLICT DO NOTHING)," * with_schema
    return f"""WITH {schema} new AS (
        INSERT INTO asked ({", ".join(ASKED_OF)}) SELECT {_marks(len(ASKED_OF))} WHERE {" AND ".join(guards)}
        RETURNING n
    ), written AS (
        INSERT INTO standing (n, id, fingerprint, {", ".join(PROGRESS_COLUMNS)}, link)
        SELECT new.n, {_marks(len(PROGRESS_COLUMNS) + 3)} FROM new RETURNING n
    ) {_journal("(SELECT n FROM written)", notifies=notifies)}"""


def append_of(*, is_first: bool) -> str:
    """Return the statement that writes a journal entry alone."""
    return f"{_APPEND} WHERE {_BEGINS if is_first else _FOLLOWS} ON CONFLICT DO NOTHING RETURNING 1"


def _journal(*more: str, notifies: bool) -> str:
    """Return the end of a statement: insert the journal entry if the row of a request was written.

    It returns the database's time, the version of the written rows, and `more`.
    """
    return f"{_APPEND} FROM written RETURNING {', '.join((CLOCK, _VERSION, *more))}{_NOTIFY * notifies}"


@cache
def update_of(again: tuple[str, ...], *, is_first: bool, kinds: tuple[str, ...], compares: bool, notifies: bool) -> str:
    """Return the statement that changes a request; `again` names the columns of what was asked that change too."""
    source, guards = "", ["s.n = ?", "s.id = ?", "s.link = ?", "s.xmin = ?", _BEGINS if is_first else _FOLLOWS]
    if again or compares:
        source = " FROM asked AS a"
        guards += _ASKED_UNCHANGED
    if compares:
        source += " CROSS JOIN journal AS j"
        guards += _JOURNAL_UNCHANGED
    guards += [none_of(kinds)] * bool(kinds)
    # Its version again, because somebody may change the row until this statement gets its lock.
    same = "asked.id = w.id AND asked.xmin = ?"
    bare = f", bare AS (UPDATE asked SET {_set(again)} FROM written AS w WHERE {same})" if again else ""
    return f"""WITH written AS (
        UPDATE standing AS s SET {_set((*PROGRESS_COLUMNS, "link"))}{source} WHERE {" AND ".join(guards)} RETURNING s.id
    ){bare} {_journal(notifies=notifies)}"""


def _set(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = ?" for name in names)


_log = logging.getLogger("sayso")
_SINCE = "tx >= pg_snapshot_xmin(CAST(? AS pg_snapshot)) AND NOT pg_visible_in_snapshot(tx, CAST(? AS pg_snapshot))"
# Not from the future: rows restored from another server's dump carry that server's transaction ids.
_PAST = "tx < pg_snapshot_xmax(pg_current_snapshot())"
_CHANGES = f"""SELECT pg_current_snapshot()::text,
ARRAY(SELECT DISTINCT request_id FROM journal WHERE {_SINCE} AND {_PAST} AND request_id <> ''),
EXISTS (SELECT 1 FROM run WHERE {_SINCE} AND {_PAST})"""
_SECOND = 1.0
_LINGER = 100  # polls at the busy pace after the last change, before it slows down


class Changes(NamedTuple):
    """The result of one poll.

    Attributes:
        mark: Pass it to the next poll.
        requests: Ids of requests with new journal entries; each entry is reported once.
        has_runs: Whether a run was written.
    """

    mark: str
    requests: list[str]
    has_runs: bool


def changes_since(connection: psycopg.Connection[Any], mark: str | None) -> Changes:
    """Return what was committed since a mark; without a mark, only the first mark."""
    if mark is None:
        ((now,),) = connection.execute("SELECT pg_current_snapshot()::text").fetchall()
        return Changes(now, [], has_runs=False)
    (found,) = connection.execute(translated(_CHANGES), (mark,) * 4).fetchall()
    return Changes._make(found)


class Feed:
    """The thread that rings the bell. It ends when nobody waits.

    Args:
        bell: Wakes the callers that wait.
        connect: Opens a connection.
        listens: Whether sessions last long enough for LISTEN. If not, it polls as often as for a file.
    """

    def __init__(self, bell: Bell, connect: Callable[[], psycopg.Connection[Any]], *, listens: bool) -> None:
        self._bell, self._connect, self._listens = bell, connect, listens
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_listening = False
        self._nudge = threading.Event()

    def ensure(self) -> bool:
        """Start the thread if needed. Return whether it already listens; if not, everybody is woken when it begins."""
        with self._lock:
            is_listening = self._is_listening
            if self._thread is None:
                self._thread = daemon_thread("sayso-feed", self._run)
        self._nudge.set()
        return is_listening

    def _run(self) -> None:
        while True:
            with self._lock:  # so that `ensure` either finds this thread or starts another
                if self._bell.is_idle:
                    self._thread, self._is_listening = None, False
                    return
            connection = None
            try:
                connection = self._connect()
                if self._listens:
                    connection.execute("LISTEN sayso")
                self._follow(connection)
            except Exception:  # noqa: BLE001  whatever is wrong with the store, the waiters get the error when woken
                _log.debug("the feed of changes of a store starts over", exc_info=True)
                self._is_listening = False
                self._bell.ring_all()
                self._nudge.clear()
                self._nudge.wait(IDLE)
            finally:
                if connection is not None:
                    with suppress(psycopg.Error):
                        connection.close()

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        mark = changes_since(connection, None).mark
        with self._lock:
            self._is_listening = True
        self._bell.ring_all()  # for changes before the mark
        quiet, looked = 0, time.monotonic()
        while not self._bell.is_idle:
            if self._listens:
                # A caller that waits for any change should soon see those without a notification too.
                pause = looked + (IDLE if self._bell.is_for_any else _SECOND) - time.monotonic()
                if pause > 0 and (heard := {one.payload for one in connection.notifies(timeout=pause, stop_after=1)}):
                    self._bell.ring(heard)
                    continue
            else:
                quiet = min(quiet + 1, 2 * _LINGER)
                self._nudge.wait(BUSY if quiet < _LINGER else min(IDLE, BUSY * 1.1 ** (quiet - _LINGER)))
                self._nudge.clear()
            looked = time.monotonic()
            mark, requests, has_runs = changes_since(connection, mark)
            if requests or has_runs:
                self._bell.ring(requests)
                quiet = 0
