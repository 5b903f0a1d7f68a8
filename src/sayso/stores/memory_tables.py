"""In-memory tables of runs and records, shared by the `memory:` and `jsonl:` stores."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sayso import errors
from sayso.clock import instant, microseconds
from sayso.model.run import RunRecord, RunSnapshot, RunState, Step
from sayso.stores import worker
from sayso.stores.codec import Seal
from sayso.stores.filter import RunFilter, read_cursor
from sayso.stores.records import RecordRow

__all__ = [
    "RecordTable",
    "RunTable",
    "TableReads",
    "TableWrites",
    "record_column",
    "run_of",
    "run_values",
    "step_column",
]

T = TypeVar("T")


class RunTable:
    """All runs that a store keeps.

    Args:
        is_decided: Says whether the request with this id lets a run that waits for it go on.
    """

    def __init__(self, is_decided: Callable[[str], bool]) -> None:
        self._is_decided = is_decided
        self._runs: dict[str, RunRecord] = {}
        self._ids: list[str] = []  # in the order in which they were first kept; cursors are places here
        self._steps: dict[str, list[Step]] = {}
        self._waits: dict[str, dict[str, str]] = {}
        self._open: dict[str, None] = {}  # those that have not ended

    def find(self, run_id: str) -> RunRecord | None:
        """Return a run, if it is kept."""
        return self._runs.get(run_id)

    def count_steps(self, run_id: str) -> int:
        """Return how many steps of a run are kept."""
        return len(self._steps.get(run_id, ()))

    def put(self, run: RunRecord) -> None:
        """Keep a run, new or changed."""
        if run.id not in self._runs:
            self._ids.append(run.id)
        self._runs[run.id] = run
        if run.state is RunState.ENDED:
            self._open.pop(run.id, None)
        else:
            self._open[run.id] = None

    def add(self, run_id: str, steps: Sequence[Step]) -> None:
        """Add steps to a run."""
        self._steps.setdefault(run_id, []).extend(steps)
        waits = self._waits.setdefault(run_id, {})
        for step in steps:
            waits.pop(step.place, None)
            if step.waits is not None:
                waits[step.place] = step.waits

    def drop(self, run_id: str) -> None:
        """Take all steps of a run away."""
        self._steps.pop(run_id, None)
        self._waits.pop(run_id, None)

    def kept(self, run_id: str) -> RunSnapshot:
        """Return a run and its steps; raises `RunNotFoundError`."""
        run = self._runs.get(run_id)
        if run is None:
            raise errors.RunNotFoundError(run_id)
        return RunSnapshot(run, tuple(self._steps.get(run_id, ())))

    def everything(self) -> Iterator[RunSnapshot]:
        """Yield all runs in the order in which they were first kept."""
        return map(self.kept, self._ids)

    def page(self, wanted: RunFilter, cursor: str | None, limit: int) -> tuple[Sequence[RunRecord], str | None]:
        """Return runs newest first, as `sayso.stores.base.ProgramStore.runs` says."""
        before = read_cursor(cursor)
        end = len(self._ids) if before is None else min(before - 1, len(self._ids))
        found: list[tuple[int, RunRecord]] = []
        for place in range(end, 0, -1):
            run = self._runs[self._ids[place - 1]]
            if _passes(run, wanted):
                found.append((place, run))
            if len(found) > limit:
                break
        return [run for _, run in found[:limit]], str(found[limit - 1][0]) if len(found) > limit else None

    def ready(self, names: Collection[str], limit: int) -> Sequence[str]:
        """Return the ids of runs that could go on, as `sayso.stores.base.ProgramStore.ready_runs` says."""
        wanted = frozenset(names)
        runs = (run for run in map(self._runs.__getitem__, self._open) if run.name in wanted)
        found = [run for run in runs if self._is_ready(run)]
        return [run.id for run in sorted(found, key=lambda run: run.updated_at)[:limit]]

    def _is_ready(self, run: RunRecord) -> bool:
        match run.state:
            case RunState.PAUSED:
                return any(map(self._is_decided, self._waits.get(run.id, {}).values()))
            case RunState.RUNNING:
                return worker.is_free(run.holder)
            case _:
                return True


def _passes(run: RunRecord, wanted: RunFilter) -> bool:
    return (not wanted.states or run.state in wanted.states) and wanted.name in {None, run.name}


def run_values(run: RunRecord) -> dict[str, Any]:
    """Return a run as plain values, for JSON."""
    times = {"created_at": microseconds(run.created_at), "updated_at": microseconds(run.updated_at)}
    return {"id": run.id, "name": run.name, "kind": run.kind, "state": run.state.value, "holder": run.holder, **times}


def run_of(values: Mapping[str, Any]) -> RunRecord:
    """Return the run whose values these are; raises `LookupError`, `TypeError` or `ValueError` where they are none."""
    fields = dict(values)
    for name in ("created_at", "updated_at"):
        fields[name] = instant(fields[name])
    fields["state"] = RunState(fields["state"])
    return RunRecord(**fields)


Written = tuple[str, str, str | None, int | None]  # kind, key, body as it is kept (None: dropped), due


def record_column(kind: str) -> str:
    """Return the place for which the body of a record is sealed, together with its key."""
    return f"record/{kind}"


def step_column(n: int, place: str) -> str:
    """Return the place for which a step's body is sealed, together with its run."""
    return f"step/{n}/{place}"


class RecordTable:
    """All records that a store keeps.

    Args:
        seal: Seals and opens bodies.
    """

    def __init__(self, seal: Seal) -> None:
        self.seal = seal
        self._kinds: dict[str, dict[str, RecordRow]] = {}

    def find(self, kind: str, key: str) -> RecordRow | None:
        """Return a record, its body opened."""
        row = self._kinds.get(kind, {}).get(key)
        return None if row is None else self._opened(row)

    def keys(self, kind: str) -> Sequence[str]:
        """Return the keys of a kind."""
        found = self._kinds.get(kind)
        return sorted(found) if found else ()  # asked in nearly every transaction, and mostly there is none

    def rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        """Return records, as `sayso.stores.records.RecordVerbs.records` says."""
        rows = self._kinds.get(kind, {}).values()
        if due_by is None:
            found = heapq.nsmallest(limit, (row for row in rows if row.key > after), key=lambda row: row.key)
        else:
            dated = ((row.due, row.key, row) for row in rows if row.due is not None and row.due <= due_by)
            found = [row for _, _, row in heapq.nsmallest(limit, dated)]
        return [self._opened(row) for row in found]

    def apply(self, written: Iterable[Written]) -> None:
        """Take in what a transaction wrote; raises `LookupError`, `TypeError` or `ValueError` where it is unusable."""
        for kind, key, body, due in written:
            if body is None:
                self._kinds.get(kind, {}).pop(key, None)  # perhaps put and dropped in one transaction
            else:
                self._kinds.setdefault(kind, {})[key] = RecordRow(kind, key, body, due)

    def everything(self) -> list[RecordRow]:
        """Return all records, their bodies as they are kept."""
        return [row for kind in self._kinds.values() for row in kind.values()]

    def _opened(self, row: RecordRow) -> RecordRow:
        return row._replace(body=self.seal.open(row.body, row.key, record_column(row.kind)))


class TableReads(ABC):
    """The part of a store that reads runs and records out of tables."""

    @abstractmethod
    def _read_runs(self, read: Callable[[RunTable], T]) -> T:
        """Read the table as it stands now, alone."""

    @abstractmethod
    def _read_records(self, read: Callable[[RecordTable], T]) -> T:
        """Read the table as it stands now, alone."""

    def get_run(self, run_id: str) -> RunSnapshot:
        """Do as `sayso.stores.base.ProgramStore.get_run` says."""
        return self._read_runs(lambda table: table.kept(run_id))

    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        """Do as `sayso.stores.base.ProgramStore.runs` says."""
        return self._read_runs(lambda table: table.page(wanted, cursor, limit))

    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        """Do as `sayso.stores.base.ProgramStore.ready_runs` says."""
        return self._read_runs(lambda table: table.ready(names, limit))

    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        return self._read_records(lambda table: table.find(kind, key))

    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        return self._read_records(lambda table: table.rows(kind, due_by, after, limit))


class TableWrites:
    """What one transaction writes of runs and records; nothing is kept before it has succeeded.

    Attributes:
        runs: Those that were written, by id.
        steps: Those that were added, by id of the run.
        dropped: Ids of the runs whose steps were taken away.
        records: Those that were written, by kind and key, as they are now; None where one was dropped.
    """

    def __init__(self, run_table: RunTable, record_table: RecordTable) -> None:
        self._run_table, self._record_table = run_table, record_table
        self.runs: dict[str, RunRecord] = {}
        self.steps: dict[str, list[Step]] = {}
        self.dropped: list[str] = []
        self.records: dict[tuple[str, str], RecordRow | None] = {}

    def run(self, run_id: str) -> RunRecord | None:
        """Return a run, as this transaction left it."""
        return self.runs.get(run_id) or self._run_table.find(run_id)

    def put_run(self, run: RunRecord) -> None:
        """Write a run."""
        self.runs[run.id] = run

    def add_steps(self, run_id: str, steps: Sequence[Step]) -> None:
        """Add steps."""
        self.steps.setdefault(run_id, []).extend(steps)

    def drop_steps(self, run_id: str) -> None:
        """Take all steps of a run away."""
        self.dropped.append(run_id)

    def changed_runs(self) -> set[str]:
        """Return the ids of the runs that were written, or whose steps were taken away."""
        return self.runs.keys() | self.steps.keys() | set(self.dropped)

    def keep(self) -> None:
        """Put everything on the tables."""
        for run in self.runs.values():
            self._run_table.put(run)
        for run_id, steps in self.steps.items():
            self._run_table.add(run_id, steps)
        for run_id in self.dropped:
            self._run_table.drop(run_id)
        if self.records:
            self._record_table.apply(self.sealed_records())

    def find_record(self, kind: str, key: str) -> RecordRow | None:
        """Return a record, as this transaction left it."""
        if self.records and (kind, key) in self.records:
            return self.records[kind, key]
        return self._record_table.find(kind, key)

    def record_keys(self, kind: str) -> Sequence[str]:
        """Return the keys of a kind, as this transaction left them."""
        keys = self._record_table.keys(kind)
        if not self.records:
            return keys
        mine = {key: row for (of, key), row in self.records.items() if of == kind}
        return sorted({key for key in keys if key not in mine} | {key for key, row in mine.items() if row is not None})

    def put_record(self, row: RecordRow) -> None:
        """Write a record."""
        self.records[row.kind, row.key] = row

    def drop_record(self, kind: str, key: str) -> None:
        """Take a record away."""
        self.records[kind, key] = None

    def sealed_records(self) -> list[Written]:
        """Return what was written, ready to be kept."""
        close = self._record_table.seal.close
        return [
            (kind, key, None, None) if row is None else row._replace(body=close(row.body, key, record_column(kind)))
            for (kind, key), row in self.records.items()
        ]
