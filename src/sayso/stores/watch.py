"""Wakes callers that wait for a request to change: a `Bell` per store, and one watcher thread per process and store.

A change by this process wakes its waiters at once. For changes by other processes, the thread polls the store's
version, every 20 ms after recent activity and every 250 ms when idle. Only waiters whose request has changed are woken,
so one poll serves any number of them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import _bootstrap  # pyright: ignore[reportAttributeAccessIssue]  nothing else tells which thread imports
from time import monotonic, sleep, thread_time
from typing import Protocol
from weakref import WeakSet

_log = logging.getLogger("sayso")

BUSY, IDLE = 0.020, 0.250
_LINGER = 100  # polls at the busy pace after the last change, before it slows down
_REST = 4  # minimum pause, as a multiple of the CPU time of a poll: many waiters must not use a whole core


def started(name: str, work: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread and return it; raises if none could be started, and the next caller tries again."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


class Bell:
    """The registered callers that want to be woken, for one request or for any change.

    Attributes:
        waiting: Their wake functions by request, and under None for any change; empty if nobody waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting: dict[str | None, dict[object, Callable[[], None]]] = {}

    def add(self, request_id: str | None, wake: Callable[[], None]) -> Callable[[], None]:
        """Register `wake` for a request, None for every change; the returned function unregisters it, once."""
        mine = object()  # two waiters may have equal functions
        with self._lock:
            self.waiting.setdefault(request_id, {})[mine] = wake
        return partial(self._remove, request_id, mine)

    def _remove(self, request_id: str | None, mine: object) -> None:
        with self._lock:
            waiting = self.waiting.get(request_id, {})
            waiting.pop(mine, None)
            if not waiting:
                self.waiting.pop(request_id, None)

    def add_for_any(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Register `wake` for every change; the returned function unregisters it."""
        return self.add(None, wake)

    def ring(self, request_ids: Iterable[str]) -> None:
        """Wake everybody who waits for one of these requests, or for any change."""
        if self.is_idle:
            return
        with self._lock:
            woken = [wake for one in (*request_ids, None) for wake in self.waiting.get(one, {}).values()]
        for wake in woken:
            try:
                wake()
            except Exception:  # noqa: BLE001  a failing `wake` neither stops the others nor ends the thread
                _log.exception("a caller that waits for a request could not be woken")

    def ring_all(self) -> None:
        """Wake everybody."""
        self.ring(self.watched())

    def watched(self) -> list[str]:
        """Return the requests that somebody waits for."""
        with self._lock:
            return [one for one in self.waiting if one is not None]

    @property
    def is_for_any(self) -> bool:
        """Whether somebody waits for any change at all."""
        return None in self.waiting

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self.waiting


class Watcher:
    """A thread that rings the bell when another process has changed the store. It ends when nobody waits.

    Args:
        bell: Wakes the callers that wait.
        version: Returns a number that differs after any change of the store.
        marks: Returns for each of these requests a value that differs after each change of it.
    """

    def __init__(
        self, bell: Bell, version: Callable[[], int], marks: Callable[[Sequence[str]], Mapping[str, object]]
    ) -> None:
        self._bell = bell
        self._version = version
        self._marks = marks
        self._known: dict[str, int] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._nudge = threading.Event()
        self._is_slow = self._is_wanted = False

    def ensure(self) -> None:
        """Start the thread if needed, and set it to its busy pace."""
        with self._lock:
            self._is_wanted = True
            if self._is_slow:  # else it polls soon anyway: every new waiter would cost a poll
                self._nudge.set()
            if self._thread is None:
                self._thread = started("sayso-watcher", self._run)

    def _run(self) -> None:
        last, quiet = -1, 0
        while True:
            with self._lock:  # so that `ensure` either finds this thread or starts another
                if self._bell.is_idle:
                    self._thread = None
                    return
            began = thread_time()
            try:
                current = self._version()
                if current != last:
                    last, quiet = current, 0
                    self._ring_changed()
            except Exception:  # noqa: BLE001  whatever is wrong with the store, the waiters get the error when woken
                last, quiet = -1, 0
                self._bell.ring_all()
            sleep(min(IDLE, _REST * (thread_time() - began)))
            with self._lock:  # so that `ensure` is either noticed here or ends the pause
                quiet = 0 if self._is_wanted else min(quiet + 1, 2 * _LINGER)  # a larger power would overflow a float
                pace = BUSY if quiet <= _LINGER else min(IDLE, BUSY * 1.1 ** (quiet - _LINGER))
                self._is_slow, self._is_wanted = pace > BUSY, False
            if self._nudge.wait(pace):
                self._nudge.clear()

    def _ring_changed(self) -> None:
        # A request that is new here may have changed since its waiter looked, so it is rung once in any case.
        watched = self._bell.watched()
        marks = self._marks(watched)
        # Hashes, under the existing id objects, because there may be thousands.
        before, self._known = self._known, {one: hash(marks[one]) for one in watched if one in marks}
        # Also rings for a request that is gone because the file was replaced.
        self._bell.ring(one for one in watched if before.get(one) != self._known.get(one))


class Watched:
    """The part of a store that wakes waiters if other processes can change it."""

    _bell: Bell
    _watcher: Watcher

    def watch(self, request_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """See `sayso.stores.request_store.RequestStore.watch`."""
        remove = self._bell.add(request_id, wake)
        self._watcher.ensure()
        return remove

    def watch_all(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `sayso.stores.request_store.RequestStore.watch_all`."""
        remove = self._bell.add_for_any(wake)
        self._watcher.ensure()
        return remove


class _Forked(Protocol):
    def after_fork(self) -> None: ...


_stores: WeakSet[_Forked] = WeakSet()


def forget_after_fork(store: _Forked) -> None:
    """Call `after_fork` of a store in forked children, as long as the store exists."""
    _stores.add(store)


def _after_fork() -> None:
    for store in list(_stores):
        store.after_fork()


_PATIENCE = 2.0  # seconds that a fork waits for imports of other threads


def _before_fork() -> None:
    # Calls import what they need at first use. A child that is forked while another thread imports a module could never
    # import it, because nobody in the child would release the module's lock.
    until = monotonic() + _PATIENCE
    while _is_importing() and monotonic() < until:
        sleep(0.001)


def _is_importing() -> bool:
    """Return whether another thread is importing a module; False if this Python does not tell."""
    locks = [module_lock() for module_lock in list(getattr(_bootstrap, "_module_locks", {}).values())]
    return any(getattr(lock, "owner", None) not in {None, threading.get_ident()} for lock in locks)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
