"""call4agents: a ticket is recorded for the exact call, the ticket is decided, the call then spends the approval.

Every call has a run of its own, because the cost of an approval grows with the number of them in one run.
A pause also reads the ledger of all runs, which has no index on the run, so the figure grows with the measuring.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ..contender import MEMO, Contender, make_effect

__all__ = ["Call4agents"]


class Call4agents(Contender):
    """Its ledger is synchronous=FULL and has no switch."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.c4a: Any = importlib.import_module("call4agents")
        self.c4a.init(str(folder / "call4agents.sqlite"))
        self.pay = self.c4a.effect(make_effect(self.effects), approval=True, name="pay")

    def ask(self, amount: int) -> str:
        with self.c4a.run(f"order-{amount}"):
            return self.c4a.pause(self.pay, amount=amount, to="alice", memo=MEMO)

    def decide(self, ticket: str) -> None:
        self.c4a.decide(ticket, "approve", by="ada")

    def run(self, amount: int, ticket: str) -> None:
        with self.c4a.run(f"order-{amount}"):
            self.pay(amount, "alice", MEMO)
