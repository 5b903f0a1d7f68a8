"""The routes that sign people in and out: login links, the OpenID flow, and logout.

A login link and the redirect from an OpenID provider both open a page with a button that signs in, so that a mail
scanner or a prefetching browser does not use the link. The state of an OpenID flow (`state`, nonce, PKCE verifier, the
page to return to) is in a signed cookie, so the server stores nothing for people who never return. A flow completes
only once, within ten minutes, and in the browser that started it. Signing in always creates a new session id and ends
the browser's previous session.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso.model.ids import new_token
from sayso.model.reviewer import Reviewer
from sayso.model.text import escape, later, say
from sayso.server import context
from sayso.server.api.problems import FaultLog, Problem
from sayso.server.auth.sign_in import Provider, SignInError
from sayso.server.pages.rendering import render_public
from sayso.server.protection import Rate
from sayso.server.web_push import Push

_log = logging.getLogger("sayso.server")
T = TypeVar("T")

_PURPOSE, _COOKIE, _LASTS = "openid flow", "sayso-openid", timedelta(minutes=10)
AT_PROVIDER = 8  # concurrent requests to the provider
_ANSWER = ("code", "state", "iss", "error")
_LINK_REFUSED = {  # what the page says, and what the log says
    "foreign": (
        later("This is not a login link of this server, or it was not copied completely. Nobody was signed in."),
        "it was not signed with this server's secret; create links with the server's store and SAYSO_SECRET",
    ),
    "ended": (later("This login link has expired. Nobody was signed in."), "it has expired"),
    "used": (later("This login link was already used; each works once. Nobody was signed in."), "it was used before"),
}
_NO_FLOW = later("this sign-in did not begin in this browser, was used, or took too long; start again from the inbox")


async def link_page(http: Http) -> Response:
    """Show the button that begins a session."""
    token = http.query_params.get("token")
    if token is None:
        raise HTTPException(401)
    return render_public(http, "login.html", token=token)


async def use_link(http: Http) -> Response:
    """Begin a session with a login link."""
    settings = context.settings_of(http)
    token = (await _sign_in_form(http)).get("token", "")
    if not settings.sign_in.has_links:
        raise HTTPException(403, say("this inbox does not use login links; nobody was signed in"))
    found = await run_in_threadpool(settings.links.use, token)
    if isinstance(found, Reviewer):
        on_used: Callable[[str], None] | None = http.app.state.on_link_used
        if on_used is not None:
            on_used(token)
        return await run_in_threadpool(_start_session, http, found, context.path_to(http))
    if await run_in_threadpool(context.session_of, http) is not None:
        # This browser used the link: a second click, or a click after going back.
        return context.redirect(context.path_to(http))
    shown, logged = _LINK_REFUSED[found]
    fault = _count_failure(http, HTTPException(401, say(shown)))
    if fault.status_code == 401:
        faults: FaultLog = http.app.state.faults
        faults.warn(f"a login link was refused: {logged}; from {escape(settings.sender(http))}")
    raise fault


async def _sign_in_form(http: Http) -> context.Form:
    """Return the form of a person who is not signed in yet, with tight limits on its size and on the rate per address.

    A form from another site is refused: it could sign a person in as somebody else, unnoticed (login CSRF).
    """
    settings = context.settings_of(http)
    rate: Rate = http.app.state.stranger_rate
    try:
        rate.count(f"form {settings.sender(http)}")  # before anything is read
    except Problem as fault:
        raise HTTPException(429, fault.detail, fault.headers) from None
    if not context.is_same_origin(http):
        raise HTTPException(403, say("this request did not come from a page of this inbox; nobody was signed in"))
    return await context.read_form(http, is_known=False)


def _start_session(http: Http, person: Reviewer, where: str) -> Response:
    """Begin the session of a person who has authenticated, and redirect the browser."""
    settings = context.settings_of(http)
    if not settings.sign_in.admits(person):
        raise context.not_admitted(http, person)
    name = settings.cookie(http)[0]
    before = settings.sessions.find(http.cookies.get(name))
    if before is not None:
        settings.sessions.end(before)
    response = context.redirect(where)
    context.set_cookie(http, response, "sayso", settings.sessions.begin(person).id)
    context.signed_in_at_device(http, person)
    return response


def _count_failure(http: Http, fault: HTTPException) -> HTTPException:
    """Count a failed attempt and return the error to raise: 429 if there were too many from one address.

    The limit never delays a valid attempt, or a client that shares a person's address could lock them out.
    """
    settings = context.settings_of(http)
    try:
        settings.failures.count(settings.sender(http))
    except Problem as problem:
        message = say("too many attempts to sign in failed; nobody was signed in, try again later")
        return HTTPException(429, message, problem.headers)
    return fault


def logout(page: context.RequestContext) -> Response:
    """End the session."""
    page.settings.sessions.end(page.session)
    push: Push = page.http.app.state.push
    push.remove(page.reviewer, context.device_key(page.http) or "")  # no more notifications in this browser
    page.http.app.state.live_pages.wake()  # other tabs of this browser show it at once
    response = render_public(page.http, "signed_out.html")
    for what in ("sayso", context.DEVICE_COOKIE):
        context.set_cookie(page.http, response, what, None)
    return response


async def oidc_start(http: Http) -> Response:
    """Show the page that sends the browser to the provider."""
    form = await _sign_in_form(http)
    provider, signer = _provider(http), context.settings_of(http).signer
    where = context.return_address(http, form.get("next", ""))
    flow = {name: new_token() + new_token() for name in ("state", "nonce", "verifier")}
    try:
        address = await _with_provider(http, partial(provider.address, back=_redirect_uri(http), **flow))
    except SignInError as fault:
        raise _public_error(http, fault) from fault
    # A page, not a redirect: the policy `form-action 'self'` would block a form that redirects to another site.
    response = render_public(http, "depart.html", address=address, provider=provider.oidc.name)
    cookie = await run_in_threadpool(signer.sign, _PURPOSE, {**flow, "next": where}, _LASTS)
    context.set_cookie(http, response, _COOKIE, cookie, strict=True)
    return response


async def oidc_callback(http: Http) -> Response:
    """Show the button that submits the provider's answer."""
    provider = _provider(http)
    answer = {name: http.query_params.get(name, "") for name in _ANSWER}
    return render_public(http, "arrive.html", answer=answer, provider=provider.oidc.name)


async def oidc_finish(http: Http) -> Response:
    """Begin a session with the provider's answer."""
    answer = dict(await _sign_in_form(http))
    flow = await run_in_threadpool(_take_flow, http, answer.get("state", ""))
    if flow is None:
        if await run_in_threadpool(context.session_of, http) is not None:  # a click after going back, or in another tab
            return context.redirect(context.path_to(http))
        raise _count_failure(http, HTTPException(403, say(_NO_FLOW)))
    if answer.get("error"):
        raise _count_failure(
            http,
            HTTPException(403, say("the provider signed nobody in: %(fault)s", fault=escape(answer["error"][:200]))),
        )
    ask = partial(
        _provider(http).reviewer, answer.get("code", ""), sender=answer.get("iss") or None, back=_redirect_uri(http),
        nonce=flow["nonce"], verifier=flow["verifier"],
    )  # fmt: skip
    try:
        person = await _with_provider(http, ask)
    except SignInError as fault:
        refusal = _public_error(http, fault)
        raise (refusal if fault.is_away else _count_failure(http, refusal)) from fault
    response = await run_in_threadpool(_start_session, http, person, context.return_address(http, flow["next"]))
    context.set_cookie(http, response, _COOKIE, None)
    return response


async def _with_provider(http: Http, ask: Callable[[], T]) -> T:
    """Run `ask` in one of a few threads, so that a provider that hangs does not take the pages' threads."""
    threads: CapacityLimiter = http.app.state.provider_threads
    return await to_thread.run_sync(ask, limiter=threads)


def _take_flow(http: Http, state: str) -> dict[str, Any] | None:
    """Mark this browser's OpenID flow as used and return it; None if there is none, it differs or was used."""
    settings = context.settings_of(http)
    flow = settings.signer.read(_PURPOSE, http.cookies.get(settings.cookie(http, _COOKIE)[0], ""))
    if flow is None or not hmac.compare_digest(flow["state"].encode(), state.encode()):
        return None
    return flow if settings.signer.use_once(flow) else None


def _public_error(http: Http, fault: SignInError) -> HTTPException:
    _log.warning("%s; from %s", escape(str(fault)), escape(context.settings_of(http).sender(http)))
    if fault.is_away:
        return HTTPException(503, say("the provider does not answer; nobody was signed in. Try again in a moment"))
    return HTTPException(
        403, say("the provider's answer is not valid; nobody was signed in, and the server's log says why")
    )


def _provider(http: Http) -> Provider:
    provider = context.settings_of(http).sign_in.provider
    if provider is None:
        raise HTTPException(404)
    return provider


def _redirect_uri(http: Http) -> str:
    return context.settings_of(http).origin(http) + context.path_to(http, "login", "openid")
