"""Who else may decide a request that has waited for too long.

An escalation adds people and takes nothing away: how many must agree, and that nobody decides what they asked for
themselves, stay as they were. Invariant: it says nothing about the quorum's count.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from sayso.errors import ConfigError
from sayso.model import duration
from sayso.model.reviewer import Identity, Reviewer

__all__ = ["Escalation"]


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
