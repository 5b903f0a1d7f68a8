"""holdpoint: the guarded call is queued, and approving it runs it.

One at a time, approving also executes, which is its default and its fastest way.
For many, reviewers approve without executing and a worker drains the queue, its documented way to split the two.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..contender import MEMO, Contender, make_effect

__all__ = ["Holdpoint"]


class Holdpoint(Contender):
    """Its SQLite store is synchronous=NORMAL and has no switch; FULL is set on its private connection."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        holdpoint: Any = importlib.import_module("holdpoint")
        self.store = holdpoint.SQLiteStore(str(folder / "holdpoint.db"))
        if variant == "FULL":
            self.store._conn().execute("PRAGMA synchronous=FULL")
        self.hold = holdpoint.HoldPoint(store=self.store)
        self.pay = self.hold.guard(kind="pay", ttl="24h")(make_effect(self.effects))

    def ask(self, amount: int) -> str:
        return self.pay(amount, "alice", MEMO).id

    def decide(self, ticket: str) -> None:
        self.hold.approve(ticket, actor="ada", execute=False)

    def run(self, amount: int, ticket: str) -> None:
        self.hold.drain(limit=1)

    def run_all(self, amounts: Sequence[int], tickets: Sequence[str]) -> None:
        self.hold.drain()

    def round_trip(self, amount: int) -> None:
        self.hold.approve(self.ask(amount), actor="ada")

    def close(self) -> None:
        self.store.close()
