"""The fixture of the promises: a store in a file, and a program that pays in another process."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sayso.stores.base import Store
from tests.support.acting import forked, running

PAY = """
import os, sys, threading, time
import sayso
from decimal import Decimal

STORE, EFFECTS, MODE = sys.argv[1:4]
sayso.configure(store=STORE)

@sayso.gate(wait="raise")
def pay(amount: Decimal, to: list[str], note: str = "") -> str:
    with open(EFFECTS, "a") as ledger:
        ledger.write(f"{amount!r} {to!r} {note!r}\\n")
    if MODE == "die":
        os.kill(os.getpid(), 9)
    return "paid"

def call(note="rent"):
    with sayso.run("order-4721"):
        try:
            return pay(Decimal("10.00"), ["alice", "bob"], note)
        except sayso.ConfirmationRequired as pause:
            return pause.confirmation_id
        except sayso.errors.SaysoError as error:
            return type(error).__name__

if MODE == "threads":
    open(f"{EFFECTS}.ready.{os.getpid()}", "w").close()
    while not os.path.exists(f"{EFFECTS}.go"):
        time.sleep(0.001)
    told = []
    threads = [threading.Thread(target=lambda: told.append(call())) for _ in range(5)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(" ".join(told))
else:
    print(call(), flush=True)
"""


@dataclass
class World:
    """A store in a file, a file of effects, and the words for what happens between them."""

    store: Store
    path: Path
    effects: Path

    def start(self, mode: str = "once") -> subprocess.Popen[str]:
        return forked(PAY, self.store.url, str(self.effects), mode)

    def pays(self) -> str:
        """Run the program to its end in a process of its own; return what its call gave or raised."""
        return running(self.start())

    def race(self, text: str, racers: Sequence[tuple[str, ...]]) -> list[str]:
        """Run a program in many processes, let all go at once, and return what each printed.

        Each gets the store's address, a path and its own arguments; it makes `path.ready.PID` and waits for `path.go`.
        """
        path = self.effects.with_name("race")
        processes = [forked(text, self.store.url, str(path), *arguments) for arguments in racers]
        deadline = time.monotonic() + 60
        while len(list(path.parent.glob("race.ready.*"))) < len(processes):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        path.with_suffix(".go").touch()
        return [running(process) for process in processes]

    def ran(self) -> list[str]:
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    def by_hand(self, statement: str, *values: Any) -> None:
        """Change the file as somebody with a database tool would, past everything that guards it."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute(statement, values)
