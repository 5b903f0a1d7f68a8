"""Connections to the database of a Postgres store: a few for each process, how statements run on them, and errors.

A verb's statement runs on libpq through `psycopg.pq`, because a cursor takes some 25 us of processor time for each:
with cursors, a cycle took 110 us more of 880. Lists, pipelines and migrations use cursors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

import psycopg
from psycopg import errors as faults
from psycopg import generators, pq

from sayso import errors

CONNECTIONS = 4  # per process and store; a caller waits if all are in use
_PREPARED = 100  # statements per connection
COMMIT = b"COMMIT"
_DIALECT = (
    ("instr(", "strpos("),
    ("json_each(?)", "json_array_elements_text(CAST(? AS json))"),
    ("live IS NULL AND state IN", "final_state IN"),
    ("link = excluded.link", "link = excluded.link, tx = pg_current_xact_id()"),
)
_TABLE = re.compile(r"\b(FROM|JOIN|INTO|UPDATE) (asked|journal|record|request|run|schema_text|standing|step|wait)\b")


@lru_cache(maxsize=1024)
def translated(sql: str) -> bytes:
    """Translate a statement of the SQL stores for Postgres: `$1` for `?`, and the schema before each table."""
    for ours, theirs in _DIALECT:
        sql = sql.replace(ours, theirs)
    first, *rest = _TABLE.sub(r"\1 sayso.\2", sql).split("?")
    return (first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))).encode()


class Rows(list[tuple[Any, ...]]):
    """What a statement returned; a whole number is an `int`, and everything else a `str`."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the first row, if any."""
        return self[0] if self else None

    def fetchall(self) -> Rows:
        """Return all rows."""
        return self


class Connection(psycopg.Connection[Any]):
    """A connection that also runs the store's statements, as they are written for all SQL stores.

    Attributes:
        can_prepare: Whether the session lasts, so that statements that are used again are prepared.
    """

    can_prepare = True
    # psycopg then does not warn of one that is dropped while it is open. Its session ends then, except in a forked
    # child, where closing would end it for the parent too.
    _pool = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._statements: dict[str, bytes | None] = {}  # the least recently prepared first; None: used once
        self._count = 0

    def run(self, sql: str, values: Sequence[str | int | None] = ()) -> Rows:
        """Run one statement.

        Raises:
            psycopg.Error: As `execute` raises it.
            UnicodeEncodeError: A text has a lone surrogate.
        """
        params = [value if value is None else str(value).encode() for value in values]
        if b"\0" in b"".join(filter(None, params)):  # libpq would end the text there
            raise faults.DataError("a text contains a zero byte")
        with self.lock:
            name = self._name(sql) if self.can_prepare else None
            if name is None:
                self.pgconn.send_query_params(translated(sql), params)
            else:
                self.pgconn.send_query_prepared(name, params)
            return _rows(self._answer())

    def command(self, text: bytes) -> None:
        """Run commands that return nothing and have no values, such as BEGIN.

        Raises:
            InFailedSqlTransaction: A statement of the transaction failed, so that its COMMIT rolled it back, for which
                Postgres sends no error.
        """
        with self.lock:
            self.pgconn.send_query(text)
            done = self._answer().command_status
        if text == COMMIT and done != COMMIT:
            raise faults.InFailedSqlTransaction("a statement failed, so the transaction was rolled back")

    def _name(self, sql: str) -> bytes | None:
        """Return the name of the prepared statement; None for the first use of one, which is often the only one."""
        statements = self._statements
        if (name := statements.get(sql)) is not None:
            return name
        if sql not in statements:
            if len(statements) >= _PREPARED:
                old = statements.pop(next(iter(statements)))
                if old is not None:
                    self.pgconn.send_query(b"DEALLOCATE " + old)
                    self._answer()
            statements[sql] = None
            return None
        self._count += 1
        name = b"sayso_%d" % self._count
        self.pgconn.send_prepare(name, translated(sql))
        self._answer()
        del statements[sql]
        statements[sql] = name
        return name

    def _answer(self) -> pq.abc.PGresult:
        results = self.wait(generators.execute(self.pgconn))
        for result in results:
            if result.status not in _FINE:
                raise faults.error_from_result(result)
        return results[-1]


_FINE = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}
_READERS: dict[int, Callable[[bytes], Any]] = dict.fromkeys((20, 21, 23), int)  # the types of whole numbers


def _rows(result: pq.abc.PGresult) -> Rows:
    count = result.ntuples
    if count == 0:
        return Rows()
    readers = [(column, _READERS.get(result.ftype(column), bytes.decode)) for column in range(result.nfields)]
    get, rows = result.get_value, Rows()
    for row in range(count):
        values = [(read, get(row, column)) for column, read in readers]
        rows.append(tuple([None if value is None else read(value) for read, value in values]))
    return rows


class Connections:
    """Connections to one database, up to a maximum. A lost one is not handed out again.

    Not `psycopg_pool`, whose threads do not survive a fork; a store needs no more than this.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._free: list[Connection] = []
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(CONNECTIONS):
            self._places.put(None)

    @contextmanager
    def one(self) -> Generator[Connection]:
        """Lend a connection that is not in a transaction for a block."""
        self._places.get()
        try:
            connection = None
            with suppress(IndexError):  # as in `close`
                connection = self._free.pop()
            if connection is None:
                connection = self._connect()
            try:
                yield connection
            finally:
                if connection.pgconn.transaction_status == pq.TransactionStatus.IDLE:
                    self._free.append(connection)
                else:  # lost, or in the middle of a transaction
                    connection.close()
        finally:
            self._places.put(None)

    def close(self) -> None:
        """Close the idle connections."""
        with suppress(IndexError):  # not `while self._free`: another thread may take the last one meanwhile
            while True:
                self._free.pop().close()


def first_line(error: psycopg.Error) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def fault_of(error: psycopg.Error, place: str) -> errors.StoreError:
    """Return the error to raise for one of psycopg's from a database that is there."""
    reason = first_line(error)
    match error:
        case (
            faults.QueryCanceled() | faults.LockNotAvailable() | faults.SerializationFailure()
            | faults.DeadlockDetected()
        ):  # fmt: skip
            return errors.StoreBusyError(f"{place} did not answer in time ({reason}); nothing was recorded, try again")
        case faults.DiskFull() | faults.OutOfMemory():
            return errors.StoreFullError(
                f"no room left to write {place} ({reason}); nothing was recorded, free some space"
            )
        case faults.ReadOnlySqlTransaction() | faults.InsufficientPrivilege():
            return errors.StoreReadOnlyError(f"{place} cannot be written ({reason}); nothing was recorded")
        case faults.UndefinedTable() | faults.UndefinedColumn() | faults.DataCorrupted() | faults.IndexCorrupted():
            return errors.StoreCorruptError(
                f"{place} is not a sayso store or is damaged ({reason}); nothing was changed and nothing ran, restore"
                " it from a copy or name another database"
            )
        case _:
            return errors.StoreError(f"{place}: {reason}; nothing was recorded")
