"""Who asks and who decides.

An identity is an issuer (who vouches for the name: `local`, `program`, later an identity provider) and a subject.
Two identities are the same person when their folded forms are equal, so that `ada`, `Ada` and a look-alike with a
full-width letter count once in a quorum.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache

__all__ = ["LOCAL", "PROGRAM", "Identity", "Reviewer"]

LOCAL = "local"
PROGRAM = "program"


@lru_cache(maxsize=1024)
def _checked(text: str, what: str) -> str:
    if not text or text != text.strip():
        raise ValueError(f"{what} {text!r} is empty or begins or ends with white space")
    if any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in text):
        raise ValueError(f"{what} {text!r} contains control or invisible characters")
    return text


@lru_cache(maxsize=1024)
def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@dataclass(frozen=True)
class Identity:
    """Somebody, or some program, as named by an issuer.

    Attributes:
        issuer: Who vouches for the subject.
        subject: The name that the issuer knows it by.

    Raises:
        ValueError: Either is empty, has white space around it, or holds control or invisible characters.
    """

    issuer: str
    subject: str

    def __post_init__(self) -> None:
        if ":" in _checked(self.issuer, "issuer"):
            raise ValueError(f"issuer {self.issuer!r} contains a colon, which ends it where identities are written")
        _checked(self.subject, "subject")

    @property
    def folded(self) -> str:
        """`issuer:subject` without case and compatibility variants; equal for one person."""
        return f"{_folded(self.issuer)}:{_folded(self.subject)}"

    def is_same(self, other: Identity) -> bool:
        """Say whether both are one person."""
        return _folded(self.issuer) == _folded(other.issuer) and _folded(self.subject) == _folded(other.subject)

    @property
    def qualified(self) -> str:
        """`issuer:subject`, as the journal writes it."""
        return f"{self.issuer}:{self.subject}"

    def __str__(self) -> str:
        return self.subject if self.issuer == LOCAL else f"{self.subject} ({self.issuer})"


@dataclass(frozen=True)
class Reviewer:
    """A person who may decide.

    Attributes:
        subject: The person's name at the issuer.
        roles: What the person may be asked for, e.g. `{"finance"}`.
        issuer: Who vouches for the name; `local` is this machine's word.
    """

    subject: str
    roles: Collection[str] = field(default=frozenset(), kw_only=True)
    issuer: str = field(default=LOCAL, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.roles, str):
            raise TypeError(f"roles is a collection of names, not the text {self.roles!r}")
        object.__setattr__(self, "roles", frozenset(self.roles))
        object.__setattr__(self, "identity", Identity(self.issuer, self.subject))

    identity: Identity = field(init=False, repr=False, compare=False)
