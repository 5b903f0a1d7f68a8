"""Blocks until a call is decided, may start, or has ended elsewhere: asks at the terminal, or prints where to decide.

The wait ends when the request changes, through any channel. If nobody waits for the call any more, its request is
withdrawn, except in a named run, to which somebody may come back. Waiting needs no extra thread: sync callers block
their own and tasks await an event; one watcher thread per process wakes them all (`sayso.stores.watching`). One more
thread runs the terminal dialogs of all tasks, one at a time.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sayso import clock, errors, telemetry
from sayso.effects import Attempt, Operations, StoreCall, in_forked_child, offload
from sayso.errors import StoreUnavailableError
from sayso.gates import dialog, exceptions, interruptions, scope, stderr
from sayso.gates.caller import Block, Caller, withdraw
from sayso.model.ids import is_random
from sayso.model.lifecycle import is_due
from sayso.model.request import Request, State
from sayso.stores.base import Store

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

T = TypeVar("T")
_TASK_ENDED = "the task that it was made for has ended"
_MOST_WITHDRAWN = 5

# How many calls of this process wait for each request: two calls of one run may wait for the same one.
_waits: Counter[str] = Counter()
_counting = threading.Lock()


@in_forked_child
def _after_fork() -> None:
    global _counting  # noqa: PLW0603  the thread that held it does not exist in the child
    _counting = threading.Lock()
    _waits.clear()


def is_awaited(request_id: str) -> bool:
    """Return whether a call of this process waits for a request."""
    return _waits[request_id] > 0


class Waiter(Caller):
    """A call that may have to wait, and everything that ends its wait.

    Args:
        run: The run in which the call is made.
        store: The store for its request.
        block: How to wait; None raises `ConfirmationRequired`.
        keeps_request: Keep the request if the wait is interrupted, because there is another way back to it than this
            call, such as a `Held`.

    Attributes:
        run: The run in which the call is made.
        deadline: The end of the wait on the clock of `time.monotonic`; None means no limit.
        reason: Why nobody waits any more; None before that. It counts until the call runs, and is checked when it is
            about to start, and again when its start is recorded.
    """

    deadline: float | None = None
    reason: str | None = None
    _request: Request | None = None  # the request for which it waits
    _withdrawn = 0
    _job: interruptions.Job | None = None
    _hears_of_job = False

    def __init__(
        self, run: scope.Scope, store: Store, block: Block | None = None, *, keeps_request: bool = False
    ) -> None:  # fmt: skip
        self.run, self._store, self._block, self._keeps_request = run, store, block, keeps_request
        self._lock = threading.Lock()
        self._wakes: dict[object, Callable[[], None]] = {}
        self._undo: list[Callable[[], object]] = []  # undoes the registrations of `wait_for`

    # -- what ends the wait ------------------------------------------------------------------------------------

    def wait_for(self, request: Request) -> None:
        """Set the request for which the call waits, and listen from now on for everything that ends the wait."""
        if not self._undo:
            task = scope.current_task()
            for run in self.run.enclosing():
                self._undo.append(run.on_end(self.end))
                owner = None if run.owner is None or run.owner.task is None else run.owner.task()
                if owner is not None and owner is not task and not owner.done():
                    self._undo.append(interruptions.when_done(owner, partial(self.end, _TASK_ENDED)))
            self.look()
        self._leave_request()
        self._request = request
        with _counting:
            _waits[request.id] += 1

    def look(self) -> None:
        """Check everything that ends the wait, because some of it sends no signal."""
        run: scope.Scope | None = self.run
        while run is not None:
            if run.ended is not None:
                self.end(run.ended)
            if run.owner is not None and run.owner.task is not None:
                # A thread works for this task, and nobody else waits for its result.
                owner = run.owner.task()
                if owner is not scope.current_task() and (owner is None or owner.done()):
                    self.end(_TASK_ENDED)
            run = run.outer
        if threading.current_thread() is threading.main_thread():
            return
        self._job = self._job or interruptions.job()
        if self._job is None:
            return
        # The task that waits for this pool thread may have been cancelled, also if a loop of its own runs in it.
        if self._undo and not self._hears_of_job:
            undo = self._job.when_given_up(partial(self.end, _TASK_ENDED))
            if undo is not None:
                self._hears_of_job = True
                self._undo.append(undo)
        if self._job.is_given_up:
            self.end(_TASK_ENDED)

    def end(self, reason: str) -> None:
        """Declare, from any thread, that nobody waits any more. Has no effect on a call that runs by then."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            wakes = list(self._wakes.values())
        for wake in wakes:
            wake()

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Generator[None]:
        """Call `wake` if the wait ends inside the block, or has ended before."""
        mine = object()
        with self._lock:
            self._wakes[mine] = wake
        if self.reason is not None:
            wake()
        try:
            yield
        finally:
            self._wakes.pop(mine, None)

    def sleep(self, wake: threading.Event, seconds: float) -> None:
        """Sleep until `wake` is set, at most for `seconds`."""
        if threading.current_thread() is threading.main_thread():
            wake.wait(seconds)
            return
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not wake.wait(min(left, interruptions.PACE)):
            self.look()
            if interruptions.is_interrupted():
                self.end("the program was interrupted")

    # -- from waiting to running -------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        """Raise if nobody waits any more.

        Raises:
            ConfirmationCancelled: Nobody does; nothing ran.
        """
        self.look()
        if self.reason is not None:
            raise exceptions.not_awaited(request, self.reason)

    not_started = check

    def begin(self, request: Request) -> None:
        """Check before the start; see `check`."""
        if self._block is not None and self._request is None:  # it has not waited; see `break_off`
            self.wait_for(request)
        self.check(request)

    def started(self, request: Request) -> None:
        """Check after the start, which the store may take long to record; then stop waiting, because the call runs."""
        self.check(request)  # a retry may be left, so `break_off` withdraws the request
        if self._request is not None:
            self._leave_request()

    def held_back(self, request: Request, seconds: float) -> Operations[None]:
        """Wait until the approval can no longer be undone, or was undone; see `check`.

        Raises:
            ConfirmationRequired: The timeout passed before; it is still approved.
        """
        self.wait_for(request)
        self._limit(self._block)
        left = seconds if self.deadline is None else min(seconds, self.deadline - time.monotonic())
        after: Request = yield _HeldBack(self._store, request, self, left)
        self.check(request)
        if left < seconds and after.state is State.APPROVED:
            raise self.come_back_later(after, "the approval could still be undone when the timeout passed")

    # -- the call stops waiting --------------------------------------------------------------------------------

    def come_back_later(self, request: Request, why: str) -> BaseException:
        """Return the exception for a call that stops waiting while its request stays pending or approved.

        If the same call can be made again here, it finds the request. In a pool's thread it cannot, so the request is
        withdrawn.
        """
        if self.run.pool is not None:
            self.end(f'{why}, and without sayso.run("a name") no later call can find it')
            return exceptions.not_awaited(request, self.reason or "", exceptions.ConfirmationExpired)
        if self.run.owner is not None:
            self.run.open_calls[request.subject.digest] = request.id
        return exceptions.ConfirmationRequired.of(request)

    def break_off(self, error: BaseException) -> Operations[None]:
        """Withdraw the request of a call that ends with `error`, if nobody waits for it any more.

        It stays if its run has a name, if another call of this process waits for it, or if the program can come back to
        it: after a signal such as `ConfirmationRequired`, or by `keeps_request`. If the wait was ended (`reason`), the
        program cannot.
        """
        request = self._request
        is_signal = isinstance(error, exceptions.ConfirmationRequired | exceptions.ConfirmationRejected)
        if request is None or (self.reason is None and (self._keeps_request or is_signal)):
            return  # decided, or a program comes back to it
        if self._leave_request() or not is_random(request.run_id):
            return
        why = self.reason or f"the program stopped waiting ({type(error).__name__})"
        try:
            yield from withdraw(self._store, request.id, why, error)
        except errors.SaysoError as fault:
            telemetry.warn("%s could not be withdrawn (%s); no call waits for it any more", request.id, fault)

    def _leave_request(self) -> bool:
        """Stop waiting for the request; return whether another call of this process waits for it."""
        request, self._request = self._request, None
        if request is None:
            return False
        with _counting:
            _waits[request.id] -= 1
            others = _waits[request.id] > 0
            if not others:
                del _waits[request.id]
        return others

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait(self, request: Request) -> Operations[None]:
        """Wait as the gate's options say."""
        self.run.raised[request.id] = None
        if self._block is None:
            raise exceptions.ConfirmationRequired.of(request)
        after = yield from self.until_decided(request, self._block)
        if after.state is State.CANCELLED and not after.holds and not self.asks_anew(after):
            raise exceptions.refused(after)

    def until_decided(self, request: Request, block: Block) -> Operations[Request]:
        """Wait until the request is no longer pending, and return it.

        Raises:
            ConfirmationRequired: The timeout passed, or the person at the terminal detached; it is still pending.
            ConfirmationExpired: It expired, and `on_expiry` is `reject`.
            ConfirmationCancelled: Nobody waits any more, because the run was left or its task has ended.
        """
        self.wait_for(request)
        self._limit(block)
        before_wait = getattr(self._store, "before_wait", None)
        if before_wait is not None:
            before_wait(request, self.deadline)
        decided = _Decided(self._store, request, self, block)
        after: Request = yield telemetry.waiting(request, decided)
        if block.withdraws and after.state is State.PENDING and decided.was_left and not is_random(after.run_id):
            decided = _Decided(self._store, request, self, block._replace(is_quiet=True))  # it is decided elsewhere
            after = yield telemetry.waiting(request, decided)
        if after.state is not State.PENDING:
            telemetry.log("heard", after)
        self.check(after)
        if after.state is State.PENDING and decided.was_left and is_random(after.run_id):
            self.end("the person at the terminal detached, and no later call can find it in a run without a name")
            self.check(after)
        if after.state is State.PENDING:
            raise self.come_back_later(after, f"nobody decided within timeout={block.timeout}")
        if after.state is State.EXPIRED and block.on_expiry == "reject":
            raise exceptions.refused(after)
        return after

    def _limit(self, block: Block | None) -> None:
        """Set the end of the wait, once: asking again, or waiting for another start, does not extend it."""
        if self.deadline is None and block is not None and block.timeout is not None:
            self.deadline = time.monotonic() + block.timeout.total_seconds()

    def running(self, request: Request) -> Operations[Request]:
        """If there is a key, wait for the one start, so that all callers get its result; else refuse a second start.

        Raises:
            AlreadyStartedError: There is no key, or it is still running at `deadline`.
        """
        self._limit(self._block)
        after = request if request.key is None else (yield from until_ended(self._store, request.id, self))
        return (yield from super().running(after)) if after.state is State.RUNNING else after

    def asks_anew(self, request: Request) -> bool:
        """Ask again after an expiry, or a withdrawal, usually by a program with stricter requirements.

        The number is limited: two programs that require different roles would withdraw each other's requests forever.
        """
        if request.state is State.CANCELLED:
            self._withdrawn += 1
        return self._withdrawn <= _MOST_WITHDRAWN

    def executed(self, request: Request, attempt: Attempt) -> Operations[None]:
        """Record in the run that the call was made; a remaining retry counts in this run only."""
        yield from ()
        self.run.forget(request.id)
        if attempt.raised is not None and self.run.owner is not None:
            self.run.open_calls[request.subject.digest] = request.id  # a retry may be left, or its outcome is unknown

    def close(self) -> None:
        """Stop waiting and listening."""
        if self._request is not None:
            self._leave_request()
        while self._undo:
            self._undo.pop()()


_reported: list[weakref.ref[object]] = []  # the runner whose end by Ctrl-C was last reported

# Everything that ends a wait wakes it; the polling is for stores to which other machines write without a signal.
_LOOK_AGAIN = 5.0
_LAST_WORDS = 1.0  # seconds for a dialog to end: it polls ten times a second, unless reading a line blocks
_SOON = 0.05  # a server's clock may be behind: poll slowly until it agrees that the end is reached


def _warn_in_event_loop(request: Request) -> None:
    """Warn if a wait blocks the event loop of this thread, once per function and calling line."""
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:  # noqa: SLF001  documented for exactly this use
        return
    ipython: Any = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        return  # a notebook runs its cells in a loop in which nothing else waits
    frame, package = sys._getframe(1), __name__.partition(".")[0]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  as `warnings` does
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame = frame.f_back
    name = request.call.name if request.kind == "call" else "sayso.ask"
    text = (
        f"{name}() waits for a person, and blocks the event loop of this thread until then; make it `async def`"
        f" and await it (for a question: sayso.aio.ask), or `await asyncio.to_thread({name}, ...)`, or wait='raise'"
    )
    warnings.warn_explicit(text, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno, registry=_warned)


_warned = dict[Any, Any]()


class _Decided:
    """Waits until a request is decided, time is over, or the person detaches; returns the request as it is then."""

    def __init__(self, store: Store, request: Request, waiter: Waiter, block: Block) -> None:
        self._store, self._request, self._waiter, self._block = store, request, waiter, block
        self._until = waiter.deadline
        self._is_asked = False

    @property
    def was_left(self) -> bool:
        """Whether the person at the terminal detached before the wait was over."""
        return self._is_asked and (self._until is None or time.monotonic() < self._until)

    def _look(self) -> Request:
        # `as_heard` returns quickly, so that a cancelled wait ends. But an end that is reached must be read from the
        # store: by the next look, if it is reached during this one.
        is_over = is_due(self._request, clock.now())
        try:
            request = (self._store.get if is_over else self._store.as_heard)(self._request.id)
            return self._store.settle(request.id) if is_due(request, clock.now()) else request
        except StoreUnavailableError:
            if stderr.can_decide(self._store) or is_over:
                raise
            return self._request  # an absent server ends no wait; a decision is received when it is back

    def _seconds(self, request: Request) -> float:
        """Return how long to sleep before the next look; zero or less if time is over."""
        ends = [self._store.look_again, max(_SOON, (request.expires_at - clock.now()).total_seconds())]
        if self._until is not None:
            ends.append(self._until - time.monotonic())
        return min(ends)

    def __call__(self) -> Request:
        _warn_in_event_loop(self._request)
        wake = threading.Event()
        unwatch = self._store.watch(self._request.id, wake.set)
        try:
            with self._waiter.waking(wake.set):
                if self._is_shown_at_terminal():
                    return dialog.converse(
                        self._store, self._request, lambda: self._is_over(self._look()), self._is_left
                    )
                while True:
                    wake.clear()
                    request = self._look()
                    if self._is_over(request):
                        return request
                    self._waiter.sleep(wake, self._seconds(request))
        except KeyboardInterrupt:
            stderr.say_what_waits(self._store, self._request, is_interrupted=True, is_withdrawn=self._block.withdraws)
            raise
        finally:
            unwatch()

    def _is_shown_at_terminal(self) -> bool:
        """Return whether to ask here; if that is not possible, print what waits."""
        if self._block.is_quiet:
            return False
        if not (dialog.person_is_at_terminal() and stderr.can_decide(self._store)):
            stderr.announce(self._store, self._request)
            return False
        self._is_asked = True
        return True

    def _is_left(self) -> bool:
        return self._waiter.reason is not None

    def _is_over(self, request: Request) -> bool:
        return request.state is not State.PENDING or self._is_left() or self._seconds(request) <= 0

    async def arun(self) -> Request:
        import asyncio

        loop, wake = asyncio.get_running_loop(), asyncio.Event()

        def wake_from_any_thread() -> None:
            with suppress(RuntimeError):  # the loop may be closed, which does not concern whoever changed the request
                loop.call_soon_threadsafe(wake.set)

        unwatch = self._store.watch(self._request.id, wake_from_any_thread)
        try:
            with self._waiter.waking(wake_from_any_thread):
                if self._is_shown_at_terminal():
                    return await self._converse(wake, wake_from_any_thread)
                return await self._await(wake)
        except KeyboardInterrupt:
            stderr.say_what_waits(self._store, self._request, is_interrupted=True, is_withdrawn=self._block.withdraws)
            raise
        except asyncio.CancelledError:
            runner = interruptions.interrupted_runner()
            if runner is not None and not (_reported and _reported[0]() is runner):  # its first task says it for all
                _reported[:] = [weakref.ref(runner)]
                is_withdrawn = self._block.withdraws
                stderr.say_how_many_wait(self._store, self._request, len(_waits), is_withdrawn=is_withdrawn)
            raise
        finally:
            unwatch()

    async def _await(self, wake: asyncio.Event, talk: Future[Request] | None = None) -> Request:
        import asyncio

        while True:
            wake.clear()
            if talk is not None and talk.done():
                return talk.result()
            request = await offload(self._look) if self._store.blocks else self._look()
            is_over = self._is_over(request)
            if is_over and (talk is None or talk.cancel()):
                return request
            # A dialog in progress notices by itself that it is over. Not `wait_for`: in Python 3.11 it loses a
            # cancellation that coincides with a wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_over else self._seconds(request)):
                    await wake.wait()

    async def _converse(self, wake: asyncio.Event, wake_from_any_thread: Callable[[], None]) -> Request:
        import asyncio

        is_left = threading.Event()
        left: Callable[[], bool] = lambda: is_left.is_set() or self._is_left()  # noqa: E731  (a closure over `is_left`)
        over: Callable[[], bool] = lambda: is_left.is_set() or self._is_over(self._look())  # noqa: E731  (a closure over `is_left`)
        talk = dialog.in_turn(self._store, self._request, over, left)
        talk.add_done_callback(lambda _: wake_from_any_thread())
        try:
            return await self._await(wake, talk)
        except asyncio.CancelledError:
            is_left.set()
            if not talk.cancel():  # its last output must come before the program's, if Ctrl-C ends it
                await asyncio.wait([asyncio.wrap_future(talk)], timeout=_LAST_WORDS)
            raise
        finally:
            is_left.set()  # a task that has ended must leave no dialog at the terminal
            talk.cancel()


class _Ended(_Decided):
    """Waits until a call that runs here or elsewhere has ended, or its worker is gone."""

    def _look(self) -> Request:
        try:
            request = self._store.get(self._request.id)
            # A killed worker sends no notification, but `settle` detects it.
            return self._store.settle(request.id) if request.state is State.RUNNING else request
        except StoreUnavailableError:
            return self._request

    def _is_over(self, request: Request) -> bool:
        is_late = self._until is not None and time.monotonic() >= self._until
        return request.state is not State.RUNNING or is_late or self._is_left()

    def _seconds(self, request: Request) -> float:  # noqa: ARG002  no decision ends it
        left = _LOOK_AGAIN if self._until is None else self._until - time.monotonic()
        return max(0.0, min(left, _LOOK_AGAIN))


class _HeldBack(_Ended):
    """Waits until an approval can no longer be undone, or was undone."""

    def __init__(self, store: Store, request: Request, waiter: Waiter, seconds: float) -> None:
        super().__init__(store, request, waiter, Block(is_quiet=True))
        self._until = time.monotonic() + seconds

    def _is_over(self, request: Request) -> bool:
        return request.state is not State.APPROVED or self._is_left() or self._seconds(request) <= 0

    def _seconds(self, request: Request) -> float:  # noqa: ARG002  the approval ends it
        return min(_LOOK_AGAIN, self._until - time.monotonic())


def until_ended(store: Store, request_id: str, waiter: Waiter) -> Operations[Request]:
    """Wait until a call that somebody else has started has ended, or until `waiter.deadline`.

    Raises:
        StartRefusedError: That call is this very one, which would wait for itself.
        ConfirmationCancelled: Nobody waits any more, because the run was left or its task has ended.
    """
    if any(running.id == request_id for running in scope.executing.get()):
        raise errors.StartRefusedError(
            request_id, f"the call of {request_id} runs here, and waits for its own result, which would never come"
        )
    request: Request = yield StoreCall(store.get, request_id)
    waiter.wait_for(request)
    after: Request = yield _Ended(store, request, waiter, Block(is_quiet=True))
    waiter.check(after)
    return after
