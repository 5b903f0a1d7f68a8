"""A SQLite file whose pages were overwritten: every verb says so by an error of ours, and nothing runs.

The bytes are random, from seeds that never change. The first page holds the header, and further ones the schema, which
SQLite reads before anything else.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import sayso
from sayso import audit, errors
from sayso.model.lifecycle import Outcome
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite_file import seal_store
from tests.support.acting import held

PAGE, SEEDS = 2048, 60
KEY = "A" * 43 + "="


def gated(store: Store, ran: list[int]) -> Callable[[int], None]:
    @sayso.gate(wait="raise", store=store)
    def pay(amount: int) -> None:
        ran.append(amount)

    return pay


def a_store_file(path: Path, ran: list[int]) -> bytes:
    """Return the bytes of a store with a call that waits, and one of unknown outcome."""
    store = SqliteStore(path)
    with sayso.run("order-1"):
        held(gated(store, ran), 1)
        other = held(gated(store, ran), 2).confirmation_id
    sayso.Review(store=store).approve(other, by="ada")
    store.start(other, "its token")
    store.finish(other, "its token", Outcome("unknown"))
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


def damaged(whole: bytes, pages: list[int], chance: random.Random) -> bytes:
    found, page = bytearray(whole), chance.choice(pages)
    begin, is_run = chance.randrange(PAGE), chance.random() < 0.5
    for n in range(chance.choice((1, 4, 16, 64))):
        at = (begin + n) % PAGE if is_run else chance.randrange(PAGE)
        found[page + at] = chance.choice((0, 0x80, 0xFF, chance.randrange(256)))
    return bytes(found)


def verbs_of(store: SqliteStore, path: Path, ran: list[int]) -> dict[str, Callable[[], object]]:
    review, pay = sayso.Review(store=store), gated(store, ran)
    return {
        "list": lambda: list(review.list().requests), "ask": lambda: pay(1), "ask what is unknown": lambda: pay(2),
        "sweep": store.sweep, "ready runs": lambda: store.ready_runs(["agent"]),
        "records": lambda: store.records("token"),
        "journal": store.journal, "verify": lambda: audit.verify(store), "scrub": store.scrub,
        "seal": lambda: seal_store(path, KEY),
    }  # fmt: skip


@pytest.mark.parametrize("where", ["first page", "schema", "anywhere"])
def test_damaged_file_is_told_by_an_error_that_names_it(where: str, tmp_path: Path) -> None:
    ran, raw, told = list[int](), list[str](), set[str]()
    whole = a_store_file(tmp_path / "whole.db", ran)
    every = list(range(0, len(whole), PAGE))
    pages = {"first page": every[:1], "schema": [at for at in every if b"CREATE " in whole[at : at + PAGE]]}
    for seed in range(SEEDS):
        path = tmp_path / f"{seed}.db"
        path.write_bytes(damaged(whole, pages.get(where, every), random.Random(f"{where} {seed}")))
        store = SqliteStore(path)
        with sayso.run("order-1"):
            for name, verb in verbs_of(store, path, ran).items():
                try:
                    verb()
                except errors.StoreCorruptError as error:
                    told.add(str(error))
                except (errors.SaysoError, sayso.ConfirmationRequired):
                    pass
                except Exception as error:  # noqa: BLE001  told below
                    raw.append(f"seed {seed}, {name}: {error!r}")
        store.close()
    assert raw == []
    assert ran == []
    assert any("restore it" in text and str(tmp_path) in text for text in told)


def test_damaged_schema_is_not_told_by_a_raw_error(tmp_path: Path) -> None:
    ran = list[int]()
    path = tmp_path / "sayso.db"
    whole = a_store_file(path, ran)
    damage = {b"indexrequest_holder": b"index\xff\xfe\xfdest_holder", b"UNIQUE INDEX": b"UNIQUE IN...."}
    for before, after in damage.items():
        assert before in whole
        whole = whole.replace(before, after)  # SQLite then quotes a name that is no text
    path.write_bytes(whole)
    store = SqliteStore(path)
    with pytest.raises(errors.StoreCorruptError, match="nothing ran, restore it from a copy or name another file"):
        gated(store, ran)(1)
    store.close()
    assert ran == []
