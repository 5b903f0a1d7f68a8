"""Stored runs: a workflow with gated steps that any worker may go on with, on one machine or from several machines.

`runs` is played on the store's machine. In `workers`, each worker has a machine of its own and the store of a server,
so that only a lease says whether another one may take a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import sayso
from sayso import errors
from sayso.channels import registry
from sayso.model.request import State
from sayso.model.run import RunState
from sayso.runs.worker import Worker
from sayso.stores.base import Filter, Store
from sayso.stores.http import HttpStore
from tests.simulation.jobs import Job
from tests.simulation.kernel import Process, World
from tests.simulation.network import ADDRESS, Loop
from tests.simulation.people import Habits
from tests.simulation.programs import Inbox, Scene
from tests.simulation.servers import server

__all__ = ["runs", "workers"]

RUN = "run-1"
_PATIENCE = 120.0  # seconds that workers wait for an unknown outcome


def _workflow(scene: Scene, store: Store, terms: Job) -> sayso.Workflow:
    """Return a workflow: a step, then two at once: a gated one, and one whose handler asks and makes a gated call."""
    world, kept = scene.world, scene.promises.stored_runs

    async def rest() -> None:
        if world.rng.random() < 0.5:  # here another step goes on, and a worker that is stopped breaks the call off
            await asyncio.sleep(world.rng.random() * 3)

    async def make(place: str, arguments: dict[str, Any]) -> str:
        await rest()
        request_id = scene.call(terms, arguments)
        kept.step_takes_effect(place, request_id)
        await rest()
        return place

    lasts: dict[str, Any] = {"expires": terms.expires, "approval_expires": terms.lasts}

    @sayso.gate(name="ship", wait="raise", store=store, **lasts)
    async def ship(quote: int) -> str:
        return await make("flow/book", {"quote": quote})

    async def quote(amount: int) -> int:
        kept.step_runs("flow/quote")
        await rest()
        return amount

    async def pay(quote: int) -> str:
        return await make("flow/pay", {"quote": quote})

    async def book(quote: int) -> str:
        kept.step_runs("flow/book")
        if terms.asks:
            kept.step_is_answered("flow/book", sayso.suspend({"question": "where to?"}))
        world.pause("book")
        shipped = await ship(quote)
        world.pause("booked")
        return shipped

    flow = sayso.Workflow(name="flow", store=store)
    flow.step(sayso.Tool(quote))
    paying = sayso.Tool(pay, requires_approval=True, idempotent=terms.idempotent, **lasts)
    flow.step(sayso.Workflow(name="inner").step(paying) if terms.is_nested else paying, depends_on=["quote"])
    return flow.step(sayso.Tool(book), depends_on=["quote"]) if terms.calls > 1 else flow


def _terms(scene: Scene) -> Job:
    world = scene.world
    ends = world.rng.choice(("done", "done", "done", "fails", "times out"))
    job = Job(RUN, None, {"to": "mill", "amount": 5}, None, 1, "24h", ends)
    job.calls = world.rng.choice((1, 2))
    job.is_slow, job.asks = world.rng.random() < 0.3, world.rng.random() < 0.4
    job.idempotent = job.calls == 1 and world.rng.random() < 0.3
    job.expires, job.lasts = (world.rng.choice((short, "24h", "24h")) for short in ("40s", "30s"))
    job.is_nested = world.rng.random() < 0.3
    scene.promises.terms[RUN] = job.terms
    return job


def _habits(scene: Scene) -> Habits:
    rng = scene.world.rng
    undo = 20 if rng.random() < 0.2 else None
    if undo is not None:
        scene.promises.undo = undo
        scene.world.kinds.remove(scene.world.jump)  # by the clock of the store, the time to undo would last for hours
    return Habits(undo=undo, resolves=rng.random() < 0.4, stops=rng.random() < 0.2)


def _starter(scene: Scene, opened: Callable[[], Store], terms: Job) -> Callable[[Process], None]:
    def body(_: Process) -> None:
        loop = Loop(scene.world)
        try:
            while True:
                output = loop.finish(_workflow(scene, opened(), terms)(amount=5, run_id=RUN).collect())
                if output.status.reason != "store_failed":
                    return
                scene.world.sleep(5)
        finally:
            loop.close()

    return body


def _worker(scene: Scene, opened: Callable[[], Store], terms: Job) -> Callable[[Process], None]:
    world = scene.world

    def body(process: Process) -> None:
        store, loop = opened(), Loop(world)
        flow = _workflow(scene, store, terms)
        try:
            unknown_since: float | None = None
            while not scene.is_closing:
                world.sleep(1 + world.rng.random() * 9)
                try:
                    scene.promises.stored_runs.workers[process] = worker = Worker([flow])
                    loop.finish(worker.run(once=True))
                    is_left = _is_unknown(store) and (world.is_calm or not scene.habits.resolves)
                    unknown_since = (unknown_since or world.now) if is_left else None
                    # A call whose lease was lost may go on for a while, and end.
                    is_given_up = unknown_since is not None and world.now > unknown_since + _PATIENCE
                    if is_given_up or store.get_run(RUN).run.state is RunState.ENDED:
                        scene.ended.add("run")
                        return
                except (errors.StoreError, errors.RunNotFoundError):
                    continue
        finally:
            loop.close()

    return body


def _stop_worker(scene: Scene) -> Callable[[float], None]:
    """Return the fault that somebody stops a worker: it breaks off what takes too long, and hands its runs back."""

    def stop(chance: float) -> None:
        workers = scene.promises.stored_runs.workers
        going = [worker for process, worker in workers.items() if not (process.is_dead or process.has_ended)]
        if going:
            scene.world.reports.append("stop worker")
            going[int(chance * len(going))].stop()

    return stop


def _is_unknown(store: Store) -> bool:
    found = store.list(Filter(run_id=RUN)).requests
    return any(request.state is State.UNKNOWN for request in found)


class runs(Scene):  # noqa: N801  the name by which a schedule is reported
    """A workflow, begun by one process and gone on with by two workers of the same machine."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.machine("host"))
        self.habits = _habits(self)
        world.kinds += [_stop_worker(self)] * 2

    def start_all(self) -> None:
        """Begin the run, its workers and a reviewer."""
        world, rng = self.world, self.world.rng
        if rng.random() < 0.3:
            registry.register(self.store(), [Inbox(self)], by="program")
            self.sync()
            world.start(self.machine, "deliverer", self.deliverer())
        self.programs.append("run")
        terms = _terms(self)
        world.start(self.machine, "starter", _starter(self, self.store, terms))
        for n in range(1 if rng.random() < 0.3 else 2):
            world.start(self.machine, f"worker{n}", _worker(self, self.store, terms))
        world.start(self.machine, "ada", self.reviewer("ada", 0.5 + rng.random() / 2))


class workers(server):  # noqa: N801
    """The same behind a server, with workers on two other machines that cannot see each other's processes."""

    trouble = 300.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.habits = _habits(self)
        world.kinds += [_stop_worker(self)] * 2

    def start_programs(self, token: str) -> None:
        """Begin the run on one machine, and its workers."""
        world, terms = self.world, _terms(self)

        def opened() -> Store:
            return HttpStore(ADDRESS, token)

        self.programs.append("run")
        world.start(self.clients[0], "starter", _starter(self, opened, terms))
        for n, machine in enumerate(self.clients):
            world.start(machine, f"worker{n}", _worker(self, opened, terms))
        world.start(self.machine, "ada", self.reviewer("ada", 0.5 + world.rng.random() / 2))
