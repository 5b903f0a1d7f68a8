"""Stores with requests to prove, on real files if possible, and direct database access that bypasses all guards."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sayso.audit.signing import Signer, make_key, signer_at
from sayso.model.journal import Entry, chained, first_link
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.stores.base import Store
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.testing.scene import Scene

__all__ = ["MAKERS", "a_signer", "as_somebody_with_the_file", "chain_anew", "cut", "in_every_state", "live", "scene_on"]

MAKERS: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: SqliteStore(folder / "requests.db"),
    "jsonl": lambda folder: JsonlStore(folder / "requests.jsonl"),
    "memory": lambda _: MemoryStore(),
}


@contextmanager
def scene_on(store: Store) -> Iterator[Scene]:
    """Return a scene on this store, with a frozen clock."""
    scene = Scene()
    scene.setup_method()
    scene._store = store
    try:
        yield scene
    finally:
        scene.teardown_method()


def in_every_state(scene: Scene) -> list[Request]:
    """Create a request in each state."""
    return [scene.in_state(state) for state in State]


def live(scene: Scene, run_id: str) -> Request:
    """Ask, approve, start and finish a call, which adds four rows to the chain of its run."""
    request = scene.store.ask(sample_call(run_id))
    scene.decide("approve", request)
    scene.store.start(request.id, "t")
    return scene.store.finish(request.id, "t", Outcome("done"))


def cut(connection: sqlite3.Connection, run_id: str, behind: int) -> None:
    """Remove the end of a chain, together with its requests."""
    connection.execute("DELETE FROM journal WHERE run_id = ? AND seq > ?", (run_id, behind))
    connection.execute("DELETE FROM request WHERE run_id = ? AND link NOT IN (SELECT link FROM journal)", (run_id,))
    if behind < 4:
        connection.execute("DELETE FROM journal WHERE run_id = ?", (run_id,))


def chain_anew(connection: sqlite3.Connection, run_id: str, by: str | None = None) -> None:
    """Renumber a chain, recompute its links, and update its requests; `by` replaces the actor of all rows."""
    rows = connection.execute("SELECT * FROM journal WHERE run_id = ? ORDER BY seq", (run_id,)).fetchall()
    connection.execute("DELETE FROM journal WHERE run_id = ?", (run_id,))
    before = first_link(run_id)
    for seq, row in enumerate(rows, 1):
        old = Entry(*row)
        new = chained(before, run_id, seq, *old[2:5], by or old.by, *old[6:8])
        connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", new)
        values = (new.link, new.seq, new.by, old.link)
        connection.execute("UPDATE request SET link = ?, seq = ?, by = ? WHERE link = ?", values)
        before = new.link


def a_signer(folder: Path) -> Signer:
    """Return a signer with a new key."""
    make_key(folder / "signing.key")
    return signer_at(folder / "signing.key")


@contextmanager
def as_somebody_with_the_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to a store's file like somebody who first drops its triggers."""
    with closing(sqlite3.connect(path)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        yield connection
        connection.commit()
