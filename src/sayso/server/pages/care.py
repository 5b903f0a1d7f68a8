"""Actions on a request other than decisions: comments, claims and assignments, snoozes and extensions.

`sayso.server.pages.request` shows them, and `sayso.server.pages.actions` executes their forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from sayso import clock
from sayso.model import duration
from sayso.model.journal import Entry
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, Identity, Reviewer
from sayso.model.teamwork import comments_in
from sayso.model.text import escape, later, say
from sayso.server.auth.tokens import unknown_names
from sayso.server.context import RequestContext
from sayso.view.summary import name_of, token

_SPANS = {
    "1h": later("1 hour"), "4h": later("4 hours"), "24h": later("24 hours"),
    "7d": later("7 days"), "30d": later("30 days"),
}  # fmt: skip
SNOOZES = {
    "1h": later("1 hour"), "15m": later("15 minutes"), "4h": later("4 hours"),
    "24h": later("a day"), "3d": later("3 days"),
}  # fmt: skip
_LONGEST_NAME = 400


class NotDoneError(Exception):
    """A form is refused because something in it is missing or wrong; the message says what."""


# -- comments ------------------------------------------------------------------------------------------------------


class Remark(NamedTuple):
    """A comment as the page shows it: author, time (ISO 8601 and relative), text, whether it mentions the reader.

    `unknown` are the names that it mentions by which nobody is known, for its author to read.
    """

    by: str
    at: str
    ago: str
    text: str
    is_to_me: bool
    unknown: str


def remarks(context: RequestContext, entries: Iterable[Entry]) -> list[Remark]:
    """Return the comments among these rows of the journal."""
    me, now, found = (context.reviewer.identity, *context.stood_in_for), clock.now(), comments_in(entries)
    mine = {name: None for one in found if one.by == me[0].qualified for name in one.mentions}
    unknown = set(unknown_names(context.settings.store, mine))
    return [
        Remark(
            token(one.by.removeprefix(f"{LOCAL}:")), clock.written(one.at), duration.ago(one.at, now),
            escape(one.text, block=True), any(who.goes_by(name) for name in one.mentions for who in me),
            ", ".join(f"@{token(name)}" for name in one.mentions if name in unknown and one.by == me[0].qualified),
        )
        for one in found
    ]  # fmt: skip


# -- who has it ----------------------------------------------------------------------------------------------------


def colleagues(context: RequestContext) -> list[str]:
    """Return the other people who are signed in, by the names that the form of an assignment accepts."""
    me = context.reviewer.identity
    others = (one.identity for one in context.settings.sessions.people() if not one.identity.is_same(me))
    return sorted(one.subject if one.issuer == LOCAL else one.qualified for one in others)


def instead_of(context: RequestContext, request: Request) -> str | None:
    """Return the name of the absent person who has claimed a request, if this person stands in for them."""
    claimed, me = request.claimed_by, context.reviewer.identity
    is_other = claimed is not None and not claimed.is_same(me) and request.state is State.PENDING
    return name_of(claimed) if claimed is not None and is_other and context.has(request) else None


def person_named(context: RequestContext, name: str) -> Reviewer | Identity:
    """Return the signed-in person of a name, with their roles; else an identity, by default of the reader's issuer."""
    if len(name) > _LONGEST_NAME:
        raise NotDoneError(say("A name has at most %(most)s characters. Nothing was changed.", most=_LONGEST_NAME))
    known = [one for one in context.settings.sessions.people() if one.identity.goes_by(name)]
    if len(known) > 1:
        raise NotDoneError(
            say("Several people go by %(name)s: write ISSUER:NAME. Nothing was changed.", name=escape(name))
        )
    if known:
        return known[0]
    issuer, colon, subject = name.partition(":")
    try:
        return Identity(issuer, subject) if colon else Identity(context.reviewer.issuer, name)
    except ValueError as error:
        raise NotDoneError(say("%(fault)s; nothing was changed.", fault=escape(str(error)))) from None


# -- snooze --------------------------------------------------------------------------------------------------------


def snoozes(request: Request, now: datetime) -> list[tuple[str, str]]:
    """Return the spans for which a request can be snoozed, those that end before it expires."""
    if request.state is not State.PENDING:
        return []
    return [(span, say(said)) for span, said in SNOOZES.items() if now + duration.parse(span) < request.expires_at]


def snoozed_until(context: RequestContext, request: Request) -> str | None:
    """Return until when this person has snoozed a request, in ISO 8601; None if they have not."""
    until = context.review.snoozed().get(request.id) if request.state is State.PENDING else None
    return None if until is None else clock.written(until)


# -- when it ends --------------------------------------------------------------------------------------------------


def later_ends(request: Request, now: datetime) -> list[tuple[str, str]]:
    """Return the spans from now that would extend a request or an approval."""
    end = request.expires_at if request.state is State.PENDING else request.approval_expires_at
    if request.state not in {State.PENDING, State.APPROVED} or end is None:
        return []
    return [(span, say(said)) for span, said in _SPANS.items() if now + duration.parse(span) > end]
