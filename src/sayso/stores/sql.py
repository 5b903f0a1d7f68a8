"""Requests, the journal, runs and records in SQL tables, shared by all stores that have them.

`SqlStore` reads, `SqlTransaction` is what verbs use in a transaction, and `where_of` makes SQL of a filter.

The SQL is SQLite's; other stores translate it. LIMIT is written as a literal, because a Postgres plan for a parameter
reads far too many rows.

Adding a step to a run costs the same for any number of steps; one query reads a run with all its steps. Each step has a
digest of itself and of the previous step, and each run one of its row and of its newest step, so that an altered row is
detected before the run continues. Encrypted bodies are bound to their place (the run, number and place of a step, the
kind and key of a record), so they cannot be moved.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from sayso import clock, errors
from sayso.clock import EPOCH, MICROSECOND, instant, microseconds
from sayso.model.canonical.json_tree import ascii_parts_sorted, dumps
from sayso.model.ids import effect_digest, key_digest
from sayso.model.journal import Entry, Head, RowDigests, chained, first_link
from sayso.model.request import LIVE, Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunSnapshot, RunState, Step
from sayso.model.teamwork import COMMENTED
from sayso.stores import workers
from sayso.stores.base import Store, Transaction
from sayso.stores.codec import Seal, altered, deleted, legible, record_column, sealed, step_column
from sayso.stores.filter import NOT_DECIDED, Filter, Page, RunFilter, read_cursor
from sayso.stores.grants import CHAIN, STOP
from sayso.stores.records import RecordRow


def none_of(kinds: Sequence[str]) -> str:
    """Return the condition that there is no record of these kinds and, for the stop, none in the journal either."""
    # One condition per kind: for a list of values, SQLite would build a table in every statement.
    parts = [f"NOT EXISTS (SELECT 1 FROM record WHERE kind = {kind!r})" for kind in kinds]
    if STOP in kinds:
        newest = f"SELECT event FROM journal WHERE run_id = '{CHAIN}' ORDER BY seq DESC LIMIT 1"
        parts.append(f"coalesce(({newest}), '') <> 'stopped'")
    return " AND ".join(parts)


def where_of(wanted: Filter) -> tuple[list[str], list[Any]]:
    """Return the terms of an AND condition, and the values bound in them."""
    parts: list[str] = []
    values: list[Any] = []
    if wanted.states:
        part, values = _in_states(wanted)
        parts.append(part)
    for column, value in (("run_id", wanted.run_id), ("risk", wanted.risk), ("kind", wanted.kind)):
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if wanted.ids:
        parts.append("id IN (SELECT value FROM json_each(?))")
        # Without the texts that no row can contain, because of which Postgres would find none of the others.
        ids = (one for one in sorted(wanted.ids) if "\0" not in one and one.encode(errors="ignore").decode() == one)
        values.append(json.dumps([*ids]))
    if wanted.name is not None:
        parts.append("? IN (name, tool)")
        values.append(wanted.name)
    if wanted.claimed_by is not None:
        parts.append("claimed_by = ?")
        values.append(wanted.claimed_by.folded)
    for forms in wanted.words:
        parts.append(f"({' OR '.join(['instr(search, ?) > 0'] * len(forms))})")
        values += forms
    return parts, values


def _in_states(wanted: Filter) -> tuple[str, list[Any]]:
    part, values = f"state IN ({', '.join('?' * len(wanted.states))})", list[Any](sorted(wanted.states))
    if wanted.states <= LIVE:
        part = f"live = 1 AND {part}"
    elif not wanted.states & LIVE:
        part = f"live IS NULL AND {part}"
    if wanted.at is None:
        return part, values
    at = microseconds(wanted.at)
    # Only live requests have an end.
    part, values = f"{part} AND (ends_at IS NULL OR ends_at > ?)", [*values, at]
    if State.EXPIRED in wanted.states:
        part, values = f"({part} OR (live = 1 AND ends_at <= ?))", [*values, at]
    return part, values


_ENTRY = ", ".join(Entry._fields)
_NEWEST = f"SELECT {_ENTRY} FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_LAST = "SELECT seq, link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
_MATCH = "SELECT id FROM request WHERE id >= ? AND id < ? ORDER BY id"
_DUE = "SELECT id FROM request WHERE live = 1 AND (ends_at <= ? OR state = ?)"
_SCHEMA = "SELECT text FROM schema_text WHERE id = ?"
_JOURNAL = f"SELECT {_ENTRY} FROM journal WHERE (run_id, seq) > (?, ?) ORDER BY run_id, seq"
_JOURNAL_OF = (
    f"SELECT {_ENTRY} FROM journal WHERE run_id = ? AND seq > ? AND (CAST(? AS TEXT) IS NULL OR request_id = ?)"
    " ORDER BY seq"
)
_COMMENTS = (
    f"SELECT {_ENTRY} FROM journal WHERE run_id IN (SELECT value FROM json_each(?))"
    f" AND request_id IN (SELECT value FROM json_each(?)) AND event = '{COMMENTED}' ORDER BY run_id, seq"
)
_RUN_OF = "SELECT run_id FROM request WHERE id = ?"
_COLUMNS = "run_id, name, kind, state, holder, created_at, updated_at"
GET_RUN = f"""
SELECT {", ".join(f"run.{column}" for column in _COLUMNS.split(", "))}, run.link, newest.n, newest.link
FROM run LEFT JOIN step AS newest ON newest.run_id = run.run_id
AND newest.n = (SELECT max(n) FROM step WHERE run_id = run.run_id) WHERE run.run_id = ?
"""
PUT_RUN = (
    f"INSERT INTO run ({_COLUMNS}, link) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET"
    " state = excluded.state, holder = excluded.holder, updated_at = excluded.updated_at, link = excluded.link"
)
_ANY = "SELECT 1 FROM step WHERE run_id = ? LIMIT 1"
_ADD = "INSERT INTO step (run_id, n, place, body, waits, link) VALUES (?, ?, ?, ?, ?, ?)"
_WAIT = (
    "INSERT INTO wait (run_id, place, request_id) VALUES (?, ?, ?)"
    " ON CONFLICT (run_id, place) DO UPDATE SET request_id = excluded.request_id"
)
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
ORDER BY updated_at, n
"""
_HELD = f"SELECT holder, updated_at {_NAMED} AND state = 'running'"
_GET_RECORD = "SELECT kind, key, body, due FROM record WHERE kind = ? AND key = ?"
_RECORD_KEYS = "SELECT key FROM record WHERE kind = ? ORDER BY key"
_PUT_RECORD = (
    "INSERT INTO record (kind, key, body, due) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body, due = excluded.due"
)
_DROP_RECORD = "DELETE FROM record WHERE kind = ? AND key = ?"
_AFTER_RECORD = "SELECT kind, key, body, due FROM record WHERE kind = ? AND key > ? ORDER BY key"
_DUE_RECORDS = "SELECT kind, key, body, due FROM record WHERE kind = ? AND due <= ? ORDER BY due, key"
_RECORDS_OF = (
    "SELECT kind, key, body, due FROM record WHERE kind IN (SELECT value FROM json_each(?)) ORDER BY kind, key"
)
_HEADS = """
SELECT newest.run_id, newest.seq, journal.link
FROM (SELECT run_id, max(seq) AS seq FROM journal GROUP BY run_id) AS newest
JOIN journal ON journal.run_id = newest.run_id AND journal.seq = newest.seq ORDER BY newest.run_id
"""
_COUNT_RECORDS = "SELECT count(*) FROM (SELECT 1 FROM record WHERE kind = ?"


class Selects(NamedTuple):
    """The statements with which a store reads requests together with their newest journal entries.

    Attributes:
        columns: The columns of a request's row, for a list.
        load: Reads them and the newest journal entry; a condition must be appended.
        find_key, by_effect: Read the requests with a key or an effect, by its digest; also those of which only the
            journal still has it, because their rows were altered or deleted (see `_must_have_rows`).
        get, find: Read one by its id, or by the fingerprint that it holds.
    """

    columns: str
    load: str
    find_key: str
    by_effect: str
    get: str
    find: str

    @classmethod
    def of(cls, columns: str, load: str, keyed: str, with_effect: str) -> Selects:
        """Return the statements; `keyed` and `with_effect` select the ids of requests in the table or the journal."""
        find_key, by_effect = (
            load.replace("r.id", "named.id", 1).replace(
                "FROM request AS r", f"FROM ({ids}) AS named LEFT JOIN request AS r ON r.id = named.id", 1
            ) + "TRUE ORDER BY r.n"
            for ids in (keyed, with_effect)
        )  # fmt: skip
        return cls(columns, load, find_key, by_effect, f"{load}r.id = ?", f"{load}r.fingerprint = ? AND r.holds = 1")


def _must_have_rows(found: Sequence[Sequence[Any]]) -> None:
    """Check what `Selects.find_key` or `by_effect` found; raises `AlteredRequestError` if a row was deleted."""
    for row in found:
        if row[1] is None:
            raise deleted(row[0])


class SqlStore(Store):
    """The part of a store that reads."""

    seal: Seal
    selects: ClassVar[Selects]
    _cache: Any  # what this process last saw
    _place: str  # the store's name in errors
    _schemas: dict[str, str]
    """The known texts of schemas, by id."""

    @abstractmethod
    def _query(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return all rows."""

    def request_of(self, found: tuple[Any, ...]) -> Request:
        """Return the request of a row."""
        return self._cache.read(found, self.seal, self._schema).request

    @abstractmethod
    def _row_digests(self, found: tuple[Any, ...]) -> RowDigests:
        """Return how a row, given with its newest journal entry, is tied to the journal."""

    def _schema(self, digest: str) -> str:
        text = self._schemas.get(digest)
        if text is None:
            found = self._query(_SCHEMA, (digest,))
            if not found:
                raise errors.StoreCorruptError(f"{self._place}: the schema {digest[:12]} of a request is missing")
            text = self._schemas[digest] = found[0][0]
        return text

    def get(self, request_id: str) -> Request:
        found = self._query(self.selects.get, (request_id,))
        if not found:
            raise errors.RequestNotFoundError(request_id)
        return self.request_of(found[0])

    def asks_first(self, fingerprint: str) -> bool:
        return fingerprint not in self._cache.holders

    def find(self, fingerprint: str) -> Request | None:
        found = self._query(self.selects.find, (fingerprint,))
        return self.request_of(found[0]) if found else None

    def find_key(self, run_id: str, key: str) -> Request | None:
        found = self._query(self.selects.find_key, (key_digest(run_id, key),))
        _must_have_rows(found)
        return self.request_of(found[0]) if found else None

    def by_effect(self, effect: str) -> Sequence[Request]:
        found = self._query(self.selects.by_effect, (effect_digest(effect),))
        return [self.request_of(row) for row in found if row[1] is not None]  # a start refuses the others

    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        found = self._query(f"{_MATCH} LIMIT {limit:d}", (prefix, prefix + "\U0010ffff"))
        return [request_id for (request_id,) in found]

    def _due(self) -> Sequence[str]:
        return [found for (found,) in self._query(_DUE, (microseconds(self.now()), State.RUNNING.value))]

    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        where, values = where_of(wanted)
        after = read_cursor(cursor)
        if after is not None:
            where.append("n < ?" if newest else "n > ?")
            values.append(after)
        order = "DESC" if newest else "ASC"
        condition = " AND ".join(where) or "TRUE"
        sql = f"SELECT n, {self.selects.columns} FROM request WHERE {condition} ORDER BY n {order} LIMIT {limit + 1:d}"
        found = self._query(sql, values)
        more = len(found) > limit
        return Page(
            tuple(self.request_of(row[1:]) for row in found[:limit]), str(found[limit - 1][0]) if more else None
        )

    def count(self, wanted: Filter) -> int:
        where, values = where_of(wanted)
        return int(self._query(f"SELECT count(*) FROM request WHERE {' AND '.join(where) or 'TRUE'}", values)[0][0])

    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        if request_id is not None and run_id is None:
            # The journal is ordered by run, and all entries of a request are in its run's chain.
            found = self._query(_RUN_OF, (request_id,))
            if not found:
                return []
            run_id = found[0][0]
        run, seq = after or ("", 0)
        if run_id is None:
            found = self._query(f"{_JOURNAL} LIMIT {limit:d}", (run, seq))
        elif run > run_id:
            found = []
        else:
            values = (run_id, seq if run == run_id else 0, request_id, request_id)
            found = self._query(f"{_JOURNAL_OF} LIMIT {limit:d}", values)
        return [Entry._make(row) for row in found]

    def comments(self, requests: Iterable[Request]) -> Sequence[Entry]:
        run_of = {one.id: one.run_id for one in requests}
        found = self._query(_COMMENTS, (json.dumps(sorted({*run_of.values()})), json.dumps(sorted(run_of))))
        return [Entry._make(row) for row in found]

    def row_digests(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[RowDigests]:
        of_run, values = (" AND r.run_id = ?", (after, run_id)) if run_id is not None else ("", (after,))
        sql = f"{self.selects.load}r.id > ?{of_run} ORDER BY r.id LIMIT {limit:d}"
        return [self._row_digests(row) for row in self._query(sql, values)]

    def heads(self) -> Iterator[Head]:
        # One statement, and so one snapshot: a concurrent commit is in none of the heads or in all.
        return map(Head._make, self._query(_HEADS, ()))

    def legible(self, entry: Entry) -> Entry:
        return legible(entry, self.seal)

    def get_run(self, run_id: str) -> RunSnapshot:
        found = self._query(_KEPT, (run_id,))
        if not found:
            raise errors.RunNotFoundError(run_id)
        newest, steps = None, list[Step]()
        for n, place, body, waits, link in (row[8:] for row in found if row[8] is not None):
            if not isinstance(body, str):
                raise _altered(run_id, f"step {n!r}")
            step = Step(place, self.seal.decrypt(body, run_id, step_column(n, place)), waits)
            if not _is_linked(link, newest, run_id, n, *step):
                raise _altered(run_id, f"step {n!r}")
            steps.append(step)
            newest = link
        return RunSnapshot(_record(found[0][:7], found[0][7], newest), tuple(steps))

    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        where, values = ["TRUE"], list[Any]()
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
        if wanted.ids:
            where.append(f"run_id IN ({', '.join('?' * len(wanted.ids))})")
            values += sorted(wanted.ids)
        sql = f"SELECT n, {_COLUMNS} FROM run WHERE {' AND '.join(where)} ORDER BY n DESC LIMIT {limit + 1:d}"
        found = self._query(sql, values)
        return [_read(row[1:]) for row in found[:limit]], str(found[limit - 1][0]) if len(found) > limit else None

    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        wanted = json.dumps(list(names))
        held, now = self._query(_HELD, (wanted,)), self.now()
        free = [holder for holder, updated in held if workers.may_take(holder, instant(updated), now)]
        values = (wanted, json.dumps(sorted(NOT_DECIDED)), json.dumps(free))
        return [run_id for (run_id,) in self._query(f"{_READY} LIMIT {limit:d}", values)]

    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        found = self._query(_GET_RECORD, (kind, key))
        return _opened(found[0], self.seal) if found else None

    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        sql, bound = (_AFTER_RECORD, after) if due_by is None else (_DUE_RECORDS, due_by)
        return [_opened(row, self.seal) for row in self._query(f"{sql} LIMIT {limit:d}", (kind, bound))]

    def _rows_of_kinds(self, kinds: Sequence[str], limit: int) -> Sequence[RecordRow]:
        return [_opened(row, self.seal) for row in self._query(f"{_RECORDS_OF} LIMIT {limit:d}", (json.dumps(kinds),))]

    def count_records(self, kind: str, most: int) -> int:
        return int(self._query(f"{_COUNT_RECORDS} LIMIT {most:d}) AS counted", (kind,))[0][0])


class Stale(Exception):
    """What was remembered or read is out of date, or is not enough; nothing was written."""


class StoredRun(NamedTuple):
    """A stored run, the number and the link of its newest step, and the link of its own row."""

    run: RunRecord
    last: int
    newest: str | None
    link: str


class SqlTransaction(Transaction):
    """The part of a transaction that all SQL stores share.

    Attributes:
        changed_runs: Ids of the written runs.
        heads: Position and link of the last entry that was written to a chain, by run.
        schemas: Ids of the schemas that were written.
    """

    selects: ClassVar[Selects]
    find_by: ClassVar[str] = _GET_RECORD
    """The query for a record that may then be written."""
    _execute: Callable[..., Any]
    _read_by: Callable[..., Any]  # executes what only reads
    _cache: Any  # the rows that this process last saw, and `heads`, the ends of chains
    _seal: Seal
    _schema: Callable[[str], str]
    _may_guess: bool  # whether what is in the cache may be used, because the write detects if it is out of date
    _loaded: Any = None  # the row of the last request, as the cache returned it
    _now: datetime | None = None
    _runs: dict[str, StoredRun | None]  # as last read or written in this transaction
    changed_runs: list[str]
    heads: dict[str, tuple[int, str]]
    schemas: set[str]

    @abstractmethod
    def _is_intact(self, known: Any) -> bool:
        """Return whether all columns of a row match the newest journal entry of its request."""

    def now(self) -> datetime:
        self._now = clock.now()
        return self._now

    def load(self, request_id: str) -> Request:
        found = self._read_by(self.selects.get, (request_id,)).fetchone()
        if found is None:
            raise errors.RequestNotFoundError(request_id)
        return self._read(found)

    def holder(self, fingerprint: str) -> Request | None:
        if self._may_guess:
            return None  # the caller has just looked; if another process was faster, the write detects it
        found = self._read_by(self.selects.find, (fingerprint,)).fetchone()
        return None if found is None else self._read(found)

    def keyed(self, run_id: str, key: str) -> Request | None:
        found = self._read_by(self.selects.find_key, (key_digest(run_id, key),)).fetchall()
        _must_have_rows(found)
        return self._read(found[0]) if found else None

    def with_effect(self, effect: str) -> Sequence[Request]:
        rows = self._execute(self.selects.by_effect, (effect_digest(effect),)).fetchall()
        _must_have_rows(rows)
        found = [self._cache.read(row, self._seal, self._schema) for row in rows]
        for known in found:
            if not self._is_intact(known):
                raise altered(known.request.id, is_start=True)
        return [known.request for known in found]

    def newest(self, run_id: str) -> Entry | None:
        found = self._execute(_NEWEST, (run_id,)).fetchone()
        return None if found is None else Entry._make(found)

    def _read(self, found: tuple[Any, ...]) -> Request:
        self._loaded = self._cache.read(found, self._seal, self._schema)
        return self._loaded.request

    def _entry(
        self, run_id: str, request_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> tuple[Entry, str]:
        """Return the next entry of a run's chain, and the link before it."""
        head = self.heads.get(run_id)
        if head is None:
            head = self._cache.heads.get(run_id) if self._may_guess else None
            if head is None and event == "asked" and self._may_guess:
                head = 0, first_link(run_id)  # most requests begin their run; if not, the position is taken
            if head is None:
                head = self._read_by(_LAST, (run_id,)).fetchone() or (0, first_link(run_id))
        if self._seal.has_key:
            detail = sealed(detail, request_id or run_id, self._seal)
        at = ((self._now or self.now()) - EPOCH) // MICROSECOND
        seq, before = head
        text = "".join(ascii_parts_sorted(detail, 0))
        return chained(before, run_id, seq + 1, at, request_id, event, by.qualified, channel, text), before

    # -- runs and records ------------------------------------------------------------------------------------------

    def run(self, run_id: str, *, skip_locked: bool = False) -> RunRecord | None:
        found = self._stored(run_id, skip_locked=skip_locked)
        if found is None and self._execute(_ANY, (run_id,)).fetchone() is not None:
            if self._read_run(run_id, skip_locked=False) is not None:
                raise Stale  # it was stored between these statements
            # A run is stored with its first step: if it began again, it would repeat what its steps record as done.
            raise _altered(run_id, "row")
        return None if found is None else found.run

    def put_run(self, run: RunRecord, steps: Sequence[Step] = ()) -> None:
        before = self._stored(run.id)
        last, newest = (0, None) if before is None else (before.last, before.newest)
        added = list[tuple[Any, ...]]()
        for n, step in enumerate(steps, last + 1):
            newest = _link(newest, run.id, n, *step)
            body = self._seal.encrypt(step.body, run.id, step_column(n, step.place))
            added.append((run.id, n, step.place, body, step.waits, newest))
        created, updated = microseconds(run.created_at), microseconds(run.updated_at)
        values = (run.id, run.name, run.kind, run.state.value, run.holder, created, updated)
        link = _link(newest, *values)
        self._write_run((*values, link), None if before is None else before.link)
        for row in added:
            self._execute(_ADD, row)
        for step in steps:
            if step.waits is None:
                self._execute(_WAIT_NO_MORE, (run.id, step.place))
            else:
                self._execute(_WAIT, (run.id, step.place, step.waits))
        self._runs[run.id] = StoredRun(run, last + len(steps), newest, link)
        self.changed_runs.append(run.id)

    def _write_run(self, values: tuple[Any, ...], before: str | None) -> None:  # noqa: ARG002  for those that compare
        """Write the row of a run that has the link `before`, None for a new one."""
        self._execute(PUT_RUN, values)

    def drop_steps(self, run_id: str) -> None:
        self._execute(_DROP_STEPS, (run_id,))
        self._execute(_DROP_WAITS, (run_id,))
        before = self._stored(run_id)
        if before is not None:
            self._runs[run_id] = StoredRun(before.run, 0, None, before.link)
            self.put_run(before.run)

    def find_record(self, kind: str, key: str) -> RecordRow | None:
        try:
            found = self._execute(self.find_by, (kind, key)).fetchone()
        except UnicodeEncodeError:  # a text with lone surrogates, which no row can contain
            return None
        return None if found is None else _opened(found, self._seal)

    def record_keys(self, kind: str) -> Sequence[str]:
        found = self._execute(_RECORD_KEYS, (kind,)).fetchall()
        return [key for (key,) in found] if found else ()  # most transactions ask this, and usually there is none

    def put_record(self, row: RecordRow) -> None:
        self._execute(_PUT_RECORD, self.closed(row))

    def closed(self, row: RecordRow) -> RecordRow:
        """Return a record with its body encrypted."""
        return row._replace(body=self._seal.encrypt(row.body, row.key, record_column(row.kind)))

    def drop_record(self, kind: str, key: str) -> None:
        self._execute(_DROP_RECORD, (kind, key))

    def _stored(self, run_id: str, *, skip_locked: bool = False) -> StoredRun | None:
        """Return a run as it is stored; it is read once in a transaction."""
        if run_id not in self._runs:
            self._runs[run_id] = self._read_run(run_id, skip_locked=skip_locked)
        return self._runs[run_id]

    def _read_run(self, run_id: str, *, skip_locked: bool) -> StoredRun | None:  # noqa: ARG002  for those with locks
        found = self._execute(GET_RUN, (run_id,)).fetchone()
        return None if found is None else stored_run(found)


def stored_run(found: Sequence[Any]) -> StoredRun:
    """Return what `GET_RUN` found; raises `StoreCorruptError` if it was altered."""
    *row, link, n, newest = found
    run = _record(row, link, newest)
    if n is not None and type(n) is not int:
        raise _altered(run.id, f"step {n!r}")
    return StoredRun(run, n or 0, newest, link)


def _link(before: str | None, *values: Any) -> str:
    """Return the digest that ties a row to the previous step; it covers decrypted values, whatever the encryption."""
    return hashlib.sha256(dumps([before, *values]).encode()).hexdigest()


def _is_linked(link: Any, before: Any, *values: Any) -> bool:
    try:
        return link == _link(before, *values)
    except (TypeError, ValueError):  # bytes, which sayso never writes
        return False


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
        f"run {run_id!r} cannot be read: its {what} does not match the rest of its record, so it was altered; nothing"
        " ran. Restore the store from a copy"
    )


def _opened(found: Sequence[Any], seal: Seal) -> RecordRow:
    row = RecordRow._make(found)
    if not isinstance(row.body, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the file may have been altered
        raise errors.StoreCorruptError(
            f"the record {row.kind} {row.key!r} cannot be read: its row was altered; nothing was changed"
        )
    return row._replace(body=seal.decrypt(row.body, row.key, record_column(row.kind)))
