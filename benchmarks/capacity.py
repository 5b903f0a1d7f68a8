"""What one approval leaves and costs, as constants to plan with: rows, bytes, commits, log written, wake-ups.

An approval is a whole cycle (ask, approve, start, finish) of a call with about 230 bytes of arguments, in a run of its
own. The constants do not depend on how fast the machine is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sayso
from sayso.stores.base import Store

from .contender import MEMO, make_effect
from .contest import Plan
from .table import Row, Table

__all__ = ["capacity", "capacity_table", "on_sqlite"]

MEASURE = "one approval: what it leaves and writes"
_TABLES = ("schema_text", "request", "asked", "standing", "journal", "run", "step", "wait", "record")
_LEADS = 10  # cycles before anything counts: tables and schemas are made


def capacity(plan: Plan) -> list[Row]:
    """Count on SQLite, and on the newest Postgres there is here."""
    count = plan.pick(2_000, 300)
    rows = on_sqlite(plan.new_folder("capacity"), count)
    try:
        from tests.support.postgres import Server, installed
    except ModuleNotFoundError as absent:
        return [*rows, Row(MEASURE, "sayso", "Postgres", note=f"not measured: {absent}")]
    if not installed():
        return [*rows, Row(MEASURE, "sayso", "Postgres", note="not measured: there is no Postgres")]
    server = Server(installed()[0], is_durable=True)
    try:
        return [*rows, *_postgres(server, count)]
    finally:
        server.end()


def capacity_table(rows: Sequence[Row]) -> Table:
    """Put the stores side by side."""
    found = {(row.who, row.store): row.median or row.note for row in rows}
    stores = list(dict.fromkeys(row.store for row in rows))
    names = dict.fromkeys(row.who for row in rows)
    lines = [(name, *(found.get((name, store), "") for store in stores)) for name in names]
    return Table("capacity", (MEASURE, *stores), lines, right=frozenset(range(1, len(stores) + 1)))


def _cycles(store: Store, first: int, count: int) -> None:
    """Take so many calls through their gate, each approved by a person."""
    review, effects = sayso.Review(store), list[int]()
    pay = sayso.gate(wait="raise", store=store)(make_effect(effects))
    for amount in range(first, first + count):
        with sayso.run(f"order-{amount}"):
            try:
                pay(amount, "alice", MEMO)
            except sayso.ConfirmationRequired as held:
                review.approve(held.confirmation_id, by=sayso.Reviewer("ada"))
            pay(amount, "alice", MEMO)
    assert len(effects) == count


def _rows(
    store: str, look: Callable[[], dict[str, float]], cycles: Callable[[int, int], None], count: int
) -> list[Row]:
    cycles(0, _LEADS)
    before = look()
    cycles(_LEADS, count)
    after = look()
    each = {name: (after[name] - before[name]) / count for name in after}
    return [
        Row(MEASURE, name, store, median=f"{value:,.0f}" if value >= 100 else f"{value:.2f}", samples=count,
            figures={"each": value})
        for name, value in each.items() if value
    ]  # fmt: skip


def on_sqlite(folder: Path, count: int) -> list[Row]:
    """Count over so many approvals in a fresh file."""
    from sayso.stores.sqlite import SqliteStore

    path = folder / "capacity.db"
    store = SqliteStore(path)

    def look() -> dict[str, float]:
        db = sqlite3.connect(path)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        found: dict[str, float] = {
            f"rows in {name}": db.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in _TABLES if name in there
        }  # fmt: skip
        pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        db.close()
        return found | {"bytes kept, indexes too": pages * size, "bytes written, log too": _written()}

    try:
        return _rows("sqlite FULL", look, lambda first, some: _cycles(store, first, some), count)
    finally:
        store.close()


def _written() -> int:
    """Return the bytes that this process has handed to the system so far; nothing else here writes."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise RuntimeError("the system does not say what a process wrote")


def _postgres(server: Any, count: int) -> list[Row]:
    from sayso.stores.postgres import PostgresStore

    store = PostgresStore(server.url("postgres"))

    def one(sql: str) -> Any:
        return server.execute(sql)[0][0]

    def look() -> dict[str, float]:
        server.execute("SELECT pg_stat_force_next_flush()")
        there = {name for (name,) in server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'sayso'")}
        found: dict[str, float] = {
            f"rows in {name}": one(f"SELECT count(*) FROM sayso.{name}") for name in _TABLES if name in there
        }  # fmt: skip
        kept = "SELECT sum(pg_total_relation_size(format('sayso.%I', tablename))) FROM pg_tables"
        return found | {
            "bytes kept, indexes too": float(one(f"{kept} WHERE schemaname = 'sayso'")),
            "bytes written to its log": float(one("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")),
        }

    try:
        _cycles(store, 0, 1)
        return _rows(f"Postgres {server.version}", look, lambda first, some: _cycles(store, first + 1, some), count)
    finally:
        store.close()
