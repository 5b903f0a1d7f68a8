"""A statement runs on a connection without a cursor, and is prepared when it comes again, up to a number of them."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="NOT TESTED with Postgres, because psycopg is not installed")

import psycopg
from psycopg import errors as faults
from psycopg.pq import TransactionStatus

from sayso.stores import postgres_connection
from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres_connection import COMMIT, Connection, Connections

PREPARED = "SELECT count(*) FROM pg_prepared_statements"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with closing(Connection.connect(url, autocommit=True, client_encoding="UTF8")) as opened:
        yield opened


def test_values_come_back_as_they_were_sent(connection: Connection) -> None:
    values = ("Grüße, 世界 \U0001f642", "", "a\nb\\'\"", 7, -(2**62), None)
    sql = "SELECT ?::text, ?::text, ?::text, ?::int, ?::bigint, ?::text, 2::smallint, pg_advisory_lock(1)"
    for _ in range(3):  # not prepared, prepared, and once more
        assert connection.run(sql, values).fetchall() == [(*values, 2, "")]
    assert connection.run("SELECT 1 WHERE ? = 'a'", ("b",)).fetchone() is None


def test_a_text_that_no_row_can_contain_is_refused_and_not_cut(connection: Connection) -> None:
    with pytest.raises(psycopg.DataError):
        connection.run("SELECT ?::text", ("a\0b",))
    with pytest.raises(UnicodeEncodeError):
        connection.run("SELECT ?::text", ("\ud800",))
    assert connection.run("SELECT ?::text", ("a",)) == [("a",)]


def test_a_statement_that_fails_raises_what_a_cursor_would(connection: Connection) -> None:
    connection.command(b"CREATE TEMP TABLE one (n int PRIMARY KEY)")
    insert = "INSERT INTO one VALUES (?)"
    connection.run(insert, (1,))
    for _ in range(3):
        with pytest.raises(faults.UniqueViolation, match="one_pkey"):
            connection.run(insert, (1,))
    with pytest.raises(faults.UndefinedTable):
        connection.run("SELECT 1 FROM no_such_table")
    with pytest.raises(faults.SyntaxError):
        connection.command(b"BEGINN")
    assert connection.run("SELECT n FROM one") == [(1,)]


def test_a_commit_that_rolled_back_says_so(connection: Connection) -> None:
    connection.command(b"BEGIN")
    with pytest.raises(faults.UndefinedTable):
        connection.run("SELECT 1 FROM no_such_table")
    with pytest.raises(faults.InFailedSqlTransaction, match="rolled back"):
        connection.command(COMMIT)
    assert connection.pgconn.transaction_status == TransactionStatus.IDLE


def test_a_connection_that_is_lost_says_so(connection: Connection, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        connection.run("SELECT 1")
    assert connection.closed


def test_what_is_prepared_outlives_a_transaction_that_is_rolled_back(connection: Connection) -> None:
    connection.command(b"BEGIN")
    for n in range(3):
        assert connection.run("SELECT ?::int", (n,)) == [(n,)]
    with pytest.raises(faults.DivisionByZero):
        connection.run("SELECT 1 / ?::int", (0,))
    connection.command(b"ROLLBACK")
    assert connection.run(PREPARED) == [(1,)]
    assert connection.run("SELECT ?::int", (7,)) == [(7,)]


def test_of_many_statements_only_some_stay_prepared(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_connection, "_PREPARED", 4)
    for n, _ in itertools.product(range(10), range(2)):
        assert connection.run(f"SELECT {n:d}") == [(n,)]
    assert connection.run(PREPARED)[0][0] <= 4
    assert [connection.run(f"SELECT {n:d}") for n in range(10)] == [[(n,)] for n in range(10)]


def test_behind_a_pooler_nothing_is_prepared(connection: Connection) -> None:
    connection.can_prepare = False
    for n in range(8):
        assert connection.run("SELECT ?::int", (n,)) == [(n,)]
    assert connection.run(PREPARED) == [(0,)]


def test_a_connection_that_cannot_be_opened_keeps_no_place(url: str) -> None:
    answers = iter([False] * 9 + [True] * 9)

    def connect() -> Connection:
        if not next(answers):
            raise psycopg.OperationalError("the database is not there")
        return Connection.connect(url, autocommit=True)

    connections = Connections(connect)
    for _ in range(9):
        with pytest.raises(psycopg.OperationalError), connections.one():
            pass
    with ExitStack() as stack:
        taken = [stack.enter_context(connections.one()) for _ in range(4)]
        taken[0].command(b"BEGIN")
    assert [one.closed for one in taken] == [True, False, False, False]
    with connections.one() as one:
        assert one.pgconn.transaction_status == TransactionStatus.IDLE
    connections.close()
    assert all(one.closed for one in taken)


def test_what_another_thread_takes_while_all_are_closed_is_no_error(url: str) -> None:
    class Shared(list[Connection]):
        def __bool__(self) -> bool:
            is_there = len(self) > 0
            taken.extend(self)  # by another thread, right after this one has looked
            self.clear()
            return is_there

    taken: list[Connection] = []
    connections = Connections(lambda: Connection.connect(url, autocommit=True))
    with connections.one():
        pass
    connections._free = Shared(connections._free)
    connections.close()
    for one in taken:
        one.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_that_drops_the_store_leaves_its_parent_the_session(url: str) -> None:
    def session() -> int:
        return store._patiently(lambda connection: connection.info.backend_pid)

    store: Any = PostgresStore(url)
    before = session()
    child = os.fork()
    if child == 0:  # pragma: no cover  in the child
        try:
            store = None
            gc.collect()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert store._query("SELECT pg_backend_pid()", ()) == [(before,)]
    store.close()
