"""A run as a store keeps it: its state, the process that holds it, and its recorded steps.

The run of an agent, workflow or tool is stored when it first waits for a person, and after every step from then on.
Steps are small JSON texts by place, append-only; the last one of a place counts. `sayso.runs` defines their content.
Invariant: only one process and one task at a time holds a run, and only they add steps to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class RunState(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    PAUSED = "paused"
    BROKEN = "broken"
    ENDED = "ended"


class Step(NamedTuple):
    """What happened at one place of a run.

    Attributes:
        place: Where; no two calls of one run share a place.
        body: JSON.
        waits: Id of the request for which the run waits here, until another step of the same place follows.
    """

    place: str
    body: str
    waits: str | None = None


@dataclass(frozen=True)
class RunRecord:
    """A run.

    Attributes:
        id: Random, prefixed `run_`, or the name that the program gave it.
        name: Of the runnable that was called.
        kind: `tool`, `agent`, `workflow`, …
        state: `running` (in hand), `paused` (a person must decide), `broken` (handed back before its end), `ended`.
        holder: Who has it in hand (see `sayso.stores.worker`); None while nobody has.
        created_at, updated_at: By the store's clock.
    """

    id: str
    name: str
    kind: str
    state: RunState
    holder: str | None
    created_at: datetime
    updated_at: datetime

    def held_by(self, holder: str, now: datetime) -> RunRecord:
        """Return the run as taken in hand."""
        return replace(self, state=RunState.RUNNING, holder=holder, updated_at=now)

    def left(self, state: RunState, now: datetime) -> RunRecord:
        """Return the run as handed back."""
        return replace(self, state=state, holder=None, updated_at=now)


@dataclass(frozen=True)
class RunSnapshot:
    """A run and all its steps, in the order in which they were added."""

    run: RunRecord
    steps: Sequence[Step]


class RunUpdate(NamedTuple):
    """What is to be saved of a run together with something else.

    Attributes:
        run: As its holder sees it.
        steps: New ones.
        left: How the run is handed back with it; None: it stays in its holder's hand.
    """

    run: RunRecord
    steps: Sequence[Step]
    left: RunState | None = None
