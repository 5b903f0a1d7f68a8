"""Who asks: the bearer of a token, or somebody at a browser of the inbox.

A token needs no CSRF token, because no browser sends it by itself; a session that changes something brings its own
token and the Origin of our pages, as a form does. The invariant: where both are sent the token alone counts, and a
token that opens nothing is never made up for by a session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request as Http

from sayso.model.reviewer import TOKENS, Identity, Reviewer
from sayso.server.api.problem import Problem
from sayso.server.session import Session
from sayso.server.token import Token, TokenKind, Tokens
from sayso.server.visit import Settings, is_ours

__all__ = ["LOOKING", "Principal", "is_still_good", "principal_of"]

LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_STRANGER = "send a token, `Authorization: Bearer sst_…`, that is neither revoked nor at its end; nothing was done"


@dataclass(frozen=True)
class Principal:
    """Who asks, and what for they may.

    Attributes:
        kind: Of the token; a session's is `review`.
        reviewer: In whose name.
        token_id: Of the token; None for a session.
        channel: What the record says how a decision came: `api`, or `web` for a session.
        session: At which browser; None for a token.
    """

    kind: TokenKind
    reviewer: Reviewer
    token_id: str | None
    channel: Literal["api", "web"]
    session: Session | None = field(default=None, repr=False)

    @property
    def csrf(self) -> str | None:
        """What a session's changes bring along; None for a token."""
        return None if self.session is None else self.session.csrf

    @property
    def requester(self) -> Identity:
        """Who asks for calls through this token; on behalf of `reviewer.identity`, who may then not decide them."""
        return Identity(TOKENS, self.reviewer.subject)


def principal_of(http: Http) -> Principal:
    """Return who asks; reads the store.

    Raises:
        Problem: Nobody that is known, somebody who may not review here, or a session's change that did not come from
            a page of ours.
    """
    given = http.headers.getlist("authorization")
    if given:
        return _bearer(http, given)
    session = _session(http)
    if session is None:
        raise _stranger()
    if http.method not in LOOKING and not (is_ours(http) and session.is_mine(http.headers.get("x-csrf-token", ""))):
        raise Problem(
            "not_from_here",
            "a session changes something only with its X-CSRF-Token and this server's Origin; nothing was done",
        )
    return Principal("review", session.reviewer, None, "web", session)


def is_still_good(http: Http, who: Principal) -> bool:
    """Say whether somebody who was known before still is; this is no use of a session. Reads the store."""
    settings: Settings = http.app.state.settings
    tokens: Tokens = http.app.state.tokens
    if who.session is not None:
        return settings.sessions.is_open(who.session)
    return who.token_id is not None and tokens.is_good(who.token_id)


def _session(http: Http) -> Session | None:
    """Return the session that has begun; a program around that knows its people has the last word, and begins none."""
    settings: Settings = http.app.state.settings
    session = settings.sessions.find(http.cookies.get(settings.cookie(http)[0]))
    if session is None or settings.who is None:
        return session
    person = settings.who(http)
    return session if person is not None and person == session.reviewer and settings.sign_in.admits(person) else None


def _bearer(http: Http, given: list[str]) -> Principal:
    scheme, _, text = given[0].partition(" ")
    tokens: Tokens = http.app.state.tokens
    token: Token | None = None
    if len(given) == 1 and scheme.casefold() == "bearer":
        token = tokens.find(text.strip())
    if token is None:
        raise _stranger()
    settings: Settings = http.app.state.settings
    if token.kind == "review" and not settings.sign_in.admits(token.reviewer):
        raise Problem("not_admitted", "the settings of this server do not let this person review; nothing was done")
    return Principal(token.kind, token.reviewer, token.id, "api")


def _stranger() -> Problem:
    return Problem("not_signed_in", _STRANGER, headers={"www-authenticate": "Bearer"})
