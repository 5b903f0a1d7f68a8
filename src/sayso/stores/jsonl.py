"""Requests and runs in one file of JSON lines that is only added to: for one machine, and for reading with grep.

Each transaction is one line, synced before the verb returns. Who writes holds the lock beside the file; each process
keeps what the lines say in memory and reads only what was appended since. So a verb costs the same however long the
file is, but each process holds all of it, and reads all of it once: for long-lived stores SQLite is the better home.

Not for network file systems, whose locks cannot be trusted.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sayso import clock, errors
from sayso.model.entry import Anchor, Entry
from sayso.model.request import Request
from sayso.stores.base import Filter, Page, Store, Transaction
from sayso.stores.jsonl_file import JsonlFile
from sayso.stores.jsonl_state import JsonlState
from sayso.stores.jsonl_transaction import JsonlTransaction, step_column
from sayso.stores.memory_runs import RunShelf, ShelfReads
from sayso.stores.memory_slips import SlipReads, SlipShelf
from sayso.stores.run_verbs import Kept
from sayso.stores.seal import Seal
from sayso.stores.watch import Bell, Watched, Watcher
from sayso.stores.words import legible

__all__ = ["JsonlStore"]

T = TypeVar("T")

_TRIES = 3


class JsonlStore(Watched, ShelfReads, SlipReads, Store):
    """The store behind `jsonl:path`.

    Args:
        path: The file; it is made, mode 0600, with its folder, when something is written and it is not there.
        key: Seals arguments, answers, what is recorded of decisions and outcomes, people's words in the journal, and
            the steps of runs, and slips (see `sayso.stores.seal`).

    Raises:
        StoreError: One of its kinds, at the first use and not before.
    """

    def __init__(self, path: str | Path, *, key: str | None = None) -> None:
        self._path = Path(path).expanduser().absolute()
        self.url = f"jsonl:{self._path}"
        self.seal = Seal(key)
        self._file = JsonlFile(self._path)
        self._begin_process()
        _stores.add(self)

    def _begin_process(self) -> None:
        # Always taken in this order. Readers need only the second, so that none waits for another process.
        self._write_lock, self._state_lock = threading.Lock(), threading.Lock()
        self._bell = Bell()
        self._watcher = Watcher(self._bell, self._file.version, self._marks)
        self._begin_again()

    def _begin_again(self) -> None:
        self._file.rewind()
        self._state = JsonlState(self.seal)

    def after_fork(self) -> None:
        """Forget locks and files in a forked child: the parent's lock must not be let go, or kept, by its child."""
        self._file.close_all()
        self._begin_process()

    def close(self) -> None:
        with self._write_lock, self._state_lock:
            self._file.close_all()
            self._begin_again()
        self._bell.ring_all()

    # -- what the file says ------------------------------------------------------------------------------------

    @contextmanager
    def _now(self) -> Generator[JsonlState]:
        with self._state_lock:
            yield self._caught_up()

    def _caught_up(self) -> JsonlState:
        for tries_left in reversed(range(_TRIES)):
            if self._file.is_replaced():
                self._file.close()
                self._begin_again()
            try:
                self._read_on()
                break
            except errors.StoreCorruptError:
                # A writer may have cut off what it could not sync after it was read here: then all is read anew.
                if not tries_left:
                    raise
        return self._state

    def _read_on(self) -> None:
        is_whole = False
        try:
            for record in self._file.more():
                self._state.apply(record)
            is_whole = True
        except (LookupError, TypeError, ValueError) as error:
            raise errors.StoreCorruptError(
                f"{self._path}: line {self._file.number} says what this package never writes"
                f" ({type(error).__name__}); nothing was changed, restore the file or name another one"
            ) from error
        finally:
            if not is_whole:
                self._begin_again()

    # -- writing -----------------------------------------------------------------------------------------------

    def _transact(self, work: Callable[[Transaction], T | errors.SaysoError]) -> T:
        with self._write_lock, self._file.alone(), self._state_lock:
            tx = JsonlTransaction(self._caught_up(), self.seal)
            result = work(tx)
            record = tx.record()
            if record:
                self._write(record, tx.requests.values())
        if record.keys() - {"journal", "shapes", "slips"}:
            self._bell.ring(tx.requests)
        if isinstance(result, errors.SaysoError):
            raise result
        return result

    def _write(self, record: dict[str, object], requests: Iterable[Request]) -> None:
        is_known = False
        try:
            self._file.append(record)
            self._state.apply(record)
            for request in requests:
                self._state.remember(request)
            is_known = True
        finally:
            if not is_known:  # broken off, perhaps after it was written: the file says
                self._begin_again()

    def scrub(self) -> bool:
        with self._write_lock, self._file.alone(), self._state_lock:
            self._file.rewrite(self._caught_up().records())
            self._begin_again()
        return True

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, request_id: str) -> Request:
        with self._now() as state:
            return state.request(request_id)

    def find(self, fingerprint: str) -> Request | None:
        with self._now() as state:
            return state.held(fingerprint)

    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        with self._now() as state:
            return state.match(prefix, limit)

    def _due(self) -> Sequence[str]:
        with self._now() as state:
            return state.due(clock.microseconds(clock.now()))

    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        with self._now() as state:
            return state.page(wanted, cursor, limit, newest=newest)

    def count(self, wanted: Filter) -> int:
        with self._now() as state:
            return state.count(wanted)

    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        with self._now() as state:
            return state.journal(run_id, request_id, after, limit)

    def anchors(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[Anchor]:
        with self._now() as state:
            return state.anchors(run_id, after, limit)

    def legible(self, entry: Entry) -> Entry:
        return legible(entry, self.seal)

    def _marks(self, request_ids: Sequence[str]) -> dict[str, object]:
        with self._now() as state:
            return state.marks(request_ids)

    def _read_runs(self, read: Callable[[RunShelf], T]) -> T:
        with self._now() as state:
            return read(state.shelf)

    def _read_slips(self, read: Callable[[SlipShelf], T]) -> T:
        with self._now() as state:
            return read(state.slip_shelf)

    def get_run(self, run_id: str) -> Kept:
        kept = super().get_run(run_id)
        opened = (
            step._replace(body=self.seal.open(step.body, run_id, step_column(n, step.place)))
            for n, step in enumerate(kept.steps, 1)
        )
        return Kept(kept.run, tuple(opened))


_stores: weakref.WeakSet[JsonlStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
