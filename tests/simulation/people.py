"""The reviewers of a schedule: each looks at what waits, and decides it in their own way."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sayso
from sayso import errors
from sayso.model import canonical
from sayso.model.request import Request, State
from tests.simulation.kernel import Process

if TYPE_CHECKING:
    from tests.simulation.programs import Scene

__all__ = ["Habits", "Person"]


@dataclass
class Habits:
    """What reviewers of a schedule do, beside approving, editing and refusing calls.

    Attributes:
        undo: For how many seconds they may take an approval back; None is never.
        grants: Whether they allow further calls like one that they saw, and revoke that.
        resolves: Whether they look how calls ended whose outcome is unknown, and say so.
        repeats: Whether they let an effect happen again.
        stops: Whether they stop all starts for a while, and cancel what is approved.
    """

    undo: int | None = None
    grants: bool = False
    resolves: bool = False
    repeats: bool = False
    stops: bool = False


class Person:
    """A reviewer: the body of a process.

    Args:
        scene: The schedule.
        name: Theirs.
        kindness: How often they approve.
    """

    def __init__(self, scene: Scene, name: str, kindness: float) -> None:
        self._scene, self._name, self._kindness, self._habits = scene, name, kindness, scene.habits
        self._world, self._promises = scene.world, scene.promises
        self._reviewer = sayso.Reviewer(name)

    def __call__(self, _: Process) -> None:
        """Look at what waits, now and then, until the schedule ends."""
        span = None if self._habits.undo is None else f"{self._habits.undo}s"
        review = sayso.Review(self._scene.store(), by=self._reviewer, undo_within=span)
        while not self._scene.is_closing:
            self._world.sleep(1 + self._world.rng.random() * 9)
            try:
                for request in review.list(state="pending", limit=10):
                    self._decide(review, request)
                if self._habits.resolves and not self._world.is_calm:
                    for request in review.list(state=State.UNKNOWN, limit=10):
                        self._resolve(review, request)
                if self._habits.grants and self._chance < 0.1:
                    self._revoke(review)
                if self._habits.stops:
                    self._stop(review)
            except (errors.StoreError, errors.RequestNotFoundError):
                continue

    @property
    def _chance(self) -> float:
        return self._world.rng.random()

    def _decide(self, review: sayso.Review, request: Request) -> None:
        """Take one decision, and tell the promises before and after."""
        promises, chance, kindness = self._promises, self._chance, self._kindness
        if request.kind == "question":
            with suppress(errors.DecisionRefusedError, errors.RequestNotFoundError):
                review.answer(request.id, f"dock {chance}")
                promises.decision_acknowledged(request.id, "answered", self._name)
            return
        arguments = canonical.decode(request.effective.form, {})
        seen = request.current_fingerprint
        try:
            if chance < kindness * 0.75 or self._world.is_calm:
                promises.decision_offered(request.id, self._name, arguments)
                self._approve(review, request, arguments)
                promises.decision_acknowledged(request.id, "approved", self._name)
            elif chance < kindness and "amount" in arguments:
                changes = {"amount": arguments["amount"] + 1}
                promises.decision_offered(request.id, self._name, {**arguments, **changes})
                review.approve(request.id, changes=changes, seen=seen)
                promises.decision_acknowledged(request.id, "approved", self._name)
            elif chance < kindness + (1 - kindness) / 2:
                review.reject(request.id, comment="no")
                promises.decision_acknowledged(request.id, "rejected", self._name)
            else:
                review.feedback(request.id, comment="another amount")
                promises.decision_acknowledged(request.id, "feedback", self._name)
            if self._habits.undo is not None and self._chance < 0.2 and not self._world.is_calm:
                self._world.sleep(self._chance * self._habits.undo * 1.2)
                review.undo(request.id)
                promises.decision_acknowledged(request.id, "undone", self._name)
        except (errors.DecisionRefusedError, errors.RequestNotFoundError):  # the disk may have failed who asked it
            pass

    def _approve(self, review: sayso.Review, request: Request, arguments: dict[str, Any]) -> None:
        promises, seen = self._promises, request.current_fingerprint
        if self._habits.grants and self._chance < 0.5 and not self._world.is_calm:
            count, seconds = self._world.rng.choice((1, 2, 3)), self._world.rng.choice((40, 3_600))
            promises.grants.offered(request.id, self._name, arguments, count, seconds)
            grant = review.grant(request.id, count=count, lasts=f"{seconds}s", here=self._chance < 0.5, seen=seen)
            promises.grant_acknowledged(grant.id, "granted", self._name)
            return
        again = self._habits.repeats and bool(review.same_effect(request)) and self._chance < 0.5
        if again:
            promises.again_offered(request.id, self._name)
        review.approve(request.id, seen=seen, again=again, comment="once more" if again else None)

    def _resolve(self, review: sayso.Review, request: Request) -> None:
        """Say how a call ended, if that can be seen by now."""
        started, has_happened = request.execution, self._promises.look(request.id)
        if started is None or has_happened is None:
            return
        self._world.pause("resolve")
        try:
            review.resolve(request.id, happened=has_happened, start=started.starts)
            self._promises.decision_acknowledged(request.id, "resolved", self._name)
        except (errors.DecisionRefusedError, errors.RequestNotFoundError):
            pass

    def _stop(self, review: sayso.Review) -> None:
        """Stop all starts, or let them go on, and cancel a call that could start."""
        if self._world.is_calm or self._chance < 0.3:
            review.go()
            return
        if self._chance < 0.1:
            review.stop()
            self._promises.must_be_stopped()
        for request in review.list(state=State.APPROVED, limit=10) if self._chance < 0.1 else ():
            with suppress(errors.DecisionRefusedError, errors.RequestNotFoundError):
                review.cancel(request.id)
                self._promises.decision_acknowledged(request.id, "cancelled", self._name)

    def _revoke(self, review: sayso.Review) -> None:
        for grant in review.grants():
            ended = review.revoke(grant.id)
            if ended.ended == "revoked" and ended.ended_by is not None and ended.ended_by.subject == self._name:
                self._promises.grant_acknowledged(grant.id, "grant_revoked", self._name)
