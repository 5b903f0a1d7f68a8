"""A store that one process keeps open, and waits on, while others come, look and leave."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import Request, State
from sayso.stores.base import Filter
from sayso.stores.jsonl import JsonlStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.testing.scene import refusal

APPROVE = "import sys, sayso; sayso.Review(sys.argv[1]).approve(sys.argv[2], by='ada')"
LOOK = "import sys, sayso; sayso.Review(sys.argv[1]).list()"


def elsewhere(program: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, timeout=30)


@pytest.fixture
def waited(tmp_path: Path) -> Iterator[tuple[SqliteStore, Request]]:
    """A store with a request that somebody waits for, so that its file is open for writing and for watching."""
    store, woken = SqliteStore(tmp_path / "requests.db"), threading.Event()
    request = store.ask(sample_call())
    unwatch = store.watch(request.id, woken.set)
    assert woken.wait(30)
    yield store, request
    unwatch()
    store.close()


# Closing any descriptor of a file drops every lock that a process has on it. Were ours dropped, the next process to
# leave would take the -wal file away, and nobody would hear of what was written after that.


def test_decision_is_seen_after_other_processes_came_and_left(waited: tuple[SqliteStore, Request]) -> None:
    store, request = waited
    elsewhere(LOOK, store.url)
    elsewhere(APPROVE, store.url, request.id)
    assert store.get(request.id).state is State.APPROVED


def test_start_is_seen_by_others_after_other_processes_left(waited: tuple[SqliteStore, Request]) -> None:
    store, request = waited
    elsewhere(APPROVE, store.url, request.id)
    elsewhere(LOOK, store.url)
    store.start(request.id, "token")
    assert SqliteStore(store.url.removeprefix("sqlite:///")).get(request.id).state is State.RUNNING
    look = "import sys, sayso; assert sayso.Review(sys.argv[1]).get(sys.argv[2]).state == 'running'"
    elsewhere(look, store.url, request.id)


def test_files_that_a_store_has_open_stay_when_another_process_leaves(waited: tuple[SqliteStore, Request]) -> None:
    store, _ = waited
    log = Path(store.url.removeprefix("sqlite:///") + "-wal")
    before = log.stat().st_ino
    elsewhere(LOOK, store.url)
    assert log.stat().st_ino == before


# -- the file and its names ----------------------------------------------------------------------------------------

KINDS: tuple[tuple[type[SqliteStore | JsonlStore], str], ...] = (
    (SqliteStore, "requests.db"),
    (JsonlStore, "requests.jsonl"),
)


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_two_names_of_one_file_are_one_store_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[SqliteStore | JsonlStore], name: str
) -> None:
    file, folder = tmp_path / name, tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "link").symlink_to(file)
    (tmp_path / "beside").symlink_to(folder)
    monkeypatch.chdir(folder)
    names = (file, folder / "link", Path("link"), tmp_path / "beside" / ".." / name, tmp_path / "beside" / "link")
    stores = [kind(one) for one in names]
    asked = {store.ask(sample_call(f"run_{n}_{k}")).id for k in range(3) for n, store in enumerate(stores)}
    for store in stores:
        assert {one.id for one in store.list(Filter(), limit=100).requests} == asked
        store.close()
    assert sorted(one.name for one in folder.iterdir()) == ["link"]  # no log and no lock beside another name

    (folder / "hard").hardlink_to(file)
    for one in (file, folder / "hard"):
        told = refusal(errors.StoreUnavailableError, lambda one=one: kind(one).ask(sample_call()))
        assert f"{one} has 2 names (hard links)" in str(told)
    (folder / "hard").unlink()
    assert kind(file).ask(sample_call()).id


def test_a_database_that_was_replaced_or_removed_is_read_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, log = tmp_path / "requests.db", tmp_path / "requests.db-wal"
    store, heard = SqliteStore(path), threading.Event()
    request = store.ask(sample_call("run_first"))
    unwatch = store.watch(request.id, heard.set)
    assert heard.wait(30)
    heard.clear()
    path.rename(tmp_path / "old.db")
    for one in (log, tmp_path / "requests.db-shm"):
        one.unlink()
    assert heard.wait(30)  # who waits is woken, and looks
    refusal(errors.RequestNotFoundError, lambda: store.get(request.id))
    refusal(errors.RequestNotFoundError, lambda: store.start(request.id, "token"))
    again = store.ask(sample_call("run_second"))
    elsewhere(APPROVE, store.url, again.id)
    assert store.get(again.id).state is State.APPROVED
    assert f"{path} was removed or replaced while this program used it" in caplog.text
    unwatch()
    store.close()
    assert [head.run_id for head in SqliteStore(path).heads()] == ["run_second"]


@pytest.mark.parametrize("case", ["long ago", "put back", "within a tick", "behind a link", "another folder"])
def test_a_database_that_was_replaced_is_noticed_whenever_its_folder_changed_last(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, stat, last = tmp_path / "stores", os.stat, time.time_ns()

    def coarse(path: Any, **options: Any) -> Any:
        """What a file system says whose clock takes long steps."""
        found = stat(path, **options)
        if path != str(home):
            return found
        return SimpleNamespace(st_dev=found.st_dev, st_ino=found.st_ino, st_mtime_ns=last, st_ctime_ns=last)

    home.mkdir()
    path = home / "requests.db"
    if case == "behind a link":
        (tmp_path / "data").mkdir()
        path.symlink_to(tmp_path / "data" / "real.db")
        path.resolve().touch()
    store = SqliteStore(path)
    request = store.ask(sample_call())
    os.utime(home, ns=(1, 1))
    if case in {"within a tick", "another folder"}:
        monkeypatch.setattr(os, "stat", coarse)
    later = last + (1_900_000_000 if case == "within a tick" else 3_600_000_000_000)
    monkeypatch.setattr("sayso.stores.sqlite_file.time.time_ns", lambda: later)
    assert store.get(request.id).id == store.get(request.id).id == request.id
    if case == "another folder":
        home.rename(tmp_path / "moved")
        home.mkdir()
    else:
        path.resolve().rename(tmp_path / "old.db")
        for one in (f"{path.resolve()}-wal", f"{path.resolve()}-shm"):
            Path(one).rename(tmp_path / Path(one).name)
        path.resolve().touch()
    if case == "put back":  # as by `rsync -a`
        os.utime(home, ns=(1, 1))
    refusal(errors.RequestNotFoundError, lambda: store.get(request.id))
    store.close()


def test_a_database_whose_log_was_removed_takes_nothing_more(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "requests.db")
    request = store.ask(sample_call())
    sayso.Review(store).approve(request.id, by="ada")
    (tmp_path / "requests.db-wal").unlink()  # what is written from here on would be seen by nobody
    for verb in (lambda: store.ask(sample_call()), lambda: store.start(request.id, "t"), lambda: store.get(request.id)):
        told = refusal(errors.StoreCorruptError, verb)
        assert "requests.db-wal was removed or replaced while this program used" in str(told)
    store.close()
