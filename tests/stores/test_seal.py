"""A store with a key takes nothing but what it sealed itself, in the place where it put it."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sayso import audit, errors
from sayso.cli.context import check_key
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores.codec import SEALED_COLUMNS, Seal
from sayso.stores.records import Record
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite_file import seal_store
from sayso.stores.workers import Lease
from sayso.testing import sample_call
from sayso.testing.doubles import sample_edit
from sayso.testing.scene import Scene, refusal
from tests.support.commands import sayso

KEY = base64.urlsafe_b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.urlsafe_b64encode(bytes(32)).decode()
WORDS = "said so"  # what a Scene's reviewers say


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.db"


@contextmanager
def acting(path: Path, key: str | None = KEY) -> Iterator[Scene]:
    scene = Scene()
    scene.setup_method()
    scene._store = SqliteStore(path, key=key)
    yield scene
    scene.teardown_method()


def full(scene: Scene) -> str:
    """Leave a request in whose row every column that is sealed has a text."""
    request = sample_call(arguments={"amount": 1, "password": "canary-argument"}, prompt="canary-prompt")
    edited = scene.decide("approve", scene.store.ask(request), edited=sample_edit(request, password="canary-edit"))
    scene.store.start(edited.id, "t")
    scene.store.finish(edited.id, "t", Outcome("failed", error="canary-error"))
    return request.id


@contextmanager
def by_hand(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def on_disk(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


@pytest.mark.parametrize("column", SEALED_COLUMNS)
@pytest.mark.parametrize("source", SEALED_COLUMNS)
def test_a_sealed_text_cannot_be_moved_to_another_column(path: Path, source: str, column: str) -> None:
    with acting(path) as scene:
        request_id = full(scene)
        assert scene.store.get(request_id).state is State.FAILED
    with by_hand(path) as connection:
        connection.execute(f"UPDATE request SET {column} = {source}")  # noqa: S608  # our own column names
    with acting(path) as scene:
        if source == column:
            assert scene.store.get(request_id).state is State.FAILED
        else:
            refusal(errors.StoreSealedError, lambda: scene.store.get(request_id))


def test_a_sealed_text_cannot_be_moved_to_another_request(path: Path) -> None:
    with acting(path) as scene:
        cheap, dear = (scene.store.ask(sample_call(arguments={"amount": amount})) for amount in (1, 1_000_000))
    with by_hand(path) as connection:
        connection.execute(
            "UPDATE request SET form = (SELECT form FROM request WHERE id = ?) WHERE id = ?", (dear.id, cheap.id)
        )
    with acting(path) as scene:
        refusal(errors.StoreSealedError, lambda: scene.store.get(cheap.id))


@pytest.mark.parametrize("column", SEALED_COLUMNS)
def test_what_was_written_in_by_hand_is_refused_where_there_is_a_key(path: Path, column: str) -> None:
    with acting(path) as scene:
        request_id = full(scene)
    with by_hand(path) as connection:
        sealed = connection.execute(f"SELECT {column} FROM request").fetchone()[0]  # noqa: S608  # our own column names
        readable = Seal(KEY).decrypt(sealed, request_id, column)
        connection.execute(f"UPDATE request SET {column} = ?", (readable,))  # noqa: S608  # the same
    with acting(path) as scene:
        error = refusal(errors.StoreSealedError, lambda: scene.store.get(request_id))
        assert f"{column} of request {request_id} is not sealed" in str(error)
        assert "sayso doctor --seal" in str(error)
        refusal(errors.StoreSealedError, lambda: scene.store.start(request_id, "t"))


def test_a_store_from_before_the_key_is_sealed_when_asked_and_holds_nothing_readable_then(path: Path) -> None:
    with acting(path, key=None) as scene:
        request_id, waiting = full(scene), scene.ask(prompt="canary-waiting")
        before = scene.store.get(request_id)
        scene.store.keep(Record("token", "t", {"owner": "canary-owner"}))
        kept = RunRecord(
            "run_kept", "agent", "agent", RunState.RUNNING, Lease().holder, before.created_at, before.created_at
        )
        scene.store.leave_run(RunUpdate(kept, [Step("/", '{"value":"canary-step"}')]), RunState.PAUSED)
    assert b"canary-argument" in on_disk(path)
    with acting(path) as scene:
        refusal(errors.StoreSealedError, lambda: scene.store.get(request_id))
    assert seal_store(path, KEY) == (2, 2, 1)
    assert seal_store(path, KEY) == (2, 0, 1)
    assert b"canary" not in on_disk(path)
    with acting(path) as scene:
        assert scene.store.get(request_id) == before
        assert scene.store.record("token", "t") == Record("token", "t", {"owner": "canary-owner"})
        assert scene.store.get_run("run_kept").steps == (Step("/", '{"value":"canary-step"}'),)
        assert scene.decide("approve", waiting).state is State.APPROVED
        assert audit.verify(scene.store).broken == ()


def test_sealing_with_another_key_changes_nothing(path: Path) -> None:
    with acting(path) as scene:
        full(scene)
    with acting(path, key=None) as scene:
        scene.ask()
    with by_hand(path) as connection:
        rows = connection.execute("SELECT * FROM request").fetchall()
        refusal(errors.StoreSealedError, lambda: seal_store(path, OTHER_KEY))
        assert connection.execute("SELECT * FROM request").fetchall() == rows


def test_a_file_that_is_no_store_is_not_sealed(path: Path) -> None:
    refusal(errors.StoreUnavailableError, lambda: seal_store(path, KEY))
    assert not path.exists()
    with by_hand(path) as connection:
        connection.execute("CREATE TABLE request (id)")
    refusal(errors.StoreCorruptError, lambda: seal_store(path, KEY))


def test_what_people_said_is_sealed_in_the_journal_and_its_chain_holds_without_the_key(path: Path) -> None:
    with acting(path) as scene:
        request_id = full(scene)
        denied = {"rule": "when=never", "reason": "canary-reason"}
        scene.store.note("run_a", "denied", Identity(PROGRAM, "tests"), denied)
        read = {entry.event: json.loads(entry.detail) for entry in audit.entries(scene.store)}
        assert (read["approved"]["comment"], read["denied"]) == (WORDS, denied)
    assert WORDS.encode() not in on_disk(path)
    assert b"canary" not in on_disk(path)
    with acting(path, key=None) as scene:
        found = audit.verify(scene.store)
        assert (found.broken, found.unopened) == ((), 1)
        (approved,) = (e for e in audit.entries(scene.store, request_id=request_id) if e.event == "approved")
        assert json.loads(approved.detail)["comment"] == "(sealed)"


def test_doctor_seals_when_asked_and_says_what_it_did(path: Path) -> None:
    with acting(path, key=None) as scene:
        full(scene)
    store = ("--store", f"sqlite:///{path}")
    without = sayso(*store, "doctor", "--seal", SAYSO_KEY="")
    assert (without.code, "SAYSO_KEY" in without.err) == (2, True)
    refused = sayso(*store, "doctor", SAYSO_KEY=KEY)
    assert (refused.code, "sayso doctor --seal" in refused.out) == (1, True)
    done = sayso(*store, "doctor", "--seal", SAYSO_KEY=KEY)
    assert "1 of 1 requests" in done.out
    assert "1 rows keep readable comments" in done.out
    assert sayso(*store, "ls", "--all", SAYSO_KEY=KEY).code == 0


def test_a_server_with_the_key_says_what_was_written_without_it_and_doctor_mends_it(path: Path) -> None:
    store = ("--store", f"sqlite:///{path}")
    made = sayso(*store, "token", "new", "--kind", "ask", "--name", "bot", SAYSO_KEY="")
    assert made.code == 0
    for command in (["serve", "--port", "0"], ["doctor"]):
        refused = sayso(*store, *command, SAYSO_KEY=KEY)
        words = refused.out + refused.err
        assert refused.code == 1
        assert "the token record" in words
        assert "run `sayso doctor --seal`" in words
    assert sayso(*store, "doctor", "--seal", SAYSO_KEY=KEY).code == 0
    assert "bot" in sayso(*store, "token", "ls", SAYSO_KEY=KEY).out


def test_one_altered_record_keeps_no_server_from_its_start(path: Path) -> None:
    assert sayso("--store", f"sqlite:///{path}", "token", "new", "--kind", "ask", "--name", "bot").code == 0
    with by_hand(path) as rows:
        rows.execute("UPDATE record SET body = x'00' WHERE kind = 'token'")
    store = SqliteStore(path)
    with pytest.raises(errors.StoreCorruptError):
        store.records("token")
    check_key(store)
    store.close()
