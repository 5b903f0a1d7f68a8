"""The context of a step, and the state that all steps share during one execution of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from operator import itemgetter
from typing import Any

from sayso import clock
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.runs.definition import Definition
from sayso.runs.events import ApprovalEvent, Event, Halt, InteractionEvent, OutputEvent, RunStatus, StartEvent, entry_of
from sayso.runs.state import Body, LiveValue, RunHistory
from sayso.scope import Occasion

__all__ = ["RunAttempt", "StepContext", "current_context", "current_step", "now_ms"]

current_context: ContextVar[StepContext | None] = ContextVar("sayso_frame", default=None)


def now_ms() -> int:
    """Return the instant in Unix milliseconds."""
    return clock.microseconds(clock.now()) // 1000


def current_step() -> StepContext | None:
    """Return the step whose handler is running here; None outside of a run."""
    return current_context.get()


class RunAttempt:
    """One call of a run, from its beginning or from where it paused.

    Attributes:
        history: Of the run.
        emit: Takes every event; None where nobody listens.
        acts_for: The persons for whom the program acts.
        notes: What there is to say about a request when it is emitted again, by id.
        approved: Requests that were approved when this attempt began, by id; each is looked up here once, and the start
            itself says whether the approval still counts.
    """

    def __init__(
        self, history: RunHistory, emit: Callable[[Event], None] | None, acts_for: tuple[Identity, ...]
    ) -> None:
        self.history = history
        self.emit = emit
        self.acts_for = acts_for
        self.notes: dict[str, dict[str, Any]] = {}
        self.approved: dict[str, Request] = {}
        self._waiting: list[tuple[tuple[int, ...], ApprovalEvent | InteractionEvent]] = []

    def wait(self, rank: tuple[int, ...], event: ApprovalEvent | InteractionEvent) -> None:
        """Emit what waits for a person; the list of what is pending is in the order of the ranks."""
        if self.emit is not None:
            self.emit(event)
        self._waiting.append((rank, event))

    def note_of(self, request_id: str) -> dict[str, Any]:
        """Return what there is to say about a request when it is emitted, from earlier calls of the run as well."""
        found = dict[str, Any]()
        for _, body in self.history.waiting():
            if body["waits"] == request_id:
                found.update(body.get("note") or {})
        return {**found, **self.notes.get(request_id, {})}

    def pending(self) -> dict[str, list[dict[str, Any]]]:
        """Return what waits, in the order of a model's turns and calls, and in that of a workflow's steps."""
        found: dict[str, list[dict[str, Any]]] = {}
        for _, event in sorted(self._waiting, key=itemgetter(0)):
            name = "pending_approvals" if isinstance(event, ApprovalEvent) else "pending_interactions"
            found.setdefault(name, []).append(entry_of(event))
        return found

    def check_going(self) -> None:
        """Raise `Halt` if whoever listened has gone: nothing new is begun."""
        if self.history.is_stopping:
            raise Halt(RunStatus(code="cancelled", reason="stopped", message="whoever listened to the run has gone"))


class StepContext:
    """One runnable at work.

    Attributes:
        attempt: Shared by all steps of this call.
        history: Of the run.
        is_outermost: Whether it is the run's own: where it stops or ends, nothing else of the run is under way.
        runnable: What works.
        place: Where in the run; no two calls of one run share a place, and a resumed run finds each again by it.
        path: Names from the outermost runnable down to this one.
        parent: Of the runnable that called this one.
        tool_call_id: The model provider's id of the call.
        rank: How the place is ordered among all others.
        input: The arguments as people may see them.
        usage: Counters, those of the steps below added.
        metadata: For the record and the output.
        arguments: The real ones; None before they are known.
        answers: What persons answered to the handler's questions, by number.
        late: The number of the question whose time ran out, if one's did.
        suspensions: How many questions the handler has asked so far in this pass.
        is_running: Whether the handler has begun; before, its rules and defaults are asked.
    """

    def __init__(
        self, attempt: RunAttempt, runnable: Definition, place: str, path: str, *, parent: StepContext | None = None,
        tool_call_id: str | None = None, rank: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.attempt, self.runnable, self.place, self.path = attempt, runnable, place, path
        self.history, self.is_outermost = attempt.history, parent is None
        self.parent, self.tool_call_id, self.rank = parent, tool_call_id, rank
        self.input: dict[str, Any] | None = None
        self.arguments: dict[str, Any] | None = None
        self.answers: dict[int, Any] = {}
        self.usage: Counter[str] = Counter()
        self.metadata: dict[str, Any] = {} if tool_call_id is None else {"tool_call_id": tool_call_id}
        self.suspensions, self.is_running = 0, False
        self.late: int | None = None
        self.t0 = now_ms()

    def child(
        self, runnable: Definition, key: str, rank: tuple[int, ...], tool_call_id: str | None = None
    ) -> StepContext:
        """Return the step for a call that this one makes; `key` is its own among all calls made from here."""
        place, path = f"{self.place}/{key}", f"{self.path}.{runnable.name}"
        return StepContext(
            self.attempt, runnable, place, path, parent=self, tool_call_id=tool_call_id, rank=(*self.rank, *rank)
        )  # fmt: skip

    def begin(self, arguments: dict[str, Any], shown: dict[str, Any]) -> None:
        """Note with what the handler begins, and how people may see that."""
        self.arguments, self.input, self.is_running = arguments, shown, True

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
            "path": self.path,
            "runnable_name": self.runnable.name,
            "runnable_type": self.runnable.type,
            "tool_call_id": self.tool_call_id,
        }
        return Occasion((self.history.run_id,), {}, self.attempt.acts_for, place=self.place, context=facts)

    def record(self, status: RunStatus, *, value: LiveValue | None = None, error: dict[str, Any] | None = None) -> Body:
        """Return what the history keeps of this step when it has ended."""
        body: Body = {
            "path": self.path, "name": self.runnable.name, "type": self.runnable.type,
            "t0": self.t0, "t1": now_ms(), "status": status.model_dump(exclude_none=True), "input": self.input,
            "error": error, "usage": dict(self.usage), "metadata": self.metadata,
        }  # fmt: skip
        return body if value is None else {**body, "value": value}

    def emit_start(self) -> None:
        """Tell those who listen that it begins."""
        if self.attempt.emit is not None:
            kind, run_id = self.runnable.type, self.history.run_id
            self.attempt.emit(StartEvent(run_id=run_id, path=self.path, runnable_type=kind, t0=self.t0))

    def emit_end(self, status: RunStatus, output: Any = None, error: dict[str, Any] | None = None) -> None:
        """Tell those who listen how it ended; the run's own end is its output, which comes last."""
        if self.attempt.emit is not None and not self.is_outermost:
            self.attempt.emit(self.output_event(status, output, error))

    def output_event(
        self, status: RunStatus, output: Any = None, error: dict[str, Any] | None = None
    ) -> OutputEvent:  # fmt: skip
        """Return the event that says how it ended."""
        return OutputEvent(
            run_id=self.history.run_id, path=self.path, runnable_type=self.runnable.type, input=self.input,
            status=status, output=output, error=error, t0=self.t0, t1=now_ms(), usage=dict(self.usage),
            metadata=dict(self.metadata),
        )  # fmt: skip
