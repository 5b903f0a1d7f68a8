"""Which process started a call, and whether it still lives.

A worker is named by host, boot, process namespace, process id, the process's own start time and the machine, so that
a process id that was given out again is not taken for the one that died. Only a process of the same host, boot and
namespace can be looked up. One of an earlier boot has surely ended only where both are the same machine, outside of
any container: a container elsewhere may have the same host name. Of any other nothing is concluded.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from functools import lru_cache
from pathlib import Path

__all__ = ["current", "is_gone"]

_OUTERMOST = "4026531836"  # the process namespace of every Linux machine itself, outside of containers


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _fields(pid: int) -> list[str]:
    # /proc/PID/stat from its third field on; the command name before may hold spaces and brackets.
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _started(pid: int) -> str:
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else ""


def _is_dead(pid: int) -> bool:
    # Killed, and not yet reaped by its parent: its number still exists, and it will never say how its call ended.
    return _fields(pid)[:1] in (["Z"], ["X"])


def _machine() -> str:
    # Not to be shown as it is, says machine-id(5); a digest tells two machines apart as well.
    known = _read("/etc/machine-id")
    return hashlib.sha256(b"sayso/worker:" + known.encode()).hexdigest()[:12] if known else ""


@lru_cache(maxsize=4)
def _named(pid: int) -> str:
    host, boot = socket.gethostname().replace("/", "_"), _read("/proc/sys/kernel/random/boot_id")
    return "/".join([host, boot, _namespace(), str(pid), _started(pid), _machine()])


def current() -> str:
    """Return the name of this process."""
    return _named(os.getpid())


def _exists(pid: int) -> bool:
    if sys.platform == "win32":
        # os.kill would end the process there; without a safe look-up, say that it lives.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_gone(worker: str) -> bool:
    """Say whether a worker has surely ended. False also when that cannot be known from here."""
    mine, theirs = current().split("/"), worker.split("/")
    if worker == current() or len(theirs) != len(mine) or theirs[0] != mine[0] or theirs[2] != mine[2]:
        return False
    if theirs[1] != mine[1]:
        return bool(theirs[1] and mine[5]) and theirs[5] == mine[5] and mine[2] == _OUTERMOST
    pid = int(theirs[3]) if theirs[3].isdigit() else 0
    if pid <= 0:
        return False
    started = _started(pid)
    is_another = bool(started and theirs[4] and started != theirs[4])
    return not _exists(pid) or is_another or _is_dead(pid)
