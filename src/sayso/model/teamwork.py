"""What reviewers do with a request besides deciding it: claim, assign, release, extend, and comment.

Pure functions like those of `sayso.model.lifecycle`; none changes the state of a request. A comment does not change the
request, gives no right, and is not sent to the program; `@name` in it mentions somebody. Invariant: values that are
masked in the call are masked in a comment before it is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from sayso import clock, errors
from sayso.model.journal import Entry, detail_of
from sayso.model.lifecycle import Transition, must_be_allowed, must_be_pending
from sayso.model.request import Request, State, without_secrets
from sayso.model.reviewer import Identity

COMMENTED = "commented"
LONGEST, _MOST_MENTIONS = 20_000, 20
_MENTION = re.compile(r"(?<![\w.@:/+-])@(\w(?:[\w.+:@-]{0,198}\w)?)")


def claim(request: Request, by: Identity, *, roles: Collection[str], channel: str, now: datetime) -> Transition:
    """Claim a pending request for a reviewer.

    Until it is released or they have approved it, nobody else can decide it; others can only give approvals of a quorum
    that are missing besides the claimer's.
    """
    must_be_pending(request, now)
    must_be_allowed(request, by, roles, now)
    return Transition(replace(request, claimed_by=by, claimed_at=now), "claimed", by, channel, {})


def assign(
    request: Request, by: Identity, *, to: Identity, to_roles: Collection[str] | None, roles: Collection[str],
    force: bool, channel: str, now: datetime,
) -> Transition:  # fmt: skip
    """Claim a pending request for another reviewer.

    This gives no additional right: `to` must be allowed to decide as far as is known (`to_roles` are their roles, None
    if unknown), and is checked again when they decide. `force` takes it from another reviewer who has claimed it. A
    reviewer who has already voted is refused, because nobody could add the missing vote.
    """
    must_be_pending(request, now)
    freed = replace(request, claimed_by=None, claimed_at=None)
    must_be_allowed(freed if force else request, by, roles, now)
    must_be_allowed(freed, to, request.wanted_roles if to_roles is None else to_roles, now)
    if any(to.is_same(vote.by) for vote in request.votes):
        raise errors.AlreadyVotedError(request.id, by=str(to), missing=request.missing_votes)
    detail = {"to": to.qualified}
    if request.claimed_by is not None and not request.claimed_by.is_same(by):
        detail["claimed_by"] = request.claimed_by.qualified
    return Transition(replace(request, claimed_by=to, claimed_at=now), "assigned", by, channel, detail)


def release(
    request: Request, by: Identity, *, roles: Collection[str], force: bool, channel: str, now: datetime
) -> Transition:
    """Release a claimed request. `force` releases another reviewer's claim, which the journal records."""
    must_be_pending(request, now)
    if request.claimed_by is None:
        raise errors.NotClaimedError(request.id)
    freed = replace(request, claimed_by=None, claimed_at=None)
    must_be_allowed(freed if force else request, by, roles, now)
    detail = {} if by.is_same(request.claimed_by) else {"claimed_by": request.claimed_by.qualified}
    return Transition(freed, "released", by, channel, detail)


def extend(
    request: Request, by: Identity, *, roles: Collection[str], span: timedelta, channel: str, now: datetime
) -> Transition:
    """Set the end of a pending request, or of an unused approval, to `span` from now."""
    if request.state is not State.APPROVED:
        must_be_pending(request, now)
    must_be_allowed(request, by, roles, now)
    end = "expires_at" if request.state is State.PENDING else "approval_expires_at"
    new = replace(request, **{end: now + span})
    return Transition(new, "extended", by, channel, {"what": end, "until": clock.written(now + span)})


# -- comments --------------------------------------------------------------------------------------------------


class Comment(NamedTuple):
    """A reviewer's comment on a request.

    Attributes:
        at: When, in UTC, by the store's clock.
        by: `issuer:subject` of its author.
        channel: The channel that was used.
        text: The text; empty if it is encrypted and cannot be decrypted.
        mentions: The names after an `@` in it, as written.
    """

    at: datetime
    by: str
    channel: str
    text: str
    mentions: tuple[str, ...] = ()


def mentions_in(text: str) -> tuple[str, ...]:
    """Return the names that a text mentions, each once, from `@ada`, `@ada@corp.example` and `@issuer:ada`."""
    return tuple(dict.fromkeys(_MENTION.findall(text)))[:_MOST_MENTIONS]


def comment(request: Request, by: Identity, *, text: str, channel: str, now: datetime) -> Transition:  # noqa: ARG001  as each rule
    """Write a comment into the journal of a request in any state; the request does not change."""
    words = without_secrets(request, text)
    mentions = mentions_in(words)
    return Transition(
        request, COMMENTED, by, channel, {"comment": words, **({"mentions": mentions} if mentions else {})}
    )


def comments_in(entries: Iterable[Entry]) -> list[Comment]:
    """Return the comments among journal entries, in order. The text of an altered entry is empty."""
    return [_read(entry) for entry in entries if entry.event == COMMENTED]


def _read(entry: Entry) -> Comment:
    detail = detail_of(entry.detail)
    text, names = detail.get("comment"), detail.get("mentions")
    mentions = tuple(str(name) for name in cast("list[Any]", names)) if isinstance(names, list) else ()
    try:
        at = clock.instant(entry.at)
    except (OverflowError, TypeError, ValueError):
        at = clock.instant(0)
    return Comment(at, entry.by, entry.channel, text if isinstance(text, str) else "", mentions)
