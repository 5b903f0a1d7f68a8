"""Each column and each JSON field that belongs to a request, altered one at a time by somebody with the store's file.

The program and the reviewer then act as usual. Nothing may run a second time, by fewer people, or other than what was
approved; where the request's own row or the text of its parameters was altered, nothing runs at all.
"""

from __future__ import annotations

import base64
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

import sayso
from sayso import errors
from sayso.model.lifecycle import Outcome
from sayso.stores.base import Store
from sayso.stores.codec import Row
from sayso.stores.jsonl import JsonlStore
from sayso.stores.sqlite import SqliteStore
from tests.stores.test_altered import forge
from tests.support.acting import held
from tests.support.altering import Alteration, alterations
from tests.support.evidence import as_somebody_with_the_file

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


def gated(store: Store, effects: list[int], **options: Any) -> Callable[..., str]:
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
        review: What a person decides by while the state is made.
    """

    def __init__(self, path: Path, *, key: str | None = None, **options: Any) -> None:
        self.path, self.key, self.options = path, key, options
        self.effects = list[int]()
        self.store = SqliteStore(path, key=key)
        self.review = sayso.Review(store=self.store)
        with sayso.run(RUN):
            self.id = held(gated(self.store, self.effects, **options), 5, "secret").confirmation_id

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
            pay, review = gated(store, self.effects, **self.options), sayso.Review(store=store)
            acts: list[Callable[[], object]] = [
                lambda: pay(5, "secret"), lambda: review.get(self.id), lambda: review.approve(self.id, by="bob"),
                lambda: pay(5, "secret"), lambda: pay(5, "secret"),
            ]  # fmt: skip
            with sayso.run(RUN):
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
    for column in set(Row._fields) - {"id", "link", *HARMLESS}:
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
