"""The processes that share a store: their names, which of them is gone, their leases, and forks.

A worker is the process that holds a start or a run. Its name contains its machine, namespaces, process id, start time,
and the length of its leases (`lease_of`); a `Lease` is its right to one run. One thread per store renews after each
half of that time, so a short call needs no renewal. Whoever settles a call that was not renewed in time records it as
`unknown` (`RequestStore.settle`); nothing on its machine starts it again while it may still be running (`running_at`).
A run that was not renewed in time can be taken from another machine (`may_take`). The worker that resumes runs is in
`sayso.runs.worker`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from importlib import _bootstrap  # pyright: ignore[reportAttributeAccessIssue]  nothing else tells which thread imports
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

from sayso import errors
from sayso.effects import daemon_thread, in_forked_child
from sayso.model import duration
from sayso.model.ids import StartToken, new_token

_log = logging.getLogger("sayso")


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


_DEFAULT_LEASE = timedelta(seconds=30)
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(days=1)
SOONEST_RENEWAL = _SHORTEST / 4
"""No lease is renewed sooner than this after its start, because the first renewal comes after half of its span."""

_PROCESS_ID = re.compile("[1-9][0-9]{0,8}")
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


def _boot_id() -> str:
    """Return a text that no other machine has, and that changes when this one starts again; "" if it is not known."""
    if sys.platform != "darwin":
        return _read("/proc/sys/kernel/random/boot_id")
    # Not uuid.getnode(): many Macs have an internal network interface of the same address.
    try:
        from ctypes import CDLL, byref, c_size_t, create_string_buffer

        text, size = create_string_buffer(64), c_size_t(64)
        failed = CDLL(None).sysctlbyname(b"kern.bootsessionuuid", text, byref(size), None, c_size_t(0))
        return "" if failed else text.value.decode("ascii").replace("/", "_")
    except (AttributeError, ImportError, OSError, UnicodeDecodeError):
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


@lru_cache(maxsize=4)
def _named(pid: int) -> str:
    host, boot = socket.gethostname().replace("/", "_"), _boot_id()
    # machine-id(5) says not to expose the id itself; a digest distinguishes machines as well.
    machine = _read("/etc/machine-id")
    machine = hashlib.sha256(b"sayso/worker:" + machine.encode()).hexdigest()[:12] if machine else ""
    text = os.environ.get("SAYSO_LEASE")
    lease = _DEFAULT_LEASE if not text else duration.option("SAYSO_LEASE", text)
    if not _SHORTEST <= lease <= _LONGEST:
        raise errors.ConfigError(f"SAYSO_LEASE={text} must be from 1 s to 1 d; nothing ran")
    # /proc/self, because /proc/PID may be another process if /proc belongs to another namespace.
    me = _Worker(
        host, boot, _namespace("pid"), _namespace("time"), str(pid), _started("self"), _program("self"), machine,
        f"{lease.total_seconds():g}",
    )  # fmt: skip
    return "/".join(me)


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
    parts = None if worker is None else _parts(worker.partition("#")[0])
    try:
        span = timedelta(seconds=float(parts.lease if parts else ""))
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
    try:
        os.kill(pid, 0)
    except OSError as error:  # it does not exist, or belongs to another user
        return isinstance(error, PermissionError)
    return True


def _is_own_proc() -> bool:
    """Return whether /proc uses the process ids of this process's namespace, in which it may not have been mounted."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115  the link itself, as text
    except OSError:
        return False


def is_gone(worker: str) -> bool:
    """Return whether a worker has certainly ended. Also False if that cannot be determined from here."""
    if worker == current():
        return False
    theirs, mine = _parts(worker), _Worker(*current().split("/"))
    # Copies of a virtual machine that runs can have one boot id; they may at least have host names of their own.
    if theirs is None or theirs.host != mine.host:
        return False
    if theirs.boot != mine.boot:
        is_here = theirs.machine == mine.machine and theirs.pid_namespace == mine.pid_namespace == _OUTERMOST
        return bool(theirs.boot and mine.machine) and is_here
    return _lives(worker) is False


def _parts(worker: str) -> _Worker | None:
    parts = worker.split("/")
    return _Worker(*parts) if len(parts) == len(_Worker._fields) else None


def _lives(worker: str) -> bool | None:
    """Return whether the process of a worker exists; None if that cannot be seen from here.

    Process ids are compared within one boot and namespace. A host name may change, and be another machine's as well.
    """
    theirs, mine = _parts(worker), _Worker(*current().split("/"))
    # Other programs wrote this text; a number that is no process id makes os.kill raise, or means another process.
    if theirs is None or sys.platform == "win32" or not _PROCESS_ID.fullmatch(theirs.pid):
        return None
    has_namespace = mine.pid_namespace or sys.platform != "linux"
    if not (mine.boot and has_namespace) or (theirs.boot, theirs.pid_namespace) != (mine.boot, mine.pid_namespace):
        return None
    pid = int(theirs.pid)
    if not _exists(pid):
        return False
    # Killed but not yet reaped by its parent: the id still exists, and it will never report how its call ended.
    return not (_is_own_proc() and (_fields(pid)[:1] in (["Z"], ["X"]) or _is_another(pid, theirs, mine)))


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


def may_take(holder: str | None, renewed_at: datetime, now: datetime) -> bool:
    """Return whether another process may take a run, given its holder and when that last renewed its lease.

    A holder that can be seen from here keeps the run as long as it lives, however slow it is. One elsewhere loses it
    half a lease later than its calls: both are renewed after half of a lease, so a call that it was running is
    `unknown` by then, and whoever takes the run is told.
    """
    if is_free(holder):
        return True
    span = lease_of(holder)
    if holder is None or span is None or now < renewed_at + 1.5 * span:
        return False
    return not _lives(holder.rpartition("#")[0])


def running_at(request_id: str, worker: str | None) -> str | None:
    """Say where a call with an unknown outcome is running, or may be, as far as can be seen here; None if nowhere.

    Its lease may have been lost while its process was stopped or the clock was set, and its task may have been
    cancelled while its thread goes on. On another machine, or in another container of this one, nothing can be seen.
    `worker` is the one that started it and has not recorded any end.
    """
    for keeper in list(_keepers.values()):
        going = list(keeper.held.values())
        going += keeper.lost.values()  # after `held`, because `_renew` moves a call from there to here
        if any(held.id == request_id and not held.is_over for held in going):
            return "It is still running in this process"
    if worker is None or worker == current() or not _lives(worker):
        return None
    return f"It may still be running in process {worker.split('/')[4]} of this machine, which is alive"


# -- renewing --------------------------------------------------------------------------------------------------


_CALL_LOST = (
    "the call of %s is no longer recorded as running here: its lease was lost, or the task that waited for it was"
    " cancelled. It keeps running and is not started again on this machine; its outcome is recorded unless a person, or"
    " verify= on another machine, resolves it first"
)
_RUN_LOST = "the lease of the run %s was lost: another process continues it, and nothing more of it is saved here"


class _Renewing(Protocol):
    """The interface of a store that is used here."""

    def renew(self, starts: Sequence[tuple[str, str]], runs: Sequence[tuple[str, str]] = ()) -> Sequence[str]: ...


@dataclass(slots=True)
class _Held:
    """A call or run that this process holds, and when its lease is renewed, by the monotonic clock."""

    id: str
    due: float
    is_run: bool = False
    token: ref[StartToken] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nobody runs the call any more, e.g. because Ctrl-C hit the code that was to record its end."""
        return self.token is not None and self.token() is None


class _Keeper:
    """What this process holds in one store, by the secret that proves it: a start's token or a run's holder."""

    def __init__(self, store: _Renewing) -> None:
        self._store = ref(store)  # weak, so that running calls do not keep an unused store alive
        self._half = (lease_of(current()) or _DEFAULT_LEASE).total_seconds() / 2
        self.held: dict[str, _Held] = {}
        self.lost: dict[str, _Held] = {}  # calls that go on here without a lease
        self._lock, self._is_failing = threading.Lock(), False
        self._thread: threading.Thread | None = None
        self._pause = threading.Event()  # never set; used to wait

    def add(self, item_id: str, secret: str, *, is_run: bool) -> None:
        token = ref(secret) if isinstance(secret, StartToken) else None
        with self._lock:
            self.held[str(secret)] = _Held(item_id, monotonic() + self._half, is_run, token)
            if self._thread is None:
                self._thread = daemon_thread("sayso-leases", self._run)

    def _run(self) -> None:
        pause = self._half
        while True:
            # Anything added meanwhile is due only after this pause.
            self._pause.wait(pause)
            with self._lock:  # so that `add` either finds this thread or starts another
                for secret in [secret for secret, held in list(self.held.items()) if held.is_over]:
                    self.held.pop(secret, None)  # its lease ends, and the call is unknown then
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
        starts, runs = (
            [(held.id, secret) for secret, held in due.items() if held.is_run is is_run] for is_run in (False, True)
        )
        try:
            lost = set(store.renew(starts, runs))
        except Exception as error:  # noqa: BLE001  top of a thread: it retries as long as the lease lasts
            if not self._is_failing:
                _warn("%d leases could not be renewed, trying again: %s", len(due), error)
            self._is_failing, lost, after = True, set[str](), self._half / 8
        else:
            self._is_failing, after = False, self._half
        for secret, held in due.items():
            if held.id in lost:
                if not held.is_run:
                    self.lost[secret] = held
                if self.held.pop(secret, None) is None:  # it was released meanwhile
                    self.lost.pop(secret, None)
                _warn(_RUN_LOST if held.is_run else _CALL_LOST, held.id)
            else:
                held.due = now + after  # in place, because it may have been released meanwhile


def _warn(text: str, *values: object) -> None:
    with suppress(Exception):  # a failing handler must not end the thread that renews all leases
        _log.warning(text, *values)


_keepers: WeakKeyDictionary[_Renewing, _Keeper] = WeakKeyDictionary()
in_forked_child(_keepers.clear)  # the parent renews what it runs itself


def keep_renewing(store: _Renewing, item_id: str, secret: str, *, is_run: bool = False) -> None:
    """Renew the lease of a call, by its start's token, or of a run, by its holder, until it is released."""
    keeper = _keepers.get(store) or _keepers.setdefault(store, _Keeper(store))
    keeper.add(item_id, secret, is_run=is_run)


def stop_renewing(store: _Renewing, secret: str) -> None:
    """Stop renewing it."""
    keeper = _keepers.get(store)
    if keeper is not None:
        keeper.held.pop(secret, None)
        keeper.lost.pop(secret, None)


def stop_all() -> None:
    """Stop renewing everything: for tests, which leave calls behind."""
    for keeper in list(_keepers.values()):
        keeper.held.clear()
        keeper.lost.clear()
