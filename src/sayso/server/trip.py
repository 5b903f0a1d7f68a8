"""The way to an OpenID provider and back, on which a person signs in there.

What belongs to one way (the state, the nonce, the PKCE verifier, where the person wanted to go) is signed and lies in
a cookie of the browser that set out, so the server keeps nothing for those who never come back. The provider's answer
opens a page whose button takes it, so that GET changes nothing here either. The invariant: an answer counts in the
browser that set out, with the state that it set out with, once, and within ten minutes.
"""

from __future__ import annotations

import hmac
import logging
from datetime import timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso.model.ids import new_token
from sayso.model.reviewer import Reviewer
from sayso.model.text import escape
from sayso.server.login import begun, failed, strangers_form
from sayso.server.oidc import Provider, SignInError
from sayso.server.page import render_outside
from sayso.server.visit import Settings, path_to, see_other, session_of, set_cookie, way_on

__all__ = ["arrive", "depart", "take"]

_PURPOSE, _COOKIE, _LASTS = "openid trip", "sayso-trip", timedelta(minutes=10)
_ANSWER = ("code", "state", "iss", "error")
_ASTRAY = "this sign-in did not begin in this browser, was used, or took too long; start again from the inbox"

_log = logging.getLogger("sayso.server")


async def depart(http: Http) -> Response:
    """Send the browser to the provider."""
    form = await strangers_form(http)
    provider, settings = _provider(http), _settings(http)
    where = way_on(http, form.get("next", ""))
    trip = {"state": _random(), "nonce": _random(), "verifier": _random()}
    try:
        address = await run_in_threadpool(provider.address, back=_back(http), **trip)
    except SignInError as fault:
        raise _told(http, fault) from fault
    # By a page and not by a redirect: a browser would hold that against `form-action 'self'`.
    response = render_outside(http, "depart.html", address=address, provider=provider.oidc.name)
    cookie = await run_in_threadpool(settings.stamps.sign, _PURPOSE, {**trip, "next": where}, _LASTS)
    set_cookie(http, response, _COOKIE, cookie, strict=True)
    return response


async def arrive(http: Http) -> Response:
    """Show the button that takes the provider's answer."""
    provider = _provider(http)
    answer = {name: http.query_params.get(name, "") for name in _ANSWER}
    return render_outside(http, "arrive.html", answer=answer, provider=provider.oidc.name)


async def take(http: Http) -> Response:
    """Begin a session by the provider's answer."""
    answer = dict(await strangers_form(http))
    trip = await run_in_threadpool(_trip, http, answer.get("state", ""))
    if trip is None:
        if session_of(http) is not None:  # the button after going back, or of another tab
            return see_other(path_to(http))
        raise failed(http, HTTPException(403, _ASTRAY))
    if answer.get("error"):
        raise failed(http, HTTPException(403, f"the provider signed nobody in: {escape(answer['error'][:200])}"))
    try:
        person = await run_in_threadpool(_person, http, answer, trip)
    except SignInError as fault:
        told = _told(http, fault)
        raise (told if fault.is_away else failed(http, told)) from fault
    response = begun(http, person, way_on(http, trip["next"]))
    set_cookie(http, response, _COOKIE, None)
    return response


def _person(http: Http, answer: dict[str, str], trip: dict[str, Any]) -> Reviewer:
    provider = _provider(http)
    provider.check_sender(answer.get("iss") or None)
    return provider.reviewer(answer.get("code", ""), back=_back(http), nonce=trip["nonce"], verifier=trip["verifier"])


def _trip(http: Http, state: str) -> dict[str, Any] | None:
    """Use up the way on which this browser is; None where it is on none, or on another one."""
    settings = _settings(http)
    trip = settings.stamps.read(_PURPOSE, http.cookies.get(settings.cookie(http, _COOKIE)[0], ""))
    if trip is None or not hmac.compare_digest(trip["state"].encode(), state.encode()):
        return None
    return trip if settings.stamps.spend(trip) else None


def _told(http: Http, fault: SignInError) -> HTTPException:
    _log.warning("%s; from %s", escape(str(fault)), escape(_settings(http).sender(http)))
    if fault.is_away:
        return HTTPException(503, "the provider does not answer; nobody was signed in, try again in a moment")
    return HTTPException(
        403, "the provider's answer cannot be believed; nobody was signed in, and the server's log says why"
    )


def _provider(http: Http) -> Provider:
    provider = _settings(http).sign_in.provider
    if provider is None:
        raise HTTPException(404)
    return provider


def _back(http: Http) -> str:
    return _settings(http).origin(http) + path_to(http, "login", "openid")


def _settings(http: Http) -> Settings:
    return http.app.state.settings


def _random() -> str:
    return new_token() + new_token()
