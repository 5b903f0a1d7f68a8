"""Login links: signed by the server, good for one session within a short time, in the name that they were made for.

`sayso serve` prints one where somebody sits at its terminal, `sayso login` prints one for anybody, on the server's
machine. The invariant: a link begins one session, once, whichever server of the store it is brought to.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sayso.model.reviewer import LOCAL, Reviewer
from sayso.server.stamp import Stamps

__all__ = ["LASTS", "LONGEST", "PRINTED", "Links"]

# By default, at most, and where it is printed to the terminal of the server itself.
LASTS, LONGEST, PRINTED = timedelta(minutes=15), timedelta(days=1), timedelta(hours=1)
_PURPOSE = "login link"


class Links:
    """The login links of one store.

    Args:
        stamps: What signs them.
    """

    def __init__(self, stamps: Stamps) -> None:
        self._stamps = stamps

    def token(self, reviewer: Reviewer, lasts: timedelta = LASTS) -> str:
        """Return a token that begins one session of this reviewer.

        Raises:
            ConfigError: The server's secret cannot be used.
        """
        named: dict[str, Any] = {"name": reviewer.subject}
        if reviewer.issuer != LOCAL:
            named["by"] = reviewer.issuer
        if reviewer.roles:
            named["roles"] = sorted(reviewer.roles)
        return self._stamps.sign(_PURPOSE, named, min(lasts, LONGEST))

    def use(self, token: str) -> Reviewer | None:
        """Use a link up; None where it is none, was altered, has ended or was used.

        Raises:
            ConfigError: The server's secret cannot be used.
            StoreError: Whether it was used cannot be known; it begins nothing.
        """
        body = self._stamps.read(_PURPOSE, token)
        if body is None or not self._stamps.spend(body):
            return None
        return Reviewer(body["name"], roles=body.get("roles", ()), issuer=body.get("by", LOCAL))
