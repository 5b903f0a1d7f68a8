"""What is promised of stored runs: one holder at a time, and no step whose end was saved is made again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.kernel import LEASE_SECONDS

if TYPE_CHECKING:
    from sayso.runs.worker import Worker
    from tests.simulation.kernel import Process
    from tests.simulation.promises import Promises

__all__ = ["RunRecords"]


class _Held(NamedTuple):
    """Who holds a run, and when that was last written, in microseconds."""

    holder: str | None
    at: int


class RunRecords:
    """The stored runs of one schedule.

    Args:
        promises: Which says what was broken, and who is alive.
    """

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self.made: dict[str, str] = {}  # the request whose call had its effect, by step
        self.answers: dict[str, str] = {}  # by step
        self.workers: dict[Process, Worker] = {}
        self.begin()

    def begin(self) -> None:
        """Forget what the file said: it is read again."""
        self._held: dict[str, _Held] = {}
        self.saved: set[str] = set()

    def take(self, line: dict[str, Any], *, is_again: bool) -> None:
        """Take what a line says of runs."""
        for run in line.get("runs", ()):
            before, now = self._held.get(run["id"]), _Held(run["holder"], run["updated_at"])
            if before is not None and before.holder is not None and now.holder not in {None, before.holder}:
                self._check_taken(before, now, is_again=is_again)
            self._held[run["id"]] = now
        for _, _, place, body, _ in line.get("steps", ()):
            if json.loads(body).get("status", {}).get("code") == "success":
                self.saved.add(place)

    def _check_taken(self, before: _Held, now: _Held, *, is_again: bool) -> None:
        holder, taker = (str(one.holder).partition("#")[0] for one in (before, now))
        has_time = now.at >= before.at + 1.5 * LEASE_SECONDS * 1_000_000
        is_own = holder == taker  # the lease of a task that has ended
        if not (is_again or has_time or is_own) and self._promises.is_alive(holder):
            raise self._promises.broken(f"a run was taken by {now.holder}; {holder} was alive and held it")

    def step_runs(self, place: str) -> None:
        """A step without a gate runs; one that has lost the run may begin it before it knows that."""
        self._promises.check()
        holders = {str(held.holder).partition("#")[0] for held in self._held.values()}
        if place in self.saved and self._promises.running_worker in holders:
            raise self._promises.broken(f"{place} ran again, and its end was saved")

    def step_is_answered(self, place: str, answer: str) -> None:
        """A step gets a person's answer, each time that it is made."""
        if self.answers.setdefault(place, answer) != answer:
            raise self._promises.broken(f"{place} was answered {answer!r}, and before {self.answers[place]!r}")

    def step_takes_effect(self, place: str, request_id: str) -> None:
        """The gated call of a step has its effect."""
        if self.made.setdefault(place, request_id) != request_id:
            raise self._promises.broken(f"{place} took effect by {request_id}, and did so before by {self.made[place]}")
