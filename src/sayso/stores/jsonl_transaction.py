"""What one verb writes to a JSON-lines store: collected as the record of one line, and nothing before that is whole."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sayso import clock
from sayso.model.canonical.compact import dumps_sorted
from sayso.model.entry import Entry, chained
from sayso.model.lifecycle import Transition
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.stores import row as rows
from sayso.stores.base import Transaction
from sayso.stores.jsonl_state import JsonlState
from sayso.stores.memory_runs import RunWrites, run_values
from sayso.stores.memory_slips import SlipWrites
from sayso.stores.progress import changed_values, progress_values
from sayso.stores.seal import Seal
from sayso.stores.words import sealed

__all__ = ["JsonlTransaction", "step_column"]


def step_column(n: int, place: str) -> str:
    """Return the place for which a step's body is sealed."""
    return f"step/{n}/{place}"


class JsonlTransaction(RunWrites, SlipWrites, Transaction):
    """The verbs' view of the state while the store is alone with its file.

    Attributes:
        requests: Those that were written, by id, as they are now.
    """

    def __init__(self, state: JsonlState, seal: Seal) -> None:
        RunWrites.__init__(self, state.shelf)
        SlipWrites.__init__(self, state.slip_shelf)
        self._state, self._seal = state, seal
        self._record: dict[str, Any] = {}
        self._heads: dict[str, tuple[int, str]] = {}
        self._rows: dict[str, rows.Row] = {}
        self.requests: dict[str, Request] = {}

    def record(self) -> dict[str, Any]:
        """Return what the line has to say; empty where nothing was written."""
        if self.runs:
            self._record["runs"] = [run_values(run) for run in self.runs.values()]
        steps = [
            (run_id, n, step.place, self._seal.close(step.body, run_id, step_column(n, step.place)), step.waits)
            for run_id, added in self.steps.items()
            for n, step in enumerate(added, self._state.shelf.count_steps(run_id) + 1)
        ]
        if steps:
            self._record["steps"] = steps
        if self.dropped:
            self._record["dropped"] = self.dropped
        if self.slips:
            self._record["slips"] = self.sealed_slips()
        return self._record

    def now(self) -> datetime:
        return clock.now()

    def load(self, request_id: str) -> Request:
        return self._state.request(request_id)

    def holder(self, fingerprint: str) -> Request | None:
        return self._state.held(fingerprint)

    def insert(self, transition: Transition) -> None:
        request, subject = transition.request, transition.request.subject
        asked = rows.asked_values(request, self._seal)
        row = rows.Row(*asked, *progress_values(request, self._seal, ""))
        transition.detail["asked"] = rows.asked_digest(asked, self._seal)
        entry = self._entry(transition, row)
        key = rows.text_key(subject.shape)
        if key not in self._state.shapes:
            self._record.setdefault("shapes", {})[key] = subject.shape
        columns = row._replace(link=entry.link)._asdict().items()
        self._add("asked", {name: value for name, value in columns if value is not None}, request)

    def update(self, transition: Transition) -> None:
        request = transition.request
        before = self.requests.get(request.id) or self._state.request(request.id)
        if not self.stands(before):
            raise rows.altered(request.id)
        asked = rows.asked_again(before, request, self._seal, transition.detail)
        changed = asked | changed_values(before, request, self._seal)
        row = (self._rows.get(request.id) or self._state.rows[request.id])._replace(**changed)
        entry = self._entry(transition, row)
        self._add("changed", {"id": request.id, **changed, "link": entry.link}, request)

    def stands(self, request: Request) -> bool:
        return request.id in self._rows or self._state.stands(request.id)

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        self._chained(run_id, "", event, by, channel, detail)

    def _add(self, what: str, columns: dict[str, Any], request: Request) -> None:
        self._record.setdefault(what, []).append(columns)
        self.requests[request.id] = request

    def _entry(self, transition: Transition, row: rows.Row) -> Entry:
        request, event, by, channel, detail = transition
        detail["stands"] = rows.stands_digest(row, self._seal)
        self._rows[request.id] = row
        return self._chained(request.run_id, request.id, event, by, channel, detail)

    def _chained(
        self, run_id: str, request_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]
    ) -> Entry:
        seq, before = self._heads.get(run_id) or self._state.head(run_id)
        if not self._seal.is_open:
            detail = sealed(detail, request_id or run_id, self._seal)
        at, text = clock.microseconds(clock.now()), dumps_sorted(detail)
        entry = chained(before, run_id, seq + 1, at, request_id, event, by.qualified, channel, text)
        self._heads[run_id] = entry.seq, entry.link
        self._record.setdefault("journal", []).append(entry)
        return entry
