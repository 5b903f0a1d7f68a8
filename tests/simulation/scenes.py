"""The kinds of schedules: who takes part, on one machine or behind a server."""

from __future__ import annotations

from contextlib import suppress

import sayso
from sayso import errors
from sayso.channels import registry
from sayso.model.request import State
from sayso.model.run import RunState
from sayso.runs.worker import Worker
from sayso.server.auth.tokens import Tokens
from sayso.stores.base import Filter, Store
from sayso.stores.http import HttpStore
from tests.simulation.jobs import Job
from tests.simulation.kernel import Process, World
from tests.simulation.network import ADDRESS, Connection, Loop, Network, serving
from tests.simulation.people import Habits
from tests.simulation.programs import STORE, Inbox, Scene

__all__ = ["Scene", "calls", "gates", "runs", "server"]


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
            self.machine.disk.files[STORE].sync()
            world.start(self.machine, "deliverer", self.deliverer())
        jobs = [self.new_job(n) for n in range(1 if rng.random() < 0.7 else 2)]
        for n, job in enumerate(jobs):
            for twin in range(1 if rng.random() < 0.5 else 2):
                name = f"program{n}{'ab'[twin]}"
                world.start(self.machine, name, self.program(name, job, self.store), takes_interrupts=True)
        kindness = 0.5 + rng.random() / 2
        for name in ("ada", "bob")[: max(job.quorum for job in jobs)]:
            world.start(self.machine, name, self.reviewer(name, kindness))


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
            repeats=rng.random() < 0.4,
        )  # fmt: skip
        if self.habits.undo is not None:
            self.promises.undo = self.habits.undo
            world.kinds.remove(world.jump)  # by the clock of the store, the time to undo would last for hours


class server(Scene):  # noqa: N801
    """Programs on two machines, one or two servers over one store, and a network that loses and doubles messages."""

    settling = 200.0
    may_pause = False  # a server grants a further start only when a person has answered something

    def __init__(self, world: World) -> None:
        super().__init__(world, world.machine("host"))
        self.clients = [world.machine("left"), world.machine("right")]
        self.network = Network(world, world.rng.choice((0.0, 0.1, 0.3)))
        Connection.network, Connection.world = self.network, world
        world.kinds.append(self._cut_network)

    def _cut_network(self, chance: float) -> None:
        self.network.is_cut_until = self.world.now + chance * 200
        self.world.reports.append("network cut")

    def start_all(self) -> None:
        """Begin servers, reviewers, and one or two programs."""
        world, rng = self.world, self.world.rng
        first = self.store()
        _, token = Tokens(first).new("ask", "robot")
        self._token = token
        if rng.random() < 0.3:
            registry.register(first, [Inbox(self)], by="program")
            world.start(self.machine, "deliverer", self.deliverer())
        self.machine.disk.files[STORE].sync()
        for n in range(1 if rng.random() < 0.6 else 2):
            world.start(self.machine, f"server{n}", serving(self.network, world, self.store))
        job = self.new_job(0)
        for twin in range(1 if rng.random() < 0.5 else 2):
            name, machine = f"program{twin}", self.clients[twin]
            opened = self.program(name, job, lambda: HttpStore(ADDRESS, token))
            world.start(machine, name, opened, takes_interrupts=True)
        kindness = 0.5 + rng.random() / 2
        for name in ("ada", "bob")[: job.quorum]:
            world.start(self.machine, name, self.reviewer(name, kindness))

    def calm_down(self) -> None:
        """Have each machine look for what its dead programs left: no other machine can know that they are dead."""
        for machine in self.clients:
            self.world.start(machine, f"sweeper of {machine.name}", self._sweep)

    def _sweep(self, _: Process) -> None:
        store = HttpStore(ADDRESS, self._token)
        while not self.is_closing:
            with suppress(errors.StoreError):
                store.sweep()
            self.world.sleep(30)


class runs(Scene):  # noqa: N801
    """A workflow with a gated step, begun by one process and gone on with by two workers."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.machine("host"))
        self.job = Job("run-1", None, {"to": "mill", "amount": 5}, None, 1, "24h", "done")

    def start_all(self) -> None:
        """Begin the run, its workers and a reviewer."""
        world, rng = self.world, self.world.rng
        if rng.random() < 0.3:
            registry.register(self.store(), [Inbox(self)], by="program")
            self.machine.disk.files[STORE].sync()
            world.start(self.machine, "deliverer", self.deliverer())
        self.programs += ["run"]
        world.start(self.machine, "starter", self._starter)
        for n in range(1 if rng.random() < 0.3 else 2):
            world.start(self.machine, f"worker{n}", self._worker)
        world.start(self.machine, "ada", self.reviewer("ada", 0.5 + rng.random() / 2))

    def _workflow(self, store: Store) -> sayso.Workflow:
        async def quote(amount: int) -> int:
            self.world.pause("quote")
            return amount

        async def pay(quote: int) -> str:
            return self.call(self.job, {"quote": quote})

        flow = sayso.Workflow(name="flow", store=store)
        flow.step(sayso.Tool(quote))
        flow.step(sayso.Tool(pay, requires_approval=True), depends_on=["quote"])
        return flow

    def _starter(self, _: Process) -> None:
        loop = Loop(self.world)
        try:
            while True:
                output = loop.finish(self._workflow(self.store())(amount=5, run_id="run-1").collect())
                if output.status.reason != "store_failed":
                    return
                self.world.sleep(5)
        finally:
            loop.close()

    def _worker(self, _: Process) -> None:
        store, loop = self.store(), Loop(self.world)
        flow = self._workflow(store)
        try:
            while not self.is_closing:
                self.world.sleep(1 + self.world.rng.random() * 9)
                try:
                    loop.finish(Worker([flow]).run(once=True))
                    if store.get_run("run-1").run.state is RunState.ENDED or self._is_unknown(store):
                        self.ended.add("run")
                        return
                except (errors.StoreError, errors.RunNotFoundError):
                    continue
        finally:
            loop.close()

    def _is_unknown(self, store: Store) -> bool:
        found = store.list(Filter(run_id="run-1")).requests
        return any(request.state is State.UNKNOWN for request in found)
