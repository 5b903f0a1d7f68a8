"""Runs that programs keep on the server while they wait: saved, taken in hand, handed back, found when they can go on.

What stands in the steps is the program's own business and is not looked into. The invariant: a program meets no run
that another began, and is told of it what it is told of one that is not there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from sayso import errors
from sayso.model.run import RunRecord, RunState, RunUpdate
from sayso.server.api.endpoint import Context, Endpoint, Input, Output
from sayso.server.api.ownership import Ownership
from sayso.server.api.problems import Problem
from sayso.server.api.review import Query
from sayso.stores.filter import RunFilter
from sayso.stores.http_transport import kept_wire, saved_of
from sayso.stores.memory_tables import run_values

__all__ = [
    "OPERATIONS",
    "Done",
    "Empty",
    "KeptQuery",
    "KeptRun",
    "KeptRuns",
    "Leave",
    "Ready",
    "RunInHand",
    "RunsQuery",
    "Save",
    "SavedRun",
    "Take",
    "kept",
    "leave",
    "ready",
    "runs",
    "save",
    "take",
]

_KINDS = ("ask",)
_LOOKED_AT = 1_000
_READY = (1_000, 10_000, 100_000)  # of all programs' runs, looked through one after the other
_PATIENCE = 2.0  # seconds

Name = Annotated[str, Field(min_length=1, max_length=500)]
Holder = Annotated[str | None, Field(max_length=600)]
Instant = Annotated[int, Field(ge=0, le=2**53, description="Microseconds since 1970, UTC.")]


class RunInHand(Input):
    """A run, as its holder sees it."""

    id: Name
    name: Name
    kind: Annotated[str, Field(min_length=1, max_length=50)]
    state: Literal["running", "paused", "broken", "ended"]
    holder: Holder
    created_at: Instant
    updated_at: Instant


class SavedRun(Input):
    """A run and the steps to add to it, each as place, JSON text, and the request that it waits for."""

    run: RunInHand
    steps: list[Annotated[list[str | None], Field(min_length=3, max_length=3)]] = Field(max_length=10_000)
    left: Literal["paused", "broken", "ended"] | None = Field(None, description="How the run is handed back with it.")

    def read(self, own: Ownership, among: str = "") -> RunUpdate:
        """Return what is to be saved, in a run that is the program's from now on.

        Args:
            own: What is the program's.
            among: The run of the request that it is saved with, whose own journal says whose it is.

        Raises:
            RunNotFoundError: Another began it.
            RequestNotFoundError: It waits for another's request.
        """
        if any(place is None or body is None for place, body, _ in self.steps):
            raise Problem("invalid_input", "a step has a place and a body; nothing was done")
        saved = saved_of(self.model_dump())
        own.must_be_able_to_save(saved)
        if saved.run.id != among:
            own.claim(saved.run.id)
        return saved


class Empty(Input):
    """Nothing needs to be said."""


class Save(Input):
    """What is to be saved."""

    saved: SavedRun


class Take(Input):
    """Take a run in hand."""

    run_id: Name
    holder: Annotated[str, Field(min_length=1, max_length=600)]
    gone: Holder = Field(None, description="A holder on the program's own machine that has let go.")


class Leave(Input):
    """Hand a run back."""

    saved: SavedRun
    state: Literal["paused", "broken", "ended"]


class Ready(Input):
    """Of which runnables."""

    names: list[Name] = Field(max_length=1_000)
    limit: int = Field(100, ge=1, le=1_000)


class KeptQuery(Query):
    """Which run."""

    run_id: Name


class RunsQuery(Query):
    """Which runs."""

    state: list[RunState] = Field(default_factory=list[RunState], max_length=4)
    name: Annotated[str | None, Field(max_length=500)] = None
    cursor: Annotated[str | None, Field(max_length=200)] = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 50


class KeptRun(Output):
    """A run and all its steps."""

    run: dict[str, str | int | None]
    steps: list[list[str | None]]


class KeptRuns(Output):
    """A part of a list of runs, newest first; there may be few and still a cursor."""

    runs: list[dict[str, str | int | None]]
    cursor: str | None = None


class Done(Output):
    """Done; there is nothing to tell."""


def kept(asked: Context) -> KeptRun:
    """Return a run."""
    return KeptRun(**kept_wire(Ownership(asked).run(asked.said(KeptQuery).run_id)))


def runs(asked: Context) -> KeptRuns:
    """Return a page of runs."""
    own, said = Ownership(asked), asked.said(RunsQuery)
    found, looked_at, cursor = list[RunRecord](), 0, said.cursor
    while True:
        try:
            page, cursor = own.store.runs(
                RunFilter(frozenset(said.state), said.name), cursor=cursor, limit=said.limit - len(found)
            )
        except ValueError as error:
            raise Problem("invalid_input", f"{error}; nothing was done") from None
        found += [run for run in page if own.is_my_run(run.id)]
        looked_at += len(page)
        if cursor is None or len(found) == said.limit or looked_at >= _LOOKED_AT:
            return KeptRuns(runs=[*map(run_values, found)], cursor=cursor)


def save(asked: Context) -> Done:
    """Save it."""
    own = Ownership(asked)
    own.store.save_run(asked.said(Save).saved.read(own))
    return Done()


def take(asked: Context) -> KeptRun:
    """Take it."""
    own, said = Ownership(asked), asked.said(Take)
    own.must_be_mine(said.run_id)
    return KeptRun(**kept_wire(own.store.take_run(said.run_id, said.holder, gone=said.gone)))


def leave(asked: Context) -> Done:
    """Hand it back."""
    own, said = Ownership(asked), asked.said(Leave)
    own.store.leave_run(said.saved.read(own), RunState(said.state))
    return Done()


def ready(asked: Context) -> KeptRuns:
    """Return those that can go on."""
    own, said = Ownership(asked), asked.said(Ready)
    found: list[RunRecord] = []
    for run_id in _ready(own, said.names):
        try:
            found.append(own.run(run_id).run)
        except errors.RunNotFoundError:
            continue
        if len(found) == said.limit:
            break
    return KeptRuns(runs=[*map(run_values, found)])


def _ready(own: Ownership, names: Sequence[str]) -> Iterator[str]:
    """Yield runs that can go on, also those behind any number of other programs', as far as time allows."""
    ends, seen = time.monotonic() + _PATIENCE, set[str]()
    for most in _READY:
        runs = own.store.ready_runs(names, most)
        for run_id in runs:
            if run_id in seen:
                continue
            seen.add(run_id)
            yield run_id
            if time.monotonic() > ends:
                return
        if len(runs) < most:
            return


_BUSY = ("run_not_found", "run_busy", "request_not_found")

OPERATIONS = [
    Endpoint("GET", "/v1/program/runs", "The program's runs, newest first", runs, kinds=_KINDS, query=RunsQuery,
              answer=KeptRuns),
    Endpoint("GET", "/v1/program/runs/kept", "A run and its steps", kept, kinds=_KINDS, query=KeptQuery,
              answer=KeptRun, problems=("run_not_found",)),
    Endpoint("POST", "/v1/program/runs/save", "Save a run in hand", save, kinds=_KINDS, body=Save, answer=Done,
              problems=_BUSY),
    Endpoint("POST", "/v1/program/runs/take", "Take a run in hand", take, kinds=_KINDS, body=Take, answer=KeptRun,
              problems=_BUSY),
    Endpoint("POST", "/v1/program/runs/leave", "Hand a run back", leave, kinds=_KINDS, body=Leave, answer=Done,
              problems=_BUSY),
    Endpoint("POST", "/v1/program/runs/ready", "Runs that can go on", ready, kinds=_KINDS, body=Ready,
              answer=KeptRuns),
]  # fmt: skip
