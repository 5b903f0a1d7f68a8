"""Who may review at all: `reviewers` and `required_role` of `[serve]`, for every way by which a decision comes in.

Pages and the API hold people to it, hooks and channels in which people decide as well. What a request asks for beside
it, by its own roles, is the store's to hold people to. Invariant: whoever is not admitted decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sayso import config
from sayso.channels.settings import Table
from sayso.model.reviewer import Reviewer

__all__ = ["Admission", "configured"]


@dataclass(frozen=True)
class Admission:
    """Who may review.

    Attributes:
        reviewers: As `name` or `issuer:name`, to the letter; None is everybody who is known.
        role: What whoever reviews must have; None is nothing.
    """

    reviewers: Collection[str] | None = None
    role: str | None = None

    def admits(self, reviewer: Reviewer) -> bool:
        """Say whether somebody who is known may review here."""
        if self.role is not None and self.role not in reviewer.roles:
            return False
        return self.reviewers is None or not {reviewer.subject, reviewer.identity.qualified}.isdisjoint(self.reviewers)


def configured() -> Admission:
    """Return what `[serve]` of the settings file says.

    Raises:
        ConfigError: The file cannot be used, or one of the two is not of its kind.
    """
    found = config.table("serve")
    table = Table("serve", found, known=found)  # what else stands there is looked at where it is used
    return Admission(table.texts("reviewers") or None, table.get("required_role", str, "") or None)
