"""A store of your own: everything in one JSON file, which is replaced at each change.

    python examples/json_store.py requests.json

It asks, decides and runs one call in that file. `docs/guides/write-a-store.md` says what a store must keep, and
`tests/project/test_examples.py` puts this one through the contract that ships with sayso.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import sayso
from sayso import clock, errors
from sayso.model.journal import Entry, RowDigests, chained, first_link
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.run import Step
from sayso.stores import codec
from sayso.stores.codec import RequestRow, Seal
from sayso.stores.memory_tables import Tables, TableStore, TableTransaction, run_of, run_values

SEAL = Seal()  # without a key it lets everything through


class Book(Tables):
    """What is in the file: rows of requests in the order they were asked, schemas, the journal, runs and records."""

    def __init__(self, text: str) -> None:
        super().__init__(SEAL)
        empty = {"requests": [], "schemas": {}, "journal": [], "runs": [], "records": []}
        content: dict[str, Any] = json.loads(text) if text else empty
        self.schemas = content["schemas"]
        for columns in content["requests"]:
            self.keep(RequestRow(*columns))
        for entry in content["journal"]:
            self.chains.setdefault(entry[0], []).append(Entry(*entry))
        for values, steps in content["runs"]:
            self.put_run(run_of(values))
            self.add_steps(values["id"], [Step(*step) for step in steps])
        self.put_records(content["records"])

    def text(self) -> str:
        journal = [entry for chain in self.chains.values() for entry in chain]
        runs = [(run_values(self.runs[run_id]), self.steps.get(run_id, [])) for run_id in self.run_ids]
        parts = {"requests": list(self.rows.values()), "schemas": self.schemas, "journal": journal, "runs": runs}
        return json.dumps(parts | {"records": self.all_records()})

    def keep(self, row: RequestRow) -> None:
        self.put(row, row.key_digest, row.effect_digest)

    def request(self, request_id: str) -> Request:
        if request_id not in self.rows:
            raise errors.RequestNotFoundError(request_id)
        return codec.request_of(self.rows[request_id], SEAL, self.schemas.__getitem__)

    def row_digests_of(self, request_id: str) -> RowDigests:
        return codec.digests_of(self.rows[request_id], SEAL)

    def is_due(self, row: RequestRow, now: datetime) -> bool:
        return row.ends_at is not None and row.ends_at <= clock.microseconds(now)


class Change(TableTransaction):
    """What a verb does to the book, which is thrown away where it fails."""

    def __init__(self, book: Book) -> None:
        super().__init__(book)
        self.book, self.has_changed = book, False

    def insert(self, transition: Transition) -> None:
        values, _ = codec.insert_values(transition.request, SEAL, transition.detail)
        self._write(transition, RequestRow(*values, ""))

    def update(self, transition: Transition) -> None:
        request, before = transition.request, self.load(transition.request.id)
        if not self.verify(before):
            raise codec.altered(request.id)
        old = self.book.rows[request.id]
        again, progress, _ = codec.update_values(old, before, request, SEAL, transition.detail)
        self._write(transition, old._replace(**again, **dict(zip(codec.PROGRESS_COLUMNS, progress, strict=True))))

    def _write(self, transition: Transition, row: RequestRow) -> None:
        request, event, by, channel, detail = transition
        link = self._append(request.run_id, request.id, event, by, channel, detail)
        self.book.schemas[codec.schema_id(request.subject.schema)] = request.subject.schema
        self.book.keep(row._replace(link=link))

    def verify(self, request: Request) -> bool:
        chain = self.book.chains.get(request.run_id, ())
        newest = next((entry for entry in reversed(chain) if entry.request_id == request.id), None)
        return codec.verify_row(self.book.rows[request.id], newest and (newest.link, newest.detail), SEAL)

    def note(self, run_id: str, event: str, by: Any, channel: str, detail: dict[str, Any]) -> None:
        self._append(run_id, "", event, by, channel, detail)

    def newest(self, run_id: str) -> Entry | None:
        return self.book.newest(run_id)

    def _append(self, run_id: str, request_id: str, event: str, by: Any, channel: str, detail: Any) -> str:
        chain = self.book.chains.setdefault(run_id, [])
        before = chain[-1].link if chain else first_link(run_id)
        at, text = clock.microseconds(self.now()), json.dumps(detail, sort_keys=True, separators=(",", ":"))
        entry = chained(before, run_id, len(chain) + 1, at, request_id, event, by.qualified, channel, text)
        chain.append(entry)
        self.has_changed = True
        return entry.link


class FileStore(TableStore):
    """Requests, runs and records in one JSON file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.url = f"file:{self.path}"
        self._lock = threading.RLock()

    def _transact(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with self._alone():
            book = self._tables()
            change = Change(book)
            result = work(change, *args, **options)  # what it raises leaves the file as it was
            if change.has_changed or change.runs or change.steps or change.dropped or change.records:
                change.keep()
                self._replace(book.text())
        if isinstance(result, errors.SaysoError):  # a refusal that it returns is raised after the commit
            raise result
        return result

    @contextmanager
    def _alone(self) -> Iterator[None]:
        descriptor = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _tables(self) -> Book:
        return Book(self.path.read_text(encoding="utf-8") if self.path.exists() else "")

    def _replace(self, text: str) -> None:
        new = Path(f"{self.path}.new")
        with os.fdopen(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(folder)  # durable before the verb returns
        os.close(folder)

    def _version(self) -> tuple[int, int]:
        if not self.path.exists():
            return 0, 0
        known = self.path.stat()
        return known.st_ino, known.st_mtime_ns

    def watch(self, request_id: str, wake: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002  one file holds all
        return self.watch_all(wake)

    def watch_all(self, wake: Callable[[], None]) -> Callable[[], None]:
        is_over, before = threading.Event(), self._version()

        def look() -> None:  # a thread for each waiter; sayso's own stores have one for all
            seen = before
            while not is_over.wait(0.02):
                if (now := self._version()) != seen:
                    seen = now
                    wake()

        threading.Thread(target=look, daemon=True).start()
        return is_over.set

    def close(self) -> None:
        pass


def main() -> None:
    sayso.configure(store=FileStore(sys.argv[1]))

    @sayso.gate(wait="raise")
    def pay(amount: int) -> str:
        return f"paid {amount}"

    try:
        pay(80)
    except sayso.ConfirmationRequired as held:
        sayso.Review().approve(held.confirmation_id)
    print(pay(80))


if __name__ == "__main__":
    main()
