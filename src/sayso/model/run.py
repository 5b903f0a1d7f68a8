"""A run as stored: its state, the process that holds it, and its recorded steps.

The run of an agent, workflow or tool is stored when it first waits for a person, and after every step from then on.
Steps are small JSON texts by place, append-only; the last step of a place counts. `sayso.runs` defines their content.
Invariant: only one process and one task at a time holds a run, and only the holder adds steps to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class RunState(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    PAUSED = "paused"
    BROKEN = "broken"
    ENDED = "ended"


class Step(NamedTuple):
    """A record of what happened at one place of a run.

    Attributes:
        place: The place; no two calls of one run share a place.
        body: JSON.
        waits: Id of the request for which the run waits here, until the next step of the same place.
    """

    place: str
    body: str
    waits: str | None = None


@dataclass(frozen=True)
class RunRecord:
    """A run.

    Attributes:
        id: Random, prefixed `run_`, or the name that the program gave it.
        name: The runnable that was called.
        kind: `tool`, `agent`, `workflow`, …
        state: `running` (held), `paused` (a person must decide), `broken` (released before its end), `ended`.
        holder: Who holds it (see `sayso.stores.workers`); None if nobody does.
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
        """Return the run as held by `holder`."""
        return replace(self, state=RunState.RUNNING, holder=holder, updated_at=now)

    def left(self, state: RunState, now: datetime) -> RunRecord:
        """Return the run as released by its holder."""
        return replace(self, state=state, holder=None, updated_at=now)


@dataclass(frozen=True)
class RunSnapshot:
    """A run and all its steps, in the order in which they were added."""

    run: RunRecord
    steps: Sequence[Step]


class RunUpdate(NamedTuple):
    """The changes of a run that are saved in the same transaction as something else.

    Attributes:
        run: The run as its holder sees it.
        steps: The new steps.
        left: The state in which the holder releases the run; None keeps it held.
    """

    run: RunRecord
    steps: Sequence[Step]
    left: RunState | None = None
