"""Schedules of programs on other machines than the store: they reach it through servers and a network."""

from __future__ import annotations

from contextlib import suppress

from sayso import errors
from sayso.channels import registry
from sayso.server.auth.tokens import Tokens
from sayso.stores.http import HttpStore
from tests.simulation.kernel import Process, World
from tests.simulation.network import ADDRESS, Connection, Network, serving
from tests.simulation.programs import Inbox, Scene

__all__ = ["server"]


class server(Scene):  # noqa: N801  the name by which a schedule is reported
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
        """Begin servers, and what uses them."""
        world, rng = self.world, self.world.rng
        first = self.store()
        _, token = Tokens(first).new("ask", "robot")
        self._token = token
        if rng.random() < 0.3:
            registry.register(first, [Inbox(self)], by="program")
            world.start(self.machine, "deliverer", self.deliverer())
        self.sync()
        for n in range(1 if rng.random() < 0.6 else 2):
            world.start(self.machine, f"server{n}", serving(self.network, world, self.store))
        self.start_programs(token)

    def start_programs(self, token: str) -> None:
        """Begin one or two programs, and their reviewers."""
        world, rng = self.world, self.world.rng
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
