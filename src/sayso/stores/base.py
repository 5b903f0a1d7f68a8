"""The contract of a store: `Store` joins the verbs of `program`, `review`, `grants` and `records`.

A verb is one transaction: it reads, checks with `sayso.model.lifecycle`, and writes the change and its journal entry.
The change is durable when the verb returns. If the verb raises `DecisionRefusedError` or `StartRefusedError`, nothing
has changed, with one exception: a request found past its end is stored as `expired`. Times are compared inside the
transaction, by the store's clock (`Transaction.now`).

A new store implements `Transaction`, `_transact` and the readers, and must pass `sayso.testing.StoreContract`. `joined`
runs a function that calls several verbs in one transaction, so that what they write becomes durable together or not at
all. It requires a store whose reads, during a work, see what its transaction wrote.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast

from sayso import errors
from sayso.stores.filter import Filter, Page
from sayso.stores.grants import CHAIN, STOP, GrantVerbs, Stop, stop_in_entry, stop_of
from sayso.stores.program import ProgramStore, RequestStore, Unwatch
from sayso.stores.records import RecordVerbs
from sayso.stores.review import PeopleVerbs, ReviewStore, rows_of
from sayso.stores.transaction import ESCALATION, RESULT, Transaction
from sayso.stores.watching import Bell

__all__ = [
    "Filter",
    "GroupCommit",
    "Page",
    "ProgramStore",
    "RequestStore",
    "ReviewStore",
    "Store",
    "Transaction",
    "Unwatch",
    "Verb",
    "joined",
    "result_of",
]


T = TypeVar("T")
_MOST = 256  # verbs in one commit


class Store(ProgramStore, GrantVerbs, PeopleVerbs):
    """Stores requests, runs, grants and records."""

    @abstractmethod
    def _due(self) -> Sequence[str]:
        """Return the ids of requests that have reached their end, and of all that are running."""

    def together(self, works: Sequence[Callable[[Store], T]]) -> Sequence[T | BaseException]:
        """Run several independent works; durable on return.

        Each gets this store, or a view of it in which the verbs of one work are a single transaction, and sees what the
        works before it wrote. A store whose commits are expensive commits many works at once. A work may run again if
        it conflicts with another process's write; only its last result counts.

        Returns:
            For each work its result, or the exception that it raised; the other works are not affected.
        """
        found: list[T | BaseException] = []
        for work in works:
            try:
                found.append(work(self))
            except Exception as error:  # noqa: BLE001  the exception belongs to this work alone
                found.append(error)
        return found

    def _kept_result(self, request_id: str) -> str | None:
        record = self.record(RESULT, request_id)
        text = None if record is None else record.body.get("text")
        return text if isinstance(text, str) else None

    def stopped(self) -> Stop | None:
        """Return the stop; None if calls can start."""
        record = self.record(STOP, STOP)
        if record is not None:
            return stop_of(record)
        # The record may have been deleted by hand; then only the newest entry of the chain tells.
        newest = deque(rows_of(self, run_id=CHAIN), maxlen=1)
        return stop_in_entry(newest[0] if newest else None)

    def sweep(self) -> int:
        """See `RequestStore.sweep`."""
        changed = 0
        for request_id in self._due():
            with _leaving_altered("settled"):
                before = self.get(request_id)
                changed += self.settle(request_id).state is not before.state
        for record in self.records(ESCALATION, due_by=self.now()):
            with _leaving_altered("escalated"):
                before, now = self.get(record.key), self.settle(record.key)
                self.drop(ESCALATION, record.key)  # only after the write: if this is interrupted, it happens again
                changed += now.escalated_at is not before.escalated_at
        return changed


class Verb:
    """A caller's verb that waits for a commit, which it may share with others.

    Attributes:
        work: The verb, as a function of a transaction.
        result, error: What it returned or raised.
        is_done: Whether it has one of these, or nobody waits for it any more.
    """

    __slots__ = ("error", "is_done", "result", "work")

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work, self.is_done = work, False
        self.result: Any = None
        self.error: BaseException | None = None


class GroupCommit(ABC):
    """The part of a store in which verbs that wait for each other share a commit: whoever gets the lock leads."""

    _bell: Bell
    _queue: deque[Any]
    _write_lock: threading.Lock

    @abstractmethod
    def _commit(self, batch: Sequence[Any]) -> Iterable[str]:
        """Run verbs in one transaction, and return what they changed; several may be left undone, to be run alone."""

    def _wait(self, verbs: Sequence[Verb]) -> None:
        """Wait until verbs are done, in commits that they share with others."""
        changes = list[Iterable[str]]()
        try:
            self._queue.extend(verbs)
            with self._write_lock:
                while not all(verb.is_done for verb in verbs):  # the previous holder of the lock may have run them
                    self._lead(changes)
        finally:
            for verb in verbs:
                verb.is_done = True  # interrupted: nobody waits for it any more
            for changed in changes:  # without the lock: who is woken may call a verb, or fork
                self._bell.ring(changed)

    def _lead(self, changes: list[Iterable[str]]) -> None:
        """Commit the waiting verbs. Each leaves the queue when it is done, so that an interrupted leader loses none."""
        batch = [verb for verb in list(self._queue)[:_MOST] if not verb.is_done]
        if len(batch) > 1:
            changes.append(self._commit(batch))
        changes.extend(self._commit([verb]) for verb in batch if not verb.is_done)
        while self._queue and self._queue[0].is_done:
            self._queue.popleft()


@contextmanager
def _leaving_altered(done: str) -> Generator[None]:
    """Skip a request whose row was altered or cannot be read, and log a warning."""
    try:
        yield
    except errors.StoreCorruptError as error:
        logging.getLogger("sayso").warning("a request was not %s: %s", done, error)


class _Refused(NamedTuple):
    """An exception of a work that rolls nothing back: it wrote nothing before, or a verb refused and recorded that."""

    error: BaseException


class _View:
    """A store whose verbs join a transaction; its reads are unchanged."""

    def __init__(self, store: Store, tx: Transaction) -> None:
        self._store, self._tx = store, tx
        self.has_written, self.refusal = False, cast("errors.SaysoError | None", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(type(self._store), name).__get__(self) if name in _VERBS else getattr(self._store, name)

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        self.has_written = True
        result = work(self._tx, *args, **options)
        if isinstance(result, errors.SaysoError):
            self.refusal = result
            raise result
        return result


Store.register(_View)
_VERBS = frozenset(
    name
    for base in (RequestStore, RecordVerbs, GrantVerbs, PeopleVerbs, ReviewStore, ProgramStore)
    for name, member in vars(base).items()
    if isinstance(member, FunctionType) and not name.startswith("__") and not hasattr(member, "__isabstractmethod__")
)


def joined(store: Store, work: Callable[[Store], T]) -> Callable[[Transaction], T | _Refused]:
    """Convert a work on a store to one on an open transaction; pass its result to `result_of`."""

    def inside(tx: Transaction) -> T | _Refused:
        view = _View(store, tx)
        try:
            return work(cast("Store", view))
        except Exception as error:
            # What was written before a refusal stays, as if each verb were its own transaction. Any other error rolls
            # the transaction back.
            if view.has_written and error is not view.refusal:
                raise
            return _Refused(error)

    return inside


def result_of(result: T | _Refused) -> T | BaseException:
    """Return the result of a work, or the exception that it raised."""
    return result.error if isinstance(result, _Refused) else result
