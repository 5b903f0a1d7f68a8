"""The state of a run: what happened at each place, the requests that confirm it, and the steps in progress.

Nothing is written until a step waits. The first waiting step is saved in one transaction with everything that finished
before it; from then on every step is saved when it ends, and no saved step is repeated. Values are saved in canonical
form and restored with their types. A value without such a form is saved as plain JSON, and a step that needs the value
itself gets an error that it is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, NamedTuple, Self, TypeVar, cast, get_type_hints

from sayso import clock
from sayso.effects import at_once, offload
from sayso.errors import AlteredRequestError, ArgumentError, RunBusyError
from sayso.gates import interruptions
from sayso.gates.scope import CallSite, Scope
from sayso.model import canonical
from sayso.model.canonical.json_tree import MASK, dumps
from sayso.model.redaction import DEFAULT_KEYS
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.model.schema import Schema
from sayso.runs import events
from sayso.runs.definition import Definition
from sayso.stores import workers
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in
from sayso.stores.workers import Lease

Body = dict[str, Any]
T = TypeVar("T")

# -- values ------------------------------------------------------------------------------------------------------------


class Deferred(NamedTuple):
    """A value that is serialized only if and when its run is saved; `write` returns its stored form."""

    value: Any
    write: Callable[[], Any]


class LostValue(NamedTuple):
    """A value that could not be stored: using it is an error for this reason, but its plain form can be shown."""

    plain: Any
    reason: str


_TOO_LONG = {"plain": "(a result that is too large for this store)", "lost": "is too large for this store"}


def live_value(value: Any, function: Callable[..., Any]) -> Deferred:
    """Wrap a function's result; its stored form has `form`, or else `plain` and the reason why it is `lost`."""

    def write() -> Body:
        try:
            form = canonical.encode({"value": value})
            canonical.check_round_trip(form, _result_classes(function))
        except ArgumentError as error:
            reason = error.reason
        except Exception as error:  # noqa: BLE001  raised by a value's own code, which must not invalidate the result
            reason = f"raised {type(error).__name__} when it was recorded"
        else:
            return {"form": form.text}
        return {"plain": events.plain(value), "lost": reason}

    return Deferred(value, write)


def restored(stored: Any, function: Callable[..., Any]) -> Any:
    """Return a function's result from its record: as it is, from its stored form, or as a `LostValue`."""
    if stored is None:
        return None
    if isinstance(stored, Deferred):
        return stored.value  # it ended since the lease was taken
    if "form" in stored:
        return canonical.decode(stored["form"], _result_classes(function))["value"]
    return LostValue(stored["plain"], stored["lost"])


@lru_cache(maxsize=1024)
def _result_classes(function: Callable[..., Any]) -> Mapping[str, type]:
    """Return the classes in a function's result annotation; empty if the annotation is missing or unusable."""
    try:
        annotation = get_type_hints(function, include_extras=True).get("return")
    except Exception:  # noqa: BLE001  annotations are user code; an unreadable one names no class
        return {}
    return {} if annotation is None else Schema.of_type(annotation).classes


def given_arguments(arguments: Mapping[str, Any]) -> Deferred:
    """Wrap the arguments of a run; a checkpoint raises `ArgumentError` if they have no canonical form."""
    given = dict(arguments)
    return Deferred(given, lambda: canonical.encode(given).text)


def made_defaults(values: dict[str, Any]) -> Deferred:
    """Wrap the default parameters of a call; if they have no canonical form, a resumed run creates new ones."""

    def write() -> str | None:
        try:
            return canonical.encode(values).text
        except ArgumentError:
            return None

    return Deferred(values, write)


def result_shown(request: Request) -> Any:
    """Return the masked result from a request's record; None if there is none."""
    result = None if request.execution is None else request.execution.result
    return None if result is None else cast("Body", canonical.display(canonical.load(result)))["result"]


def bodies(steps: Iterable[Step]) -> dict[str, Body]:
    """Return the bodies of steps by place; the last step of a place is used."""
    known: dict[str, Body] = {}
    for step in steps:
        known.pop(step.place, None)  # ordered by the last event
        known[step.place] = json.loads(step.body)
    return known


def resolution_place(request_id: str) -> str:
    """Return the place in the history for a resolution's data beyond the decision."""
    return f"@{request_id}"


def in_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    return asyncio._get_running_loop() is not None  # noqa: SLF001  documented for this use, despite its name


def call_store(store: Store, function: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
    """Call a verb of a store, or a function that calls verbs, without blocking the event loop."""
    return (offload if store.blocks else at_once)(partial(function, *args))


# -- the history -------------------------------------------------------------------------------------------------------


class _Requests:
    """The requests of a run, as they were when the run was resumed; read on first use."""

    def __init__(self, store: Store, run: RunRecord) -> None:
        self._store, self._run, self.is_read = store, run, False
        self.at: dict[str, Request] = {}
        """By place: the last request."""
        self.made: dict[str, list[Request]] = {}
        """By digest: the requests of calls without a place that were made in the run, or under its name before it."""
        self.keyed: dict[str, Request] = {}
        """By id: the requests with a key, which may have been asked at another place of the run."""

    def read(self) -> None:
        for request in requests_in(self._store, Filter(run_id=self._run.id, kind="call")):
            if request.key is not None:
                self.keyed[request.id] = request
            if request.place:
                self.at[request.place] = request
            elif request.state is State.DONE:
                self.made.setdefault(request.call.digest, []).append(request)
        self.is_read = True

    def unrecorded(self, digest: str, recorded: int) -> Request | None:
        """Return a nested call that was made but is not among the `recorded` ones of its digest; None if none is."""
        # Without a record, only its time tells it from a call before the run. A server's clock may be behind, so the
        # times are not compared for recorded calls.
        made = [request for request in self.made.get(digest, ()) if request.created_at >= self._run.created_at]
        return made[recorded] if len(made) > recorded else None


class Checkpoint:
    """The unsaved steps of a run, to save alone or in one transaction with a request or an outcome.

    It takes the steps out of the history until it is `saved`, so that each of several calls that are saved concurrently
    brings its own steps. `release`, or the end of the `with` block, returns them if nothing was saved.
    """

    def __init__(
        self, history: RunHistory, record: RunRecord, steps: dict[int, tuple[str, Body]],
        waits: tuple[str, Body] | None, left: RunState | None,
    ) -> None:  # fmt: skip
        self._history, self._steps, self._waits, self._is_open = history, steps, waits, True
        written: list[Step] = []
        for place, body in (*steps.values(), waits) if waits is not None else steps.values():
            fields = {name: value.write() if isinstance(value, Deferred) else value for name, value in body.items()}
            try:
                text = dumps(fields)
            except (TypeError, ValueError, RecursionError):  # it must be recorded, whatever user data is attached to it
                text = dumps(events.plain(fields))
            longest = history.store.longest_step
            if longest is not None and fields.get("value") is not None and len(dumps(text)) > longest:
                text = dumps({**fields, "value": _TOO_LONG})
            written.append(Step(place, text, body.get("waits")))
        self.update = RunUpdate(record, written, left)

    def saved(self, request_id: str | None = None, *, is_approved: bool = False) -> None:
        """Record that the checkpoint is in the store.

        Args:
            request_id: The request for which the run waits now. If the store found an earlier request, it did not
                release the run.
            is_approved: A grant or budget approved the request when it was asked, so the run was not released either.
        """
        history, self._is_open = self._history, False
        history.is_stored, is_released = True, self.update.left is not None
        if self._waits is not None:
            place, body = self._waits
            is_released = is_released and request_id in {None, body["waits"]} and not is_approved
            history.known[place] = body if request_id is None else {**body, "waits": request_id}
            history.from_store.discard(place)
        history.is_released = is_released
        history.renew()
        history.settled(self)

    def release(self) -> None:
        """Return the steps to the history, unless they are in the store."""
        if self._is_open:
            self._is_open = False
            self._history.settled(self, self._steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class RunHistory:
    """The history of a run from its start or a pause to its end or next pause, for the task that holds its lease.

    Attributes:
        run_id: The id of the run.
        known: By place: the last event.
        is_stored: Whether the store has the run.
        was: The state before this lease; a run whose holder died counts as broken.
        is_stopping: The consumer of the events is gone, so nothing new starts.
        is_left: The lease has ended, so a handler's thread that could not be stopped starts nothing more.
        is_released: The store has recorded the end of the lease.
        handlers: The scopes of the handlers in progress.
        from_store: The places whose data was read from the store, not produced here.
        passes: The places of handlers for which the store has questions or gated calls.
        requests: The requests, if steps were read from the store.
        limit: Waits for a slot for a tool call, by the tool's name; None outside a worker.
        emit: Called with every event; None if nothing consumes events.
        acts_for: The people for whom the program acts.
        notes: By request id: notes to add when the request is emitted again.
        approved: By id: requests that were approved when the lease was taken. Each is used once, and the start itself
            checks whether the approval is still valid.
        pauses: The events that wait for a person, each with the sort key of its place.
    """

    def __init__(self, store: Store, record: RunRecord, lease: Lease, steps: Iterable[Step] | None = None) -> None:
        self.store, self.run_id, self.is_stored = store, record.id, steps is not None
        self.was = RunState.BROKEN if record.state is RunState.RUNNING else record.state
        self.is_stopping = self.is_left = self.is_released = False
        self.requests = _Requests(store, record)
        self.known = bodies(steps or ())
        self._record = replace(record, holder=lease.holder, state=RunState.RUNNING)
        self._lease = lease  # keep a reference, because the lease ends with its object
        self.handlers: set[Scope] = set()
        self.from_store = set(self.known)
        self.passes = {re.split("[!?]", place)[0] for place in self.from_store if "!" in place or "?" in place}
        self._unsaved: dict[int, tuple[str, Body]] = {}
        self._numbers = itertools.count()
        self._on_their_way: dict[Checkpoint, asyncio.Future[None]] = {}
        self.limit: Callable[[str], AbstractAsyncContextManager[None]] | None = None
        self.emit: Callable[[events.Event], None] | None = None
        self.acts_for: tuple[Identity, ...] = ()
        self.notes: dict[str, Body] = {}
        self.approved: dict[str, Request] = {}
        self.pauses: list[tuple[tuple[int, ...], events.ApprovalEvent | events.InteractionEvent]] = []
        self._is_renewed = False
        self.renew()

    @classmethod
    def new(cls, store: Store, run_id: str, name: str, kind: str) -> RunHistory:
        """Create the history of a new run."""
        lease, now = Lease(), clock.now()
        return cls(store, RunRecord(run_id, name, kind, RunState.RUNNING, lease.holder, now, now), lease)

    def stop(self) -> None:
        """Start nothing new, and end calls inside handlers that wait for a person."""
        self.is_stopping = True
        for scope in list(self.handlers):
            scope.end("the consumer of the run's events has stopped")

    def check_going(self) -> None:
        """Raise `Halt` if the consumer of the events is gone, or the task behind this thread: nothing new starts."""
        job = None if threading.current_thread() is threading.main_thread() else interruptions.job()
        if self.is_stopping or (job is not None and job.is_given_up):
            raise events.Halt("cancelled", "stopped", "the consumer of the run's events has stopped")

    # -- reading -----------------------------------------------------------------------------------------------

    def waiting(self) -> list[tuple[str, Body]]:
        """Return the places that wait for a person."""
        return [(place, body) for place, body in list(self.known.items()) if "waits" in body]

    def is_over(self, request_id: str) -> bool:
        """Return whether a resolution of a request has expired."""
        until = self.known.get(resolution_place(request_id), {}).get("expires_at")
        return until is not None and clock.milliseconds() >= until

    def pending(self) -> dict[str, list[Body]]:
        """Return the pending events in the order of a model's turns and calls, and of a workflow's steps."""
        found: dict[str, list[Body]] = {}
        for _, event in sorted(self.pauses, key=itemgetter(0)):
            name = "pending_approvals" if isinstance(event, events.ApprovalEvent) else "pending_interactions"
            found.setdefault(name, []).append(events.entry_of(event))
        return found

    async def read_requests(self) -> None:
        """Read the requests of the run, once."""
        if not self.requests.is_read:
            await call_store(self.store, self.requests.read)

    def put(self, place: str, body: Body) -> None:
        """Add a step; the next checkpoint saves it."""
        self.known[place] = body
        self.from_store.discard(place)
        self._unsaved[next(self._numbers)] = place, body

    def renew(self) -> None:
        """Have the lease renewed for as long as this task holds the run in the store."""
        is_held = self.is_stored and not self.is_released and not self.is_left
        if is_held and not self._is_renewed:
            workers.keep_renewing(self.store, self.run_id, self._lease.holder, is_run=True)
        elif self._is_renewed and not is_held:
            workers.stop_renewing(self.store, self._lease.holder)
        self._is_renewed = is_held

    # -- saving ------------------------------------------------------------------------------------------------

    def checkpoint(self, waits: tuple[str, Body] | None = None, left: RunState | None = None) -> Checkpoint:
        """Return a checkpoint of the steps that are neither saved nor in another checkpoint.

        Args:
            waits: The step that waits. It becomes part of the history only when it is saved with its request.
            left: The run's state after the lease, if the lease ends because nothing else of the run is in progress.
        """
        # Each step is removed atomically, because a handler's thread may add or take steps concurrently.
        steps: dict[int, tuple[str, Body]] = {}
        for number in sorted(self._unsaved):
            if (step := self._unsaved.pop(number, None)) is not None:
                steps[number] = step
        try:
            made = Checkpoint(self, self._record, steps, waits, left)
        except BaseException:  # an argument of the run has no form that can be saved
            self._unsaved |= steps
            raise
        if steps and in_loop():
            self._on_their_way[made] = asyncio.get_running_loop().create_future()
        return made

    def settled(self, checkpoint: Checkpoint, steps: Mapping[int, tuple[str, Body]] | None = None) -> None:
        """Wake tasks that wait for a checkpoint; steps that it did not save become unsaved again."""
        self._unsaved |= steps or {}
        done = self._on_their_way.pop(checkpoint, None)
        if done is not None:
            done.set_result(None)

    async def quiet(self) -> None:
        """Wait until no checkpoint with earlier steps is in progress.

        A waiting step must be saved after all steps that led to it; otherwise a resumed run could not reach its place.
        """
        while self._on_their_way:
            await asyncio.wait(list(self._on_their_way.values()))

    async def save(self) -> None:
        """Save all steps, if the run is in the store.

        Raises:
            RunBusyError: Another process holds the run's lease; the run must not continue here.
        """
        if self.is_stored and self._unsaved:
            await self._write(self.store.save_run)

    def save_now(self) -> None:
        """Do the same as `save`, in a thread that may block, such as the store's own."""
        if self.is_stored and self._unsaved:
            with self.checkpoint() as checkpoint:
                self.store.save_run(checkpoint.update)
                checkpoint.saved()

    async def leave(self, state: RunState) -> None:
        """Save the remaining steps and end the lease. A run that ended without waiting leaves nothing in the store."""
        self.is_left = True
        try:
            if self.is_released and state is RunState.BROKEN:
                # It was released as paused, but its caller was interrupted before it was told. As after any crash, a
                # caller that passes the earlier decisions again continues it, unless another process has taken it.
                with suppress(RunBusyError):
                    await call_store(self.store, self.store.take_run, self.run_id, self._record.holder)
                    self.is_released = False
            if not self.is_released and (self.is_stored or (state is not RunState.ENDED and self._unsaved)):
                await self._write(lambda update: self.store.leave_run(update, state))
        finally:
            self.renew()
            self._lease.release()

    async def _write(self, write: Callable[[RunUpdate], None]) -> None:
        with self.checkpoint() as checkpoint:
            await call_store(self.store, write, checkpoint.update)
            checkpoint.saved()


class StepContext:
    """One runnable in progress.

    Attributes:
        place: The position in the run. It is unique within a run, and a resumed run finds each call by it.
        path: The names from the outermost runnable down to this one.
        is_outermost: Whether it is the run's own runnable.
        is_alone: Whether nothing else of the run is in progress, so that the run is released when this stops.
        rank: The sort key of the place.
        input: The masked arguments; None before they are known. `arguments` returns the real ones.
        answers: By number: people's answers to the handler's questions.
        late: The number of the question that expired, if any.
        suspensions: The number of questions that the handler has asked in this pass.
        is_running: Whether the handler has started; before that, its rules and defaults are evaluated.
    """

    def __init__(
        self, history: RunHistory, runnable: Definition, place: str, path: str, *, parent: StepContext | None = None,
        tool_call_id: str | None = None, rank: tuple[int, ...] = (), is_alone: bool = True,
    ) -> None:  # fmt: skip
        self.history, self.runnable, self.place, self.path = history, runnable, place, path
        self.is_outermost, self.is_alone = parent is None, is_alone
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
        """Return the step for a call that this one makes; `key` is unique among the calls of this step.

        `is_only` means that no other call is made concurrently. If this step's own call has started, its outcome must
        be recorded before the run is released.
        """
        return StepContext(
            self.history, runnable, f"{self.place}/{key}", f"{self.path}.{runnable.name}", parent=self,
            tool_call_id=tool_call_id, rank=(*self.rank, *rank),
            is_alone=is_only and self.is_alone and self.runnable.is_free,
        )  # fmt: skip

    def begin(self, arguments: Callable[[], Body], shown: Body) -> None:
        """Record the arguments with which the handler starts, and their masked form."""
        self.arguments, self.input, self.is_running = arguments, shown, True

    def must_own(self, request: Request, place: str) -> None:
        """Raise `AlteredRequestError` if a request was not asked at this place."""
        is_elsewhere = request.place != place and (request.key is None or request.call.tool != self.runnable.gate.tool)
        if request.run_id != self.history.run_id or is_elsewhere:
            raise AlteredRequestError(request.id, f"it was asked by another step than {self.path}, which waits for it")

    def waits_for(self, request: Request) -> events.Halt:
        """Emit that the step waits for a person, and return the resulting `Halt`."""
        note: Body = {}
        for _, body in self.history.waiting():
            if body["waits"] == request.id:
                note |= body.get("note") or {}  # from earlier calls of the run
        note |= self.history.notes.get(request.id, {})
        event, is_call = events.event_of(request, note, self.path), request.kind == "call"
        self.count("approvals:required" if is_call else "suspends:required")
        if self.history.emit is not None:
            self.history.emit(event)
        self.history.pauses.append((self.rank, event))
        what = request.prompt or event.runnable_name if is_call else request.question.text
        reason, text = "approval_required" if is_call else "input_required", f"{request.id} waits for a person: {what}"
        return events.Halt("cancelled", reason, text, output=events.waiting_output(event), event=event)

    def count(self, what: str, n: int = 1) -> None:
        """Increment a counter of this step and of the steps above it."""
        step: StepContext | None = self
        while step is not None:
            step.usage[what] += n
            step = step.parent

    @property
    def site(self) -> CallSite:
        """The position of the call, for the gate."""
        facts = {
            "path": self.path, "runnable_name": self.runnable.name, "runnable_type": self.runnable.type,
            "tool_call_id": self.tool_call_id,
        }  # fmt: skip
        return CallSite((self.history.run_id,), {}, self.history.acts_for, place=self.place, context=facts)

    def record(self, status: events.RunStatus, *, value: Any = None, error: Body | None = None) -> None:
        """Add the end of this step to the history; the next checkpoint saves it."""
        body: Body = {
            "path": self.path, "name": self.runnable.name, "type": self.runnable.type,
            "t0": self.t0, "t1": clock.milliseconds(), "status": status.model_dump(exclude_none=True),
            "input": self.input, "error": error, "usage": dict(self.usage), "metadata": self.metadata,
        }  # fmt: skip
        if value is not None:
            body["value"] = live_value(value, self.runnable.function)
        # Other steps mask these names too; that a model wrote `***` itself masks nothing.
        shown, masked = self.input or {}, self.runnable.gate.redaction.keys - DEFAULT_KEYS
        if MASK in shown.values():
            real = self.arguments()
            masked |= {name for name, text in shown.items() if text == MASK and real.get(name) != MASK}
        if masked:
            body["redact"] = sorted(masked)
        self.history.put(self.place, body)

    def emit_start(self) -> None:
        """Emit the start of this step."""
        if self.history.emit is not None:
            kind, run_id = self.runnable.type, self.history.run_id
            self.history.emit(events.StartEvent(run_id=run_id, path=self.path, runnable_type=kind, t0=self.t0))

    def emit_end(self, status: events.RunStatus, output: Any = None, error: Body | None = None) -> None:
        """Emit the end of this step; the end of the run itself is its output, which comes last."""
        if self.history.emit is not None and not self.is_outermost:
            self.history.emit(self.output_event(status, output, error))

    def output_event(
        self, status: events.RunStatus, output: Any = None, error: Body | None = None
    ) -> events.OutputEvent:
        """Return the event for the end of this step."""
        return events.OutputEvent(
            run_id=self.history.run_id, path=self.path, runnable_type=self.runnable.type, input=self.input,
            status=status, output=output, error=error, t0=self.t0, t1=clock.milliseconds(), usage=dict(self.usage),
            metadata=dict(self.metadata),
        )  # fmt: skip


current_context: ContextVar[StepContext | None] = ContextVar("sayso_frame", default=None)
current_step = current_context.get
"""Return the step whose handler is running; None outside a run."""
