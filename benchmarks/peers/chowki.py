"""chowki: a workflow pauses at a gate and hands out a token, and resuming with the token decides and runs in one.

The gate is a step that may be entered again and the effect is a step nested in it, as its quick start asks for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ..contender import MEMO, Contender, make_effect

__all__ = ["Chowki"]


class Chowki(Contender):
    """Its SQLite store is synchronous=NORMAL and has no switch; FULL is set on its private connection."""

    decides_when_it_runs = True

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.chowki: Any = importlib.import_module("chowki")
        engine = self.chowki.configure(db_path=folder / "chowki.db", resume_secret=b"benchmark" * 4)
        if variant == "FULL":
            engine.storage._get_conn().execute("PRAGMA synchronous=FULL")
        self.order = self.build()

    def build(self) -> Any:
        """Return the workflow: a gate around the effect."""
        chowki = self.chowki
        effect = chowki.step(make_effect(self.effects))

        @chowki.step(idempotent=False)
        def gate(amount: int, to: str, memo: str) -> str:
            chowki.pause(reason="A payment needs a person", payload={"amount": amount, "to": to, "memo": memo})
            return effect(amount, to, memo)

        @chowki.workflow
        def order(amount: int, to: str, memo: str) -> str:
            return gate(amount, to, memo)

        return order

    def ask(self, amount: int) -> str:
        try:
            self.order(amount, "alice", MEMO, run_id=f"order-{amount}")
        except self.chowki.WorkflowPaused as paused:
            return paused.token
        raise RuntimeError("the workflow did not pause")

    def decide(self, ticket: str) -> None:
        """Nothing to do: `run` decides."""

    def run(self, amount: int, ticket: str) -> None:
        approve = self.chowki.Decision.APPROVE
        self.chowki.resume(run_id=f"order-{amount}", token=ticket, decision=approve, actor={"name": "ada"})
