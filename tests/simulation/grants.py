"""What is promised of grants: they start calls like the one that a person saw, as many as they said, until they end.

It reads the journal and shares no rule with `sayso.model.grant`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

__all__ = ["Grants"]


class _Offer(NamedTuple):
    """The terms that a reviewer gave: arguments that they saw, how many calls, for how many seconds."""

    arguments: dict[str, Any]
    count: int
    seconds: int


@dataclass
class _Grant:
    """A grant as the journal tells it."""

    request_id: str
    until: int  # in microseconds
    by: dict[str, _Offer] = field(default_factory=dict[str, _Offer])
    started: set[str] = field(default_factory=set[str])
    is_revoked: bool = False


class Grants:
    """The grants of one schedule.

    Args:
        broken: Returns the error for a promise that was broken.
    """

    def __init__(self, broken: Callable[[str], Exception]) -> None:
        self._broken = broken
        self._offers: dict[tuple[str, str], list[_Offer]] = {}
        self._acknowledged: list[tuple[str, str, str]] = []
        self.begin()

    def begin(self) -> None:
        """Forget what the file said: it is read again."""
        self._grants: dict[str, _Grant] = {}
        self._events: set[tuple[str, str, str]] = set()

    # -- what happened ---------------------------------------------------------------------------------------------

    def offered(self, request_id: str, by: str, arguments: dict[str, Any], count: int, seconds: int) -> None:
        """A reviewer is about to grant further calls like this one."""
        self._offers.setdefault((request_id, f"local:{by}"), []).append(_Offer(arguments, count, seconds))

    def acknowledged(self, grant_id: str, event: str, by: str) -> None:
        """A reviewer's verb returned."""
        self._acknowledged.append((grant_id, event, f"local:{by}"))
        self.check_all()

    def has_offered(self, request_id: str, by: str) -> bool:
        """Say whether a reviewer approved this very request together with others like it."""
        return (request_id, by) in self._offers

    # -- what the journal says -------------------------------------------------------------------------------------

    def take(self, event: str, by: str, at: int, detail: dict[str, Any]) -> None:
        """Take an event of a grant."""
        grant_id = detail["grant"]
        self._events.add((grant_id, event, by))
        match event:
            case "granted":
                until = int(datetime.fromisoformat(detail["until"]).timestamp() * 1_000_000)
                is_first = grant_id not in self._grants
                grant = self._grants.setdefault(grant_id, _Grant(detail["request"], until))
                offers = self._offers.get((grant.request_id, by), [])
                fitting = [one for one in offers if one.count == detail["count"]]
                if is_first:  # another reviewer agrees to what ends already
                    fitting = [one for one in fitting if until <= at + one.seconds * 1_000_000]
                if not fitting:
                    raise self._broken(f"{by} granted {detail}, and offered {offers}")
                grant.by[by] = fitting[-1]
            case "grant_revoked":
                self._grants[grant_id].is_revoked = True
            case _:
                pass

    def check_vote(self, grant_id: str, by: str, arguments: dict[str, Any]) -> None:
        """Check that somebody who granted calls meant this one, too."""
        grant = self._grants.get(grant_id)
        offer = None if grant is None else grant.by.get(by)
        if offer is None:
            raise self._broken(f"a call was approved by {by} under {grant_id}, which they did not grant")
        if arguments.get("to") != offer.arguments["to"] or not 0 <= arguments["amount"] <= offer.arguments["amount"]:
            raise self._broken(f"{by} granted calls like {offer.arguments}, and {arguments} was approved")

    def check_start(self, grant_id: str, request_id: str, at: int) -> None:
        """Check that a grant still allows a call that starts."""
        grant = self._grants[grant_id]
        grant.started.add(request_id)
        most = min(offer.count for offer in grant.by.values())
        if len(grant.started) > most:
            raise self._broken(f"{grant_id} started {grant.started}, and allows {most}")
        if grant.is_revoked:
            raise self._broken(f"{request_id} was started under {grant_id}, which was revoked")
        if at >= grant.until:
            raise self._broken(f"{request_id} was started under {grant_id}, which had ended")

    def check_all(self) -> None:
        """Check what must have survived a power cut."""
        for taken in self._acknowledged:
            if taken not in self._events:
                raise self._broken(f"a verb was lost: {taken}; there is {self._events}")


def detail_of(text: str) -> dict[str, Any]:
    """Return the detail of an entry of the journal."""
    return json.loads(text)
