"""Wakes those who wait for a request when it changes, in this process or another.

A change by this process wakes its waiters at once (a `Bell` per store). For changes by other processes, one watcher
thread per process and store polls the store's version, every 20 ms after recent activity and every 250 ms when idle.
Only waiters whose request has changed are woken, so one poll serves any number of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import sleep, thread_time

from sayso.effects import daemon_thread

_log = logging.getLogger("sayso")

BUSY, IDLE = 0.020, 0.250
_LINGER = 100  # polls at the busy pace after the last change, before it slows down
_REST = 4  # minimum pause, as a multiple of the CPU time of a poll: many waiters must not use a whole core


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
                with suppress(Exception):  # a handler may fail as well
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
        self._bell, self._version, self._marks = bell, version, marks
        self._lock, self._nudge = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._is_slow = self._is_wanted = False

    def ensure(self) -> None:
        """Start the thread if needed, and set it to its busy pace."""
        with self._lock:
            self._is_wanted = True
            if self._is_slow:  # else it polls soon anyway: every new waiter would cost a poll
                self._nudge.set()
            if self._thread is None:
                self._thread = daemon_thread("sayso-watcher", self._run)

    def _run(self) -> None:
        last, quiet, known = -1, 0, dict[str, int]()
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
                    # A request that is new here may have changed since its waiter looked, so it is rung once in any
                    # case, and one that is gone because the file was replaced too. Hashes, under the existing id
                    # objects, because there may be thousands.
                    watched = self._bell.watched()
                    marks = self._marks(watched)
                    before, known = known, {one: hash(marks[one]) for one in watched if one in marks}
                    self._bell.ring(one for one in watched if before.get(one) != known.get(one))
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


class Watched:
    """The part of a store that wakes waiters."""

    _bell: Bell

    def watch(self, request_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """See `sayso.stores.program.RequestStore.watch`."""
        return self._register(request_id, wake)

    def watch_all(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `sayso.stores.program.RequestStore.watch_all`."""
        return self._register(None, wake)  # not `watch`, which a subclass may override for ids

    def _register(self, request_id: str | None, wake: Callable[[], None]) -> Callable[[], None]:
        remove = self._bell.add(request_id, wake)
        self._listen(request_id, wake)
        return remove

    def _listen(self, request_id: str | None, wake: Callable[[], None], /) -> None:
        """Ensure that changes by other processes ring the bell too."""
