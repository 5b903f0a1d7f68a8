"""The simulated machines: processes as greenlets, one clock, and a scheduler that a seed decides.

A process runs the product's own code, unchanged. Wherever that touches the world (a write, a sync, a lock, a message, a
sleep, the gated function) it reaches `World.pause`: another process may go on there instead, the process may be killed,
its machine may lose power, its clock may jump. No thread and no real time is involved, so a seed gives the same
schedule every time. What is promised is checked after every step (`tests.simulation.promises`).
"""

from __future__ import annotations

import asyncio
import random
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import greenlet

from sayso import clock
from sayso.gates import held, wait
from sayso.model import ids
from sayso.runs import worker as run_worker
from sayso.stores import http, http_transport, jsonl, jsonl_file, workers
from sayso.stores.watching import Bell
from tests.simulation.disk import Disk, FakeOs

__all__ = [
    "LEASE_SECONDS",
    "BrokenPromiseError",
    "Killed",
    "Lock",
    "Machine",
    "Process",
    "Time",
    "World",
    "here",
    "simulated",
]

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_STEPS = 10_000
_MOST_FAULTS = 4
_OUTERMOST = "4026531836"  # the process namespace in which a reboot is known to end everything
LEASE_SECONDS = 30
_CALM = 0.55  # how often a process goes on at a pause without anybody else having a turn


class BrokenPromiseError(AssertionError):
    """What the product promises did not hold."""


class Killed(BaseException):
    """The process that raises it is dead; whatever it still touches raises it again."""


class Machine:
    """A machine: its disk, its clock and its name; a power cut gives it another boot."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.boot = world, name, 1
        self.disk = Disk(world)
        self.skew = self.furthest = 0.0  # seconds that its clock is off, and the most that it was

    def cut_power(self) -> None:
        """End every process, lose what was not synced, and count another boot."""
        self.boot += 1
        for process in list(self.world.processes):
            if process.machine is self:
                process.die()
        self.disk.lose_power()
        self.world.reports.append("power")


class Process:
    """One simulated process, or a thread of one.

    Args:
        body: Its program; begins anew when the process was killed and `comes_back`.
        thread_of: The process with which it lives and dies.
        takes_interrupts: Whether somebody may press Ctrl-C in it, which its program survives, as in a notebook.
    """

    def __init__(
        self, world: World, machine: Machine, name: str, body: Callable[[Process], object], *, comes_back: bool = True,
        after: float = 0.0, thread_of: Process | None = None, takes_interrupts: bool = False,
    ) -> None:  # fmt: skip
        self.world, self.machine, self.name, self.body, self.comes_back = world, machine, name, body, comes_back
        self.pid = world.next_pid() if thread_of is None else thread_of.pid
        started, boot = str(self.pid), f"boot{machine.boot}"
        self.worker_name = f"{machine.name}/{boot}/{_OUTERMOST}//{started}/{started}//{machine.name}/{LEASE_SECONDS}"
        self.thread_of, self.takes_interrupts = thread_of, takes_interrupts
        self.is_dead = self.has_ended = False
        self.wakes_at = world.now + after
        self.waits_for: Callable[[], bool] | None = None
        self.fault: BaseException | None = None
        self.globals: dict[int, Any] = {}
        self._greenlet = greenlet.greenlet(self._run, parent=world.hub)

    def _run(self) -> None:
        try:
            self.body(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  the scheduler raises it where the schedule is looked at
            self.fault = error
        self.has_ended = True
        self._end_threads()

    def _end_threads(self) -> None:
        for thread in [one for one in self.world.processes if one.thread_of is self]:
            thread.die()

    def is_ready(self) -> bool:
        """Say whether it could go on now."""
        if self.has_ended or self.is_dead:
            return False
        return self.wakes_at <= self.world.now or (self.waits_for is not None and self.waits_for())

    def go_on(self) -> None:
        """Let it run until its next pause."""
        self.waits_for = None
        self._greenlet.switch()

    def die(self) -> None:
        """End it here and now: nothing that it still does reaches the world."""
        if self.is_dead or self.has_ended:
            return
        if self.thread_of is not None and not (self.thread_of.is_dead or self.thread_of.has_ended):
            self.thread_of.die()
            return
        self.is_dead = True
        self.machine.disk.let_go(self)
        self._end_threads()
        if self.comes_back:
            self.world.restart(self)
        if self.world.running is self or not self._greenlet:
            return  # it raises `Killed` by itself, or has not begun
        before, self.world.running = self.world.running, self
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        self._greenlet.parent = greenlet.getcurrent()  # where its end returns to
        self._greenlet.throw(Killed)
        asyncio._set_running_loop(loop)
        self.world.running = before


class World:
    """One schedule.

    Args:
        seed: Decides everything.
        faults: How many faults at most; None is as many as the seed says.
    """

    def __init__(self, seed: int, faults: int | None = None) -> None:
        self.seed, self.rng, self.hub = seed, random.Random(seed), greenlet.getcurrent()
        self.now, self.steps, self.digest = 0.0, 0, 0
        self.machines: list[Machine] = []
        self.processes: list[Process] = []
        self.running: Process | None = None
        self.is_calm = False
        self.reports: list[str] = []
        self.broken: BrokenPromiseError | None = None
        self.check: Callable[[], None] = lambda: None
        self._pids, self._points = 1, 0
        most = int(self.rng.random() * (_MOST_FAULTS + 1)) if faults is None else faults
        self._plan = dict[int, float]()
        self.plan(most)
        self.kinds: list[Callable[[float], None]] = [self._kill, self._kill, self.interrupt, self._cut, self.jump]

    # -- what the simulated code sees ---------------------------------------------------------------------------

    def next_pid(self) -> int:
        """Return a number that no process had before."""
        self._pids += 1
        return self._pids

    def machine(self, name: str) -> Machine:
        """Add a machine."""
        made = Machine(self, name)
        self.machines.append(made)
        return made

    def start(self, machine: Machine, name: str, body: Callable[[Process], object], **options: Any) -> Process:
        """Add a process."""
        made = Process(self, machine, name, body, **options)
        self.processes.append(made)
        return made

    def restart(self, process: Process) -> None:
        """Begin a killed process anew, a little later."""
        after = 1 + self.rng.random() * 30
        self.start(process.machine, process.name, process.body, after=after, takes_interrupts=process.takes_interrupts)

    def instant(self) -> datetime:
        """Return what the clock of the running process's machine says."""
        skew = 0.0 if self.running is None else self.running.machine.skew
        return _EPOCH + timedelta(seconds=self.now + skew)

    def pause(self, where: str) -> None:
        """Reach the world: another process may go on, and the plan may have a fault for this very point."""
        process = self.running
        if process is None:
            return
        if process.is_dead:
            raise Killed
        self.digest = zlib.crc32(where.encode(), self.digest ^ process.pid)
        if not self.is_calm:
            self._points += 1
            chance = self._plan.pop(self._points, None)
            if chance is not None:
                self.fault(chance)
        if process.is_dead:
            raise Killed
        if self.rng.random() >= _CALM:
            process.wakes_at = self.now
            self._switch(process)

    def sleep(self, seconds: float) -> None:
        """Let so much time pass for the running process."""
        process = self.running
        if process is None:
            return
        if process.is_dead:
            raise Killed
        process.wakes_at = self.now + max(0.0, seconds)
        self._switch(process)

    def until(self, condition: Callable[[], bool], timeout: float = 1e9) -> bool:
        """Have the running process wait for a condition; return whether it came true in time."""
        process = self.running
        if process is not None and process.is_dead:
            raise Killed
        if process is None or condition():
            return True
        process.waits_for, process.wakes_at = condition, self.now + timeout
        self._switch(process)
        return condition()

    def _switch(self, process: Process) -> None:
        loop = asyncio._get_running_loop()
        if loop is not None:
            asyncio._set_running_loop(None)
        self.hub.switch()
        if loop is not None:
            asyncio._set_running_loop(loop)
        if process.is_dead:
            raise Killed

    def plan(self, faults: int) -> None:
        """Plan so many more faults, most of them early."""
        self._plan |= {int(self.rng.random() ** 2 * 160) + 1: self.rng.random() for _ in range(faults)}

    # -- faults ---------------------------------------------------------------------------------------------------

    def fault(self, chance: float) -> None:
        """Do what goes wrong at this point."""
        place = chance * len(self.kinds)
        self.kinds[int(place)](place % 1)

    def _kill(self, _: float) -> None:
        assert self.running is not None
        self.reports.append(f"kill {self.running.name}")
        self.running.die()

    def interrupt(self, _: float) -> None:
        """Press Ctrl-C, if the running process takes it."""
        assert self.running is not None
        if self.running.takes_interrupts:
            self.reports.append(f"Ctrl-C {self.running.name}")
            raise KeyboardInterrupt

    def _cut(self, _: float) -> None:
        assert self.running is not None
        self.running.machine.cut_power()

    def jump(self, chance: float) -> None:
        """Set the clock of the running process's machine."""
        assert self.running is not None
        spans = (-7_200.0, -60.0, 60.0, 3_600.0, 90_000.0)
        machine = self.running.machine
        machine.skew += spans[int(chance * len(spans))]
        machine.furthest = max(machine.furthest, machine.skew)
        self.reports.append("clock")

    # -- the scheduler ----------------------------------------------------------------------------------------------

    def run(self, is_over: Callable[[], bool]) -> None:
        """Let the processes go on, one at a time, until nothing is left to do, or all that counts has ended.

        Raises:
            BrokenPromiseError: A promise was broken, or nothing ends.
        """
        last = self.steps + _MOST_STEPS
        while not is_over():
            self.steps += 1
            if self.steps > last:
                raise BrokenPromiseError(f"nothing ends: {[p.name for p in self.processes if not p.has_ended]}")
            ready = [process for process in self.processes if process.is_ready()]
            if not ready:
                wakes = [p.wakes_at for p in self.processes if not (p.is_dead or p.has_ended)]
                if not wakes:
                    return
                self.now = max(self.now, min(wakes))
                continue
            process = ready[int(self.rng.random() * len(ready))] if len(ready) > 1 else ready[0]
            self.running = process
            process.go_on()
            self.running = None
            if self.broken is not None:
                raise self.broken
            if process.fault is not None:
                raise process.fault
            if process.has_ended or process.is_dead:
                self.processes = [one for one in self.processes if not (one.has_ended or one.is_dead)]
            self.check()

    def close(self) -> None:
        """End all processes."""
        self.is_calm = True
        for process in list(self.processes):
            process.comes_back = False
            process.die()


# -- the product's ways out into the world, in one place --------------------------------------------------------------

_world: World | None = None


def here() -> World | None:
    """Return the schedule that is played."""
    return _world


def _here() -> World:
    assert _world is not None
    return _world


class Time:
    """What stands for the module `time`."""

    monotonic = staticmethod(lambda: _here().now)
    sleep = staticmethod(lambda seconds: _here().sleep(seconds))
    time = staticmethod(lambda: _here().now)


class _Watcher:
    """What stands for the thread that looks at the store: who waits here looks by itself."""

    def __init__(self, *_: object) -> None:
        pass

    def ensure(self) -> None:
        pass


class _PerProcess(MutableMapping[Any, Any]):
    """What stands for a mapping of a module: a real process has one of its own, here many share the module."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._of_nobody = make, make()

    def _own(self) -> Any:
        running = None if _world is None else _world.running
        if running is None:
            return self._of_nobody
        return (running.thread_of or running).globals.setdefault(id(self), self._make())

    def __getitem__(self, key: Any) -> Any:
        return self._own()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own()[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._own()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own())

    def __len__(self) -> int:
        return len(self._own())


class Lock:
    """What stands for a lock that is held while others have their turn."""

    def __init__(self) -> None:
        self._is_held = False

    def __enter__(self) -> None:
        _here().until(lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


def _started(name: str, work: Callable[[], object]) -> object:
    """Start what stands for a thread that renews leases."""
    world = _here()
    owner = world.running
    assert owner is not None
    owner = owner.thread_of or owner
    world.start(owner.machine, f"{owner.name}, {name}", lambda _: work(), comes_back=False, thread_of=owner)
    return work


class _Pause:
    """What stands for the event that nobody sets; now and then its thread is held up for longer than a lease lasts."""

    def wait(self, seconds: float) -> None:
        world = _here()
        is_held_up = not world.is_calm and world.rng.random() < 0.1
        world.sleep(seconds + (LEASE_SECONDS * 1.5 if is_held_up else 0.0))


def _current() -> str:
    running = _here().running
    return "observer/boot0/ns//1/1//observer/30" if running is None else running.worker_name


def _exists(pid: int) -> bool:
    return any(process.pid == pid for process in _here().processes if not (process.is_dead or process.has_ended))


async def _at_once(function: Callable[[], Any]) -> Any:
    return function()  # its pauses are those of the store


def _forget_nothing(_store: object) -> None:
    """Stand for what registers a store, without keeping it."""


def _random_bytes(size: int) -> bytes:
    return _here().rng.randbytes(size)


@contextmanager
def simulated() -> Generator[Callable[[World | None], None]]:
    """Put simulated time, names, randomness and files in the place of the real ones; yields what sets the world."""

    def use(world: World | None) -> None:
        global _world  # noqa: PLW0603  the product reaches the world by modules, not by arguments
        _world = world
        fake.forget()

    fake = FakeOs(_here)
    with ExitStack() as undo:
        undo.enter_context(clock.use(lambda: _here().instant()))
        for module in (http_transport, jsonl_file, held, wait, run_worker, http):
            undo.enter_context(mock.patch.object(module, "time", Time))
        for target, name, new in (
            (ids, "os", SimpleNamespace(urandom=_random_bytes)),
            (workers, "current", _current),
            (workers, "_exists", _exists),
            (workers, "threading", SimpleNamespace(Event=_Pause, Lock=threading.Lock)),
            (workers, "daemon_thread", _started),
            (workers, "monotonic", Time.monotonic),
            (workers, "_keepers", _PerProcess(dict)),
            (wait, "_waits", _PerProcess(Counter)),
            (jsonl, "threading", SimpleNamespace(Lock=Lock)),
            (workers, "_is_own_proc", lambda: False),
            (jsonl_file, "os", fake),
            (jsonl_file, "_sync", fake.fdatasync),
            (jsonl_file, "fcntl", SimpleNamespace(LOCK_EX=2, LOCK_NB=4, LOCK_UN=8, flock=fake.flock)),
            (jsonl_file._log, "disabled", True),
            (Bell, "ring", lambda *_: None),
        ):
            undo.enter_context(mock.patch.object(target, name, new))
        undo.enter_context(
            mock.patch.object(wait.Waiter, "sleep", lambda _self, _wake, seconds: _here().sleep(seconds))
        )
        undo.enter_context(mock.patch("sayso.stores.jsonl.Watcher", _Watcher))
        for module in ("sayso.stores.jsonl", "sayso.stores.http"):  # a fork of a later test has nothing to do with ours
            undo.enter_context(mock.patch(f"{module}.forget_after_fork", _forget_nothing))
        for module in ("sayso.effects", "sayso.runs.state", "sayso.gates.wait"):
            undo.enter_context(mock.patch(f"{module}.offload", _at_once))
        yield use
