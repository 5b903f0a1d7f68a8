"""Runs on a sayso server: the part of `sayso.stores.http` that is about them.

Whether a run's holder still lives is judged on both sides, because the server sees its own processes alone and this
machine its own. The invariant: a run is taken from a holder only by who is on the holder's machine and saw it gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sayso import errors
from sayso.model.run import RunRecord, RunState, Saved
from sayso.stores import lease
from sayso.stores.http_fault import beginning
from sayso.stores.http_line import Line
from sayso.stores.http_wire import kept_of, readable, run_from, saved_wire
from sayso.stores.run_verbs import Kept, RunFilter, RunVerbs
from sayso.stores.select import read_cursor

__all__ = ["HttpRuns"]


class HttpRuns(RunVerbs):
    """The verbs about runs, over a line to the server."""

    _line: Line
    _late: float
    _soon: float

    def get_run(self, run_id: str) -> Kept:
        return kept_of(self._line.get("/runs/kept", run_id, patience=self._late, run_id=run_id))

    def runs(
        self, wanted: RunFilter, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[Sequence[RunRecord], str | None]:
        read_cursor(cursor)  # raises here what a store raises
        asked: dict[str, Any] = {"state": sorted(wanted.states), "name": wanted.name, "cursor": cursor, "limit": limit}
        found = self._line.get("/runs", patience=self._soon, **asked)
        with readable():
            return [*map(run_from, found["runs"])], found["cursor"]

    def ready_runs(self, names: Collection[str], limit: int = 100) -> Sequence[str]:
        found = self._line.post("/runs/ready", {"names": sorted(names), "limit": limit}, patience=self._soon)
        with readable():
            ready = {run.id: run for run in map(run_from, found["runs"])}
        for name in names:
            ready |= {run.id: run for run in self._running(name) if lease.is_free(run.holder)}
        return sorted(ready, key=lambda run_id: ready[run_id].updated_at)[:limit]

    def save_run(self, saved: Saved) -> None:
        with beginning(saved.run.id):
            self._line.post("/runs/save", {"saved": saved_wire(saved)}, saved.run.id, patience=self._late)

    def take_run(self, run_id: str, holder: str, *, gone: str | None = None) -> Kept:
        body = {"run_id": run_id, "holder": holder, "gone": gone}
        try:
            return kept_of(self._line.post("/runs/take", body, run_id, patience=self._late))
        except errors.RunBusyError:
            held_by = self.get_run(run_id).run.holder
            if gone is not None or held_by is None or not lease.is_free(held_by):
                raise
            return self.take_run(run_id, holder, gone=held_by)

    def leave_run(self, saved: Saved, state: RunState) -> None:
        body = {"saved": saved_wire(saved), "state": state.value}
        self._line.post("/runs/leave", body, saved.run.id, patience=self._late)

    def _running(self, name: str) -> Sequence[RunRecord]:
        found: list[RunRecord] = []
        cursor, has_more = None, True
        while has_more:
            page, cursor = self.runs(RunFilter(frozenset({RunState.RUNNING}), name), cursor=cursor, limit=200)
            found += page
            has_more = cursor is not None
        return found
