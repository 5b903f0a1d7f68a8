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
from functools import lru_cache, partial
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
    "Checkpoint", "Deferred", "GivenArguments", "LiveValue", "LostValue", "MadeDefaults", "RequestIndex", "RunHistory",
    "bodies", "deserialize_value", "in_loop", "recorded", "result_classes", "serialize_value",
]  # fmt: skip


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
    def serialize(self) -> Any:
        """Return what the record keeps of it: JSON values."""


class LiveValue(Deferred):
    """A value that a step gave.

    Attributes:
        value: The value.
    """

    def __init__(self, value: Any, function: Callable[..., Any], whose: str) -> None:
        self.value = value
        self._function, self._whose = function, whose

    def serialize(self) -> dict[str, Any]:
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

    def serialize(self) -> str:
        """Return the canonical form; raises `ArgumentError` where there is none."""
        return canonical.encode(dict(self._arguments)).text


class MadeDefaults(Deferred):
    """The default parameters that were made for a call.

    Attributes:
        value: By name.
    """

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    def serialize(self) -> str | None:
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
        self._keyed: dict[str, Request] = {}

    def read(self) -> None:
        """Read them."""
        last: dict[str, Request] = {}
        made: dict[str, list[Request]] = {}
        keyed: dict[str, Request] = {}
        wanted, cursor, has_more = Filter(run_id=self._run.id, kind="call"), None, True
        while has_more:
            page = self._store.list(wanted, cursor=cursor, limit=_PAGE)
            for request in page.requests:
                if request.key is not None:
                    keyed[request.id] = request
                if request.place:
                    last[request.place] = request
                elif request.state is State.DONE and request.created_at >= self._run.created_at:
                    made.setdefault(request.call.digest, []).append(request)
            cursor = page.cursor
            has_more = cursor is not None
        self._last, self._made, self._keyed, self.is_read = last, made, keyed, True

    def of(self, place: str) -> Request | None:
        """Return the last request that was asked at a place."""
        return self._last.get(place)

    def keyed(self, request_id: str, tool: str) -> Request | None:
        """Return the request of a key, for a call of this tool; it may have been asked at another place of the run."""
        request = self._keyed.get(request_id)
        return request if request is not None and request.call.tool == tool else None

    def made(self, digest: str) -> Sequence[Request]:
        """Return the calls with this digest that handlers asked for by themselves and that were made."""
        return self._made.get(digest, ())


Body = dict[str, Any]


class Checkpoint:
    """What a run knows and has not saved: a value that goes into one transaction with a request, an outcome, or alone.

    It takes the steps out of their run's history until it is `saved`, so that of many calls that are saved at a time
    each brings its own. `release` gives them back where nothing was saved.

    Attributes:
        update: For the store.
    """

    def __init__(
        self, history: RunHistory, record: RunRecord, steps: dict[int, tuple[str, Body]],
        waits: tuple[str, Body] | None, left: RunState | None,
    ) -> None:  # fmt: skip
        self._history, self._steps, self._waits = history, steps, waits
        bodies = [*steps.values(), *(() if waits is None else (waits,))]
        self.update = RunUpdate(record, [Step(at, _written(body), body.get("waits")) for at, body in bodies], left)
        self._is_open = True

    def saved(self, request_id: str | None = None) -> None:
        """Note that it is in the store.

        Args:
            request_id: The request that the run waits for now. Where the store found an earlier one, it did not hand
                the run back.
        """
        history, self._is_open = self._history, False
        history.is_kept = True
        is_released = self.update.left is not None
        if self._waits is not None:
            place, body = self._waits
            is_released = is_released and request_id in {None, body["waits"]}
            history.know(place, body if request_id is None else {**body, "waits": request_id})
        history.is_released = is_released
        history.settled(self)

    def release(self) -> None:
        """Give the steps back, unless they are in the store."""
        if self._is_open:
            self._is_open = False
            self._history.settled(self, self._steps)


class RunHistory:
    """What happened in a run, for the one task that has its lease.

    Args:
        store: Where it is kept.
        record: The run.
        lease: Under which it goes on.
        steps: What is saved of it already.

    Attributes:
        run_id: Id of the run.
        known: What happened last, by place.
        is_kept: Whether the store has the run.
        was: How it stood before this lease; a run whose holder died counts as broken.
        is_stopping: Whoever listened has gone: nothing new is begun.
        is_left: The lease has ended: a handler's thread that nobody could stop begins nothing more, either.
        is_released: The store knows that it has ended.
        requests: What the requests say, where steps come from the store.
    """

    def __init__(self, store: Store, record: RunRecord, lease: Lease, steps: Iterable[Step] | None = None) -> None:
        self.store = store
        self.run_id = record.id
        self.is_kept = steps is not None
        self.was = RunState.BROKEN if record.state is RunState.RUNNING else record.state
        self.is_stopping = self.is_left = self.is_released = False
        self._ends: dict[object, Callable[[], None]] = {}
        self.requests = RequestIndex(store, record)
        self._record = replace(record, holder=lease.holder, state=RunState.RUNNING)
        self._lease = lease  # kept alive: the lease lasts as long as this object does
        self.known = bodies(steps or ())
        self._from_store = set(self.known)
        self._with_nested = {place.partition("!")[0] for place in self._from_store if "!" in place}
        self._unsaved: dict[int, tuple[str, Body]] = {}
        self._numbers = itertools.count()
        self._on_their_way: dict[Checkpoint, asyncio.Future[None]] = {}

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

    # -- what is known -----------------------------------------------------------------------------------------

    def waiting(self) -> Iterator[tuple[str, Body]]:
        """Yield the places where something waits for a person."""
        return ((place, body) for place, body in list(self.known.items()) if "waits" in body)

    def is_from_store(self, place: str) -> bool:
        """Say whether what is known of a place was read from the store, and not done here."""
        return place in self._from_store

    def has_nested(self, place: str) -> bool:
        """Say whether the store knows of gated calls that the handler at this place made by itself."""
        return place in self._with_nested

    def count(self, what: str) -> int:
        """Return how many places with this in them are known."""
        return sum(what in place for place in list(self.known))

    def count_from_store(self, what: str) -> int:
        """Return how many of those were read from the store."""
        return sum(what in place for place in self._from_store)

    def know(self, place: str, body: Body) -> None:
        """Note what happened at a place, and is saved by somebody else."""
        self.known[place] = body
        self._from_store.discard(place)

    def put(self, place: str, body: Body) -> None:
        """Add a step; the next checkpoint saves it."""
        self.know(place, body)
        self._unsaved[next(self._numbers)] = place, body

    # -- what is saved -----------------------------------------------------------------------------------------

    def checkpoint(self, waits: tuple[str, Body] | None = None, left: RunState | None = None) -> Checkpoint:
        """Return what is not saved yet, and is on its way into no other checkpoint.

        Args:
            waits: The step that says what waits where. It is known when it is saved with its request, or not at all.
            left: How the lease ends with it, where nothing else of the run is under way.
        """
        # Each is taken in one piece: a handler's thread may put or take one meanwhile.
        taken = {number: self._unsaved.pop(number, None) for number in sorted(self._unsaved)}
        steps = {number: step for number, step in taken.items() if step is not None}
        try:
            made = Checkpoint(self, self._record, steps, waits, left)
        except BaseException:  # an argument of the run that has no form to be saved in
            self._unsaved |= steps
            raise
        if steps and in_loop():
            self._on_their_way[made] = asyncio.get_running_loop().create_future()
        return made

    def settled(self, checkpoint: Checkpoint, steps: Mapping[int, tuple[str, Body]] | None = None) -> None:
        """Let those go on who wait for a checkpoint; what was not saved of it is unsaved again."""
        self._unsaved |= steps or {}
        done = self._on_their_way.pop(checkpoint, None)
        if done is not None:
            done.set_result(None)

    def quiet(self) -> Effect:
        """Return the effect of waiting until no checkpoint with earlier steps is on its way.

        What waits is saved after everything that led to it, or a run that is resumed would not come to that place.
        """
        return _Quiet(self._on_their_way)

    async def save(self) -> None:
        """Save all steps, if the run is kept at all.

        Raises:
            RunBusyError: Somebody else has the run's lease; it must not go on here.
        """
        if self.is_kept and self._unsaved:
            await self._write(self.store.save_run)

    def save_now(self) -> None:
        """Do what `save` does in a thread that may block, as the store's own."""
        if self.is_kept and self._unsaved:
            checkpoint = self.checkpoint()
            try:
                self.store.save_run(checkpoint.update)
                checkpoint.saved()
            finally:
                checkpoint.release()

    async def leave(self, state: RunState) -> None:
        """Save what is left and end the lease. A run that never waited and ended leaves nothing."""
        self.is_left = True
        try:
            if not self.is_released and (self.is_kept or (state is not RunState.ENDED and self._unsaved)):
                await self._write(lambda update: self.store.leave_run(update, state))
        finally:
            self._lease.release()

    async def _write(self, verb: Callable[[RunUpdate], None]) -> None:
        checkpoint = self.checkpoint()
        try:
            if self.store.blocks:
                await offload(partial(verb, checkpoint.update))
            else:
                verb(checkpoint.update)
            checkpoint.saved()
        finally:
            checkpoint.release()


def in_loop() -> bool:
    """Say whether an event loop runs in this thread."""
    return asyncio._get_running_loop() is not None  # noqa: SLF001  documented for exactly this, in spite of its name


class _Quiet:
    def __init__(self, on_their_way: dict[Checkpoint, asyncio.Future[None]]) -> None:
        self._on_their_way = on_their_way

    def __call__(self) -> None:
        """Do nothing: in one thread nobody else saves."""

    async def arun(self) -> None:
        """Wait."""
        while self._on_their_way:
            await asyncio.wait(list(self._on_their_way.values()))


def _written(body: Body) -> str:
    fields = {name: value.serialize() if isinstance(value, Deferred) else value for name, value in body.items()}
    try:
        return dumps(fields)
    except (TypeError, ValueError, RecursionError):  # what was done is written down, whatever somebody hung on it
        return dumps(plain(fields))


def bodies(steps: Iterable[Step]) -> dict[str, Body]:
    """Return what steps say, by place; the last one of a place counts."""
    known: dict[str, Body] = {}
    for step in steps:
        known.pop(step.place, None)  # in the order of what happened last
        known[step.place] = json.loads(step.body)
    return known
