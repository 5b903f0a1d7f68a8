"""The worker: the process that holds a start or a run, whether it is certainly gone, and how it renews its leases.

A worker's name contains its machine, namespaces, process id, start time, and the length of the leases of its calls
(`lease_of`); a `Lease` is its right to one run. A short call needs no renewal: after half of that time, and again after
each further half, one thread per store renews. Whoever settles a call that was not renewed in time records it as
`unknown` (`RequestStore.settle`); nothing starts it again. The worker that resumes runs is in `sayso.runs.worker`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from sayso import errors
from sayso.model import duration
from sayso.model.ids import new_token
from sayso.stores.watch import started

_log = logging.getLogger("sayso")
_DEFAULT_LEASE = timedelta(seconds=30)
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(days=1)
SOONEST_RENEWAL = _SHORTEST / 4
"""No lease is renewed sooner than this after its start, because the first renewal comes after half of its span."""

_OUTERMOST = "4026531836"  # the process namespace of every Linux machine itself, outside containers


class _Worker(NamedTuple):
    """The parts of a worker's name; empty if the system does not tell."""

    host: str
    boot: str
    pid_namespace: str
    time_namespace: str
    pid: str
    started: str
    program: str
    machine: str
    lease: str  # seconds


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _namespace(kind: str) -> str:
    try:
        return str(Path(f"/proc/self/ns/{kind}").stat().st_ino)
    except OSError:
        return ""


def _fields(pid: int | str) -> list[str]:
    # /proc/PID/stat from its third field on; the command name before it may contain spaces and brackets.
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _started(pid: int | str) -> str:
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else ""


def _program(pid: int | str) -> str:
    """Return a text that differs between two programs in the same process; "" if it may not be read.

    The kernel loads each program at other addresses, and records them. A fork keeps them.
    """
    try:
        vector = Path(f"/proc/{pid}/auxv").read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(b"sayso/program:" + vector).hexdigest()[:12] if vector else ""


def _is_dead(pid: int) -> bool:
    # Killed but not yet reaped by its parent: the id still exists, and it will never report how its call ended.
    return _fields(pid)[:1] in (["Z"], ["X"])


def _machine() -> str:
    # machine-id(5) says not to expose the id itself; a digest distinguishes machines as well.
    known = _read("/etc/machine-id")
    return hashlib.sha256(b"sayso/worker:" + known.encode()).hexdigest()[:12] if known else ""


@lru_cache(maxsize=4)
def _named(pid: int) -> str:
    host, boot = socket.gethostname().replace("/", "_"), _read("/proc/sys/kernel/random/boot_id")
    # /proc/self, because /proc/PID may be another process if /proc belongs to another namespace.
    me = _Worker(
        host, boot, _namespace("pid"), _namespace("time"), str(pid), _started("self"), _program("self"), _machine(),
        f"{_chosen_lease().total_seconds():g}",
    )  # fmt: skip
    return "/".join(me)


def _chosen_lease() -> timedelta:
    text = os.environ.get("SAYSO_LEASE")
    span = _DEFAULT_LEASE if not text else duration.option("SAYSO_LEASE", text)
    if not _SHORTEST <= span <= _LONGEST:
        raise errors.ConfigError(f"SAYSO_LEASE={text} must be from 1 s to 1 d; nothing ran")
    return span


def current() -> str:
    """Return the name of this process and of the program in it."""
    return _named(os.getpid())


def named(pid: int) -> str:
    """Return the name of another process of this machine that runs a call for this one; it renews no lease."""
    mine = _Worker(*current().split("/"))
    return "/".join(mine._replace(pid=str(pid), started=_started(pid), program=_program(pid), lease=""))


@lru_cache(maxsize=256)
def lease_of(worker: str | None) -> timedelta | None:
    """Return how long a call of this worker, or a run of this holder, lasts without a renewal; None means no limit."""
    parts = "" if worker is None else worker.partition("#")[0].split("/")
    seconds = parts[-1] if len(parts) == len(_Worker._fields) else ""
    try:
        span = timedelta(seconds=float(seconds))
    except (OverflowError, ValueError):  # it has none, or is not a worker's name
        return None
    return min(max(span, _SHORTEST), _LONGEST)


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if the system does not tell."""
    fields = _fields(pid)
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None


def program_of(pid: int) -> str:
    """Return the name of a process; empty if the system does not tell."""
    return _read(f"/proc/{pid}/comm")


def _exists(pid: int) -> bool:
    if sys.platform == "win32":
        # os.kill would end the process on Windows; without a safe check, assume that it is alive.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_own_proc() -> bool:
    """Return whether /proc uses the process ids of this process's namespace, in which it may not have been mounted."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115  the link itself, as text
    except OSError:
        return False


def is_gone(worker: str) -> bool:
    """Return whether a worker has certainly ended. Also False if that cannot be determined from here."""
    parts = worker.split("/")
    if worker == current() or len(parts) != len(_Worker._fields):
        return False
    mine, theirs = _Worker(*current().split("/")), _Worker(*parts)
    if (theirs.host, theirs.pid_namespace) != (mine.host, mine.pid_namespace):
        return False
    if theirs.boot != mine.boot:
        is_here = theirs.machine == mine.machine and mine.pid_namespace == _OUTERMOST
        return bool(theirs.boot and mine.machine) and is_here
    pid = int(theirs.pid) if theirs.pid.isdigit() else 0
    if pid <= 0:
        return False
    return not _exists(pid) or (_is_own_proc() and (_is_dead(pid) or _is_another(pid, theirs, mine)))


def _is_another(pid: int, worker: _Worker, mine: _Worker) -> bool:
    """Return whether the worker's process id now belongs to another process, or to another program in the same one."""
    # A start time depends on the clock of the reader's time namespace.
    started = _started(pid) if worker.time_namespace == mine.time_namespace else ""
    program = _program(pid)
    return bool(started and worker.started and started != worker.started) or bool(
        program and worker.program and program != worker.program
    )


class Lease:
    """The right to continue one run.

    Attributes:
        holder: The text in the run's record.
    """

    def __init__(self) -> None:
        self._token = new_token()
        self.holder = f"{current()}#{self._token}"
        _live[self._token] = self

    def release(self) -> None:
        """Release it, so that others can take the run at once."""
        _live.pop(self._token, None)


_live: WeakValueDictionary[str, Lease] = WeakValueDictionary()


def is_free(holder: str | None) -> bool:
    """Return whether another process may take a run with this holder. Also False if that cannot be determined here."""
    if holder is None:
        return True
    process, _, token = holder.rpartition("#")
    return token not in _live if process == current() else is_gone(process)


# -- renewing --------------------------------------------------------------------------------------------------


class _Renewing(Protocol):
    """The interface of a store that is used here."""

    def renew(self, starts: Sequence[tuple[str, str]]) -> Sequence[str]: ...


@dataclass(slots=True)
class _Held:
    """A call or run that this process holds, and when its lease is renewed, by the monotonic clock."""

    id: str
    due: float


class _Keeper:
    """What this process holds in one store, by the secret that proves it: a start's token or a run's holder."""

    def __init__(self, store: _Renewing) -> None:
        self._store = ref(store)  # weak, so that running calls do not keep an unused store alive
        self._half = (lease_of(current()) or _DEFAULT_LEASE).total_seconds() / 2
        self.held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()  # never set; used to wait
        self._is_failing = False

    def add(self, item_id: str, secret: str) -> None:
        with self._lock:
            self.held[secret] = _Held(item_id, monotonic() + self._half)
            if self._thread is None:
                self._thread = started("sayso-leases", self._run)

    def _run(self) -> None:
        pause = self._half
        while True:
            # Anything added meanwhile is due only after this pause.
            self._pause.wait(pause)
            with self._lock:  # so that `add` either finds this thread or starts another
                if not self.held or self._store() is None:
                    self._thread = None
                    return
            now = monotonic()
            due = {secret: held for secret, held in list(self.held.items()) if held.due <= now}
            if due:
                self._renew(due, now)
            soonest = min((held.due for held in list(self.held.values())), default=now + self._half)
            pause = min(self._half, max(0.05, soonest - monotonic()))

    def _renew(self, due: dict[str, _Held], now: float) -> None:
        store = self._store()
        if store is None:
            return
        try:
            lost = set(store.renew([(held.id, secret) for secret, held in due.items()]))
        except Exception as error:  # noqa: BLE001  top of a thread: it retries as long as the lease lasts
            if not self._is_failing:
                _log.warning("the leases of %d calls could not be renewed, trying again: %s", len(due), error)
            self._is_failing, lost, after = True, set[str](), self._half / 8
        else:
            self._is_failing, after = False, self._half
        for secret, held in due.items():
            if held.id in lost:
                self.held.pop(secret, None)
                _log.warning(
                    "the lease of %s was lost: the call is no longer recorded as running here. It keeps running and"
                    " is not started again; its outcome is recorded unless a person resolves it first", held.id,
                )  # fmt: skip
            else:
                held.due = now + after  # in place, because it may have been released meanwhile


_keepers: WeakKeyDictionary[_Renewing, _Keeper] = WeakKeyDictionary()

if hasattr(os, "register_at_fork"):
    # The parent renews what it runs itself, and its threads do not exist in a forked child.
    os.register_at_fork(after_in_child=_keepers.clear)


def hold(store: _Renewing, item_id: str, secret: str) -> None:
    """Renew the lease of a call, by its start's token, or of a run, by its holder, until it is released."""
    keeper = _keepers.get(store)
    if keeper is None:
        keeper = _keepers.setdefault(store, _Keeper(store))
    keeper.add(item_id, secret)


def release(store: _Renewing, secret: str) -> None:
    """Stop renewing it."""
    keeper = _keepers.get(store)
    if keeper is not None:
        keeper.held.pop(secret, None)


def forget() -> None:
    """Stop renewing everything: for tests, which leave calls behind."""
    for keeper in list(_keepers.values()):
        keeper.held.clear()
