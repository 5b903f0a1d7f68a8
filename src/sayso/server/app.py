"""The ASGI application: its routes, those of the API with their OpenAPI document, shared state, and error pages.

`create_app` is all that a program needs to mount it; `sayso serve` is one such program. No route changes anything on
GET. Errors become pages with their status, except a refused decision, which the request's own page shows. The page of
an unexpected error gives no details; the log has them.

The OpenAPI 3.1 document is generated from the endpoints and the pydantic models of their JSON; no schema is written by
hand. Invariant: it lists every answer of an endpoint, including errors. Everything below `/api` answers in JSON, and a
client without a valid token cannot find out which paths exist.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from http import HTTPStatus
from itertools import groupby
from typing import Any, cast
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.datastructures import Headers, ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from sayso import __version__, config, errors
from sayso.model import duration
from sayso.model.reviewer import Reviewer
from sayso.model.text import choose, escape, later, say, speaking, spoken, unisolated
from sayso.server import live, metrics
from sayso.server.api import aap, events, problems, program, review
from sayso.server.api.endpoint import Api, Context, Endpoint, Router
from sayso.server.api.events import Broadcaster, EventLog
from sayso.server.api.messages import ProblemDocument
from sayso.server.api.problems import FaultLog, kind_of
from sayso.server.auth import login
from sayso.server.auth.sessions import PRINTED, Sessions, TokenSigner
from sayso.server.auth.sign_in import SignIn
from sayso.server.auth.tokens import Tokens
from sayso.server.context import RequestContext, Settings, get_route, post_route, session_of, settings_of
from sayso.server.hooks import Hooks, receive
from sayso.server.language import asked_for, language_of
from sayso.server.pages import actions, insights, listing
from sayso.server.pages import grants as grant_pages
from sayso.server.pages import request as request_page
from sayso.server.pages import runs as run_pages
from sayso.server.pages import settings as settings_page
from sayso.server.pages.rendering import assets, error_text, has_error_text, render, render_public
from sayso.server.protection import LOOPBACK, Guard, InFlight, Rate
from sayso.server.web_push import Push
from sayso.server.writer import Writer
from sayso.stores.base import Store
from sayso.stores.http_messages import Message

__all__ = ["codes_of", "create_app", "document", "endpoints", "login_path"]


_Schemas = dict[type[BaseModel], dict[str, Any]]

_ALWAYS = (
    "not_signed_in", "rate_limited", "internal", "store", "store_busy", "store_corrupt", "store_full",
    "store_read_only", "store_sealed", "store_unavailable", "store_version",
)  # fmt: skip
_TEXT = {"type": "string"}
_WITH_BODY = ("invalid_json", "body_too_large", "wrong_content_type", "invalid_input", "not_from_here")


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of these endpoints."""
    endpoints = list(endpoints)
    schemas: _Schemas = {}
    definitions: dict[str, Any] = {}
    modes = {each.answer: "serialization" for each in endpoints} | {each.input: "validation" for each in endpoints}
    modes = {model: mode for model, mode in modes.items() if model is not None} | {ProblemDocument: "serialization"}
    # The programs' messages get a prefix, because some share a name with the reviewers' messages.
    for is_programs, prefix in ((True, "Program"), (False, "")):
        wanted: list[Any] = [each for each in modes.items() if issubclass(each[0], Message) is is_programs]
        if wanted:
            refs, found = models_json_schema(wanted, ref_template=f"#/components/schemas/{prefix}{{model}}")
            schemas |= {model: ref for (model, _), ref in refs.items()}  # pyright: ignore[reportAssignmentType]
            definitions |= {prefix + name: schema for name, schema in found["$defs"].items()}
    paths: dict[str, Any] = {}
    for each in endpoints:
        path = re.sub(r":\w+}", "}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, schemas, definitions)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sayso", "version": __version__,
            "description": "Requests, decisions and outcomes. The kind of a token determines what it may do.",
        },
        "servers": [{"url": "/api"}],
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Create one with `sayso token new`."}
            },
        },
        "security": [{"token": []}],
    }  # fmt: skip


def _operation(endpoint: Endpoint, schemas: _Schemas, definitions: dict[str, Any]) -> dict[str, Any]:
    kinds, takes_query = sorted(endpoint.kinds), endpoint.method == "GET"
    names = re.findall(r"{(\w+)", endpoint.path)
    parameters: list[dict[str, Any]] = [{"name": one, "in": "path", "required": True, "schema": _TEXT} for one in names]
    if endpoint.input is not None and takes_query:
        query = definitions[schemas[endpoint.input]["$ref"].rpartition("/")[2]]
        for name, field in query.get("properties", {}).items():
            schema = {**field}
            description, is_needed = schema.pop("description", ""), name in query.get("required", ())
            parameters.append(
                {"name": name, "in": "query", "required": is_needed, "schema": schema, "description": description}
            )
    parameters += [
        {"name": name, "in": "header", "required": False, "schema": _TEXT, "description": description}
        for name, description in endpoint.reads.items()
    ]
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": f"For tokens of the kind {', '.join(kinds)}.",
        "x-token-kinds": kinds,
        "parameters": parameters,
        "responses": _answers(endpoint, schemas),
    }
    if endpoint.input is not None and not takes_query:
        content = {"application/json": {"schema": schemas[endpoint.input]}}
        is_needed = any(field.is_required() for field in endpoint.input.model_fields.values())
        found["requestBody"] = {"required": is_needed, "content": content}
    return found


def _answers(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if endpoint.answer is not None:
        good["content"] = {endpoint.media_type: {"schema": schemas[endpoint.answer]}}
    elif endpoint.media_type != "application/json":
        good["content"] = {endpoint.media_type: {"schema": {"type": "string"}}}
    found = {"200": good} | {str(status): {"description": text} for status, text in endpoint.also.items()}
    kinds = sorted((problems.kinds()[code] for code in codes_of(endpoint)), key=lambda kind: kind.status)
    for status, some in groupby(kinds, lambda kind: kind.status):
        description = "; ".join(f"`{kind.code}`: {kind.title}" for kind in some)
        content = {problems.MEDIA_TYPE: {"schema": schemas[ProblemDocument]}}
        found[str(status)] = {"description": description, "content": content}
    return found


def codes_of(endpoint: Endpoint) -> list[str]:
    """Return the codes of all problems that an endpoint may return."""
    found = [*_ALWAYS, "wrong_token_kind", "not_admitted", "invalid_input", *endpoint.problems]
    if endpoint.method != "GET":
        found += ["not_from_here"]
        found += [] if endpoint.input is None else _WITH_BODY
    return list(dict.fromkeys(found))


_document = Router()
_document_once = cache(lambda: document(endpoints()))


def endpoints() -> list[Endpoint]:
    """Return all endpoints of sayso's API, without those of AAP, which has its own specification."""
    return [each for module in (review, program, events) for each in module.router.endpoints] + _document.endpoints


@_document.get("/v1/openapi.json", "This document")
def openapi_document(context: Context) -> Response:
    # The server's address includes the path where the inbox is mounted.
    return JSONResponse({**_document_once(), "servers": [{"url": f"{context.http.scope.get('root_path', '')}/api"}]})


async def _healthz(_: Http) -> Response:
    return PlainTextResponse("ok\n")


def _routes() -> list[BaseRoute]:
    return [
        Route("/", get_route(listing.inbox)),
        Route("/history", get_route(listing.history)),
        Route("/history.{kind}", get_route(listing.export)),
        Route("/insights", get_route(insights.insights)),
        Route("/grants", get_route(grant_pages.grants)),
        Route("/grants/{grant_id}/{verb}", post_route(grant_pages.act_on_grant), methods=["POST"]),
        Route("/stop", post_route(grant_pages.stop_starts), methods=["POST"]),
        Route("/go", get_route(grant_pages.confirm_restart)),
        Route("/go", post_route(grant_pages.restart), methods=["POST"]),
        Route("/views/{verb}", post_route(listing.change_view), methods=["POST"]),
        Route("/settings", get_route(settings_page.settings)),
        Route("/settings/language", post_route(settings_page.set_language), methods=["POST"]),
        Route("/settings/away", post_route(settings_page.go_away), methods=["POST"]),
        Route("/settings/back", post_route(settings_page.come_back), methods=["POST"]),
        Route("/settings/test", post_route(settings_page.send_test), methods=["POST"]),
        Route("/devices/{verb}", post_route(settings_page.change_device), methods=["POST"]),
        Route("/notified/{request_id}/{verb}", post_route(settings_page.decide_notified), methods=["POST"]),
        Route("/runs", get_route(run_pages.runs)),
        Route("/runs/{run_id:path}", get_route(run_pages.run)),
        Route("/r/{request_id}", get_route(request_page.show_request)),
        Route("/r/{request_id}/{action}", post_route(actions.act), methods=["POST"]),
        Route("/bulk", get_route(actions.confirm)),
        Route("/bulk", post_route(actions.decide), methods=["POST"]),
        Route("/events", live.events),
        Route("/login", login.link_page),
        Route("/login", login.use_link, methods=["POST"]),
        Route("/login/openid", login.oidc_callback),
        Route("/login/openid", login.oidc_finish, methods=["POST"]),
        Route("/login/openid/go", login.oidc_start, methods=["POST"]),
        Route("/logout", post_route(login.logout), methods=["POST"]),
        Route("/hooks/decisions", receive, methods=["POST"]),
        Route("/healthz", _healthz),
        Route("/metrics", metrics.metrics),
        Mount("/static", assets),
    ]


_log = logging.getLogger("sayso.server")

_TITLES = {
    400: later("Bad request"),
    401: later("Sign in"),
    403: later("Not allowed"),
    404: later("Page not found"),
    405: later("Method not allowed"),
    408: later("The form took too long"),
    409: later("Already changed"),
    412: later("Already changed"),
    413: later("The form is too large"),
    415: later("Not a form of this inbox"),
    422: later("Invalid input"),
    429: later("Too many requests"),
    503: later("Service unavailable"),
}
_WRONG = later("Something went wrong")
_PHRASES = frozenset({later("Not Found"), later("Method Not Allowed")})  # texts of Starlette


def _error_page(http: Http, status: int, message: str, *, is_english: bool = False) -> Response:
    """Return the page of an error, with navigation if somebody is signed in."""
    about = {"title": say(_TITLES.get(status, _WRONG)), "message": message, "is_english": is_english}
    with suppress(HTTPException, errors.SaysoError):  # not signed in, or the store itself fails
        session = session_of(http)
        if session is not None and session.id == http.cookies.get(settings_of(http).cookie(http)[0]):
            context = RequestContext(http, session, ImmutableMultiDict[str, str]())
            choose(language_of(context.settings.store, context.reviewer.identity) or spoken())
            return render(context, "fault.html", status=status, frame="base.html", **about)
    return render_public(http, "fault.html", status=status, frame="outside.html", **about)


def _http_error(http: Http, fault: Exception) -> Response:
    fault = cast("HTTPException", fault)
    if fault.status_code == 401:
        stranger: Callable[[], None] | None = http.app.state.on_stranger
        if stranger is not None:
            stranger()
        sign_in = settings_of(http).sign_in
        return render_public(
            http, "sign_in.html", status=401, has_terminal=stranger is not None, has_links=sign_in.has_links,
            wanted=f"{http.url.path}?{http.url.query}".removesuffix("?") if http.method == "GET" else "",
            provider=None if sign_in.provider is None else sign_in.provider.oidc.name,
            by_proxy=sign_in.proxy is not None and sign_in.proxy.header is not None,
            why="" if fault.detail == HTTPStatus.UNAUTHORIZED.phrase else fault.detail,
        )  # fmt: skip
    detail = say(fault.detail) if fault.detail in _PHRASES else fault.detail
    response = _error_page(http, fault.status_code, escape(unisolated(detail)))
    response.headers.update(fault.headers or {})
    return response


def _sayso_error(http: Http, fault: Exception) -> Response:
    fault = cast("errors.SaysoError", fault)
    status = kind_of(type(fault)).status
    if status >= 500:
        http.app.state.faults.error(http.method, http.url.path, fault)
    return _error_page(http, status, error_text(fault), is_english=not has_error_text(fault))


def _unexpected_error(http: Http, fault: Exception) -> Response:
    # The server logs the traceback.
    _log.error("%s %s failed: %s", http.method, http.url.path, type(fault).__name__)
    return PlainTextResponse(say("something went wrong; the server's log says more") + "\n", status_code=500)


class _Inbox(Starlette):
    """Starlette for the pages; requests for the API bypass it."""

    def __init__(self, hosts: Collection[str]) -> None:
        handlers = {HTTPException: _http_error, errors.SaysoError: _sayso_error, Exception: _unexpected_error}
        super().__init__(routes=_routes(), exception_handlers={**handlers})
        self._api = Api([*endpoints(), *aap.router.endpoints], {"/aap/": aap.error})
        self._guard = Guard(self._answer, hosts=hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)

    def _answer(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path, root = scope.get("path", ""), scope.get("root_path", "")
        if root and path.startswith(f"{root}/"):  # mounted below another path
            path = path[len(root) :]
        if scope["type"] == "http" and path.startswith("/api/"):
            scope["app"] = self
            return self._api(scope, receive, send, path.removeprefix("/api"))
        return self._page(scope, receive, send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = Headers(scope=scope).get("accept-language", "") if scope["type"] == "http" else ""
        with speaking(asked_for(accepted)):
            await super().__call__(scope, receive, send)


def create_app(
    store: Store | str | None = None, *, base_url: str | None = None, hosts: Collection[str] = (),
    who: Callable[[Http], Reviewer | None] | None = None, on_stranger: Callable[[], None] | None = None,
    sign_in: SignIn | None = None, hooks: Mapping[str, Any] | None = None,
    rate: str | None = None, in_flight: int = 64, stranger_rate: str | None = "600/minute",
    open_per_run: int = 20, open_per_token: int = 200, undo: str | None = None,
) -> Starlette:  # fmt: skip
    """Return the inbox as an ASGI application, to be served or mounted.

    Without `who`, sessions begin with single-use links (`login_path`). Whoever opens a link decides in the name that
    it was made for.

    Args:
        store: A store or its address; None is the configured one.
        base_url: The public address, such as `https://approvals.example.com`. Without it, the application answers only
            to this machine's own names (`localhost`, `127.0.0.1`, `::1`).
        hosts: Additional names that the Host header may have.
        who: Returns the person that the surrounding application has signed in, or None. Called for every request.
        on_stranger: Called when a request comes from somebody who is not signed in.
        sign_in: How people sign in; None is by login links only.
        rate: Rate limit of one token at the API, such as `600/minute`; None for no limit. Clients above it get 429
            and wait.
        in_flight: Concurrent requests of one token. A long poll counts only until its first read of the store. After a
            change, 64 waiting requests read at a time, whichever tokens they have.
        stranger_rate: Rate limit of one address that is not authenticated, of one session at the API, and of one hook;
            None for no limit.
        open_per_run: Pending requests of one run at a time, among those asked with tokens.
        open_per_token: Pending requests of one program over all of its runs. Tokens of one name are one program.
        undo: How long an approval in the inbox can be undone and its call is held back: `5s`, at most one minute; `0`
            turns it off. None is `SAYSO_UNDO`, or `undo` of `[serve]` in `sayso.toml`, or 5 seconds.
        hooks: Programs that may send decisions, as in `[hooks]` of `sayso.toml`; None reads them from there.

    Raises:
        ConfigError: The store's address is invalid, `base_url` is not an http or https address, or `sign_in` conflicts
            with another argument.
    """
    parts = urlsplit(base_url or "http://localhost")
    if parts.scheme not in {"http", "https"} or parts.hostname is None:
        raise errors.ConfigError(f"base_url {base_url!r} is not a URL; give one like https://approvals.example.com")
    sign_in = sign_in or SignIn()
    if sign_in.proxy is not None and sign_in.proxy.header is not None:
        if who is not None:
            raise errors.ConfigError("who= and a proxy that signs people in cannot be combined; use one of them")
        who = sign_in.proxy.who
    if sign_in.provider is not None and base_url is None:
        raise errors.ConfigError("an OpenID provider needs base_url, because it sends people back to that URL")
    names = {*hosts, *([parts.hostname] if base_url else LOOPBACK)}
    app = _Inbox(names)
    store, state = config.open_store(store), app.state
    signer, options = TokenSigner(store), f"{base_url or ''} {sign_in.fingerprint}"
    sessions = Sessions(store, signer, lasts=sign_in.lasts, options=options, admits=sign_in.admits)
    state.settings = Settings(store, sessions, base_url, who, signer, sign_in, undo_within=_undo_within(undo))
    state.push = Push(store, signer, base_url=base_url, sign_in=sign_in)
    state.on_stranger, state.on_link_used, state.checkpoints = on_stranger, None, None
    state.provider_threads = CapacityLimiter(login.AT_PROVIDER)
    state.tokens, state.rate, state.stranger_rate = Tokens(store), Rate(rate), Rate(stranger_rate)
    state.in_flight, state.open_per_run, state.open_per_token = InFlight(in_flight), open_per_run, open_per_token
    state.writer, state.faults = Writer(store), FaultLog()
    state.event_log = EventLog(store)
    state.broadcasters = live.PerLoop(partial(Broadcaster, state.event_log))
    state.live_pages = live.PerLoop(partial(live.PageHub, store))
    state.metrics, state.insights = metrics.Metrics(store, state.event_log), insights.Insights(store)
    tables = config.table("hooks") if hooks is None else hooks
    state.hooks = Hooks(store, tables, rate=state.stranger_rate, admits=sign_in.admits)
    return app


def _undo_within(given: str | None) -> timedelta | None:
    """Return how long an approval in the inbox can be undone; None if it cannot."""
    found = given if given is not None else os.environ.get("SAYSO_UNDO") or config.table("serve").get("undo", "5s")
    if str(found) == "0":
        return None
    span = duration.parse(found)
    if span > timedelta(seconds=60):
        raise errors.ConfigError(f"undo must be at most 60s, not {found!r}: programs wait that long for each approval")
    return span


def login_path(app: Starlette, reviewer: Reviewer | None = None) -> str:
    """Return a path that begins a session. It works once, for one hour, and is relative to the mount point.

    Args:
        app: The application that `create_app` returned.
        reviewer: The reviewer in whose name the session decides; None is the configured one.
    """
    settings: Settings = app.state.settings
    return f"/login?token={settings.links.token(reviewer or config.default_reviewer(), PRINTED)}"
