"""ctrlrun: a protected call is refused with a request id, the store grants it, the same call presents the grant.

Its policy file asks for an approval of every payment and names the effect, as in its quick start.
The grant is one call of the store, which is less than its command does: that also adds an event.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ..contender import MEMO, Contender, make_effect

__all__ = ["Ctrlrun"]

POLICY = """\
schema: ctrlrun.policy/v2
actions:
  pay:
    effect: "payment:{amount}"
    rules:
      - decision: approve
"""


class Ctrlrun(Contender):
    """`variant` is `memory`, or a sync setting: NORMAL is its own, FULL is set on its private connection."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.ctrlrun: Any = importlib.import_module("ctrlrun")
        policy = folder / "ctrlrun.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        self.store: Any = self.open()
        control = self.ctrlrun.Control(self.ctrlrun.Policy.from_file(policy), self.store)
        self.pay = self.ctrlrun.protect("pay", control=control)(make_effect(self.effects))

    def open(self) -> Any:
        """Return the store, with the sync setting of the variant."""
        if self.variant == "memory":
            return self.ctrlrun.InMemoryStateStore()
        store = self.ctrlrun.SQLiteStateStore(self.folder / "ctrlrun.db")
        if self.variant == "FULL":
            store._connection().execute("PRAGMA synchronous=FULL")
        return store

    def ask(self, amount: int) -> str:
        try:
            with self.ctrlrun.context(agent="clerk"):
                self.pay(amount, "alice", MEMO)
        except self.ctrlrun.ApprovalRequired as held:
            return held.request_id
        raise RuntimeError("the call was not held")

    def decide(self, ticket: str) -> None:
        if self.store.grant_approval(ticket, "ada") is None:
            raise RuntimeError("the approval was not granted")

    def run(self, amount: int, ticket: str) -> None:
        with self.ctrlrun.context(agent="clerk"), self.ctrlrun.with_approval(ticket):
            self.pay(amount, "alice", MEMO)

    def close(self) -> None:
        self.store.close()
