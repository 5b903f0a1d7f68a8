"""Contenders against one another: who takes part, opening them, and dropping one that fails without losing the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from .table import Row
from .worker import AbsentError, Worker, WorkerFailedError

__all__ = ["DURABLE", "MEMORY", "PRIVATE", "SCANS", "Contest", "Entry", "Plan"]

PRIVATE = "FULL set on its private connection"

SCANS = "its default; each pause reads the whole ledger"


@dataclass(frozen=True)
class Plan:
    """How much to measure, and in which folder all stores live."""

    folder: Path
    is_quick: bool

    def pick(self, full: int, quick: int) -> int:
        """Return the count for this run."""
        return quick if self.is_quick else full

    def new_folder(self, name: str) -> Path:
        """Return a fresh folder on the disk that the whole run uses."""
        return Path(mkdtemp(prefix=f"{name}-", dir=self.folder)) / "store"


@dataclass(frozen=True)
class Entry:
    """One contender of a contest: the class that drives it, and the setting it runs with."""

    who: str
    path: str
    variant: str
    store: str
    note: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether this is sayso itself."""
        return self.who.partition(",")[0] == "sayso"

    @property
    def sync(self) -> str:
        """The sync setting of its store."""
        return self.variant.partition("/")[0]


DURABLE = (
    Entry("baseline, by hand", "baseline:Baseline", "FULL", "sqlite FULL", "four statements, four commits"),
    Entry("sayso", "ours:Durable", "FULL", "sqlite FULL", "its default"),
    Entry("holdpoint", "peers.holdpoint:Holdpoint", "FULL", "sqlite FULL", PRIVATE),
    Entry("call4agents", "peers.call4agents:Call4agents", "FULL", "sqlite FULL", SCANS),
    Entry("chowki", "peers.chowki:Chowki", "FULL", "sqlite FULL", PRIVATE),
    Entry("ctrlrun", "peers.ctrlrun:Ctrlrun", "FULL", "sqlite FULL", PRIVATE),
    Entry("baseline, by hand", "baseline:Baseline", "NORMAL", "sqlite NORMAL", "may lose the last commits"),
    Entry("holdpoint", "peers.holdpoint:Holdpoint", "NORMAL", "sqlite NORMAL", "its default"),
    Entry("chowki", "peers.chowki:Chowki", "NORMAL", "sqlite NORMAL", "its default"),
    Entry("ctrlrun", "peers.ctrlrun:Ctrlrun", "NORMAL", "sqlite NORMAL", "its default"),
)
MEMORY = (
    Entry("udspy", "peers.udspy:Udspy", "", "none", "keeps no record"),
    Entry("ctrlrun", "peers.ctrlrun:Ctrlrun", "memory", "memory", "its store for tests, which keeps receipts"),
    Entry("sayso, confirm_first", "ours:Confirming", "memory:", "memory", "the same program, import root changed"),
    Entry("sayso, gate and Review", "ours:InMemory", "memory:", "memory", "approved by a named reviewer"),
)


@dataclass
class Contest:
    """The workers of one measure, and the rows of those that could not take part."""

    measure: str
    plan: Plan
    workers: dict[Entry, Worker] = field(default_factory=dict[Entry, Worker])
    lost: dict[Entry, Row] = field(default_factory=dict[Entry, Row])

    @contextmanager
    def open(self, entries: Iterable[Entry]) -> Iterator[list[Entry]]:
        """Start a worker for each entry and yield those that answered."""
        try:
            for entry in entries:
                if entry not in self.lost:
                    self._start(entry)
            yield list(self.workers)
        finally:
            for worker in self.workers.values():
                worker.close()
            self.workers.clear()

    def _start(self, entry: Entry) -> None:
        folder = self.plan.new_folder(entry.path.rpartition(":")[2].lower())
        try:
            self.workers[entry] = Worker(entry.path, folder, entry.variant)
        except AbsentError as absent:
            self._lose(entry, f"absent ({absent})")
        except WorkerFailedError as failure:
            self._lose(entry, f"failed: {failure}")

    def call(self, entry: Entry, method: str, **options: Any) -> Any:
        """Call a method of the contender; one that fails leaves the contest with a row that says why."""
        if entry in self.lost:
            return None
        try:
            return self.workers[entry].call(method, **options)
        except WorkerFailedError as failure:
            self._lose(entry, f"failed: {failure}")
            return None

    def _lose(self, entry: Entry, why: str) -> None:
        self.lost[entry] = Row(self.measure, entry.who, entry.store, note=why)

    def wrong(self, entry: Entry, calls: int) -> str:
        """Return what is wrong when the effect was not made once for each of `calls` calls, else nothing."""
        account = self.call(entry, "account")
        if account is None or (account["effects"] == calls and account["amounts"] == calls):
            return ""
        return f"WRONG: {account['effects']} effects on {account['amounts']} of {calls} calls"
