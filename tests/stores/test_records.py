"""Records in files, beyond the contract: what a key hides, what a hand does to them, and what a read costs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sayso import errors
from sayso.clock import now
from sayso.stores.jsonl import JsonlStore
from sayso.stores.sqlite import SqliteStore
from sayso.stores.transaction import Record
from sayso.testing.scene import refusal
from tests.stores.test_contract import KEY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sayso.db"


def by_hand(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("kind", [SqliteStore, JsonlStore])
def test_a_key_seals_what_stands_in_a_record(path: Path, kind: type[SqliteStore | JsonlStore]) -> None:
    record = Record("token", "t", {"owner": "canary"})
    with closing(kind(path, key=KEY)) as store:
        store.keep(record)
        assert store.record("token", "t") == record
    with closing(kind(path, key=KEY)) as store:
        assert store.swap(record, Record("token", "t", {"owner": "canary 2"}))
    assert b"canary" not in path.read_bytes()
    with closing(kind(path)) as store:
        refusal(errors.StoreSealedError, lambda: store.record("token", "t"))


@pytest.mark.parametrize(
    ("statement", "kind", "key"),
    [
        ("UPDATE record SET body = (SELECT body FROM record WHERE key = 'u') WHERE key = 't'", "token", "t"),
        ("UPDATE record SET key = 'v' WHERE key = 't'", "token", "v"),
        ("UPDATE record SET kind = 'link' WHERE key = 't'", "link", "t"),
        ("UPDATE record SET body = '{}' WHERE key = 't'", "token", "t"),
    ],
)
def test_a_sealed_record_can_be_moved_nowhere(path: Path, statement: str, kind: str, key: str) -> None:
    with closing(SqliteStore(path, key=KEY)) as store:
        for each in ("t", "u"):
            store.keep(Record("token", each, {"key": each}))
        by_hand(path, statement)
        refusal(errors.StoreSealedError, lambda: store.record(kind, key))


@pytest.mark.parametrize("body", ["x'00'", "'[]'", "'{'", "'null'"])
def test_a_record_that_somebody_altered_is_refused(path: Path, body: str) -> None:
    with closing(SqliteStore(path)) as store:
        store.keep(Record("token", "t", {}))
        by_hand(path, f"UPDATE record SET body = {body}")  # noqa: S608  our own constants
        refusal(errors.StoreCorruptError, lambda: store.record("token", "t"))
        refusal(errors.StoreCorruptError, lambda: store.records("token"))


def test_what_is_due_is_found_by_an_index_and_nothing_is_sorted(path: Path) -> None:
    statements: list[str] = []
    with closing(SqliteStore(path)) as store:
        store.keep(Record("seen", "k", {}, now()))
        store._writer().set_trace_callback(statements.append)
        assert store.records("seen", due_by=now())
        assert store.records("seen", after="a")
        store._writer().set_trace_callback(None)
        plans = [
            str([row[3] for row in store._writer().execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()])
            for statement in statements
        ]
    assert len(plans) == 2
    assert "record_due (kind=? AND due<?)" in plans[0]
    assert "PRIMARY KEY (kind=? AND key>?)" in plans[1]
    assert all("TEMP B-TREE" not in plan for plan in plans)
