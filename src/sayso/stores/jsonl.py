"""The JSON-lines store: one append-only file, for one machine and for reading with grep.

`JsonlState` is the content of the file in memory, `JsonlTransaction` collects one line, and `JsonlStore` appends it and
syncs the file before a verb returns. The file itself is in `sayso.stores.jsonl_file`. Each process reads the whole file
once and keeps it in memory, so use SQLite for long-lived stores. Do not use this store on network file systems, whose
locks are unreliable.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from sayso import clock, errors
from sayso.clock import microseconds
from sayso.model.canonical.json_tree import dumps_sorted
from sayso.model.journal import Entry, RowDigests, chained, first_link
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.model.run import RunSnapshot, Step
from sayso.stores import codec
from sayso.stores.codec import RequestRow, Seal, digests_of, legible, request_of, sealed, step_column, verify_row
from sayso.stores.jsonl_file import JsonlFile
from sayso.stores.memory_tables import Tables, TableStore, TableTransaction, run_of, run_values
from sayso.stores.watching import Bell, Watched, Watcher
from sayso.stores.workers import forget_after_fork

_NOTHING: dict[str, Any] = dict.fromkeys(RequestRow._fields)


class JsonlState(Tables):
    """Requests, the journal, runs and records, as read from the file.

    Attributes:
        schemas: Texts of schemas by digest.
    """

    def __init__(self, seal: Seal) -> None:
        super().__init__(seal)
        self.schemas: dict[str, str] = {}
        self._known: dict[str, Request] = {}
        self._verified = set[str]()  # requests that are known to match the journal

    # -- writing -----------------------------------------------------------------------------------------------

    def apply(self, line: Mapping[str, Any]) -> None:
        """Apply a line; raises `LookupError`, `TypeError` or `ValueError` if it is not valid."""
        self.schemas.update(line.get("schemas", {}))
        for columns in line.get("asked", ()):
            self._put(RequestRow(**{**_NOTHING, **columns}))
        for columns in line.get("changed", ()):
            self._put(self.rows[columns["id"]]._replace(**columns))
        for entry in line.get("journal", ()):
            self.chains.setdefault(entry[0], []).append(Entry(*entry))
            self._verified.discard(entry[3])
            if entry[4] == "asked" and entry[3] not in self.rows:  # somebody rewrote the file without its row
                detail = dict(json.loads(entry[7]))
                self.put_asked(entry[3], detail.get("key"), detail.get("effect"))
        for run in line.get("runs", ()):
            self.put_run(run_of(run))
        for run_id, _, place, body, waits in line.get("steps", ()):
            self.add_steps(run_id, (Step(place, body, waits),))
        for run_id in line.get("dropped", ()):
            self.drop_steps(run_id)
        self.put_records(line.get("records", ()))

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield lines that describe the whole state, and nothing that is no longer true."""
        yield {"schemas": self.schemas}
        for row in self.rows.values():
            yield {"asked": [{name: value for name, value in row._asdict().items() if value is not None}]}
        for chain in self.chains.values():
            yield {"journal": chain}
        for run in map(self.runs.__getitem__, self.run_ids):
            steps = self.steps.get(run.id, ())
            written = [(run.id, n, step.place, step.body, step.waits) for n, step in enumerate(steps, 1)]
            yield {"runs": [run_values(run)], "steps": written}
        yield {"records": self.all_records()}

    def _put(self, row: RequestRow) -> None:
        self.put(row, row.key_digest, row.effect_digest)
        self._known.pop(row.id, None)
        self._verified.discard(row.id)

    # -- reading -----------------------------------------------------------------------------------------------

    def request(self, request_id: str) -> Request:
        known = self._known.get(request_id)
        if known is None:
            row = self.rows.get(request_id)
            if row is None:
                raise errors.RequestNotFoundError(request_id)
            known = self._known[request_id] = request_of(row, self.seal, self._schema)
        return known

    def _schema(self, digest: str) -> str:
        try:
            return self.schemas[digest]
        except KeyError:
            raise errors.StoreCorruptError(f"the schema {digest[:12]} of a request is missing") from None

    def verify(self, request_id: str) -> bool:
        """Return whether a request matches its newest journal entry."""
        if request_id in self._verified:
            return True
        row = self.rows[request_id]
        newest = next((e for e in reversed(self.chains.get(row.run_id, ())) if e.request_id == request_id), None)
        if not verify_row(row, None if newest is None else (newest.link, newest.detail), self.seal):
            return False
        self._verified.add(request_id)
        return True

    def head(self, run_id: str) -> tuple[int, str]:
        """Return the position and link of the last entry of a chain."""
        chain = self.chains.get(run_id)
        return (chain[-1].seq, chain[-1].link) if chain else (0, first_link(run_id))

    def row_digests_of(self, request_id: str) -> RowDigests:
        return digests_of(self.rows[request_id], self.seal)

    def is_due(self, row: RequestRow, now: datetime) -> bool:
        return row.ends_at is not None and row.ends_at <= microseconds(now)


class JsonlTransaction(TableTransaction):
    """The verbs' view of the state, while the store has the file's lock.

    Attributes:
        requests: The written requests by id, with their current values.
    """

    def __init__(self, state: JsonlState, seal: Seal) -> None:
        super().__init__(state)
        self._state, self._seal = state, seal
        self._line: dict[str, Any] = {}
        self._heads: dict[str, tuple[int, str]] = {}
        self._rows: dict[str, codec.RequestRow] = {}
        self.requests: dict[str, Request] = {}

    def line(self) -> dict[str, Any]:
        """Return the content of the line; empty if nothing was written."""
        if self.runs:
            self._line["runs"] = [run_values(run) for run in self.runs.values()]
        steps = [
            (run_id, n, step.place, self._seal.encrypt(step.body, run_id, step_column(n, step.place)), step.waits)
            for run_id, added in self.steps.items()
            for n, step in enumerate(added, len(self._state.steps.get(run_id, ())) + 1)
        ]
        if steps:
            self._line["steps"] = steps
        if self.dropped:
            self._line["dropped"] = self.dropped
        if self.records:
            self._line["records"] = self.sealed_records()
        return self._line

    def insert(self, transition: Transition) -> None:
        request, subject = transition.request, transition.request.subject
        values, _ = codec.insert_values(request, self._seal, transition.detail)
        row = RequestRow._make((*values, ""))
        entry = self._entry(transition, row)
        key = codec.schema_id(subject.schema)
        if key not in self._state.schemas:
            self._line.setdefault("schemas", {})[key] = subject.schema
        columns = row._replace(link=entry.link)._asdict().items()
        written = {name: value for name, value in columns if value is not None}
        self._line.setdefault("asked", []).append(written)

    def update(self, transition: Transition) -> None:
        request = transition.request
        before = self.requests.get(request.id) or self._state.request(request.id)
        if not self.verify(before):
            raise codec.altered(request.id)
        old = self._rows.get(request.id) or self._state.rows[request.id]
        again, progress, _ = codec.update_values(old, before, request, self._seal, transition.detail)
        changed = again | dict(zip(codec.PROGRESS_COLUMNS, progress, strict=True))
        row = old._replace(**changed)
        entry = self._entry(transition, row)
        self._line.setdefault("changed", []).append({"id": request.id, **changed, "link": entry.link})

    def verify(self, request: Request) -> bool:
        return request.id in self._rows or self._state.verify(request.id)

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        self._chained(run_id, "", event, by, channel, detail)

    def newest(self, run_id: str) -> Entry | None:
        written = (entry for entry in reversed(self._line.get("journal", ())) if entry.run_id == run_id)
        return next(written, None) or self._state.newest(run_id)

    def _entry(self, transition: Transition, row: codec.RequestRow) -> Entry:
        request, event, by, channel, detail = transition
        self._rows[request.id], self.requests[request.id] = row, request
        return self._chained(request.run_id, request.id, event, by, channel, detail)

    def _chained(
        self, run_id: str, request_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> Entry:
        seq, before = self._heads.get(run_id) or self._state.head(run_id)
        if self._seal.has_key:
            detail = sealed(detail, request_id or run_id, self._seal)
        at, text = clock.microseconds(clock.now()), dumps_sorted(detail)
        entry = chained(before, run_id, seq + 1, at, request_id, event, by.qualified, channel, text)
        self._heads[run_id] = entry.seq, entry.link
        self._line.setdefault("journal", []).append(entry)
        return entry


T = TypeVar("T")

_TRIES = 3


class JsonlStore(Watched, TableStore):
    """The store behind `jsonl:path`.

    Args:
        path: The file. It is created with mode 0600, and its folder too, at the first write.
        key: Encrypts arguments, answers, the recorded parts of decisions and outcomes, people's words in the journal,
            the steps of runs, and records (see `sayso.stores.codec`).

    Raises:
        StoreError: Or a subclass, at the first use and not before.
    """

    def __init__(self, path: str | Path, *, key: str | None = None) -> None:
        self._path = Path(path).expanduser().absolute()
        self.url = f"jsonl:{self._path}"
        self.seal = Seal(key)
        # Symbolic links resolved: the lock file is named after the file, so all processes must use the same name.
        self._file = JsonlFile(Path(os.path.realpath(self._path)))
        self.after_fork()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """Begin with new locks and files in a forked child, which must neither release nor keep the parent's lock."""
        self._file.close_all()
        # Always taken in this order. Readers need only the second lock, so that they do not wait for other processes.
        self._write_lock, self._lock = threading.Lock(), threading.Lock()
        self._bell = Bell()
        self._watcher = Watcher(self._bell, self._file.version, self._marks)
        self._begin_again()

    def _begin_again(self) -> None:
        self._file.rewind()
        self._state = JsonlState(self.seal)

    def close(self) -> None:
        with self._write_lock, self._lock:
            self._file.close_all()
            self._begin_again()
        self._bell.ring_all()

    # -- what the file says ------------------------------------------------------------------------------------

    def _tables(self) -> JsonlState:
        for tries_left in reversed(range(_TRIES)):
            if self._file.is_replaced():
                self._file.close()
                self._begin_again()
            try:
                self._read_on()
                break
            except errors.StoreCorruptError:
                # A writer may have cut off what it could not sync after it was read here: read everything again.
                if not tries_left:
                    raise
        return self._state

    def _read_on(self) -> None:
        is_whole = False
        try:
            for line in self._file.more():
                self._state.apply(line)
            is_whole = True
        except (LookupError, TypeError, ValueError) as error:
            raise errors.StoreCorruptError(
                f"{self._path}: line {self._file.number} has content that sayso never writes"
                f" ({type(error).__name__}); nothing was changed, restore the file or name another one"
            ) from error
        finally:
            if not is_whole:
                self._begin_again()

    # -- writing -----------------------------------------------------------------------------------------------

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        with self._write_lock, self._file.alone(), self._lock:
            tx = JsonlTransaction(self._tables(), self.seal)
            result = work(tx, *args, **options)
            line = tx.line()
            if line:
                try:
                    self._file.append(line)
                    self._state.apply(line)
                except BaseException:  # interrupted, perhaps after the write: the file tells
                    self._begin_again()
                    raise
        if line.keys() - {"journal", "schemas", "records"}:
            self._bell.ring(tx.requests)
        if isinstance(result, errors.SaysoError):
            raise result
        return result

    def scrub(self) -> bool:
        with self._write_lock, self._file.alone(), self._lock:
            self._file.rewrite(self._tables().lines())
            self._begin_again()
        return True

    # -- reading -----------------------------------------------------------------------------------------------

    def legible(self, entry: Entry) -> Entry:
        return legible(entry, self.seal)

    def _listen(self, *_: object) -> None:
        self._watcher.ensure()

    def _marks(self, request_ids: Sequence[str]) -> dict[str, object]:
        with self._lock:
            rows = self._tables().rows
            return {one: rows[one].link for one in request_ids if one in rows}

    def get_run(self, run_id: str) -> RunSnapshot:
        kept = super().get_run(run_id)
        opened = (
            step._replace(body=self.seal.decrypt(step.body, run_id, step_column(n, step.place)))
            for n, step in enumerate(kept.steps, 1)
        )
        return RunSnapshot(kept.run, tuple(opened))
