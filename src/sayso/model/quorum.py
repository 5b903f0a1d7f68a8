"""Who must agree, and who else may decide after a while."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from sayso.errors import ConfigError
from sayso.model import duration
from sayso.model.reviewer import Identity, Reviewer

__all__ = ["Escalation", "Quorum"]


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


@dataclass(frozen=True)
class Escalation:
    """Whom a request is opened to, and when.

    Attributes:
        after: How long after it was asked.
        roles: Whoever has one of these may then decide too.
        people: These may then decide too, whatever their roles.

    Raises:
        ValueError: It names nobody, or the span is not positive.
    """

    after: timedelta
    roles: Collection[str] = field(default=frozenset[str]())
    people: tuple[Identity, ...] = ()

    def __post_init__(self) -> None:
        if self.after <= timedelta(0):
            raise ValueError(f"an escalation comes some time after the question, not after {self.after}")
        if isinstance(self.roles, str):
            raise TypeError(f"roles is a collection of names, not the text {self.roles!r}")
        if not self.roles and not self.people:
            raise ValueError("an escalation names at least one role or person")
        object.__setattr__(self, "roles", frozenset(self.roles))

    @classmethod
    def of(cls, after: timedelta | str | None, to: Collection[str | Reviewer]) -> Escalation | None:
        """Return what `escalate_after=` and `escalate_to=` ask for; None where neither is given.

        Raises:
            ConfigError: Only one of them is given, or it cannot be used.
        """
        if after is None and not to:
            return None
        if after is None or isinstance(to, str) or not to:
            raise ConfigError(
                f"escalate_after= takes a time and escalate_to= a collection of roles (texts) and reviewers, both or"
                f" neither; not {after!r} and {to!r}"
            )
        roles = [one for one in to if isinstance(one, str)]
        people = [one.identity for one in to if isinstance(one, Reviewer)]
        if len(roles) + len(people) != len(to) or not all(role and role == role.strip() for role in roles):
            raise ConfigError(f"escalate_to= takes roles (texts) and sayso.Reviewer objects, not {to!r}")
        try:
            span = duration.parse(after)
        except ConfigError as error:
            raise ConfigError(f"escalate_after= takes a span of time: {error}") from None
        return cls(span, frozenset(roles), tuple(people))

    def admits(self, by: Identity, roles: Collection[str]) -> bool:
        """Say whether somebody may decide once it has come."""
        return any(role in self.roles for role in roles) or any(by.is_same(person) for person in self.people)

    def is_within(self, other: Escalation | None) -> bool:
        """Say whether it lets nobody in whom `other` would not, nor earlier."""
        if other is None:
            return False
        known = all(any(person.is_same(each) for each in other.people) for person in self.people)
        return known and frozenset(self.roles) <= frozenset(other.roles) and self.after >= other.after

    def __str__(self) -> str:
        roles = [f"the role {role}" for role in sorted(self.roles)]
        return " or ".join([*roles, *map(str, self.people)])
