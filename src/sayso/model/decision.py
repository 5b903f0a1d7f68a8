"""What a person said about a request: approve (with or without changes), reject, feedback, answer, cancel.

A program says one thing itself, which is a cancel: that it takes back what it asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from sayso.model.reviewer import PROGRAM, Identity

__all__ = ["Decision", "Verb"]

Verb = Literal["approve", "reject", "feedback", "answer", "cancel"]


@dataclass(frozen=True)
class Decision:
    """One thing that one person said, once.

    Attributes:
        verb: What was said.
        by: Who said it.
        at: When, in UTC, by the store's clock.
        channel: Through which channel: `terminal`, `cli`, `python`, later `web`, `slack`, …
        comment: The reviewer's words; for `reject` the reason, for `feedback` the message to the program.
        fingerprint: Exactly which call or question was decided.
        edited: True for an approve that carries changed arguments.
        answer: For `answer`, the canonical form of the value, as JSON text; never in `repr`, for it may be a secret.
    """

    verb: Verb
    by: Identity
    at: datetime
    channel: str
    comment: str | None
    fingerprint: str
    edited: bool = False
    answer: str | None = field(default=None, repr=False)

    @property
    def is_withdrawal(self) -> bool:
        """Whether nobody decided: the program took back what it had asked."""
        return self.channel == PROGRAM and self.by.issuer == PROGRAM
