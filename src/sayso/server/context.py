"""The context of one browser request: the settings, the session, and the form that it sends.

`get_route` makes a route from a function that shows a page, `post_route` from one that changes something. Only the
second accepts a form, and only if the Origin header, the session and the form's CSRF token match: a change must come
from a page of this server, sent in the session in which that page was shown.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import RedirectResponse, Response

from sayso import clock, errors
from sayso.effects import in_forked_child
from sayso.model import cached_property
from sayso.model.request import Request, State
from sayso.model.reviewer import Delegation, Identity, Reviewer
from sayso.model.text import Language, choose, later, say
from sayso.reviews import Review
from sayso.server.api.problems import FaultLog, Problem
from sayso.server.auth.sessions import Links, Session, Sessions, TokenSigner
from sayso.server.auth.sign_in import FAILURES, SignIn, sender_of
from sayso.server.language import language_of
from sayso.server.protection import Rate, read_bytes
from sayso.server.web_push import Push
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_with
from sayso.stores.transaction import lapsed

Form = ImmutableMultiDict[str, str]
Endpoint = Callable[[Http], Awaitable[Response]]

_LONGEST_FORM = 8_000_000  # bytes: a call of one megabyte with every character escaped
_LONGEST_OF_STRANGER = 16_000
_TIMEOUT, _TIMEOUT_OF_STRANGER = 60.0, 10.0  # seconds for a form to arrive
_MOST_FIELDS = 5_000
_large_form = threading.Lock()  # parsing takes a hundred times the form's size in memory: one large form at a time
_LONGEST_ADDRESS = 500
DEVICE_COOKIE = "sayso-device"
_WORTH_COMPRESSING, _LEVEL = 1_000, 5
_TESTS = "10/minute"


@in_forked_child
def _after_fork() -> None:
    global _large_form  # noqa: PLW0603  the thread that holds the lock may be missing in a forked child
    _large_form = threading.Lock()


@dataclass(frozen=True)
class Settings:
    """The store, the settings and the limits of one server.

    Attributes:
        base_url: The public address; None takes it from each request's Host header.
        who: Returns the person signed in to the surrounding application or proxy; None if the inbox signs people in.
        failures: How often one address may fail to sign in.
        tests: How often one person may send a test message, through a channel or to a device.
        undo_within: How long an approval in the inbox can be undone; its call does not start before.
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
        """Return the full name of a cookie (by default the session's), and whether it is sent over https only."""
        if self.origin(http).startswith("https:"):
            return f"__Host-{what}", True
        return f"{what}-{http.url.port or 80}", False  # browsers share a host's cookies between ports

    def sender(self, http: Http) -> str:
        """Return the client's IP address, or its /64 network for IPv6; with a trusted proxy, the one it reports."""
        if self.sign_in.proxy is not None:
            return self.sign_in.proxy.origin_of(http)
        return sender_of(http.client.host if http.client else "")

    def origin(self, http: Http) -> str:
        """Return the origin of this server's pages as browsers write it, without the scheme's default port."""
        parts = urlsplit(self.base_url or str(http.url))
        host = parts.netloc.rpartition("@")[2].removesuffix(":443" if parts.scheme == "https" else ":80")
        return f"{parts.scheme}://{host}".casefold()


def settings_of(http: Http) -> Settings:
    """Return the settings of the server that handles a request."""
    return http.app.state.settings


class RequestContext:
    """A request of a person who is signed in, and the `Review` that decides in their name."""

    def __init__(self, http: Http, session: Session, form: Form) -> None:
        self.http, self.session, self.form = http, session, form
        self.settings = settings_of(http)

    @cached_property
    def review(self) -> Review:
        """What this person may see and decide. Reading through it writes nothing."""
        return self.review_on(self.settings.store)

    def review_on(self, store: Store, *, channel: str = "web") -> Review:
        """Return the same as `review`, on a view of the store (`Store.together`) or through another channel."""
        return Review(
            store, reviewer=self.session.reviewer, channel=channel, sweeps=False,
            undo_within=self.settings.undo_within,
        )  # fmt: skip

    @property
    def reviewer(self) -> Reviewer:
        """The person who is signed in."""
        return self.session.reviewer

    @cached_property
    def delegations(self) -> Sequence[Delegation]:
        """The current delegations: who is away, and who stands in for them."""
        return self.review.delegations()

    @cached_property
    def stood_in_for(self) -> list[Identity]:
        """The people for whom this person stands in now."""
        return [one.by for one in self.delegations if one.to.is_same(self.reviewer.identity)]

    @cached_property
    def approved(self) -> frozenset[str]:
        """The pending requests that this person has approved and that wait for others; not in their own list."""
        me = self.reviewer.identity.folded
        return frozenset(request_id for request_id, by in self.settings.store.voters().items() if me in by)

    @cached_property
    def snoozed(self) -> Mapping[str, datetime]:
        """The pending requests that this person has snoozed, and until when; not in their own list."""
        return self.review.snoozed()

    @cached_property
    def pending_count(self) -> int:
        """How many requests are in this person's list: neither snoozed, nor approved by them and left to others."""
        return self.settings.store.count(pending_filter()) - len(self.approved | self.snoozed.keys())

    def has_claimed(self, request: Request) -> bool:
        """Return whether this person, or one for whom they stand in, has claimed a request."""
        claimed = request.claimed_by
        return claimed is not None and any(claimed.is_same(one) for one in (self.reviewer.identity, *self.stood_in_for))

    def find(self, request_id: str) -> Request | None:
        """Return the request of an id that a page names; None if there is no such request."""
        try:
            return self.review.get(request_id) if request_id else None
        except (errors.RequestNotFoundError, errors.AmbiguousIdError):
            return None

    def get_each(self, request_ids: Sequence[str]) -> list[Request]:
        """Return requests as `Review.get` does, which also raises for them; those with full ids are read together."""
        now, known = clock.now(), {one.id: one for one in requests_with(self.settings.store, request_ids)}
        # The others are few: ids that were shortened, and requests that time or a dead worker may have changed.
        current = {one.id for one in known.values() if one.state is not State.RUNNING and lapsed(one, now) is None}
        return [known[one] if one in current else self.review.get(one) for one in request_ids]

    def query(self, name: str) -> str:
        """Return a query parameter; empty if it is absent."""
        return self.http.query_params.get(name, "").strip()

    def field(self, name: str) -> str | None:
        """Return the text of a form field; None if it is empty."""
        return self.form.get(name, "").replace("\r\n", "\n").strip() or None

    def count_test(self) -> None:
        """Count a test message of this person; raises `HTTPException` if they exceed the limit."""
        try:
            self.settings.tests.count(self.reviewer.identity.folded)
        except Problem as problem:
            message = say("you sent many test messages just now; nothing was sent, try again in a minute")
            raise HTTPException(429, message, problem.headers) from None

    def path(self, *steps: str, **asked: str) -> str:
        """Return the address of a page of this server, as `path_to` does."""
        return path_to(self.http, *steps, **asked)


def pending_filter() -> Filter:
    """Return the filter of pending requests, without those past their expiry that are not recorded as expired yet."""
    return Filter(states=frozenset({State.PENDING}), at=clock.now())


def path_to(http: Http, *steps: str, **asked: str) -> str:
    """Return the address of a page of this server, including the path where it is mounted."""
    root = str(http.scope.get("root_path", "")).rstrip("/")
    way = f"{root}/" + "/".join(quote(step, safe="") for step in steps)
    words = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items() if value)
    return f"{way}?{words}" if words else way


def redirect(where: str) -> Response:
    """Redirect a browser after a change, so that a reload does not repeat it."""
    return RedirectResponse(where, status_code=303)


def session_of(http: Http, *, begins: bool = True) -> Session | None:
    """Return the session of a browser; if `who` is set, it alone decides. Reads the store.

    Where `who` is set, a session begins if there is none, unless `begins` is false, as for the API.

    Raises:
        HTTPException: The person may not review here, and a session would begin.
    """
    settings = settings_of(http)
    cookie = http.cookies.get(settings.cookie(http)[0])
    if settings.who is None:
        return settings.sessions.find(cookie)
    person = settings.who(http)
    if person is None:
        return None
    if not settings.sign_in.admits(person):
        if begins:
            raise not_admitted(http, person)
        return None
    found = settings.sessions.find_unrecorded(cookie, person)
    return settings.sessions.begin_unrecorded(person) if found is None and begins else found


async def signed_in(http: Http) -> Session:
    """Return the session of a browser, and switch to the person's language. Raises `HTTPException` without one."""
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
    """Return whether a session is still open, without counting as a use of it. Reads the store."""
    settings = settings_of(http)
    return clock.now() < session.ends if settings.who is not None else settings.sessions.is_open(session)


def is_same_origin(http: Http) -> bool:
    """Return whether a page of this server sent a request. Every browser sends its Origin with a POST."""
    settings = settings_of(http)
    return http.headers.get("origin", "").casefold() == settings.origin(http)


async def read_form(http: Http, *, is_known: bool) -> Form:
    """Return the fields of a form, parsed in a thread so as not to block the loop; raises `HTTPException`."""
    longest, patience = (_LONGEST_FORM, _TIMEOUT) if is_known else (_LONGEST_OF_STRANGER, _TIMEOUT_OF_STRANGER)
    if http.headers.get("content-type", "").partition(";")[0].strip().casefold() != "application/x-www-form-urlencoded":
        raise HTTPException(415, say("a form of this inbox is needed"))
    try:
        body = await read_bytes(http, longest=longest, patience=patience)
    except Problem as problem:
        why = say("the form is too long: it may have %(most)s bytes; nothing was done", most=f"{longest:,}")
        if problem.kind.status == HTTPStatus.REQUEST_TIMEOUT:
            why = say("the form did not arrive within %(count)s s; nothing was done", count=f"{patience:.0f}")
        raise HTTPException(problem.kind.status, why) from None
    return await run_in_threadpool(_parse_form, body)


def _parse_form(body: bytes) -> Form:
    with nullcontext() if len(body) <= _LONGEST_OF_STRANGER else _large_form:
        try:
            return ImmutableMultiDict(parse_qsl(
                body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS,
                separator="&",
            ))  # fmt: skip
        except ValueError:
            raise HTTPException(400, say("the form could not be read")) from None


def not_admitted(http: Http, person: Reviewer) -> HTTPException:
    """Return the error for a person who is signed in but may not review here, and log why."""
    role, who = settings_of(http).sign_in.role, str(person.identity)
    if role is not None and role not in person.roles:
        roles = ", ".join(map(ascii, sorted(person.roles))) or "none"
        lacks = f"required_role is {role!a}, and their roles are {roles}"
        why = later("you are %(who)s, and cannot review here without the role %(role)s; nothing was decided")
    else:
        lacks = f"reviewers does not list {person.identity.qualified!a}"
        why = later(
            "you are %(who)s, and cannot review here: you are not on the list of reviewers; nothing was decided"
        )
    faults: FaultLog = http.app.state.faults
    faults.warn(f"{who!a} may not review here: {lacks}")
    return HTTPException(403, say(why, who=who, role=role))


def return_address(http: Http, wanted: str) -> str:
    """Return the page that a person asked for before signing in if it is on this server, else the inbox."""
    home = path_to(http)
    is_plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted and len(wanted) <= _LONGEST_ADDRESS
    # Prevents an open redirect: `//evil.example` is another host, and browsers read a backslash as a slash.
    return wanted if is_plain and wanted.startswith(home) and not wanted.startswith("//") else home


def set_cookie(
    http: Http, response: Response, what: str, value: str | None, *, strict: bool = False,
    lasts: timedelta | None = None,
) -> None:  # fmt: skip
    """Set a cookie that scripts cannot read and that forms of other sites do not send; None deletes it.

    Without `lasts` it is a session cookie, which the browser deletes when it closes.
    """
    settings = settings_of(http)
    name, is_https = settings.cookie(http, what)
    response.set_cookie(
        name, value or "", max_age=0 if not value else None if lasts is None else int(lasts.total_seconds()),
        path="/", httponly=True, secure=is_https,
        samesite="strict" if strict else "lax",
    )  # fmt: skip


def device_key(http: Http) -> str | None:
    """Return the key of this browser's device (`sayso.server.web_push`); None if notifications are off there."""
    return http.cookies.get(settings_of(http).cookie(http, DEVICE_COOKIE)[0])


def signed_in_at_device(http: Http, reviewer: Reviewer) -> None:
    """Extend this browser's device if it is this person's, else remove it, so it shows nobody else's notifications."""
    push: Push = http.app.state.push
    push.signed_in(reviewer, device_key(http))


def accepts_gzip(http: Http) -> bool:
    """Return whether a browser accepts gzip."""
    offered = (part.partition(";") for part in http.headers.get("accept-encoding", "").casefold().split(","))
    return any(
        name.strip() == "gzip" and quality.replace(" ", "") not in {"q=0", "q=0.0"} for name, _, quality in offered
    )


def _compressed(http: Http, response: Response) -> Response:
    """Compress a page, if this server's own page or the person at the browser requested it.

    The compressed length reveals a page's secrets to an attacker who can repeatedly place chosen text on it (BREACH).
    Another site can do that only with cross-site requests, and the browser marks those in `Sec-Fetch-Site`.
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
    """Make a route from a function that changes nothing."""

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
    """Make a route from a function that changes something. It accepts only forms of this server's own pages."""

    async def route(http: Http) -> Response:
        if not is_same_origin(http):
            raise HTTPException(403, say("this request did not come from a page of this inbox; nothing was decided"))
        session = await signed_in(http)
        form = await read_form(http, is_known=True)
        if not session.has_csrf(form.get("csrf", "")):
            raise HTTPException(403, say("this form is from another session; nothing was decided. Reload the page"))
        context = RequestContext(http, session, form)
        return await run_in_threadpool(lambda: _compressed(http, act(context)))

    return route
