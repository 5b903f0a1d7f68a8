"""`load_run`: reads a run from a store without the program's code: its spans, pending requests and decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sayso import config
from sayso.errors import RequestNotFoundError
from sayso.model import canonical
from sayso.model.redaction import Redaction, scrub, scrubbed, words_of
from sayso.model.request import Request, State, secrets_in
from sayso.model.run import RunRecord, RunState
from sayso.model.text import Text
from sayso.runs.events import (
    ApprovalEvent,
    InteractionEvent,
    RunStatus,
    approval_note,
    entry_of,
    event_of,
    waiting_output,
)
from sayso.runs.state import Body, bodies
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

_PAUSES = ("outcome_unknown", "approval_already_claimed", "approval_required", "input_required")


@dataclass(frozen=True)
class Span:
    """One call of a runnable in a run.

    Attributes:
        place: The position in the run; a span's own calls have places below it, joined by `/`.
        path: The names from the outermost runnable down.
        name, type: The name and type of the runnable.
        t0, t1: Unix milliseconds; `t1` is None while it waits.
        status: `code`, and optionally `reason` and `message`; `waiting` while a person must decide, `decided` after a
            person has decided and before the run continues.
        input: The masked arguments. In these, in `output`, `error` and the message of `status`, what any step of the
            run masks by name is masked wherever it occurs.
        output: The result as plain JSON values.
        error: The `type` and `message` of an error.
        usage: The counters.
        metadata: `approval` has the request's id, the effective input and the resolution.
    """

    place: str
    path: str
    name: str
    type: str
    t0: int | None
    t1: int | None
    status: dict[str, Any]
    input: dict[str, Any] | None
    output: Any
    error: dict[str, Any] | None
    usage: dict[str, int]
    metadata: dict[str, Any]


class LoadedRun:
    """A run as it is in the store.

    Attributes:
        record: Its id, name, state and times.
        spans: Its spans in the order in which they ended; waiting ones are last.
    """

    def __init__(self, record: RunRecord, known: dict[str, Body], store: Store, masked: Redaction) -> None:
        self.record = record
        self._store = store
        # Not the steps themselves, which have the unmasked arguments.
        self._open = [(body["waits"], body["path"], body.get("note")) for body in known.values() if "waits" in body]
        self.spans = tuple(self._spans(known, masked))

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.record.id

    @property
    def status(self) -> RunStatus | None:
        """The end of the run, or what it waits for; None while a process holds its lease, and after an interruption."""
        ended = self._ended
        if ended is not None:
            return RunStatus(**ended.status)
        if self.record.state is not RunState.PAUSED:
            return None
        pauses = [_pause_of(request) for request, _, _ in self._waiting()]
        return min(pauses, key=lambda pause: _PAUSES.index(pause.reason or ""), default=None)

    @property
    def output(self) -> Any:
        """The value of `OutputEvent.output` as plain JSON values; None if `status` is None."""
        ended = self._ended
        if ended is not None:
            is_text = ended.type == "Agent" and isinstance(ended.output, str)
            return Text(ended.output) if is_text else ended.output
        events = [*self._events("call"), *self._events("question")]
        return waiting_output(events[0]) if events and self.record.state is RunState.PAUSED else None

    @property
    def _ended(self) -> Span | None:
        """The run's own span, if the run has ended."""
        spans = (span for span in self.spans if span.place == self.record.name)
        return next(spans, None) if self.record.state is RunState.ENDED else None

    def pending_approvals(self) -> list[dict[str, Any]]:
        """Return the calls that wait for a person, as in `OutputEvent.metadata["pending_approvals"]`."""
        return [entry_of(event) for event in self._events("call")]

    def pending_interactions(self) -> list[dict[str, Any]]:
        """Return the questions that wait for a person, as in `OutputEvent.metadata["pending_interactions"]`."""
        return [entry_of(event) for event in self._events("question")]

    def _events(self, kind: str) -> list[ApprovalEvent | InteractionEvent]:
        """Return the events of requests that wait for a person."""
        return [
            event_of(request, note, path)
            for request, path, note in self._waiting()
            if request.kind == kind and request.state is State.PENDING
        ]

    def _waiting(self) -> Iterator[tuple[Request, str, Body | None]]:
        """Yield the requests after which the run has not continued: pending, running or decided."""
        for request_id, path, note in self._open:
            with suppress(RequestNotFoundError):
                yield self._store.settle(request_id), path, note

    def _spans(self, known: dict[str, Body], masked: Redaction) -> Iterator[Span]:
        waiting: list[Span] = []
        for place, body in known.items():
            if "status" in body:
                yield span_of(place, body, masked)
            elif "waits" in body or "answered" in body:
                waiting.append(self._waits(place, body))
        yield from waiting

    def _waits(self, place: str, body: Body) -> Span:
        request = self._store.get(body["waits"] if "waits" in body else body["answered"])
        event = event_of(request, body.get("note"), body["path"])
        shown = request.effective.arguments if request.kind == "call" else {"payload": entry_of(event).get("payload")}
        note = event.metadata.get("approval", {})
        approval = {"approval": {**approval_note(request), **note}} if request.kind == "call" else {}
        status = {"code": "waiting" if request.state is State.PENDING else "decided", "reason": request.state.value}
        return Span(
            place, body["path"], body["name"], event.runnable_type, event.t0, None, status, shown, None, None, {},
            approval,
        )  # fmt: skip


def _pause_of(request: Request) -> RunStatus:
    """Return the status of a run that has not continued after this request."""
    is_call, text = request.kind == "call", f"{request.id} is {request.state.value}"
    match request.state:
        case State.UNKNOWN:
            return RunStatus(code="error", reason="outcome_unknown", message=f"{text}: a person must resolve it")
        case State.RUNNING:
            return RunStatus(code="cancelled", reason="approval_already_claimed", message=text)
        case State.PENDING:
            message = f"{request.id} waits for a person"
        case _:
            message = f"{text}, and the run has not continued yet; resume it with parent_id={request.run_id!r}"
    return RunStatus(code="cancelled", reason="approval_required" if is_call else "input_required", message=message)


def span_of(place: str, body: Body, masked: Redaction) -> Span:
    """Return the span of a step that has ended; values in its output are masked by name."""
    return Span(
        place, body["path"], body["name"], body["type"], body["t0"], body["t1"], body["status"],
        body.get("input"), _shown(body.get("value"), masked), body.get("error"), body.get("usage") or {},
        body.get("metadata") or {},
    )  # fmt: skip


def _shown(stored: dict[str, Any] | None, masked: Redaction) -> Any:
    if stored is None:
        return None
    tree: Any = json.loads(stored["form"])["value"] if "form" in stored else stored["plain"]
    return canonical.display(masked.mask(tree))


def masks_of(known: dict[str, Body], requests: Iterable[Request] = ()) -> tuple[Redaction, frozenset[str]]:
    """Return what must be masked wherever a run is shown: names, and the texts that are masked under them."""
    requests = list(requests)
    names = frozenset[str]().union(
        *(one.redact for one in requests), *(body.get("redact", ()) for body in known.values())
    )
    masked = Redaction(list(filter(words_of, names)))
    texts = (*(_secrets_of(body, masked) for body in known.values()), *map(secrets_in, requests))
    return masked, frozenset[str]().union(*texts)


def _secrets_of(body: Body, masked: Redaction) -> frozenset[str]:
    """Return the values that are masked by name in a step's input and output, and in the calls that a model asked."""
    kept: dict[str, Any] = body.get("value") or {}
    reply: dict[str, Any] = body.get("reply") or {}
    trees = [json.loads(text) for text in (body.get("given"), kept.get("form")) if isinstance(text, str)]
    trees += [kept.get("plain"), *(call["arguments"] for call in reply.get("calls", ()))]
    return frozenset[str]().union(*map(masked.secrets, trees))


def load_run(run_id: str, *, store: Store | str | None = None) -> LoadedRun:
    """Load a run from the store, without the program's code.

    The store has a run once it has first waited for a person.

    Args:
        run_id: The id of the run, as in events.
        store: The store to use instead of the configured one.

    Raises:
        RunNotFoundError: There is no such run.
    """
    where = config.open_store(store)
    snapshot = where.get_run(run_id)
    known = bodies(snapshot.steps)
    masked, hidden = masks_of(known, requests_in(where, Filter(run_id=run_id)))
    run = LoadedRun(snapshot.run, known, where, masked)
    run.spans = tuple(_hides(span, hidden) for span in run.spans)
    return run


def _hides(span: Span, hidden: frozenset[str]) -> Span:
    status, message = span.status, span.status.get("message")
    if isinstance(message, str):
        status = {**status, "message": scrub(message, hidden)}
    given, output, error = (scrubbed(tree, hidden) for tree in (span.input, span.output, span.error))
    return replace(span, status=status, input=given, output=output, error=error)
