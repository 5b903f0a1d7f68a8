"""What was purged is gone, from every file; that it was can still be proved, and nothing that lives is touched."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from sayso import audit, errors
from sayso.audit.checkpoint import checkpoint
from sayso.audit.export import Purged, purge, receipt_of, receipt_text, verify_receipt
from sayso.model import canonical
from sayso.model.journal import ended_at
from sayso.model.lifecycle import Outcome
from sayso.model.request import FINAL, Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, Identity, Quorum
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores.base import Filter, Store
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.records import Record
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.testing.doubles import sample_edit, sample_question
from sayso.testing.scene import ADA, BOB, Scene
from sayso.view import full_text
from sayso.view.as_json import request_document
from tests.support.evidence import MAKERS, as_somebody_with_the_file, in_every_state, scene_on

CANARY = "CANARY-7215893461"
KEY = base64.urlsafe_b64encode(b"k" * 32).decode()
DAY = timedelta(days=1)
SEALED: dict[str, Callable[[Path], Store]] = {
    "sealed sqlite": lambda folder: SqliteStore(folder / "requests.db", key=KEY),
    "sealed jsonl": lambda folder: JsonlStore(folder / "requests.jsonl", key=KEY),
}


@pytest.fixture(params=[*MAKERS, *SEALED])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with scene_on((MAKERS | SEALED)[request.param](tmp_path)) as scene:
        yield scene


def old(scene: Scene, **options: bool) -> Purged:
    """Purge what ended before a day from now."""
    scene.clock.tick(days=2)
    return purge(scene.store, before=scene.clock() - DAY, by=ADA, channel="test", **options)


def full_of_words(scene: Scene, run_id: str = "run_a") -> list[Request]:
    """Leave final requests behind whose every text is a canary, but for what people said."""
    store, said = scene.store, {"prompt": CANARY, "description": CANARY, "rule": CANARY, "context": {"of": CANARY}}
    request = store.ask(sample_call(run_id, {"to": CANARY, "password": CANARY}, quorum=Quorum(2), **said))
    edited = scene.decide("approve", request, edited=sample_edit(request, to=f"{CANARY}-edited"))
    scene.decide("approve", edited, BOB)
    store.start(request.id, "t")
    store.finish(request.id, "t", Outcome("done", result=canonical.encode({"result": CANARY}).text))
    failed = store.ask(sample_call(run_id, {"to": f"{CANARY}-2"}))
    scene.decide("approve", failed)
    store.start(failed.id, "t")
    store.finish(failed.id, "t", Outcome("failed", error=f"ValueError: {CANARY}"))
    question = store.ask(sample_question(run_id, f"{CANARY}?"))
    scene.decide("answer", question, answer=canonical.encode({"answer": CANARY}).text)
    return [store.get(one.id) for one in (request, failed, question)]


# -- what is gone ----------------------------------------------------------------------------------------------------


def test_what_was_purged_is_in_no_view_and_what_remains_is_shown(scene: Scene) -> None:
    requests = full_of_words(scene)
    assert CANARY in str(request_document(requests[0]))
    found = old(scene)
    assert (found.requests, found.live, found.is_scrubbed) == (3, 0, True)
    for before in requests:
        request = scene.store.get(before.id)
        shown = [full_text.ask_rows(request, scene.clock(), width=100, full=True), full_text.headline(request)]
        assert CANARY not in f"{request} {request_document(request)} {shown} {request.subject.shown_digest}"
        assert "removed on 2026-01-03" in full_text.headline(request)
        kept = ("id", "state", "fingerprint", "run_id", "requester", "created_at", "quorum", "holds", "risk")
        assert [getattr(request, name) for name in kept] == [getattr(before, name) for name in kept]
        assert request.current_fingerprint == before.current_fingerprint
        assert request.purged_at == scene.clock()
        assert request.decision is not None
        assert before.decision is not None
        assert (request.decision.by, request.decision.at) == (before.decision.by, before.decision.at)
    assert scene.store.list(Filter(text="canary")).requests == ()
    assert scene.store.list(Filter(name="payments:pay")).requests


@pytest.mark.parametrize("make", ["sqlite", "jsonl"])
def test_what_was_purged_is_in_no_file(make: str, tmp_path: Path) -> None:
    with scene_on(MAKERS[make](tmp_path)) as scene:
        if isinstance(scene.store, SqliteStore):
            scene.store._writer().execute("PRAGMA secure_delete = OFF")  # some builds overwrite what they delete
        for n in range(60):
            full_of_words(scene, f"run_{n}")
        scene.store.save_run(ended("run_0", scene, f'{{"value":"{CANARY}"}}'))
        assert CANARY in everything(tmp_path)
        assert old(scene).is_scrubbed
        assert CANARY not in everything(tmp_path)
        assert audit.verify(scene.store).broken == ()
        assert scene.store.count(Filter()) == 180


def everything(folder: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in folder.iterdir() if path.is_file())


def ended(run_id: str, scene: Scene, body: str, state: RunState = RunState.ENDED) -> RunUpdate:
    now = scene.clock()
    return RunUpdate(RunRecord(run_id, "agent", "agent", state, None, now, now), [Step("", body)])


def test_a_second_purge_finds_nothing_left(scene: Scene) -> None:
    full_of_words(scene)
    old(scene)
    rows = list(scene.store.journal())
    assert old(scene).requests == 0
    assert list(scene.store.journal()) == rows


def test_a_dry_purge_changes_nothing_and_counts_the_same(scene: Scene) -> None:
    full_of_words(scene)
    scene.store.save_run(ended("run_done", scene, "{}"))
    before = scene.everything()
    dry = old(scene, is_dry=True)
    assert scene.everything() == before
    scene.clock.tick(days=-2)
    assert old(scene) == dry
    assert (dry.requests, dry.runs, dry.words) == (3, 1, 4)


def test_what_people_said_stays_in_the_journal_and_is_counted(scene: Scene) -> None:
    full_of_words(scene)
    assert old(scene).words == 4
    details = [row.detail for row in audit.entries(scene.store)]
    assert sum('"comment":"said so"' in detail for detail in details) == 4


# -- what can still be proved ----------------------------------------------------------------------------------------


def test_a_purged_journal_verifies_and_a_receipt_from_before_holds(scene: Scene) -> None:
    requests = full_of_words(scene)
    past = checkpoint(scene.store)
    receipts = [receipt_text(scene.store, request.id).encode() for request in requests]
    old(scene)
    found = audit.verify(scene.store, known=past.known)
    assert (found.broken, found.requests, found.unopened) == ((), 3, 0)
    for receipt in receipts:
        verify_receipt(receipt)
    rows = [row for row in scene.store.journal() if row.event == "purged"]
    assert {(row.by, row.channel, row.request_id) for row in rows} == {
        ("local:ada", "test", request.id) for request in requests
    }
    with pytest.raises(errors.EvidenceError, match="was removed on"):
        receipt_of(scene.store, requests[0].id)


@pytest.mark.parametrize(
    "change",
    ["form = '{\"amount\":1}'", "asked = replace(asked, '\"purged\":', '\"gone\":')", "masked = '{}'", "name = 'x'"],
)
def test_a_purged_request_that_was_rewritten_is_found(tmp_path: Path, change: str) -> None:
    path = tmp_path / "requests.db"
    with scene_on(SqliteStore(path)) as scene:
        request, *_ = full_of_words(scene)
        old(scene)
        with as_somebody_with_the_file(path) as connection:
            changed = connection.execute(f"UPDATE request SET {change} WHERE id = ?", (request.id,))  # noqa: S608
            assert changed.rowcount == 1
        (broken,) = audit.verify(scene.store).broken
        assert f"{request.id} does not match what was asked" in broken.reason


def test_a_request_that_says_it_was_purged_and_has_no_row_for_it_is_found(tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    with scene_on(SqliteStore(path)) as scene:
        full_of_words(scene)
        with as_somebody_with_the_file(path) as connection:
            connection.execute("UPDATE request SET asked = replace(asked, '{', '{\"purged\":1,')")
        assert len(audit.verify(scene.store).broken) == 1


def test_a_scrubbed_file_says_the_same_to_every_process(tmp_path: Path) -> None:
    for make in MAKERS.values():
        store = make(tmp_path)
        if isinstance(store, MemoryStore):
            continue
        with scene_on(store) as scene:
            full_of_words(scene)
            scene.store.keep(Record("token", "one", {"of": 1}))
            scene.store.save_run(ended("run_z", scene, "{}", RunState.PAUSED))
            in_every_state(scene)
            other = make(tmp_path)
            before = other.list(Filter(), limit=100)
            scene.store.scrub()
            again = make(tmp_path)
            for one in (other, again):
                assert one.list(Filter(), limit=100) == before
                assert list(one.journal()) == list(scene.store.journal())
                assert one.get_run("run_z") == scene.store.get_run("run_z")
                assert one.record("token", "one") == scene.store.record("token", "one")
                assert audit.verify(one).broken == ()
            request = other.ask(sample_call("run_other"))
            assert scene.store.get(request.id) == again.get(request.id) == request
            other.close()
            again.close()


# -- what is not touched ---------------------------------------------------------------------------------------------


def test_nothing_that_lives_is_purged(scene: Scene) -> None:
    requests = [request for request in in_every_state(scene) if request.state not in FINAL]
    for request in requests:
        with pytest.raises(errors.PurgeRefusedError, match=f"is {request.state}, and can still change"):
            scene.store.purge(request.id, ADA, before=scene.clock() + 9 * DAY, channel="test")
        assert scene.store.get(request.id) == request
    assert {request.state for request in requests} == {State.PENDING, State.APPROVED, State.RUNNING, State.UNKNOWN}


def test_what_ended_later_is_not_purged(scene: Scene) -> None:
    request = scene.ask("run_a")
    scene.clock.tick(hours=1)
    scene.decide("reject", request)
    scene.clock.tick(days=2)
    assert ended_at(scene.store.get(request.id)) == scene.clock() - 2 * DAY
    for before in (timedelta(days=2), timedelta(days=2, minutes=30)):
        assert purge(scene.store, before=scene.clock() - before, by=ADA, channel="test").requests == 0
    with pytest.raises(errors.PurgeRefusedError, match="which is not before"):
        scene.store.purge(request.id, ADA, before=scene.clock() - 2 * DAY, channel="test")
    almost = timedelta(days=2) - timedelta(microseconds=1)
    assert purge(scene.store, before=scene.clock() - almost, by=ADA, channel="test").requests == 1


def test_absences_that_ended_go_with_a_purge_or_the_next_one_and_the_journal_keeps_them(scene: Scene) -> None:
    store, carol = scene.store, Identity(LOCAL, "carol")

    def away(who: Identity, days: int) -> None:
        store.delegate(who, to=Identity(LOCAL, "zoe"), until=scene.clock() + days * DAY, channel="test")

    def kept() -> list[str]:
        return sorted(record.key for record in store.records("away"))

    away(ADA, 1), away(BOB, 2), away(carol, 9)
    scene.clock.tick(days=4)
    for before, rest in ((3 * DAY, [ADA, BOB, carol]), (timedelta(days=2.5), [BOB, carol]), (-99 * DAY, [carol])):
        there = kept()
        purge(store, before=scene.clock() - before, by=ADA, channel="test", is_dry=True)
        assert kept() == there
        purge(store, before=scene.clock() - before, by=ADA, channel="test")
        assert kept() == sorted(one.folded for one in rest)
    scene.clock.tick(days=9)
    away(ADA, 1)
    assert kept() == [ADA.folded]
    assert [one.by for one in store.delegations()] == [ADA]
    assert [row.event for row in store.journal(run_id=f"sayso:away:{carol.folded}")] == ["delegated"]
    assert audit.verify(store).broken == ()


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.BROKEN, RunState.RUNNING])
def test_what_a_run_still_needs_is_not_purged(scene: Scene, state: RunState) -> None:
    requests = full_of_words(scene)
    scene.store.save_run(ended("run_a", scene, "{}", state))
    found = old(scene)
    assert (found.requests, found.runs, found.needed) == (0, 0, 3)
    assert [scene.store.get(request.id) for request in requests] == requests
    with pytest.raises(errors.PurgeRefusedError, match=f"is needed by its run, which is {state}"):
        scene.store.purge(requests[0].id, ADA, before=scene.clock(), channel="test")
    with pytest.raises(errors.PurgeRefusedError, match=f"run_a has been {state} since"):
        scene.store.purge_run("run_a", ADA, before=scene.clock(), channel="test")
    assert scene.store.get_run("run_a").steps


def test_the_steps_of_a_run_that_ended_go_and_the_run_stays(scene: Scene) -> None:
    scene.store.save_run(ended("run_a", scene, f'{{"value":"{CANARY}"}}'))
    assert old(scene).runs == 1
    kept = scene.store.get_run("run_a")
    assert (kept.run.state, list(kept.steps)) == (RunState.ENDED, [])
    assert [row.event for row in scene.store.journal(run_id="run_a")] == ["purged"]
    assert old(scene).runs == 0
    with pytest.raises(errors.RunNotFoundError):
        scene.store.purge_run("run_none", ADA, before=scene.clock(), channel="test")


def test_a_no_holds_after_it_was_purged(scene: Scene) -> None:
    request = scene.store.ask(sample_call("run_same", {"amount": 7}))
    scene.decide("reject", request)
    old(scene)
    again = scene.store.ask(sample_call("run_same", {"amount": 7}))
    assert (again.id, again.state, again.holds) == (request.id, State.REJECTED, True)


def test_messages_about_it_that_were_not_sent_go_too(scene: Scene) -> None:
    scene.store.keep(Record("channel", "ops", {}))
    requests = full_of_words(scene)
    assert scene.store.record("delivery/ops", requests[0].id) is not None
    old(scene)
    assert list(scene.store.records("delivery/ops")) == []


def test_a_purge_is_refused_of_what_is_not_there(scene: Scene) -> None:
    with pytest.raises(errors.RequestNotFoundError):
        scene.store.purge("rq_none", ADA, before=scene.clock(), channel="test")


def test_readers_that_are_at_it_are_said_to_hold_on_to_the_log(tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    with scene_on(SqliteStore(path)) as scene:
        full_of_words(scene)
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM request").fetchone()
            assert old(scene).is_scrubbed is False
            reader.execute("COMMIT")
        assert old(scene).is_scrubbed is True
        assert CANARY not in everything(tmp_path)


def test_a_purge_without_the_key_of_a_sealed_store_removes_nothing(tmp_path: Path) -> None:
    with scene_on(SEALED["sealed sqlite"](tmp_path)) as scene:
        full_of_words(scene)
    with scene_on(MAKERS["sqlite"](tmp_path)) as stranger:
        with pytest.raises(errors.StoreSealedError):
            old(stranger)
        assert not [row for row in stranger.store.journal() if row.event == "purged"]


def test_a_note_about_nothing_is_no_purge_of_a_request(scene: Scene) -> None:
    request = scene.ask("run_a")
    scene.store.note("run_a", "purged", Identity(PROGRAM, "tests"), {"asked": "0"})
    assert audit.verify(scene.store).broken == ()
    assert scene.store.get(request.id).purged_at is None
