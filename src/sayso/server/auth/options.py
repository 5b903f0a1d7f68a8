"""The sign-in options of a server: which ways to sign in are enabled, and who may review.

The ways are login links (`sayso.server.auth.signing`), a trusted proxy (`sayso.server.auth.proxy`) and an OpenID
provider (`sayso.server.auth.oidc`). Invariant: only reviewers can sign in, and only in an enabled way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from sayso.channels.settings import ReviewerAllowlist
from sayso.model.reviewer import Reviewer
from sayso.server.auth.oidc import Provider
from sayso.server.auth.proxy import Proxy
from sayso.server.auth.sessions import ABSOLUTE

FAILURES = "20/minute"
"""How often one address may fail to sign in; counted by each server for itself."""


@dataclass(frozen=True)
class SignIn:
    """How people become known to one inbox.

    Attributes:
        has_links: Whether login links begin sessions.
        proxy: The proxy that signs people in, or only passes requests on.
        provider: The OpenID provider.
        reviewers: Who may review at all, as `name` or `issuer:name`, to the letter; None is everybody who is known.
        role: What whoever reviews must have; None is nothing.
        lasts: When a session ends for good.
    """

    has_links: bool = True
    proxy: Proxy | None = None
    provider: Provider | None = None
    reviewers: Collection[str] | None = None
    role: str | None = None
    lasts: timedelta = ABSOLUTE

    @property
    def fingerprint(self) -> str:
        """Which ways are open: a session that began while others were does not count any more."""
        issuer = "" if self.provider is None else self.provider.oidc.issuer
        return f"{'links' if self.has_links else ''} {issuer}".strip()

    def admits(self, reviewer: Reviewer) -> bool:
        """Say whether somebody who is known may review here."""
        return ReviewerAllowlist(self.reviewers, self.role).admits(reviewer)
