"""The journal of one run: what happened at which place, in memory until something waits, then in the store as well.

A run that waits for nobody writes nothing. The first thing that waits is recorded together with everything that
finished before it, in one transaction; from then on every step is saved as it ends. The invariant: a step that the
journal knows is never done again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from sayso import clock
from sayso.effects import Effect, offload
from sayso.model.canonical.tags import dumps
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.runs.proof import Proof
from sayso.runs.values import Later, plain
from sayso.stores.base import Store
from sayso.stores.worker import Lease

__all__ = ["Journal", "bodies"]

Body = dict[str, Any]
_MANY = 4


class Journal:
    """What happened in a run, for the one task that has it in hand.

    Args:
        store: Where it is kept.
        record: The run.
        lease: Under which it is in hand.
        steps: What is kept of it already.

    Attributes:
        is_kept: Whether the store has the run.
        was: How it stood before it was taken in hand here; a run whose holder died counts as broken.
        is_stopping: Whoever listened has gone: nothing new is begun.
        is_left: It was handed back: a handler's thread that nobody could stop begins nothing more, either.
        is_back: The store was told so.
        proof: What the requests say, where steps come from the store.
    """

    def __init__(self, store: Store, record: RunRecord, lease: Lease, steps: Iterable[Step] | None = None) -> None:
        self.store = store
        self.is_kept = steps is not None
        self.was = RunState.BROKEN if record.state is RunState.RUNNING else record.state
        self.is_stopping = self.is_left = self.is_back = False
        self._ends: dict[object, Callable[[], None]] = {}
        self.proof = Proof(store, record)
        self._record = replace(record, holder=lease.holder, state=RunState.RUNNING)
        self._lease = lease  # kept alive: the run is in hand as long as this object is
        self._known = bodies(steps or ())
        self._told = set(self._known)
        self._with_inner = {place.partition("!")[0] for place in self._told if "!" in place}
        self._unsaved: dict[int, tuple[str, Body]] = {}
        self._numbers = itertools.count()
        self._saver: _Saver | None = None

    @classmethod
    def new(cls, store: Store, run_id: str, name: str, kind: str) -> Journal:
        """Return the journal of a run that begins."""
        lease, now = Lease(), clock.now()
        return cls(store, RunRecord(run_id, name, kind, RunState.RUNNING, lease.holder, now, now), lease)

    def stop(self) -> None:
        """Begin nothing new, and end what waits for a person inside of a handler."""
        self.is_stopping = True
        for end in list(self._ends.values()):
            end()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Generator[None]:
        """Call `end` when the run is stopped inside the block."""
        mine = object()
        self._ends[mine] = end
        try:
            yield
        finally:
            del self._ends[mine]

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._record.id

    @property
    def is_dirty(self) -> bool:
        """Whether anything is not saved."""
        return bool(self._unsaved)

    @property
    def is_crowded(self) -> bool:
        """Whether so much is not saved that no two should bring it all."""
        return len(self._unsaved) > _MANY

    def at(self, place: str) -> Body | None:
        """Return what happened last at a place."""
        return self._known.get(place)

    def waiting(self) -> Iterator[tuple[str, Body]]:
        """Yield the places where something waits for a person."""
        return ((place, body) for place, body in list(self._known.items()) if "waits" in body)

    def is_hearsay(self, place: str) -> bool:
        """Say whether what is known of a place was read from the store, and not done here."""
        return place in self._told

    def has_inner(self, place: str) -> bool:
        """Say whether the store knows of gated calls that the handler at this place made by itself."""
        return place in self._with_inner

    def count(self, what: str) -> int:
        """Return how many places with this in them are known."""
        return sum(what in place for place in list(self._known))

    def count_hearsay(self, what: str) -> int:
        """Return how many of those are hearsay."""
        return sum(what in place for place in self._told)

    def put(self, place: str, body: Body) -> int:
        """Add a step, and return its number; `save` makes it last."""
        self._known[place] = body
        self._told.discard(place)
        number = next(self._numbers)
        self._unsaved[number] = place, body
        return number

    def alone(self, whose: object) -> Effect:
        """Return the effect of waiting until nobody else is at saving what this one would save as well.

        Many calls of one turn are asked at once, and each would bring all that is not saved. `saved_by` ends it.
        """
        return _Alone(self, whose)

    async def stand_alone(self, whose: object) -> None:
        """Do what `alone` says."""
        while self.is_dirty and (other := self._saver) is not None and other.whose is not whose:
            await asyncio.wait([other.done])
        if self.is_dirty:
            self._saver = _Saver(whose, asyncio.get_running_loop().create_future())

    def saved_by(self, whose: object) -> None:
        """Let the others go on, if this one was at saving."""
        saver = self._saver
        if saver is not None and saver.whose is whose:
            self._saver = None
            saver.done.set_result(None)

    def offer(
        self, waits: tuple[str, Body] | None = None, only: int | None = None, left: RunState | None = None
    ) -> tuple[RunUpdate, list[int]]:
        """Return what is not saved yet, to be saved with something else, and its numbers for `confirm`.

        Args:
            waits: The step that says what waits where. It goes with its request or not at all: nobody else saves it,
                and it is not known before `confirm`.
            only: The number of the one step that is meant; all by default.
            left: How the run is handed back with it, where nothing else of it is under way.
        """
        # In one piece: a handler's thread may put something meanwhile.
        unsaved = list(self._unsaved.items()) if only is None else [(only, self._unsaved[only])]
        last = [] if waits is None else [waits]
        steps = [Step(place, _written(body), body.get("waits")) for place, body in [*(s for _, s in unsaved), *last]]
        return RunUpdate(self._record, steps, left), [number for number, _ in unsaved]

    def confirm(
        self, numbers: Iterable[int], waits: tuple[str, Body] | None = None, *, is_back: bool = False
    ) -> None:  # fmt: skip
        """Note that these steps are in the store, and whether the run was handed back with them."""
        self.is_back = is_back
        if waits is not None:
            self._known[waits[0]] = waits[1]
            self._told.discard(waits[0])
        self.is_kept = True
        for number in numbers:
            self._unsaved.pop(number, None)

    async def save(self) -> None:
        """Make all steps last, if the run is kept at all.

        Raises:
            RunBusyError: Somebody else has taken the run; it must not go on here.
        """
        if self.is_kept and self._unsaved:
            saved, numbers = self.offer()
            await self._verb(lambda: self.store.save_run(saved))
            self.confirm(numbers)

    def save_now(self) -> None:
        """Do what `save` does from a thread that may block, as the store's own."""
        if self.is_kept and self._unsaved:
            saved, numbers = self.offer()
            self.store.save_run(saved)
            self.confirm(numbers)

    async def leave(self, state: RunState) -> None:
        """Save what is left and hand the run back. A run that never waited and ended leaves nothing."""
        self.is_left = True
        try:
            if not self.is_back and (self.is_kept or (state is not RunState.ENDED and self._unsaved)):
                saved, numbers = self.offer()
                await self._verb(lambda: self.store.leave_run(saved, state))
                self.confirm(numbers)
        finally:
            self._lease.release()

    async def _verb(self, verb: Callable[[], None]) -> None:
        await offload(verb) if self.store.blocks else verb()


class _Saver(NamedTuple):
    whose: object
    done: asyncio.Future[None]


class _Alone(Effect):
    def __init__(self, journal: Journal, whose: object) -> None:
        self._journal, self._whose = journal, whose

    def run(self) -> None:
        """Do nothing: in one thread nobody else saves."""

    async def arun(self) -> None:
        """Wait."""
        await self._journal.stand_alone(self._whose)


def _written(body: Body) -> str:
    told = {name: value.told() if isinstance(value, Later) else value for name, value in body.items()}
    try:
        return dumps(told)
    except (TypeError, ValueError, RecursionError):  # what was done is written down, whatever somebody hung on it
        return dumps(plain(told))


def bodies(steps: Iterable[Step]) -> dict[str, Body]:
    """Return what steps say, by place; the last one of a place counts."""
    known: dict[str, Body] = {}
    for step in steps:
        known.pop(step.place, None)  # in the order of what happened last
        known[step.place] = json.loads(step.body)
    return known
