"""The context of one browser request: the settings, the session, and the form that it sends.

`get_route` makes a route of a function that shows something, `post_route` of one that changes something. Only the
second reads a form, and only after the Origin header, the session and the form's own token agree: nothing is changed
for a request that does not come from a page of ours, in the session in which that page was shown.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import RedirectResponse, Response

from sayso import clock
from sayso.model.cached import cached_property
from sayso.model.request import Request
from sayso.model.reviewer import Delegation, Identity, Reviewer
from sayso.model.words import Language, choose, say
from sayso.reviews import Review
from sayso.server.api.problems import FaultLog, Problem, Rate
from sayso.server.auth.sessions import Links, Session, Sessions, TokenSigner
from sayso.server.auth.sign_in import FAILURES, SignIn, sender_of
from sayso.server.language import language_of
from sayso.server.push import Push
from sayso.stores.base import Store

Form = ImmutableMultiDict[str, str]
Endpoint = Callable[[Http], Awaitable[Response]]

_LONGEST_FORM = 8_000_000  # a call of one megabyte, with every character escaped
_LONGEST_OF_STRANGER = 16_000
_TIMEOUT, _TIMEOUT_OF_STRANGER = 60.0, 10.0  # seconds for a form to arrive
_MOST_FIELDS = 5_000
_large_form = threading.Lock()  # a large form takes a hundred times its size while it is parsed
_LONGEST_ADDRESS = 500
DEVICE_COOKIE = "sayso-device"
_WORTH_COMPRESSING, _LEVEL = 1_000, 5
_TESTS = "10/minute"


def _after_fork() -> None:
    global _large_form  # noqa: PLW0603  the thread that held it is not there any more in a forked child
    _large_form = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True)
class Settings:
    """What a server works with.

    Attributes:
        base_url: How people reach it; None where each request's own Host header says it.
        who: Says who is signed in to the program or the proxy around; None where the inbox signs in by itself.
        failures: How often one address may fail to sign in.
        tests: How often one person may have a test message sent, through a channel or to a device.
        undo_within: How long an approval of the pages can be undone; its call does not start before.
    """

    store: Store
    sessions: Sessions
    base_url: str | None
    who: Callable[[Http], Reviewer | None] | None
    signer: TokenSigner
    sign_in: SignIn = field(default_factory=SignIn)
    failures: Rate = field(default_factory=lambda: Rate(FAILURES))
    tests: Rate = field(default_factory=lambda: Rate(_TESTS))
    undo_within: timedelta | None = None

    @cached_property
    def links(self) -> Links:
        """The login links of this store."""
        return Links(self.signer)

    def cookie(self, http: Http, what: str = "sayso") -> tuple[str, bool]:
        """Return the name of a cookie of ours, the session's or another one, and whether it goes over https only."""
        if self.origin(http).startswith("https:"):
            return f"__Host-{what}", True
        return f"{what}-{http.url.port or 80}", False  # cookies of one host are not apart by port

    def sender(self, http: Http) -> str:
        """Return the address from which a request was sent, or its network, as far as that can be known."""
        if self.sign_in.proxy is not None:
            return self.sign_in.proxy.origin_of(http)
        return sender_of(http.client.host if http.client else "")

    def origin(self, http: Http) -> str:
        """Return the origin that our own pages have, as browsers write it: without the port that the scheme implies."""
        parts = urlsplit(self.base_url or str(http.url))
        host = parts.netloc.rpartition("@")[2].removesuffix(":443" if parts.scheme == "https" else ":80")
        return f"{parts.scheme}://{host}".casefold()


def settings_of(http: Http) -> Settings:
    """Return what the server that was asked works with."""
    return http.app.state.settings


class RequestContext:
    """A request by somebody who is signed in, and the `Review` that decides in their name."""

    def __init__(self, http: Http, session: Session, form: Form) -> None:
        self.http, self.session, self.form = http, session, form
        self.settings = settings_of(http)

    @cached_property
    def review(self) -> Review:
        """What this person may see and decide; looking writes nothing."""
        return self.review_on(self.settings.store)

    def review_on(self, store: Store) -> Review:
        """Return the same on a view of the store (`Store.together`)."""
        return Review(
            store, reviewer=self.session.reviewer, channel="web", sweeps=False,
            undo_within=self.settings.undo_within,
        )  # fmt: skip

    @property
    def reviewer(self) -> Reviewer:
        """Who decides."""
        return self.session.reviewer

    @cached_property
    def delegations(self) -> Sequence[Delegation]:
        """Who is away now, and who stands in."""
        return self.review.delegations()

    @cached_property
    def stood_in_for(self) -> list[Identity]:
        """For whom this person stands in now."""
        return [one.by for one in self.delegations if one.to.is_same(self.reviewer.identity)]

    def has(self, request: Request) -> bool:
        """Say whether this person, or somebody for whom they stand in, has claimed a request."""
        claimed = request.claimed_by
        return claimed is not None and any(claimed.is_same(one) for one in (self.reviewer.identity, *self.stood_in_for))

    def query(self, name: str) -> str:
        """Return a query parameter, empty where it is absent."""
        return self.http.query_params.get(name, "").strip()

    def field(self, name: str) -> str | None:
        """Return the text of a form field; None where it is empty."""
        return self.form.get(name, "").replace("\r\n", "\n").strip() or None

    def count_test(self) -> None:
        """Count a test message that this person sends; raises `HTTPException` where they sent too many."""
        try:
            self.settings.tests.count(self.reviewer.identity.folded)
        except Problem as problem:
            message = say("you sent many test messages just now; nothing was sent, try again in a minute")
            raise HTTPException(429, message, problem.headers) from None

    def path(self, *steps: str, **asked: str) -> str:
        """Return the address of a page of ours."""
        return path_to(self.http, *steps, **asked)


def path_to(http: Http, *steps: str, **asked: str) -> str:
    """Return the address of a page of ours, also where the inbox is mounted below another path."""
    root = str(http.scope.get("root_path", "")).rstrip("/")
    way = f"{root}/" + "/".join(quote(step, safe="") for step in steps)
    words = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items() if value)
    return f"{way}?{words}" if words else way


def redirect(where: str) -> Response:
    """Redirect a browser after a change, so that a reload repeats nothing."""
    return RedirectResponse(where, status_code=303)


def session_of(http: Http) -> Session | None:
    """Return who is signed in at a browser; a program around that knows them has the last word. Reads the store."""
    settings = settings_of(http)
    cookie = http.cookies.get(settings.cookie(http)[0])
    if settings.who is None:
        return settings.sessions.find(cookie)
    person = settings.who(http)
    if person is None:
        return None
    if not settings.sign_in.admits(person):
        raise not_admitted(http, person)
    return settings.sessions.find_unrecorded(cookie, person) or settings.sessions.begin_unrecorded(person)


async def signed_in(http: Http) -> Session:
    """Return who is signed in at a browser, and speak their language from here on; raises `HTTPException`."""
    session, language = await run_in_threadpool(_session_and_language, http)
    if session is None:
        raise HTTPException(401)
    if language is not None:
        choose(language)
    return session


def _session_and_language(http: Http) -> tuple[Session | None, Language | None]:
    session = session_of(http)
    chosen = None if session is None else language_of(settings_of(http).store, session.reviewer.identity)
    return session, chosen


def is_signed_in(http: Http, session: Session) -> bool:
    """Say whether a session of an open page still lasts; this is no use of it. Reads the store."""
    settings = settings_of(http)
    return clock.now() < session.ends if settings.who is not None else settings.sessions.is_open(session)


def is_same_origin(http: Http) -> bool:
    """Say whether a page of this server sent this; every browser sends its Origin with a POST."""
    settings = settings_of(http)
    return http.headers.get("origin", "").casefold() == settings.origin(http)


async def read_form(http: Http, *, is_known: bool) -> Form:
    """Return the fields of a form, parsed in a thread so that nobody else has to wait; raises `HTTPException`."""
    longest, patience = (_LONGEST_FORM, _TIMEOUT) if is_known else (_LONGEST_OF_STRANGER, _TIMEOUT_OF_STRANGER)
    if http.headers.get("content-type", "").partition(";")[0].strip().casefold() != "application/x-www-form-urlencoded":
        raise HTTPException(415, say("a form of this inbox is needed"))
    try:
        async with asyncio.timeout(patience):
            body = await _read(http, longest)
    except TimeoutError:
        raise HTTPException(
            408, say("the form did not come in %(count)s s; nothing was done", count=f"{patience:.0f}")
        ) from None
    return await run_in_threadpool(_parsed, body)


async def _read(http: Http, longest: int) -> bytes:
    too_long = HTTPException(
        413, say("the form is too long: it may have %(most)s bytes; nothing was done", most=f"{longest:,}")
    )
    length = http.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > longest:
        raise too_long  # before any of it is read
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > longest:
            raise too_long
    return bytes(body)


def _parsed(body: bytes) -> Form:
    with nullcontext() if len(body) <= _LONGEST_OF_STRANGER else _large_form:
        try:
            return ImmutableMultiDict(parse_qsl(
                body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS,
                separator="&",
            ))  # fmt: skip
        except ValueError:
            raise HTTPException(400, say("the form cannot be read")) from None


def not_admitted(http: Http, person: Reviewer) -> HTTPException:
    """Return the answer to somebody who is known, but may not review here, and log what they lack."""
    role, who = settings_of(http).sign_in.role, str(person.identity)
    if role is not None and role not in person.roles:
        lacks = (
            f"required_role is {role!a}, and their roles are {', '.join(map(ascii, sorted(person.roles))) or 'none'}"
        )
        message = say(
            "you are %(who)s, and may not review here without the role %(role)s; nothing was decided",
            who=who,
            role=role,
        )
    else:
        lacks = f"reviewers does not list {person.identity.qualified!a}"
        message = say(
            "you are %(who)s, and may not review here: the list of reviewers does not name you; nothing was decided",
            who=who,
        )
    faults: FaultLog = http.app.state.faults
    faults.warn(f"{who!a} may not review here: {lacks}")
    return HTTPException(403, message)


def return_address(http: Http, wanted: str) -> str:
    """Return the page that somebody wanted before signing in, if it is one of this server, else the inbox."""
    home = path_to(http)
    is_plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted and len(wanted) <= _LONGEST_ADDRESS
    # `//evil.example` is another host's address, and browsers read a backslash as a slash.
    return wanted if is_plain and wanted.startswith(home) and not wanted.startswith("//") else home


def set_cookie(
    http: Http, response: Response, what: str, value: str | None, *, strict: bool = False,
    lasts: timedelta | None = None,
) -> None:  # fmt: skip
    """Set a cookie that no script can read and no form of another site sends; None deletes it.

    Without `lasts` it ends with the browser.
    """
    settings = settings_of(http)
    name, is_https = settings.cookie(http, what)
    response.set_cookie(
        name, value or "", max_age=0 if not value else None if lasts is None else int(lasts.total_seconds()),
        path="/", httponly=True, secure=is_https,
        samesite="strict" if strict else "lax",
    )  # fmt: skip


def device_key(http: Http) -> str | None:
    """Return the key of this browser's device (`sayso.server.push`), if notifications were turned on there."""
    return http.cookies.get(settings_of(http).cookie(http, DEVICE_COOKIE)[0])


def signed_in_at_device(http: Http, reviewer: Reviewer) -> None:
    """Keep this browser's device for who has signed in, and have nobody else's told there any more."""
    push: Push = http.app.state.push
    push.signed_in(reviewer, device_key(http))


def accepts_gzip(http: Http) -> bool:
    """Say whether a browser reads gzip."""
    offered = (part.partition(";") for part in http.headers.get("accept-encoding", "").casefold().split(","))
    return any(
        name.strip() == "gzip" and quality.replace(" ", "") not in {"q=0", "q=0.0"} for name, _, quality in offered
    )


def _compressed(http: Http, response: Response) -> Response:
    """Compress a page, if one of our own pages, or the person at the browser, asked for it.

    The length of a compressed page tells of its secrets to whoever can have words of theirs put beside them again and
    again (BREACH). Another site can do that only by requests of its own, and a browser marks those.
    """
    is_ours = http.headers.get("sec-fetch-site") in {"same-origin", "none"}
    if not (is_ours and accepts_gzip(http)) or response.media_type != "text/html":
        return response
    if len(response.body) >= _WORTH_COMPRESSING and "content-encoding" not in response.headers:
        response.body = gzip.compress(response.body, _LEVEL)
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(response.body))
    return response


def get_route(page: Callable[[RequestContext], Response]) -> Endpoint:
    """Make a route of a function that changes nothing."""

    async def route(http: Http) -> Response:
        session = await signed_in(http)
        context = RequestContext(http, session, ImmutableMultiDict[str, str]())
        response = await run_in_threadpool(lambda: _compressed(http, page(context)))
        if http.cookies.get(settings_of(http).cookie(http)[0]) != session.id:
            set_cookie(http, response, "sayso", session.id)
            await run_in_threadpool(signed_in_at_device, http, session.reviewer)
        return response

    return route


def post_route(act: Callable[[RequestContext], Response]) -> Endpoint:
    """Make a route of a function that changes something, for forms of our own pages only."""

    async def route(http: Http) -> Response:
        if not is_same_origin(http):
            raise HTTPException(403, say("this did not come from a page of this inbox; nothing was decided"))
        session = await signed_in(http)
        form = await read_form(http, is_known=True)
        if not session.is_mine(form.get("csrf", "")):
            raise HTTPException(403, say("this form is not of your session any more; nothing was decided"))
        context = RequestContext(http, session, form)
        return await run_in_threadpool(lambda: _compressed(http, act(context)))

    return route
