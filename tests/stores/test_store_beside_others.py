"""A store that one process keeps open, and waits on, while others come, look and leave."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sayso.model.request import Request, State
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call

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
