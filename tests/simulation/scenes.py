"""Who takes part in a schedule: programs, reviewers and deliverers, on one machine or behind a server.

Each is a function of its process, written as a user would write it, on the public interface. What it is told goes to
`Promises`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import sayso
from sayso import clock, errors
from sayso.channels import registry
from sayso.channels.outbox import Deliverer
from sayso.channels.registry import Notification
from sayso.model import canonical
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.model.run import RunState
from sayso.runs.worker import Worker
from sayso.server.auth.tokens import Tokens
from sayso.stores.base import Filter, Store
from sayso.stores.http import HttpStore
from sayso.stores.jsonl import JsonlStore
from sayso.stores.jsonl_file import JsonlFile
from sayso.stores.transaction import delivery_kind
from tests.simulation.kernel import Machine, Process, World
from tests.simulation.network import ADDRESS, Connection, Loop, Network, serving
from tests.simulation.promises import Promises, Terms

__all__ = ["Scene", "calls", "gates", "runs", "server"]

_NAME = "store.jsonl"
_TRIES = 40
_SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["to", "amount"],
    "additionalProperties": False,
}


class Boom(Exception):
    """What a gated function raises."""


class Paused(Exception):
    """By which a gated function pauses half-way, for a framework."""


@dataclass
class Job:
    """One call that programs want to make, perhaps several of them at once.

    Attributes:
        ends: How the function ends; `sometimes fails` is by chance, at each attempt.
        way: By `hold` and `once`, by `hold` with its start and end taken by hand, or by a gate before a function.
        retries: Further starts after a failure, of a gate.
        idempotent: Whether a gate lets it start again after an unknown outcome.
        is_slow: Whether it may run for longer than its lease.
        pauses: How often a gated function may pause half-way.
        waits: Whether a gate blocks for a while, and raises then, instead of raising at once.
    """

    run: str
    key: str | None
    arguments: dict[str, Any]
    effect: str | None
    quorum: int
    lasts: str
    ends: str
    way: str = "once"
    retries: int = 0
    idempotent: bool = False
    is_slow: bool = False
    pauses: int = 0
    waits: bool = False


class Scene:
    """One schedule with everybody in it.

    Args:
        world: The schedule.
        machine: Where the store is.
    """

    settling = 0.0
    """Seconds until messages of programs that have ended have come."""
    ways = ("once", "once", "by hand", "gate")
    """How calls are made."""
    may_pause = True
    """Whether a call that paused half-way may go on by itself."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world, self.machine = world, machine
        self.promises = Promises(world, machine.disk, _NAME)
        world.check = self.promises.check
        self.is_closing = False
        self.has_channel = False
        self.programs: list[str] = []
        self.ended: set[str] = set()
        self.last: dict[str, str] = {}  # the request whose call was made last, by run

    def store(self) -> Store:
        """Open the store as one process has it."""
        return store_on(self.machine)

    def play(self) -> None:
        """Run the schedule; then, without faults, until everything has ended.

        Raises:
            BrokenPromiseError: A promise was broken.
        """
        world = self.world
        self.start_all()
        world.run(lambda: self.has_ended or world.now > 600)
        world.is_calm = True
        for machine in world.machines:
            machine.disk.refuses = 0
        self.calm_down()
        world.run(lambda: self.has_ended)
        world.start(self.machine, "sweeper", self._sweep_at_last)
        world.run(lambda: not any(process.name == "sweeper" for process in world.processes))
        self.is_closing = True
        world.run(lambda: all(process.name.startswith("server") for process in world.processes))
        # A message that failed for a day is given up, and a clock that jumps may make a day of a moment.
        self.promises.at_the_end(announced=self.has_channel and "clock" not in world.reports)

    def _sweep_at_last(self, _: Process) -> None:
        self.world.sleep(self.settling)
        self.store().sweep()

    def start_all(self) -> None:
        """Begin the processes."""

    def calm_down(self) -> None:
        """Mend what stays broken without somebody's help."""

    @property
    def has_ended(self) -> bool:
        """Whether every program has come to its end."""
        return len(self.ended) == len(self.programs)

    # -- who takes part ---------------------------------------------------------------------------------------------

    def program(self, name: str, job: Job, opened: Callable[[], Store]) -> Callable[[Process], None]:
        """Return a program that makes the call of a job, and comes back to it until it has ended."""
        self.programs.append(name)

        def body(process: Process) -> None:
            del process
            store, tries = None, 0
            while store is None:
                with suppress(KeyboardInterrupt):
                    store = opened()
            if job.way == "gate":
                pay = self.gated(job, store)
                while not self.until_interrupted(partial(self.attempt_gated, job, pay, store, is_last=tries > _TRIES)):
                    self.world.sleep(2 + self.world.rng.random() * 18)
                    tries += 1
                self.ended.add(name)
                return
            attempt = partial(self.attempt_by_hand, store) if job.way == "by hand" else self.attempt
            held = self.asked(job, store)
            while not self.until_interrupted(partial(attempt, job, held, is_last=tries > _TRIES)):
                self.world.sleep(2 + self.world.rng.random() * 18)
                tries += 1
                if held is None or self.world.rng.random() < 0.2:  # sometimes it asks anew, as after a restart
                    held = self.asked(job, store)
            self.ended.add(name)

        return body

    @staticmethod
    def until_interrupted(attempt: Callable[[], bool]) -> bool:
        """Make an attempt; return whether the program is through with its call."""
        try:
            return attempt()
        except KeyboardInterrupt:  # as in a notebook, where the program goes on
            return False

    def gated(self, job: Job, store: Store) -> Callable[..., str]:
        """Return a function with a gate before it."""

        @sayso.gate(
            name="pay", quorum=job.quorum, approval_expires=job.lasts, retries=job.retries, idempotent=job.idempotent,
            key=job.key, effect=job.effect, suspends=Paused, store=store,
            **({"timeout": "20s"} if job.waits else {"wait": "raise"}),
        )  # fmt: skip
        def pay(to: str, amount: int) -> str:
            return self.call(job, {"to": to, "amount": amount})

        return pay

    def attempt_gated(self, job: Job, pay: Callable[..., str], store: Store, *, is_last: bool) -> bool:
        """Call the function; return whether the program is through with it."""
        request_id: str | None = None
        try:
            with sayso.run(job.run):
                pay(**job.arguments)
        except sayso.ConfirmationRequired as held:
            self.promises.quorum[held.confirmation_id] = job.quorum
            return False
        except sayso.ConfirmationRejected as no:
            self.promises.result_given(str(no.confirmation_id), "no")
        except errors.OutcomeUnknownError as unknown:
            self.promises.result_given(unknown.request_id, "unknown")
            return self.world.rng.random() < 0.5  # or it does not believe that
        except errors.OutcomeNotRecordedError:
            return True
        except errors.CallFailedError as failed:
            request_id = failed.request_id
        except (Paused, errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError) as error:
            # Nobody can withdraw a gate's request, and a call that was interrupted twice runs until its lease ends.
            return is_last and isinstance(error, errors.EffectTakenError | errors.AlreadyStartedError)
        except (Boom, TimeoutError, sayso.NotExecuted):
            request_id = self.last[job.run]
        if request_id is None:
            return True
        while True:
            with suppress(errors.StoreError):  # while the gate would start it again, the program comes back
                found = store.get(request_id)
                again = {State.APPROVED, State.UNKNOWN} if job.idempotent else {State.APPROVED}
                return found.state not in again
            self.world.sleep(5)

    def new_job(self, n: int) -> Job:
        """Return a job by chance."""
        rng = self.world.rng
        key = f"key{n}" if rng.random() < 0.7 else None
        effect = "pay:{to}" if rng.random() < (0.25 if "once" in self.ways else 0.5) else None
        arguments = {"to": "mill", "amount": 5 + n}
        ends = rng.choice(("done", "done", "done", "fails", "times out", "did not run"))
        lasts = rng.choice(("30s", "1h", "24h"))
        job = Job(f"order-{n}", key, arguments, effect, 2 if rng.random() < 0.3 else 1, lasts, ends)
        job.way = rng.choice(self.ways)
        job.is_slow = rng.random() < 0.2
        if job.way == "gate":
            job.retries, job.idempotent = rng.choice((0, 1, 2)), rng.random() < 0.3
            job.lasts = rng.choice(("1h", "24h"))  # else one that always fails is asked anew for ever
            job.ends = rng.choice(("done", "sometimes fails") + (() if job.idempotent else ("fails", "times out")))
            job.pauses, job.waits = rng.choice((0, 0, 1, 2)) if self.may_pause else 0, rng.random() < 0.3
        self.promises.terms[job.run] = Terms(job.retries, job.idempotent, job.pauses)
        return job

    def asked(self, job: Job, store: Store) -> sayso.Held | None:
        """Ask for the call of a job, or find it asked; None where that cannot be now."""
        try:
            held = sayso.hold(
                "pay", job.arguments, key=job.key, run=job.run, effect=job.effect, quorum=job.quorum,
                approval_expires=job.lasts, schema=_SCHEMA, store=store,
            )  # fmt: skip
        except (errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError, KeyboardInterrupt):
            return None
        self.promises.quorum[str(held.id)] = job.quorum
        return held

    def attempt(self, job: Job, held: sayso.Held | None, *, is_last: bool) -> bool:
        """Make the call if it is approved; return whether the program is through with it."""
        if held is None:
            return False
        try:
            held.once(lambda arguments: self.call(job, arguments))
        except sayso.ConfirmationRequired:
            return False
        except sayso.ConfirmationRejected as no:
            self.promises.result_given(str(no.confirmation_id), "no")
        except errors.OutcomeUnknownError as unknown:
            self.promises.result_given(unknown.request_id, "unknown")
        except errors.EffectTakenError:
            return is_last and self.is_withdrawn(held)
        except (Boom, TimeoutError, errors.CallFailedError, sayso.NotExecuted, errors.OutcomeNotRecordedError):
            pass
        except (errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError):
            return False
        else:
            self.promises.result_given(str(held.id), "done")
        return True

    def attempt_by_hand(self, store: Store, job: Job, held: sayso.Held | None, *, is_last: bool) -> bool:
        """Take the start, make the call, and say how it ended, sometimes twice, in two ways."""
        if held is None:
            return False
        try:
            arguments = held.start()
        except sayso.ConfirmationRejected as no:
            self.promises.result_given(str(no.confirmation_id), "no")
            return True
        except errors.EffectTakenError:
            return is_last and self.is_withdrawn(held)
        except errors.OutcomeUnknownError as unknown:
            self.promises.result_given(unknown.request_id, "unknown")
            return True
        except errors.AlreadyStartedError:
            return True
        except (sayso.ConfirmationRequired, errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError):
            return False
        error: Exception | None = None
        with suppress(errors.StoreError, errors.StartRefusedError, errors.OutcomeNotRecordedError):
            try:
                self.call(job, arguments, held.request)
            except (Boom, TimeoutError, sayso.NotExecuted) as raised:
                error = raised
                (held.unknown if isinstance(raised, TimeoutError) else held.fail)(raised)
            else:
                held.finish("paid")
            started = None if held.request is None else held.request.execution
            is_known = not isinstance(error, TimeoutError)  # of what is unknown, more may be said
            if is_known and started is not None and self.world.rng.random() < 0.5:
                changed = Outcome("failed", error="not paid after all") if error is None else Outcome("done")
                store.finish(str(held.id), started.token, changed)
        return True

    def is_withdrawn(self, held: sayso.Held) -> bool:
        """Take a request back whose effect another has; return whether that could be done."""
        try:
            held.withdraw("another has the effect")
        except errors.StoreError:  # as full as for everything else; it is tried again
            return False
        return True

    def call(self, job: Job, arguments: dict[str, Any], request: Request | None = None) -> str:
        """What the gated function does."""
        world, request = self.world, request or sayso.current_request()
        world.pause("call")
        start = self.promises.call_runs(request, arguments)
        self.last[job.run] = start.request_id
        try:
            world.pause("effect")
        except KeyboardInterrupt:
            self.promises.call_interrupted(start)
            raise
        if job.is_slow:
            world.sleep(world.rng.random() * 60)
        ends = job.ends
        if self.promises.pauses[start.request_id] < job.pauses and world.rng.random() < 0.7:
            self.promises.call_paused(start)
            raise Paused
        if ends == "sometimes fails":
            ends = "fails" if start.attempt < 3 and world.rng.random() < 0.5 else "done"
        self.promises.call_ended(start, ends)
        match ends:
            case "fails":
                raise Boom
            case "times out":
                raise TimeoutError
            case "did not run":
                raise sayso.NotExecuted("the account is closed")
            case _:
                return "paid"

    def reviewer(self, name: str, kindness: float) -> Callable[[Process], None]:
        """Return a person who decides what waits."""

        def body(process: Process) -> None:
            del process
            review = sayso.Review(self.store(), reviewer=name)
            while not self.is_closing:
                self.world.sleep(1 + self.world.rng.random() * 9)
                try:
                    for request in review.list(state="pending", limit=10):
                        self.decide(review, name, request, kindness)
                except (errors.StoreError, errors.RequestNotFoundError):
                    continue

        return body

    def decide(self, review: sayso.Review, name: str, request: Any, kindness: float) -> None:
        """Take one decision, and tell the promises before and after."""
        promises, chance = self.promises, self.world.rng.random()
        arguments = canonical.decode(request.effective.form, {})
        seen = request.current_fingerprint
        try:
            if chance < kindness * 0.75 or self.world.is_calm:
                promises.decision_offered(request.id, name, arguments)
                review.approve(request.id, seen=seen)
                promises.decision_acknowledged(request.id, "approved", name)
            elif chance < kindness and "amount" in arguments:
                changes = {"amount": arguments["amount"] + 1}
                promises.decision_offered(request.id, name, {**arguments, **changes})
                review.approve(request.id, changes=changes, seen=seen)
                promises.decision_acknowledged(request.id, "approved", name)
            elif chance < kindness + (1 - kindness) / 2:
                review.reject(request.id, comment="no")
                promises.decision_acknowledged(request.id, "rejected", name)
            else:
                review.feedback(request.id, comment="another amount")
                promises.decision_acknowledged(request.id, "feedback", name)
        except (errors.DecisionRefusedError, errors.RequestNotFoundError):  # the disk may have failed who asked it
            pass

    def deliverer(self) -> Callable[[Process], None]:
        """Return a process that sends what the outbox holds, and sweeps."""
        self.has_channel = True

        def body(process: Process) -> None:
            del process
            store = self.store()
            deliverer = Deliverer(store, Inbox(self))
            has_begun = False
            while True:
                try:
                    if not has_begun:
                        deliverer.take_over()
                        has_begun = True
                    store.sweep()
                    deliverer.deliver_due()
                    pause = deliverer.next_due()
                except (errors.StoreError, errors.RequestNotFoundError):
                    pause = 5.0
                if self.is_closing:
                    far = clock.now() + timedelta(days=9)
                    owed = store.records(delivery_kind("ops"), due_by=far, limit=1)
                    if not owed or owed[0].due is None:
                        return
                    pause = max(pause, (owed[0].due - clock.now()).total_seconds())
                    self.world.sleep(pause)
                    continue
                self.world.sleep(min(pause, 10.0) + self.world.rng.random())

        return body


class Inbox:
    """A channel that tells the promises what it was given, and fails now and then."""

    name = "ops"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def send(self, notification: Notification) -> str | None:
        """Send a message."""
        world = self._scene.world
        world.pause("send")
        if not world.is_calm and world.rng.random() < 0.1:
            raise ConnectionError("the channel is away")
        self._scene.promises.message_sent(notification.request_id, notification.state)
        world.pause("sent")
        return "m1"

    def follow_up(self, notification: Notification, reference: str | None) -> None:
        """Send the outcome."""
        del reference
        self.send(notification)


def store_on(machine: Machine) -> Store:
    """Return the real JSON-lines store over a simulated disk."""
    store = JsonlStore(f"/sim/{_NAME}")
    store._file = JsonlFile(machine.disk.path(_NAME))  # pyright: ignore[reportPrivateUsage]
    return store


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
            self.machine.disk.files[_NAME].sync()
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
    """The same with gates only, in programs that somebody interrupts often and that go on."""

    ways = ("gate",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.kinds += [world.interrupt] * 8
        world.plan(8)


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
        self.machine.disk.files[_NAME].sync()
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
            self.machine.disk.files[_NAME].sync()
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
