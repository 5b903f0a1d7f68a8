"""The store in this process's memory, for tests, notebooks and throw-away programs.

It is the reference implementation of the contract: one lock and plain dictionaries. Nothing survives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from sayso import clock, errors
from sayso.model.canonical.tags import dumps_sorted
from sayso.model.journal import Anchor, Entry, chained, first_link
from sayso.model.lifecycle import Transition, is_due
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.stores.base import Filter, Page, Store, Transaction, Unwatch
from sayso.stores.codec import Seal, asked_digest, asked_values
from sayso.stores.filter import NOT_DECIDED, matches, read_cursor
from sayso.stores.memory_tables import RecordTable, RunTable, TableReads, TableWrites
from sayso.stores.watch import Bell, forget_after_fork

__all__ = ["MemoryStore"]

T = TypeVar("T")

_OPEN = Seal()


class _Memory(TableWrites, Transaction):
    """Collects what a verb writes, so that a verb that fails half-way leaves nothing behind."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store.run_table, store.record_table)
        self._requests = store.requests
        self._holders = store.holders
        self._keys, self._effects = store.keys, store.effects
        self._chains = store.chains
        self.writes: list[Transition] = []
        self.notes: list[tuple[str, str, Identity, str, dict[str, Any]]] = []

    def now(self) -> datetime:
        return clock.now()

    def load(self, request_id: str) -> Request:
        try:
            return self._requests[request_id]
        except KeyError:
            raise errors.RequestNotFoundError(request_id) from None

    def holder(self, fingerprint: str) -> Request | None:
        request_id = self._holders.get(fingerprint)
        return None if request_id is None else self._requests[request_id]

    def keyed(self, run_id: str, key: str) -> Request | None:
        request_id = self._keys.get((run_id, key))
        return None if request_id is None else self._requests[request_id]

    def with_effect(self, effect: str) -> Sequence[Request]:
        return [self._requests[request_id] for request_id in self._effects.get(effect, ())]

    def update(self, transition: Transition) -> None:
        self.writes.append(transition)

    insert = update

    def verify(self, request: Request) -> bool:
        return self._requests.get(request.id) is request  # nobody else can have written here

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        self.notes.append((run_id, event, by, channel, detail))

    def newest(self, run_id: str) -> Entry | None:
        for chain, event, by, channel, detail in reversed(self.notes):
            if chain == run_id:
                at = clock.microseconds(clock.now())
                return Entry(run_id, 0, at, "", event, by.qualified, channel, dumps_sorted(detail), "")
        found = self._chains.get(run_id)
        return None if found is None else found.entries()[-1]


def _asked(request: Request) -> str:
    return asked_digest(asked_values(request, _OPEN), _OPEN)


class _Chain:
    """The journal of one run. Its links are computed when somebody reads them: in memory they prove nothing earlier."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._entries: list[Entry] = []
        self.rows: list[tuple[datetime, Request | str, str, Identity, str, dict[str, Any]]] = []

    def entries(self) -> list[Entry]:
        for at, about, event, by, channel, detail in self.rows[len(self._entries) :]:
            seq = len(self._entries) + 1
            before = self._entries[-1].link if self._entries else first_link(self._run_id)
            moment, request_id = clock.microseconds(at), about if isinstance(about, str) else about.id
            text = dumps_sorted(detail if isinstance(about, str) else detail | {"asked": _asked(about)})
            self._entries.append(
                chained(before, self._run_id, seq, moment, request_id, event, by.qualified, channel, text)
            )
        return self._entries

    def forget(self, request_id: str) -> None:
        """Keep no request with this id; its rows are written before."""
        self.entries()
        for place, (at, about, event, by, channel, detail) in enumerate(self.rows):
            if isinstance(about, Request) and about.id == request_id:
                self.rows[place] = (at, request_id, event, by, channel, detail)


class MemoryStore(TableReads, Store):
    """The store behind `memory:`."""

    blocks = False

    def __init__(self, url: str = "memory:") -> None:
        self.url = url
        self.requests: dict[str, Request] = {}
        self.holders: dict[str, str] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.effects: dict[str, list[str]] = {}
        self.run_table = RunTable(self._is_decided)
        self.record_table = RecordTable(_OPEN)
        self.chains: dict[str, _Chain] = {}
        self._places: dict[str, int] = {}  # of each request's last row in its chain
        self._lock = threading.RLock()
        self._bell = Bell()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """Forget lock and waiters in a forked child: their threads are not there any more."""
        self._lock = threading.RLock()
        self._bell = Bell()

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        with self._lock:
            tx = _Memory(self)
            result = work(tx, *args, **options)
            for transition in tx.writes:
                self._keep(transition)
            for run_id, event, by, channel, detail in tx.notes:
                self._add(run_id, "", event, by, channel, detail)
            if tx.runs or tx.steps or tx.dropped or tx.records:
                tx.keep()
        if not self._bell.is_idle and (tx.writes or tx.runs or tx.steps):
            self._bell.ring([transition.request.id for transition in tx.writes])
        if isinstance(result, errors.SaysoError):
            raise result
        return result

    def _keep(self, transition: Transition) -> None:
        request, event, by, channel, detail = transition
        before = self.requests.get(request.id)
        is_purged = before is not None and request.purged_at is not before.purged_at
        if is_purged:
            self.chains[request.run_id].forget(request.id)
        about = request if before is None or is_purged else request.id
        self._places[request.id] = self._add(request.run_id, about, event, by, channel, detail)
        self.requests[request.id] = request
        if before is None:
            if request.key is not None:
                self.keys[request.run_id, request.key] = request.id
            if request.effect is not None:
                self.effects.setdefault(request.effect, []).append(request.id)
        if request.holds:
            self.holders[request.fingerprint] = request.id
        elif self.holders.get(request.fingerprint) == request.id:
            del self.holders[request.fingerprint]

    def _add(
        self, run_id: str, about: Request | str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> int:
        chain = self.chains.get(run_id)
        if chain is None:
            chain = self.chains[run_id] = _Chain(run_id)
        chain.rows.append((clock.now(), about, event, by, channel, detail))
        return len(chain.rows) - 1

    def _read_runs(self, read: Callable[[RunTable], T]) -> T:
        with self._lock:
            return read(self.run_table)

    def _read_records(self, read: Callable[[RecordTable], T]) -> T:
        with self._lock:
            return read(self.record_table)

    def _is_decided(self, request_id: str) -> bool:
        request = self.requests.get(request_id)
        return request is not None and request.state not in NOT_DECIDED

    def _due(self) -> Sequence[str]:
        now = clock.now()
        with self._lock:
            return [r.id for r in self.requests.values() if r.state is State.RUNNING or is_due(r, now)]

    def get(self, request_id: str) -> Request:
        try:
            return self.requests[request_id]
        except KeyError:
            raise errors.RequestNotFoundError(request_id) from None

    def find(self, fingerprint: str) -> Request | None:
        with self._lock:
            request_id = self.holders.get(fingerprint)
            return None if request_id is None else self.requests[request_id]

    def find_key(self, run_id: str, key: str) -> Request | None:
        with self._lock:
            request_id = self.keys.get((run_id, key))
            return None if request_id is None else self.requests[request_id]

    def by_effect(self, effect: str) -> Sequence[Request]:
        with self._lock:
            return [self.requests[request_id] for request_id in self.effects.get(effect, ())]

    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        with self._lock:
            return list(islice((i for i in self.requests if i.startswith(prefix)), limit))

    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        with self._lock:
            # A request's place in the dictionary is the order in which it was asked, and never changes.
            rows = list(enumerate(self.requests.values(), 1))
        after = read_cursor(cursor)
        if newest:
            rows.reverse()
        beyond = [(n, r) for n, r in rows if after is None or (n < after if newest else n > after)]
        found = list(islice(((n, r) for n, r in beyond if matches(r, wanted)), limit + 1))
        more = len(found) > limit
        return Page(tuple(r for _, r in found[:limit]), str(found[limit - 1][0]) if more else None)

    def count(self, wanted: Filter) -> int:
        with self._lock:
            return sum(matches(request, wanted) for request in self.requests.values())

    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        with self._lock:
            chains = [chain for run, chain in self.chains.items() if run_id in {None, run}]
            rows = sorted(entry for chain in chains for entry in chain.entries())
        wanted = (e for e in rows if request_id is None or e.request_id == request_id)
        return list(islice((e for e in wanted if after is None or (e.run_id, e.seq) > after), limit))

    def anchors(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[Anchor]:
        with self._lock:
            found = sorted(i for i, r in self.requests.items() if i > after and run_id in {None, r.run_id})
            return [self._anchor(self.requests[i]) for i in found[:limit]]

    def _anchor(self, request: Request) -> Anchor:
        link = self.chains[request.run_id].entries()[self._places[request.id]].link
        return Anchor(request.id, request.run_id, request.state.value, link, _asked(request))

    def watch(self, request_id: str, wake: Callable[[], None]) -> Unwatch:
        return self._bell.add(request_id, wake)

    def watch_all(self, wake: Callable[[], None]) -> Unwatch:
        return self._bell.add_for_any(wake)

    def close(self) -> None:
        self._bell.ring_all()
