"""The worker: resumes the runs of its runnables after a person has decided.

It reads the store when something has changed there, and polls at intervals. Several workers can share the work; the
store's leases decide which of them resumes a run. Signals and printing are not here. A run is resumed only if it has
changed since this worker last left it, so a waiting run costs only a read.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sayso import errors
from sayso.model import duration
from sayso.model.ids import new_run_id
from sayso.model.run import RunState
from sayso.runs.definition import Definition
from sayso.runs.events import ApprovalEvent, DeltaEvent, Event, InteractionEvent, OutputEvent, StartEvent
from sayso.runs.runnable import Run, Runnable, execute
from sayso.runs.state import call_store
from sayso.stores.base import Store
from sayso.stores.filter import RunFilter

_LOOK = 2.0  # seconds between polls without a change: a killed worker sends no notification
_STRANGERS = 60.0  # seconds between searches for runs of runnables that this worker does not have
_PACE = 0.05  # minimum seconds between reads of a store that changes continuously
_BEAT, _STUCK = 1.0, 10.0  # seconds between heartbeats of the event loop; seconds without one until it counts as stuck
_LAST = 0.1  # seconds to record interrupted runs
_SHORTEST, _LONGEST = 0.5, 60.0  # seconds to wait before retrying a failed store
_log = logging.getLogger("sayso")


class Limits:
    """Limits of concurrent tool calls; calls wait for a slot in order.

    Args:
        all_calls: The maximum number of concurrent calls; None for no limit.
        by_tool: The maximum number of concurrent calls of each of these tools.

    Attributes:
        going: The number of calls in progress, by tool.

    Raises:
        ConfigError: A limit is not a positive integer.
    """

    def __init__(self, all_calls: int | None = None, by_tool: Mapping[str, int] | None = None) -> None:
        named = dict(by_tool or {})
        for most in (*named.values(), *(() if all_calls is None else (all_calls,))):
            if type(most) is not int or most < 1:
                raise errors.ConfigError(f"a limit must be a whole number of at least 1, not {most!r}")
        self.all_calls, self.by_tool = all_calls, named
        self.going = Counter[str]()
        self._all = None if all_calls is None else asyncio.Semaphore(all_calls)
        self._tools = {name: asyncio.Semaphore(most) for name, most in named.items()}

    @asynccontextmanager
    async def place(self, tool: str) -> AsyncGenerator[None]:
        """Wait for a slot for a tool call, and hold it inside the block.

        A tool that another tool's handler calls is in a run of its own, without limits: waiting for a slot while
        holding one could deadlock.
        """
        async with AsyncExitStack() as places:
            # The tool's slot first, so that waiting for it does not take a slot of the total from others.
            for semaphore in (self._tools.get(tool), self._all):
                if semaphore is not None:
                    await places.enter_async_context(semaphore)
            self.going[tool] += 1
            try:
                yield
            finally:
                self.going[tool] -= 1


class Ending(StrEnum):
    """How a worker's handling of a run ended."""

    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    BROKEN = "broken"
    HANDED_BACK = "handed_back"
    RETRY = "retry"

    @property
    def words(self) -> str:
        """The text for a printed line."""
        return _WORDS.get(self, self.value)

    @property
    def is_final(self) -> bool:
        """Whether the run itself has ended."""
        return self in {Ending.DONE, Ending.FAILED, Ending.DENIED, Ending.CANCELLED}


_WORDS = {
    Ending.PAUSED: "waits for a person", Ending.UNKNOWN: "stopped at an unknown outcome",
    Ending.CHANGED: "not resumed", Ending.HANDED_BACK: "handed back", Ending.RETRY: "to be tried again",
}  # fmt: skip
_ENDINGS = {
    "approval_required": Ending.PAUSED, "input_required": Ending.PAUSED, "suspended": Ending.PAUSED,
    "approval_denied": Ending.DENIED, "cancelled": Ending.CANCELLED, "outcome_unknown": Ending.UNKNOWN,
    "run_changed": Ending.CHANGED, "stopped": Ending.HANDED_BACK, "store_failed": Ending.RETRY,
}  # fmt: skip


class Report(NamedTuple):
    """A report on one run.

    Attributes:
        run_id: The id of the run.
        name: The name of the runnable.
        ending: `done`, `failed`, `denied` and `cancelled` are final. The run stopped again if a person must decide
            (`paused`) or resolve a call's outcome (`unknown`), if its code differs from when it started (`changed`;
            nothing ran), or on another problem (`broken`). These continue when something about the run changes, a
            `changed` one only in another worker. If the store failed it is retried later (`retry`). If this worker was
            stopped, any worker can continue the run (`handed_back`).
        message: The same as a sentence.
        waits: The ids of the requests that now wait for a person.
        seconds: How long this worker held the lease.
    """

    run_id: str
    name: str
    ending: Ending
    message: str | None
    waits: tuple[str, ...]
    seconds: float


@dataclass(eq=False)
class _StoreView:
    """A store, and by name the runnables whose runs are searched in it."""

    store: Store
    runnables: dict[str, Runnable] = field(default_factory=dict[str, Runnable])
    _swept: float = -_LOOK
    _asked: float = -_STRANGERS
    _named: set[str] = field(default_factory=set[str])

    def ready(self, limit: int) -> Sequence[str]:
        """Return the ids of runs that are ready to continue, least recently touched first."""
        now = time.monotonic()
        if now - self._swept >= _LOOK:
            self._swept = now
            self.store.sweep()  # so that runs continue whose requests have expired
        if now - self._asked >= _STRANGERS:
            self._asked = now
            found, _ = self.store.runs(RunFilter(frozenset({RunState.PAUSED, RunState.BROKEN})), limit=1000)
            for name in sorted({run.name for run in found} - set(self.runnables) - self._named):
                self._named.add(name)
                _log.warning("runs of %r wait in this store; this worker does not have it and leaves them alone", name)
        return self.store.ready_runs(list(self.runnables), limit)

    def mark(self, run_id: str) -> tuple[object, ...] | None:
        """Return a value that changes whenever the run can make progress; None if it has ended or is not ours.

        Its first item is the name of the runnable. A resume without progress does not change it.
        """
        try:
            snapshot = self.store.get_run(run_id)
        except errors.RunNotFoundError:
            return None
        run, steps = snapshot.run, snapshot.steps
        if run.state is RunState.ENDED or run.name not in self.runnables:
            return None
        waits = dict.fromkeys(step.waits for step in steps if step.waits is not None)
        states = [self.store.get(request_id).state.value for request_id in waits]
        return (run.name, run.state is RunState.RUNNING, len(steps), *states)


_Key = tuple[_StoreView, str]


@dataclass
class _KnownRun:
    """A worker's data about a run that has not ended.

    Attributes:
        mark: The run's mark when it was last resumed.
        reported: The last report on it.
        faults: The number of consecutive failures of the store.
        due: The earliest time to resume it again, on the monotonic clock.
        is_changed: Its code differs from when it started, so this worker ignores it.
        run: The run, while it is in progress.
    """

    mark: tuple[object, ...] | None = None
    reported: tuple[object, ...] = ()
    faults: int = 0
    due: float = 0.0
    is_changed: bool = False
    run: Run | None = None


class Worker:
    """Resumes the runs of these runnables.

    Args:
        runnables: Tools, agents and workflows; the runs of each are searched in its own store.
        concurrency: The maximum number of concurrent runs.
        limits: The limits of concurrent tool calls, in total and by tool; by default none.
        grace: How long handlers may continue after `stop`.
        on_report: Called with a report on each run that has ended or stopped again.

    Attributes:
        is_cut_short: Whether handlers were interrupted at the end; a sync handler still runs in its thread.

    Raises:
        ConfigError: An option is invalid, two runnables of one store have the same name, or a limit names a tool that
            no runnable has.
    """

    def __init__(
        self, runnables: Iterable[Runnable], *, concurrency: int = 8, limits: Limits | None = None,
        grace: timedelta | str = "800ms", on_report: Callable[[Report], None] = lambda _: None,
    ) -> None:  # fmt: skip
        if type(concurrency) is not int or concurrency < 1:
            raise errors.ConfigError(f"concurrency= takes a whole number of at least 1, not {concurrency!r}")
        self.is_cut_short = False
        self._limits = limits or Limits()
        parts: list[Definition] = []
        views: dict[int, _StoreView] = {}
        for runnable in runnables:
            parts.append(runnable)
            store = runnable.store
            view = views.setdefault(id(store), _StoreView(store))
            if view.runnables.setdefault(runnable.name, runnable) is not runnable:
                text = f"two runnables are called {runnable.name!r}; a worker needs a different name for each"
                raise errors.ConfigError(text)
        if not views:
            raise errors.ConfigError("a worker needs at least one runnable: a Tool, Agent or Workflow")
        self._views = list(views.values())
        for part in parts:  # grows while it is read; an agent may call itself
            parts += [below for below in part.parts().values() if all(below is not one for one in parts)]
        tools = {part.name for part in parts if part.kind == "tool"}
        for name in sorted(self._limits.by_tool.keys() - tools):
            has = ", ".join(sorted(tools)) or "none"
            raise errors.ConfigError(f"limits= names the tool {name!r}, which no runnable has; their tools: {has}")
        self._concurrency, self._grace, self._on_report = concurrency, duration.parse(grace).total_seconds(), on_report
        self._known: dict[_Key, _KnownRun] = {}
        self._going: dict[_Key, asyncio.Task[None]] = {}
        self._backlog: deque[_Key] = deque()
        self._aside: set[_Key] = set()  # runs that are ready in the store but skipped here
        self._has_company = False  # whether another worker has taken a run from the backlog
        self._once = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._has_changed, self._next_look, self._faults = False, 0.0, 0
        self._looked_at: float | None = None
        self._beat: float | None = None
        self._tally = Counter[str]()
        self._stopped_at: float | None = None

    @property
    def stores(self) -> list[Store]:
        """The stores in which runs are searched."""
        return [view.store for view in self._views]

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped_at is not None

    def health(self) -> dict[str, Any]:
        """Return the worker's health as JSON values. It can be called from any thread, even if the event loop is stuck.

        `status` is `starting`, `ok`, `draining` (`stop` was called), `store_failing` (the last read of a store failed)
        or `stuck` (a handler has blocked the event loop for ten seconds). Ages are in seconds.
        """
        now, beat, looked_at = time.monotonic(), self._beat, self._looked_at
        if beat is not None and now - beat > _STUCK:
            status = "stuck"
        elif self.is_stopping:
            status = "draining"
        elif self._faults:
            status = "store_failing"
        else:
            status = "starting" if looked_at is None else "ok"
        calls = {name: count for name, count in list(self._limits.going.items()) if count}
        return {
            "status": status, "runs": len(self._going), "concurrency": self._concurrency, "backlog": len(self._backlog),
            "calls": calls, "limit": self._limits.all_calls, "limits": dict(self._limits.by_tool),
            "ended": dict(self._tally), "last_look": None if looked_at is None else round(now - looked_at, 3),
        }  # fmt: skip

    def _sign(self) -> None:
        """Record a heartbeat of the event loop."""
        self._beat = time.monotonic()
        self._beating = asyncio.get_running_loop().call_later(_BEAT, self._sign)

    def stop(self) -> None:
        """From any thread or signal handler: start nothing new, give handlers the grace period, release all runs."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_runs)

    def _stop_runs(self) -> None:
        for known in self._known.values():
            if known.run is not None:
                known.run.stop()
        self._news.set()

    async def run(self, *, once: bool = False) -> None:
        """Resume ready runs until `stop`, or with `once` until none is ready.

        Raises:
            StoreError: A store could not be read, with `once`. Otherwise such a failure is logged and retried.
        """
        self._loop, self._once, self._has_changed = asyncio.get_running_loop(), once, True
        self._sign()
        unwatch = [] if once else [view.store.watch_all(self._wake) for view in self._views]
        try:
            while not self.is_stopping:
                self._news.clear()
                if self._has_room and not self._backlog and self._has_changed and self._pause == 0:
                    await self._look()
                while self._has_room and self._backlog and not self.is_stopping:
                    self._begin_next()
                if once and not self._going and not self._backlog and not self._has_changed:
                    break
                await self._rest()
        finally:
            for end in unwatch:
                end()
            await self._end()
            self._beating.cancel()

    # -- polling -----------------------------------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        return len(self._going) < self._concurrency

    @property
    def _pause(self) -> float:
        return max(0.0, self._next_look - time.monotonic())

    def _wake(self) -> None:
        # Called from other threads and for every saved step, so most calls bring no news.
        if not self._has_changed and self._loop is not None:
            self._loop.call_soon_threadsafe(self._changed)

    def _changed(self) -> None:
        self._has_changed = True
        self._news.set()

    async def _rest(self) -> None:
        """Wait until there may be something to do."""
        is_wanted = self._has_changed and self._has_room and not self._backlog
        try:
            await asyncio.wait_for(self._news.wait(), self._pause if is_wanted else _LOOK)
        except TimeoutError:
            self._has_changed = True

    async def _look(self) -> None:
        """Put ready runs into the backlog."""
        self._has_changed = False  # first, so that changes during the read trigger another one
        listed, left, is_whole = set[_Key](), self._known.keys() - self._going.keys(), True
        try:
            for view in self._views:
                room = 16 * self._concurrency + len(self._going) + len(self._aside)
                most = 16 * room if self._has_company else room
                found = [(view, run_id) for run_id in await call_store(view.store, view.ready, most)]
                is_whole = is_whole and len(found) < room  # else there may be more
                if self._has_company:  # with the same runs in the same order, workers would compete for every run
                    found = _mixed(found)[:room]
                listed.update(found)
                self._backlog += filter(self._may_begin, found)
        except errors.StoreError as error:
            if self._once:
                raise
            self._faults, self._has_changed = self._faults + 1, True
            self._next_look = time.monotonic() + _pause_after(self._faults)
            _log.warning("the store cannot be read, trying again in %.1f s: %s", self._pause, error)
            return
        self._faults, self._looked_at = 0, time.monotonic()
        self._has_changed |= not is_whole
        for key in left - listed if is_whole else ():  # it waits, or another worker has ended it
            del self._known[key]
        self._aside = (self._aside & listed) | (listed - set(self._backlog) - set(self._going))
        # Skipped runs cost a read of their steps each time, and there may be many.
        self._next_look = time.monotonic() + min(_LOOK, _PACE * (1 + len(self._aside) / 10))

    def _may_begin(self, key: _Key) -> bool:
        known = self._known.get(key)
        if known is None:
            return True
        is_early = known.due > time.monotonic() or (self._once and known.faults > 0)
        return key not in self._going and not known.is_changed and not is_early

    # -- resuming ----------------------------------------------------------------------------------------------

    def _begin_next(self) -> None:
        """Resume the next run of the backlog: the oldest, unless other workers also take from it."""
        key = self._backlog.popleft()
        if key in self._going:
            return

        def on_settled(_: asyncio.Task[None]) -> None:
            self._going.pop(key, None)
            self._news.set()

        self._going[key] = task = asyncio.ensure_future(self._resume(key))
        task.add_done_callback(on_settled)

    async def _resume(self, key: _Key) -> None:
        """Resume a run if anything about it has changed, and report the result."""
        view, run_id = key
        known, began, events = self._known.setdefault(key, _KnownRun()), time.monotonic(), list[Event]()
        name, waits = "", tuple[str, ...]()
        try:
            mark = await call_store(view.store, view.mark, run_id)
            if mark is None:
                del self._known[key]
                return
            if mark == known.mark or self.is_stopping:
                self._aside.add(key)
                return
            name, known.mark = str(mark[0]), mark
            known.run = view.runnables[name](parent_id=run_id)
            known.run.limit = self._limits.place
            output = await execute(known.run, lambda one: None if isinstance(one, DeltaEvent) else events.append(one))
            has_begun = any(isinstance(event, StartEvent) for event in events)
            waits = tuple(event.request_id for event in events if isinstance(event, ApprovalEvent | InteractionEvent))
            ending, message = await self._became(key, output, has_begun=has_begun), output.status.message
        except asyncio.CancelledError:
            ending, message = (Ending.HANDED_BACK if self.is_stopping else Ending.BROKEN), "broken off"
        except errors.StoreError as error:
            ending, message = Ending.RETRY, str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  must not end the worker
            # The code or record of this run is at fault; other runs continue.
            _log.exception("the run %s stopped", run_id)
            ending, message = Ending.BROKEN, f"{type(error).__name__}: {error}"
        finally:
            known.run = None
        if ending is not None:
            self._report(key, Report(run_id, name, ending, message, waits, time.monotonic() - began))

    async def _became(self, key: _Key, output: OutputEvent, *, has_begun: bool) -> Ending | None:
        """Return how a run ended; None if another worker handled it."""
        (view, run_id), status = key, output.status
        self._has_changed |= has_begun  # a step may have made another run ready
        if status.reason == "approval_already_claimed":  # another process has its lease
            if not has_begun:
                # Its holder may be killed before anything changes, so look at it again after a while.
                self._known[key].mark, self._known[key].due = None, time.monotonic() + _LOOK
                if not self._has_company:
                    self._has_company = True
                    self._backlog = deque(_mixed(self._backlog))
            return None
        ending = _ENDINGS.get(status.reason or "", Ending.DONE if status.code == "success" else Ending.FAILED)
        is_doubtful = ending is Ending.FAILED or not has_begun
        if ending is Ending.CANCELLED or not (ending.is_final and is_doubtful):
            return ending
        if await call_store(view.store, view.mark, run_id) is not None:
            # It has not ended: its model was unreachable, or it cannot start.
            return Ending.RETRY if has_begun else Ending.BROKEN
        if not has_begun:  # another worker had already ended it
            del self._known[key]
        return ending if has_begun else None

    def _report(self, key: _Key, report: Report) -> None:
        known, ending = self._known[key], report.ending
        self._tally[ending.value] += 1
        known.faults = known.faults + 1 if ending is Ending.RETRY else 0
        if ending is Ending.RETRY:
            known.mark, pause = None, _pause_after(known.faults)
            known.due = time.monotonic() + pause
            asyncio.get_running_loop().call_later(pause, self._changed)
        elif ending is Ending.CHANGED:
            known.is_changed = True
            _log.warning("the run %s of %s is not resumed: %s", report.run_id, report.name, report.message)
        elif ending.is_final:
            del self._known[key]
        reported = (ending, report.message, report.waits)
        if known.reported != reported:  # skip the repeated report of a resume without progress
            known.reported = reported
            self._on_report(report)

    async def _end(self) -> None:
        """Let handlers finish within the grace period, and cancel the others."""
        if not self._going:
            return
        self.stop()
        self._stop_runs()
        stopped_at = self._stopped_at if self._stopped_at is not None else time.monotonic()
        going = set(self._going.values())
        _, late = await asyncio.wait(going, timeout=max(0.0, stopped_at + self._grace - time.monotonic()))
        for task in late:
            self.is_cut_short = True
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_LAST)


def _mixed(runs: Iterable[_Key]) -> list[_Key]:
    """Return runs in a random order."""
    start = new_run_id()
    return sorted(runs, key=lambda key: hashlib.sha256(f"{start}{key[1]}".encode()).digest())


def _pause_after(faults: int) -> float:
    return min(_LONGEST, _SHORTEST * 2 ** min(faults - 1, 10))
