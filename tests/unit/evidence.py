"""A store with something in it to prove, on real files where there are some, and a database tool that nothing stops."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sayso.audit.key import Signer, make_key, signer_at
from sayso.model.request import Request, State
from sayso.stores.base import Store
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scene import Scene

__all__ = ["MAKERS", "a_signer", "as_somebody_with_the_file", "in_every_state", "scene_on"]

MAKERS: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: SqliteStore(folder / "requests.db"),
    "jsonl": lambda folder: JsonlStore(folder / "requests.jsonl"),
    "memory": lambda _: MemoryStore(),
}


@contextmanager
def scene_on(store: Store) -> Iterator[Scene]:
    """Play on this store, with a clock that stands still."""
    scene = Scene()
    scene.setup_method()
    scene._store = store
    try:
        yield scene
    finally:
        scene.teardown_method()


def in_every_state(scene: Scene) -> list[Request]:
    """Leave a request in each state behind."""
    return [scene.in_state(state) for state in State]


def a_signer(folder: Path) -> Signer:
    """Return who signs with a new key."""
    make_key(folder / "signing.key")
    return signer_at(folder / "signing.key")


@contextmanager
def as_somebody_with_the_file(path: Path) -> Iterator[sqlite3.Connection]:
    """Write to a store's file as somebody who drops its triggers first."""
    with closing(sqlite3.connect(path)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        yield connection
        connection.commit()
