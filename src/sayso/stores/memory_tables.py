"""In-memory tables of requests, runs and records, shared by the `memory:` and `jsonl:` stores.

`Tables` is the content of such a store, `TableStore` reads it, and a `TableTransaction` collects what one verb writes.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Any

from sayso import clock, errors
from sayso.clock import instant, microseconds
from sayso.model.ids import effect_digest, key_digest
from sayso.model.journal import Entry, RowDigests
from sayso.model.request import LIVE, Request, State
from sayso.model.run import RunRecord, RunSnapshot, RunState, Step
from sayso.stores import workers
from sayso.stores.base import Filter, Page, Store, Transaction
from sayso.stores.codec import Seal, altered, deleted, record_column
from sayso.stores.filter import NOT_DECIDED, RunFilter, matches, read_cursor
from sayso.stores.records import RecordRow

Written = tuple[str, str, str | None, int | None]  # kind, key, stored body (None: dropped), due


class Tables(ABC):
    """Requests, the journal, runs and records of one store.

    Attributes:
        rows: Requests by id, in the order in which they were asked, in the store's own form.
        chains: The journal by run.
        runs, steps: The runs, and their steps, by run.
        run_ids: The ids of the runs, in the order in which they were first stored; cursors are positions in this list.
        records: The records by kind and key, with encrypted bodies.
        ids: The ids of the requests; cursors are positions in this list, from 1.
        places: The positions of the requests, by id.
        live: The positions of requests that are not final.
        holders: The ids of requests that hold, by fingerprint.
    """

    def __init__(self, seal: Seal) -> None:
        self.rows: dict[str, Any] = {}
        self.chains: dict[str, Any] = {}
        self.seal = seal
        self.runs: dict[str, RunRecord] = {}
        self.steps: dict[str, list[Step]] = {}
        self.run_ids: list[str] = []
        self.records: dict[str, dict[str, RecordRow]] = {}
        self.ids: list[str] = []
        self.places: dict[str, int] = {}
        self.live: dict[str, int] = {}
        self.holders: dict[str, str] = {}
        self._keys: dict[str, str] = {}  # ids by the digest of run and key
        self._effects: dict[str, list[str]] = {}  # ids in the order of asking, by the digest of the effect
        self._waits: dict[str, dict[str, str]] = {}  # ids of requests, by run and place
        self._open: dict[str, None] = {}  # runs that have not ended

    def put(self, row: Any, key: str | None, effect: str | None) -> None:
        """Store a new or changed request; the digests of its key and effect matter for a new one only."""
        if row.id not in self.rows:
            self.ids.append(row.id)
            self.live[row.id] = self.places[row.id] = len(self.ids)
            self.put_asked(row.id, key, effect)
        self.rows[row.id] = row
        if row.holds:
            self.holders[row.fingerprint] = row.id
        elif self.holders.get(row.fingerprint) == row.id:
            del self.holders[row.fingerprint]
        if row.state not in LIVE:
            self.live.pop(row.id, None)

    def put_asked(self, request_id: str, key: str | None, effect: str | None) -> None:
        """Remember which key and effect a request has, also one that has no row."""
        if key is not None:
            self._keys.setdefault(key, request_id)
        if effect is not None:
            self._effects.setdefault(effect, []).append(request_id)

    @abstractmethod
    def request(self, request_id: str) -> Request:
        """Return a request; raises `RequestNotFoundError`."""

    @abstractmethod
    def row_digests_of(self, request_id: str) -> RowDigests:
        """Return how a request is tied to the journal."""

    @abstractmethod
    def is_due(self, row: Any, now: datetime) -> bool:
        """Return whether a request has reached its end."""

    def held(self, fingerprint: str) -> Request | None:
        """Return the request that holds a fingerprint."""
        request_id = self.holders.get(fingerprint)
        return None if request_id is None else self.request(request_id)

    def keyed(self, run_id: str, key: str) -> Request | None:
        """Return the request that was asked with a key in a run."""
        request_id = self._keys.get(key_digest(run_id, key))
        if request_id is not None and request_id not in self.rows:
            raise deleted(request_id)
        return None if request_id is None else self.request(request_id)

    def with_effect(self, effect: str) -> Sequence[str]:
        """Return the ids of the requests with an effect, in the order in which they were asked."""
        return self._effects.get(effect_digest(effect), ())

    def newest(self, run_id: str) -> Entry | None:
        """Return the newest entry of a chain."""
        chain = self.chains.get(run_id)
        return chain[-1] if chain else None

    # -- runs ------------------------------------------------------------------------------------------------------

    def put_run(self, run: RunRecord) -> None:
        """Store a new or changed run."""
        if run.id not in self.runs:
            self.run_ids.append(run.id)
        self.runs[run.id] = run
        if run.state is RunState.ENDED:
            self._open.pop(run.id, None)
        else:
            self._open[run.id] = None

    def add_steps(self, run_id: str, steps: Sequence[Step]) -> None:
        """Add steps to a run."""
        self.steps.setdefault(run_id, []).extend(steps)
        waits = self._waits.setdefault(run_id, {})
        for step in steps:
            waits.pop(step.place, None)
            if step.waits is not None:
                waits[step.place] = step.waits

    def drop_steps(self, run_id: str) -> None:
        """Remove all steps of a run."""
        self.steps.pop(run_id, None)
        self._waits.pop(run_id, None)

    def snapshot(self, run_id: str) -> RunSnapshot:
        """Return a run and its steps; raises `RunNotFoundError`."""
        run = self.runs.get(run_id)
        if run is None:
            raise errors.RunNotFoundError(run_id)
        return RunSnapshot(run, tuple(self.steps.get(run_id, ())))

    def ready_runs(self, names: Collection[str], limit: int) -> Sequence[str]:
        """Return the ids of runs that can continue; see `sayso.stores.program.ProgramStore.ready_runs`."""
        found, now = list[RunRecord](), clock.now()
        for run in (run for run in map(self.runs.__getitem__, self._open) if run.name in names):
            match run.state:
                case RunState.PAUSED:
                    waits_for = map(self.rows.get, self._waits.get(run.id, {}).values())
                    is_ready = any(row is not None and row.state not in NOT_DECIDED for row in waits_for)
                case RunState.RUNNING:
                    is_ready = workers.may_take(run.holder, run.updated_at, now)
                case _:
                    is_ready = True
            if is_ready:
                found.append(run)
        return [run.id for run in sorted(found, key=lambda run: run.updated_at)[:limit]]

    # -- records ---------------------------------------------------------------------------------------------------

    def find_record(self, kind: str, key: str) -> RecordRow | None:
        """Return a record with its body decrypted."""
        row = self.records.get(kind, {}).get(key)
        return None if row is None else self._opened(row)

    def find_records(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        """Return records; see `sayso.stores.records.RecordVerbs.records`."""
        rows = self.records.get(kind, {}).values()
        if due_by is None:
            found = heapq.nsmallest(limit, (row for row in rows if row.key > after), key=lambda row: row.key)
        else:
            dated = ((row.due, row.key, row) for row in rows if row.due is not None and row.due <= due_by)
            found = [row for _, _, row in heapq.nsmallest(limit, dated)]
        return [self._opened(row) for row in found]

    def put_records(self, written: Iterable[Written]) -> None:
        """Apply what a transaction wrote; raises `LookupError`, `TypeError` or `ValueError` if it is not valid."""
        for kind, key, body, due in written:
            if body is None:
                self.records.get(kind, {}).pop(key, None)  # it may have been put and dropped in one transaction
            else:
                self.records.setdefault(kind, {})[key] = RecordRow(kind, key, body, due)

    def all_records(self) -> list[RecordRow]:
        """Return all records, with encrypted bodies."""
        return [row for kind in self.records.values() for row in kind.values()]

    def _opened(self, row: RecordRow) -> RecordRow:
        return row._replace(body=self.seal.decrypt(row.body, row.key, record_column(row.kind)))


def run_values(run: RunRecord) -> dict[str, Any]:
    """Return a run as JSON values."""
    times = {"created_at": microseconds(run.created_at), "updated_at": microseconds(run.updated_at)}
    return {**vars(run), "state": run.state.value, **times}


def run_of(values: Mapping[str, Any]) -> RunRecord:
    """Return the run with these values; raises `LookupError`, `TypeError` or `ValueError` if they are not valid."""
    fields = dict(values)
    for name in ("created_at", "updated_at"):
        fields[name] = instant(fields[name])
    fields["state"] = RunState(fields["state"])
    return RunRecord(**fields)


class TableStore(Store):
    """The part of a store that reads tables."""

    _lock: Any

    @abstractmethod
    def _tables(self) -> Tables:
        """Return the current content of the store; called with the lock held."""

    def get(self, request_id: str) -> Request:
        with self._lock:
            return self._tables().request(request_id)

    def find(self, fingerprint: str) -> Request | None:
        with self._lock:
            return self._tables().held(fingerprint)

    def find_key(self, run_id: str, key: str) -> Request | None:
        with self._lock:
            return self._tables().keyed(run_id, key)

    def by_effect(self, effect: str) -> Sequence[Request]:
        with self._lock:
            tables = self._tables()
            return [tables.request(one) for one in tables.with_effect(effect) if one in tables.rows]

    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        with self._lock:
            return list(
                islice((request_id for request_id in self._tables().ids if request_id.startswith(prefix)), limit)
            )

    def _due(self) -> Sequence[str]:
        now = clock.now()
        with self._lock:
            tables = self._tables()
            rows = map(tables.rows.__getitem__, tables.live)
            return [row.id for row in rows if row.state == State.RUNNING or tables.is_due(row, now)]

    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        with self._lock:
            found = list(islice(self._matching(wanted, read_cursor(cursor), newest=newest), limit + 1))
        more = len(found) > limit
        return Page(tuple(request for _, request in found[:limit]), str(found[limit - 1][0]) if more else None)

    def count(self, wanted: Filter) -> int:
        with self._lock:
            return sum(1 for _ in self._matching(wanted, None, newest=False))

    def _matching(self, wanted: Filter, after: int | None, *, newest: bool) -> Iterator[tuple[int, Request]]:
        tables = self._tables()
        beyond = range(1, len(tables.ids) + 1)
        if after is not None:
            beyond = range(1, min(after, len(beyond) + 1)) if newest else range(after + 1, len(beyond) + 1)
        places: Sequence[int] = beyond
        if wanted.ids:
            known = map(tables.places.get, wanted.ids)
            places = sorted(place for place in known if place is not None and place in beyond)
        elif wanted.states and wanted.states <= LIVE:  # requests that are due are live too
            places = [place for place in tables.live.values() if place in beyond]
        for place in reversed(places) if newest else places:
            request = tables.request(tables.ids[place - 1])
            if matches(request, wanted):
                yield place, request

    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        with self._lock:
            tables = self._tables()
            if run_id is None and request_id is not None:
                row = tables.rows.get(request_id)
                run_id = "" if row is None else row.run_id
            run, seq = after or ("", 0)
            found = list[Entry]()
            for each in sorted(tables.chains) if run_id is None else [run_id]:
                chain: Sequence[Entry] = tables.chains.get(each, ()) if each >= run else ()
                begin = bisect_left(chain, seq + 1, key=lambda entry: entry.seq) if each == run else 0
                rest = islice(chain, begin, None)
                wanted = (entry for entry in rest if request_id is None or entry.request_id == request_id)
                found += islice(wanted, limit - len(found))
                if len(found) == limit:
                    break
            return found

    def row_digests(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[RowDigests]:
        with self._lock:
            tables = self._tables()
            rows = (row.id for row in tables.rows.values() if row.id > after and run_id in {None, row.run_id})
            return [tables.row_digests_of(request_id) for request_id in heapq.nsmallest(limit, rows)]

    def get_run(self, run_id: str) -> RunSnapshot:
        with self._lock:
            return self._tables().snapshot(run_id)

    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        before = read_cursor(cursor)
        with self._lock:
            tables = self._tables()
            end = len(tables.run_ids) if before is None else min(before - 1, len(tables.run_ids))
            newest = ((place, tables.runs[tables.run_ids[place - 1]]) for place in range(end, 0, -1))
            found = list(islice(((place, run) for place, run in newest if _passes(run, wanted)), limit + 1))
        return [run for _, run in found[:limit]], str(found[limit - 1][0]) if len(found) > limit else None

    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        with self._lock:
            return self._tables().ready_runs(names, limit)

    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        with self._lock:
            return self._tables().find_record(kind, key)

    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        with self._lock:
            return self._tables().find_records(kind, due_by, after, limit)


def _passes(run: RunRecord, wanted: RunFilter) -> bool:
    is_wanted = (not wanted.states or run.state in wanted.states) and (not wanted.ids or run.id in wanted.ids)
    return is_wanted and wanted.name in {None, run.name}


class TableTransaction(Transaction, ABC):
    """The reads and writes of one transaction; nothing is stored before it has succeeded.

    Attributes:
        runs: The written runs by id.
        steps: The added steps by run id.
        dropped: Ids of the runs whose steps were removed.
        records: The written records by kind and key, with their current values; None for a dropped one.
    """

    runs: Mapping[str, RunRecord] = MappingProxyType({})  # shared, because most transactions write none of these
    steps: Mapping[str, Sequence[Step]] = MappingProxyType({})
    dropped: Sequence[str] = ()
    records: Mapping[tuple[str, str], RecordRow | None] = MappingProxyType({})

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def now(self) -> datetime:
        return clock.now()

    def load(self, request_id: str) -> Request:
        return self._tables.request(request_id)

    def holder(self, fingerprint: str) -> Request | None:
        return self._tables.held(fingerprint)

    def keyed(self, run_id: str, key: str) -> Request | None:
        return self._tables.keyed(run_id, key)

    def with_effect(self, effect: str) -> Sequence[Request]:
        found = list[Request]()
        for request_id in self._tables.with_effect(effect):
            if request_id not in self._tables.rows:
                raise deleted(request_id)
            found.append(self._tables.request(request_id))
            if not self.verify(found[-1]):
                raise altered(request_id, is_start=True)
        return found

    def run(self, run_id: str, *, skip_locked: bool = False) -> RunRecord | None:  # noqa: ARG002  nothing is locked
        return self.runs.get(run_id) or self._tables.runs.get(run_id)

    def put_run(self, run: RunRecord, steps: Sequence[Step] = ()) -> None:
        if run != self.run(run.id):
            self.runs = {**self.runs, run.id: run}
        if steps:
            self.steps = {**self.steps, run.id: (*self.steps.get(run.id, ()), *steps)}

    def drop_steps(self, run_id: str) -> None:
        self.dropped = (*self.dropped, run_id)

    def keep(self) -> None:
        """Store everything in the tables."""
        tables = self._tables
        for run in self.runs.values():
            tables.put_run(run)
        for run_id, steps in self.steps.items():
            tables.add_steps(run_id, steps)
        for run_id in self.dropped:
            tables.drop_steps(run_id)
        if self.records:
            tables.put_records(self.sealed_records())

    def find_record(self, kind: str, key: str) -> RecordRow | None:
        if self.records and (kind, key) in self.records:
            return self.records[kind, key]
        return self._tables.find_record(kind, key) if kind in self._tables.records else None

    def record_keys(self, kind: str) -> Sequence[str]:
        keys = self._tables.records.get(kind, ())
        if not self.records:
            return sorted(keys) if keys else ()  # nearly every transaction asks this, and usually there is none
        mine = {key: row for (of, key), row in self.records.items() if of == kind}
        return sorted({key for key in keys if key not in mine} | {key for key, row in mine.items() if row is not None})

    def put_record(self, row: RecordRow) -> None:
        self.records = {**self.records, (row.kind, row.key): row}

    def drop_record(self, kind: str, key: str) -> None:
        self.records = {**self.records, (kind, key): None}

    def sealed_records(self) -> list[Written]:
        """Return the written records with encrypted bodies."""
        close = self._tables.seal.encrypt
        return [
            (kind, key, None, None) if row is None else row._replace(body=close(row.body, key, record_column(kind)))
            for (kind, key), row in self.records.items()
        ]
