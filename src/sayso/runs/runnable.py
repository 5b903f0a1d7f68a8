"""`Runnable`, whose call returns a lazy `Run`: nothing happens until its events or its output are requested.

It implements one call of a run: find the run, take its lease, record the decisions, execute the steps, release it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from operator import itemgetter
from typing import Any, cast
from weakref import WeakValueDictionary

from sayso import config, errors
from sayso.effects import until_done
from sayso.gates import scope
from sayso.gates.options import check_known
from sayso.model import canonical
from sayso.model.ids import new_run_id
from sayso.model.redaction import mark_secrets
from sayso.model.reviewer import Identity
from sayso.model.run import RunState
from sayso.runs.decisions import DecisionTaker, IgnoredInputWarning, resolutions_of
from sayso.runs.definition import RESERVED, Definition
from sayso.runs.engine import run_step
from sayso.runs.events import Denied, Event, Failed, Halt, OutputEvent, RunStatus, end_of, ended_output, plain
from sayso.runs.state import RunHistory, StepContext, bodies, call_store, given_arguments, in_loop
from sayso.stores.workers import Lease
from sayso.view import line

_INPUT = "(input)"  # not a valid name of a runnable
_log = logging.getLogger("sayso")


def _fingerprints(runnable: Runnable) -> dict[str, str]:
    """Return a digest of each runnable's parameters, by path; its implementation may change freely."""
    found: dict[str, str] = {}
    parts: list[tuple[Definition, str, tuple[int, ...]]] = [(runnable, runnable.name, ())]
    while parts:
        part, path, above = parts.pop()
        found[path] = f"{part.kind}:{part.shape.digest}"
        if id(part) not in above:  # an agent may call itself
            for name, below in part.parts().items():
                parts.append((below, f"{path}.{name}", (*above, id(part))))
    return found


def _changes(known: Mapping[str, Any], runnable: Runnable) -> list[str]:
    """Describe the code changes that prevent a run from continuing; new tools do not."""
    if known["name"] != runnable.name:
        return [f"this run was begun by {known['name']!r}, not by {runnable.name!r}"]
    now, problems = _fingerprints(runnable), list[str]()
    for path, digest in known["code"].items():
        if path not in now:
            problems.append(f"{path} no longer exists")
        elif now[path] != digest:
            problems.append(f"{path} takes other arguments than when the run was begun")
    return problems


async def execute(run: Run, emit: Callable[[Event], None] | None) -> OutputEvent:
    """Execute a run from its current state to its end or its next pause.

    The first call and later ones work the same way: a new run has an empty history.
    """
    runnable, run.is_begun = run.runnable, True
    decisions = DecisionTaker(runnable.store, run.resolutions)
    try:
        history = await _open_run(run, decisions)
    except errors.SaysoError as error:
        return _not_begun(run, error, decisions.refusals)
    run.begin(history)
    with ExitStack() as scopes:
        # A resumed run also acts for the people for whom it was started; otherwise they could decide its requests.
        for person in reversed((history.known.get(_INPUT) or {}).get("acts_for", ())):
            scopes.enter_context(scope.run(history.run_id, on_behalf_of=Identity(*person)))
        history.emit, history.acts_for = emit, scope.acts_for()
        step, state = StepContext(history, runnable, runnable.name, runnable.name), RunState.BROKEN
        try:
            output = await _resumed(run, step, decisions)
            state = _state_of(output.status, step)
            if state is RunState.ENDED:
                await _end(step, output)
        finally:
            unsaved: errors.SaysoError | None = None
            try:
                await history.leave(state)
            except errors.SaysoError as error:  # whoever resumes the run repeats unsaved steps
                _log.exception("the run %s could not be released", history.run_id)
                unsaved = error
    if unsaved is not None and state is RunState.ENDED:  # for everybody else, it has not ended
        ending = output.status.code if output.status.reason is None else output.status.reason
        message = (
            f"the run ended ({ending}), and its end could not be recorded: {unsaved}."
            f" Resume it with parent_id={output.run_id!r}; recorded steps are not repeated"
        )
        output.status = RunStatus(code="error", reason="store_failed", message=message)
        output.error = {"type": type(unsaved).__name__, "message": message}
    output.metadata |= history.pending()
    return output


async def _open_run(run: Run, decisions: DecisionTaker) -> RunHistory:
    """Return the history of the intended run: a known one, after taking its lease, or a new one."""
    runnable, store = run.runnable, decisions.store
    named = run.parent_id or run.run_id
    meant = await _runs_meant(run, decisions) if named is None else [named]
    for n, run_id in enumerate(meant, 1):
        is_last = n == len(meant)
        stream = _streams.get(run_id)
        if stream is not None:  # its consumer may have just left it, to continue it at once
            await stream.leaving()
        lease = Lease()
        try:
            snapshot = await call_store(store, decisions.take_run, run_id, lease.holder)
        except BaseException as error:
            lease.release()  # even if the store has granted it: a traceback could keep the lease alive
            if isinstance(error, errors.RunNotFoundError) and run.parent_id is None:
                continue
            if isinstance(error, errors.RunBusyError):
                if run.resolutions:
                    await call_store(store, decisions.refuse, run_id)
                if not is_last:
                    continue  # an equal call is continuing this one right now, so try the next
            raise
        if (
            snapshot.run.state is RunState.ENDED and not snapshot.steps
        ):  # a stored run has at least one step, so its steps were purged
            lease.release()
            raise errors.RunPurgedError(run_id)
        if is_last or snapshot.run.state is not RunState.ENDED:
            return RunHistory(store, snapshot.run, lease, snapshot.steps)
        lease.release()
    # Decisions on requests of a run id that has no stored run are decisions of another program.
    return RunHistory.new(store, run.run_id or new_run_id(), runnable.name, runnable.kind)


async def _runs_meant(run: Run, decisions: DecisionTaker) -> list[str]:
    """Return the ids of runs to which the decisions can belong: same runnable and input; ended ones last."""
    fitting: list[tuple[bool, str]] = []
    for snapshot in await call_store(decisions.store, decisions.runs) if run.resolutions else ():
        runnable, record, other = run.runnable, snapshot.run, None
        if (record.name, record.kind) != (runnable.name, runnable.kind):
            other = f"of the {record.kind} {record.name}"
        elif (known := bodies(snapshot.steps).get(_INPUT)) is not None:
            try:
                calls = _two_calls(run, known["given"])
                other = None if calls is None else f"of {calls[0]}"
            except errors.ArgumentError as error:
                other = f"of {runnable.name}, whose input cannot be read here: {error}"
        if other is None:
            fitting.append((record.state is RunState.ENDED, record.id))
        else:
            decisions.others[record.id] = other
    return [run_id for _, run_id in sorted(fitting, key=itemgetter(0))]


def _two_calls(run: Run, known: str) -> tuple[str, str] | None:
    """Return the masked call that started a run and the masked current one; None if they are equal.

    A call without any input, if input is required, refers to the run's own call.
    """
    runnable = run.runnable
    now = runnable.signature.named(run.args, run.kwargs)
    if not now and runnable.schema.get("required"):
        return None
    was = runnable.shape.decode(known)
    if _is_same(was, now) or _is_same(runnable.completed(was), runnable.completed(now)):
        return None
    return _shown(run, was), _shown(run, now)


def _is_same(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    try:
        return canonical.is_same(dict(was), dict(now))
    except errors.ArgumentError:  # a value without a canonical form cannot be a stored input
        return False


def _shown(run: Run, arguments: Mapping[str, Any]) -> str:
    return line(run.runnable.name, cast("dict[str, Any]", mark_secrets(plain(run.runnable.shown(arguments)))))


def _not_begun(run: Run, error: errors.SaysoError, refusals: list[str]) -> OutputEvent:
    """Return the output of a run whose lease could not be taken."""
    run_id = run.parent_id or run.run_id or getattr(error, "run_id", None) or new_run_id()
    name, message = run.runnable.name, str(error)
    history = RunHistory.new(run.runnable.store, run_id, name, "")
    step = StepContext(history, run.runnable, name, name)
    if not isinstance(error, errors.RunBusyError):
        fault = {"type": type(error).__name__, "message": message}
        return step.output_event(RunStatus(code="error", reason=_reason(error), message=message), error=fault)
    if refusals:
        refused = "; ".join(refusals)
        message = (
            f"run {run_id!r} is already being executed; {refused}. Nothing else was done, wait until it pauses or ends"
        )
    reason = "approval_already_claimed"
    status = RunStatus(code="cancelled", reason=reason, message=message)
    return step.output_event(status, ended_output(reason, next(iter(run.resolutions), None)))


async def _input(run: Run, step: StepContext) -> dict[str, Any]:
    """Return the input of the run from its record, or else the current input, which is then recorded.

    Raises:
        Halt: The code differs from when the run started.
    """
    runnable, history = run.runnable, step.history
    known = history.known.get(_INPUT)
    if known is None:
        try:
            given = runnable.signature.named(run.args, run.kwargs)
        except TypeError as error:
            raise Halt("error", None, str(error), error) from error
        persons = [[person.issuer, person.subject] for person in step.history.acts_for]
        body = {"name": runnable.name, "code": _fingerprints(runnable), "acts_for": persons}
        history.put(_INPUT, {**body, "given": given_arguments(given)})
        return given
    problems = _changes(known, runnable)
    if problems:
        raise Halt("error", "run_changed", "; ".join(problems))
    calls = _two_calls(run, known["given"])
    if calls is not None and run.parent_id is None:
        message = (
            f"run {history.run_id!r} is {calls[0]}, and this call is {calls[1]}; nothing was run."
            " To resume that run, pass its input or none; for a new call, pass another run_id="
        )
        raise Halt("error", "input_changed", message)
    passed = (*run.args, *run.kwargs.values())
    is_blank = all(value is None or (isinstance(value, str) and not value) for value in passed)
    if calls is not None and not is_blank:  # programs that only continue a run may pass empty texts
        text = f"run {history.run_id!r} resumes as {calls[0]}; the input passed with parent_id=, {calls[1]}, is ignored"
        warnings.warn(text, IgnoredInputWarning, stacklevel=2)
    return runnable.shape.decode(known["given"])


async def _resumed(run: Run, step: StepContext, decisions: DecisionTaker) -> OutputEvent:
    """Resume a run whose lease is taken to its end or next pause, and return its output."""
    try:
        given = await _input(run, step)
        step.history.notes = await decisions.decide(step.history)
        decisions.stop_if_cancelled(step)
        value = await run_step(step, given)
    except Halt as halt:
        others = len(step.history.pauses) - 1
        if halt.status.reason in {"approval_required", "input_required"} and others > 0:
            halt.status.message = f"{halt.status.message} (and {others} more)"
        return step.output_event(halt.status, halt.output, error=halt.error)
    except (Denied, Failed) as fault:
        status, error = end_of(fault)
        return step.output_event(status, fault.partial, error=error if isinstance(fault, Failed) else None)
    except errors.SaysoError as error:
        halt = Halt("error", _reason(error), str(error), error)
        return step.output_event(halt.status, error=halt.error)
    return step.output_event(RunStatus(code="success"), value)


def _reason(error: errors.SaysoError) -> str | None:
    return "store_failed" if isinstance(error, errors.StoreError) else None


def _state_of(status: RunStatus, step: StepContext) -> RunState:
    match status.reason:
        case "approval_required" | "input_required" | "approval_already_claimed" | "outcome_unknown" | "suspended":
            return RunState.PAUSED  # for a decision, another worker's outcome, or an event of a framework
        case "run_changed" | "input_changed":
            return step.history.was
        case "stopped" | "store_failed":
            return RunState.BROKEN
        case None if status.code == "error" and not _has_ended(step):
            return RunState.BROKEN  # its model was unreachable
        case _:
            return RunState.ENDED


def _has_ended(step: StepContext) -> bool:
    return "status" in (step.history.known.get(step.place) or {})


async def _end(step: StepContext, output: OutputEvent) -> None:
    """Withdraw the pending requests of an ended run, which nothing waits for, and record how the run ended."""
    history = step.history
    try:
        for request_id in {body["waits"] for _, body in history.waiting()}:
            withdraw = partial(history.store.withdraw, is_brief=True)
            await call_store(history.store, withdraw, request_id, config.requester(), "the run has ended")
    except errors.SaysoError:
        _log.exception("the pending requests of the run %s could not be withdrawn", history.run_id)
    if not _has_ended(step):
        step.record(output.status, value=output.output, error=output.error)


_TURNS = 3  # iterations of the loop until an unreferenced generator is closed
_warned: dict[str, dict[Any, Any]] = {}  # by file: Python's registry of shown warnings, which modules usually have
_streams: WeakValueDictionary[str, Run] = WeakValueDictionary()


class Run:
    """One call of a runnable, which starts a new run or continues one.

    Iterating yields its events, including those of nested runnables; the last one is the `OutputEvent` of the called
    runnable. `collect`, or awaiting the run, returns only that event. A run can be executed once; call the runnable
    again for another. A run that is discarded before it was started warns, like a coroutine.

    Attributes:
        runnable: The called runnable.
        args, kwargs: Its input.
        parent_id: The run to continue.
        run_id: The id for a new run.
        resolutions: Decisions and answers by id.
        limit: The worker's limit of concurrent tool calls (see `RunHistory`).
        is_begun: Whether its events or output were requested.
    """

    limit: Callable[[str], AbstractAsyncContextManager[None]] | None = None

    def __init__(
        self, runnable: Runnable, args: tuple[Any, ...], kwargs: dict[str, Any], *, parent_id: str | None,
        run_id: str | None, resolutions: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.runnable, self.args, self.kwargs = runnable, args, kwargs
        self.parent_id, self.run_id, self.resolutions = parent_id, run_id, resolutions
        self._listener: asyncio.Queue[Event | None] | None = None
        self._history: RunHistory | None = None
        self._is_called = False
        self._is_stopping = False
        self._going: asyncio.Future[OutputEvent] | None = None
        self._output: OutputEvent | None = None
        self.is_begun = False
        frame = inspect.currentframe()
        while frame is not None and str(frame.f_globals.get("__name__")).startswith("sayso.runs."):
            frame = frame.f_back
        self._made_at = ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)

    def __del__(self) -> None:
        if not getattr(self, "is_begun", True):
            text = (
                f"the run of {self.runnable.name!r} was never started, so nothing was called and nobody was asked;"
                " use .run(), `await` or `async for`"
            )
            file, line = self._made_at
            warnings.warn_explicit(text, RuntimeWarning, file, line, registry=_warned.setdefault(file, {}))

    def __repr__(self) -> str:
        hint = "" if self._is_called else ", not started: .run(), await .collect() or async for"
        return f"<Run of {self.runnable.name!r}{hint}>"

    def __aiter__(self) -> AsyncIterator[Event]:
        self.is_begun = True
        return self._events()

    def __await__(self) -> Generator[Any, Any, OutputEvent]:
        return self.collect().__await__()

    async def _events(self) -> AsyncGenerator[Event]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._listener = queue
        self._going = going = asyncio.ensure_future(self._go())
        going.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield await going
        finally:
            if not going.done():
                self._listener = None
                self.stop()
                # Not cancelled, so that a handler that has started can end and its outcome is recorded.
                await until_done(going)

    def stop(self) -> None:
        """Start nothing new. Calls in progress end and are recorded, and then the run is released to be continued."""
        self._is_stopping = True
        if self._history is not None:
            self._history.stop()

    def collect(self) -> Coroutine[Any, Any, OutputEvent]:
        """Execute the run to its end or its next pause, and return its output; `await run` does the same.

        Errors inside the run are in the output's status; only a cancellation of this task is raised. After its events
        were iterated to the end, this returns the output again.
        """
        self.is_begun = True
        return self._go(repeats=True)

    def run(self) -> OutputEvent:
        """Execute the run to its end or its next pause, from a script without an event loop.

        Raises:
            RuntimeError: An event loop runs in this thread; await `collect()` instead.
        """
        self.is_begun = True
        if in_loop():
            raise RuntimeError("run() is for scripts; inside an event loop use `await ….collect()`")
        return asyncio.run(self._go())

    async def _go(self, *, repeats: bool = False) -> OutputEvent:
        if repeats and self._output is not None:
            return self._output
        if self._is_called:
            raise RuntimeError("this run was already executed; call the runnable again for a new run")
        self._is_called = True
        self._output = await execute(self, None if self._listener is None else self._emit)
        return self._output

    def begin(self, history: RunHistory) -> None:
        """Set the run's history after its lease was taken."""
        self._history, history.limit = history, self.limit
        history.is_stopping = self._is_stopping
        if self._going is not None:
            _streams[history.run_id] = self

    async def leaving(self) -> None:
        """Wait until this stream has released its run, if its consumer has left it."""
        going = self._going
        if going is None or going.get_loop() is not asyncio.get_running_loop():
            return
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self._is_stopping and not going.done():
            await asyncio.wait([going])

    def _emit(self, event: Event) -> None:
        if self._listener is not None:  # the consumer may be gone
            self._listener.put_nowait(event)


class Runnable(Definition):
    """A tool, agent or workflow. Calling it returns a lazy `Run`; see `Definition` for its options."""

    def __call__(
        self, *args: Any, parent_id: str | None = None, run_id: str | None = None,
        resume: Mapping[str, Any] | None = None, approval_decisions: Mapping[str, Any] | None = None, **kwargs: Any,
    ) -> Run:  # fmt: skip
        """Return a run: iterate over its events, `await` its `collect()`, or call its `run()` in a script.

        Args:
            parent_id: The id of a run to continue, which keeps its own input.
            run_id: An id for a new run; if a run with this id exists, it continues.
            resume: Decisions and answers by id.
            approval_decisions: An alias of `resume` from the approval API.

        Raises:
            TypeError: An argument is unknown, or is passed twice.
        """
        signature = self.signature
        try:
            signature.named(args, kwargs)
        except TypeError as error:
            if signature.rest is None:
                check_known(self.name, kwargs, [*signature.names, *RESERVED])
            raise TypeError(f"{self.name} was not called: {error}") from None
        resolutions = resolutions_of(approval_decisions, resume)
        for name in (parent_id, run_id):
            if name is not None:
                scope.checked_name(name)
        return Run(self, args, kwargs, parent_id=parent_id, run_id=run_id, resolutions=resolutions)
