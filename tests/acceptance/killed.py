"""The program that gets killed: a gated call with one effect on the disk, and failpoints around everything it writes.

The failpoints are put in from here, around the store's verbs, its connection and the gated function; the product has
none. At the named one the process kills itself with SIGKILL, the first time that it gets there.

usage: killed.py STORE EFFECTS FAILPOINT
Exit status: 0 the call ran, 3 it waits for a person, 4 its outcome is unknown.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import sayso
from sayso import errors
from sayso.stores.sqlite import SqliteStore

STORE, EFFECTS, FAILPOINT = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
verb = "reading"


def reach(point: str) -> None:
    if point != FAILPOINT:
        return
    try:
        os.close(os.open(EFFECTS.with_suffix(".killed"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Connection:
    """SQLite's connection with failpoints around each statement."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def execute(self, sql: str, *values: Any) -> Any:
        step = next((name for start, name in STEPS.items() if sql.startswith(start)), None)
        if step == "begin":
            reach(f"{verb}: before begin")
        result = self._real.execute(sql, *values)
        if step is not None:
            reach(f"{verb}: after {step}")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


STEPS = {
    "BEGIN": "begin",
    "INSERT INTO request": "request",
    "UPDATE request": "request",
    "INSERT INTO journal": "journal",
    "COMMIT": "commit",
}


def named(name: str) -> Any:
    real = getattr(SqliteStore, name)

    def wrapped(self: SqliteStore, *args: Any, **kwargs: Any) -> Any:
        global verb  # noqa: PLW0603  which verb of the store is on its way
        verb = name
        try:
            return real(self, *args, **kwargs)
        finally:
            verb = "reading"

    return wrapped


for each in ("open", "start", "finish"):
    setattr(SqliteStore, each, named(each))
real_writer = SqliteStore._writer
SqliteStore._writer = lambda self: Connection(real_writer(self))  # type: ignore[assignment,method-assign]


@sayso.gate(wait="raise", store=f"sqlite:///{STORE}")
def pay(amount: int, to: str) -> str:
    reach("call: before the effect")
    ledger = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{amount} {to}\n".encode())
    os.fsync(ledger)
    os.close(ledger)
    reach("call: after the effect")
    return "paid"


with sayso.run("order-4721"):
    try:
        pay(10, to="alice")
    except sayso.ConfirmationRequired as held:
        print(held.confirmation_id)
        sys.exit(3)
    except errors.OutcomeUnknownError as unknown:
        print(unknown.request_id)
        sys.exit(4)
