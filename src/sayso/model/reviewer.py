"""Identities of requesters and reviewers, delegations, the quorum, and escalation to further reviewers.

An identity is an issuer (`local`, `program`, an OpenID provider, ...) and a subject. It is shown as given. Identities
with equal folded forms are the same person, so `ada`, `Ada` and a look-alike with full-width letters count once in a
quorum. Invariant: no name contains invisible characters, which would let one person appear as two.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from sayso.errors import ConfigError
from sayso.model import cached_property, duration
from sayso.model.rendering import quote_if_needed
from sayso.model.text import hidden_in, later, say

LOCAL = "local"
PROGRAM = "program"
TOKENS = "token"
_SHORTEST_ISSUER = 12


@lru_cache(maxsize=1024)
def _checked(text: str, what: str) -> str:
    if not text or text != text.strip():
        raise ValueError(f"{what} {text!a} is empty or begins or ends with white space")
    hidden = [f"U+{ord(layout):04X}" for layout in "\n\t" if layout in text] + hidden_in(text)
    if hidden:
        raise ValueError(f"{what} {text!a} contains control or invisible characters ({', '.join(hidden[:6])})")
    if unicodedata.category(text[0])[0] == "M":
        raise ValueError(f"{what} {text!a} begins with a combining mark")
    return text


@lru_cache(maxsize=1024)
def folded(name: str) -> str:
    """Return a name with case, compatibility variants and repeated spaces folded; see `Identity.names`."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(plain.split())


@dataclass(frozen=True)
class Identity:
    """A person or program, as named by an issuer.

    Attributes:
        issuer: Who vouches for the subject.
        subject: The name that the issuer knows it by.

    Raises:
        ValueError: Either is empty, has surrounding white space, or contains control or invisible characters.
    """

    issuer: str
    subject: str

    def __post_init__(self) -> None:
        if ":" in folded(_checked(self.issuer, "issuer")):
            raise ValueError(f"issuer {self.issuer!r} contains a colon, which separates the parts of an identity")
        _checked(self.subject, "subject")

    @property
    def folded(self) -> str:
        """`issuer:subject` with case, compatibility variants and repeated spaces folded; equal for the same person."""
        return f"{folded(self.issuer)}:{folded(self.subject)}"

    def is_same(self, other: Identity) -> bool:
        """Return whether both are the same person."""
        return folded(self.issuer) == folded(other.issuer) and folded(self.subject) == folded(other.subject)

    def may_be(self, other: Identity) -> bool:
        """Return whether both could be the same person, whatever their issuers: `ada`, `Ada` and `ada@host` could.

        For exclusions, where it is better to exclude one too many; a quorum counts with `is_same`. `ada@one` and
        `ada@two` are different.
        """
        mine, theirs = folded(self.subject), folded(other.subject)
        if mine == theirs:
            return True
        return ("@" in mine) != ("@" in theirs) and mine.partition("@")[0] == theirs.partition("@")[0]

    @property
    def names(self) -> tuple[str, str]:
        """The folded names that others may use: the subject alone, and `issuer:subject`."""
        return folded(self.subject), self.folded

    def goes_by(self, name: str) -> bool:
        """Return whether a filter's name means this identity: its subject, whatever the issuer, or `issuer:subject`."""
        return folded(name) in self.names

    @classmethod
    def named(cls, qualified: str) -> Identity:
        """Return the identity of `issuer:subject`; raises `ValueError`."""
        issuer, _, subject = qualified.partition(":")
        return cls(issuer, subject)

    @cached_property
    def qualified(self) -> str:
        """`issuer:subject`, as written in the journal."""
        return f"{self.issuer}:{self.subject}"

    def __str__(self) -> str:
        return self.subject if self.issuer == LOCAL else f"{self.subject} ({self.issuer})"


_OURS = {later("program"), later("token"), later("policy")}
"""Issuers whose names are translated."""


def name_of(who: Identity, room: int = 80) -> str:
    """Return the display name of a person or program; the issuer is left out for people of this machine."""
    if who.issuer == LOCAL:
        return quote_if_needed(who.subject, room)
    issuer = (
        quote_if_needed(who.issuer, max(room // 2, _SHORTEST_ISSUER)) if who.issuer not in _OURS else say(who.issuer)
    )
    return f"{quote_if_needed(who.subject, max(room - len(issuer) - 3, _SHORTEST_ISSUER))} ({issuer})"


@dataclass(frozen=True)
class Reviewer:
    """A person who may decide.

    Attributes:
        subject: The person's name at the issuer.
        roles: The person's roles, e.g. `{"finance"}`.
        issuer: Who vouches for the name; `local` means this machine.

    Raises:
        ValueError: A name or role is empty, has surrounding white space, or contains control or invisible characters.
    """

    subject: str
    roles: Collection[str] = field(default=frozenset(), kw_only=True)
    issuer: str = field(default=LOCAL, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.roles, str):
            raise TypeError(f"roles= takes a collection of names, not {self.roles!r}")
        object.__setattr__(self, "roles", frozenset(_checked(role, "role") for role in self.roles))
        object.__setattr__(self, "identity", Identity(self.issuer, self.subject))

    identity: Identity = field(init=False, repr=False, compare=False)


class Delegation(NamedTuple):
    """A period in which one reviewer stands in for another who is away.

    Attributes:
        by: Who is away.
        to: Who stands in.
        since: When it was made, by the store's clock.
        until: When it ends (exclusive).
    """

    by: Identity
    to: Identity
    since: datetime
    until: datetime

    def counts(self, now: datetime) -> bool:
        """Return whether it is in force at an instant."""
        return now < self.until


@dataclass(frozen=True)
class Quorum:
    """What an approval needs.

    Attributes:
        count: How many distinct reviewers must approve the same call.
        roles: Each reviewer must have one of these; empty means anybody.

    Raises:
        ValueError: `count` is less than one.
    """

    count: int = 1
    roles: AbstractSet[str] | Sequence[str] = field(default=frozenset[str]())

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            raise ValueError(f"a quorum needs at least one reviewer, not {self.count!r}")
        if isinstance(self.roles, str):
            raise TypeError(f"roles= takes a collection of names, not {self.roles!r}")
        object.__setattr__(self, "roles", frozenset(self.roles))

    def admits(self, roles: Collection[str]) -> bool:
        """Return whether somebody with these roles may decide."""
        return not self.roles or any(role in self.roles for role in roles)

    def covers(self, other: Quorum) -> bool:
        """Return whether whatever satisfies this quorum also satisfies `other`."""
        has_roles = not other.roles or (bool(self.roles) and frozenset(self.roles) <= frozenset(other.roles))
        return has_roles and self.count >= other.count

    def joined(self, other: Quorum) -> Quorum:
        """Return the smallest quorum that covers both; if they share no role, one with this quorum's roles."""
        mine, theirs = frozenset(self.roles), frozenset(other.roles)
        return Quorum(max(self.count, other.count), (mine & theirs) or mine or theirs)

    def __str__(self) -> str:
        people = "1 reviewer" if self.count == 1 else f"{self.count} reviewers"
        return f"{people} with the role {' or '.join(sorted(self.roles))}" if self.roles else people

    def missing(self, voters: Collection[Identity]) -> int:
        """Return how many more distinct people must approve."""
        if self.count == 1:
            return 0 if voters else 1
        distinct: list[Identity] = []
        for voter in voters:
            if not any(voter.is_same(other) for other in distinct):
                distinct.append(voter)
        return max(0, self.count - len(distinct))


@dataclass(frozen=True)
class Escalation:
    """Who else may decide a request that has waited for a while.

    Attributes:
        after: How long after the request was asked.
        roles: Anybody with one of these roles may then decide too.
        people: These people may then decide too, whatever their roles.

    Raises:
        ValueError: It names nobody, or `after` is not positive.
    """

    after: timedelta
    roles: AbstractSet[str] | Sequence[str] = field(default=frozenset[str]())
    people: tuple[Identity, ...] = ()

    def __post_init__(self) -> None:
        if self.after <= timedelta(0):
            raise ValueError(f"after= of an escalation must be positive, not {self.after}")
        if isinstance(self.roles, str):
            raise TypeError(f"roles= takes a collection of names, not {self.roles!r}")
        if not self.roles and not self.people:
            raise ValueError("an escalation names at least one role or person")
        object.__setattr__(self, "roles", frozenset(self.roles))

    @classmethod
    def of(cls, after: timedelta | str | None, to: Collection[str | Reviewer]) -> Escalation | None:
        """Return the escalation for `escalate_after=` and `escalate_to=`; None if neither is given.

        Raises:
            ConfigError: Only one of them is given, or a value cannot be used.
        """
        if after is None and not to:
            return None
        if after is None or isinstance(to, str) or not to:
            raise ConfigError(
                "escalate_after= (a duration) and escalate_to= (a collection of role names and reviewers) must be"
                f" given together, not {after!r} and {to!r}"
            )
        roles = [one for one in to if isinstance(one, str)]
        people = [one.identity for one in to if isinstance(one, Reviewer)]
        if len(roles) + len(people) != len(to) or not all(role and role == role.strip() for role in roles):
            raise ConfigError(f"escalate_to= takes names of roles and sayso.Reviewer objects, not {to!r}")
        return cls(duration.option("escalate_after", after), frozenset(roles), tuple(people))

    def admits(self, by: Identity, roles: Collection[str]) -> bool:
        """Return whether somebody may decide once the escalation has taken place."""
        return any(role in self.roles for role in roles) or any(by.is_same(person) for person in self.people)

    def is_within(self, other: Escalation | None) -> bool:
        """Return whether it admits nobody whom `other` would not, and not earlier."""
        if other is None:
            return False
        known = all(any(person.is_same(each) for each in other.people) for person in self.people)
        return known and frozenset(self.roles) <= frozenset(other.roles) and self.after >= other.after

    def __str__(self) -> str:
        roles = [f"the role {role}" for role in sorted(self.roles)]
        return " or ".join([*roles, *map(str, self.people)])
