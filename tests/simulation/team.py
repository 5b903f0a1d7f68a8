"""Schedules of several reviewers: quorums, roles, claims, extensions, escalations and people who are away."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import sayso
from sayso import errors
from sayso.model.request import Request
from tests.simulation.jobs import Job
from tests.simulation.kernel import World
from tests.simulation.people import Person
from tests.simulation.programs import Scene
from tests.simulation.scenes import gates

__all__ = ["team"]

_MEMBERS, _LEAD = ("ada", "bob", "cleo"), "lead"


class team(gates):  # noqa: N801  the name by which a schedule is reported
    """Programs whose calls need several people, who do more than decide; the lead may help after a while."""

    ways = ("gate",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        work = self.promises.teamwork
        work.members, work.after = {f"local:{name}" for name in _MEMBERS}, world.rng.choice((15, 35))
        self.needs: dict[str, Any] = {
            "roles": ["finance"], "escalate_after": f"{work.after}s", "escalate_to": [sayso.Reviewer(_LEAD)],
        }  # fmt: skip

    def new_job(self, n: int) -> Job:
        """Return a job that up to three people must approve."""
        job = super().new_job(n)
        job.quorum = self.promises.quorum[job.run] = self.world.rng.choice((1, 2, 2, 3))
        return job

    def start_reviewers(self, jobs: list[Job]) -> None:
        """Begin all of the team, however many are needed."""
        del jobs
        kindness = 0.7 + self.world.rng.random() * 0.3
        for name in (*_MEMBERS, _LEAD):
            self.world.start(self.machine, name, Member(self, name, kindness))


class Member(Person):
    """A reviewer of a team."""

    def __init__(self, scene: Scene, name: str, kindness: float) -> None:
        super().__init__(scene, name, kindness)
        self._reviewer = sayso.Reviewer(name, roles=[] if name == _LEAD else ["finance"])

    def _decide(self, review: sayso.Review, request: Request) -> None:
        """Claim, pass on, release or extend it instead, or decide it."""
        chance, promises, other = self._chance, self._promises, self._world.rng.choice((*_MEMBERS, _LEAD))
        name, is_forced = self._name, self._chance < 0.3
        try:
            if self._world.is_calm or chance < 0.6:
                self._help(review, request)
                super()._decide(review, request)
            elif chance < 0.75:
                review.claim(request.id)
                promises.decision_acknowledged(request.id, "claimed", name)
            elif chance < 0.82:
                review.assign(request.id, other, force=is_forced)
                promises.decision_acknowledged(request.id, "assigned", name)
            elif chance < 0.9:
                review.release(request.id, force=is_forced)
                promises.decision_acknowledged(request.id, "released", name)
            elif chance < 0.95:
                review.extend(request.id, "60s")
                promises.decision_acknowledged(request.id, "extended", name)
            elif other != name:
                with suppress(ValueError):  # the clock was set meanwhile, and it would have ended
                    review.delegate(other, "60s")
                if self._chance < 0.5:
                    self._world.sleep(self._chance * 60)
                    review.end_delegation()
        except (errors.DecisionRefusedError, errors.RequestNotFoundError):
            pass

    def _help(self, review: sayso.Review, request: Request) -> None:
        """Where nothing else would end a schedule, take a request from somebody who may not decide it."""
        if self._world.is_calm and request.claimed_by is not None:
            review.release(request.id, force=True)
