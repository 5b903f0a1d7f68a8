"""A process that forks with a SQLite store: both go on with it, and neither loses what the other commits.

SQLite keeps its locks on a file in memory, which a fork copies. No connection may be open at that moment, and no thread
inside of SQLite, or a child loses its commits, or waits for ever.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from sayso import audit, errors
from sayso.stores import sqlite_file
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.testing.scene import refusal

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

_PATIENCE = 30


def forked(work: Callable[[], object]) -> Callable[[], int]:
    """Do this in a child; what is returned waits for its exit code, which is -9 for a child that hangs."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001  a child must not go on with the tests
            os._exit(1)

    def ended() -> int:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return ended


def test_what_a_child_commits_stays_when_its_parent_closes_the_file(tmp_path: Path) -> None:
    path, store = tmp_path / "s.db", SqliteStore(tmp_path / "s.db")
    store.ask(sample_call("run_parent"))
    (told, tell), (heard, say) = os.pipe(), os.pipe()

    def child() -> None:
        store.ask(sample_call("run_before"))
        os.write(tell, b"1")
        os.read(heard, 1)
        store.ask(sample_call("run_after"))

    ended = forked(child)
    os.close(tell)  # so that a child that failed is heard of
    os.read(told, 1)
    store.close()
    os.write(say, b"1")
    assert ended() == 0
    with closing(SqliteStore(path)) as again:
        assert {head.run_id for head in again.heads()} == {"run_parent", "run_before", "run_after"}
        assert audit.verify(again) == (3, 3, (), 3, 0)


def test_a_child_inherits_no_open_file_of_the_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    store.ask(sample_call())
    store._version()  # so that both connections are there

    def child() -> None:
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # the folder that was listed is not open any more
                assert str(tmp_path) not in str(entry.readlink())

    if Path("/proc/self/fd").exists():
        assert forked(child)() == 0
    assert store.ask(sample_call()).id  # and the parent goes on
    store.close()


def in_a_verb(store: SqliteStore, is_over: threading.Event) -> threading.Thread:
    """Return the thread that is in the middle of a verb until the event."""
    inside = threading.Event()

    def verb(_: Any) -> None:
        inside.set()
        is_over.wait(_PATIENCE)

    thread = threading.Thread(target=lambda: store._transact(verb))
    thread.start()
    assert inside.wait(_PATIENCE)
    return thread


def test_a_fork_waits_for_the_verb_of_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, is_over, order = SqliteStore(tmp_path / "s.db"), threading.Event(), list[str]()
    verb, taken = in_a_verb(store, is_over), sqlite_file._taken

    def take(lock: Any, *rest: Any) -> bool:
        if lock is store._write_lock and not order:
            order.extend(["the fork waits"] + ["the verb goes on"] * verb.is_alive())
            threading.Thread(target=is_over.set).start()
        return taken(lock, *rest)

    monkeypatch.setattr(sqlite_file, "_taken", take)
    ended = forked(lambda: store.ask(sample_call("run_child")))
    verb.join(_PATIENCE)
    assert order == ["the fork waits", "the verb goes on"]
    assert ended() == 0
    assert [head.run_id for head in store.heads()] == ["run_child"]
    store.close()


def test_a_thread_opens_no_store_while_a_fork_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "other.db")
    is_over, yields_or_opened, order, taken = threading.Event(), threading.Event(), list[str](), sqlite_file._taken
    verb, sleep = in_a_verb(store, is_over), time.sleep

    def open_another() -> None:
        other.ask(sample_call())
        order.append("opened")
        yields_or_opened.set()

    opener = threading.Thread(target=open_another)

    def sleep_and_say(seconds: float) -> None:
        if threading.current_thread() is opener:
            yields_or_opened.set()
        sleep(seconds)

    def take(lock: Any, *rest: Any) -> bool:
        if lock is store._write_lock and opener.ident is None:
            opener.start()
            assert yields_or_opened.wait(_PATIENCE)
            order.append("waited")
            is_over.set()
        return taken(lock, *rest)

    monkeypatch.setattr(sqlite_file, "_YIELD", _PATIENCE)
    monkeypatch.setattr(sqlite_file, "_taken", take)
    monkeypatch.setattr(time, "sleep", sleep_and_say)
    ended = forked(lambda: store.ask(sample_call("run_child")))
    opener.join(_PATIENCE)
    verb.join(_PATIENCE)
    assert order == ["waited", "opened"]
    assert ended() == 0
    store.close()
    other.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_fork_that_ctrl_c_breaks_off_keeps_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = [SqliteStore(tmp_path / f"{n}.db") for n in range(3)]
    for store in stores:
        store.ask(sample_call())
    taken, tries = sqlite_file._taken, list[object]()

    def take(lock: Any, *rest: Any) -> bool:
        tries.append(lock)
        if len(tries) == 6:  # after the turn, the gate and both locks of one store, in the middle of another
            raise KeyboardInterrupt
        return taken(lock, *rest)

    monkeypatch.setattr(sqlite_file, "_taken", take)
    ended = forked(lambda: refusal(errors.StoreUnavailableError, lambda: stores[0].ask(sample_call())))
    assert [lock.locked() for store in stores for lock in store.locks] == [False] * 6
    assert sqlite_file._forking.releases == []
    assert ended() == 0
    for store in stores:
        store.close()


def test_the_child_of_a_fork_that_could_not_wait_refuses_its_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "_PATIENCE", 0.0)
    store, other, is_over = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "other.db"), threading.Event()

    def child() -> None:
        for one in (store, other, SqliteStore(tmp_path / "new.db")):
            error = refusal(errors.StoreUnavailableError, lambda one=one: one.ask(sample_call()))
            assert "was forked while a store was open" in str(error)

    def close_one() -> None:
        with sqlite_file._gate:  # as a thread has that closes a connection of a store that was garbage-collected
            inside.set()
            is_over.wait(_PATIENCE)

    for case in ("a verb", "a close"):
        inside = threading.Event()
        is_over.clear()
        thread = in_a_verb(store, is_over) if case == "a verb" else threading.Thread(target=close_one)
        if case == "a close":
            thread.start()
            inside.wait(_PATIENCE)
        ended = forked(child)
        is_over.set()
        thread.join(_PATIENCE)
        assert ended() == 0, case
    assert store.ask(sample_call()).id
    assert other.ask(sample_call()).id
    store.close()
    other.close()


def test_a_process_that_forks_while_its_threads_write_and_open_stores_loses_nothing(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / f"{n}.db") for n in range(2)]
    unwatch = [store.watch_all(lambda: None) for store in stores]
    is_over, asked, codes = threading.Event(), [list[str](), list[str]()], list[int]()

    def write(n: int, *, opens: bool) -> None:
        while not is_over.is_set():
            call = sample_call("run_parent", {"amount": len(asked[n]), "to": "anna"})
            store = SqliteStore(tmp_path / f"{n}.db") if opens else stores[n]
            asked[n].append(store.ask(call).id)

    def fork(n: int) -> None:
        for k in range(5):
            ended = forked(lambda k=k: [store.ask(sample_call(f"run_{n}_{k}")) for store in stores])
            codes.append(ended())

    writers = [threading.Thread(target=write, args=(n,), kwargs={"opens": o}) for n in range(2) for o in (True, False)]
    forkers = [threading.Thread(target=fork, args=(n,)) for n in range(3)]
    for thread in (*writers, *forkers):
        thread.start()
    for thread in forkers:
        thread.join()
    is_over.set()
    for thread in writers:
        thread.join(_PATIENCE)
    for remove in unwatch:
        remove()
    for store, mine in zip(stores, asked, strict=True):
        found = audit.verify(store)
        assert (found.rows, found.broken) == (len(set(mine)) + 15, ())
        store.close()
    assert codes == [0] * 15
