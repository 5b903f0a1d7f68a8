"""The real Postgres store on a real server, statement by statement, in the order that a seed decides.

Each process has connections of its own. A statement begins when its process has its turn; if it waits for a lock, the
process waits, too, and others go on. So transactions interleave at each statement, and may be cut off at each.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import greenlet
import psycopg
from psycopg.waiting import Ready, Wait

from sayso.stores import postgres, postgres_database
from sayso.stores.codec import RequestRow
from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres_connection import Connection
from sayso.stores.transaction import LEASE
from tests.simulation import kernel
from tests.simulation.handles import handles
from tests.simulation.journals import News
from tests.simulation.kernel import Killed, World
from tests.simulation.programs import Scene
from tests.simulation.scenes import budgets, gates
from tests.simulation.stored_runs import runs
from tests.simulation.team import team
from tests.support.postgres import Server, server

__all__ = ["DATABASE_SCENES", "DatabaseJournal", "on_database"]

_COLUMNS = ", ".join("a.id" if name == "id" else name for name in RequestRow._fields)
_REQUESTS = f"SELECT {_COLUMNS} FROM sayso.asked a JOIN sayso.standing s ON s.id = a.id WHERE a.id = ANY($1)"  # noqa: S608
_JOURNAL = """SELECT run_id, seq, at, request_id, event, by, channel, detail, link, tx::text
FROM sayso.journal ORDER BY tx, ctid"""


class Observer:
    """A connection of nobody's, which sees what was committed, and who waits for whom.

    Attributes:
        url: The address of the database of this schedule.
    """

    def __init__(self, place: Server) -> None:
        self._place, self.url = place, place.used()
        self._connection = psycopg.Connection.connect(self.url, autocommit=True, cursor_factory=psycopg.RawCursor)
        self.query("SET deadlock_timeout = '20ms'")

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement."""
        cursor = self._connection.execute(sql.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def has_answered(self, connection: Connection) -> bool:
        """Return whether a statement has its answer, or False if it waits for somebody else's transaction."""
        descriptor, pid = connection.pgconn.socket, connection.pgconn.backend_pid
        while not select.select([descriptor], [], [], 0.001)[0]:
            ((waits,),) = self.query("SELECT cardinality(pg_blocking_pids($1)) > 0", pid)
            if waits and not select.select([descriptor], [], [], 0)[0]:
                return False
        return True

    def cut(self, connection: Connection) -> None:
        """End a connection; what it has not committed is undone when this returns."""
        if connection.closed:
            return
        pid = connection.pgconn.backend_pid
        connection.pgconn.finish()
        while self.query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", pid):
            time.sleep(0.001)  # real time: the server has to notice it

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class DatabaseJournal:
    """What the database has committed, as lines of the JSON-lines store."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self.end = observer, 0
        self._seen: set[tuple[str, int]] = set()

    def read(self) -> News:
        """Return what was committed since."""
        new = [row for row in self._observer.query(_JOURNAL) if row[:2] not in self._seen]
        self._seen |= {row[:2] for row in new}
        lines = list[tuple[dict[str, Any], int]]()
        for tx in dict.fromkeys(row[-1] for row in new):
            entries = [row[:-1] for row in new if row[-1] == tx]
            rows = self._observer.query(_REQUESTS, [row[3] for row in entries])
            columns = [dict(zip(RequestRow._fields, row, strict=True)) for row in rows]
            asked = {row[3] for row in entries if row[4] == "asked"}
            runs, steps = self._runs()
            leases = self._observer.query("SELECT kind, key, body, due FROM sayso.record WHERE kind = $1", LEASE)
            self.end += 1
            line: dict[str, Any] = {"journal": entries, "records": leases, "runs": runs, "steps": steps}
            line["asked"] = [one for one in columns if one["id"] in asked]
            line["changed"] = [one for one in columns if one["id"] not in asked]
            lines.append((line, self.end))
        return News(lines, is_again=False)

    def _runs(self) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
        runs = self._observer.query("SELECT run_id, holder, updated_at FROM sayso.run")
        steps = self._observer.query("SELECT run_id, n, place, body, waits FROM sayso.step ORDER BY run_id, n")
        return [dict(zip(("id", "holder", "updated_at"), row, strict=True)) for row in runs], steps

    def is_durable(self, end: int) -> bool:
        """Return that what was committed stays."""
        del end
        return True


_observer: Observer | None = None
_cuts: list[str] = []  # `before` or `after`: where the connection of the next statement is lost


def _seen() -> Observer:
    assert _observer is not None
    return _observer


class _Database(Scene):
    """Programs and people on Postgres; connections are lost before or after a statement."""

    def __init__(self, world: World) -> None:
        _cuts.clear()
        super().__init__(world)  # pyright: ignore[reportCallIssue]  of the kind that comes after this one
        if world.jump in world.kinds:  # a transaction reads its clock more than once
            world.kinds.remove(world.jump)
        world.kinds += [lambda chance: self._lose_connection("before" if chance < 0.5 else "after")] * 4

    def _lose_connection(self, when: str) -> None:
        self.world.reports.append(f"connection lost {when}")
        _cuts.append(when)

    def journal(self) -> DatabaseJournal:
        """Empty the database, and return what it has committed."""
        global _observer  # noqa: PLW0603  connections reach it by the module, as the kernel its world
        if _observer is not None:
            _observer.close()
        _observer = Observer(server(0))
        return DatabaseJournal(_observer)

    def store(self) -> PostgresStore:
        """Open the store as one process has it."""
        return PostgresStore(_seen().url)

    def sync(self) -> None:
        """Nothing: what is committed stays."""


DATABASE_SCENES: tuple[type[Scene], ...] = tuple(
    type(f"{kind.__name__} on a database", (_Database, kind), {}) for kind in (gates, budgets, team, handles, runs)
)
"""By a seed's remainder."""


def _driven(connection: Connection, gen: Generator[Any, Any, Any], world: World) -> Any:
    """Run one exchange with the server to its end."""
    descriptor = connection.pgconn.socket
    try:
        wanted = next(gen)
        while True:
            if wanted == Wait.R:
                while not _seen().has_answered(connection):
                    world.until(lambda: _seen().has_answered(connection), 1.0)
                ready = Ready.R
            else:
                readable, _, _ = select.select([descriptor], [descriptor], [])
                ready = Ready.RW if readable and wanted == Wait.RW else Ready.W
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


def _waited(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands for `Connection.wait`: it lets others go on while the answer depends on them."""

    def stand_in(self: Connection, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        world = kernel.here()
        if world is None or world.running is None:
            return wait(self, gen, *args, **options)
        try:
            result = _driven(self, gen, world)
            if "after" in _cuts and not world.is_calm:
                _cuts.remove("after")
                _seen().cut(self)
                raise psycopg.OperationalError("the connection was lost, and the answer with it")
            world.check()
            world.pause("answered")
        except Killed:
            _seen().cut(self)
            raise
        return result

    return stand_in


def _begun(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands for a method that sends a statement: others may have their turn first."""

    def stand_in(self: Connection, *args: Any, **options: Any) -> Any:
        world = kernel.here()
        if world is not None and world.running is not None:
            try:
                world.pause("statement")
            except Killed:
                _seen().cut(self)
                raise
            if "before" in _cuts and not world.is_calm:
                _cuts.remove("before")
                _seen().cut(self)
        return run(self, *args, **options)

    return stand_in


def _nothing(_: object) -> bool:
    return False


class _Lock(kernel.Lock):
    def locked(self) -> bool:
        return self._is_held


@contextmanager
def on_database() -> Generator[None]:
    """Let the Postgres store of simulated processes run on a server."""
    threads = SimpleNamespace(
        get_ident=lambda: id(greenlet.getcurrent()),
        Lock=_Lock,
        Event=threading.Event,
        Thread=threading.Thread,
        BoundedSemaphore=lambda _: _Lock(),  # fewer turns than there are
    )
    with ExitStack() as undo:
        for target, name, new in (
            (postgres, "threading", threads),
            (postgres, "time", kernel.Time),
            (postgres, "forget_after_fork", _nothing),
            (postgres_database.Feed, "ensure", _nothing),
            (Connection, "wait", _waited(Connection.wait)),
            (Connection, "run", _begun(Connection.run)),
            (Connection, "command", _begun(Connection.command)),
            (Connection, "execute", _begun(Connection.execute)),
        ):
            undo.enter_context(mock.patch.object(target, name, new))
        yield
    if _observer is not None:
        _observer.close()
