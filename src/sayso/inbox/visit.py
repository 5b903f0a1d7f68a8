"""One request of a browser: who sits there, and what a form of ours brought along.

`shows` makes a route of a function that looks, `does` of one that changes something: the second alone reads a form,
and only after the session, the form's own token and the Origin header agree. The invariant: nothing is changed for a
request that does not come from a page of ours, in the session in which the page was shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import RedirectResponse, Response

from sayso.inbox.session import Session, Sessions
from sayso.model.reviewer import Reviewer
from sayso.reviews import Review
from sayso.stores.base import Store

__all__ = [
    "Form",
    "Settings",
    "Visit",
    "does",
    "is_ours",
    "path_to",
    "read_form",
    "see_other",
    "session_of",
    "shows",
    "signed_in",
]

Form = ImmutableMultiDict[str, str]
Endpoint = Callable[[Http], Awaitable[Response]]

_LONGEST_FORM = 8_000_000  # a call of one megabyte, with every character escaped
_MOST_FIELDS = 5_000


@dataclass(frozen=True)
class Settings:
    """What one inbox works with.

    Attributes:
        store: Where the requests are.
        sessions: Who sits where.
        base_url: How people reach it; None where each request's own Host header says it.
        who: Says who is signed in to the program around; None where the inbox's own links do.
    """

    store: Store
    sessions: Sessions
    base_url: str | None
    who: Callable[[Http], Reviewer | None] | None

    def cookie(self, http: Http) -> tuple[str, bool]:
        """Return the name of the session's cookie, and whether it goes over https only."""
        if self.origin(http).startswith("https:"):
            return "__Host-sayso", True
        return f"sayso-{http.url.port or 80}", False  # cookies of one host are not apart by port

    def origin(self, http: Http) -> str:
        """Return the origin that our own pages have."""
        parts = urlsplit(self.base_url or str(http.url))
        return f"{parts.scheme}://{parts.netloc}".casefold()


class Visit:
    """A request by somebody who is known, with the person's door opened in their name."""

    def __init__(self, http: Http, session: Session, form: Form) -> None:
        self.http, self.session, self.form = http, session, form
        self.settings: Settings = http.app.state.settings

    @cached_property
    def review(self) -> Review:
        """The person's door."""
        return Review(self.settings.store, reviewer=self.session.reviewer, channel="web")

    @property
    def reviewer(self) -> Reviewer:
        """Who decides."""
        return self.session.reviewer

    def asked(self, name: str) -> str:
        """Return a value of the address, or nothing."""
        return self.http.query_params.get(name, "").strip()

    def said(self, name: str) -> str | None:
        """Return what was typed into a field of a form; None where it is empty."""
        return self.form.get(name, "").replace("\r\n", "\n").strip() or None

    def path(self, *steps: str, **asked: str) -> str:
        """Return the address of a page of ours."""
        return path_to(self.http, *steps, **asked)


def path_to(http: Http, *steps: str, **asked: str) -> str:
    """Return the address of a page of ours, also where the inbox is mounted below another path."""
    root = str(http.scope.get("root_path", "")).rstrip("/")
    way = f"{root}/" + "/".join(quote(step, safe="") for step in steps)
    words = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items() if value)
    return f"{way}?{words}" if words else way


def see_other(where: str) -> Response:
    """Send a browser on after a change, so that a reload repeats nothing."""
    return RedirectResponse(where, status_code=303)


def session_of(http: Http) -> Session | None:
    """Return who sits at the browser; a program around that knows them has the last word."""
    settings: Settings = http.app.state.settings
    session = settings.sessions.find(http.cookies.get(settings.cookie(http)[0]))
    if settings.who is None:
        return session
    person = settings.who(http)
    if person is None:
        return None
    if session is not None and session.reviewer == person:
        return session
    return settings.sessions.begin(person)


def is_ours(http: Http) -> bool:
    """Say whether a page of ours sent this; every browser says with a POST where it comes from."""
    settings: Settings = http.app.state.settings
    return http.headers.get("origin", "").casefold() == settings.origin(http)


async def read_form(http: Http) -> Form:
    """Return the fields of a form.

    Raises:
        HTTPException: It is too long, or none.
    """
    if http.headers.get("content-type", "").partition(";")[0].strip().casefold() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "a form of this inbox is needed")
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > _LONGEST_FORM:
            raise HTTPException(413, "the form is too long")
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS, separator="&"
        )
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None
    return ImmutableMultiDict(pairs)


def _with_cookie(http: Http, session: Session, response: Response) -> Response:
    settings: Settings = http.app.state.settings
    name, is_https = settings.cookie(http)
    if http.cookies.get(name) != session.id:
        response.set_cookie(name, session.id, path="/", httponly=True, samesite="lax", secure=is_https)
    return response


def shows(page: Callable[[Visit], Response]) -> Endpoint:
    """Make a route of a function that changes nothing."""

    async def route(http: Http) -> Response:
        session = session_of(http)
        if session is None:
            raise HTTPException(401)
        response = await run_in_threadpool(page, Visit(http, session, ImmutableMultiDict[str, str]()))
        return _with_cookie(http, session, response)

    return route


def does(deed: Callable[[Visit], Response]) -> Endpoint:
    """Make a route of a function that changes something, for forms of our own pages only."""

    async def route(http: Http) -> Response:
        if not is_ours(http):
            raise HTTPException(403, "this did not come from a page of this inbox; nothing was decided")
        session = session_of(http)
        if session is None:
            raise HTTPException(401)
        form = await read_form(http)
        if not session.is_mine(form.get("csrf", "")):
            raise HTTPException(403, "this form is not of your session any more; nothing was decided")
        return await run_in_threadpool(deed, Visit(http, session, form))

    return route


def signed_in(http: Http, session: Session, response: Response) -> Response:
    """Give the browser the cookie of a session that begins."""
    return _with_cookie(http, session, response)
