"""A request's own row, rewritten by hand: nobody decides it, it does not run, and the journal shows it.

Whoever can write the file can also write the journal anew up to its end; what shows that is in `test_checkpoints`.
Invariant: what becomes of a request stands in its row and, as a digest, in the newest row of the journal about it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

import sayso
from sayso import audit, config, errors
from sayso.audit.export import receipt_of
from sayso.model.journal import Trail, chained
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.stores.base import Store
from sayso.stores.codec import PROGRESS_COLUMNS, RequestRow
from sayso.stores.jsonl import JsonlStore
from sayso.stores.jsonl_file import Lines
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.testing.scene import ADA, Scene, refusal
from tests.support.acting import held
from tests.support.altering import Alteration, alterations
from tests.support.evidence import as_somebody_with_the_file, scene_on

KEYS = pytest.mark.parametrize("key", [None, base64.urlsafe_b64encode(bytes(32)).decode()], ids=["readable", "sealed"])
OTHERS = {
    "holds": None, "state": "approved", "live": None, "ends_at": 1, "claimed_by": "local:mallory",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.db"


@pytest.fixture
def playing(path: Path) -> Iterator[Callable[[str | None], Scene]]:
    """Return what opens the store with a key, as a process of its own would."""
    stores: list[SqliteStore] = []
    with scene_on(SqliteStore(path)) as scene:

        def play(key: str | None = None) -> Scene:
            stores.append(SqliteStore(path, key=key))
            scene._store = stores[-1]
            return scene

        yield play
        for store in stores:
            store.close()


def rewrite(path: Path, request: Request, column: str, value: object) -> None:
    with as_somebody_with_the_file(path) as connection:
        sql = f"UPDATE request SET {column} = ? WHERE id = ?"  # noqa: S608  our own column names
        assert connection.execute(sql, (value, request.id)).rowcount == 1


def test_a_row_that_cannot_be_read_hides_no_other_snooze(playing: Callable[[], Scene], path: Path) -> None:
    scene = playing()
    requests, until = [scene.in_state(State.PENDING) for _ in range(3)], scene.clock() + timedelta(hours=1)
    for request in requests:
        scene.store.snooze(request.id, ADA, until=until)
    rewrite(path, requests[1], "progress", "{")
    assert playing().store.snoozes(ADA) == dict.fromkeys((requests[0].id, requests[2].id), until)


@KEYS
@pytest.mark.parametrize("column", [name for name in PROGRESS_COLUMNS if name != "progress"])
def test_a_row_that_was_rewritten_is_not_decided_and_shows(
    playing: Callable[[str | None], Scene], path: Path, key: str | None, column: str
) -> None:
    scene = playing(key)
    request = scene.in_state(State.PENDING)
    rewrite(path, request, column, OTHERS[column])
    scene = playing(key)
    if column != "state":
        with pytest.raises(errors.StoreError):
            scene.decide("approve", request)
        if column != "holds":  # then there is nothing to clear
            refusal(errors.StoreError, lambda: scene.store.withdraw(request.id, ADA))
    with pytest.raises((errors.StartRefusedError, errors.StoreError)):
        scene.store.start(request.id, "token")
    assert [one.run_id for one in audit.verify(scene.store).broken] == [request.run_id]


@KEYS
def test_a_spent_approval_is_not_made_new_by_hand(
    playing: Callable[[str | None], Scene], path: Path, key: str | None
) -> None:
    scene = playing(key)
    request = scene.in_state(State.APPROVED)
    with as_somebody_with_the_file(path) as connection:
        [(progress,)] = connection.execute("SELECT progress FROM request WHERE id = ?", (request.id,))
    scene.store.start(request.id, "token")
    scene.store.finish(request.id, "token", Outcome("done"))
    for column, value in {"state": "approved", "live": 1, "holds": 1, "progress": progress}.items():
        rewrite(path, request, column, value)
    refusal(errors.AlteredRequestError, lambda: playing(key).store.start(request.id, "token"))


@pytest.mark.parametrize("state", [State.DONE, State.FAILED, State.REJECTED, State.ANSWERED], ids=str)
def test_a_result_or_an_answer_that_was_altered_is_not_taken(
    playing: Callable[[str | None], Scene], path: Path, state: State
) -> None:
    request = playing(None).in_state(state)
    rewrite(path, request, "name", "another")
    found = refusal(errors.StoreCorruptError, lambda: playing(None).store.settle(request.id))
    assert f"the row of request {request.id} does not match the journal" in str(found)


def test_a_row_that_was_altered_holds_up_no_other(
    playing: Callable[[str | None], Scene], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = playing(None)
    altered, other = scene.ask(), scene.ask()
    rewrite(path, altered, "claimed_by", "local:mallory")
    scene = playing(None)
    scene.clock.tick(days=2)
    assert scene.store.sweep() == 1
    assert scene.store.get(other.id).state is State.EXPIRED
    assert altered.id in caplog.text


def test_a_row_that_cannot_be_read_holds_up_no_list_of_budgets(
    playing: Callable[[str | None], Scene], path: Path
) -> None:
    store = playing(None).store
    request = store.ask(sample_call("r", budgets=(("count() <= 3 per 24h", "few"),)))
    store.start(request.id, "t")
    assert [one.rule for one in store.budgets()] == ["few"]
    rewrite(path, request, "progress", "{")
    assert [(one.rule, one.request) for one in playing(None).store.budgets()] == [(None, None)]


def test_an_answer_that_was_turned_around_shows(playing: Callable[[str | None], Scene], path: Path) -> None:
    request = playing(None).in_state(State.ANSWERED)
    with as_somebody_with_the_file(path) as connection:
        [(progress,)] = connection.execute("SELECT progress FROM request WHERE id = ?", (request.id,))
        said = json.loads(progress)
        said["decision"][8] = '{"answer":"another"}'
        connection.execute("UPDATE request SET progress = ?", (json.dumps(said, separators=(",", ":")),))
    store = playing(None).store
    assert "does not match row 2" in audit.verify(store).broken[0].reason
    refusal(errors.EvidenceError, lambda: receipt_of(store, request.id))


def test_a_row_of_before_that_is_put_back_is_not_run(playing: Callable[[str | None], Scene], path: Path) -> None:
    scene = playing(None)
    request = scene.in_state(State.APPROVED)
    with as_somebody_with_the_file(path) as connection:
        [before] = connection.execute("SELECT * FROM request WHERE id = ?", (request.id,)).fetchall()
    scene.store.start(request.id, "token")
    scene.store.finish(request.id, "token", Outcome("done"))
    put_back = f"REPLACE INTO request VALUES ({', '.join('?' * len(before))})"  # noqa: S608  as many as there are
    with as_somebody_with_the_file(path) as connection:
        connection.execute(put_back, before)
    refusal(errors.AlteredRequestError, lambda: playing(None).store.start(request.id, "again"))


def test_a_row_whose_digest_was_taken_out_of_the_journal_is_not_run(
    playing: Callable[[str | None], Scene], path: Path
) -> None:
    request = playing(None).in_state(State.APPROVED)
    with as_somebody_with_the_file(path) as connection:
        connection.execute("UPDATE journal SET detail = json_remove(detail, '$.row_digest')")
    refusal(errors.AlteredRequestError, lambda: playing(None).store.start(request.id, "token"))


def test_a_write_that_the_file_does_not_take_is_refused_in_words(
    playing: Callable[[str | None], Scene], path: Path
) -> None:
    request = playing(None).in_state(State.APPROVED)
    with as_somebody_with_the_file(path) as connection:
        connection.execute("CREATE TRIGGER nothing_changes BEFORE UPDATE ON request BEGIN SELECT RAISE(IGNORE); END")
    refused = refusal(errors.StoreCorruptError, lambda: playing(None).store.start(request.id, "token"))
    assert "nothing was recorded and nothing ran" in str(refused)


def test_what_another_process_wrote_is_not_taken_for_altered(playing: Callable[[str | None], Scene]) -> None:
    mine, request = playing(None).store, playing(None).ask()
    assert mine.get(request.id).state is State.PENDING
    others = playing(None).store
    others.claim(request.id, ADA, roles=(), channel="cli")
    others.release(request.id, ADA, roles=(), force=False, channel="cli")
    mine.claim(request.id, ADA, roles=(), channel="cli")
    playing(None).decide("approve", request)
    assert mine.start(request.id, "token").state is State.RUNNING


def forge(path: Path, record: dict[str, object]) -> None:
    """Write one more line as a sayso would."""
    lines = Lines(path.name)
    for line in path.read_bytes().splitlines():
        lines.read(line)
    path.write_bytes(path.read_bytes() + lines.written(record)[0])


def lines_about(scene: Scene, request: Request) -> dict[str, dict[str, object]]:
    """Return what a hand may write about a request: another state of it, or a row that left it otherwise."""
    *_, last = scene.store.journal(run_id=request.run_id)
    entry = chained(last.link, last.run_id, last.seq + 1, last.at, request.id, *last[4:8])
    return {"row": {"changed": [{"id": request.id, "state": "approved", "live": 1, "holds": 1}]},
            "entry": {"journal": [entry]}}  # fmt: skip


@pytest.mark.parametrize("is_open", [False, True], ids=["read anew", "known before"])
@pytest.mark.parametrize("kind", ["row", "entry"])
def test_a_line_that_changes_a_request_without_a_row_is_not_run(tmp_path: Path, kind: str, is_open: bool) -> None:
    path = tmp_path / "requests.jsonl"
    with scene_on(JsonlStore(path)) as scene:
        request = scene.in_state(State.REJECTED)
        forge(path, lines_about(scene, request)[kind])
        if not is_open:
            scene._store = JsonlStore(path)
        refusal(errors.AlteredRequestError, lambda: scene.store.start(request.id, "token"))
        refusal(errors.StoreCorruptError, lambda: scene.store.withdraw(request.id, ADA))
        assert [one.run_id for one in audit.verify(scene.store).broken] == [request.run_id]


# -- steps that cannot follow --------------------------------------------------------------------------------------


def appended(scene: Scene, path: Path, request: Request, event: str, **detail: object) -> str:
    """Write one more row of the chain by hand, rightly linked, and return the break that is found."""
    rows = list(scene.store.journal(run_id=request.run_id))
    last = rows[-1]
    text = json.dumps(detail, separators=(",", ":"), sort_keys=True)
    entry = chained(last.link, last.run_id, last.seq + 1, last.at, request.id, event, last.by, last.channel, text)
    with as_somebody_with_the_file(path) as connection:
        connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", entry)
        values = (entry.link, entry.seq, entry.event, text, request.id)
        connection.execute("UPDATE request SET link = ?, seq = ?, event = ?, detail = ? WHERE id = ?", values)
    [found] = audit.verify(scene.store).broken
    assert found.seq == entry.seq
    return found.reason


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.PENDING, "started"), (State.REJECTED, "started"), (State.DONE, "started"), (State.REJECTED, "approved"),
        (State.PENDING, "done"), (State.APPROVED, "voted"), (State.CANCELLED, "answered"), (State.DONE, "cancelled"),
        (State.FAILED, "resolved"), (State.PENDING, "cleared"), (State.RUNNING, "expired"), (State.DONE, "asked"),
    ],
)  # fmt: skip
def test_a_step_that_cannot_follow_shows(
    playing: Callable[[str | None], Scene], path: Path, state: State, event: str
) -> None:
    scene = playing(None)
    request = scene.in_state(state)
    assert "is not possible there" in appended(scene, path, request, event, fingerprint=request.fingerprint)


def test_a_start_of_another_call_than_the_approved_one_shows(
    playing: Callable[[str | None], Scene], path: Path
) -> None:
    scene = playing(None)
    request = scene.in_state(State.APPROVED)
    reason = appended(scene, path, request, "started", fingerprint="f" * 64, attempt=1, worker="w")
    assert "another call than the approved one" in reason


def test_a_receipt_is_not_made_of_what_the_rows_do_not_say(playing: Callable[[str | None], Scene], path: Path) -> None:
    scene = playing(None)
    request = scene.in_state(State.DONE)
    rewrite(path, request, "risk", "low")
    with pytest.raises(errors.EvidenceError, match="does not match what was asked"):
        receipt_of(playing(None).store, request.id)


def test_a_step_that_this_version_does_not_know_claims_nothing() -> None:
    trail, problem = Trail().after("asked", "{}")
    assert problem is None
    trail, problem = trail.after("teleported", "[1]")
    assert (problem, len(trail.states)) == (None, len(State))
    assert trail.after("done", "{}")[1] is None


def test_a_state_that_no_row_led_to_shows_also_without_digests() -> None:
    with scene_on(MemoryStore()) as scene:
        request = scene.in_state(State.REJECTED)
        assert isinstance(scene.store, MemoryStore)
        scene.store._content.rows[request.id] = replace(request, state=State.APPROVED)
        [found] = audit.verify(scene.store).broken
        assert "is approved, but row 2 left it rejected" in found.reason


def test_a_first_row_that_asks_nothing_shows() -> None:
    assert Trail().after("approved", "{}")[1] == "approved before it was asked"


def test_no_history_of_the_state_machine_is_a_problem(playing: Callable[[str | None], Scene]) -> None:
    scene = playing(None)
    for state in State:
        request = scene.in_state(state)
        if state in {State.REJECTED, State.FEEDBACK, State.CANCELLED}:
            scene.store.withdraw(request.id, ADA)
    assert audit.verify(scene.store).broken == ()


# -- each column and each JSON field, altered one at a time ------------------------------------------------------------


RUN = "order-1"
KEY = base64.urlsafe_b64encode(bytes(32)).decode()
HARMLESS = {
    "n": "the place in lists",
    "search": "what a search by text finds; what is shown of it comes from the other columns",
}
DOOMED = """
import os, sys
from sayso.stores.sqlite import SqliteStore
SqliteStore(sys.argv[1]).start(sys.argv[2], "its token")
os._exit(9)
"""


def gated(store: Store | None, effects: list[int], **options: Any) -> Callable[..., str]:
    def pay(amount: int, token: str | None = None) -> str:
        effects.append(amount)
        return "paid"

    return sayso.gate(wait="raise", store=store, **options)(pay)


class World:
    """A store with one request in some state, as a file that is copied for each alteration.

    Attributes:
        path: The file.
        id: Of the request.
        effects: What ran.
        pay: The gated call, of whichever store is configured; a gate for each copy would take a third of the time.
        review: What a person decides by while the state is made.
    """

    def __init__(self, path: Path, *, key: str | None = None, **options: Any) -> None:
        self.path, self.key = path, key
        self.effects = list[int]()
        self.store = SqliteStore(path, key=key)
        self.review, self.pay = sayso.Review(store=self.store), gated(None, self.effects, **options)
        with config.use(store=self.store), sayso.run(RUN):
            self.id = held(self.pay, 5, "secret").confirmation_id

    def approve(self, **changes: int) -> None:
        self.review.approve(self.id, by="ada", changes=changes or None)

    def reject(self) -> None:
        self.review.reject(self.id, "no", by="ada")

    def end(self, state: Literal["done", "failed", "unknown"]) -> None:
        self.approve()
        self.store.start(self.id, "its token")
        self.store.finish(self.id, "its token", Outcome(state))

    def die(self) -> None:
        self.approve()
        assert subprocess.run([sys.executable, "-c", DOOMED, str(self.path), self.id], check=False).returncode == 9

    def play(self, alteration: Alteration | None, folder: Path) -> tuple[list[int], str]:
        """Let the program and the reviewer act on a copy; return what ran, and the errors that are none of ours."""
        with copied(self.path, folder) as copy:
            if alteration is not None:
                with as_somebody_with_the_file(copy) as connection:
                    connection.execute(alteration.sql, alteration.values)
            raw, store = "", SqliteStore(copy, key=self.key)
            self.effects.clear()
            review = sayso.Review(store=store)
            acts: list[Callable[[], object]] = [
                lambda: self.pay(5, "secret"), lambda: review.get(self.id), lambda: review.approve(self.id, by="bob"),
                lambda: self.pay(5, "secret"), lambda: self.pay(5, "secret"),
            ]  # fmt: skip
            with config.use(store=store), sayso.run(RUN):
                for act in acts:
                    try:
                        act()
                    except (errors.SaysoError, sayso.ConfirmationRequired, sayso.ConfirmationRejected):
                        pass
                    except Exception as error:  # noqa: BLE001  told by the test
                        raw = repr(error)
            store.close()
            return list(self.effects), raw


@contextmanager
def copied(path: Path, folder: Path) -> Iterator[Path]:
    """Yield a copy that nobody keeps."""
    copy = folder / f"sayso-{os.getpid()}.db"
    try:
        shutil.copyfile(path, copy)
        yield copy
    finally:
        for end in ("", "-wal", "-shm"):
            Path(f"{copy}{end}").unlink(missing_ok=True)


# What is done to the request, the options of its gate, and what runs where nothing was altered.
WORLDS: dict[str, tuple[Callable[[World], object], dict[str, Any], list[int]]] = {
    "pending": (lambda world: world.id, {}, [5]),
    "one of two votes is missing": (lambda world: world.id, {"quorum": 2}, []),
    "finance must approve": (lambda world: world.id, {"roles": {"finance"}}, []),
    "approved": (World.approve, {}, [5]),
    "approved, sealed": (World.approve, {"key": KEY}, [5]),
    "approved with changes": (lambda world: world.approve(amount=6), {}, [6]),
    "running in a dead process": (World.die, {}, []),
    "unknown": (lambda world: world.end("unknown"), {}, []),
    "unknown, sealed": (lambda world: world.end("unknown"), {"key": KEY}, []),
    "done": (lambda world: world.end("done"), {}, []),
    "failed": (lambda world: world.end("failed"), {}, []),
    "rejected": (World.reject, {}, []),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_nothing_runs_by_a_record_of_which_anything_was_altered(name: str, tmp_path: Path) -> None:
    prepare, options, runs = WORLDS[name]
    memory = Path("/dev/shm")
    folder = memory if os.access(memory, os.W_OK) else tmp_path
    world = World(tmp_path / "original.db", **options)
    prepare(world)
    world.store.close()
    assert world.play(None, folder) == (runs, "")
    wrong, count = list[str](), 0
    for one in alterations(world.path, world.id):
        try:
            effects, raw = world.play(one, folder)
        except sqlite3.IntegrityError:
            continue  # the file itself does not take it
        count += 1
        allowed = [[], runs] if one.table == "journal" or one.column in HARMLESS else [[]]
        if effects not in allowed or raw:
            wrong.append(f"{one.table}.{one.column}{one.what}: ran {effects} {raw}")
    assert count > 100
    assert wrong == []


def test_no_line_of_a_journal_file_makes_a_spent_approval_new(tmp_path: Path) -> None:
    wrong = list[str]()
    for column in set(RequestRow._fields) - {"id", "link", *HARMLESS}:
        store, effects = JsonlStore(tmp_path / f"{column}.jsonl"), list[int]()
        with sayso.run(RUN):
            pay = gated(store, effects)
            request_id = held(pay, 5).confirmation_id
            sayso.Review(store=store).approve(request_id, by="ada")
            was = store._state.rows[request_id]._asdict()[column]
            forge(tmp_path / f"{column}.jsonl", {"changed": [{"id": request_id, column: f"{was}x"}]})
            with pytest.raises((errors.SaysoError, sayso.ConfirmationRequired)):
                pay(5)
        if effects:
            wrong.append(column)
        store.close()
    assert wrong == []


def test_an_answer_that_was_altered_is_not_given_to_the_program(tmp_path: Path) -> None:
    path, ask = tmp_path / "original.db", {"type": bool, "wait": "raise"}
    store = SqliteStore(path)
    with sayso.run(RUN):
        asked = held(sayso.ask, "Go on?", store=store, **ask).confirmation_id
    sayso.Review(store=store).answer(asked, False, by="ada")
    store.close()
    with as_somebody_with_the_file(path) as connection:
        connection.execute("UPDATE request SET progress = replace(progress, 'false', 'true')")
    again = SqliteStore(path)
    with sayso.run(RUN), pytest.raises(errors.StoreCorruptError, match="does not match the journal"):
        sayso.ask("Go on?", store=again, **ask)
    again.close()


def test_a_file_rewritten_without_a_request_frees_neither_its_key_nor_its_effect(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    with scene_on(JsonlStore(path)) as scene:
        done = scene.in_state(State.DONE, scene.ask("run_1", key="k", effect="refund:A-1"))
        first, *others = path.read_bytes().splitlines(keepends=True)
        lines, text = Lines(path.name).first(), first
        for line in others:
            kept = {name: value for name, value in json.loads(line).items() if name in {"schemas", "journal"}}
            more, lines = lines.written(kept)
            text += more
        path.write_bytes(text)
        scene._store = JsonlStore(path)
        another = scene.in_state(State.APPROVED, scene.ask("run_2", effect="refund:A-1"))
        for refused in (
            lambda: scene.ask("run_1", key="k"),
            lambda: scene.store.find_key("run_1", "k"),
            lambda: scene.store.start(another.id, "t"),
        ):
            assert "its row was deleted" in str(refusal(errors.AlteredRequestError, refused))
        assert list(scene.store.by_effect("refund:A-1")) == [another]
        assert f"{done.id} is missing" in audit.verify(scene.store).broken[0].reason
