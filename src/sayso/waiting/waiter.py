"""One wait for a person, and what ends it: a decision, or that nobody waits any more.

Nobody waits when the run that the wait began in was left, when the task that handed the work to a thread has ended or
was cancelled, or when the wait itself is broken off. Then the call does not start, whatever is decided later, and its
request is withdrawn, unless the run has a name by which a later process comes back to it. Invariant: a call is either
ended or begun, never both, and nothing that was ended begins.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from sayso import errors
from sayso.drive import Effects
from sayso.gates import withdraw
from sayso.model.request import Request
from sayso.stores.base import Store
from sayso.view.summary import is_random
from sayso.waiting import pool, scope, signals, stop

__all__ = ["Waiter"]

T = TypeVar("T")
_TASK_ENDED = "the task that it was made for has ended"
_log = logging.getLogger("sayso")

# How many waits of this process stand at each request: two calls of one run may wait for the same.
_standing: Counter[str] = Counter()
_counting = threading.Lock()


def _after_fork() -> None:
    global _counting  # noqa: PLW0603  the thread that held it is not there in a forked child
    _counting = threading.Lock()
    _standing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Waiter:
    """What one call that may be held has to do with its run.

    Args:
        here: The run in which the call is made.
        store: Where its request lives.
        stays: A wait that is merely broken off leaves its request: there is another way back to it than this call.

    Attributes:
        here: The run in which the call is made.
        store: Where its request lives.
        deadline: Until when the call stands there, as `time.monotonic` tells it; None without end.
        reason: Why nobody waits any more; None while somebody does.
    """

    __slots__ = (
        "_has_begun", "_hears", "_is_told", "_job", "_late", "_leave", "_lock", "_owners", "_request", "_stays",
        "_wakes", "deadline", "here", "reason", "store",
    )  # fmt: skip

    def __init__(self, here: scope.Scope, store: Store, *, stays: bool = False) -> None:
        self.here, self.store, self._stays = here, store, stays
        self._request: Request | None = None
        self._lock: threading.Lock | None = None  # made when it is needed: most calls are let through
        self._hears = self._is_told = False
        self._leave: list[Callable[[], Any]] = []
        self._owners: list[Any] = []
        self._wakes: dict[object, Callable[[], None]] = {}
        self._job: pool.Job | None = None
        self._has_begun = False
        self._late: str | None = None
        self.deadline: float | None = None
        self.reason: str | None = None

    # -- waiting -----------------------------------------------------------------------------------------------

    def stands_at(self, request: Request) -> None:
        """Note for what the call waits, and hear from now on of everything that ends the wait."""
        self._listen()
        self._let_go()
        self._request = request
        with _counting:
            _standing[request.id] += 1

    def _listen(self) -> None:
        if self._hears:
            return
        self._hears = True
        self._locked()  # made before another thread can ask for it: two threads would make two
        task = scope.current_task()
        for one in self.here.surroundings():
            self._leave.append(one.tell_of_end(self.end))
            owner = None if one.owner is None else one.owner.task
            if owner is not None and owner() is not task:
                self._follow(owner())
        self._job = pool.job() if task is None else None
        if self._job is not None:
            self.look()

    def _follow(self, owner: Any) -> None:
        """End with the task for which a thread works: nobody else waits for what the thread returns."""
        if owner is None or owner.done():
            self.end(_TASK_ENDED)
        else:
            self._owners.append(owner)
            self._leave.append(pool.when_done(owner, partial(self.end, _TASK_ENDED)))

    def look(self) -> None:
        """Look for what tells nobody when it happens."""
        if self._job is not None and not self._is_told:
            forget = self._job.when_given_up(partial(self.end, _TASK_ENDED))
            self._is_told = forget is not None
            self._leave += [] if forget is None else [forget]
        if any(owner.done() for owner in self._owners) or (self._job is not None and self._job.is_given_up):
            self.end(_TASK_ENDED)

    def end(self, reason: str) -> None:
        """Say, from any thread, that nobody waits any more. Too late once the call has begun."""
        with self._locked():
            if self._has_begun:
                self._late = self._late or reason  # counts again if the start is refused
                return
            if self.reason is not None:
                return
            self.reason = reason
            wakes = list(self._wakes.values())
        for wake in wakes:
            wake()

    def _locked(self) -> threading.Lock:
        if self._lock is None:
            self._lock = threading.Lock()
        return self._lock

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Generator[None]:
        """Call `wake` when the wait is ended inside the block, or was ended before."""
        mine = object()
        with self._locked():
            self._wakes[mine] = wake
        if self.reason is not None:
            wake()
        try:
            yield
        finally:
            self._wakes.pop(mine, None)

    def sleep(self, wake: threading.Event, seconds: float) -> None:
        """Sleep until `wake` is set, or for as long."""
        if threading.current_thread() is threading.main_thread():
            wake.wait(seconds)
            return
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not wake.wait(min(left, stop.PACE)):
            self.look()
            if stop.is_interrupted():
                self.end("the program was interrupted")

    # -- and then ----------------------------------------------------------------------------------------------

    def must_go_on(self, request: Request) -> None:
        """Raise if nobody waits any more.

        Raises:
            ConfirmationCancelled: Nobody does; nothing ran.
        """
        if self.reason is not None:
            raise signals.not_awaited(request, self.reason)

    def begin(self, request: Request) -> None:
        """Take the step from waiting to running: from here on the wait cannot be ended any more.

        Raises:
            ConfirmationCancelled: Nobody waits any more; nothing ran.
        """
        self._listen()  # it may not have waited, and stand in a run that was left all the same
        self.look()  # whoever tells of an end may be about to
        with self._locked():
            self.must_go_on(request)
            self._has_begun = True
        self._let_go()

    def resume(self, request: Request) -> None:
        """Go back from running to waiting: the call was not started after all.

        Raises:
            ConfirmationCancelled: Nobody waits any more, by now; nothing ran.
        """
        with self._locked():
            self._has_begun = False
            self.reason = self.reason or self._late
        self.must_go_on(request)

    def come_back_later(self, request: Request, waited: str) -> BaseException:
        """Return what is raised when the call stops waiting and its request stays.

        Where the same call can be made again here it finds the request; in a pool's thread nobody could make it, and
        the request is withdrawn.
        """
        if self.here.pool is not None:
            self.end(f'nobody decided within {waited}, and without sayso.run("a name") nobody can come back to it')
            return signals.not_in_time(request, self.reason or "")
        if self.here.owner is not None:
            self.here.open_calls[request.subject.digest] = request.id
        return signals.ConfirmationRequired.of(request)

    def over(self, effects: Effects[T]) -> Effects[T]:
        """Do what may wait; where it is broken off, take back what nobody waits for any more."""
        try:
            return (yield from effects)
        except BaseException as error:
            yield from self._withdraw(error)
            raise
        finally:
            self._close()

    def _withdraw(self, error: BaseException) -> Effects[None]:
        request = self._request
        is_signal = isinstance(error, signals.ConfirmationRequired | signals.ConfirmationRejected)
        if request is None or (self.reason is None and (self._stays or is_signal)):
            return  # decided, or somebody comes back to it
        if self._let_go() or not is_random(request.run_id):
            return
        why = self.reason or f"the program stopped waiting ({type(error).__name__})"
        try:
            yield from withdraw(self.store, request.id, why, error)
        except errors.SaysoError as fault:
            _log.warning("%s could not be withdrawn (%s); it starts nothing any more", request.id, fault)

    def _let_go(self) -> bool:
        """Stand at no request any more; return whether another call of this process still does."""
        request, self._request = self._request, None
        if request is None:
            return False
        with _counting:
            _standing[request.id] -= 1
            others = _standing[request.id] > 0
            if not others:
                del _standing[request.id]
        return others

    def _close(self) -> None:
        self._let_go()
        while self._leave:
            self._leave.pop()()
