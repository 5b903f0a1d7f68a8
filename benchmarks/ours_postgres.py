"""The contenders on Postgres: a table written by hand, sayso's verbs, and the gate with a reviewer.

`variant` is the address of a database, and behind a space the piece that is switched off. A burst does many at once,
in transactions of 256. Everything else is as in `benchmarks.contender`.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from .contender import MEMO, Contender, make_effect
from .ours import Durable

__all__ = ["PIECES", "Cycle", "Floor", "Gate"]

_MOST = 256
SCHEMA = """
CREATE TABLE IF NOT EXISTS request (
    id text PRIMARY KEY, run_id text NOT NULL, tool text NOT NULL, arguments text NOT NULL, digest text NOT NULL,
    state text NOT NULL, created_at float8 NOT NULL, expires_at float8, decided_at float8, decided_by text,
    edited text, started_by text, started_at float8, lease_until float8, outcome text, done_at float8
);
CREATE INDEX IF NOT EXISTS request_by_state ON request (state, created_at);
"""
ASK = b"""INSERT INTO request (id, run_id, tool, arguments, digest, state, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7) ON CONFLICT (id) DO NOTHING"""
DECIDE = b"""WITH decided AS (
    UPDATE request SET state = 'approved', decided_at = $1, decided_by = $2
    WHERE id = $3 AND state = 'pending' AND (expires_at IS NULL OR expires_at > $1) RETURNING id
) SELECT pg_notify('decided', id) FROM decided"""
START = b"""UPDATE request SET state = 'running', started_by = $1, started_at = $2, lease_until = $3
WHERE id = $4 AND state = 'approved' AND started_by IS NULL RETURNING arguments"""
FINISH = b"""UPDATE request SET state = 'done', outcome = $1, done_at = $2
WHERE id = $3 AND started_by = $4 AND done_at IS NULL"""


class Floor(Contender):
    """Four statements on one table, each its own commit; the decision notifies."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        import psycopg

        self.db = psycopg.connect(variant, autocommit=True, cursor_factory=psycopg.RawCursor)
        for statement in SCHEMA.split(";"):
            self.db.execute(statement.encode())
        self.pay = make_effect(self.effects)
        self.worker = secrets.token_hex(8)

    def ask(self, amount: int) -> str:
        arguments = json.dumps({"amount": amount, "to": "alice", "memo": MEMO}, sort_keys=True)
        digest = hashlib.sha256(f"order-{amount}\0pay\0{arguments}".encode()).hexdigest()
        request_id, now = secrets.token_hex(16), time.time()
        self.db.execute(ASK, (request_id, f"order-{amount}", "pay", arguments, digest, now, now + 86400))
        return request_id

    def decide(self, ticket: str) -> None:
        self.db.execute(DECIDE, (time.time(), "ada", ticket))

    def start(self, ticket: str) -> Any:
        """Take the start; return the statement's cursor."""
        now = time.time()
        return self.db.execute(START, (self.worker, now, now + 300, ticket))

    def finish(self, ticket: str) -> None:
        """Say that it is done."""
        self.db.execute(FINISH, ('"paid"', time.time(), ticket, self.worker))

    def run(self, amount: int, ticket: str) -> None:
        self.pay(**json.loads(self.start(ticket).fetchall()[0][0]))
        self.finish(ticket)

    def burst(self, first: int, count: int) -> float:
        """Do many cycles, one verb of 256 in each transaction; return the seconds."""
        before = time.perf_counter()
        for at in range(first, first + count, _MOST):
            amounts = range(at, min(at + _MOST, first + count))
            with self.db.transaction(), self.db.pipeline():
                tickets = [self.ask(amount) for amount in amounts]
            for verb in (self.decide, self.start, self.finish):
                with self.db.transaction(), self.db.pipeline():
                    for ticket in tickets:
                        verb(ticket)
            for amount in amounts:
                self.pay(amount, "alice", MEMO)
        return time.perf_counter() - before

    def close(self) -> None:
        self.db.close()


class Cycle(Contender):
    """The verbs of sayso's store: ask, decide, start, finish."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        from sayso.model.reviewer import LOCAL, Identity
        from sayso.stores.postgres import PostgresStore
        from sayso.testing import sample_call

        url, _, piece = variant.partition(" ")
        if piece:
            PIECES[piece]()
        self.store = PostgresStore(url)
        self.sample = sample_call(None, {"amount": 10, "to": "alice", "memo": MEMO})
        self.ada = Identity(LOCAL, "ada")
        self.pay = make_effect(self.effects)
        self.woken: list[int] = []
        self.wakes = threading.Condition()

    def request(self, amount: int) -> Any:
        """Return a new request."""
        from sayso.model.ids import fingerprint, new_request_id, new_run_id

        run, now = new_run_id(), self.store.now()
        return replace(
            self.sample, id=new_request_id(), run_id=run, created_at=now, expires_at=now + timedelta(days=1),
            fingerprint=fingerprint(run, self.sample.subject.digest, f"{amount}"), place=f"{amount}",
        )  # fmt: skip

    def ask(self, amount: int) -> Any:
        return self.store.ask(self.request(amount))

    def decide(self, ticket: Any) -> None:
        _approve(self, ticket, self.store)

    def run(self, amount: int, ticket: Any) -> None:
        token = secrets.token_hex(16)
        _start(ticket.id, token, self.store)
        self.pay(amount, "alice", MEMO)
        _finish(ticket.id, token, self.store)

    def burst(self, first: int, count: int) -> float:
        """Do many cycles, one verb of up to 256 in each transaction, as a server does; return the seconds."""
        before, together = time.perf_counter(), self.store.together
        for at in range(first, first + count, _MOST):
            amounts = range(at, min(at + _MOST, first + count))
            asked = [self.request(amount) for amount in amounts]
            _all(together([partial(_ask, one) for one in asked]))
            _all(together([partial(_approve, self, one) for one in asked]))
            tokens = [secrets.token_hex(16) for _ in asked]
            _all(together([partial(_start, one.id, token) for one, token in zip(asked, tokens, strict=True)]))
            for amount in amounts:
                self.pay(amount, "alice", MEMO)
            _all(together([partial(_finish, one.id, token) for one, token in zip(asked, tokens, strict=True)]))
        return time.perf_counter() - before

    # -- many stored -------------------------------------------------------------------------------------------

    def fill(self, rows: int) -> int:
        """Store so many requests that are done, copies of one, with all their rows in the journal."""
        self.round_trip(0)
        copies = FILL.replace("ROWS", str(rows - 1)).split(";")
        with self.store._connections.one() as connection:
            for statement in copies:
                connection.execute(statement.encode())
            found = connection.execute(b"SELECT count(*) FROM sayso.standing").fetchone()
            return 0 if found is None else found[0]

    def verbs(self, first: int, count: int) -> dict[str, list[float]]:
        """Return the seconds of each verb, and of a look at the list of what waits."""
        from sayso.model.request import State
        from sayso.stores.base import Filter

        wanted = Filter(states=frozenset({State.PENDING}))
        taken: dict[str, list[float]] = {name: [] for name in ("ask", "list what waits", "decide", "start", "finish")}
        for amount in range(first, first + count):
            token, request = secrets.token_hex(16), self.request(amount)
            works: list[Callable[[], object]] = [
                partial(_ask, request, self.store), partial(self.store.list, wanted),
                partial(_approve, self, request, self.store), partial(_start, request.id, token, self.store),
                partial(_finish, request.id, token, self.store),
            ]  # fmt: skip
            marks = [time.perf_counter()]
            for work in works:
                work()
                marks.append(time.perf_counter())
            self.pay(amount, "alice", MEMO)
            for name, (before, after) in zip(taken, pairwise(marks), strict=True):
                taken[name].append(after - before)
        return taken

    # -- waking ------------------------------------------------------------------------------------------------

    def asked(self, amount: int) -> str:
        """Ask, and return the id."""
        return self.ask(amount).id

    def decided(self, request_id: str) -> tuple[int, int]:
        """Approve; return the instants before and after, on the clock that all processes share."""
        ticket, before = self.store.get(request_id), time.monotonic_ns()
        self.decide(ticket)
        return before, time.monotonic_ns()

    def wait(self, request_id: str) -> None:
        """Watch a request."""
        self.woken.clear()
        self.store.watch(request_id, self._wake)

    def _wake(self) -> None:
        with self.wakes:
            self.woken.append(time.monotonic_ns())
            self.wakes.notify()

    def heard(self, since: int) -> int:
        """Return when this process was woken first after an instant."""
        with self.wakes:
            self.wakes.wait_for(lambda: self.woken and self.woken[-1] >= since, 10)
            return next(one for one in self.woken if one >= since)

    def close(self) -> None:
        self.store.close()


class Gate(Durable):
    """A gated call and a named reviewer, each call in a run of its own."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, "memory:")
        self.sayso.configure(store=variant)
        self.review = self.sayso.Review()


def _ask(request: Any, store: Any) -> Any:
    return store.ask(request)


def _approve(cycle: Cycle, request: Any, store: Any) -> None:
    from sayso.model.request import Decision

    seen = request.current_fingerprint
    decision = Decision("approve", cycle.ada, store.now(), "benchmark", None, seen, False, None)
    store.decide(request.id, decision, roles=(), seen=seen)


def _start(request_id: str, token: str, store: Any) -> None:
    store.start(request_id, token)


def _finish(request_id: str, token: str, store: Any) -> None:
    from sayso.model.lifecycle import Outcome

    store.finish(request_id, token, Outcome("done"))


def _all(found: Any) -> None:
    for one in found:
        if isinstance(one, BaseException):
            raise one


FILL = """SET synchronous_commit = off;
CREATE TEMP TABLE one AS SELECT * FROM sayso.request ORDER BY n LIMIT 1;
INSERT INTO sayso.asked (id, kind, run_id, tool, name, risk, search, created_at, asked, form, masked, digest,
    schema_digest, key_digest, effect_digest)
SELECT 'rq_' || md5(g::text), kind, 'old-' || g, tool, name, risk, search, created_at, asked, form, masked, digest,
    schema_digest, NULL, NULL FROM one, generate_series(1, ROWS) AS g;
INSERT INTO sayso.standing (n, id, fingerprint, holds, state, live, ends_at, claimed_by, progress, link)
SELECT a.n, a.id, md5(a.id), NULL, one.state, one.live, one.ends_at, one.claimed_by, one.progress, one.link
FROM one, sayso.asked AS a WHERE a.run_id LIKE 'old-%';
INSERT INTO sayso.journal (run_id, seq, at, request_id, event, by, channel, detail, link)
SELECT 'old-' || g, j.seq, j.at, 'rq_' || md5(g::text), j.event, j.by, j.channel, j.detail, j.link
FROM one JOIN sayso.journal AS j ON j.run_id = one.run_id, generate_series(1, ROWS) AS g;
RESET synchronous_commit;
VACUUM ANALYZE sayso.asked, sayso.standing, sayso.journal;
CHECKPOINT"""


# -- pieces that are switched off, in a process of the benchmark and nowhere else -----------------------------------


def _set(name: str, value: Any) -> None:
    from sayso.stores import postgres_database, postgres_transaction

    modules = [one for one in (postgres_database, postgres_transaction) if hasattr(one, name)]
    assert modules, name
    for one in modules:
        setattr(one, name, value)


TRUTH = "(CAST(? AS text) = '' OR TRUE)"


def _no_comparison() -> None:
    from sayso.stores import postgres_database as module

    is_about = "xmin", "NOT EXISTS"  # the other conditions find the rows
    for name in ("_ASKED_UNCHANGED", "_JOURNAL_UNCHANGED"):
        places: Any = getattr(module, name)
        _set(name, [
            " AND ".join([TRUTH] * one.count("?")) if any(word in one for word in is_about) else one for one in places
        ])  # fmt: skip


def _no_chain() -> None:
    _set("_FOLLOWS", "CAST(? AS text) <> ?")
    _set("_BEGINS", "CAST(? AS text) <> ''")


PIECES: dict[str, Callable[[], None]] = {
    "a look for a stop, channels and grants": lambda: _set("none_of", lambda kinds: "TRUE"),
    "comparison of the other rows at the start": _no_comparison,
    "the end of the chain is looked up": _no_chain,
    "NOTIFY": lambda: _set("_notifies", lambda event: False),
}
