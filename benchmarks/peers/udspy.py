"""udspy: confirmations kept in a context variable and no record anywhere; raise, respond, call again."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ..contender import MEMO, Contender, make_effect

__all__ = ["Udspy"]


class Udspy(Contender):
    """`confirm_first` raises, `respond_to_confirmation` decides, the same call again runs."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self.udspy: Any = importlib.import_module("udspy")
        self.pay = self.udspy.confirm_first(make_effect(self.effects))

    def ask(self, amount: int) -> str:
        try:
            self.pay(amount, "alice", MEMO)
        except self.udspy.ConfirmationRequired as held:
            return held.confirmation_id
        raise RuntimeError("the call was not held")

    def decide(self, ticket: str) -> None:
        self.udspy.respond_to_confirmation(ticket, approved=True)

    def run(self, amount: int, ticket: str) -> None:
        self.pay(amount, "alice", MEMO)
