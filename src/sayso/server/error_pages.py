"""Errors as pages with their status: not signed in, not found, not allowed, not valid.

A refused decision is shown on the request's own page instead (`sayso.server.pages.request`). The page of an unexpected
error says nothing about it; the log does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import PlainTextResponse, Response

from sayso import errors
from sayso.model.escaping import escape
from sayso.server.api.problems import kind_of
from sayso.server.context import settings_of
from sayso.server.hosts import HEADERS
from sayso.server.pages.rendering import render_public

__all__ = ["HANDLERS"]

_log = logging.getLogger("sayso.server")

_TITLES = {
    400: "Bad request", 401: "Sign in", 403: "Not allowed", 404: "Page not found", 405: "Method not allowed",
    408: "The form took too long", 409: "Already changed", 412: "Already changed", 413: "The form is too large",
    415: "Not a form of this inbox", 422: "Invalid input", 429: "Too many requests", 503: "Service unavailable",
}  # fmt: skip


def _page(http: Http, status: int, message: str) -> Response:
    return render_public(
        http, "fault.html", status=status, title=_TITLES.get(status, "Something went wrong"), message=message
    )


def _of_http(http: Http, fault: Exception) -> Response:
    fault = cast("HTTPException", fault)
    if fault.status_code == 401:
        stranger: Callable[[], None] | None = http.app.state.on_stranger
        if stranger is not None:
            stranger()
        return _stranger(http, has_terminal=stranger is not None)
    response = _page(http, fault.status_code, escape(fault.detail))
    response.headers.update(fault.headers or {})
    return response


def _stranger(http: Http, *, has_terminal: bool) -> Response:
    sign_in = settings_of(http).sign_in
    wanted = f"{http.url.path}?{http.url.query}".removesuffix("?") if http.method == "GET" else ""
    return render_public(
        http, "stranger.html", status=401, has_terminal=has_terminal, has_links=sign_in.has_links, wanted=wanted,
        provider=None if sign_in.provider is None else sign_in.provider.oidc.name,
    )  # fmt: skip


def _of_sayso(http: Http, fault: Exception) -> Response:
    fault = cast("errors.SaysoError", fault)
    status = kind_of(type(fault)).status
    if status >= 500:
        _log.error("%s %s: %s", http.method, http.url.path, fault)
    return _page(http, status, escape(str(fault)))


def _unforeseen(http: Http, fault: Exception) -> Response:
    # This is made outside of the guard, so that the headers have to be put on here. The fault is logged by the server.
    _log.error("%s %s failed: %s", http.method, http.url.path, type(fault).__name__)
    return PlainTextResponse("something went wrong here; the log says more\n", status_code=500, headers=HEADERS)


HANDLERS = {HTTPException: _of_http, errors.SaysoError: _of_sayso, Exception: _unforeseen}
