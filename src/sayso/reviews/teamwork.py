"""The part of `sayso.Review` that decides nothing: comments and mentions, who is away, what somebody has snoozed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sayso import audit
from sayso.model import duration
from sayso.model.escaping import is_blank, storable
from sayso.model.request import Request
from sayso.model.reviewer import LOCAL, Delegation, Identity, Reviewer
from sayso.model.teamwork import LONGEST, Comment, comments_in
from sayso.stores.base import Store


class Teamwork(ABC):
    """What reviewers do among each other; `sayso.Review` has it.

    Attributes:
        store: Where the requests are.
        channel: Through which channel it is done, as the record will say.
    """

    store: Store
    channel: str

    @abstractmethod
    def get(self, request_id: str) -> Request:
        """Return a request by its id, or by a beginning of it."""

    @abstractmethod
    def find(self, request_id: str) -> str:
        """Return the whole id for the beginning of one."""

    @abstractmethod
    def _who(self, by: Reviewer | str | None) -> Reviewer: ...

    def comment(
        self, request_id: str, text: str, *, by: Reviewer | str | None = None, channel: str | None = None
    ) -> Request:
        """Say something about a request to its other reviewers, in whatever state it is. Durable on return.

        The journal keeps it, with the names after an `@` as mentions. It decides nothing, is not told to the program,
        and values that are masked in the call are masked in it.

        Raises:
            ValueError: It is empty, or has more than 20,000 characters; nothing was written.
        """
        words = storable(text).strip()
        if is_blank(words) or len(words) > LONGEST:
            raise ValueError(f"a comment has 1 to {LONGEST:,} characters, not {len(words):,}; nothing was written")
        who, whole = self._who(by), self.find(request_id)
        return self.store.comment(whole, who.identity, text=words, channel=channel or self.channel)

    def comments(self, request_id: str) -> Sequence[Comment]:
        """Return the comments on a request, oldest first."""
        request = self.get(request_id)
        return comments_in(audit.entries(self.store, run_id=request.run_id, request_id=request.id))

    def mentions(self, *, by: Reviewer | str | None = None) -> frozenset[str]:
        """Return the ids of requests in whose comments this reviewer is mentioned and has not commented since.

        While they stand in for somebody, those in which that one is mentioned as well.
        """
        return self.store.mentions(self._who(by).identity)

    def delegate(
        self, to: Reviewer | Identity | str, until: datetime | timedelta | str, *, by: Reviewer | str | None = None,
        channel: str | None = None,
    ) -> Delegation:  # fmt: skip
        """Say that this reviewer is away, and that `to` stands in meanwhile. Durable on return.

        What is assigned to them can then be decided by `to`, and is found by `to` together with their mentions. It
        gives no role and no vote: `to` decides in their own name, and only what they may decide anyway. It ends by
        itself, takes the place of an earlier one, and is followed one step.

        Args:
            to: Who stands in; a name is one of this machine.
            until: An instant, a span from now, or ISO 8601, in UTC where it has no zone: `"3d"`, `"2026-11-27 09:00"`.
            by: Who is away.
            channel: Through which channel, instead of this review's.

        Raises:
            ConfigError: `until` is no time and no span.
            ValueError: The time is past, or they name themselves; nothing was changed.
        """
        end = duration.until(until, self.store.now())
        return self.store.delegate(
            self._who(by).identity, to=identity_of(to), until=end, channel=channel or self.channel
        )  # fmt: skip

    def end_delegation(self, *, by: Reviewer | str | None = None, channel: str | None = None) -> bool:
        """Say that this reviewer is back; return whether they were away. Durable on return."""
        return self.store.end_delegation(self._who(by).identity, channel=channel or self.channel)

    def delegations(self) -> Sequence[Delegation]:
        """Return who is away now, until when, and who stands in."""
        return self.store.delegations()

    def snooze(
        self, request_id: str, span: datetime | timedelta | str | None, *, by: Reviewer | str | None = None
    ) -> Request:  # fmt: skip
        """Keep a pending request out of this reviewer's inbox for so long; None brings it back. Durable on return.

        `span` may be an instant, as in `delegate`. The request stays as it is, with its end, for everybody; raises
        `DecisionRefusedError` where it ends before.
        """
        until = None if span is None else duration.until(span, self.store.now())
        return self.store.snooze(self.find(request_id), self._who(by).identity, until=until)

    def snoozed(self, *, by: Reviewer | str | None = None) -> Mapping[str, datetime]:
        """Return the ids of what this reviewer has snoozed, and until when."""
        now, found = self.store.now(), self.store.snoozes(self._who(by).identity)
        return {request_id: until for request_id, until in found.items() if now < until}


def identity_of(who: Reviewer | Identity | str) -> Identity:
    """Return whom somebody means; a name is one of this machine."""
    return Identity(LOCAL, who) if isinstance(who, str) else who.identity if isinstance(who, Reviewer) else who
