"""A load that goes on: two servers over one Postgres, two programs, a reviewer; memory and connections each minute."""

from __future__ import annotations

import time
from pathlib import Path

from tests.faults.trials import fleet, postgres

__all__ = ["soak"]


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def soak(minutes: float) -> int:
    """Print a row a minute, and return 0 if every promise was kept."""
    names = ("server-0", "server-1", "a", "b")
    print("| minute | calls done | " + " | ".join(f"{name} MB, files" for name in names) + " | Postgres connections |")
    print("|---" * (3 + len(names)) + "|", flush=True)
    with fleet("server", postgres=postgres(), servers=2) as here:
        for name in ("a", "b"):
            here.load(name, "--threads", "4", "--takes", "0.05")
        assert here.network is not None
        began, minute = time.monotonic(), 0
        while minute <= minutes:
            here.at_work()
            here.network.targets.reverse()
            pids = [here.processes[name].pid for name in names]
            cells = [f"{_resident(pid):.0f}, {_files(pid)}" for pid in pids]
            connections = postgres().execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'tester'")[0][0]
            print(f"| {minute} | {len(here.lines('done'))} | {' | '.join(cells)} | {connections - 1} |", flush=True)
            minute += 1
            time.sleep(max(0.0, began + 60 * minute - time.monotonic()) if minute <= minutes else 0)
        counts = here.counted(0)
    print(f"\n{counts.calls} calls, {counts.doubled} more than once, {counts.lost + counts.silent} lost,"
          f" {counts.unknown} unknown, {counts.told} of them told")  # fmt: skip
    return 0 if counts.is_right else 1
