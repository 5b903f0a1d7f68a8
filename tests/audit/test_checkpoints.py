"""What a checkpoint or an anchor knows of the chains is missed when it is gone, however well that was done."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sayso import audit, errors
from sayso.audit import checkpoint as checkpoints
from sayso.audit.checkpoint import (
    CHAIN,
    AnchorFile,
    History,
    anchor_text,
    checkpoint,
    checkpointing,
    head_lines,
    history,
    read_anchor,
)
from sayso.audit.signing import Signer
from sayso.model.journal import Entry, Head, chained, first_link
from sayso.model.reviewer import PROGRAM, Identity
from sayso.stores import review
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scene import Scene
from tests.support.evidence import MAKERS, a_signer, as_somebody_with_the_file, cut, live, scene_on

RUNS = [f"run_{letter}" for letter in "abcdef"]
CUTS = 2_000


# -- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=MAKERS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with scene_on(MAKERS[request.param](tmp_path)) as scene:
        yield scene


def rows_of(scene: Scene) -> list[Entry]:
    return list(scene.store.journal(run_id=CHAIN))


def test_a_checkpoint_is_over_the_newest_row_of_every_chain(scene: Scene, tmp_path: Path) -> None:
    for run_id in RUNS:
        live(scene, run_id)
    signer = a_signer(tmp_path)
    made = checkpoint(scene.store, signer).newest
    assert made is not None
    heads = {row.run_id: Head(row.run_id, row.seq, row.link) for row in scene.store.journal() if row.run_id != CHAIN}
    assert (made.chains, made.rows) == (6, 24)
    assert json.loads(rows_of(scene)[0].detail)["heads"] == head_lines(heads.values())
    assert (made.key, made.before, made.seq) == (signer.key, "", 1)
    assert history(scene.store, trusted=signer.key).broken == []
    assert list(scene.store.heads())[:6] == sorted(heads.values())


@pytest.mark.parametrize("page", [1, 7, 1000])
def test_every_store_finds_the_same_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(review, "_PAGE", page)
    found: list[list[tuple[str, int]]] = []
    for make in MAKERS.values():
        with scene_on(make(tmp_path)) as scene:
            for n in range(42):
                scene.store.note(f"run_{n % 21}", "denied", Identity(PROGRAM, "tests"), {"rule": "no"})
            found.append([(head.run_id, head.seq) for head in scene.store.heads()])
    assert found[0] == found[1] == found[2]
    assert found[0] == [(f"run_{n}", 2) for n in sorted(range(21), key=str)]


def test_a_store_in_which_nothing_happened_gets_no_checkpoint(scene: Scene) -> None:
    assert checkpoint(scene.store).newest is None
    assert rows_of(scene) == []


def test_nothing_is_written_while_nothing_happens(scene: Scene, tmp_path: Path) -> None:
    live(scene, "run_a")
    first, again = checkpoint(scene.store), checkpoint(scene.store)
    assert (again.newest, again.known, len(rows_of(scene))) == (first.newest, first.known, 1)
    signer = a_signer(tmp_path)
    assert checkpoint(scene.store, signer).number == 2  # the newest was not signed
    assert checkpoint(scene.store, signer).number == 2
    assert checkpoint(scene.store).number == 2


def test_each_checkpoint_names_the_one_before_and_only_what_is_new(scene: Scene) -> None:
    live(scene, "run_a")
    live(scene, "run_b")
    first = checkpoint(scene.store)
    live(scene, "run_a")
    second = checkpoint(scene.store, since=first)
    assert first.newest is not None
    assert second.newest is not None
    assert second.newest.before == first.newest.link
    detail = json.loads(rows_of(scene)[-1].detail)
    assert [line.split(" ")[2] for line in detail["heads"]] == ["run_a", CHAIN]
    assert second == replace(history(scene.store), checked=second.checked)
    assert {head.seq for run_id, head in second.heads.items() if run_id != CHAIN} == {8, 4}


def test_of_two_that_are_written_at_once_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene_on(MemoryStore()) as scene:
        live(scene, "run_a")
        note, store = scene.store.note, scene.store

        def late(*arguments: Any) -> None:
            monkeypatch.setattr(store, "note", note)
            live(scene, "run_b")
            checkpoint(store)
            note(*arguments)

        monkeypatch.setattr(store, "note", late)
        found = checkpoint(store)
        assert (len(rows_of(scene)), found.number, found.last.seq) == (2, 1, 2)
        assert set(found.heads) == {"run_a", "run_b"}
        live(scene, "run_c")
        assert checkpoint(store).number == 2
        assert history(store).broken == []
        assert audit.verify(store, known=history(store).known).broken == ()


def test_rows_of_others_in_their_chain_are_no_checkpoints(scene: Scene) -> None:
    live(scene, "run_a")
    checkpoint(scene.store)
    scene.store.note(CHAIN, "denied", Identity(PROGRAM, "tests"), {"rule": "no"})
    assert (history(scene.store).number, history(scene.store).broken) == (1, [])
    for detail in ({}, {"at": "0"}, {"at": 0, "before": "", "chains": 0, "rows": 0, "heads": [7]}):
        scene.store.note(CHAIN, "checkpoint", Identity(PROGRAM, "tests"), detail)
    assert [reason[:5] for reason in history(scene.store).broken] == ["row 3", "row 4", "row 5"]


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        ({"rows": 3}, "signature"),
        ({"signature": "0" * 128}, "signature"),
        ({"signature": None}, "signature"),
        ({"key": None, "signature": None}, "not signed"),
        ({"key": "ed25519:" + "0" * 64}, "another key"),
        ({"heads": []}, "signature"),
    ],
)
def test_a_checkpoint_that_was_forged_is_found(forge: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with scene_on(MemoryStore()) as scene:
        live(scene, "run_a")
        signer = a_signer(tmp_path)
        checkpoint(scene.store, signer)
        live(scene, "run_a")
        checkpoint(scene.store, signer)
        other = MemoryStore()
        for row in rows_of(scene)[:1]:
            other.note(CHAIN, "checkpoint", Identity(PROGRAM, "sayso"), json.loads(row.detail))
        (kept,) = other.journal()
        detail = json.loads(rows_of(scene)[1].detail) | {"before": kept.link} | forge
        other.note(CHAIN, "checkpoint", Identity(PROGRAM, "sayso"), detail)
        assert any(reason in said for said in history(other, trusted=signer.key).broken)


def test_a_key_may_be_changed_and_the_newest_checkpoint_vouches_for_those_before(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    first, second = a_signer(tmp_path / "old"), a_signer(tmp_path)
    live(scene, "run_a")
    checkpoint(scene.store, first)
    checkpoint(scene.store, second)
    assert history(scene.store, trusted=second.key).broken == []
    assert history(scene.store).keys == [first.key, second.key]
    assert "another key" in history(scene.store, trusted=first.key).broken[0]
    live(scene, "run_a")
    checkpoint(scene.store)
    assert "not signed" in history(scene.store, trusted=second.key).broken[0]


def test_checkpoints_are_written_from_time_to_time(tmp_path: Path) -> None:
    written = threading.Event()

    class Told(MemoryStore):
        def note(self, *arguments: Any) -> None:
            super().note(*arguments)
            written.set()

    signer = a_signer(tmp_path)
    with scene_on(Told()) as scene:
        live(scene, "run_a")
        with checkpointing(scene.store, every=timedelta(milliseconds=1), signer=signer):
            assert written.wait(30)
        assert history(scene.store, trusted=signer.key).number == 1


def test_a_checkpoint_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    failed, written = threading.Event(), threading.Event()

    class Full(MemoryStore):
        def note(self, *arguments: Any) -> None:
            if not failed.is_set():
                failed.set()
                raise errors.StoreFullError("no room left")
            super().note(*arguments)
            written.set()

    with scene_on(Full()) as scene:
        live(scene, "run_a")
        with checkpointing(scene.store, every=timedelta(milliseconds=1)):
            assert written.wait(30)
    assert "no checkpoint was written: StoreFullError: no room left" in caplog.text


# -- what is missed --------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[tuple[Scene, Path]]:
    path = tmp_path / "requests.db"
    with scene_on(SqliteStore(path)) as scene:
        for run_id in RUNS:
            live(scene, run_id)
            live(scene, run_id)
        yield scene, path


def missed(scene: Scene, known: History | AnchorFile) -> dict[str, str]:
    return {one.run_id: one.reason for one in audit.verify(scene.store, known=known.known).broken}


def test_an_end_or_chain_that_was_cut_off_with_its_requests_is_missed(filled: tuple[Scene, Path]) -> None:
    scene, path = filled
    past = checkpoint(scene.store)
    with as_somebody_with_the_file(path) as connection:
        cut(connection, "run_b", 4)
        cut(connection, "run_d", 0)
    assert audit.verify(scene.store).broken == ()
    found = missed(scene, past)
    assert set(found) == {"run_b", "run_d"}
    assert "ends with row 4, but checkpoint 1" in found["run_b"]
    assert "the chain was lost" in found["run_d"]


def test_a_chain_that_was_written_anew_with_its_requests_is_missed(filled: tuple[Scene, Path]) -> None:
    scene, path = filled
    past = checkpoint(scene.store)
    with as_somebody_with_the_file(path) as connection:
        before = first_link("run_c")
        for row in connection.execute("SELECT * FROM journal WHERE run_id = 'run_c' ORDER BY seq").fetchall():
            entry = Entry(*row)
            new = chained(before, *entry[:5], entry.by.replace("ada", "eve"), *entry[6:8])
            connection.execute("UPDATE journal SET by = ?, link = ? WHERE link = ?", (new.by, new.link, entry.link))
            connection.execute("UPDATE request SET link = ?, by = ? WHERE link = ?", (new.link, new.by, entry.link))
            before = new.link
    assert audit.verify(scene.store).broken == ()
    assert missed(scene, past) == {"run_c": "row 8 does not match " + witness(past) + ": the chain was rewritten"}


def witness(past: History) -> str:
    assert past.newest is not None
    return past.newest.witness


def test_an_older_copy_that_was_put_back_is_missed_by_an_anchor(filled: tuple[Scene, Path], tmp_path: Path) -> None:
    scene, path = filled
    checkpoint(scene.store)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(tmp_path / "older.db")) as copy:
        source.backup(copy)
    live(scene, "run_a")
    anchor = read_anchor(anchor_text(scene.store).encode())
    with scene_on(SqliteStore(tmp_path / "older.db")) as older:
        assert audit.verify(older.store, known=history(older.store).known).broken == ()
        found = missed(older, anchor)
        assert set(found) == {"run_a", CHAIN}
        assert all("an older copy of the store was restored" in reason for reason in found.values())


def test_the_newest_checkpoint_cut_off_as_well_is_missed_by_an_anchor_alone(filled: tuple[Scene, Path]) -> None:
    scene, path = filled
    anchor = read_anchor(anchor_text(scene.store).encode())
    with as_somebody_with_the_file(path) as connection:
        cut(connection, "run_e", 4)
        connection.execute("DELETE FROM journal WHERE run_id = ?", (CHAIN,))
    assert missed(scene, history(scene.store)) == {}
    assert set(missed(scene, anchor)) == {"run_e", CHAIN}
    assert "unless the newest of them are removed as well" in " ".join((checkpoints.__doc__ or "").split())


def test_only_the_run_that_was_asked_for_is_held_to_what_is_known(filled: tuple[Scene, Path]) -> None:
    scene, path = filled
    past = checkpoint(scene.store)
    with as_somebody_with_the_file(path) as connection:
        cut(connection, "run_b", 4)
    assert audit.verify(scene.store, run_id="run_a", known=past.known).broken == ()
    assert len(audit.verify(scene.store, run_id="run_b", known=past.known).broken) == 1


def test_what_happens_after_a_checkpoint_is_no_break(filled: tuple[Scene, Path]) -> None:
    scene, _ = filled
    anchor, past = read_anchor(anchor_text(scene.store).encode()), history(scene.store)
    for run_id in (*RUNS, "run_new"):
        live(scene, run_id)
    assert missed(scene, anchor) == missed(scene, past) == {}


@pytest.mark.slow
def test_two_thousand_random_cuts_losses_and_rewritings_are_all_found_by_an_anchor(filled: tuple[Scene, Path]) -> None:
    scene, path = filled
    anchor = read_anchor(anchor_text(scene.store).encode())
    rows = [tuple(row) for row in scene.store.journal()]
    draw, made, unseen = random.Random(4721), 0, list[str]()
    with as_somebody_with_the_file(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("DELETE FROM request")  # nothing but the anchor knows of a row
        while made < CUTS:
            kind, new = changed(draw, rows)
            connection.execute("DELETE FROM journal")
            connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", new)
            connection.commit()
            made += 1
            is_found = {one.run_id for one in audit.verify(scene.store, known=anchor.known).broken}
            here = {row[0] for row in set(map(tuple, rows)) ^ set(map(tuple, new))}
            if not here or not here <= is_found:
                unseen.append(f"{kind} {here}")
        connection.execute("DELETE FROM journal")
        connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    assert unseen == []
    print(f"{made} changes, all found")


def changed(draw: random.Random, rows: list[tuple[Any, ...]]) -> tuple[str, list[tuple[Any, ...]]]:
    """Return the rows after an end was cut off, a chain was lost, or one was written anew from some row on."""
    run_id, kind = draw.choice([*RUNS, CHAIN]), draw.choice(["cut", "lose", "rewrite"])
    mine = [row for row in rows if row[0] == run_id]
    others = [row for row in rows if row[0] != run_id]
    if kind == "lose":
        return kind, others
    place = draw.randrange(len(mine))
    if kind == "cut":
        return kind, [*others, *mine[:place]]
    before = mine[place - 1][8] if place else first_link(run_id)
    new = list(mine[:place])
    for row in mine[place:]:
        new.append(tuple(chained(before, *row[:5], f"local:eve{draw.randrange(99)}", *row[6:8])))
        before = new[-1][8]
    return kind, [*others, *new]


# -- anchors ---------------------------------------------------------------------------------------------------------


def anchored(tmp_path: Path, *, is_signed: bool = True) -> tuple[bytes, Signer | None]:
    signer = a_signer(tmp_path) if is_signed else None
    with scene_on(MemoryStore()) as scene:
        for run_id in RUNS:
            live(scene, run_id)
        return anchor_text(scene.store, signer).encode(), signer


@pytest.mark.parametrize("is_signed", [True, False])
def test_an_anchor_of_which_any_byte_was_changed_is_refused(tmp_path: Path, is_signed: bool) -> None:
    content, signer = anchored(tmp_path, is_signed=is_signed)
    read = read_anchor(content, trusted=None if signer is None else signer.key)
    assert len(read.heads) == 6
    for place in range(len(content)):
        for bit in (1, 32):
            spoilt = bytearray(content)
            spoilt[place] ^= bit
            with pytest.raises(errors.EvidenceError):
                read_anchor(bytes(spoilt))


def test_an_anchor_that_was_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    content, _ = anchored(tmp_path)
    for end in range(len(content)):
        with pytest.raises(errors.EvidenceError, match=r"truncated|not a sayso anchor|canonical form"):
            read_anchor(content[:end])
    with pytest.raises(errors.EvidenceError):
        read_anchor(content + b"\n")


def test_an_anchor_of_another_store_says_so(tmp_path: Path) -> None:
    content, _ = anchored(tmp_path)
    with scene_on(MemoryStore()) as scene:
        live(scene, "another run")
        checkpoint(scene.store)
        with pytest.raises(errors.EvidenceError, match=r"no chain in the anchor of .*6 missing"):
            read_anchor(content).must_be_of(scene.store)


def test_an_anchor_must_be_signed_by_the_key_that_is_trusted(tmp_path: Path) -> None:
    content, signer = anchored(tmp_path)
    assert signer is not None
    assert read_anchor(content, trusted=signer.key).key == signer.key
    with pytest.raises(errors.EvidenceError, match=f"signed by another key, {signer.key}"):
        read_anchor(content, trusted="ed25519:" + "0" * 64)
    unsigned, _ = anchored(tmp_path, is_signed=False)
    with pytest.raises(errors.EvidenceError, match="not signed, and must be"):
        read_anchor(unsigned, trusted=signer.key)


def test_an_anchor_without_the_content_of_one_is_refused(tmp_path: Path) -> None:
    from sayso.audit.signing import document_text

    signer = a_signer(tmp_path)
    with scene_on(MemoryStore()) as scene:
        live(scene, "run_a")
        past = checkpoint(scene.store, signer)
        assert past.newest is not None
        said: dict[str, Any] = {"format": "sayso/anchor/1", "checkpoint": past.newest._asdict(), "heads": []}
        for wrong in ({"heads": ["no head"]}, {"heads": [7]}, {"heads": 7}, {"checkpoint": {}}, {"format": "sayso/9"}):
            with pytest.raises(errors.EvidenceError, match=r"does not have the content|sayso/9"):
                read_anchor(document_text("anchor", said | wrong, signer).encode())


def test_a_file_that_is_no_anchor_or_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "anchor.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(errors.EvidenceError, match="is not a sayso anchor"):
        read_anchor(path)
    with path.open("wb") as file:
        file.write(b'{\n"anchor": {')
        file.truncate(600 << 20)
    with pytest.raises(errors.EvidenceError, match="over 512 MB long"):
        read_anchor(path)
    with pytest.raises(errors.EvidenceError, match="cannot be read"):
        read_anchor(tmp_path / "none.json")
    shutil.rmtree(tmp_path)


# -- the database ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal SET by = 'local:eve'",
        "DELETE FROM journal",
        "INSERT OR REPLACE INTO journal SELECT * FROM journal",
        (
            "INSERT OR REPLACE INTO journal (rowid, run_id, seq, at, request_id, event, by, channel, detail, link)"
            " SELECT 1, 'another', seq, at, request_id, event, by, channel, detail, link FROM journal WHERE rowid = 1"
        ),
        "UPDATE journal SET detail = '{}' WHERE run_id = 'sayso:checkpoints'",
        "DELETE FROM journal WHERE run_id = 'sayso:checkpoints'",
    ],
)
def test_the_database_refuses_to_change_or_remove_a_row(filled: tuple[Scene, Path], statement: str) -> None:
    scene, path = filled
    checkpoint(scene.store)
    before = list(scene.store.journal())
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError, match="only added to"):
        connection.execute(statement)
    assert list(scene.store.journal()) == before
