"""Endpoints of the API: who may call one, how its input is checked, and the JSON that it answers.

A `Router` collects functions, whose annotations name the message that they take (the query of a GET, else the JSON
body) and the one that they answer; their OpenAPI operations are made of these, too. FastAPI was not taken: it reads a
body before it knows who asks, and lets a key or a parameter stand twice. `Api` answers all of them, as plain ASGI
beside Starlette, whose routing and middleware cost more than most verbs. Whether a token was revoked is looked up where
the function runs: what `is_brief` is one transaction with that look, in the thread of the server's writer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar, cast, get_origin

import msgspec
from anyio import to_thread
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso import errors
from sayso.model import strict_json
from sayso.model.cached import cached_property
from sayso.model.reviewer import TOKENS, Identity, Reviewer
from sayso.reviews import Review
from sayso.server.api.problems import FaultLog, InFlight, Problem, Rate, Slot, problem_of, response
from sayso.server.auth.sessions import Session
from sayso.server.auth.tokens import KINDS, Token, TokenKind, Tokens
from sayso.server.context import is_same_origin, is_signed_in, settings_of
from sayso.server.writer import Writer
from sayso.stores.base import Store

_log = logging.getLogger("sayso.server")
_M = TypeVar("_M", bound=BaseModel)
T = TypeVar("T")
_F = TypeVar("_F", bound=Callable[..., Any])

LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})

# -- who asks ----------------------------------------------------------------------------------------------------

_STRANGER = "send a token, `Authorization: Bearer sst_…`, that is neither revoked nor at its end; nothing was done"


@dataclass(frozen=True)
class Principal:
    """Who asks, and what they may do; a session has the kind `review`, and no token."""

    kind: TokenKind
    reviewer: Reviewer
    token_id: str | None
    channel: Literal["api", "web"]
    session: Session | None = field(default=None, repr=False)

    @property
    def csrf(self) -> str | None:
        """What a session's changes bring along; None for a token."""
        return None if self.session is None else self.session.csrf

    @cached_property
    def requester(self) -> Identity:
        """Who asks for calls through this token; on behalf of `reviewer.identity`, who may then not decide them."""
        return Identity(TOKENS, self.reviewer.subject)


def principal_of(http: Http) -> Principal:
    """Return who asks; reads the store.

    Where both a token and a session are sent the token alone counts, and a token that opens nothing is never made up
    for by a session. A token needs no CSRF token, because no browser sends it by itself.

    Raises:
        Problem: Nobody that is known, somebody who may not review here, or a session's change that did not come from
            a page of ours.
    """
    given = _authorization(http)
    if not given:
        session = _session(http)
        if session is None:
            raise _stranger()
        if http.method not in LOOKING and not (
            is_same_origin(http) and session.is_mine(http.headers.get("x-csrf-token", ""))
        ):
            raise Problem(
                "not_from_here",
                "a session changes something only with its X-CSRF-Token and this server's Origin; nothing was done",
            )
        return Principal("review", session.reviewer, None, "web", session)
    tokens: Tokens = http.app.state.tokens
    text = _token_text(given)
    token = None if text is None else tokens.find(text)
    if token is None:
        raise _stranger()
    return _holder(http, token)


async def _principal(http: Http) -> Principal:
    """Do as `principal_of`, in a thread; a token that was seen before is looked up where the work is done."""
    given = _authorization(http)
    if given and (text := _token_text(given)) is not None:
        tokens: Tokens = http.app.state.tokens
        known = tokens.recall(text)
        if known is not None:
            return _holder(http, known)
    return await in_thread(http, partial(principal_of, http))


def is_still_good(http: Http, who: Principal) -> bool:
    """Say whether somebody who was known before still is; this is no use of a session. Reads the store."""
    tokens: Tokens = http.app.state.tokens
    if who.session is not None:
        return is_signed_in(http, who.session)
    return who.token_id is not None and tokens.is_good(who.token_id)


def _session(http: Http) -> Session | None:
    """Return the session that has begun; a program around that knows its people has the last word, and begins none."""
    settings = settings_of(http)
    cookie = http.cookies.get(settings.cookie(http)[0])
    if settings.who is None:
        return settings.sessions.find(cookie)
    person = settings.who(http)
    return settings.sessions.find_unrecorded(cookie, person) if person and settings.sign_in.admits(person) else None


def _authorization(http: Http) -> list[str]:
    return [value.decode("latin-1") for name, value in http.scope["headers"] if name == b"authorization"]


def _token_text(given: list[str]) -> str | None:
    scheme, _, text = given[0].partition(" ")
    return text.strip() if len(given) == 1 and scheme.casefold() == "bearer" else None


def _holder(http: Http, token: Token) -> Principal:
    if token.kind == "review" and not settings_of(http).sign_in.admits(token.reviewer):
        raise Problem("not_admitted", "the settings of this server do not let this person review; nothing was done")
    return Principal(token.kind, token.reviewer, token.id, "api")


def _stranger() -> Problem:
    return Problem("not_signed_in", _STRANGER, headers={"www-authenticate": "Bearer"})


# -- input -------------------------------------------------------------------------------------------------------

MAX_BODY = 2_000_000
_LARGE = 20_000
_BODY_TIMEOUT = 30.0


async def _read_body(http: Http, model: type[_M]) -> _M:
    """Return the body of a request, checked; an empty one is an empty object; raises `Problem`."""
    body = await read_bytes(http)
    given = next((value for name, value in http.scope["headers"] if name == b"content-type"), b"")
    kind = given.decode("latin-1").partition(";")[0].strip().casefold()
    if kind != "application/json" and (body or kind):
        raise Problem("wrong_content_type", "send the body with Content-Type: application/json; nothing was done")

    def checked() -> _M:
        parsed(body or b"{}")  # pydantic would take a key twice, and NaN
        return validated("body", partial(model.model_validate_json, body or b"{}"))

    # In a thread, where it is large, so that nobody else has to wait.
    return checked() if len(body) <= _LARGE else await in_thread(http, checked)


async def in_thread(http: Http, work: Callable[[], T]) -> T:
    """Return what `work` returns, done in one of the API's threads."""
    in_flight: InFlight = http.app.state.in_flight
    return await to_thread.run_sync(work, limiter=in_flight.threads)


def _read_query(http: Http, model: type[_M]) -> _M:
    found: dict[str, Any] = {}
    for name, value in http.query_params.multi_items():
        known = model.model_fields.get(name)
        if known is not None and get_origin(known.annotation) is list:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Problem("invalid_input", f"{name!a} stands twice in the query; nothing was done")
        else:
            found[name] = value
    return validated("query", partial(model.model_validate, found))


def validated(where: str, validate: Callable[[], _M], undone: str = "nothing was done") -> _M:
    """Return what pydantic makes of an input; raises `Problem` with each place where it does not fit."""
    try:
        return validate()
    except ValidationError as error:
        problems = [
            f"{'.'.join([where, *(ascii(part)[1:-1] if isinstance(part, str) else str(part) for part in each['loc'])])}"
            f": {each['msg']}"
            for each in error.errors(include_url=False, include_input=False, include_context=False)[:20]
        ]
        raise Problem("invalid_input", f"the {where} does not fit; {undone}", problems=problems) from None


async def read_bytes(http: Http, patience: float | None = None) -> bytes:
    """Return the body as it came, within 30 seconds or as many as said; raises `Problem` where it is long or slow."""
    patience = _BODY_TIMEOUT if patience is None else patience
    body, has_more = bytearray(), True
    try:
        async with asyncio.timeout(patience):
            while has_more:
                message = await http.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                if len(body) > MAX_BODY:
                    raise Problem("body_too_large", f"a body has at most {MAX_BODY:,} bytes; nothing was done")
                has_more = message.get("more_body", False)
    except TimeoutError:
        raise Problem("body_too_slow", f"the body did not come in {patience:.0f} s; nothing was done") from None
    return bytes(body)


def parsed(body: bytes) -> Any:
    """Return a body's JSON values; raises `Problem` for what two readers could read as two things."""
    try:
        return strict_json.loads(body.decode())
    except UnicodeDecodeError:
        raise Problem("invalid_json", "the body is not UTF-8; nothing was done") from None
    except ValueError as error:
        raise Problem("invalid_json", f"the body cannot be read ({error}); nothing was done") from None


# -- answers -----------------------------------------------------------------------------------------------------


def encoded(message: Any) -> bytes:
    """Return a message, or parts of one, as JSON in ASCII: what could deceive an eye or a terminal stays an escape."""
    try:
        found = _encoder.encode(message)  # in an eighth of pydantic's time
        if found.isascii():
            return found
    except OverflowError:  # an integer of more than 64 bits
        pass
    return to_json(message, ensure_ascii=True)


def _fields(message: Any) -> dict[str, Any]:
    if isinstance(message, BaseModel):
        return vars(message)
    raise NotImplementedError(f"a {type(message).__name__} is no part of a message")


_encoder = msgspec.json.Encoder(enc_hook=_fields)


class _JsonResponse:
    """An answer that is whole and small; Starlette's own response takes three times as long."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str]) -> None:
        self._body, self._status = body, status
        self._headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        length = b"%d" % len(self._body)
        headers = [(b"content-length", length), (b"content-type", b"application/json"), *self._headers]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})


# -- endpoints ---------------------------------------------------------------------------------------------------


class Context:
    """One request to the API, by a principal who may make it.

    Attributes:
        slot: Its place among the requests of its token that are worked on; None for a session.
        store: Where requests live; a view of it inside of one transaction, where the endpoint `is_brief`.
        status: Of the answer; 304 sends no content.
        headers: Further headers of the answer.
    """

    def __init__(self, http: Http, principal: Principal, slot: Slot | None, store: Store | None = None) -> None:
        self.http, self.principal, self.slot, self.status = http, principal, slot, 200
        self.headers: dict[str, str] = {}
        self.store: Store = settings_of(http).store if store is None else store

    @cached_property
    def review(self) -> Review:
        """The person's door, in the name of who asks; looking writes nothing."""
        who = self.principal
        return Review(self.store, reviewer=who.reviewer, channel=who.channel, sweeps=False)

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.http.path_params[name])

    def must_be_known(self) -> None:
        """Raise `Problem` where the token was revoked, or has ended; a session was looked up just now."""
        tokens: Tokens = self.http.app.state.tokens
        token_id = self.principal.token_id
        if token_id is not None and not tokens.is_good(token_id, self.store):
            raise _stranger()

    async def commit(self, work: Callable[..., T], *args: Any) -> T:
        """Return what `work(context, *args)` returns, done in one transaction by the server's writer, and durable.

        The transaction begins with the look whether the token is still good. The work may run more than once, each time
        with a context of its own, and changes nothing but the store that it finds there.
        """
        context, found = await self.writer.do(lambda store: self.inside(store, work, *args))
        self.status, self.headers = context.status, context.headers
        return found

    def inside(self, store: Store, work: Callable[..., T], *args: Any) -> tuple[Context, T]:
        """Return what `work` returns in a transaction of the writer, and the context of its own that it was given."""
        context = type(self)(self.http, self.principal, self.slot, store)
        context.must_be_known()
        return context, work(context, *args)

    @property
    def writer(self) -> Writer:
        """What writes for all requests of this server."""
        writer: Writer = self.http.app.state.writer
        return writer

    async def look(self, work: Callable[..., T], *args: Any) -> T:
        """Return what `work(context, *args)` returns, done in a thread, while the token is still good."""

        def inside() -> T:
            self.must_be_known()
            return work(self, *args)

        return await in_thread(self.http, inside)


@dataclass(frozen=True)
class Endpoint:
    """One endpoint.

    Attributes:
        handler: Takes the context, and the checked input where there is one. A coroutine function must not block, and
            does what it does by `Context.commit` and `Context.look`, which see to it that the token still is good.
        context: The class of that context.
        input: The message that it takes: the query of a GET, else the JSON body.
        answer: The message that it answers; None for any other response.
        kinds: Which kinds of tokens may; a session counts as `review`.
        problems: The codes of problems beside those that every endpoint has.
        reads: The request headers that it reads, with what they mean.
        also: Further statuses when all went well, with what they mean.
        waits: Whether it may answer late, when something has changed.
        is_brief: Whether it is one short transaction of the server's writer, with the look whether its token is still
            good; its handler may then run more than once, and changes nothing but the store.
    """

    method: str
    path: str
    summary: str
    handler: Callable[..., Any] = field(repr=False)
    context: type[Context]
    input: type[BaseModel] | None
    answer: type[BaseModel] | None
    kinds: Collection[TokenKind] = KINDS
    problems: Sequence[str] = ()
    reads: Mapping[str, str] = field(default_factory=dict[str, str])
    also: Mapping[int, str] = field(default_factory=dict[int, str])
    media_type: str = "application/json"
    waits: bool = False
    is_brief: bool = False

    @property
    def name(self) -> str:
        """Its name in the OpenAPI document: that of its handler."""
        half = "program_" if self.path.startswith("/v1/program/") else ""
        return half + self.handler.__name__

    @cached_property
    def _is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)

    def done(self, context: Context, given: Sequence[BaseModel]) -> Awaitable[BaseModel | Response]:
        """Do it with checked input; raises what the handler raises."""
        if self._is_async:
            return self.handler(context, *given)
        return (context.commit if self.is_brief else context.look)(self.handler, *given)

    async def answered(self, http: Http, principal: Principal, slot: Slot | None) -> ASGIApp:
        """Do it, for somebody who is known; raises `Problem` where the token's kind may not, or the input is wrong."""
        if principal.kind not in self.kinds:
            raise Problem(
                "wrong_token_kind", f"a token of the kind {principal.kind!r} does not do this; nothing was done"
            )
        takes_query = self.input is not None and self.method == "GET"
        if http.scope["query_string"] and not takes_query:
            raise Problem("invalid_input", "this takes nothing after the question mark; nothing was done")
        given: list[BaseModel] = []
        if self.input is not None:
            given = [_read_query(http, self.input) if takes_query else await _read_body(http, self.input)]
        context = self.context(http, principal, slot)
        answer = await self.done(context, given)
        if isinstance(answer, Response):
            return answer
        if context.status == 304:
            return Response(status_code=304, headers=context.headers)
        return _JsonResponse(encoded(answer), context.status, context.headers)


class Router:
    """Collects endpoints in the order of their declaration; `options` are those of all of them, as of `Endpoint`."""

    def __init__(self, **options: Any) -> None:
        self.endpoints: list[Endpoint] = []
        self._options = options

    def get(self, path: str, summary: str, **options: Any) -> Callable[[_F], _F]:
        """Add the decorated function as what answers a GET; a HEAD is answered as a GET is."""
        return self._added("GET", path, summary, options)

    def post(self, path: str, summary: str, **options: Any) -> Callable[[_F], _F]:
        """Add the decorated function as what answers a POST."""
        return self._added("POST", path, summary, options)

    def delete(self, path: str, summary: str, **options: Any) -> Callable[[_F], _F]:
        """Add the decorated function as what answers a DELETE."""
        return self._added("DELETE", path, summary, options)

    def _added(self, method: str, path: str, summary: str, options: dict[str, Any]) -> Callable[[_F], _F]:
        def add(handler: _F) -> _F:
            signature = inspect.signature(handler, eval_str=True)
            context, *taken = (parameter.annotation for parameter in signature.parameters.values())
            answer = signature.return_annotation
            self.endpoints.append(Endpoint(
                method, path, summary, handler, context, input=taken[0] if taken else None,
                answer=answer if issubclass(answer, BaseModel) else None, **{**self._options, **options},
            ))  # fmt: skip
            return handler

        return add


class Api:
    """An ASGI program for all endpoints; an answer of any kind leaves it, and no exception.

    Args:
        endpoints: All of them.
        errors_at: Makes the response for a problem, by how a path begins; the others are answered as RFC 9457 has it.
    """

    def __init__(
        self, endpoints: Iterable[Endpoint], errors_at: Mapping[str, Callable[[Problem], Response]]
    ) -> None:  # fmt: skip
        self._exact: dict[str, dict[str, Endpoint]] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], dict[str, Endpoint]]] = {}
        self._errors_at = errors_at
        for one in endpoints:
            if "{" in one.path:
                text = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", re.sub(r"{(\w+):path}", r"(?P<\1>.*)", one.path))
                found = self._patterns.setdefault(one.path, (re.compile(text, re.DOTALL), {}))[1]
            else:
                found = self._exact.setdefault(one.path, {})
            found[one.method] = one
        # What takes a whole rest of a path comes after what stands below it.
        self._patterns = dict(sorted(self._patterns.items(), key=lambda item: (":path}" in item[0], item[0])))

    def _at(self, path: str) -> tuple[Mapping[str, Endpoint], dict[str, str]]:
        found = self._exact.get(path)
        if found is not None:
            return found, {}
        for pattern, endpoints in self._patterns.values():
            match = pattern.fullmatch(path)
            if match is not None:
                return endpoints, match.groupdict()
        return {}, {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        """Answer a request for a path below `/api`."""
        endpoints, scope["path_params"] = self._at(path)
        http = Http(scope, receive)
        try:
            answer = await _answered(http, endpoints)
        except Problem as problem:
            answer = self._error(path, problem)
        except errors.SaysoError as fault:
            problem = problem_of(fault)
            if problem.kind.status >= 500:
                faults: FaultLog = http.app.state.faults
                faults.error(http.method, http.url.path, fault)
            answer = self._error(path, problem)
        except ClientDisconnect:
            return
        except Exception:  # noqa: BLE001  the edge of the process: the log says what happened, the answer does not
            _log.exception("%s %s failed", http.method, http.url.path)
            answer = self._error(path, Problem("internal", "something went wrong here; the server's log says more"))
        await answer(scope, receive, send)

    def _error(self, path: str, problem: Problem) -> Response:
        make = next((make for begin, make in self._errors_at.items() if path.startswith(begin)), response)
        return make(problem)


async def _answered(http: Http, endpoints: Mapping[str, Endpoint]) -> ASGIApp:
    state = http.app.state
    strangers: Rate = state.stranger_rate
    stranger = f"stranger {'' if http.client is None else http.client.host}"
    endpoint = endpoints.get("GET" if http.method == "HEAD" else http.method)
    principal: Principal | None = None
    slot: Slot | None = None  # let go while `until_changed` sleeps
    try:
        principal = await _principal(http)  # by its headers: no body has been read
        if principal.token_id is not None:
            cast("Rate", state.rate).count(f"token {principal.token_id}")
            slot = cast("InFlight", state.in_flight).slot(principal.token_id)
            await slot.take(queues=endpoint is not None and endpoint.waits)
        else:
            strangers.count(f"session {principal.reviewer.identity.folded}")
        if endpoint is None:
            raise _no_endpoint(endpoints)
        answer = await endpoint.answered(http, principal, slot)
    except Problem as problem:
        if principal is None or problem.kind.code == "not_signed_in":  # any more
            strangers.count(stranger)
        raise
    finally:
        if slot is not None:
            slot.release()
    tokens: Tokens = state.tokens
    if tokens.has_uses_to_write and http.method not in LOOKING:  # who only looks writes nothing, not even that
        await in_thread(http, tokens.write_uses)
    return answer


def _no_endpoint(endpoints: Mapping[str, Endpoint]) -> Problem:
    if not endpoints:
        return Problem("not_found", "there is nothing at this address; /api/v1/openapi.json tells what there is")
    allowed = ", ".join(sorted(endpoints))
    return Problem("method_not_allowed", f"this address takes {allowed}", headers={"allow": allowed})
