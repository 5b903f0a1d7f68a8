"""Renews the leases of what this process runs, one thread for each store.

A start counts for as long as its worker's name says (`worker.lease_of`) without a word from the worker, so a short call
costs nothing. Once half of that has passed the thread renews it, and again after each half. Whoever settles a call that
was not renewed in time records it as `unknown` (`RequestStore.settle`); nothing starts it again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from sayso.stores import worker

_log = logging.getLogger("sayso")
_UNKNOWN = timedelta(seconds=30)


class _Renewing(Protocol):
    """What is asked of a store here."""

    def renew(self, starts: Sequence[tuple[str, str]]) -> Sequence[str]: ...


@dataclass(slots=True)
class _Held:
    """A call or run that this process has in hand, and when its lease is renewed, by the monotonic clock."""

    id: str
    due: float


class _Keeper:
    """What this process holds in one store, by the secret that proves it: a start's token or a run's holder."""

    def __init__(self, store: _Renewing) -> None:
        self._store = ref(store)  # a store that nobody uses any more is not kept by what it ran
        self._half = (worker.lease_of(worker.current()) or _UNKNOWN).total_seconds() / 2
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()  # never set
        self._is_failing = False

    def add(self, item_id: str, secret: str) -> None:
        with self._lock:
            self._held[secret] = _Held(item_id, monotonic() + self._half)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sayso-leases", daemon=True)
                self._thread.start()

    def remove(self, secret: str) -> None:
        self._held.pop(secret, None)

    def clear(self) -> None:
        self._held.clear()

    def _run(self) -> None:
        pause = self._half
        while True:
            # Nothing that is added meanwhile is due before this has passed.
            self._pause.wait(pause)
            with self._lock:  # so that `add` either finds this thread or starts another, never neither
                if not self._held or self._store() is None:
                    self._thread = None
                    return
            now = monotonic()
            due = {secret: held for secret, held in list(self._held.items()) if held.due <= now}
            if due:
                self._renew(due, now)
            soonest = min((held.due for held in list(self._held.values())), default=now + self._half)
            pause = min(self._half, max(0.05, soonest - monotonic()))

    def _renew(self, due: dict[str, _Held], now: float) -> None:
        store = self._store()
        if store is None:
            return
        try:
            lost = set(store.renew([(held.id, secret) for secret, held in due.items()]))
        except Exception as error:  # noqa: BLE001  the edge of a thread: as long as the lease lasts it is tried again
            if not self._is_failing:
                _log.warning("the leases of %d calls could not be renewed, and are tried again: %s", len(due), error)
            self._is_failing, lost, after = True, set[str](), self._half / 8
        else:
            self._is_failing, after = False, self._half
        for secret, held in due.items():
            if held.id in lost:
                self._held.pop(secret, None)
                _log.warning(
                    "the lease of %s was lost: it is not recorded as running here any more. What runs goes on, nothing"
                    " starts it again, and how it ends is recorded unless a person has said so by then", held.id,
                )  # fmt: skip
            else:
                held.due = now + after  # in place: it may have been released meanwhile, and stays so


_keepers: WeakKeyDictionary[_Renewing, _Keeper] = WeakKeyDictionary()

if hasattr(os, "register_at_fork"):
    # What the parent runs is the parent's to renew, and its threads are not there any more.
    os.register_at_fork(after_in_child=_keepers.clear)


def hold(store: _Renewing, item_id: str, secret: str) -> None:
    """Renew the lease of a call, by its start's token, or of a run, by its holder, until it is released."""
    keeper = _keepers.get(store)
    if keeper is None:
        keeper = _keepers.setdefault(store, _Keeper(store))
    keeper.add(item_id, secret)


def release(store: _Renewing, secret: str) -> None:
    """Renew it no more."""
    keeper = _keepers.get(store)
    if keeper is not None:
        keeper.remove(secret)


def forget() -> None:
    """Renew nothing that was begun until now: for tests, which leave calls behind."""
    for keeper in list(_keepers.values()):
        keeper.clear()
