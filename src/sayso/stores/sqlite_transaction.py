"""Runs in SQLite: what `SqliteTransaction` writes of them, and what `SqliteStore` reads.

Adding a step costs the same however many there are, and a run is read with all its steps in one query. A step's body
is sealed for its run, number and place, so that it can be moved nowhere else. Each step carries a digest of itself and
of the step before it, and the run one of its row and of its newest step: a run of which one column was altered is
refused before anything goes on.

Records in SQLite: what `SqliteTransaction` writes of them, and what `SqliteStore` reads.

A body is sealed for its kind and key, so that it can be moved nowhere else. What is due is found by an index, however
many records there are.

One open transaction on SQLite, and what this process remembers of the rows between them.

A verb first runs on the request as this process last saw it, and its write is a compare-and-set on the row's `link`
(the hash of the journal row that made it what it is): if another process changed the row since, nothing is written,
and the verb runs again on fresh rows (`Stale`). So what is remembered is only ever a guess, never trusted.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sayso import clock, errors
from sayso.clock import instant, microseconds
from sayso.model.canonical.tags import dumps, dumps_sorted
from sayso.model.fingerprint import effect_digest, key_digest
from sayso.model.journal import Entry, chained, first_link
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunSnapshot, RunState, Step
from sayso.stores import codec, worker
from sayso.stores.codec import ASKED_COLUMNS, Row, Seal, changed_values, progress_values, sealed
from sayso.stores.filter import NOT_DECIDED, RunFilter, read_cursor
from sayso.stores.memory_tables import record_column
from sayso.stores.records import RecordRow
from sayso.stores.transaction import Transaction

__all__ = [
    "BY_EFFECT",
    "COLUMNS",
    "FIND",
    "FIND_KEY",
    "GET",
    "Memo",
    "SqliteRecordReads",
    "SqliteRecordWrites",
    "SqliteRunReads",
    "SqliteRunWrites",
    "SqliteTransaction",
    "Stale",
    "step_column",
]

_COLUMNS = "run_id, name, kind, state, holder, created_at, updated_at"
_GET_RUN = f"""
SELECT {", ".join(f"run.{column}" for column in _COLUMNS.split(", "))}, run.link, newest.n, newest.link
FROM run LEFT JOIN step AS newest ON newest.run_id = run.run_id
AND newest.n = (SELECT max(n) FROM step WHERE run_id = run.run_id) WHERE run.run_id = ?
"""
_PUT_RUN = (
    f"INSERT INTO run ({_COLUMNS}, link) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET"
    " state = excluded.state, holder = excluded.holder, updated_at = excluded.updated_at, link = excluded.link"
)
_ANY = "SELECT 1 FROM step WHERE run_id = ? LIMIT 1"
_ADD = "INSERT INTO step (run_id, n, place, body, waits, link) VALUES (?, ?, ?, ?, ?, ?)"
_WAIT = "INSERT OR REPLACE INTO wait (run_id, place, request_id) VALUES (?, ?, ?)"
_DROP_STEPS, _DROP_WAITS = "DELETE FROM step WHERE run_id = ?", "DELETE FROM wait WHERE run_id = ?"
_WAIT_NO_MORE = "DELETE FROM wait WHERE run_id = ? AND place = ?"
_KEPT = f"""
SELECT {", ".join(f"run.{column}" for column in _COLUMNS.split(", "))}, run.link,
step.n, step.place, step.body, step.waits, step.link
FROM run LEFT JOIN step ON step.run_id = run.run_id WHERE run.run_id = ? ORDER BY step.n
"""
_NAMED = "FROM run WHERE state <> 'ended' AND name IN (SELECT value FROM json_each(?))"
_READY = f"""
SELECT run_id {_NAMED} AND (state = 'broken' OR state = 'paused' AND EXISTS (
    SELECT 1 FROM wait JOIN request ON request.id = wait.request_id
    WHERE wait.run_id = run.run_id AND request.state NOT IN (SELECT value FROM json_each(?))
) OR state = 'running' AND holder IN (SELECT value FROM json_each(?)))
ORDER BY updated_at, n LIMIT ?
"""
_HELD = f"SELECT DISTINCT holder {_NAMED} AND state = 'running'"


class SqliteRunWrites:
    """The part of a transaction that is about runs."""

    _execute: Callable[..., sqlite3.Cursor]
    _seal: Seal
    changed_runs: list[str]

    def run(self, run_id: str) -> RunRecord | None:
        """Return a run, if it is kept; raises `StoreCorruptError` where its row or its newest step was altered."""
        found = self._found(run_id)
        if found is None and self._execute(_ANY, (run_id,)).fetchone() is not None:
            # A run is kept with its first step: begun anew, it would do again what its steps say was done.
            raise _altered(run_id, "row")
        return None if found is None else found[0]

    def put_run(self, run: RunRecord) -> None:
        """Write a run, new or changed."""
        found = self._found(run.id)
        self._write_run(run, None if found is None else found[2])

    def add_steps(self, run_id: str, steps: Sequence[Step]) -> None:
        """Add steps after those that are there."""
        run, last, link = self._found(run_id) or (None, 0, None)
        for n, step in enumerate(steps, last + 1):
            body = self._seal.close(step.body, run_id, step_column(n, step.place))
            link = _link(link, run_id, n, *step)
            self._execute(_ADD, (run_id, n, step.place, body, step.waits, link))
            if step.waits is None:
                self._execute(_WAIT_NO_MORE, (run_id, step.place))
            else:
                self._execute(_WAIT, (run_id, step.place, step.waits))
        if run is not None:
            self._write_run(run, link)
        self.changed_runs.append(run_id)

    def drop_steps(self, run_id: str) -> None:
        """Take all steps of a run away, and what they wait for."""
        found = self._found(run_id)
        self._execute(_DROP_STEPS, (run_id,))
        self._execute(_DROP_WAITS, (run_id,))
        if found is not None:
            self._write_run(found[0], None)
        self.changed_runs.append(run_id)

    def _found(self, run_id: str) -> tuple[RunRecord, int, str | None] | None:
        """Return a run, and the number and the link of its newest step."""
        found = self._execute(_GET_RUN, (run_id,)).fetchone()
        if found is None:
            return None
        *row, link, n, newest = found
        return _record(row, link, newest), 0 if n is None else _number(run_id, n), newest

    def _write_run(self, run: RunRecord, newest: str | None) -> None:
        created, updated = microseconds(run.created_at), microseconds(run.updated_at)
        values = (run.id, run.name, run.kind, run.state.value, run.holder, created, updated)
        self._execute(_PUT_RUN, (*values, _link(newest, *values)))
        self.changed_runs.append(run.id)


class SqliteRunReads(ABC):
    """The part of a store that is about runs."""

    seal: Seal

    @abstractmethod
    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows."""

    def get_run(self, run_id: str) -> RunSnapshot:
        found = self._query(_KEPT, (run_id,))
        if not found:
            raise errors.RunNotFoundError(run_id)
        newest, steps = None, list[Step]()
        for n, place, body, waits, link in (row[8:] for row in found if row[8] is not None):
            step = _step(run_id, n, (place, body, waits), self.seal)
            if not _is_linked(link, newest, run_id, n, *step):
                raise _altered(run_id, f"step {n!r}")
            steps.append(step)
            newest = link
        return RunSnapshot(_record(found[0][:7], found[0][7], newest), tuple(steps))

    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        where, values = ["1"], list[Any]()
        before = read_cursor(cursor)
        if before is not None:
            where.append("n < ?")
            values.append(before)
        if wanted.name is not None:
            where.append("name = ?")
            values.append(wanted.name)
        if wanted.states:
            where.append(f"state IN ({', '.join('?' * len(wanted.states))})")
            values += sorted(wanted.states)
        sql = f"SELECT n, {_COLUMNS} FROM run WHERE {' AND '.join(where)} ORDER BY n DESC LIMIT ?"
        found = self._query(sql, (*values, limit + 1))
        return [_read(row[1:]) for row in found[:limit]], str(found[limit - 1][0]) if len(found) > limit else None

    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        wanted = json.dumps(list(names))
        free = [holder for (holder,) in self._query(_HELD, (wanted,)) if worker.is_free(holder)]
        values = (wanted, json.dumps(sorted(NOT_DECIDED)), json.dumps(free), limit)
        return [run_id for (run_id,) in self._query(_READY, values)]


def step_column(n: int, place: str) -> str:
    """Return the place for which a step's body is sealed, together with its run."""
    return f"step/{n}/{place}"


def _step(run_id: str, n: Any, values: Sequence[Any], seal: Seal) -> Step:
    place, body, waits = values
    if not isinstance(body, str):
        raise _altered(run_id, f"step {n!r}")
    return Step(place, seal.open(body, run_id, step_column(n, place)), waits)


def _link(before: str | None, *values: Any) -> str:
    """Return the digest that ties a row to the step before it; what a body says is covered, not how it is sealed."""
    return hashlib.sha256(dumps([before, *values]).encode()).hexdigest()


def _is_linked(link: Any, before: Any, *values: Any) -> bool:
    try:
        return link == _link(before, *values)
    except (TypeError, ValueError):  # bytes, which no row of ours holds
        return False


def _number(run_id: str, n: Any) -> int:
    if type(n) is not int:
        raise _altered(run_id, f"step {n!r}")
    return n


def _record(row: Sequence[Any], link: Any, newest: Any) -> RunRecord:
    """Return the run of a row that matches its link."""
    run = _read(row)
    if not _is_linked(link, newest, *row):
        raise _altered(row[0], "row")
    return run


def _read(row: Sequence[Any]) -> RunRecord:
    run_id, name, kind, state, holder, created, updated = row
    try:
        return RunRecord(run_id, name, kind, RunState(state), holder, instant(created), instant(updated))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise _altered(run_id, "row") from error


def _altered(run_id: str, what: str) -> errors.StoreCorruptError:
    return errors.StoreCorruptError(
        f"run {run_id!r} cannot be read: its {what} does not match the rest of its record, it was altered; nothing ran."
        " Restore the store from a copy"
    )


_GET_RECORD = "SELECT kind, key, body, due FROM record WHERE kind = ? AND key = ?"
_RECORD_KEYS = "SELECT key FROM record WHERE kind = ? ORDER BY key"
_PUT_RECORD = "INSERT OR REPLACE INTO record (kind, key, body, due) VALUES (?, ?, ?, ?)"
_DROP_RECORD = "DELETE FROM record WHERE kind = ? AND key = ?"
_AFTER_RECORD = "SELECT kind, key, body, due FROM record WHERE kind = ? AND key > ? ORDER BY key LIMIT ?"
_DUE_RECORDS = "SELECT kind, key, body, due FROM record WHERE kind = ? AND due <= ? ORDER BY due, key LIMIT ?"


class SqliteRecordWrites:
    """The part of a transaction that is about records."""

    _execute: Callable[..., sqlite3.Cursor]
    _seal: Seal

    def find_record(self, kind: str, key: str) -> RecordRow | None:
        """Return a record, as this transaction left it."""
        try:
            found = self._execute(_GET_RECORD, (kind, key)).fetchone()
        except UnicodeEncodeError:  # a text with lone surrogates, which no row can hold
            return None
        return None if found is None else _opened(found, self._seal)

    def record_keys(self, kind: str) -> Sequence[str]:
        """Return the keys of a kind, as this transaction left them."""
        found = self._execute(_RECORD_KEYS, (kind,)).fetchall()
        return [key for (key,) in found] if found else ()  # asked in nearly every transaction, and mostly there is none

    def put_record(self, row: RecordRow) -> None:
        """Write a record."""
        self._execute(_PUT_RECORD, row._replace(body=self._seal.close(row.body, row.key, record_column(row.kind))))

    def drop_record(self, kind: str, key: str) -> None:
        """Take a record away."""
        self._execute(_DROP_RECORD, (kind, key))


class SqliteRecordReads(ABC):
    """The part of a store that reads records."""

    seal: Seal

    @abstractmethod
    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows."""

    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        found = self._query(_GET_RECORD, (kind, key))
        return _opened(found[0], self.seal) if found else None

    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        sql, bound = (_AFTER_RECORD, after) if due_by is None else (_DUE_RECORDS, due_by)
        return [_opened(row, self.seal) for row in self._query(sql, (kind, bound, limit))]


def _opened(found: Sequence[Any], seal: Seal) -> RecordRow:
    row = RecordRow._make(found)
    if not isinstance(row.body, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # whatever somebody wrote into the file
        raise errors.StoreCorruptError(
            f"the record {row.kind} {row.key!r} cannot be read: its row was altered; nothing was changed"
        )
    return row._replace(body=seal.open(row.body, row.key, record_column(row.kind)))


COLUMNS = ", ".join(Row._fields)
GET = f"SELECT {COLUMNS} FROM request WHERE id = ?"
FIND = f"SELECT {COLUMNS} FROM request WHERE fingerprint = ? AND holds = 1"
FIND_KEY = f"SELECT {COLUMNS} FROM request WHERE key_digest = ?"
BY_EFFECT = f"SELECT {COLUMNS} FROM request WHERE effect_digest = ? ORDER BY n"
_INSERT = f"INSERT INTO request ({COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_ADD_SCHEMA = "INSERT OR IGNORE INTO schema_text (id, text) VALUES (?, ?)"
_LAST = "SELECT seq, link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_NEWEST = "SELECT link, detail FROM journal WHERE run_id = ? AND request_id = ? ORDER BY seq DESC LIMIT 1"
_APPEND = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

_REMEMBERED = 512
_PLACES = {name: place for place, name in enumerate(Row._fields)}
_LINK = _PLACES["link"]


class Stale(Exception):
    """What was remembered is not what the store holds any more; nothing was written."""


class Memo:
    """Rows as this process last saw them, with what they mean; the ends of chains; the schemas that are written.

    Attributes:
        written: Rows that were written here, and not read, by id of their request.
        heads: Ends of chains, by run.
        schemas: Texts of schemas, by digest; `kept_schemas` are those that are surely committed.
    """

    def __init__(self) -> None:
        self._requests: dict[str, tuple[tuple[Any, ...], Request]] = {}
        self._asked: dict[str, tuple[tuple[Any, ...], str]] = {}
        self.written: dict[str, tuple[Any, ...]] = {}
        self.heads: dict[str, tuple[int, str]] = {}
        self.schemas: dict[str, str] = {}
        self.kept_schemas: set[str] = set()

    def get(self, request_id: str) -> tuple[tuple[Any, ...], Request] | None:
        """Return the row of a request and the request."""
        return self._requests.get(request_id)

    def request_of(self, row: tuple[Any, ...], seal: Seal, schema: Callable[[str], str]) -> Request:
        """Return the request of a row; the same object as before while the row is the same to the letter."""
        known = self._requests.get(row[0])
        if known is not None and known[0] == row:
            return known[1]
        request = codec.request_of(Row._make(row), seal, schema)
        self.put(row, request)
        return request

    def put(self, row: tuple[Any, ...], request: Request) -> None:
        """Remember a row and what it means."""
        if len(self._requests) >= _REMEMBERED:
            self._requests.clear()
            self._asked.clear()
            self.written.clear()
        self._requests[request.id] = row, request

    def stands_digest(self, row: Sequence[Any], seal: Seal) -> str:
        """Return the digest of a whole row; what was asked, which may be long, is serialized once."""
        asked = tuple(row[: len(ASKED_COLUMNS)])
        known = self._asked.get(row[0])
        if known is None or known[0] != asked:
            known = self._asked[row[0]] = asked, codec.asked_digest(asked, seal)
        return codec.stands_digest(row, seal, known[1])

    def knows_asked(self, asked: tuple[Any, ...], digest: str) -> None:
        """Remember the digest of what never changes of a request."""
        self._asked[asked[0]] = asked, digest

    def wrote(self, row: tuple[Any, ...], request: Request) -> None:
        """Remember a row that this process writes, and that needs no other witness."""
        self.put(row, request)
        self.written[request.id] = row

    def committed(self, heads: dict[str, tuple[int, str]], schemas: set[str]) -> None:
        """Remember what a transaction left behind."""
        if len(self.heads) >= _REMEMBERED:
            self.heads.clear()
        self.heads |= heads
        self.kept_schemas |= schemas


@cache
def _update(changed: tuple[str, ...]) -> str:
    return f"UPDATE request SET {' = ?, '.join((*changed, 'link'))} = ? WHERE id = ? AND link = ?"


class SqliteTransaction(SqliteRunWrites, SqliteRecordWrites, Transaction):
    """The verbs' view of the writing connection between BEGIN and COMMIT.

    Args:
        connection: In a transaction.
        memo: What is remembered.
        seal: Seals and opens texts.
        schema: Looks a schema's text up.
        is_fresh: Read everything anew, guess nothing.

    Attributes:
        changed: Ids of requests that were written.
        changed_runs: Ids of runs that were written.
        heads, schemas: For `Memo.committed`.
        has_guessed: Whether a row was taken from memory.
    """

    def __init__(
        self, connection: sqlite3.Connection, memo: Memo, seal: Seal, schema: Callable[[str], str], *, is_fresh: bool
    ) -> None:
        self._execute = connection.execute
        self._memo, self._seal, self._schema, self._is_fresh = memo, seal, schema, is_fresh
        self._loaded: tuple[tuple[Any, ...], Request] | None = None  # the last one, with its row
        self._borne_out: tuple[Any, ...] | None = None  # the last row that was compared with the journal
        self._now: datetime | None = None
        self.has_guessed = False
        self.changed: list[str] = []
        self.changed_runs = list[str]()
        self.heads: dict[str, tuple[int, str]] = {}
        self.schemas: set[str] = set()

    def now(self) -> datetime:
        self._now = clock.now()
        return self._now

    def load(self, request_id: str) -> Request:
        known = None if self._is_fresh else self._memo.get(request_id)
        if known is not None:
            self.has_guessed = True
            self._loaded = known
            return known[1]
        row = self._execute(GET, (request_id,)).fetchone()
        if row is None:
            raise errors.RequestNotFoundError(request_id)
        return self._read(row)

    def holder(self, fingerprint: str) -> Request | None:
        if not self._is_fresh:
            return None  # whoever asks has just looked; if somebody was faster, the unique index says so
        row = self._execute(FIND, (fingerprint,)).fetchone()
        return None if row is None else self._read(row)

    def keyed(self, run_id: str, key: str) -> Request | None:
        row = self._execute(FIND_KEY, (key_digest(run_id, key),)).fetchone()
        return None if row is None else self._read(row)

    def with_effect(self, effect: str) -> Sequence[Request]:
        found: list[Request] = []
        for row in self._execute(BY_EFFECT, (effect_digest(effect),)).fetchall():
            request = self._memo.request_of(row, self._seal, self._schema)
            newest = self._execute(_NEWEST, (request.run_id, request.id)).fetchone()
            if not codec.is_borne_out(row, newest, self._seal):
                raise codec.altered(request.id, is_start=True)
            found.append(request)
        return found

    def _read(self, row: tuple[Any, ...]) -> Request:
        request = self._memo.request_of(row, self._seal, self._schema)
        self._loaded = row, request
        return request

    def insert(self, transition: Transition) -> None:
        request, seal, memo = transition.request, self._seal, self._memo
        subject = request.subject
        key = codec.schema_id(subject.schema)
        if key not in memo.kept_schemas:
            memo.schemas[key] = subject.schema
            self._execute(_ADD_SCHEMA, (key, subject.schema))
            self.schemas.add(key)
        asked = codec.asked_values(request, seal)
        row = [*asked, *progress_values(request, seal, "")]
        digest = transition.detail["asked"] = codec.asked_digest(asked, seal)
        memo.knows_asked(asked, digest)
        transition.detail["stands"] = codec.stands_digest(row, seal, digest)
        entry = self._entry(request.run_id, request.id, *transition[1:])
        row[_LINK] = entry.link
        written = tuple(row)
        self._write(_INSERT, written)
        self._keep(written, request, entry)

    def update(self, transition: Transition) -> None:
        request = transition.request
        if self._loaded is None or self._loaded[1].id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # they load first
        before, was = self._loaded
        if not (self._borne_out is before or self.stands(was)):
            raise codec.altered(request.id)
        asked = codec.asked_again(was, request, self._seal, transition.detail)
        changed = asked | changed_values(was, request, self._seal)
        row = list(before)
        for name, value in changed.items():
            row[_PLACES[name]] = value
        transition.detail["stands"] = self._memo.stands_digest(row, self._seal)
        entry = self._entry(request.run_id, request.id, *transition[1:])
        row[_LINK] = entry.link
        values = (*changed.values(), entry.link, request.id, before[_LINK])
        if self._execute(_update(tuple(changed)), values).rowcount != 1:
            raise Stale
        self._keep(tuple(row), request, entry)

    def stands(self, request: Request) -> bool:
        if self._loaded is None or self._loaded[1].id != request.id:
            raise RuntimeError("a verb on a request that was not loaded")  # they load first
        row = self._loaded[0]
        if self._borne_out is row:
            return True
        if self._memo.written.get(row[0]) is not row:
            newest = self._execute(_NEWEST, (request.run_id, request.id)).fetchone()
            if not codec.is_borne_out(row, newest, self._seal):
                if self._is_fresh:
                    return False
                raise Stale
        self._borne_out = row
        return True

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        self._append(self._entry(run_id, "", event, by, channel, detail))

    def _keep(self, row: tuple[Any, ...], request: Request, entry: Entry) -> None:
        self._append(entry)
        self._loaded = row, request
        self._memo.wrote(row, request)
        self.changed.append(request.id)

    def _entry(
        self, run_id: str, request_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> Entry:
        head = self.heads.get(run_id)
        if head is None:
            head = None if self._is_fresh else self._memo.heads.get(run_id)
            if head is None and event == "asked" and not self._is_fresh:
                head = 0, first_link(run_id)  # most begin their run; where not, the place is taken
            if head is None:
                head = self._execute(_LAST, (run_id,)).fetchone() or (0, first_link(run_id))
        if not self._seal.is_open:
            detail = sealed(detail, request_id or run_id, self._seal)
        at = clock.microseconds(self._now or clock.now())
        seq, before = head
        return chained(before, run_id, seq + 1, at, request_id, event, by.qualified, channel, dumps_sorted(detail))

    def _append(self, entry: Entry) -> None:
        self._write(_APPEND, entry)
        self.heads[entry.run_id] = entry.seq, entry.link

    def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        try:
            self._execute(sql, values)
        except sqlite3.IntegrityError:
            # Somebody else has this place in the chain, or holds this fingerprint.
            if self._is_fresh:
                raise
            raise Stale from None
