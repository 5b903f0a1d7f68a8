"""How long a program that stands at its gate takes to go on after another process decided.

Measured from before the decision to the first line of the held call: decision, wake-up and start, all of them durable.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from .contest import Plan
from .core import all_cores
from .statistic import percentile
from .table import Row, seconds
from .worker import AbsentError, Worker, WorkerFailedError

__all__ = ["wake"]

NAME = "decided in another process, to running"
STORE = "sqlite FULL"


def wake(plan: Plan) -> list[Row]:
    """One waiter that was asked lately, then several that have waited long enough for the watcher to slow down."""
    try:
        rows = [_row("sayso, asked less than a second ago", _lately(plan, plan.pick(50, 10)))]
        if not plan.is_quick:
            rows.append(_row("sayso, waiting for 8 seconds", _long(plan, waiters=10, rounds=2)))
    except AbsentError as absent:
        return [Row(NAME, "sayso", STORE, note=f"absent ({absent})")]
    except WorkerFailedError as failure:
        return [Row(NAME, "sayso", STORE, note=f"failed: {failure}")]
    return rows


def _lately(plan: Plan, count: int) -> list[float]:
    """Let one program ask `count` times, each decided 50 to 500 ms later by another."""
    taken: list[float] = []
    with all_cores(), ExitStack() as stack:
        waiter = _open(stack, plan, "ours:Waiting")
        decider = _open(stack, plan, "ours:Deciding")
        for amount in range(count + 1):
            waiter.tell("wait", amount=amount)
            decided = decider.call("decide_one", store=str(waiter.folder), at_least=0.05, at_most=0.5)
            began = waiter.hear()
            if amount > 0:
                taken.append((began - decided) / 1e9)
    return taken


def _long(plan: Plan, *, waiters: int, rounds: int) -> list[float]:
    """Let several programs, each with a store of its own, wait for 8 seconds before they are decided one by one."""
    taken: list[float] = []
    with all_cores(), ExitStack() as stack:
        waiting = [_open(stack, plan, "ours:Waiting") for _ in range(waiters)]
        decider = _open(stack, plan, "ours:Deciding")
        for amount in range(rounds):
            for waiter in waiting:
                waiter.tell("wait", amount=amount)
            time.sleep(8)
            for waiter in waiting:
                decided = decider.call("decide_one", store=str(waiter.folder), at_least=0, at_most=0.1)
                taken.append((waiter.hear() - decided) / 1e9)
    return taken


def _open(stack: ExitStack, plan: Plan, path: str) -> Worker:
    worker = Worker(path, plan.new_folder("wake"), "FULL")
    stack.callback(worker.close)
    return worker


def _row(who: str, taken: Sequence[float]) -> Row:
    most = percentile(taken, 99)
    return Row.of(
        NAME,
        who,
        STORE,
        taken,
        note=f"p99 {seconds(most)}, longest {seconds(max(taken))}; includes the decision and the start",
        p99=most,
    )
