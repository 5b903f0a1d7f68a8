"""The SQLite store beyond the contract: its file, its locks, its commits, and what happens when the machine says no.

What every store must do is in `sayso.testing.StoreContract`. Failures are made by real limits and locks where that is
possible, and by a connection that fails at a named statement where it is not.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import sayso
from sayso import audit, effects, errors
from sayso.model.lifecycle import Outcome, asked
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.stores import sqlite_file
from sayso.stores.base import Filter, Store, Transaction, Verb
from sayso.stores.codec import RequestRow
from sayso.stores.records import Record
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite_file import newest_schema
from sayso.stores.sqlite_transaction import ENTRY_COLUMNS
from sayso.testing import sample_call
from sayso.testing.scene import Scene, outcomes_of, refusal
from tests.support.evidence import as_somebody_with_the_file

KEY = base64.urlsafe_b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.urlsafe_b64encode(bytes(32)).decode()
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "requests.db"


@pytest.fixture
def scene(path: Path) -> Iterator[Scene]:
    class Here(Scene):
        def make_store(self) -> SqliteStore:
            return SqliteStore(path)

    here = Here()
    here.setup_method()
    yield here
    here.teardown_method()


@pytest.fixture
def store(scene: Scene) -> SqliteStore:
    assert isinstance(scene.store, SqliteStore)
    return scene.store


@contextmanager
def by_hand(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file as somebody else would."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        yield connection


# -- the file ------------------------------------------------------------------------------------------------------


@POSIX
def test_only_its_owner_can_read_the_file_and_those_beside_it(path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(path)
        store.ask(sample_call())
        found = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert found == {"requests.db": 0o600, "requests.db-wal": 0o600, "requests.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_every_commit_is_synced(store: SqliteStore) -> None:
    store.ask(sample_call())
    with sqlite_file.opened(store._place) as another:
        for connection in (store._writer(), another):
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_journal_refuses_changes(store: SqliteStore, path: Path) -> None:
    store.ask(sample_call())
    with by_hand(path) as connection:
        for statement in ("UPDATE journal SET event = 'approved'", "DELETE FROM journal"):
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                connection.execute(statement)
    assert audit.verify(store).broken == ()


# -- files that are not ours to write ------------------------------------------------------------------------------


def refused_untouched(path: Path, kind: type[errors.StoreError]) -> str:
    """Show that a store on this file refuses to read and to write, and leaves every byte as it was."""
    before = path.read_bytes()
    messages = {str(refusal(kind, lambda: SqliteStore(path).get("rq_x")))}
    messages.add(str(refusal(kind, lambda: SqliteStore(path).ask(sample_call()))))
    assert path.read_bytes() == before
    assert len(messages) == 1
    return messages.pop()


def test_another_programs_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with by_hand(path) as connection:
        connection.execute("CREATE TABLE song (title TEXT)")
    assert "another program's database" in refused_untouched(path, errors.StoreCorruptError)


def test_a_newer_schema_is_refused_and_left_as_it_was(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.ask(sample_call())
    with by_hand(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    message = refused_untouched(path, errors.StoreVersionError)
    assert "schema 999" in message
    assert "upgrade sayso" in message


def test_a_later_migration_is_applied_once_to_a_store_with_all_that_is_in_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteStore(path)) as store:
        request = store.ask(sample_call())
    later = (newest_schema() + 1, "ALTER TABLE schema_text ADD COLUMN more TEXT;\nCREATE TABLE once (n INTEGER);\n")
    scripts = (*sqlite_file._scripts(), later)
    monkeypatch.setattr(sqlite_file, "_scripts", lambda: scripts)
    for _ in range(2):
        with closing(SqliteStore(path)) as store:
            assert store.get(request.id) == request
            assert store._writer().execute("PRAGMA user_version").fetchone()[0] == later[0]


@pytest.mark.parametrize("size", [1, 99, 100, 511, 512, 1024, 4096, 10_000])
@pytest.mark.parametrize("content", [b"a file of notes\n", b"\x00", b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(tmp_path: Path, content: bytes, size: int) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes((content * size)[:size])
    refused_untouched(path, errors.StoreCorruptError)


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with closing(SqliteStore(path)) as store:
        assert store.ask(sample_call()).state is State.PENDING


def test_a_damaged_page_is_found_and_named(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        ids = [store.ask(sample_call()).id for _ in range(200)]
    pages = path.read_bytes()
    path.write_bytes(pages[:8192] + b"\xff" * (len(pages) - 8192))
    with closing(SqliteStore(path)) as damaged:
        error = refusal(errors.StoreCorruptError, lambda: [damaged.get(request_id) for request_id in ids])
        refusal(errors.StoreCorruptError, lambda: damaged.ask(sample_call()))
    assert str(path) in str(error)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    refusal(errors.StoreError, lambda: SqliteStore(tmp_path).ask(sample_call()))


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = refusal(errors.StoreUnavailableError, lambda: SqliteStore(tmp_path / "file" / "x.db").ask(sample_call()))
    assert "cannot be opened" in str(error)


# -- files that cannot be written ----------------------------------------------------------------------------------


def as_nobody(work: Callable[[], str]) -> str:
    """Run work in a forked child that may not write everywhere as root may; return its answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            answer = work()
        except BaseException as error:  # noqa: BLE001  # it is the answer
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answers:  # noqa: PTH123  # a pipe has no path
        answer = answers.read().decode()
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o755)


def try_both(path: Path) -> str:
    store, told = SqliteStore(path), list[str]()
    for verb in (lambda: store.ask(sample_call()), lambda: store.list(Filter())):
        try:
            verb()
        except errors.SaysoError as error:
            told.append(f"{type(error).__name__}: {error}")
        else:
            told.append("done")
    return "\n".join(told)


@POSIX
def test_a_read_only_file_is_refused(open_folder: Path) -> None:
    path = open_folder / "requests.db"
    with closing(SqliteStore(path)) as store:
        store.ask(sample_call())
    path.chmod(0o444)
    if os.geteuid() == 0:
        open_folder.chmod(0o777)
    told = as_nobody(lambda: try_both(path)).splitlines()
    assert [line.partition(":")[0] for line in told] == ["StoreReadOnlyError"] * 2
    assert str(path) in told[0]


@POSIX
def test_a_read_only_folder_is_refused(open_folder: Path) -> None:
    path = open_folder / "requests.db"
    with closing(SqliteStore(path)) as store:
        store.ask(sample_call())
    path.chmod(0o666)
    open_folder.chmod(0o555)
    told = as_nobody(lambda: try_both(path)).splitlines()
    assert {line.partition(":")[0] for line in told} <= {"StoreReadOnlyError", "StoreUnavailableError"}
    assert len(told) == 2
    assert f"SQLite must also be able to write to its folder, {open_folder}" in told[0]


@POSIX
def test_a_folder_that_cannot_be_made_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    told = as_nobody(lambda: try_both(open_folder / "new" / "requests.db"))
    assert told.startswith("StoreReadOnlyError")
    assert not (open_folder / "new").exists()


# -- no room left --------------------------------------------------------------------------------------------------


def live(scene: Scene, n: int) -> list[Callable[[], object]]:
    """Return the verbs of one request's life, in order."""
    request = sample_call(f"run_{n}", {"amount": n, "to": "x" * 3000})
    store = scene.store
    return [
        lambda: store.ask(request),
        lambda: scene.decide("approve", store.get(request.id)),
        lambda: store.start(request.id, "t"),
        lambda: store.finish(request.id, "t", Outcome("done", result='{"result":"' + "y" * 3000 + '"}')),
    ]


def test_when_the_disk_is_full_a_verb_is_recorded_whole_or_refused(scene: Scene, store: SqliteStore) -> None:
    store.ask(sample_call())
    refused = 0
    for n in range(12):
        used = store._writer().execute("PRAGMA page_count").fetchone()[0]
        for verb in live(scene, n):
            for room in range(20):
                store._writer().execute(f"PRAGMA max_page_count = {used + room}")
                before = scene.everything()
                try:
                    verb()
                    break
                except errors.StoreFullError:
                    refused += 1
                    assert scene.everything() == before
            else:
                raise AssertionError("twenty free pages are enough for any verb")
    assert refused >= 12
    assert {r.state for r in store.list(Filter(name="pay"), limit=1000).requests} == {State.DONE, State.PENDING}
    found = audit.verify(store)
    assert (found.rows, found.broken) == (1 + 4 * 12, ())


@POSIX
def test_a_file_that_may_not_grow_is_refused_and_heals(path: Path) -> None:
    program = f"""
import resource, signal
from sayso import errors
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
store = SqliteStore({str(path)!r})
first = store.ask(sample_call())
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
recorded, refused = [], 0
for n in range(60):
    request = sample_call(arguments={{"amount": n, "to": "x" * 2000}})
    try:
        recorded.append(store.ask(request).id)
    except errors.StoreError:
        refused += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
last = store.ask(sample_call()).id
store.close()
store = SqliteStore({str(path)!r})
assert [store.get(id).id for id in [first.id, *recorded, last]] == [first.id, *recorded, last]
from sayso.stores.base import Filter, Store, Transaction
print(refused, store.count(Filter()) - len(recorded))
"""
    refused, others = run_program(program).split()
    assert int(refused) >= 10
    assert int(others) == 2


def run_program(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- group commit --------------------------------------------------------------------------------------------------


class Failing(sqlite_file.Connection):
    """A connection that calls `before` and `after` around each statement; installed by `failing`."""

    before: Callable[[str], object] = str
    after: Callable[[str], object] = str

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        type(self).before(sql)
        cursor = super().execute(sql, parameters)
        type(self).after(sql)
        return cursor


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Failing]]:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **(options | {"factory": Failing})))
    yield Failing
    Failing.before = Failing.after = str


def waiting_together(store: SqliteStore, works: list[Callable[[], object]]) -> list[object]:
    """Let all verbs queue up before the first is taken."""
    results: list[object] = []
    with store._write_lock:
        gathering = threading.Thread(target=lambda: results.extend(outcomes_of(works)))
        gathering.start()
        deadline = time.monotonic() + 60
        while len(store._queue) < len(works):
            assert time.monotonic() < deadline
    gathering.join()
    return results


def test_verbs_that_wait_together_share_one_commit(store: SqliteStore, failing: type[Failing]) -> None:
    store.ask(sample_call())
    commits: list[str] = []
    failing.after = staticmethod(commits.append)
    asked = [sample_call() for _ in range(40)]
    told = waiting_together(store, [lambda request=request: store.ask(request) for request in asked])
    assert told == asked
    assert commits.count("COMMIT") == 1
    assert audit.verify(store) == (41, 41, (), 41, 0)


def test_a_file_that_stays_locked_is_refused_once_for_all_who_wait(
    scene: Scene, store: SqliteStore, failing: type[Failing], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "_BUSY_SECONDS", 0.5)
    kept, tried = scene.ask(), list[str]()
    with by_hand(path) as other:
        other.execute("BEGIN IMMEDIATE")
        failing.before = staticmethod(tried.append)
        told = waiting_together(store, [lambda: store.ask(sample_call()) for _ in range(8)])
        other.execute("ROLLBACK")
    assert {type(one) for one in told} == {errors.StoreBusyError}
    assert tried.count("BEGIN IMMEDIATE") == 1  # it waits as long as a writer may; not eight times
    assert scene.everything()[0] == [kept]
    assert scene.ask().state is State.PENDING


def test_two_stores_that_write_in_one_run_by_turns_leave_one_whole_chain(store: SqliteStore, path: Path) -> None:
    """Each remembers the end of the chain as it was before the other wrote."""
    with closing(SqliteStore(path)) as other:
        for turn in range(3):
            store.ask(sample_call("run_shared", {"amount": turn}))
            other.ask(sample_call("run_shared", {"amount": turn + 100}))
        assert audit.verify(store) == (6, 1, (), 6, 0)
        assert other.journal() == store.journal()


def test_who_is_woken_by_a_commit_that_many_share_may_call_a_verb(scene: Scene, store: SqliteStore) -> None:
    request, asked = scene.ask(), threading.Event()
    unwatch = store.watch(request.id, lambda: store.ask(sample_call()) and asked.set())
    approve: Callable[[Store], object] = lambda one: sayso.Review(one).approve(request.id, by="ada")  # noqa: E731
    thread = threading.Thread(target=store.together, args=([approve],), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert asked.wait(30)  # the commit may also be led, and its waiters woken, by the thread that watches the file
    unwatch()


def test_a_verb_that_fails_among_others_fails_alone(scene: Scene, store: SqliteStore) -> None:
    first, *others = [scene.approved() for _ in range(5)]
    works: list[Callable[[], object]] = [lambda r=request: store.start(r.id, "t") for request in others]
    works += [
        lambda: store.start("rq_none", "t"),
        lambda: store.start(first.id, "a"),
        lambda: store.start(first.id, "b"),
    ]
    told = waiting_together(store, works)
    assert [getattr(one, "state", None) for one in told[:4]] == [State.RUNNING] * 4
    assert isinstance(told[4], errors.RequestNotFoundError)
    assert {type(one) for one in told[5:]} == {Request, errors.AlreadyStartedError}
    assert audit.verify(store) == (15, 5, (), 5, 0)


def test_a_refusal_after_a_second_try_tells_nothing_of_the_first(scene: Scene, store: SqliteStore, path: Path) -> None:
    alone, *together = [scene.approved() for _ in range(3)]
    with closing(SqliteStore(path)) as other:
        for request in (alone, *together):
            other.start(request.id, "first")  # what the store remembers of them is stale now
    with pytest.raises(errors.AlreadyStartedError) as told:
        store.start(alone.id, "second")
    assert told.value.__context__ is None
    refused = waiting_together(store, [lambda r=request: store.start(r.id, "second") for request in together])
    assert [type(one) for one in refused] == [errors.AlreadyStartedError] * 2
    assert [one.__context__ for one in refused if isinstance(one, Exception)] == [None, None]


# -- verbs that are one statement ----------------------------------------------------------------------------------


def test_a_verb_that_changes_one_request_is_one_statement(
    scene: Scene, store: SqliteStore, failing: type[Failing]
) -> None:
    store.close()
    scene.approved()  # opens the file, and writes the schema
    ran = list[str]()
    failing.before = staticmethod(lambda sql: ran.append(sql.split()[0]))
    request = scene.decide("approve", store.ask(sample_call()))
    store.start(request.id, "token")
    store.finish(request.id, "token", Outcome("done"))
    assert [sql for sql in ran if sql != "PRAGMA"] == ["INSERT", "UPDATE", "UPDATE", "UPDATE"]
    assert audit.verify(store).broken == ()


def test_where_channels_were_seen_a_verb_is_not_first_tried_as_one_statement(
    store: SqliteStore, failing: type[Failing]
) -> None:
    store.close()
    store.keep(Record("channel", "ops", {}))
    store.ask(sample_call())  # sees it
    ran = list[str]()
    failing.before = staticmethod(lambda sql: ran.append(sql.split()[0]))
    request = store.ask(sample_call())
    assert ran[0] == "BEGIN"
    assert ran.count("BEGIN") == ran.count("COMMIT") == 1
    assert store.record("delivery/ops", request.id) is not None
    store.drop("channel", "ops")
    store.ask(sample_call())  # sees that it is gone
    ran.clear()
    store.ask(sample_call())
    assert ran == ["INSERT"]


# Only a search reads `search`.
@pytest.mark.parametrize("column", sorted({*RequestRow._fields, *ENTRY_COLUMNS} - {"search"}))
def test_no_column_that_was_altered_since_it_was_written_here_is_started(
    scene: Scene, store: SqliteStore, path: Path, column: str
) -> None:
    """The store remembers what it wrote, and reads the row before the start in no verb."""
    request = scene.approved()
    with by_hand(path) as connection:
        connection.execute(f"UPDATE request SET {column} = coalesce({column}, '') || '1'")  # noqa: S608  our own names
    with pytest.raises((errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError)):
        store.start(request.id, "token")


@pytest.mark.parametrize("column", sorted({*RequestRow._fields, *ENTRY_COLUMNS} - {"search"}))
def test_no_column_that_was_altered_since_it_was_written_here_is_decided(
    store: SqliteStore, path: Path, column: str
) -> None:
    review = sayso.Review(store, by="ada")
    request = store.ask(sample_call())
    with by_hand(path) as connection:
        connection.execute(f"UPDATE request SET {column} = coalesce({column}, '') || '1'")  # noqa: S608  our own names
    for decide in (review.approve, review.reject, review.cancel, review.claim):
        with pytest.raises((errors.StoreError, errors.RequestNotFoundError)):
            decide(request.id)
    assert [row.event for row in store.journal(run_id=request.run_id)] == ["asked"]


@pytest.mark.parametrize("column", ["link", *sorted(ENTRY_COLUMNS), "the whole row"])
def test_no_start_is_given_out_where_the_newest_row_of_the_journal_was_altered(
    scene: Scene, store: SqliteStore, path: Path, column: str
) -> None:
    """What the store wrote itself it remembers without its row of the journal."""
    request = scene.approved()
    change = "DELETE FROM journal" if column == "the whole row" else f"UPDATE journal SET {column} = {column} || '1'"  # noqa: S608  our own names
    with as_somebody_with_the_file(path) as connection:
        connection.execute(f"{change} WHERE run_id = ? AND event = 'approved'", (request.run_id,))
    refusal(errors.AlteredRequestError, lambda: store.start(request.id, "token"))


def test_no_request_is_found_that_was_rolled_back(
    store: SqliteStore, failing: type[Failing], monkeypatch: pytest.MonkeyPatch
) -> None:
    review = sayso.Review(store, by="ada")
    first = store.ask(sample_call("run_1"))
    review.grant(first.id, count=9, lasts="1h")
    assert store.find(first.fingerprint) is not None
    second = sample_call("run_2")

    def full(sql: str) -> None:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as during:
        during.setattr(failing, "before", full)
        with pytest.raises(errors.StoreError):
            store.ask(second)
    assert store.find(second.fingerprint) is None
    assert store.ask(second).state is State.APPROVED


def test_no_chain_goes_on_from_a_row_that_was_rolled_back(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.stores.sqlite_transaction._REMEMBERED", 1)  # what was written is soon read again
    for amount in (1, 2):
        store.ask(sample_call("order", {"amount": amount}, effect="pay"))

    def fail(tx: Transaction) -> None:
        tx.note("elsewhere", "denied", Identity("program", "me"), "program", {})  # no verb of one statement
        tx.insert(asked(sample_call("order", {"amount": 3}, effect="pay")))
        tx.with_effect("pay")
        raise RuntimeError("undone")

    with pytest.raises(RuntimeError, match="undone"):
        store._transact(fail)
    store.ask(sample_call("order", {"amount": 4}))
    assert [row.seq for row in store.journal(run_id="order")] == [1, 2, 3]
    assert audit.verify(store).broken == ()


def test_a_channel_that_another_process_registers_is_owed_a_message_at_once(store: SqliteStore, path: Path) -> None:
    store.ask(sample_call("run_1"))
    with closing(SqliteStore(path)) as other:
        other.keep(Record("channel", "ops", {}))
    request = store.ask(sample_call("run_2"))
    assert store.record("delivery/ops", request.id) is not None


def test_what_is_remembered_is_not_read_again_and_runs_only_if_it_still_stands(
    store: SqliteStore, path: Path, failing: type[Failing]
) -> None:
    ran, statements, ada = list[int](), list[str](), sayso.Reviewer("ada")
    pay = sayso.gate(wait="raise", store=store, name="pay")(ran.append)
    review = sayso.Review(store)
    failing.before = staticmethod(statements.append)

    def approved(number: int, by: sayso.Review = review) -> Request:
        with pytest.raises(sayso.ConfirmationRequired) as held:
            pay(number)
        return by.approve(held.value.confirmation_id, by=ada)

    with sayso.run("order"), closing(SqliteStore(path)) as other:
        approved(0)
        pay(0)
        statements.clear()
        approved(1)
        pay(1)
        assert [sql.split()[0] for sql in statements] == ["INSERT", "UPDATE", "PRAGMA", "UPDATE", "UPDATE"]
        sayso.Review(other).cancel(approved(2).id, by=ada)
        with pytest.raises(sayso.ConfirmationRejected):
            pay(2)
        statements.clear()
        approved(5, sayso.Review(other))
        assert [sql.split()[0] for sql in statements] == ["INSERT", "SELECT", "UPDATE"]
        other.start(approved(3).id, "token")
        with pytest.raises(errors.AlreadyStartedError):
            pay(3)
        other.withdraw(approved(4).id, Identity("program", "other"))
        with pytest.raises(sayso.ConfirmationRequired):
            pay(4)
        other.finish(other.start(approved(6).id, "token").id, "token", Outcome("done"))
        with pytest.raises(sayso.ConfirmationRequired):
            pay(6)  # that approval is spent
    assert ran == [0, 1]


@POSIX
def test_an_approval_that_is_remembered_of_a_file_that_was_replaced_is_not_used(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    pay = sayso.gate(wait="raise", store=store, name="pay")(lambda: None)
    with closing(SqliteStore(tmp_path / "new.db")) as new:
        new.ask(sample_call())
    with sayso.run("order"):
        held = refusal(sayso.ConfirmationRequired, pay)
        sayso.Review(store).approve(held.confirmation_id, by=sayso.Reviewer("ada"))
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink()
        (tmp_path / "new.db").replace(path)
        asked = refusal(sayso.ConfirmationRequired, pay)
    assert asked.confirmation_id != held.confirmation_id


POINTS = [
    ("before", "BEGIN IMMEDIATE"),
    ("after", "BEGIN IMMEDIATE"),
    ("before", "UPDATE request"),
    ("after", "UPDATE request"),
    ("before", "COMMIT"),
    ("after", "COMMIT"),
]


@pytest.mark.parametrize(
    ("when", "statement", "is_alone"),
    [*((*point, False) for point in POINTS), *((when, "UPDATE request", True) for when in ("before", "after"))],
)
def test_a_verb_that_is_interrupted_is_whole_or_undone(
    scene: Scene, store: SqliteStore, path: Path, failing: type[Failing], when: str, statement: str, is_alone: bool
) -> None:
    request, hits = scene.approved(), list[str]()
    store.close()
    store.settle(request.id)  # over a connection that can be interrupted; now it is remembered
    store._cache.has_channels = not is_alone  # as where channels were seen: then it is a whole transaction

    def interrupt(sql: str) -> None:
        if sql.startswith(statement) and not hits:
            hits.append(sql)
            raise KeyboardInterrupt

    setattr(failing, when, staticmethod(interrupt))
    with pytest.raises(KeyboardInterrupt):
        store.start(request.id, "t")
    assert hits
    happened = (when, statement) == ("after", "UPDATE request" if is_alone else "COMMIT")
    with closing(SqliteStore(path)) as another:
        assert another.get(request.id).state is (State.RUNNING if happened else State.APPROVED)
    with by_hand(path) as other:  # no lock was left behind
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    if happened:
        assert store.finish(request.id, "t", Outcome("failed")).state is State.FAILED
    else:
        assert store.start(request.id, "u").state is State.RUNNING
    assert audit.verify(store).broken == ()


def test_what_was_rolled_back_is_not_remembered_if_ctrl_c_arrives_meanwhile(
    scene: Scene, store: SqliteStore, failing: type[Failing]
) -> None:
    request, hits = scene.approved(), list[str]()
    store.close()

    def interrupt(sql: str) -> None:
        if sql == "ROLLBACK" and not hits:
            hits.append(sql)
            raise KeyboardInterrupt

    def start_and_fail(view: Store) -> None:
        view.start(request.id, "t")
        raise ZeroDivisionError

    failing.after = staticmethod(interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.together([start_and_fail])
    assert hits
    assert store.together([lambda view: view.get(request.id).state]) == [State.APPROVED]
    assert store.start(request.id, "u").state is State.RUNNING


def test_no_chain_goes_on_from_a_row_during_whose_rollback_ctrl_c_arrives(
    store: SqliteStore, failing: type[Failing]
) -> None:
    store.ask(sample_call("order", {"amount": 1}))
    store.close()
    hits = list[str]()

    def interrupt(sql: str) -> None:
        if sql == "ROLLBACK" and not hits:
            hits.append(sql)
            raise KeyboardInterrupt

    def ask_and_fail(view: Store) -> None:
        asked = view.ask(sample_call("order", {"amount": 2}))
        for number in range(512):  # so many that the first is forgotten
            view.ask(sample_call("elsewhere", {"amount": number}))
        assert view.find(asked.fingerprint) == asked
        raise ZeroDivisionError

    failing.after = staticmethod(interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.together([ask_and_fail])
    assert hits
    for run_id in ("another", "order"):
        store.ask(sample_call(run_id, {"amount": 3}))
    assert [row.seq for row in store.journal(run_id="order")] == [1, 2]
    assert audit.verify(store).broken == ()


@pytest.mark.parametrize(("when", "statement"), POINTS)
def test_who_waits_behind_an_interrupted_verb_is_served_once(
    scene: Scene, store: SqliteStore, failing: type[Failing], when: str, statement: str
) -> None:
    requests, hits = [scene.approved() for _ in range(6)], list[str]()
    store.close()

    def interrupt(sql: str) -> None:
        if sql.startswith(statement) and not hits:
            hits.append(sql)
            raise KeyboardInterrupt

    def start(request: Request) -> object:
        try:
            return store.start(request.id, request.id)
        except KeyboardInterrupt:
            return "interrupted"

    setattr(failing, when, staticmethod(interrupt))
    told = waiting_together(store, [lambda r=request: start(r) for request in requests])
    assert told.count("interrupted") == 1
    happened = (when, statement) == ("after", "COMMIT")
    for request, one in zip(requests, told, strict=True):
        if one == "interrupted":  # nobody else has run it since
            assert store.get(request.id).state is (State.RUNNING if happened else State.APPROVED)
        else:
            assert isinstance(one, Request), one  # a refusal would say that it was run twice
            assert store.finish(request.id, request.id, Outcome("done")).state is State.DONE
    assert not [verb for verb in store._queue if not verb.is_done]
    assert audit.verify(store).broken == ()


def test_ctrl_c_in_a_loop_behind_a_shared_commit_makes_nobody_do_it_again(
    scene: Scene, store: SqliteStore, failing: type[Failing]
) -> None:
    requests, line, hits = [scene.approved() for _ in range(3)], dict[FrameType, int](), list[str]()
    store.close()

    def interrupt(frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_lineno < line.get(frame, 0):  # Python looks for Ctrl-C where a loop goes back
            sys.settrace(None)
            hits.append(frame.f_code.co_name)
            raise KeyboardInterrupt
        line[frame] = frame.f_lineno
        return interrupt

    def follow(sql: str) -> None:
        if sql == "COMMIT" and not line:
            frame: FrameType | None = sys._getframe()
            while frame is not None and frame.f_code.co_name != "_transact":
                frame.f_trace, frame = interrupt, frame.f_back
            sys.settrace(interrupt)

    def start(request: Request) -> object:
        try:
            return store.start(request.id, request.id)
        except KeyboardInterrupt:
            return None

    failing.after = staticmethod(follow)
    told = waiting_together(store, [lambda r=request: start(r) for request in requests])
    assert hits
    assert all(one is None or isinstance(one, Request) for one in told), told


def test_a_verb_that_is_interrupted_as_it_queues_is_not_run_by_the_next_one(scene: Scene, store: SqliteStore) -> None:
    request, queue = scene.approved(), store._queue

    class Interrupted(deque[Verb]):
        def extend(self, ops: Iterable[Verb], /) -> None:
            queue.extend(ops)
            raise KeyboardInterrupt

    with store._write_lock:  # so that it has to wait
        store._queue = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            store.start(request.id, "t")
        store._queue = queue
    assert len(queue) == 1
    store.ask(sample_call())
    assert store.get(request.id).state is State.APPROVED


# -- several processes ---------------------------------------------------------------------------------------------

OPEN_AT_ONCE = """
import sys, time
from sayso import audit
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
print("ready", flush=True)
for line in sys.stdin:
    store = SqliteStore(line.strip())
    store.ask(sample_call("run_shared", {"amount": 1, "to": str(time.monotonic_ns())}))
    print(store._writer().execute("PRAGMA user_version").fetchone()[0], flush=True)
    store.close()
"""


@pytest.mark.slow
def test_eight_processes_set_a_new_store_up_at_once(tmp_path: Path) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", OPEN_AT_ONCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    try:
        told = [exchange(worker, None) for worker in workers]
        assert told == ["ready"] * 8
        for n in range(10):
            path = tmp_path / f"{n}.db"
            for worker in workers:
                exchange(worker, str(path), wait=False)
            assert {exchange(worker, None) for worker in workers} == {str(newest_schema())}
            with closing(SqliteStore(path)) as store:
                assert audit.verify(store) == (8, 1, (), 8, 0)
                assert store._writer().execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        for worker in workers:
            worker.communicate(timeout=60)
    assert [worker.returncode for worker in workers] == [0] * 8


def exchange(worker: subprocess.Popen[str], line: str | None, *, wait: bool = True) -> str:
    assert worker.stdin is not None
    assert worker.stdout is not None
    if line is not None:
        worker.stdin.write(line + "\n")
        worker.stdin.flush()
    return worker.stdout.readline().strip() if wait or line is None else ""


@POSIX
def test_parent_and_forked_child_both_go_on_with_the_store(scene: Scene, store: SqliteStore) -> None:
    requests = [scene.approved() for _ in range(20)]
    woken = threading.Event()
    unwatch = store.watch(requests[0].id, woken.set)  # so that a thread and two connections are there to be inherited
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(in_the_child(store, [request.id for request in requests[:10]], writing))
    os.close(writing)
    started = [store.start(request.id, "parent").id for request in requests[10:]]
    with open(reading) as answers:  # noqa: PTH123  # a pipe has no path
        told = json.loads(answers.read())
    _, status = os.waitpid(child, 0)
    assert (os.waitstatus_to_exitcode(status), len(started)) == (0, 10)
    assert told == [State.RUNNING] * 10
    assert woken.wait(30)
    unwatch()
    workers = {e.worker for request in requests if (e := store.get(request.id).execution) is not None}
    assert len(workers) == 2
    assert store._writer().execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert audit.verify(store).broken == ()


def in_the_child(store: SqliteStore, ids: list[str], writing: int) -> int:
    try:
        told = [store.start(request_id, "child").state for request_id in ids]
        os.write(writing, json.dumps(told).encode())
    except BaseException as error:  # noqa: BLE001  # the parent reads it
        os.write(writing, json.dumps(repr(error)).encode())
        return 1
    return 0


@POSIX
def test_a_forked_child_has_threads_of_its_own_for_async_verbs() -> None:
    asyncio.run(effects.offload(lambda: None))
    child = os.fork()
    if child == 0:
        asyncio.run(effects.offload(lambda: None))
        os._exit(0)
    deadline = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if done == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert done == (child, 0)


# -- sealed --------------------------------------------------------------------------------------------------------


def test_without_the_key_nothing_sealed_is_read_or_decided(path: Path) -> None:
    with closing(SqliteStore(path, key=KEY)) as sealed:
        request = sealed.ask(sample_call())
    for key in (None, OTHER_KEY):
        with closing(SqliteStore(path, key=key)) as store:
            refusal(errors.StoreSealedError, lambda store=store: store.get(request.id))
            refusal(errors.StoreSealedError, lambda store=store: store.start(request.id, "t"))
            found = audit.verify(store)
            assert (found.rows, found.requests, found.unopened) == (1, 1, key is None)
            assert [broken.run_id for broken in found.broken] == ([] if key is None else [request.run_id])


@pytest.mark.parametrize("key", ["", "short", "x" * 43, base64.b64encode(bytes(31)).decode(), "ü" * 44])
def test_a_key_that_is_none_is_refused_before_anything_is_written(path: Path, key: str) -> None:
    error = refusal(errors.ConfigError, lambda: SqliteStore(path, key=key))
    assert "32 random bytes" in str(error)
    assert not path.exists()


# -- rows that were altered ----------------------------------------------------------------------------------------

BLOBS: list[Any] = [
    None, 0, -1, 2**62, 1.5, "", " ", "null", "[]", "{}", "0", '"x"', "{", "[" * 100_000, '{"a":' * 5_000, "\x00",
    b"", b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
    b"cos\nsystem\n(S'id'\ntR.", b"\xff\xfe\x00", b"!!python/object/apply:os.system ['id']",
    "!!python/object/apply:os.system ['id']", "__import__('os').system('id')", '{"$enum":["os:environ","X"]}',
    '{"$model":["os:system",{"command":"id"}]}', '{"$dataclass":["subprocess:Popen",{"args":["id"]}]}',
    '{"py/object":"os.system","py/reduce":[{"py/function":"os.system"},{"py/tuple":["id"]}]}',
    '{"requester":["program"]}', '{"requester":[1,2],"window":1}', '{"requester":["a:b","c"],"window":-1}',
    '{"requester":["p","x"],"window":1e400}', '{"requester":["p","x"],"window":1,"quorum":[0]}',
    '{"requester":["p","x"],"window":1,"quorum":[]}', '{"ends":"x"}', '{"ends":1e30}', '{"ends":1,"votes":[[]]}',
    '{"ends":1,"decision":[]}', '{"ends":1,"execution":[1]}', "sealed:1:", "sealed:1:AAAA",
]  # fmt: skip


_heard: list[str] = []
_listens: int | None = None  # the thread; what others import or compile meanwhile is not meant
_OF_CODE = {"compile", "exec", "import", "os.system", "os.posix_spawn", "subprocess.Popen"}


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _listens == threading.get_ident() and event in _OF_CODE:
        _heard.append(f"{event} {arguments!r}")


@pytest.fixture
def ran() -> Iterator[list[str]]:
    """What was imported, compiled or run meanwhile."""
    global _listens  # noqa: PLW0603  # an audit hook stays for the life of the process
    sys.addaudithook(_hear)
    _heard.clear()
    _listens = threading.get_ident()
    yield _heard
    _listens = None


def test_code_that_runs_is_heard(ran: list[str]) -> None:
    eval("1 + 1")  # noqa: S307  # it is what must be heard
    assert [heard.split()[0] for heard in ran] == ["compile", "exec"]


@pytest.mark.parametrize("column", RequestRow._fields)
def test_whatever_stands_in_a_row_runs_nothing(store: SqliteStore, path: Path, ran: list[str], column: str) -> None:
    request = store.ask(sample_call())
    looks = [lambda: store.get(request.id), lambda: store.list(Filter()), lambda: store.start(request.id, "t")]
    read = unread = 0
    with by_hand(path) as connection:
        ran.clear()
        for blob in BLOBS:
            try:
                connection.execute(f"UPDATE request SET {column} = ?", (blob,))  # noqa: S608  # our own column names
            except sqlite3.IntegrityError:
                continue  # a column that is never empty
            for look in looks:
                read += 1
                try:
                    look()
                except errors.SaysoError:
                    unread += 1
    assert ran == []
    assert read >= 3 * (len(BLOBS) - 1)
    assert column not in {"asked", "progress", "created_at", "state"} or unread > read / 3
