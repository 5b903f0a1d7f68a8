"""Waking those who wait for a request to change: a bell per store, and one watcher thread per process.

Changes made in this process ring the bell at once. Changes of other processes are noticed by one thread that asks
the store for its version, every 20 ms while something happened lately and ever less often, down to every 250 ms.
Only those are woken whose request has changed, so that a thousand who wait cost one look and not a thousand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["BUSY", "IDLE", "Bell", "Watched", "Watcher"]

BUSY, IDLE = 0.020, 0.250
_LINGER = 100  # polls at the busy pace after the last change, before it slows down


class Bell:
    """Who wants to be woken for which request, or for any change at all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakes: dict[str, dict[object, Callable[[], None]]] = {}
        self._wakes_for_any: dict[object, Callable[[], None]] = {}

    def add(self, request_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Register `wake`; the returned function takes it back, once."""
        mine = object()  # two may wait with equal functions
        with self._lock:
            self._wakes.setdefault(request_id, {})[mine] = wake

        def remove() -> None:
            with self._lock:
                waiting = self._wakes.get(request_id, {})
                waiting.pop(mine, None)
                if not waiting:
                    self._wakes.pop(request_id, None)

        return remove

    def add_for_any(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Register `wake` for every change; the returned function takes it back."""
        mine = object()
        with self._lock:
            self._wakes_for_any[mine] = wake

        def remove() -> None:
            with self._lock:
                self._wakes_for_any.pop(mine, None)

        return remove

    def ring(self, request_ids: Iterable[str]) -> None:
        """Wake everybody who waits for one of these, and everybody who waits for any change."""
        if self.is_idle:
            return
        with self._lock:
            wakes = [wake for request_id in request_ids for wake in self._wakes.get(request_id, {}).values()]
            wakes += self._wakes_for_any.values()
        for wake in wakes:
            wake()

    def ring_all(self) -> None:
        """Wake everybody."""
        self.ring(self.watched())

    def watched(self) -> list[str]:
        """Return the requests that somebody waits for."""
        with self._lock:
            return list(self._wakes)

    @property
    def is_for_any(self) -> bool:
        """Whether somebody waits for any change at all."""
        return bool(self._wakes_for_any)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._wakes and not self._wakes_for_any


class Watcher:
    """One thread that rings the bell when another process changed the store. It ends when nobody waits.

    Args:
        bell: Who waits.
        version: Returns another number after any change of the store.
        marks: Returns for each of these requests something that differs after each change of it.
    """

    def __init__(
        self, bell: Bell, version: Callable[[], int], marks: Callable[[Sequence[str]], Mapping[str, object]]
    ) -> None:
        self._bell = bell
        self._version = version
        self._marks = marks
        self._known: Mapping[str, object] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._nudge = threading.Event()

    def ensure(self) -> None:
        """Have the thread running, at its busy pace."""
        with self._lock:
            self._nudge.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sayso-watcher", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        last, quiet = -1, 0
        while True:
            with self._lock:  # so that `ensure` either finds this thread or starts another, never neither
                if self._bell.is_idle:
                    self._thread = None
                    return
            try:
                current = self._version()
                if current != last:
                    last, quiet = current, 0
                    self._ring_changed()
            except Exception:  # noqa: BLE001  whatever is wrong with the store, the waiters find it out themselves when woken
                last, quiet = -1, 0
                self._bell.ring_all()
            pace = BUSY if quiet < _LINGER else min(IDLE, BUSY * 1.1 ** (quiet - _LINGER))
            quiet += 1
            if self._nudge.wait(pace):
                self._nudge.clear()
                quiet = 0

    def _ring_changed(self) -> None:
        # A request that is new here may have changed since its waiter looked, so it is rung once without need.
        before, self._known = self._known, dict(self._marks(self._bell.watched()))
        self._bell.ring(request_id for request_id, mark in self._known.items() if before.get(request_id) != mark)


class Watched:
    """The part of a store that wakes those who wait, where other processes change it too."""

    _bell: Bell
    _watcher: Watcher

    def watch(self, request_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Do as `sayso.stores.base.Store.watch` says."""
        remove = self._bell.add(request_id, wake)
        self._watcher.ensure()
        return remove

    def watch_all(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Do as `sayso.stores.run_verbs.RunVerbs.watch_all` says."""
        remove = self._bell.add_for_any(wake)
        self._watcher.ensure()
        return remove
