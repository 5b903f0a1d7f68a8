"""10. Every step adds a chained record; a change to any column of a request, or a loss, is detected before a start."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from typing import Any

import sayso
from sayso import audit, config, errors
from sayso.model.journal import Entry, chained
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from tests.promises.world import World
from tests.support.acting import held
from tests.support.altering import alterations
from tests.support.commands import sayso as command
from tests.support.evidence import as_somebody_with_the_file

WITHOUT_WEIGHT = {"n", "search"}  # the place in lists, and what a search by text finds


def forged(row: Entry) -> Entry:
    return chained("0" * 64, *row._replace(by="local:mallory")[:-1])


def test_10_every_step_leaves_a_chained_record(world: World) -> None:
    request_id = world.pays()
    review = sayso.Review(reviewer="ada")
    for step in (review.claim, review.release):
        step(request_id)
    review.extend(request_id, "1h")
    review.approve(request_id, changes={"note": "less"})
    world.pays()
    rows = list(audit.entries(world.store))
    steps = ["asked", "claimed", "released", "extended", "approved", "started", "done"]
    assert [row.event for row in rows] == steps
    assert command("log", "--verify").code == 0
    whole = world.path.with_suffix(".whole")
    with closing(sqlite3.connect(world.path)) as source, closing(sqlite3.connect(whole)) as copy:
        source.backup(copy)

    def is_found(statement: str, *values: Any) -> bool:
        changed = whole.with_suffix(".changed")
        changed.write_bytes(whole.read_bytes())
        World(world.store, changed, world.effects).by_hand(statement, *values)
        found = audit.verify(config.open_store(f"sqlite:///{changed}"))
        config.open_store(f"sqlite:///{changed}").close()
        return len(found.broken) == 1

    assert not is_found("UPDATE journal SET event = event")
    for row in rows[:-1]:
        assert is_found("DELETE FROM journal WHERE seq = ?", row.seq), f"{row.event} was lost"
        assert is_found("UPDATE journal SET link = ? WHERE seq = ?", forged(row).link, row.seq)
    for row in rows:
        for column in set(Entry._fields) - {"run_id", "seq"}:
            new = row.at + 1 if column == "at" else f"{getattr(row, column)} "
            assert is_found(f"UPDATE journal SET {column} = ? WHERE seq = ?", new, row.seq), column  # noqa: S608  our own
    # A row that was written anew, with a link that fits it, does not fit the row behind it.
    fake = forged(rows[4])
    assert is_found("UPDATE journal SET by = ?, link = ? WHERE seq = ?", fake.by, fake.link, fake.seq)
    world.by_hand("UPDATE journal SET by = 'local:mallory' WHERE seq = 5")
    done = command("log", "--verify")
    assert (done.code, "5" in done.out + done.err) == (1, True)


def test_10_a_change_of_any_column_of_a_request_is_found_before_its_start(world: World) -> None:
    ran: list[int] = []

    def transfer(amount: int) -> None:
        ran.append(amount)

    def pay(store: Store, amount: int) -> None:
        with sayso.run("order-4722"):
            sayso.gate(wait="raise", store=store)(transfer)(amount)

    request_id = held(pay, world.store, 7).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    world.store.close()
    changes = [change for change in alterations(world.path, request_id) if change.table == "request"]
    changes = [change for change in changes if change.column not in WITHOUT_WEIGHT]
    assert len({change.column for change in changes}) > 10
    started: list[str] = []
    for number, change in enumerate(changes):
        changed = world.path.with_name(f"{number}.db")
        shutil.copyfile(world.path, changed)
        try:
            with as_somebody_with_the_file(changed) as connection:
                connection.execute(change.sql, change.values)
        except sqlite3.IntegrityError:
            continue  # the file itself refuses it
        with suppress(errors.SaysoError, sayso.ConfirmationRequired, sayso.ConfirmationRejected):
            pay(SqliteStore(changed), 7)
        started += [f"{change.column} {change.what}"] * len(ran)
        ran.clear()
    assert not started, "\n".join(started)
    pay(SqliteStore(world.path), 7)
    assert ran == [7]
