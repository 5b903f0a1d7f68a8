"""What is known and saved of a run: what happened at which place, the requests that confirm it, the steps at work.

Nothing is written before something waits. The first thing that waits is recorded together with everything that
finished before it, in one transaction; from then on every step is saved as it ends, and no saved step is done again.
Values are saved in canonical form and come back as what they were; what has no such form is kept as plain JSON values,
and whoever needs the value itself is told that it is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, NamedTuple, Self, TypeVar, cast, get_type_hints

from sayso import clock
from sayso.effects import Effect, at_once, offload
from sayso.errors import AlteredRequestError, ArgumentError, RunBusyError
from sayso.gates.scope import Occasion, Scope
from sayso.model import canonical
from sayso.model.canonical.tags import dumps
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.model.schema import Schema
from sayso.runs.definition import Definition
from sayso.runs.events import (
    ApprovalEvent,
    Event,
    Halt,
    InteractionEvent,
    OutputEvent,
    RunStatus,
    StartEvent,
    entry_of,
    event_of,
    waiting_output,
)
from sayso.runs.events import plain as plain_json
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in
from sayso.stores.worker import Lease

Body = dict[str, Any]
T = TypeVar("T")

# -- values ------------------------------------------------------------------------------------------------------------


class Deferred(NamedTuple):
    """A value that is written down when, and if, its run is kept; `write` returns what the record keeps of it."""

    value: Any
    write: Callable[[Any], Any]


class LostValue(NamedTuple):
    """A value that could not be kept: whoever takes it must be told, whoever only shows it has the plain one."""

    plain: Any
    reason: str


def live_value(value: Any, function: Callable[..., Any]) -> Deferred:
    """Return a value that a function gave; the record keeps its `form`, or else `plain` and why it is `lost`."""
    return Deferred(value, partial(_form_of, function))


def _form_of(function: Callable[..., Any], value: Any) -> Body:
    try:
        form = canonical.encode({"value": value})
        canonical.check_round_trip(form, _result_classes(function))
    except ArgumentError as error:
        reason = error.reason
    except Exception as error:  # noqa: BLE001  a value's own code: what it does must not undo that it was given
        reason = f"raised {type(error).__name__} when it was written down"
    else:
        return {"form": form.text}
    return {"plain": plain_json(value), "lost": reason}


def decoded_value(form: str, function: Callable[..., Any]) -> Any:
    """Return the value of a function whose form was kept."""
    return canonical.decode(form, _result_classes(function))["value"]


@lru_cache(maxsize=1024)
def _result_classes(function: Callable[..., Any]) -> Mapping[str, type]:
    """Return the classes that a function's result may hold, by its annotation; none where it says nothing usable."""
    try:
        annotation = get_type_hints(function, include_extras=True).get("return")
    except Exception:  # noqa: BLE001  annotations are user code; what cannot be read names no class
        return {}
    return {} if annotation is None else Schema.of_type(annotation).classes


def given_arguments(arguments: Mapping[str, Any]) -> Deferred:
    """Return what a run was called with; a checkpoint raises `ArgumentError` where it has no canonical form."""
    return Deferred(dict(arguments), _text_of)


def _text_of(arguments: dict[str, Any]) -> str:
    return canonical.encode(arguments).text


def made_defaults(values: dict[str, Any]) -> Deferred:
    """Return the default parameters that were made for a call; without a form, a resumed run makes them anew."""

    def write(value: dict[str, Any]) -> str | None:
        try:
            return _text_of(value)
        except ArgumentError:
            return None

    return Deferred(values, write)


def result_shown(request: Request) -> Any:
    """Return the result that a request's record tells, as people may see it; None where there is none."""
    result = None if request.execution is None else request.execution.result
    return None if result is None else cast("Body", canonical.display(canonical.load(result)))["result"]


def _written(body: Body) -> str:
    fields = {name: value.write(value.value) if isinstance(value, Deferred) else value for name, value in body.items()}
    try:
        return dumps(fields)
    except (TypeError, ValueError, RecursionError):  # what was done is written down, whatever somebody hung on it
        return dumps(plain_json(fields))


def bodies(steps: Iterable[Step]) -> dict[str, Body]:
    """Return what steps say, by place; the last one of a place counts."""
    known: dict[str, Body] = {}
    for step in steps:
        known.pop(step.place, None)  # in the order of what happened last
        known[step.place] = json.loads(step.body)
    return known


def resolution_place(request_id: str) -> str:
    """Return the place where the history keeps what a resolution says beyond the decision."""
    return f"@{request_id}"


def in_loop() -> bool:
    """Say whether an event loop runs in this thread."""
    return asyncio._get_running_loop() is not None  # noqa: SLF001  documented for exactly this, in spite of its name


def verb(store: Store, function: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
    """Call a verb of a store, or a function that calls some, without blocking the event loop."""
    return (offload if store.blocks else at_once)(partial(function, *args))


# -- the history -------------------------------------------------------------------------------------------------------


class _Requests:
    """The calls that a run asked for, as they stood when it was gone on with; read when they are needed."""

    def __init__(self, store: Store, run: RunRecord) -> None:
        self._store, self._run, self.is_read = store, run, False
        self.at: dict[str, Request] = {}
        """The last one of each place."""
        self.made: dict[str, list[Request]] = {}
        """Those that handlers asked for by themselves and that were made, by digest."""
        self._keyed: dict[str, Request] = {}

    def read(self) -> None:
        for request in requests_in(self._store, Filter(run_id=self._run.id, kind="call")):
            if request.key is not None:
                self._keyed[request.id] = request
            if request.place:
                self.at[request.place] = request
            elif request.state is State.DONE and request.created_at >= self._run.created_at:
                self.made.setdefault(request.call.digest, []).append(request)
        self.is_read = True

    def keyed(self, request_id: str, tool: str) -> Request | None:
        """Return the request of a key, for a call of this tool; it may have been asked at another place of the run."""
        request = self._keyed.get(request_id)
        return request if request is not None and request.call.tool == tool else None


class Checkpoint:
    """What a run knows and has not saved: a value that goes into one transaction with a request, an outcome, or alone.

    It takes the steps out of their run's history until it is `saved`, so that of many calls that are saved at a time
    each brings its own. `release`, or leaving it as a context, gives them back where nothing was saved.
    """

    def __init__(
        self, history: RunHistory, record: RunRecord, steps: dict[int, tuple[str, Body]],
        waits: tuple[str, Body] | None, left: RunState | None,
    ) -> None:  # fmt: skip
        self._history, self._steps, self._waits, self._is_open = history, steps, waits, True
        new = [*steps.values(), *(() if waits is None else (waits,))]
        self.update = RunUpdate(record, [Step(at, _written(body), body.get("waits")) for at, body in new], left)

    def saved(self, request_id: str | None = None, *, is_approved: bool = False) -> None:
        """Note that it is in the store.

        Args:
            request_id: The request that the run waits for now. Where the store found an earlier one, it did not hand
                the run back.
            is_approved: A grant or a budget approved it as it was asked, so the run was not handed back, either.
        """
        history, self._is_open = self._history, False
        history.is_stored, is_released = True, self.update.left is not None
        if self._waits is not None:
            place, body = self._waits
            is_released = is_released and request_id in {None, body["waits"]} and not is_approved
            history.know(place, body if request_id is None else {**body, "waits": request_id})
        history.is_released = is_released
        history.settled(self)

    def release(self) -> None:
        """Give the steps back, unless they are in the store."""
        if self._is_open:
            self._is_open = False
            self._history.settled(self, self._steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class RunHistory:
    """What happened in a run, for the one task that has its lease.

    Attributes:
        run_id: Id of the run.
        known: What happened last, by place.
        is_kept: Whether the store has the run.
        was: How it stood before this lease; a run whose holder died counts as broken.
        is_stopping: Whoever listened has gone: nothing new is begun.
        is_left: The lease has ended: a handler's thread that nobody could stop begins nothing more, either.
        is_released: The store knows that it has ended.
        handlers: The scopes of the handlers that are under way.
        from_store: The places of which what is known was read from the store, and not done here.
        passes: The places of handlers of which the store knows questions, or gated calls.
        requests: What the requests say, where steps come from the store.
    """

    def __init__(self, store: Store, record: RunRecord, lease: Lease, steps: Iterable[Step] | None = None) -> None:
        self.store, self.run_id, self.is_stored = store, record.id, steps is not None
        self.was = RunState.BROKEN if record.state is RunState.RUNNING else record.state
        self.is_stopping = self.is_left = self.is_released = False
        self.requests = _Requests(store, record)
        self.known = bodies(steps or ())
        self._record = replace(record, holder=lease.holder, state=RunState.RUNNING)
        self._lease = lease  # kept alive: the lease lasts as long as this object does
        self.handlers: set[Scope] = set()
        self.from_store = set(self.known)
        self.passes = {re.split("[!?]", place)[0] for place in self.from_store if "!" in place or "?" in place}
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
        for scope in list(self.handlers):
            scope.end("whoever listened to the run has gone")

    # -- what is known -----------------------------------------------------------------------------------------

    def waiting(self) -> list[tuple[str, Body]]:
        """Return the places where something waits for a person."""
        return [(place, body) for place, body in list(self.known.items()) if "waits" in body]

    def is_over(self, request_id: str) -> bool:
        """Say whether the resolution of a request, or one of them, counted until an instant that has come."""
        until = self.known.get(resolution_place(request_id), {}).get("expires_at")
        return until is not None and clock.milliseconds() >= until

    async def read_requests(self) -> None:
        """Read what the requests of the run say, once."""
        if not self.requests.is_read:
            await verb(self.store, self.requests.read)

    def know(self, place: str, body: Body) -> None:
        """Note what happened at a place, and is saved by somebody else."""
        self.known[place] = body
        self.from_store.discard(place)

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
        steps: dict[int, tuple[str, Body]] = {}
        for number in sorted(self._unsaved):
            if (step := self._unsaved.pop(number, None)) is not None:
                steps[number] = step
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
        if self.is_stored and self._unsaved:
            await self._write(self.store.save_run)

    def save_now(self) -> None:
        """Do what `save` does in a thread that may block, as the store's own."""
        if self.is_stored and self._unsaved:
            with self.checkpoint() as checkpoint:
                self.store.save_run(checkpoint.update)
                checkpoint.saved()

    async def leave(self, state: RunState) -> None:
        """Save what is left and end the lease. A run that never waited and ended leaves nothing."""
        self.is_left = True
        try:
            if self.is_released and state is RunState.BROKEN:
                # It was handed back as paused, and whoever was to be told was broken off: as after any break, who
                # brings the earlier decisions again goes on with it, unless somebody has it by now.
                with suppress(RunBusyError):
                    await verb(self.store, self.store.take_run, self.run_id, self._record.holder)
                    self.is_released = False
            if not self.is_released and (self.is_stored or (state is not RunState.ENDED and self._unsaved)):
                await self._write(lambda update: self.store.leave_run(update, state))
        finally:
            self._lease.release()

    async def _write(self, write: Callable[[RunUpdate], None]) -> None:
        with self.checkpoint() as checkpoint:
            await verb(self.store, write, checkpoint.update)
            checkpoint.saved()


class _Quiet:
    def __init__(self, on_their_way: dict[Checkpoint, asyncio.Future[None]]) -> None:
        self._on_their_way = on_their_way

    def __call__(self) -> None:
        """Do nothing: in one thread nobody else saves."""

    async def arun(self) -> None:
        """Wait."""
        while self._on_their_way:
            await asyncio.wait(list(self._on_their_way.values()))


# -- the steps at work -------------------------------------------------------------------------------------------------


class RunAttempt:
    """One call of a run, from its beginning or from where it paused; shared by all its steps.

    Attributes:
        emit: Takes every event; None where nobody listens.
        acts_for: The persons for whom the program acts.
        notes: What there is to say about a request when it is emitted again, by id.
        waiting: What waits for a person, each with its rank.
        approved: Requests that were approved when this attempt began, by id; each is looked up here once, and the start
            itself says whether the approval still counts.
    """

    def __init__(
        self, history: RunHistory, emit: Callable[[Event], None] | None, acts_for: tuple[Identity, ...]
    ) -> None:
        self.history, self.emit, self.acts_for = history, emit, acts_for
        self.notes: dict[str, Body] = {}
        self.approved: dict[str, Request] = {}
        self.waiting: list[tuple[tuple[int, ...], ApprovalEvent | InteractionEvent]] = []

    def wait(self, rank: tuple[int, ...], event: ApprovalEvent | InteractionEvent) -> None:
        """Emit what waits for a person; the list of what is pending is in the order of the ranks."""
        if self.emit is not None:
            self.emit(event)
        self.waiting.append((rank, event))

    def note_of(self, request_id: str) -> Body:
        """Return what there is to say about a request when it is emitted, from earlier calls of the run as well."""
        found: Body = {}
        for _, body in self.history.waiting():
            if body["waits"] == request_id:
                found |= body.get("note") or {}
        return {**found, **self.notes.get(request_id, {})}

    def pending(self) -> dict[str, list[Body]]:
        """Return what waits, in the order of a model's turns and calls, and in that of a workflow's steps."""
        found: dict[str, list[Body]] = {}
        for _, event in sorted(self.waiting, key=itemgetter(0)):
            name = "pending_approvals" if isinstance(event, ApprovalEvent) else "pending_interactions"
            found.setdefault(name, []).append(entry_of(event))
        return found

    def check_going(self) -> None:
        """Raise `Halt` if whoever listened has gone: nothing new is begun."""
        if self.history.is_stopping:
            raise Halt("cancelled", "stopped", "whoever listened to the run has gone")


class StepContext:
    """One runnable at work.

    Attributes:
        place: Where in the run; no two calls of one run share a place, and a resumed run finds each again by it.
        path: Names from the outermost runnable down to this one.
        is_outermost: Whether it is the run's own.
        is_alone: Whether nothing else of the run is under way, so that the run is handed back where it stops.
        rank: How the place is ordered among all others.
        input: The arguments as people may see them, None before they are known; `arguments` returns the real ones.
        answers: What persons answered to the handler's questions, by number.
        late: The number of the question whose time ran out, if one's did.
        suspensions: How many questions the handler has asked so far in this pass.
        is_running: Whether the handler has begun; before, its rules and defaults are asked.
    """

    def __init__(
        self, attempt: RunAttempt, runnable: Definition, place: str, path: str, *, parent: StepContext | None = None,
        tool_call_id: str | None = None, rank: tuple[int, ...] = (), is_alone: bool = True,
    ) -> None:  # fmt: skip
        self.attempt, self.runnable, self.place, self.path = attempt, runnable, place, path
        self.history, self.is_outermost, self.is_alone = attempt.history, parent is None, is_alone
        self.parent, self.tool_call_id, self.rank = parent, tool_call_id, rank
        self.input: Body | None = None
        self.arguments: Callable[[], Body] = dict
        self.answers: dict[int, Any] = {}
        self.usage: Counter[str] = Counter()
        self.metadata: Body = {} if tool_call_id is None else {"tool_call_id": tool_call_id}
        self.suspensions, self.is_running = 0, False
        self.late: int | None = None
        self.t0 = clock.milliseconds()

    def child(
        self, runnable: Definition, key: str, rank: tuple[int, ...], tool_call_id: str | None = None, *, is_only: bool
    ) -> StepContext:
        """Return the step for a call that this one makes; `key` is its own among all calls made from here.

        `is_only` says that no other one is made at the same time. Where this step's own call was started, its outcome
        has to be recorded before the run is handed back.
        """
        return StepContext(
            self.attempt, runnable, f"{self.place}/{key}", f"{self.path}.{runnable.name}", parent=self,
            tool_call_id=tool_call_id, rank=(*self.rank, *rank),
            is_alone=is_only and self.is_alone and self.runnable.is_free,
        )  # fmt: skip

    def begin(self, arguments: Callable[[], Body], shown: Body) -> None:
        """Note with what the handler begins, and how people may see that."""
        self.arguments, self.input, self.is_running = arguments, shown, True

    def must_own(self, request: Request, place: str) -> None:
        """Raise `AlteredRequestError` for a request that was not asked here."""
        is_elsewhere = request.place != place and (request.key is None or request.call.tool != self.runnable.gate.tool)
        if request.run_id != self.history.run_id or is_elsewhere:
            raise AlteredRequestError(request.id, f"it was asked elsewhere than in {self.path}, which waits for it")

    def waits_for(self, request: Request) -> Halt:
        """Tell that the step waits for a person, and return what the run says then."""
        event, is_call = event_of(request, self.attempt.note_of(request.id), self.path), request.kind == "call"
        self.count("approvals:required" if is_call else "suspends:required")
        self.attempt.wait(self.rank, event)
        what = request.prompt or event.runnable_name if is_call else request.question.text
        reason, text = "approval_required" if is_call else "input_required", f"{request.id} waits for a person: {what}"
        return Halt("cancelled", reason, text, output=waiting_output(event), event=event)

    def count(self, what: str, n: int = 1) -> None:
        """Add to a counter, here and in the steps above."""
        step: StepContext | None = self
        while step is not None:
            step.usage[what] += n
            step = step.parent

    @property
    def occasion(self) -> Occasion:
        """Where the call stands, as the gate needs to know it."""
        facts = {
            "path": self.path, "runnable_name": self.runnable.name, "runnable_type": self.runnable.type,
            "tool_call_id": self.tool_call_id,
        }  # fmt: skip
        return Occasion((self.history.run_id,), {}, self.attempt.acts_for, place=self.place, context=facts)

    def record(self, status: RunStatus, *, value: Deferred | None = None, error: Body | None = None) -> Body:
        """Return what the history keeps of this step when it has ended."""
        body: Body = {
            "path": self.path, "name": self.runnable.name, "type": self.runnable.type,
            "t0": self.t0, "t1": clock.milliseconds(), "status": status.model_dump(exclude_none=True),
            "input": self.input, "error": error, "usage": dict(self.usage), "metadata": self.metadata,
        }  # fmt: skip
        return body if value is None else {**body, "value": value}

    def emit_start(self) -> None:
        """Tell those who listen that it begins."""
        if self.attempt.emit is not None:
            kind, run_id = self.runnable.type, self.history.run_id
            self.attempt.emit(StartEvent(run_id=run_id, path=self.path, runnable_type=kind, t0=self.t0))

    def emit_end(self, status: RunStatus, output: Any = None, error: Body | None = None) -> None:
        """Tell those who listen how it ended; the run's own end is its output, which comes last."""
        if self.attempt.emit is not None and not self.is_outermost:
            self.attempt.emit(self.output_event(status, output, error))

    def output_event(self, status: RunStatus, output: Any = None, error: Body | None = None) -> OutputEvent:
        """Return the event that says how it ended."""
        return OutputEvent(
            run_id=self.history.run_id, path=self.path, runnable_type=self.runnable.type, input=self.input,
            status=status, output=output, error=error, t0=self.t0, t1=clock.milliseconds(), usage=dict(self.usage),
            metadata=dict(self.metadata),
        )  # fmt: skip


current_context: ContextVar[StepContext | None] = ContextVar("sayso_frame", default=None)
current_step = current_context.get
"""Return the step whose handler is running here; None outside of a run."""
