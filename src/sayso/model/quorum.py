"""How many distinct people must agree, and which of them may.

A quorum counts folded identities, never names or channels: one person by web, chat and terminal is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sayso.model.reviewer import Identity

__all__ = ["Quorum"]


@dataclass(frozen=True)
class Quorum:
    """What a decision to approve needs.

    Attributes:
        count: How many distinct reviewers must approve the same call.
        roles: Each of them must have one of these; empty means anybody.

    Raises:
        ValueError: `count` is below one.
    """

    count: int = 1
    roles: Collection[str] = field(default=frozenset[str]())

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            raise ValueError(f"a quorum needs at least one reviewer, not {self.count!r}")
        if isinstance(self.roles, str):
            raise TypeError(f"roles is a collection of names, not the text {self.roles!r}")
        object.__setattr__(self, "roles", frozenset(self.roles))

    def admits(self, roles: Collection[str]) -> bool:
        """Say whether somebody with these roles may decide."""
        return not self.roles or any(role in self.roles for role in roles)

    def covers(self, other: Quorum) -> bool:
        """Say whether whatever satisfies this one satisfies `other`."""
        if self is other:
            return True
        has_roles = not other.roles or (bool(self.roles) and frozenset(self.roles) <= frozenset(other.roles))
        return has_roles and self.count >= other.count

    def joined(self, other: Quorum) -> Quorum:
        """Return the least quorum that covers both; where no role is in both, one with this one's roles."""
        mine, theirs = frozenset(self.roles), frozenset(other.roles)
        return Quorum(max(self.count, other.count), (mine & theirs) or mine or theirs)

    def __str__(self) -> str:
        people = "1 reviewer" if self.count == 1 else f"{self.count} reviewers"
        return f"{people} with the role {' or '.join(sorted(self.roles))}" if self.roles else people

    def missing(self, voters: Iterable[Identity]) -> int:
        """Return how many more distinct people must agree."""
        if self.count == 1:
            return 0 if any(True for _ in voters) else 1
        distinct: list[Identity] = []
        for voter in voters:
            if not any(voter.is_same(other) for other in distinct):
                distinct.append(voter)
        return max(0, self.count - len(distinct))
