"""Who asks and who decides.

An identity is an issuer (who vouches for the name: `local`, `program`, later an identity provider) and a subject.
It is shown as it was given. Two identities are the same person when their folded forms are equal, so that `ada`,
`Ada` and a look-alike with a full-width letter count once in a quorum. Invariant: no name has a character that is
seen as nothing, which would make a second person of the first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache

__all__ = ["LOCAL", "PROGRAM", "TOKENS", "Identity", "Reviewer"]

LOCAL = "local"
PROGRAM = "program"
TOKENS = "token"


@lru_cache(maxsize=1024)
def _checked(text: str, what: str) -> str:
    from sayso.model.text import hidden_in  # the package that draws is not wanted where nobody is named

    if not text or text != text.strip():
        raise ValueError(f"{what} {text!a} is empty or begins or ends with white space")
    hidden = [f"U+{ord(layout):04X}" for layout in "\n\t" if layout in text] + hidden_in(text)
    if hidden:
        raise ValueError(f"{what} {text!a} contains control or invisible characters ({', '.join(hidden[:6])})")
    if unicodedata.category(text[0])[0] == "M":
        raise ValueError(f"{what} {text!a} begins with a mark that needs a letter before it")
    return text


@lru_cache(maxsize=1024)
def _folded(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


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
        """`issuer:subject` without case, compatibility variants and doubled spaces; equal for one person."""
        return f"{_folded(self.issuer)}:{_folded(self.subject)}"

    def is_same(self, other: Identity) -> bool:
        """Say whether both are one person."""
        return _folded(self.issuer) == _folded(other.issuer) and _folded(self.subject) == _folded(other.subject)

    def may_be(self, other: Identity) -> bool:
        """Say whether both could be one person, whoever vouches for them: `ada`, `Ada` and `ada@host` could.

        This is for a bar, which had better hold one too many; a quorum counts by `is_same`. `ada@one` and `ada@two`
        are two.
        """
        mine, theirs = _folded(self.subject), _folded(other.subject)
        if mine == theirs:
            return True
        return ("@" in mine) != ("@" in theirs) and mine.partition("@")[0] == theirs.partition("@")[0]

    def goes_by(self, name: str) -> bool:
        """Say whether this is who a filter names: by the subject, whoever vouches for it, or by `issuer:subject`."""
        return _folded(name) in {_folded(self.subject), self.folded}

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

    Raises:
        ValueError: A name or role is empty, has white space around it, or holds control or invisible characters.
    """

    subject: str
    roles: Collection[str] = field(default=frozenset(), kw_only=True)
    issuer: str = field(default=LOCAL, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.roles, str):
            raise TypeError(f"roles is a collection of names, not the text {self.roles!r}")
        object.__setattr__(self, "roles", frozenset(_checked(role, "role") for role in self.roles))
        object.__setattr__(self, "identity", Identity(self.issuer, self.subject))

    identity: Identity = field(init=False, repr=False, compare=False)
