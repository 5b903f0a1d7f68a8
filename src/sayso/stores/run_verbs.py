"""The verbs of a store about runs: save one, take it in hand, hand it back. Each is one transaction.

They come to every store from here, made of three small operations of its transactions. The invariant is that of
`sayso.model.run`: who does not hold a run changes nothing of it, and is told so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from sayso import errors
from sayso.model.request import State
from sayso.model.run import RunRecord, RunState, Saved, Step
from sayso.stores import worker

__all__ = ["NOT_DECIDED", "Kept", "RunFilter", "RunTransaction", "RunVerbs", "save"]

T = TypeVar("T")

NOT_DECIDED = frozenset({State.PENDING, State.RUNNING, State.UNKNOWN})
"""In these states a request lets no run that waits for it go on."""


@dataclass(frozen=True)
class RunFilter:
    """Which runs to list; an empty field does not restrict.

    Attributes:
        states: Any of these states.
        name: Of the runnable with this name.
    """

    states: frozenset[RunState] = field(default=frozenset[RunState]())
    name: str | None = None


@dataclass(frozen=True)
class Kept:
    """A run and all its steps, in the order in which they were added."""

    run: RunRecord
    steps: Sequence[Step]


class RunTransaction(Protocol):
    """What a store offers to the verbs about runs inside one transaction."""

    def now(self) -> datetime:
        """Return the store's instant."""
        ...

    def run(self, run_id: str) -> RunRecord | None:
        """Return a run, if it is kept here."""
        ...

    def put_run(self, run: RunRecord) -> None:
        """Write a run, new or changed."""
        ...

    def add_steps(self, run_id: str, steps: Sequence[Step]) -> None:
        """Add steps after those that are there."""
        ...

    def drop_steps(self, run_id: str) -> None:
        """Take all steps of a run away, and what they wait for."""
        ...


def save(tx: RunTransaction, saved: Saved) -> None:
    """Write what a run's holder saved; raises `RunBusyError` where it does not hold the run any more."""
    known = tx.run(saved.run.id)
    if known is not None and known.holder != saved.run.holder:
        raise errors.RunBusyError(known.id)
    run = saved.run if saved.left is None else saved.run.left(saved.left, tx.now())
    if known != run:
        tx.put_run(run)
    if saved.steps:
        tx.add_steps(saved.run.id, saved.steps)


class RunVerbs(ABC):
    """The part of `sayso.stores.base.Store` that is about runs."""

    @abstractmethod
    def _transact_run(self, work: Callable[[RunTransaction], T]) -> T:
        """Run `work` in one transaction, alone; what it raises undoes everything."""

    @abstractmethod
    def get_run(self, run_id: str) -> Kept:
        """Return a run and its steps as last committed; raises `RunNotFoundError`."""

    @abstractmethod
    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        """Return runs, newest first, and what to give back as `cursor` to get those that follow; None at the end."""

    @abstractmethod
    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        """Return the ids of runs that could go on: paused ones that wait for something decided, and broken ones.

        A run waits for the requests that its steps name (`Step.waits`). One is decided when it neither waits for a
        person (`pending`) nor is under way (`running`, `unknown`). A run whose holder is gone counts as broken.
        Those that nobody touched for longest come first; only runs of runnables with one of these names.
        """

    @abstractmethod
    def watch_all(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from some thread, after any change of any request or run, by this or another process.

        It may be called without need. Calling what is returned ends it.
        """

    def save_run(self, saved: Saved) -> None:
        """In one transaction, write what its holder saved of a run.

        Raises:
            RunBusyError: Somebody else has the run in hand; nothing was written.
        """
        self._transact_run(lambda tx: save(tx, saved))

    def take_run(self, run_id: str, holder: str, *, gone: str | None = None) -> Kept:
        """In one transaction, take a run in hand and return it as it was before; an ended one is only returned.

        Args:
            run_id: Which run.
            holder: Who takes it.
            gone: A holder of which the caller knows that it has let go, because it is on the holder's machine.

        Raises:
            RunNotFoundError: There is no such run.
            RunBusyError: Somebody else has it in hand, and may still live.
        """

        def work(tx: RunTransaction) -> RunRecord:
            run = tx.run(run_id)
            if run is None:
                raise errors.RunNotFoundError(run_id)
            if run.state is RunState.ENDED:
                return run
            if run.holder not in {holder, gone} and not worker.is_free(run.holder):
                raise errors.RunBusyError(run_id)
            tx.put_run(run.held_by(holder, tx.now()))
            return run

        before = self._transact_run(work)
        return Kept(before, self.get_run(run_id).steps)

    def leave_run(self, saved: Saved, state: RunState) -> None:
        """In one transaction, write what is left to save, and hand the run back; does nothing to one held elsewhere."""

        def work(tx: RunTransaction) -> None:
            with suppress(errors.RunBusyError):
                save(tx, saved._replace(left=state))

        self._transact_run(work)
