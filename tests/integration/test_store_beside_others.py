"""A store that one process keeps open while others come, look and leave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sayso.model.request import State
from sayso.stores.base import Filter
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call

APPROVE = "import sys, sayso; sayso.Review(sys.argv[1]).approve(sys.argv[2], by='ada')"
LOOK = "import sys, sayso; sayso.Review(sys.argv[1]).list()"


def elsewhere(program: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, timeout=30)


def test_decision_is_seen_after_other_processes_came_and_left(tmp_path: Path) -> None:
    # Were our locks dropped, the first that leaves would take the -wal file away, and nobody would hear of the other.
    store = SqliteStore(tmp_path / "requests.db")
    request = store.open(sample_call())
    assert store.list(Filter()).requests == (request,)
    elsewhere(LOOK, store.url)
    elsewhere(APPROVE, store.url, request.id)
    assert store.get(request.id).state is State.APPROVED
    assert store.start(request.id, "token").state is State.RUNNING
    store.close()
    assert SqliteStore(tmp_path / "requests.db").get(request.id).state is State.RUNNING


def test_files_that_a_store_has_open_stay_when_another_process_leaves(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "requests.db")
    store.open(sample_call())
    store.list(Filter())
    before = (tmp_path / "requests.db-wal").stat().st_ino
    elsewhere(LOOK, store.url)
    assert (tmp_path / "requests.db-wal").stat().st_ino == before
    store.close()
