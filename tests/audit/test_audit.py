"""Whatever is changed, lost, swapped or put in inside a chain of the journal is found; what cannot be, is said.

The journal is a real one, in a real file, and is changed as somebody with a database tool would change it: the
triggers that refuse it are dropped first.
"""

from __future__ import annotations

import inspect
import json
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sayso import audit, errors
from sayso.model import lifecycle, teamwork
from sayso.model.journal import Entry, Trail, chained
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.model.reviewer import PROGRAM, Identity
from sayso.stores import review
from sayso.stores.base import Filter, Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.testing.scene import BOB, Scene

CHANGES = 2_000
RUNS = [f"run_{letter}" for letter in "abcdef"]
Row = tuple[Any, ...]
Rows = list[Row]
RUN, SEQ, AT, REQUEST, EVENT, BY, CHANNEL, DETAIL, LINK = range(9)
TEXTS = (RUN, REQUEST, EVENT, BY, CHANNEL, DETAIL, LINK)


@dataclass
class Journal:
    """A journal whose rows can be replaced by any others."""

    store: SqliteStore
    connection: sqlite3.Connection
    rows: Rows

    @contextmanager
    def requests(self) -> Iterator[sqlite3.Connection]:
        """Let requests be rewritten, and put them back afterwards."""
        self.connection.execute("CREATE TEMP TABLE kept AS SELECT * FROM request")
        self.connection.commit()
        try:
            yield self.connection
        finally:
            with self.connection:
                self.connection.execute("DELETE FROM request")
                self.connection.execute("INSERT INTO request SELECT * FROM temp.kept")
            self.connection.execute("DROP TABLE temp.kept")

    def written(self, rows: Rows) -> audit.Verified:
        """Put these rows in place of all, and verify."""
        with self.connection:
            self.connection.execute("DELETE FROM journal")
            self.connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        return audit.verify(self.store)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    path = tmp_path_factory.mktemp("journal") / "requests.db"

    class Here(Scene):
        def make_store(self) -> SqliteStore:
            return SqliteStore(path)

    scene = Here()
    scene.setup_method()
    for n, run_id in enumerate(RUNS * 3):
        write_a_life(scene, run_id, n)
    with closing(sqlite3.connect(path)) as connection:
        for trigger in ("journal_is_not_updated", "journal_is_not_deleted"):
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("PRAGMA synchronous = OFF")
        rows = connection.execute("SELECT * FROM journal ORDER BY run_id, seq").fetchall()
        assert isinstance(scene.store, SqliteStore)
        yield Journal(scene.store, connection, rows)
    scene.teardown_method()


def write_a_life(scene: Scene, run_id: str, n: int) -> None:
    """Write the rows of one request: asked, claimed, released, decided, started, ended; and one about none."""
    request = scene.store.ask(sample_call(run_id, {"amount": n}))
    scene.store.claim(request.id, BOB, roles=(), channel="test")
    scene.clock.tick(seconds=1)
    scene.store.release(request.id, BOB, roles=(), force=False, channel="test")
    scene.decide("approve" if n % 3 else "reject", request)
    scene.store.note(run_id, "denied", Identity(PROGRAM, "tests"), {"rule": "when=never"})
    if n % 3:
        scene.store.start(request.id, "t")
        scene.store.finish(request.id, "t", Outcome("done"))


def other_value(draw: random.Random, row: Row, column: int, rows: Rows) -> Any:
    """Return a value that was not there: a neighbour's, a slightly other one, or one of another kind."""
    old = row[column]
    candidates: list[Any] = [each[column] for each in draw.sample(rows, 3)]
    if column in TEXTS:
        place = draw.randrange(len(old)) if old else 0
        candidates += [old + " ", old[:-1], old.swapcase(), old[:place] + "\x00" + old[place:], old.encode(), "", 0]
        candidates += [old.replace("0", "1", 1), old[::-1], b"\xff\xfe"]
    else:
        candidates += [old + 1, old - 1, -old, 0, 2**62, f"{old}x", str(old).encode(), old + 0.5]
    return draw.choice([each for each in candidates if each != old or type(each) is not type(old)])


def edit(draw: random.Random, rows: Rows) -> Rows:
    place, column = draw.randrange(len(rows)), draw.randrange(9)
    row = list(rows[place])
    row[column] = other_value(draw, rows[place], column, rows)
    return [*rows[:place], tuple(row), *rows[place + 1 :]]


def lose(draw: random.Random, rows: Rows) -> Rows:
    place = draw.choice([n for n in range(len(rows) - 1) if rows[n][RUN] == rows[n + 1][RUN]])
    return rows[:place] + rows[place + 1 :]


def close_the_gap(draw: random.Random, rows: Rows) -> Rows:
    """Lose a row, and number those behind it anew."""
    place = draw.choice([n for n in range(len(rows) - 1) if rows[n][RUN] == rows[n + 1][RUN]])
    gone = rows[place]
    renumber: Callable[[Row], Row] = lambda row: (row[0], row[1] - (row[0] == gone[0] and row[1] > gone[1]), *row[2:])  # noqa: E731
    return [renumber(row) for n, row in enumerate(rows) if n != place]


def swap(draw: random.Random, rows: Rows) -> Rows:
    """Let two rows change places, with or without their links."""
    one, other = draw.sample(range(len(rows)), 2)
    links = draw.random() < 0.5
    new = list(rows)
    new[one] = (*rows[one][:2], *rows[other][2 : 9 if links else LINK], *([] if links else [rows[one][LINK]]))
    new[other] = (*rows[other][:2], *rows[one][2 : 9 if links else LINK], *([] if links else [rows[other][LINK]]))
    return new


def insert(draw: random.Random, rows: Rows) -> Rows:
    """Put a row in, well chained to the one before it, and number those behind it anew."""
    place = draw.choice([n for n in range(len(rows) - 1) if rows[n][RUN] == rows[n + 1][RUN]])
    before = rows[place]
    model = draw.choice(rows)
    new = tuple(chained(before[LINK], before[RUN], before[SEQ] + 1, *model[AT:LINK]))
    renumber: Callable[[Row], Row] = lambda row: (row[0], row[1] + (row[0] == new[0] and row[1] >= new[1]), *row[2:])  # noqa: E731
    return [*map(renumber, rows[: place + 1]), new, *map(renumber, rows[place + 1 :])]


def move(draw: random.Random, rows: Rows) -> Rows:
    """Take the end of a chain over into another one, numbered as its next row."""
    run_id = draw.choice(RUNS)
    last = max(row[SEQ] for row in rows if row[RUN] == run_id)
    place = draw.choice([n for n, row in enumerate(rows) if row[RUN] != run_id])
    moved = (run_id, last + 1, *rows[place][2:])
    return [*rows[:place], *rows[place + 1 :], moved]


def rewrite(draw: random.Random, rows: Rows) -> Rows:
    """Change a row inside a chain, and give it the link that fits its new content."""
    place = draw.choice([n for n in range(1, len(rows) - 1) if len({rows[n + d][RUN] for d in (-1, 0, 1)}) == 1])
    row = list(rows[place])
    row[BY] = "local:mallory"
    new = tuple(chained(rows[place - 1][LINK], *row[:LINK]))
    return [*rows[:place], new, *rows[place + 1 :]]


KINDS = [edit, edit, edit, edit, lose, close_the_gap, swap, insert, move, rewrite]


def test_the_journal_as_it_was_written_is_whole(journal: Journal) -> None:
    found = journal.written(journal.rows)
    assert found == (len(journal.rows), len(RUNS), (), 18, 0)
    assert len(journal.rows) == 6 * 5 + 12 * 7


@pytest.mark.slow
def test_two_thousand_single_changes_are_all_found(journal: Journal) -> None:
    draw, missed, made = random.Random(4721), list[str](), Counter[str]()
    while made.total() < CHANGES:
        kind = draw.choice(KINDS)
        rows = kind(draw, journal.rows)
        if sorted(map(repr, rows)) == sorted(map(repr, journal.rows)):
            continue  # two rows that were alike
        made[kind.__name__] += 1
        try:
            found = journal.written(rows)
        except sqlite3.IntegrityError:
            made[kind.__name__] -= 1  # the table itself refuses a place that is taken
            continue
        except errors.StoreCorruptError:
            continue  # found before it could be read
        if not found.broken:
            missed.append(f"{kind.__name__}: {set(rows) ^ set(journal.rows)}")
    assert missed == []
    assert set(made) == {kind.__name__ for kind in KINDS}
    assert min(made.values()) > CHANGES // 20


def test_the_first_break_is_named_by_run_and_place(journal: Journal) -> None:
    place = next(n for n, row in enumerate(journal.rows) if row[:2] == ("run_c", 5))
    row = journal.rows[place]
    (broken,) = journal.written(
        [*journal.rows[:place], (*row[:BY], "local:mallory", *row[6:]), *journal.rows[place + 1 :]]
    ).broken
    assert (broken.run_id, broken.seq) == ("run_c", 5)
    assert "changed" in broken.reason
    (broken,) = journal.written(journal.rows[:place] + journal.rows[place + 1 :]).broken
    assert (broken.run_id, broken.seq) == ("run_c", 5)
    assert "missing" in broken.reason


def test_each_broken_chain_is_named_once(journal: Journal) -> None:
    spoilt = [(*row[:EVENT], "approved", *row[5:]) if row[RUN] in {"run_a", "run_f"} else row for row in journal.rows]
    assert [broken.run_id for broken in journal.written(spoilt).broken] == ["run_a", "run_f"]


def test_one_run_can_be_verified_alone(journal: Journal) -> None:
    spoilt = [(*row[:EVENT], "approved", *row[5:]) if row[RUN] == "run_a" else row for row in journal.rows]
    journal.written(spoilt)
    assert audit.verify(journal.store, run_id="run_b").broken == ()
    assert len(audit.verify(journal.store, run_id="run_a").broken) == 1
    assert audit.verify(journal.store, run_id="run_none") == (0, 0, (), 0, 0)


def test_an_end_that_was_cut_off_is_found_while_its_request_is_there(journal: Journal) -> None:
    """Every request names the row that made it what it is, so a chain without its newest rows is found."""
    end = max(row[SEQ] for row in journal.rows if row[RUN] == "run_c")
    for at in range(1, end + 1):
        rows = [row for row in journal.rows if row[RUN] != "run_c" or row[SEQ] < at]
        gone = {row[REQUEST] for row in journal.rows if row not in rows} - {""}
        found = journal.written(rows).broken
        assert [broken.run_id for broken in found] == (["run_c"] if gone else [])
        assert not gone or "cut off" in found[0].reason


def test_an_end_that_was_cut_off_with_its_requests_is_not_found_and_said_so(journal: Journal) -> None:
    with journal.requests() as requests:
        requests.execute("DELETE FROM request WHERE run_id = 'run_c'")
        assert journal.written([row for row in journal.rows if row[RUN] != "run_c"]).broken == ()
    assert "removed together with its requests" in said()


def test_that_an_end_was_written_anew_is_found_unless_its_requests_were_too(journal: Journal) -> None:
    """Links have no secret in them: whoever can write the file can compute those of a whole end."""
    rows, before = list(journal.rows), ""
    for n, row in enumerate(rows):
        if row[RUN] == "run_c" and row[SEQ] >= 4:
            rows[n] = tuple(chained(before, *row[:BY], "local:mallory", *row[CHANNEL:LINK]))
        before = rows[n][LINK]
    assert rows != journal.rows
    assert [broken.run_id for broken in journal.written(rows).broken] == ["run_c"]
    with journal.requests() as requests:
        for old, new in zip(journal.rows, rows, strict=True):
            requests.execute("UPDATE request SET link = ?, by = ? WHERE link = ?", (new[LINK], new[BY], old[LINK]))
        assert journal.written(rows).broken == ()
    assert "computed anew up to its end" in said()


REWRITES = {
    "state": "'approved'",
    "link": "(SELECT link FROM journal WHERE run_id = 'run_c' AND seq = 1)",
    "masked": """'{"amount":1}'""",
    "form": """replace(form, '"amount"', '"amounts"')""",
    "asked": 'replace(asked, \'"window":\', \'"retries":9,"window":\')',
    "name": "'harmless'",
    "tool": "'harmless:harmless'",
    "risk": "'low'",
    "kind": "'question'",
    "fingerprint": "'0'",
    "created_at": "created_at - 1",
    "digest": "'0'",
    "schema_digest": "'0'",
    "run_id": "'run_a'",
}


@pytest.mark.parametrize("column", REWRITES)
def test_a_request_that_was_rewritten_by_hand_is_found(journal: Journal, column: str) -> None:
    last = journal.rows[max(n for n, row in enumerate(journal.rows) if row[RUN] == "run_c" and row[REQUEST])]
    with journal.requests() as requests:
        changed = requests.execute(
            f"UPDATE request SET {column} = {REWRITES[column]} WHERE id = ?",  # noqa: S608  # our own words
            (last[REQUEST],),
        )
        assert changed.rowcount == 1
        (broken,) = journal.written(journal.rows).broken
        assert last[REQUEST] in broken.reason
        assert broken.run_id == ("run_a" if column == "run_id" else "run_c")
        assert column == "run_id" or broken.seq == last[SEQ]
        assert audit.verify(journal.store, run_id="run_b").broken == ()
    assert journal.written(journal.rows).broken == ()


def test_a_request_that_was_removed_or_put_back_is_found(journal: Journal) -> None:
    with journal.requests() as requests:
        requests.execute("DELETE FROM request WHERE id = ?", (journal.rows[0][REQUEST],))
        (broken,) = journal.written(journal.rows).broken
        assert "is missing, although" in broken.reason
    with journal.requests() as requests:
        requests.execute(
            "UPDATE request SET state = 'pending', link = ? WHERE id = ?",
            (first_row(journal)[LINK], first_row(journal)[REQUEST]),
        )
        (broken,) = journal.written(journal.rows).broken
        assert "restored" in broken.reason


def first_row(journal: Journal) -> Row:
    return next(row for row in journal.rows if row[EVENT] == "asked")


def test_what_changes_during_the_walk_is_no_break(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.setup_method()
    scene._store = store = MemoryStore()
    requests = [scene.ask(run_id) for run_id in RUNS]
    read = store.row_digests

    def meanwhile(**options: Any) -> Any:
        monkeypatch.setattr(store, "row_digests", read)
        for request in requests:
            scene.decide("approve", request)
        scene.ask("run_new")
        return read(**options)

    monkeypatch.setattr(store, "row_digests", meanwhile)
    assert audit.verify(store).broken == ()
    store._content.rows[requests[0].id] = requests[0]
    assert [broken.run_id for broken in audit.verify(store).broken] == [RUNS[0]]
    scene.teardown_method()


@pytest.mark.parametrize("make", [MemoryStore, None])
def test_in_every_state_a_request_agrees_with_its_rows(tmp_path: Path, make: Callable[[], Store] | None) -> None:
    scene = Scene()
    scene.setup_method()
    scene._store = SqliteStore(tmp_path / "requests.db") if make is None else make()
    for state in State:
        request = scene.in_state(state)
        assert request.state is state
    scene.store.withdraw(scene.in_state(State.REJECTED).id, Identity(PROGRAM, "tests"))
    scene.store.withdraw(scene.in_state(State.APPROVED).id, Identity(PROGRAM, "tests"))
    scene.store.extend(scene.in_state(State.APPROVED).id, BOB, roles=(), span=timedelta(hours=1), channel="test")
    again = scene.started("t", retries=1)
    assert scene.store.finish(again.id, "t", Outcome("failed")).state is State.APPROVED
    for happened, retries in ((True, 0), (False, 0), (False, 1)):
        unknown = scene.unknown(retries=retries)
        scene.store.resolve(unknown.id, BOB, roles=(), happened=happened, comment=None, channel="test")
    found = audit.verify(scene.store)
    assert found.broken == ()
    assert found.requests == scene.store.count(Filter()) == len(State) + 7
    scene.teardown_method()


def test_every_step_of_the_state_machine_is_known_to_the_trail() -> None:
    source = inspect.getsource(lifecycle) + inspect.getsource(teamwork)
    events = set(re.findall(r'Transition\(\s*[^"\n]*?"(\w+)",', source)) | {"done", "failed", *map(str, State)}
    assert {"asked", "voted", "withdrawn", "cleared", "extended", "resolved", "started"} <= events
    events -= {"pending", "program", "running"}
    assert [event for event in events if len(Trail().after(event, "{}")[0].states) > 2] == []


def said() -> str:
    return " ".join((audit.__doc__ or "").split())


def test_entries_are_read_page_by_page_without_loss(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.written(journal.rows)
    for module in (review, audit):
        monkeypatch.setattr(module, "_PAGE", 7)
    assert list(map(tuple, audit.entries(journal.store))) == journal.rows
    of_one = journal.rows[0][REQUEST]
    found = list(audit.entries(journal.store, request_id=of_one))
    assert found == [Entry(*row) for row in journal.rows if row[REQUEST] == of_one]
    assert audit.verify(journal.store).broken == ()


def test_both_stores_write_the_same_chain(tmp_path: Path) -> None:
    scene = Scene()
    scene.setup_method()
    stores = [MemoryStore(), SqliteStore(tmp_path / "requests.db")]
    request = sample_call("run_same")
    for store in stores:
        scene._store = store
        store.ask(request)
        scene.decide("approve", request)
    in_memory, on_disk = (list(store.journal()) for store in stores)
    assert [entry[:-2] for entry in in_memory] == [entry[:-2] for entry in on_disk]
    # In memory nobody else can write, and no row needs to say how its request stands.
    said = [{n: v for n, v in json.loads(entry.detail).items() if n != "row_digest"} for entry in on_disk]
    assert [json.loads(entry.detail) for entry in in_memory] == said
    assert len(said) == 2
    stores[1].close()
    scene.teardown_method()
