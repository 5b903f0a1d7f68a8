"""Many runs that wait at once: resumed by worker processes, and what they weigh in the process that began them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from .contest import Contest, Entry, Plan
from .core import all_cores
from .statistic import median, turns
from .table import Row, seconds
from .worker import WorkerFailedError

__all__ = ["fleet", "paused", "workers"]

CROWD = Entry("sayso", "ours_runs:Crowd", "FULL", "sqlite FULL")
# What the installed script does, so that a source tree can be measured too.
COMMAND = "import sys; from sayso.cli import main; sys.argv = ['sayso', 'worker', 'clerk:agent', '--once']; main()"


def workers(plan: Plan) -> list[Row]:
    """Resume many decided runs by one and by two worker processes, each time in a fresh store.

    The calls of the first measure use the processor alone, so two processes win only what two cores give; those of the
    second one wait for something else.
    """
    return [*_measured(plan, plan.pick(1000, 200), 0.0), *_measured(plan, plan.pick(200, 100), 0.5)]


def _measured(plan: Plan, count: int, waits: float) -> list[Row]:
    repeats, each = plan.pick(3, 1), f", each call waits {waits} s" if waits else ""
    contest = Contest(f"{count:,} paused agents, decided, resumed by workers{each}", plan)
    taken: dict[int, list[float]] = {}
    with all_cores():
        try:
            for _, number in turns((1, 2), repeats, least=1, budget=plan.pick(60, 12)):
                taken.setdefault(number, []).append(_resumed(contest, CROWD, count, number, waits))
        except WorkerFailedError as failure:
            return [Row(contest.measure, "sayso", CROWD.store, note=f"failed: {failure}")]
    if contest.lost:
        return [contest.lost[CROWD]]
    return [_workers_row(contest.measure, CROWD.store, count, number, taken) for number in taken]


def fleet(plan: Plan) -> list[Row]:
    """Resume very many decided runs on Postgres by one, two and four worker processes; each effect is counted."""
    count = plan.pick(10_000, 200)
    contest, taken = Contest(f"{count:,} approved calls on Postgres, run by workers", plan), dict[int, list[float]]()
    try:
        from tests.support.postgres import Server, installed
    except ModuleNotFoundError as absent:
        return [Row(contest.measure, "sayso", "Postgres", note=f"not measured: {absent}")]
    if not installed():
        return [Row(contest.measure, "sayso", "Postgres", note="not measured: there is no Postgres")]
    server = Server(installed()[0], is_durable=True)
    store = f"Postgres {server.version}"
    try:
        for number in (1, 2, 4):
            server.execute(f"CREATE DATABASE fleet_{number}")
            entry = Entry("sayso", "ours_runs:Crowd", server.url(f"fleet_{number}"), store)
            with all_cores():
                taken[number] = [_resumed(contest, entry, count, number, 0.0)]
    except WorkerFailedError as failure:
        return [Row(contest.measure, "sayso", store, note=f"failed: {failure}")]
    finally:
        server.end()
    return [_workers_row(contest.measure, store, count, number, taken) for number in taken]


def _resumed(contest: Contest, entry: Entry, count: int, number: int, waits: float) -> float:
    """Return the seconds from the start of so many worker processes to the end of the last one."""
    with contest.open([entry]) as ready:
        if not ready:
            return 0.0
        folder = contest.workers[entry].folder
        contest.call(entry, "fill", count=count)
        decided = contest.call(entry, "decide_all")
    if contest.lost:
        raise WorkerFailedError(contest.lost[entry].note)
    store = entry.variant if "://" in entry.variant else f"sqlite:///{folder / 'runs.db'}"
    environment = {**os.environ, "SAYSO_STORE": store, "CLERK_WAITS": str(waits)}
    before = time.perf_counter()
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", COMMAND]
    children = [subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes) for _ in range(number)]
    said = [child.communicate()[1].strip() for child in children]
    taken = time.perf_counter() - before
    effects = (folder / "effects").read_text(encoding="ascii").split() if (folder / "effects").exists() else []
    if decided != count or len(effects) != count or len(set(effects)) != count:
        raise WorkerFailedError(
            f"WRONG: {len(effects)} payments of {count}, {len(set(effects))} different; {' | '.join(said)}"
        )
    return taken


def _workers_row(name: str, store: str, count: int, number: int, taken: dict[int, list[float]]) -> Row:
    values = taken[number]
    start = "the start of the processes is in it; each handler ran once"
    faster = f"{median(taken[1]) / median(values):.2f}x as fast as one; " if number > 1 else ""
    return Row(
        name,
        f"sayso, {number} worker process{'es' if number > 1 else ''}",
        store,
        median=seconds(median(values)),
        p95=seconds(max(values)),
        rate=f"{count / median(values):,.0f}",
        samples=len(values),
        note=f"{faster}{start}",
        figures={"median": median(values), "per_second": count / median(values)},
    )


def paused(plan: Plan) -> list[Row]:
    """Let many runs wait in one process, and weigh it."""
    count, warm = plan.pick(10_000, 1_000), plan.pick(2_000, 200)
    contest = Contest(f"{count:,} paused agents in one process", plan)
    rows: list[Row] = []
    for words, options in {
        "resident memory": {"count": count, "traced": False},
        "Python's own objects": {"count": count // 10, "traced": True},
    }.items():
        with contest.open([CROWD]) as ready:
            grown = contest.call(CROWD, "weigh", warm=warm, **options) if ready else None
            if grown is not None:
                stored = _stored(contest.workers[CROWD].folder) / (options["count"] + warm)
                rows.append(_paused_row(contest.measure, words, options["count"], grown, stored))
    return [*contest.lost.values(), *rows]


def _stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("runs.db*"))


def _paused_row(name: str, words: str, count: int, grown: dict[str, float], stored: float) -> Row:
    each = grown["bytes"] / count
    return Row(
        name,
        f"sayso, {words}, for each run",
        CROWD.store,
        median=f"{each:,.0f} bytes",
        samples=count,
        note=f"{grown['tasks']:.0f} tasks and {grown['threads']:.0f} threads more; {stored / 1e3:.1f} kB on disk",
        figures={"bytes": each, "tasks": grown["tasks"], "threads": grown["threads"], "stored": stored},
    )
