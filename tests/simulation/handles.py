"""Schedules of handles: a start that is taken and dropped, handed to a thread or another process, or ended by another.

Whatever becomes of a handle, its call starts once. If nobody says how it ended, it is unknown when its lease ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress

import sayso
from sayso import errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.stores.base import Store
from tests.simulation.jobs import Boom, Job
from tests.simulation.kernel import LEASE_SECONDS, Process, World
from tests.simulation.people import Habits
from tests.simulation.scenes import calls

__all__ = ["handles"]

_REFUSED = (errors.StartRefusedError, errors.StoreError, errors.RequestNotFoundError, errors.OutcomeNotRecordedError)
_NO_VALUE = (errors.ValueNotKeptError, errors.CallFailedError)
_ERRORS = (Boom, TimeoutError, sayso.NotExecuted)


class handles(calls):  # noqa: N801  the name by which a schedule is reported
    """Programs that take starts by hand, and do not always say how their calls end."""

    ways = ("once",)
    settling = 3.0 * LEASE_SECONDS

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.kinds += [world.interrupt] * 4
        self.habits = Habits(resolves=world.rng.random() < 0.4)

    def new_job(self, n: int) -> Job:
        """Return a job whose start is taken by hand."""
        job = super().new_job(n)
        job.way = self.world.rng.choice(("drops", "drops", "thread", "process", "result", "by hand"))
        job.is_slow = self.world.rng.random() < 0.4
        return job

    def program(self, name: str, job: Job, opened: Callable[[], Store]) -> Callable[[Process], None]:
        """Return a program that takes the start of a job, and comes back to it until its call is settled."""
        if job.way == "by hand":
            return super().program(name, job, opened)
        self.programs.append(name)
        use = {"drops": self._drop, "thread": self._in_thread, "process": self._in_process, "result": self._result}

        def body(process: Process) -> None:
            store, request_id = opened(), None
            while True:
                try:
                    if request_id is None:
                        request_id = self._made(job, store, process, use[job.way])
                    # It stays: else its end would tell that it is gone, and not the lease.
                    if request_id is not None and store.settle(request_id).state is not State.RUNNING:
                        break
                except (KeyboardInterrupt, errors.StoreError):
                    pass
                except errors.RequestNotFoundError:  # the disk failed who asked it, after others had seen it
                    request_id = None
                self.world.sleep(2 + self.world.rng.random() * 18)
            self.ended.add(name)

        return body

    def _made(
        self, job: Job, store: Store, process: Process, use: Callable[[Process, Store, Job, sayso.Held], None]
    ) -> str | None:
        """Ask for the call, or find it, and take its start if nobody has; return its id if nothing is left to do."""
        held = self.asked(job, store)
        if held is None:
            return None
        try:
            use(process, store, job, held)
        except sayso.ConfirmationRequired:
            return None
        except sayso.ConfirmationRejected as no:
            self.promises.result_given(str(no.confirmation_id), "no")
        except errors.EffectTakenError:
            if not self.is_withdrawn(held):
                return None
        except (*_REFUSED, *_NO_VALUE, *_ERRORS):
            pass
        found = held.refresh()
        return None if found is None or found.state in {State.PENDING, State.APPROVED} else found.id

    # -- what becomes of a handle ------------------------------------------------------------------------------------

    def _drop(self, _: Process, __: Store, job: Job, held: sayso.Held) -> None:
        """Take the start and forget the handle, before or after the call."""
        chance = self.world.rng.random()
        with held if chance < 0.5 else nullcontext():
            arguments = held.start()
            self.world.pause("started")
            if self.world.rng.random() < 0.7:
                self.call(job, arguments, held.request)

    def _in_thread(self, process: Process, store: Store, job: Job, held: sayso.Held) -> None:
        """Take the start, and have a thread of this process make the call and say how it ended."""
        arguments = held.start()

        def work(_: Process) -> None:
            with suppress(*_REFUSED, KeyboardInterrupt):
                self.make_by_hand(store, job, held, arguments)

        self.world.start(process.machine, f"{process.name}, thread", work, comes_back=False, thread_of=process)
        self.world.pause("thread began")

    def _in_process(self, process: Process, _: Store, job: Job, held: sayso.Held) -> None:
        """Take the start for another process, which makes the call and says how it ended, or dies."""
        go: list[tuple[sayso.Request, dict[str, object]]] = []

        def work(__: Process) -> None:
            if not self.world.until(lambda: bool(go), 60):
                return
            request, arguments = go.pop()
            outcome = Outcome("done")
            try:
                self.call(job, arguments, request)
            except _ERRORS as error:
                outcome = Outcome("unknown" if isinstance(error, TimeoutError) else "failed", error="no")
            assert request.execution is not None
            with suppress(*_REFUSED):
                self.store().finish(request.id, request.execution.token, outcome)

        child = self.world.start(process.machine, f"{process.name}, child", work, comes_back=False)
        arguments = held.start(by=child.worker_name.rpartition("/")[0] + "/")  # it renews no lease
        request = held.request
        assert request is not None
        self.world.pause("for the child")
        go.append((request, arguments))
        self.world.until(lambda: child.has_ended or child.is_dead, 200)

    def _result(self, _: Process, __: Store, job: Job, held: sayso.Held) -> None:
        """Make the call if nobody has; else wait for its result."""
        held.wait(timeout=30)
        try:
            held.once(lambda arguments: self.call(job, arguments))
        except errors.AlreadyStartedError:
            with suppress(*_NO_VALUE):
                held.result(timeout=100)
        else:
            self.promises.result_given(str(held.id), "done")
