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
from sayso.stores import sqlite
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
    verb = in_a_verb(store, is_over)
    pause = SqliteStore.pause

    def paused(self: SqliteStore, until: float) -> bool:
        order.append("the fork waits")
        threading.Thread(target=lambda: (verb.is_alive() and order.append("the verb goes on"), is_over.set())).start()
        return pause(self, until)

    monkeypatch.setattr(SqliteStore, "pause", lambda self, until: paused(self, until) if self is store else True)
    monkeypatch.setattr(SqliteStore, "go_on", lambda self, go_on=SqliteStore.go_on: self is store and go_on(self))
    ended = forked(lambda: store.ask(sample_call("run_child")))
    verb.join(_PATIENCE)
    assert order == ["the fork waits", "the verb goes on"]
    assert ended() == 0
    assert [head.run_id for head in store.heads()] == ["run_child"]
    store.close()


def test_the_child_of_a_fork_that_could_not_wait_refuses_its_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_PATIENCE", 0.0)
    store, other, is_over = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "other.db"), threading.Event()
    verb = in_a_verb(store, is_over)

    def child() -> None:
        for one in (store, other, SqliteStore(tmp_path / "new.db")):
            error = refusal(errors.StoreUnavailableError, lambda one=one: one.ask(sample_call()))
            assert "was forked while another thread used a store" in str(error)

    ended = forked(child)
    is_over.set()
    verb.join(_PATIENCE)
    assert ended() == 0
    assert store.ask(sample_call()).id
    assert other.ask(sample_call()).id
    store.close()
    other.close()


def test_a_process_that_forks_while_its_threads_write_loses_nothing(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / f"{n}.db") for n in range(2)]
    unwatch = [store.watch_all(lambda: None) for store in stores]
    is_over, asked = threading.Event(), [list[str](), list[str]()]

    def write(n: int) -> None:
        while not is_over.is_set():
            call = sample_call("run_parent", {"amount": len(asked[n]), "to": "anna"})
            asked[n].append(stores[n].ask(call).id)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for writer in writers:
        writer.start()
    children = [forked(lambda n=n: [store.ask(sample_call(f"run_{n}")) for store in stores]) for n in range(30)]
    codes = [ended() for ended in children]
    is_over.set()
    for writer in writers:
        writer.join(_PATIENCE)
    for remove in unwatch:
        remove()
    for store, mine in zip(stores, asked, strict=True):
        found = audit.verify(store)
        assert (found.rows, found.broken) == (len(mine) + 30, ())
        store.close()
    assert codes == [0] * 30
