"""What is saved of a run: what happened at which place, and the requests that confirm it.

Nothing is written before something waits. The first thing that waits is recorded together with everything that
finished before it, in one transaction; from then on every step is saved as it ends, and no saved step is done again.
Values are saved in canonical form and come back as what they were; what has no such form is kept as plain JSON values,
and whoever needs the value itself is told that it is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast, get_type_hints

from sayso import clock
from sayso.effects import Effect, offload
from sayso.errors import ArgumentError, ValueNotKeptError
from sayso.model import canonical
from sayso.model.canonical.tags import dumps
from sayso.model.request import Request, State
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.model.schema import Schema
from sayso.runs.events import plain
from sayso.stores.base import Filter, Store
from sayso.stores.worker import Lease

__all__ = [
    "Deferred",
    "GivenArguments",
    "LiveValue",
    "LostValue",
    "MadeDefaults",
    "RequestIndex",
    "RunHistory",
    "bodies",
    "deserialize_value",
    "recorded",
    "result_classes",
    "serialize_value",
]


def serialize_value(value: Any, classes: Mapping[str, type], whose: str) -> str:
    """Return a value's canonical form.

    Args:
        value: What to keep.
        classes: Those that may appear in it, by `module:QualName`.
        whose: Whose value it is, for the error.

    Raises:
        ValueNotKeptError: It has no such form, or would come back as something else.
    """
    try:
        form = canonical.encode({"value": value})
        canonical.check_round_trip(form, classes)
    except ArgumentError as error:
        raise ValueNotKeptError(whose, error.reason) from None
    return form.text


def deserialize_value(text: str, classes: Mapping[str, type]) -> Any:
    """Return the value whose form was kept."""
    return canonical.decode(text, classes)["value"]


def recorded(result: str) -> Any:
    """Return the result that a request's record tells, as people may see it."""
    return cast("dict[str, Any]", canonical.display(canonical.load(result)))["result"]


class Deferred(ABC):
    """Something that is written down when, and if, its run is kept."""

    @abstractmethod
    def told(self) -> Any:
        """Return what the record keeps of it: JSON values."""


class LiveValue(Deferred):
    """A value that a step gave.

    Attributes:
        value: The value.
    """

    def __init__(self, value: Any, function: Callable[..., Any], whose: str) -> None:
        self.value = value
        self._function, self._whose = function, whose

    def told(self) -> dict[str, Any]:
        """Return what the record keeps of it: `form`, or else `plain` and why the value itself is `lost`."""
        try:
            return {"form": serialize_value(self.value, result_classes(self._function), self._whose)}
        except ValueNotKeptError as error:
            reason = error.reason
        except Exception as error:  # noqa: BLE001  a value's own code: what it does must not undo that it was given
            reason = f"raised {type(error).__name__} when it was written down"
        return {"plain": plain(self.value), "lost": reason}


class GivenArguments(Deferred):
    """What a run was called with."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments

    def told(self) -> str:
        """Return the canonical form; raises `ArgumentError` where there is none."""
        return canonical.encode(dict(self._arguments)).text


class MadeDefaults(Deferred):
    """The default parameters that were made for a call.

    Attributes:
        value: By name.
    """

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    def told(self) -> str | None:
        """Return the canonical form; None where there is none: a resumed run then makes them anew."""
        try:
            return canonical.encode(self.value).text
        except ArgumentError:
            return None


class LostValue(NamedTuple):
    """A value that could not be kept: whoever takes it must be told, whoever only shows it has the plain one.

    Attributes:
        plain: As JSON values.
        reason: Why, in a sentence.
    """

    plain: Any
    reason: str


@lru_cache(maxsize=1024)
def result_classes(function: Callable[..., Any]) -> Mapping[str, type]:
    """Return the classes that a function's result may hold, by its annotation; none where it says nothing usable."""
    try:
        annotation = get_type_hints(function, include_extras=True).get("return")
    except Exception:  # noqa: BLE001  annotations are user code; what cannot be read names no class
        return {}
    return {} if annotation is None else Schema.of_type(annotation).classes


_PAGE = 1000


class RequestIndex:
    """The requests of a run, as they stood when it was gone on with.

    Attributes:
        is_read: Whether they have been read.
    """

    def __init__(self, store: Store, run: RunRecord) -> None:
        self._store, self._run = store, run
        self.is_read = False
        self._last: dict[str, Request] = {}
        self._made: dict[str, list[Request]] = {}

    def read(self) -> None:
        """Read them."""
        last: dict[str, Request] = {}
        made: dict[str, list[Request]] = {}
        wanted, cursor, has_more = Filter(run_id=self._run.id, kind="call"), None, True
        while has_more:
            page = self._store.list(wanted, cursor=cursor, limit=_PAGE)
            for request in page.requests:
                if request.place:
                    last[request.place] = request
                elif request.state is State.DONE and request.created_at >= self._run.created_at:
                    made.setdefault(request.call.digest, []).append(request)
            cursor = page.cursor
            has_more = cursor is not None
        self._last, self._made, self.is_read = last, made, True

    def of(self, place: str) -> Request | None:
        """Return the last request that was asked at a place."""
        return self._last.get(place)

    def made(self, digest: str) -> Sequence[Request]:
        """Return the calls with this digest that handlers asked for by themselves and that were made."""
        return self._made.get(digest, ())


Body = dict[str, Any]


_MANY = 4


class RunHistory:
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
        self.proof = RequestIndex(store, record)
        self._record = replace(record, holder=lease.holder, state=RunState.RUNNING)
        self._lease = lease  # kept alive: the run is in hand as long as this object is
        self._known = bodies(steps or ())
        self._from_store = set(self._known)
        self._with_nested = {place.partition("!")[0] for place in self._from_store if "!" in place}
        self._unsaved: dict[int, tuple[str, Body]] = {}
        self._numbers = itertools.count()
        self._saver: _Saver | None = None

    @classmethod
    def new(cls, store: Store, run_id: str, name: str, kind: str) -> RunHistory:
        """Return the history of a run that begins."""
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

    def is_from_store(self, place: str) -> bool:
        """Say whether what is known of a place was read from the store, and not done here."""
        return place in self._from_store

    def has_nested(self, place: str) -> bool:
        """Say whether the store knows of gated calls that the handler at this place made by itself."""
        return place in self._with_nested

    def count(self, what: str) -> int:
        """Return how many places with this in them are known."""
        return sum(what in place for place in list(self._known))

    def count_from_store(self, what: str) -> int:
        """Return how many of those are hearsay."""
        return sum(what in place for place in self._from_store)

    def put(self, place: str, body: Body) -> int:
        """Add a step, and return its number; `save` makes it last."""
        self._known[place] = body
        self._from_store.discard(place)
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
            self._from_store.discard(waits[0])
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
    def __init__(self, history: RunHistory, whose: object) -> None:
        self._history, self._whose = history, whose

    def run(self) -> None:
        """Do nothing: in one thread nobody else saves."""

    async def arun(self) -> None:
        """Wait."""
        await self._history.stand_alone(self._whose)


def _written(body: Body) -> str:
    told = {name: value.told() if isinstance(value, Deferred) else value for name, value in body.items()}
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
