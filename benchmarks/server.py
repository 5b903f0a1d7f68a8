"""The server mode on one machine: a round through the client store, one look, and how fast a decision arrives.

Server and program are two processes that speak HTTP over the loopback; what a network adds comes on top.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from .contest import Plan
from .core import all_cores
from .table import Row
from .worker import AbsentError, Worker, WorkerFailedError

__all__ = ["restart", "server"]

STORE = "http to sqlite FULL"
LOOK, ROUND, WAKE = (
    "one request read from a server",
    "ask, decide and run on a server",
    "decided on a server, to running",
)


def server(plan: Plan) -> list[Row]:
    """Return a row for a look, a round and a wake-up."""
    try:
        with all_cores(), ExitStack() as stack:
            return _measured(plan, *(_open(stack, plan, name) for name in ("Serving", "Asking")))
    except AbsentError as absent:
        return [Row(ROUND, "sayso", STORE, note=f"absent ({absent})")]
    except WorkerFailedError as failure:
        return [Row(ROUND, "sayso", STORE, note=f"failed: {failure}")]


def _measured(plan: Plan, serving: Worker, asking: Worker) -> list[Row]:
    address, token = serving.call("door")
    asking.call("meet", address=address, token=token)
    looks: list[float] = []
    rounds: list[float] = []
    for amount in range(plan.pick(300, 50) + 10):
        ticket, asked = asking.call("ask", amount=amount)
        looks.append(asking.call("get", ticket=ticket))
        decided = serving.call("decide", ticket=ticket)
        rounds.append(asked + decided + asking.call("run", amount=amount))
    wakes: list[float] = []
    for amount in range(plan.pick(50, 10) + 1):
        asking.tell("wait", amount=amount)
        decided_at = serving.call("decide_next", pause=0.1 + 0.01 * (amount % 10))
        wakes.append((asking.hear() - decided_at) / 1e9)
        time.sleep(0.01)
    note = "the program's part is 4 requests over one kept connection, the decision is made on the server"
    return [
        Row.of(LOOK, "sayso", STORE, looks[10:]),
        Row.of(ROUND, "sayso", STORE, rounds[10:], note=note),
        Row.of(WAKE, "sayso", STORE, wakes[1:], note=f"longest {max(wakes[1:]) * 1e3:.0f} ms; includes the start"),
    ]


def restart(plan: Plan) -> list[Row]:
    """Return a row for how soon many who wait go on after a restart, at which they had been decided."""
    count, away = plan.pick(500, 100), plan.pick(30.0, 3.0)
    measure = f"{count} who wait, the server away for {away:.0f} s, to running"
    try:
        with all_cores(), ExitStack() as stack:
            serving, asking = (_open(stack, plan, name) for name in ("Serving", "Asking"))
            address, token = serving.call("door")
            asking.call("meet", address=address, token=token)
            asking.tell("crowd", count=count)
            back = serving.call("restart", count=count, away=away)
            went_on = [(at - back) / 1e9 for at in asking.hear()]
    except AbsentError as absent:
        return [Row(measure, "sayso", STORE, note=f"absent ({absent})")]
    except WorkerFailedError as failure:
        return [Row(measure, "sayso", STORE, note=f"failed: {failure}")]
    return [Row.of(measure, "sayso", STORE, went_on, note=f"the last after {max(went_on):.1f} s; none failed")]


def _open(stack: ExitStack, plan: Plan, name: str) -> Worker:
    worker = Worker(f"ours_server:{name}", plan.new_folder("server"), "FULL")
    stack.callback(worker.close)
    return worker
