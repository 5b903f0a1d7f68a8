"""Schedules of programs and reviewers on one machine."""

from __future__ import annotations

from typing import Any

from sayso import policy
from sayso.channels import registry
from sayso.model.grant import Budget
from tests.simulation.budgets import Limit
from tests.simulation.jobs import Job
from tests.simulation.kernel import World
from tests.simulation.people import Habits
from tests.simulation.programs import Inbox, Scene

__all__ = ["budgets", "calls", "gates"]


class calls(Scene):  # noqa: N801  the name by which a schedule is reported
    """Programs, reviewers and a deliverer on one machine."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.machine("host"))
        world.kinds.append(self._fill)

    def _fill(self, chance: float) -> None:
        self.machine.disk.refuses = 1 + int(chance * 3)
        self.world.reports.append("disk full")

    def start_all(self) -> None:
        """Begin one to three programs of one or two jobs, and their reviewers."""
        world, rng = self.world, self.world.rng
        if rng.random() < 0.5:
            registry.register(self.store(), [Inbox(self)], by="program")
            self.sync()
            world.start(self.machine, "deliverer", self.deliverer())
        jobs = [self.new_job(n) for n in range(1 if rng.random() < 0.7 else 2)]
        for n, job in enumerate(jobs):
            for twin in range(1 if rng.random() < 0.5 else 2):
                name = f"program{n}{'ab'[twin]}"
                world.start(self.machine, name, self.program(name, job, self.store), takes_interrupts=True)
        self.start_reviewers(jobs)

    def start_reviewers(self, jobs: list[Job]) -> None:
        """Begin as many reviewers as are needed."""
        kindness = 0.5 + self.world.rng.random() / 2
        for name in ("ada", "bob")[: max(job.quorum for job in jobs)]:
            self.world.start(self.machine, name, self.reviewer(name, kindness))


class gates(calls):  # noqa: N801
    """The same with more options, in programs that somebody interrupts often and that go on."""

    ways = ("gate", "gate", "gate", "block", "by hand")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.kinds += [world.interrupt] * 8
        world.plan(8)
        rng = world.rng
        self.habits = Habits(
            undo=20 if rng.random() < 0.2 else None, grants=rng.random() < 0.4, resolves=rng.random() < 0.4,
            repeats=rng.random() < 0.4, stops=rng.random() < 0.25,
        )  # fmt: skip
        if self.habits.undo is not None:
            self.promises.undo = self.habits.undo
            world.kinds.remove(world.jump)  # by the clock of the store, the time to undo would last for hours


class budgets(gates):  # noqa: N801
    """Programs whose policy allows their calls within budgets that they share; a person sees the others."""

    ways = ("gate",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        rng, promises = world.rng, self.promises
        promises.budgets.tools = ("pay", "buy")
        promises.budgets.limits = tuple(
            Limit(rng.choice((2, 4)) if counts else rng.choice((40, 70)), rng.choice((30, 90, 600)), counts,
                  rng.random() < 0.3, rng.choice((None, "shared")))
            for counts in rng.choice(((True,), (False,), (True, False)))
        )  # fmt: skip

    def rule(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Allow calls within the budgets."""
        limits = self.promises.budgets.limits
        return policy.allow(budget=[Budget(limit.text, limit.name) for limit in limits])

    def new_job(self, n: int) -> Job:
        """Return several calls by chance, which may fail in each way."""
        job, rng = super().new_job(n), self.world.rng
        job.calls, job.effect, job.tool = rng.choice((2, 3, 4)), None, rng.choice(self.promises.budgets.tools)
        if not job.idempotent:
            ends = ("done", "done", "fails", "times out", "did not run", "a call inside did not run")
            job.ends = rng.choice(ends)
        return job
