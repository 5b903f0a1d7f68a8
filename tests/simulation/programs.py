"""What programs of a schedule do: they ask, wait and make their calls, come back, and are interrupted.

Each is a function of its process, written as a user would write it, on the public interface. What it is told goes to
`Promises`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import sayso
from sayso import clock, errors
from sayso.channels.outbox import Deliverer
from sayso.channels.registry import Notification
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.stores.base import Store
from sayso.stores.jsonl import JsonlStore
from sayso.stores.jsonl_file import JsonlFile
from sayso.stores.transaction import delivery_kind
from tests.simulation.jobs import SCHEMA, Boom, Job, Odd, Paused, job_by_chance
from tests.simulation.journals import FileJournal, Journal
from tests.simulation.kernel import Machine, Process, World
from tests.simulation.people import Habits, Person
from tests.simulation.promises import Promises

__all__ = ["STORE", "Inbox", "Scene", "store_on"]

STORE = "store.jsonl"
_TRIES = 40


def store_on(machine: Machine) -> Store:
    """Return the real JSON-lines store over a simulated disk."""
    store = JsonlStore(f"/sim/{STORE}")
    store._file = JsonlFile(machine.disk.path(STORE))  # pyright: ignore[reportPrivateUsage]
    return store


@sayso.gate(name="inside", when=lambda: False)
def _inside(request_id: str) -> str:
    """Say of this call, which no person sees, that it did nothing; that says nothing of the call around it."""
    raise sayso.NotExecuted(request_id)


class Scene:
    """One schedule with everybody in it.

    Args:
        world: The schedule.
        machine: Where the store is.
    """

    trouble = 600.0
    """Seconds until faults end, if the programs have not ended before."""
    settling = 0.0
    """Seconds until messages of programs that have ended have come."""
    ways = ("once", "once", "by hand", "gate")
    """How calls are made."""
    may_pause = True
    """Whether a call that paused half-way may go on by itself."""
    rule: Callable[..., Any] | None = None
    """Which calls of gates a person sees; all of them without it."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world, self.machine = world, machine
        self.promises = Promises(world, self.journal())
        world.check = self.promises.check
        self.is_closing = False
        self.has_channel = False
        self.programs: list[str] = []
        self.ended: set[str] = set()
        self.habits = Habits()
        self.needs: dict[str, Any] = {}  # further options of gates

    def journal(self) -> Journal:
        """Return what the promises read of the store."""
        return FileJournal(self.machine.disk, STORE)

    def store(self) -> Store:
        """Open the store as one process has it."""
        return store_on(self.machine)

    def sync(self) -> None:
        """Let no power cut take away what was written before anybody began."""
        self.machine.disk.files[STORE].sync()

    def play(self) -> None:
        """Run the schedule; then, without faults, until everything has ended.

        Raises:
            BrokenPromiseError: A promise was broken.
        """
        world = self.world
        self.start_all()
        world.run(lambda: self.has_ended or world.now > self.trouble)
        world.is_calm = True
        for machine in world.machines:
            machine.disk.refuses = 0
            machine.skew = machine.furthest  # else the lease of a call could last for hours
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
                for number in range(job.calls):
                    self.call_gated(job, store, number)
                self.ended.add(name)
                return
            if job.way == "block":
                while not self.until_interrupted(partial(self.attempt_in_block, job, store, is_last=tries > _TRIES)):
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

    def call_gated(self, job: Job, store: Store, number: int) -> None:
        """Make a call behind a gate, until the program is through with it."""
        pay, tries = self.gated(job, store, number), 0
        arguments = {**job.arguments, "amount": job.arguments["amount"] + number * job.step}
        attempt = partial(self.attempt_gated, job, partial(pay, **arguments))
        while not self.until_interrupted(partial(attempt, store, is_last=tries > _TRIES)):
            self.world.sleep(2 + self.world.rng.random() * 18)
            tries += 1

    def gated(self, job: Job, store: Store, number: int) -> Callable[..., str]:
        """Return a function with a gate before it."""

        def verify(to: str, amount: int) -> sayso.Happened | bool | None:
            return self.verify(sayso.current_request())

        options: dict[str, Any] = {"timeout": "20s"} if job.waits else {"wait": "raise"}
        options |= {"verify": verify} if job.verifies else {}
        options |= self.needs
        options |= {} if self.rule is None else {"when": self.rule}
        pay = sayso.gate(
            name=job.tool, quorum=job.quorum, approval_expires=job.lasts, expires=job.expires, retries=job.retries,
            idempotent=job.idempotent, key=None if job.key is None else f"{job.key}-{number}", effect=job.effect,
            suspends=Paused, store=store, **options,
        )  # fmt: skip
        if job.is_odd:

            @pay
            def pay_odd(to: str, amount: Odd) -> str:
                if amount % 2 == 0:
                    raise self.promises.broken(f"a call ran with {amount}, which its own types refuse")
                return self.call(job, {"to": to, "amount": amount})

            return pay_odd

        @pay
        def pay_any(to: str, amount: int) -> str:
            return self.call(job, {"to": to, "amount": amount})

        return pay_any

    def verify(self, request: Request | None) -> sayso.Happened | bool | None:
        """Look how a call ended, as the hook of a gate."""
        assert request is not None
        has_happened = self.promises.look(request.id)
        self.world.pause("verify")
        return sayso.Happened(request.id) if has_happened else has_happened

    def attempt_gated(self, job: Job, pay: Callable[..., str], store: Store, *, is_last: bool) -> bool:
        """Call the function; return whether the program is through with it."""
        request_id: str | None = None
        try:
            with sayso.run(job.run):
                self.promises.result_given(pay(), "done", job.run)
        except sayso.ConfirmationRequired as held:
            self.promises.handed.add(str(held.confirmation_id))
            return False
        except sayso.ConfirmationRejected as no:
            self.promises.result_given(str(no.confirmation_id), "no")
        except errors.OutcomeUnknownError as unknown:
            self.promises.result_given(unknown.request_id, "unknown")
            return self.world.rng.random() < 0.5  # or it does not believe that
        except (errors.OutcomeNotRecordedError, errors.ValueNotKeptError):  # a person said that it happened
            return True
        except errors.CallFailedError as failed:
            request_id = failed.request_id
            self.promises.result_given(request_id, "failed")
        except (Paused, errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError) as error:
            # Nobody can withdraw a gate's request, and a call that was interrupted twice runs until its lease ends.
            is_left = isinstance(error, errors.EffectTakenError | errors.AlreadyStartedError)
            # An idempotent call may start again by itself only while its grant lasts.
            is_left |= isinstance(error, errors.GrantEndedError) and error.state == "unknown"
            return is_last and is_left
        except (Boom, TimeoutError, sayso.NotExecuted) as error:
            request_id = error.args[0]
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
        job = job_by_chance(n, self.world.rng, self.ways, may_pause=self.may_pause)
        self.promises.terms[job.run], self.promises.quorum[job.run] = job.terms, job.quorum
        return job

    def hold(self, job: Job, store: Store, **options: Any) -> sayso.Held:
        """Ask for the call of a job, or find it asked."""
        held = sayso.hold(
            "pay", job.arguments, key=job.key, run=job.run, effect=job.effect, quorum=job.quorum, expires=job.expires,
            approval_expires=job.lasts, schema=SCHEMA, store=store, **options,
        )  # fmt: skip
        self.promises.handed.add(str(held.id))
        return held

    def asked(self, job: Job, store: Store) -> sayso.Held | None:
        """Ask for the call of a job, or find it asked; None where that cannot be now."""
        try:
            return self.hold(job, store)
        except (errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError, KeyboardInterrupt):
            return None

    def attempt_in_block(self, job: Job, store: Store, *, is_last: bool) -> bool:
        """Ask, wait and make the call in a block that takes back what it leaves; return whether that is all."""
        try:
            with self.hold(job, store, withdraw_on_exit=True, suspends=Paused) as held:
                held.wait(timeout=30)
                held.once(lambda arguments: self.call(job, arguments))
        except errors.EffectTakenError:
            return is_last
        except (Paused, errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError) as error:
            return isinstance(error, errors.OutcomeUnknownError | errors.CallFailedError)
        except sayso.ConfirmationRequired:
            return is_last
        except sayso.ConfirmationRejected as no:
            self.promises.result_given(str(no.confirmation_id), "no")
        except (Boom, TimeoutError, sayso.NotExecuted, errors.OutcomeNotRecordedError, errors.ValueNotKeptError):
            pass
        return True

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
        with suppress(errors.StoreError, errors.StartRefusedError, errors.OutcomeNotRecordedError):
            self.make_by_hand(store, job, held, arguments)
        return True

    def make_by_hand(self, store: Store, job: Job, held: sayso.Held, arguments: dict[str, Any]) -> None:
        """Make a call that this handle has started, and say how it ended."""
        error: Exception | None = None
        try:
            self.call(job, arguments, held.request)
        except KeyboardInterrupt as interrupt:
            held.unknown(interrupt)
            return
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

    def is_withdrawn(self, held: sayso.Held) -> bool:
        """Take a request back whose effect another has; return whether that could be done."""
        try:
            held.withdraw("another has the effect")
        except errors.StoreError:  # as full as for everything else; it is tried again
            return False
        return True

    def call(self, job: Job, arguments: dict[str, Any], request: Request | None = None) -> str:
        """What the gated function does; it returns the id of its request, or raises an error with that."""
        world, promises, request = self.world, self.promises, request or sayso.current_request()
        world.pause("call")
        start = promises.call_runs(request, arguments)
        ends = job.ends
        if ends == "sometimes fails":
            ends = "fails" if start.attempt < 3 and world.rng.random() < 0.5 else "done"
        try:
            world.pause("effect")
            if job.is_slow:
                world.sleep(world.rng.random() * 60)
            if promises.pauses[start.request_id] < job.pauses and world.rng.random() < 0.7:
                promises.call_paused(start)
                raise Paused
            if ends == "done" or (ends == "times out" and world.rng.random() < 0.5):
                promises.call_takes_effect(start)
                world.pause("took effect")
        except KeyboardInterrupt:
            promises.call_interrupted(start)
            raise
        promises.call_ended(start, ends)
        match ends:
            case "fails":
                raise Boom(start.request_id)
            case "times out":
                raise TimeoutError(start.request_id)
            case "did not run":
                raise sayso.NotExecuted(start.request_id)
            case "a call inside did not run":
                return _inside(start.request_id)
            case _:
                return start.request_id

    def reviewer(self, name: str, kindness: float) -> Callable[[Process], None]:
        """Return a person who decides what waits."""
        return Person(self, name, kindness)

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
