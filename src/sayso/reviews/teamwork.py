"""The part of `sayso.Review` that decides nothing: comments and mentions, delegations, and snoozing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sayso import audit
from sayso.model import duration
from sayso.model.request import Request
from sayso.model.reviewer import LOCAL, Delegation, Identity, Reviewer
from sayso.model.teamwork import LONGEST, Comment, comments_in
from sayso.model.text import is_blank, storable
from sayso.stores.base import Store


class Teamwork(ABC):
    """What reviewers do to work together; a base of `sayso.Review`.

    Attributes:
        store: The store with the requests.
        channel: The channel that the record names.
    """

    store: Store
    channel: str

    @abstractmethod
    def get(self, request_id: str) -> Request:
        """Return a request by its id or a unique prefix of it."""

    @abstractmethod
    def find(self, request_id: str) -> str:
        """Return the full id for a prefix of it."""

    @abstractmethod
    def _who(self, by: Reviewer | str | None) -> Reviewer: ...

    def comment(
        self, request_id: str, text: str, *, by: Reviewer | str | None = None, channel: str | None = None
    ) -> Request:
        """Comment on a request in any state, for its other reviewers. Durable on return.

        The journal stores it, with the names after an `@` as mentions. It decides nothing, is not sent to the program,
        and values that are masked in the call are masked in it.

        Raises:
            ValueError: The text is empty or longer than 20,000 characters; nothing was written.
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
        """Return the ids of requests with a comment that mentions this reviewer, without a later comment by them.

        While they stand in for somebody, mentions of that person count too.
        """
        return self.store.mentions(self._who(by).identity)

    def delegate(
        self, to: Reviewer | Identity | str, until: datetime | timedelta | str, *, by: Reviewer | str | None = None,
        channel: str | None = None,
    ) -> Delegation:  # fmt: skip
        """Record that this reviewer is away and that `to` stands in. Durable on return.

        `to` can then decide what is assigned to this reviewer, and sees it in lists together with the reviewer's
        mentions. It gives no role and no vote: `to` decides in their own name, and only what they may decide anyway. It
        ends automatically, replaces an earlier one, and is not followed further than one step.

        Args:
            to: Who stands in; a text is the name of a person of this machine.
            until: An instant, a duration from now, or ISO 8601 (UTC if it has no offset): `"3d"`, `"2026-11-27 09:00"`.
            by: Who is away.
            channel: The channel, if it is not this review's.

        Raises:
            ConfigError: `until` is neither a time nor a duration.
            ValueError: The time is past, or they named themselves; nothing was changed.
        """
        end = duration.until(until, self.store.now())
        return self.store.delegate(
            self._who(by).identity, to=identity_of(to), until=end, channel=channel or self.channel
        )  # fmt: skip

    def end_delegation(self, *, by: Reviewer | str | None = None, channel: str | None = None) -> bool:
        """Record that this reviewer is back; return whether they were away. Durable on return."""
        return self.store.end_delegation(self._who(by).identity, channel=channel or self.channel)

    def delegations(self) -> Sequence[Delegation]:
        """Return the delegations that are in force."""
        return self.store.delegations()

    def snooze(
        self, request_id: str, span: datetime | timedelta | str | None, *, by: Reviewer | str | None = None
    ) -> Request:  # fmt: skip
        """Hide a pending request from this reviewer's inbox for a while; None shows it again. Durable on return.

        `span` may also be an instant, as in `delegate`. For everybody else the request is unchanged, and so is its end.
        Raises `DecisionRefusedError` if it would expire before.
        """
        until = None if span is None else duration.until(span, self.store.now())
        return self.store.snooze(self.find(request_id), self._who(by).identity, until=until)

    def snoozed(self, *, by: Reviewer | str | None = None) -> Mapping[str, datetime]:
        """Return the ids of the requests that this reviewer has snoozed, and until when."""
        now, found = self.store.now(), self.store.snoozes(self._who(by).identity)
        return {request_id: until for request_id, until in found.items() if now < until}


def identity_of(who: Reviewer | Identity | str) -> Identity:
    """Return the identity of a reviewer; a text is the name of a person of this machine."""
    return Identity(LOCAL, who) if isinstance(who, str) else who.identity if isinstance(who, Reviewer) else who
