"""What the figures were measured on: processor, kernel, versions, file system, and how fast that disk syncs."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from .statistic import median, percentile

__all__ = ["describe", "load_after", "versions"]

LIBRARIES = ("sayso", "udspy", "holdpoint", "call4agents", "chowki", "ctrlrun", "timbal", "pydantic", "click")
BUSY = 1.5  # one core is what the run itself keeps busy


def describe(folder: Path) -> list[str]:
    """Return the lines that name the machine; `folder` is where every store of the run lives."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    half, most = _sync_cost(folder)
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = f"{platform.python_implementation()} {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return [
        f"date: {when}; sayso {_commit()}",
        f"machine: {_processor()}, {os.cpu_count()} cores, {system}; load before the run {load}",
        f"{python}; file system {_file_system(folder)}, syncs 4 KiB in {half * 1e3:.2f} ms (p99 {most * 1e3:.2f} ms)",
        "versions: " + ", ".join(f"{name} {found}" for name, found in versions().items()),
    ]


def load_after() -> list[str]:
    """Return a line that says so if other programs worked on this machine during the run; else nothing."""
    load = os.getloadavg()
    if load[1] < BUSY:
        return []
    return [f"the machine was busy with other work (load {load[1]:.1f} over the last 5 minutes): read the ratios only"]


def _commit() -> str:
    """Return the commit of the tree that is measured, where git knows it."""
    command = ["git", "-C", str(Path(__file__).resolve().parent), "describe", "--always", "--dirty"]
    try:
        return f"at {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}"
    except (OSError, subprocess.CalledProcessError):
        return "from a copy without its history"


def versions() -> dict[str, str]:
    """Return the installed version of every library named in the table, or `absent`."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from source" if find_spec(name) else "absent"
    return found


def _processor() -> str:
    """Return the processor's own name where the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _file_system(folder: Path) -> str:
    """Return the type of the longest mount point above `folder`."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "unknown"
    above = [(len(place), kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return max(above)[1] if above else "unknown"


def _sync_cost(folder: Path) -> tuple[float, float]:
    """Append and sync a page 200 times; return the median and the 99th percentile in seconds."""
    sync = getattr(os, "fdatasync", os.fsync)
    page, taken = b"\0" * 4096, list[float]()
    path = folder / "sync.probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(page)
            before = time.perf_counter()
            sync(file.fileno())
            taken.append(time.perf_counter() - before)
    path.unlink()
    return median(taken), percentile(taken, 99)
