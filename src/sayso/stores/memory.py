"""The store in this process's memory, for tests, notebooks and throw-away programs.

It is the reference implementation of the contract: one lock and plain dictionaries. Nothing survives the process. A
forked child begins with an empty store; otherwise one approval would start its call in each process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sayso import clock, errors
from sayso.model.canonical.json_tree import dumps_sorted
from sayso.model.ids import effect_digest, key_digest
from sayso.model.journal import Entry, RowDigests, chained, first_link
from sayso.model.lifecycle import Transition, is_due
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.stores.codec import Seal, asked_values, digest_of_asked
from sayso.stores.memory_tables import Tables, TableStore, TableTransaction
from sayso.stores.watching import Bell, Watched
from sayso.stores.workers import forget_after_fork

T = TypeVar("T")

_OPEN = Seal()


def _asked(request: Request) -> dict[str, str]:
    return {"asked": digest_of_asked(asked_values(request))}


class _Chain(Sequence[Entry]):
    """The journal of one run. Links are computed on demand: in memory they prove nothing earlier."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._entries: list[Entry] = []
        self.rows: list[tuple[datetime, Request | str, str, Identity, str, dict[str, Any]]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        self._write()
        entries: Any = self._entries
        return entries[place]

    def _write(self) -> None:
        for at, about, event, by, channel, detail in self.rows[len(self._entries) :]:
            seq = len(self._entries) + 1
            before = self._entries[-1].link if self._entries else first_link(self._run_id)
            request_id, whole = (about, detail) if isinstance(about, str) else (about.id, detail | _asked(about))
            rest = (request_id, event, by.qualified, channel, dumps_sorted(whole))
            self._entries.append(chained(before, self._run_id, seq, clock.microseconds(at), *rest))

    def forget(self, request_id: str) -> None:
        """Release the request object with this id, after computing the entries that need it."""
        self._write()
        for place, (at, about, event, by, channel, detail) in enumerate(self.rows):
            if isinstance(about, Request) and about.id == request_id:
                self.rows[place] = (at, request_id, event, by, channel, detail)


class _Chains(dict[str, _Chain]):
    """The journal by run; that of a new run is created when it is looked up."""

    def __missing__(self, run_id: str) -> _Chain:
        chain = self[run_id] = _Chain(run_id)
        return chain


class MemoryTables(Tables):
    """The content of a memory store."""

    def __init__(self) -> None:
        super().__init__(_OPEN)
        self.chains: dict[str, _Chain] = _Chains()
        self._places: dict[str, int] = {}  # position of each request's last entry in its chain

    def keep(self, at: datetime, transition: Transition) -> None:
        """Store a new or changed request and its journal entry."""
        request, event, by, channel, detail = transition
        before, about, key, effect = self.rows.get(request.id), request.id, None, None
        if before is None:
            about = request
            key = None if request.key is None else key_digest(request.run_id, request.key)
            effect = None if request.effect is None else effect_digest(request.effect)
        elif request.purged_at is not before.purged_at:
            self.chains[request.run_id].forget(request.id)
            about = request
        rows = self.chains[request.run_id].rows
        self._places[request.id] = len(rows)
        rows.append((at, about, event, by, channel, detail))
        self.put(request, key, effect)

    def request(self, request_id: str) -> Request:
        try:
            return self.rows[request_id]
        except KeyError:
            raise errors.RequestNotFoundError(request_id) from None

    def row_digests_of(self, request_id: str) -> RowDigests:
        request = self.rows[request_id]
        link = self.chains[request.run_id][self._places[request_id]].link
        return RowDigests(request_id, request.run_id, request.state.value, link, **_asked(request))

    def is_due(self, row: Request, now: datetime) -> bool:
        return is_due(row, now)


class _Memory(TableTransaction):
    """Collects what a verb writes, so that a verb that fails half-way leaves nothing behind."""

    _tables: MemoryTables
    writes: tuple[Transition, ...] = ()
    notes: tuple[tuple[str, str, Identity, str, dict[str, Any]], ...] = ()
    last_now: datetime | None = None

    def now(self) -> datetime:
        self.last_now = clock.now()
        return self.last_now

    def update(self, transition: Transition) -> None:
        self.writes += (transition,)

    insert = update

    def verify(self, request: Request) -> bool:
        return self._tables.rows.get(request.id) is request  # only this process can have written here

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        self.notes += ((run_id, event, by, channel, detail),)

    def newest(self, run_id: str) -> Entry | None:
        for chain, event, by, channel, detail in reversed(self.notes):
            if chain == run_id:
                at = clock.microseconds(clock.now())
                return Entry(run_id, 0, at, "", event, by.qualified, channel, dumps_sorted(detail), "")
        return self._tables.newest(run_id)


class MemoryStore(Watched, TableStore):
    """The store behind `memory:`.

    Attributes:
        before_wait: For tests: called with a request before a call waits for it, and with the end of that wait on the
            clock of `time.monotonic`.
    """

    blocks = False
    before_wait: Callable[[Request, float | None], None] | None = None

    def __init__(self, url: str = "memory:") -> None:
        self.url = url
        self.after_fork()
        forget_after_fork(self)

    def after_fork(self) -> None:
        """Begin empty in a forked child: otherwise approvals, grants and budgets here would count in both processes."""
        self._content = MemoryTables()
        self._lock = threading.RLock()
        self._bell = Bell()

    def _tables(self) -> MemoryTables:
        return self._content

    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        with self._lock:
            tables = self._content
            tx = _Memory(tables)
            result = work(tx, *args, **options)
            at = tx.last_now or clock.now()
            # Requests last: if Ctrl-C comes before, the program records the end of its call again, with its result.
            if tx.runs or tx.steps or tx.dropped or tx.records:
                tx.keep()
            for transition in tx.writes:
                tables.keep(at, transition)
            for run_id, event, by, channel, detail in tx.notes:
                tables.chains[run_id].rows.append((at, "", event, by, channel, detail))
        if self._bell.waiting and (tx.writes or tx.runs or tx.steps):
            self._bell.ring([transition.request.id for transition in tx.writes])
        if isinstance(result, errors.SaysoError):
            raise result
        return result

    def asks_first(self, fingerprint: str) -> bool:
        return fingerprint not in self._content.holders

    def close(self) -> None:
        self._bell.ring_all()
