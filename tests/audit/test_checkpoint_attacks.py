"""Who can write the store, has no key, and waits for the next checkpoint: it does not make their work look whole."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sayso import audit, errors
from sayso.audit import checkpoint as checkpoints
from sayso.audit.checkpoint import CHAIN, History, checkpoint, checkpointing, history, problems
from sayso.audit.export import purge, receipt_of
from sayso.audit.signing import Signer
from sayso.model.reviewer import LOCAL, PROGRAM, Identity
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scene import Scene
from tests.support.evidence import MAKERS, a_signer, as_somebody_with_the_file, chain_anew, cut, live, scene_on

SOMEBODY = Identity(PROGRAM, "tests")


class Target:
    """A store whose checkpoints know three chains: `night` of eight rows, `day` and `noon` of four."""

    def __init__(self, scene: Scene, path: Path, signer: Signer) -> None:
        self.scene, self.path, self.signer, self.store = scene, path, signer, scene.store
        for run_id in ("day", "night", "noon", "night"):
            live(scene, run_id)
            self.seen = self.checkpoint()

    def checkpoint(self, **options: Any) -> History:
        return checkpoint(self.store, self.signer, **options)

    def reopen(self) -> None:
        """Forget what the store remembers of its own writing."""
        self.store.close()
        self.store = self.scene._store = SqliteStore(self.path)

    def broken(self) -> dict[str, str]:
        past = history(self.store, trusted=self.signer.key)
        found = audit.verify(self.store, known=past.known).broken
        return {**{one.run_id: one.reason for one in found}, **({CHAIN: past.broken[0]} if past.broken else {})}

    def blindly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Write a checkpoint as versions did that did not look first."""
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "problems", lambda *_: [])
            self.checkpoint()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    path = tmp_path / "requests.db"
    with scene_on(SqliteStore(path)) as scene:
        target = Target(scene, path, a_signer(tmp_path))
        yield target
        target.store.close()


def cut_the_end(target: Target) -> None:
    with as_somebody_with_the_file(target.path) as connection:
        cut(connection, "night", 4)


def cut_and_grow_again(target: Target) -> None:
    cut_the_end(target)
    target.reopen()
    live(target.scene, "night")
    live(target.scene, "night")


def lose_a_chain(target: Target) -> None:
    with as_somebody_with_the_file(target.path) as connection:
        cut(connection, "night", 0)


def lose_and_grow_again(target: Target) -> None:
    lose_a_chain(target)
    target.reopen()
    for _ in range(3):
        live(target.scene, "night")


def write_anew(target: Target) -> None:
    with as_somebody_with_the_file(target.path) as connection:
        chain_anew(connection, "night", by="local:eve")


ATTACKS = [cut_the_end, cut_and_grow_again, lose_a_chain, lose_and_grow_again, write_anew]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_checkpoint_is_written_over_a_loss(target: Target, attack: Callable[[Target], None]) -> None:
    attack(target)
    target.reopen()
    assert audit.verify(target.store).broken == ()  # nothing in the chains themselves shows it
    for since in (None, target.seen):
        with pytest.raises(errors.EvidenceError, match=r"no checkpoint was written.*night.*which|match checkpoint"):
            target.checkpoint(since=since)
    assert len(list(target.store.journal(run_id=CHAIN))) == 4
    assert set(target.broken()) == {"night"}


@pytest.mark.parametrize("attack", ATTACKS)
def test_one_that_was_written_over_a_loss_all_the_same_hides_nothing(
    target: Target, attack: Callable[[Target], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(target)
    target.reopen()
    live(target.scene, "day")
    target.blindly(monkeypatch)
    assert "night" in target.broken()
    with pytest.raises(errors.EvidenceError, match="no checkpoint was written"):
        target.checkpoint()


def test_a_checkpoint_that_knows_less_than_one_before_it_is_found(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_the_end(target)
    target.reopen()
    target.blindly(monkeypatch)
    assert "knows row 4 as the newest of run 'night', but an earlier one knew row 8" in target.broken()[CHAIN]


@pytest.mark.parametrize("how_many", [1, 2, 3])
def test_checkpoints_whose_earlier_ones_were_removed_are_found(target: Target, how_many: int) -> None:
    with as_somebody_with_the_file(target.path) as connection:
        connection.execute("DELETE FROM journal WHERE run_id = ? AND seq <= ?", (CHAIN, how_many))
        chain_anew(connection, CHAIN)
    target.reopen()
    assert "names an earlier one that is missing: earlier ones were removed" in target.broken()[CHAIN]
    with pytest.raises(errors.EvidenceError, match="earlier ones were removed"):
        target.checkpoint()


def test_a_signed_checkpoint_is_not_put_aside_by_one_that_nobody_signed(target: Target) -> None:
    rows = list(target.store.journal(run_id=CHAIN))
    with as_somebody_with_the_file(target.path) as connection:
        cut(connection, "night", 4)
        connection.execute("DELETE FROM journal WHERE run_id = ? AND seq = 4", (CHAIN,))
    target.reopen()
    checkpoint(target.store)  # by itself it holds: its store ends where the third one did
    target.store.note(CHAIN, "checkpoint", SOMEBODY, json.loads(rows[3].detail))  # the fourth, which counts no more
    assert "night" in target.broken()
    with pytest.raises(errors.EvidenceError, match="lost row 8"):
        target.checkpoint()


def test_an_older_copy_that_is_put_back_under_a_server_is_found_by_what_it_remembers(
    target: Target, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(target.path)) as source, closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        source.backup(copy)
    live(target.scene, "night")
    seen = target.checkpoint(since=target.seen)
    target.store.close()
    shutil.move(tmp_path / "copy.db", target.path)
    target.reopen()
    assert target.broken() == {}
    with pytest.raises(errors.EvidenceError, match=f"run '{CHAIN}' has lost row 5"):
        target.checkpoint(since=seen)
    live(target.scene, "noon")
    target.checkpoint()  # by somebody who remembers nothing: it stands in the place of the one that was lost
    with pytest.raises(errors.EvidenceError, match=f"row 5 of run '{CHAIN}' does not match"):
        target.checkpoint(since=seen)


def test_a_fork_of_what_a_server_remembers_is_found(target: Target) -> None:
    with as_somebody_with_the_file(target.path) as connection:
        connection.execute("DELETE FROM journal WHERE run_id = ? AND seq = 4", (CHAIN,))
    target.reopen()
    live(target.scene, "noon")
    checkpoint(target.store, target.signer)
    with pytest.raises(errors.EvidenceError, match=f"row 4 of run '{CHAIN}' does not match"):
        target.checkpoint(since=target.seen)


@pytest.mark.parametrize("make", MAKERS)
def test_what_happens_by_rights_is_no_loss(make: str, tmp_path: Path) -> None:
    with scene_on(MAKERS[make](tmp_path)) as scene:
        signer, seen = a_signer(tmp_path), None
        for run_id in ("day", "night", "day", "day", "night"):
            live(scene, run_id)
            seen = checkpoint(scene.store, signer, since=seen)
        scene.clock.tick(days=2)
        assert purge(scene.store, before=scene.clock(), by=Identity(LOCAL, "ada"), channel="cli").requests == 5
        seen = checkpoint(scene.store, signer, since=seen)
        assert (seen.number, seen.broken) == (6, [])
        assert problems(scene.store, history(scene.store)) == []
        assert audit.verify(scene.store, known=seen.known).broken == ()


def test_a_checkpoint_whose_place_no_chain_can_have_is_none() -> None:
    with scene_on(MemoryStore()) as scene:
        live(scene, "day")
        detail = {"at": 0, "before": "", "chains": 1, "rows": 1, "heads": [f"{1 << 70} link day"]}
        scene.store.note(CHAIN, "checkpoint", SOMEBODY, detail)
        assert problems(scene.store, history(scene.store)) == [f"row 1 of {CHAIN} is not a readable checkpoint"]


def test_there_is_no_receipt_of_rows_that_were_written_anew(target: Target) -> None:
    request = live(target.scene, "night")
    target.checkpoint()
    receipt_of(target.store, request.id)
    write_anew(target)
    target.reopen()
    with pytest.raises(errors.EvidenceError, match=r"run 'night' is broken: row 4 does not match checkpoint \d"):
        receipt_of(target.store, request.id)


# -- the checkpoints of a server -------------------------------------------------------------------------------------


def test_a_server_says_each_time_that_none_was_written_and_goes_on(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    cut_the_end(target)
    target.reopen()
    said, thrice = list[str](), threading.Event()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(f"{record.levelname} {record.getMessage()}")
            if len(said) == 3:
                thrice.set()

    ear = Ear()
    logging.getLogger("sayso").addHandler(ear)
    try:
        with checkpointing(target.store, every=timedelta(milliseconds=1), signer=target.signer) as schedule:
            assert thrice.wait(30)
            problem = schedule.problem
    finally:
        logging.getLogger("sayso").removeHandler(ear)
    assert problem is not None
    assert "run 'night' has lost row 8, which checkpoint 4 of" in problem
    assert set(said) == {f"ERROR {problem}"}


def test_a_server_remembers_over_a_failure_what_the_checkpoints_said(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, third = list[Any](), threading.Event()

    def written(_store: object, _signer: object, *, since: object) -> object:
        calls.append(since)
        if len(calls) == 2:
            raise errors.StoreBusyError("locked")
        third.set() if len(calls) == 3 else None
        return "what the first one said"

    monkeypatch.setattr(checkpoints, "checkpoint", written)
    with checkpointing(MemoryStore(), every=timedelta(milliseconds=1)) as schedule:
        assert third.wait(30)
    assert calls[:3] == [None, "what the first one said", "what the first one said"]
    assert schedule.problem is None
