"""`load_run`: what a store knows of a run, without the program's code: its spans, what waits, what was decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sayso import compat, config
from sayso.errors import RequestNotFoundError
from sayso.model import canonical
from sayso.model.redaction import Redaction
from sayso.model.request import Request, State
from sayso.model.run import RunRecord
from sayso.runs.journal import Body, bodies
from sayso.runs.pending import entry_of, event_of
from sayso.stores.base import Store

__all__ = ["LoadedRun", "Span", "load_run"]

_SHOWN = Redaction()


@dataclass(frozen=True)
class Span:
    """One runnable at work, as far as it got.

    Attributes:
        place: Where in the run; a span's own calls stand below it, joined by `/`.
        path: Names from the outermost runnable down.
        name, type: The runnable.
        t0, t1: Unix milliseconds; `t1` is None while it waits.
        status: `code`, and where there are any `reason` and `message`; `waiting` while a person must
            decide, `decided` when one has and the run has not gone on.
        input: The arguments as people may see them.
        output: What it gave, as plain JSON values, secrets masked by their names.
        error: `type` and `message`.
        usage: Its counters.
        metadata: `approval` holds the request's id, the effective input and the resolution.
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
    """A run as the store knows it.

    Attributes:
        record: Its id, name, state and times.
        spans: In the order in which they ended; those that wait last.
    """

    def __init__(self, record: RunRecord, known: dict[str, Body], store: Store) -> None:
        self.record = record
        self._store = store
        # Not the steps themselves: they hold the real arguments.
        self._open = [(body["waits"], body["path"]) for body in known.values() if "waits" in body]
        self.spans = tuple(self._spans(known))

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.record.id

    def pending_approvals(self) -> list[dict[str, Any]]:
        """Return the calls that wait for a person, as in `OutputEvent.metadata["pending_approvals"]`."""
        return [entry_of(event_of(request, path=path)) for request, path in self._waiting() if request.kind == "call"]

    def pending_interactions(self) -> list[dict[str, Any]]:
        """Return the questions that wait for a person, as in `OutputEvent.metadata["pending_interactions"]`."""
        return [
            entry_of(event_of(request, path=path)) for request, path in self._waiting() if request.kind == "question"
        ]

    def _waiting(self) -> Iterator[tuple[Request, str]]:
        for request_id, path in self._open:
            try:
                request = self._store.settle(request_id)
            except RequestNotFoundError:
                continue
            if request.state is State.PENDING:
                yield request, path

    def _spans(self, known: dict[str, Body]) -> Iterator[Span]:
        waiting: list[Span] = []
        for place, body in known.items():
            if "status" in body:
                yield _span(place, body)
            elif "waits" in body or "answered" in body:
                waiting.append(self._waits(place, body))
        yield from waiting

    def _waits(self, place: str, body: Body) -> Span:
        request = self._store.get(body["waits"] if "waits" in body else body["answered"])
        event = event_of(request, path=body["path"])
        shown = request.effective.arguments if request.kind == "call" else {"payload": entry_of(event).get("payload")}
        approval = {"approval": {"approval_id": request.id, "input": shown}} if request.kind == "call" else {}
        status = {"code": "waiting" if request.state is State.PENDING else "decided", "reason": request.state.value}
        return Span(
            place, body["path"], body["name"], event.runnable_type, event.t0, None, status, shown, None, None, {},
            approval,
        )  # fmt: skip


def _span(place: str, body: Body) -> Span:
    return Span(
        place, body["path"], body["name"], body["type"], body["t0"], body["t1"], body["status"], body.get("input"),
        _shown(body.get("value")), body.get("error"), body.get("usage") or {}, body.get("metadata") or {},
    )  # fmt: skip


def _shown(kept: dict[str, Any] | None) -> Any:
    if kept is None:
        return None
    tree: Any = json.loads(kept["form"])["value"] if "form" in kept else kept["plain"]
    return canonical.display(_SHOWN.mask(tree))


def load_run(run_id: str, *, store: Store | str | None = None, tracing_provider: Any = None) -> LoadedRun:
    """Return what the store knows of a run; the program's code is not needed.

    A run is there from when it first waited for a person.

    Raises:
        RunNotFoundError: There is no such run.
    """
    where = config.open_store(compat.store_of(store, tracing_provider))
    kept = where.get_run(run_id)
    return LoadedRun(kept.run, bodies(kept.steps), where)
