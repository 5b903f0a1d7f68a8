"""Runs and records in files, beyond the contract: what a hand does to them, what a key hides, what a read costs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sayso import errors
from sayso.clock import now
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores.filter import Filter, RunFilter
from sayso.stores.jsonl import JsonlStore
from sayso.stores.records import Record
from sayso.stores.sqlite import SqliteStore
from sayso.stores.workers import Lease
from sayso.testing import sample_call
from sayso.testing.scene import refusal
from tests.stores.test_contract import KEY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sayso.db"


def kept(store: SqliteStore, *steps: Step, name: str = "agent", run_id: str = "run_x") -> RunRecord:
    run = RunRecord(run_id, name, "agent", RunState.RUNNING, Lease().holder, now(), now())
    store.leave_run(RunUpdate(run, steps), RunState.PAUSED)
    return run


def by_hand(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_a_key_seals_what_happened_in_a_run(path: Path) -> None:
    with closing(SqliteStore(path, key=KEY)) as store:
        kept(store, Step("/", '{"value":"canary"}'))
        assert store.get_run("run_x").steps[0].body == '{"value":"canary"}'
    assert b"canary" not in path.read_bytes()
    with closing(SqliteStore(path)) as store:
        refusal(errors.StoreSealedError, lambda: store.get_run("run_x"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE step SET body = (SELECT body FROM step WHERE n = 2) WHERE n = 1",
        "UPDATE step SET place = '/b' WHERE n = 1",
        "UPDATE step SET n = 3 WHERE n = 1",
        "UPDATE step SET run_id = 'run_y' WHERE n = 1",
        "UPDATE step SET body = '{}' WHERE n = 1",
    ],
)
def test_a_sealed_step_can_be_moved_nowhere(path: Path, statement: str) -> None:
    with closing(SqliteStore(path, key=KEY)) as store:
        for run_id in ("run_x", "run_y"):
            kept(store, Step("/a", '{"value":1}'), Step("/b", '{"value":2}'), run_id=run_id)
        by_hand(path, "DELETE FROM step WHERE run_id = 'run_y'")
        by_hand(path, statement)
        refusal(errors.StoreError, lambda: [store.get_run(run_id) for run_id in ("run_x", "run_y")])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET state = 'happy'",
        "UPDATE run SET created_at = 'yesterday'",
        "UPDATE step SET body = x'00'",
    ],
)
def test_a_run_that_was_altered_past_reading_is_refused(path: Path, statement: str) -> None:
    with closing(SqliteStore(path)) as store:
        kept(store, Step("/", "{}"))
        by_hand(path, statement)
        assert "run_x" in str(refusal(errors.StoreCorruptError, lambda: store.get_run("run_x")))


def test_a_run_is_read_in_one_query_however_many_steps_it_has(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        kept(store, *(Step(f"/{n}", "{}") for n in range(200)))
        statements = list[str]()
        store._writer().set_trace_callback(statements.append)
        assert len(store.get_run("run_x").steps) == 200
        assert len(statements) == 1


def test_what_can_go_on_is_found_without_walking_over_what_has_ended(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        request = store.ask(sample_call())
        kept(store, Step("/", "{}", request.id))
        statements = list[str]()
        store._writer().set_trace_callback(statements.append)
        assert list(store.ready_runs(["agent"])) == []
        assert store.runs(RunFilter())[0]
        store._writer().set_trace_callback(None)
        plans = [
            str([row[3] for row in store._writer().execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()])
            for statement in statements
        ]
    assert len(plans) == 3
    assert all("SCAN run" not in plan and "USING INDEX run_open" in plan for plan in plans[:2])
    assert "SCAN request" not in plans[1]
    assert "TEMP B-TREE" not in plans[2]  # newest first without sorting


# -- records -----------------------------------------------------------------------------------------------------------


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


def test_a_search_for_a_lone_surrogate_finds_what_has_one(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        asked = store.ask(sample_call(None, title="caf\udce9"))
        assert [one.id for one in store.list(Filter(text="caf\udce9")).requests] == [asked.id]
