"""A store as a worker sees it: which runs of its runnables can go on, and whether one has changed since it last looked.

Reads and sweeps; nothing is taken in hand here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from sayso import errors
from sayso.effects import offload
from sayso.model.run import RunState
from sayso.runs.runnable import Runnable
from sayso.stores.base import Store
from sayso.stores.filter import RunFilter

__all__ = ["LOOK", "Mark", "Shelf", "Standing", "shelves"]

T = TypeVar("T")
Mark = tuple[str | int, ...]

LOOK = 2.0
"""Seconds between two looks at a store in which nothing seems to happen: a worker that is killed rings no bell."""

_STRANGERS = 60.0
_log = logging.getLogger("sayso")


class Standing(NamedTuple):
    """Where a run stands.

    Attributes:
        name: Of its runnable.
        mark: Differs after anything that lets the run go on; the same after it was begun again in vain.
    """

    name: str
    mark: Mark


@dataclass(eq=False)
class Shelf:
    """A store and the runnables whose runs are looked for in it.

    Attributes:
        store: The store.
        runnables: By name.
    """

    store: Store
    runnables: dict[str, Runnable] = field(default_factory=dict[str, Runnable])
    _swept: float = -LOOK
    _asked: float = -_STRANGERS
    _named: set[str] = field(default_factory=set[str])

    async def verb(self, verb: Callable[[], T]) -> T:
        """Run a verb of the store without blocking the event loop."""
        return await offload(verb) if self.store.blocks else verb()

    async def ready(self, limit: int) -> Sequence[str]:
        """Return the ids of runs that could go on, those that nobody touched for longest first."""
        return await self.verb(partial(self._ready, limit))

    def _ready(self, limit: int) -> Sequence[str]:
        now = time.monotonic()
        if now - self._swept >= LOOK:
            self._swept = now
            self.store.sweep()  # so that a run goes on whose request nobody answered in time
        if now - self._asked >= _STRANGERS:
            self._asked = now
            self._name_strangers()
        return self.store.ready_runs(list(self.runnables), limit)

    async def standing(self, run_id: str) -> Standing | None:
        """Return where a run stands; None if there is nothing to go on with."""
        return await self.verb(partial(self._standing, run_id))

    def _standing(self, run_id: str) -> Standing | None:
        try:
            run, steps = (kept := self.store.get_run(run_id)).run, kept.steps
        except errors.RunNotFoundError:
            return None
        if run.state is RunState.ENDED or run.name not in self.runnables:
            return None
        waits = dict.fromkeys(step.waits for step in steps if step.waits is not None)
        states = [self.store.get(request_id).state.value for request_id in waits]
        return Standing(run.name, (run.state is RunState.RUNNING, len(steps), *states))

    def _name_strangers(self) -> None:
        """Say once of each name that runs of it wait here and are left alone."""
        waiting = RunFilter(frozenset({RunState.PAUSED, RunState.BROKEN}))
        found, _ = self.store.runs(waiting, limit=1000)
        for name in sorted({run.name for run in found} - set(self.runnables) - self._named):
            self._named.add(name)
            _log.warning("runs of %r wait in this store; this worker was not given it and leaves them alone", name)


def shelves(runnables: Iterable[Runnable]) -> list[Shelf]:
    """Return the stores of these runnables, each with its own.

    Raises:
        ConfigError: None is given, or two of one name in one store.
    """
    found: dict[int, Shelf] = {}
    for runnable in runnables:
        store = runnable.store
        shelf = found.setdefault(id(store), Shelf(store))
        if shelf.runnables.setdefault(runnable.name, runnable) is not runnable:
            raise errors.ConfigError(f"two runnables are called {runnable.name!r}; a worker tells them apart by name")
    if not found:
        raise errors.ConfigError("a worker needs something to go on with: a Tool, Agent or Workflow")
    return list(found.values())
