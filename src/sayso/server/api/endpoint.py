"""Endpoints of the API: authentication, validation of input, and encoding of answers.

A `Router` collects functions. Their annotations name the input message (the query of a GET, else the JSON body) and the
answer, from which the OpenAPI operations are generated too. FastAPI does not fit: it reads a body before it
authenticates the client, and accepts duplicate keys and parameters. `Api` dispatches to all endpoints as plain ASGI
beside Starlette, whose routing and middleware cost more than most verbs. A token is checked for revocation where the
function runs; an endpoint with `is_brief` does so in the same transaction, in the writer's thread.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
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
from sayso.model import cached_property, canonical
from sayso.model.reviewer import TOKENS, Identity, Reviewer
from sayso.reviews import Review
from sayso.server.api.problems import FaultLog, Problem, problem_of, response
from sayso.server.auth.sessions import Session
from sayso.server.auth.tokens import KINDS, Token, TokenKind, Tokens
from sayso.server.context import is_same_origin, is_signed_in, session_of, settings_of
from sayso.server.protection import InFlight, Rate, Slot, read_bytes
from sayso.server.writer import Writer
from sayso.stores.base import Store

_log = logging.getLogger("sayso.server")
_M = TypeVar("_M", bound=BaseModel)
T = TypeVar("T")
_F = TypeVar("_F", bound=Callable[..., Any])

LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})

# -- who asks ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Principal:
    """The authenticated client, and what it may do. A session has the kind `review`, and no token."""

    kind: TokenKind
    reviewer: Reviewer
    token_id: str | None
    channel: Literal["api", "web"]
    session: Session | None = field(default=None, repr=False)

    @cached_property
    def requester(self) -> Identity:
        """The requester of calls asked with this token, on behalf of `reviewer.identity`, who may not decide them."""
        return Identity(TOKENS, self.reviewer.subject)


def principal_of(http: Http) -> Principal:
    """Authenticate a request. Reads the store.

    If it has a token, a session is ignored, even if the token is invalid. A token needs no CSRF token, because no
    browser sends it by itself.

    Raises:
        Problem: The client is not authenticated, or may not review here. Or it changes something in a session, and the
            request does not come from a page of this server.
    """
    text = bearer_token(http)
    if text is None:
        session = session_of(http, begins=False)
        if session is None:
            raise _not_signed_in()
        if http.method not in LOOKING and not (
            is_same_origin(http) and session.has_csrf(http.headers.get("x-csrf-token", ""))
        ):
            raise Problem(
                "not_from_here",
                "a change in a session needs its X-CSRF-Token and this server's Origin; nothing was done",
            )
        return Principal("review", session.reviewer, None, "web", session)
    tokens: Tokens = http.app.state.tokens
    token = tokens.find(text)
    if token is None:
        raise _not_signed_in()
    return _token_principal(http, token)


def is_still_good(http: Http, who: Principal) -> bool:
    """Return whether a principal's token or session is still valid, without counting as a use. Reads the store."""
    tokens: Tokens = http.app.state.tokens
    if who.session is not None:
        return is_signed_in(http, who.session)
    return who.token_id is not None and tokens.is_good(who.token_id)


def bearer_token(http: Http) -> str | None:
    """Return the token of a request, which is not checked yet: empty if the header is invalid, None without one."""
    given = [value.decode("latin-1") for name, value in http.scope["headers"] if name == b"authorization"]
    if not given:
        return None
    scheme, _, text = given[0].partition(" ")
    return text.strip() if len(given) == 1 and scheme.casefold() == "bearer" else ""


def _token_principal(http: Http, token: Token) -> Principal:
    if token.kind == "review" and not settings_of(http).sign_in.admits(token.reviewer):
        raise Problem(
            "not_admitted", "the settings of this server do not allow this person to review; nothing was done"
        )
    return _cached_principal(token)


@lru_cache(maxsize=1024)
def _cached_principal(token: Token) -> Principal:
    """Return the principal of a token, made once: it costs ten times as much as finding it again."""
    return Principal(token.kind, token.reviewer, token.id, "api")


def _not_signed_in() -> Problem:
    words = "send a token, `Authorization: Bearer sst_…`, that is neither revoked nor expired; nothing was done"
    return Problem("not_signed_in", words, headers={"www-authenticate": "Bearer"})


# -- input -------------------------------------------------------------------------------------------------------

_LARGE = 20_000


async def _read_body(http: Http, model: type[_M]) -> _M:
    """Return the validated body of a request; an empty body counts as an empty object. Raises `Problem`."""
    body = await read_bytes(http)
    given = next((value for name, value in http.scope["headers"] if name == b"content-type"), b"")
    kind = given.decode("latin-1").partition(";")[0].strip().casefold()
    if kind != "application/json" and (body or kind):
        raise Problem("wrong_content_type", "send the body with Content-Type: application/json; nothing was done")

    def checked() -> _M:
        parsed(body or b"{}")  # pydantic would accept duplicate keys and NaN
        return validated("body", partial(model.model_validate_json, body or b"{}"))

    # A large body is parsed in a thread, so as not to block the event loop.
    return checked() if len(body) <= _LARGE else await in_thread(http, checked)


async def in_thread(http: Http, work: Callable[[], T]) -> T:
    """Run `work` in one of the API's threads and return its result."""
    in_flight: InFlight = http.app.state.in_flight
    return await to_thread.run_sync(work, limiter=in_flight.threads)


def _read_query(http: Http, model: type[_M]) -> _M:
    found: dict[str, Any] = {}
    for name, value in http.query_params.multi_items():
        known = model.model_fields.get(name)
        if known is not None and get_origin(known.annotation) is list:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Problem("invalid_input", f"the query has {name!a} twice; nothing was done")
        else:
            found[name] = value
    return validated("query", partial(model.model_validate, found))


def validated(where: str, validate: Callable[[], _M], undone: str = "nothing was done") -> _M:
    """Run a pydantic validation and return its result; raises `Problem` with the place of each error."""
    try:
        return validate()
    except ValidationError as error:
        problems = [
            f"{'.'.join([where, *(ascii(part)[1:-1] if isinstance(part, str) else str(part) for part in each['loc'])])}"
            f": {each['msg']}"
            for each in error.errors(include_url=False, include_input=False, include_context=False)[:20]
        ]
        raise Problem("invalid_input", f"the {where} is not valid; {undone}", problems=problems) from None


def parsed(body: bytes) -> Any:
    """Parse a JSON body; raises `Problem` for what parsers may read differently, such as a duplicate key."""
    try:
        return canonical.strict_loads(body.decode())
    except UnicodeDecodeError:
        raise Problem("invalid_json", "the body is not UTF-8; nothing was done") from None
    except ValueError as error:
        raise Problem("invalid_json", f"the body cannot be read ({error}); nothing was done") from None


# -- answers -----------------------------------------------------------------------------------------------------


def encoded(message: Any, *, is_ascii: bool = True) -> bytes:
    """Return a message or a part of one as JSON; as ASCII, characters that could deceive a reader are escaped."""
    try:
        found = _encoder.encode(message)  # eight times as fast as pydantic
        if not is_ascii or found.isascii():
            return found
    except OverflowError:  # an integer of more than 64 bits
        pass
    return to_json(message, ensure_ascii=is_ascii)


def _fields(message: Any) -> dict[str, Any]:
    if isinstance(message, BaseModel):
        return vars(message)
    raise NotImplementedError(f"a {type(message).__name__} cannot be part of a message")


_encoder = msgspec.json.Encoder(enc_hook=_fields)


# -- endpoints ---------------------------------------------------------------------------------------------------


class Context:
    """One authorized request to the API.

    Attributes:
        slot: The request's slot among the concurrent ones of its token; None for a session.
        status: Status of the answer; 304 sends no content.
        headers: Further headers of the answer.
    """

    def __init__(self, http: Http, principal: Principal, slot: Slot | None, store: Store | None = None) -> None:
        self.http, self.principal, self.slot, self.status = http, principal, slot, 200
        self.headers: dict[str, str] = {}
        if store is not None:
            self.store = store  # pyright: ignore[reportAttributeAccessIssue]  as `cached_property` stores it

    @cached_property
    def store(self) -> Store:
        """The store, or inside a transaction (as when the endpoint `is_brief`), the transaction's view of it."""
        return settings_of(self.http).store

    @cached_property
    def review(self) -> Review:
        """The `Review` of the client's reviewer. Reading through it writes nothing."""
        who = self.principal
        return Review(self.store, reviewer=who.reviewer, channel=who.channel, sweeps=False)

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.http.path_params[name])

    def must_be_known(self) -> None:
        """Raise `Problem` if the token was revoked or has expired. A session was checked on authentication."""
        tokens: Tokens = self.http.app.state.tokens
        token_id = self.principal.token_id
        if token_id is not None and not tokens.is_good(token_id, self.store):
            raise _not_signed_in()

    async def commit(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work(context, *args)` in one transaction of the server's writer. Durable on return.

        The transaction first checks that the token is still valid. `work` may run more than once, each time with a new
        context, and must not change anything but that context's store.
        """
        context, found = await self.writer.do(lambda store: self.inside(store, work, *args))
        self.status, self.headers = context.status, context.headers
        return found

    def inside(self, store: Store, work: Callable[..., T], *args: Any) -> tuple[Context, T]:
        """Run `work` on a transaction's view of the store; return the new context that it got, and its result."""
        context = type(self)(self.http, self.principal, self.slot, store)
        context.must_be_known()
        return context, work(context, *args)

    @property
    def writer(self) -> Writer:
        """The writer of this server."""
        writer: Writer = self.http.app.state.writer
        return writer

    async def look(self, work: Callable[..., T], *args: Any) -> T:
        """Check that the token is still valid, then run `work(context, *args)`, both in a thread."""

        def inside() -> T:
            self.must_be_known()
            return work(self, *args)

        return await in_thread(self.http, inside)


@dataclass(frozen=True)
class Endpoint:
    """One endpoint.

    Attributes:
        handler: Takes the context, and the validated input if there is one. A coroutine function must not block, and
            must use the store through `Context.commit` and `Context.look`, which check that the token is still valid.
        context: The class of that context.
        input: The input message: the query of a GET, else the JSON body.
        answer: The message that it answers; None for any other response.
        kinds: The kinds of tokens that may call it; a session counts as `review`.
        problems: The codes of problems beside those that every endpoint has.
        reads: The request headers that it reads, with their meaning.
        also: Further success statuses, with their meaning.
        waits: Whether it is a long poll, which may answer only after a change.
        is_brief: Whether it runs as one short transaction of the server's writer, with the check of its token. Its
            handler may then run more than once, and must not change anything but the store.
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
        """Its operation id in the OpenAPI document, made from the handler's name."""
        half = "program_" if self.path.startswith("/v1/program/") else ""
        return half + self.handler.__name__

    @cached_property
    def _is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)

    def run(self, context: Context, given: Sequence[BaseModel]) -> Awaitable[BaseModel | Response]:
        """Run the handler with validated input; raises what the handler raises."""
        if self._is_async:
            return self.handler(context, *given)
        return (context.commit if self.is_brief else context.look)(self.handler, *given)

    async def respond(self, http: Http, principal: Principal, slot: Slot | None) -> ASGIApp:
        """Answer an authenticated request; raises `Problem` for a wrong kind of token or invalid input."""
        if principal.kind not in self.kinds:
            raise Problem(
                "wrong_token_kind", f"a token of the kind {principal.kind!r} may not do this; nothing was done"
            )
        takes_query = self.input is not None and self.method == "GET"
        if http.scope["query_string"] and not takes_query:
            raise Problem("invalid_input", "this URL takes no query parameters; nothing was done")
        given: list[BaseModel] = []
        if self.input is not None:
            given = [_read_query(http, self.input) if takes_query else await _read_body(http, self.input)]
        context = self.context(http, principal, slot)
        running = self.run(context, given)
        del given  # a long poll lets go of its input while it waits
        answer = await running
        if isinstance(answer, Response):
            return answer
        if context.status == 304:
            return Response(status_code=304, headers=context.headers)
        headers = {"cache-control": "no-store", **context.headers}
        return Response(encoded(answer), context.status, headers, "application/json")


class Router:
    """Collects endpoints in the order of declaration. `options` are default fields of each `Endpoint`."""

    def __init__(self, **options: Any) -> None:
        self.endpoints: list[Endpoint] = []
        self._options = options

        self.get, self.post, self.delete = (partial(self._register, method) for method in ("GET", "POST", "DELETE"))

    def _register(self, method: str, path: str, summary: str, **options: Any) -> Callable[[_F], _F]:
        """Register the decorated function for a method; for GET also for HEAD."""

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
    """Dispatches requests to endpoints. Every exception becomes a response.

    `errors_at` makes the response to a problem, by prefix of the path. Other paths get RFC 9457 problem details.
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
        # A pattern that matches the rest of a path comes after the more specific ones.
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
        """Answer a request; `path` is its path below `/api`."""
        endpoints, scope["path_params"] = self._at(path)
        http = Http(scope, receive)
        error = next((make for begin, make in self._errors_at.items() if path.startswith(begin)), response)
        try:
            answer = await _authenticate_and_respond(http, endpoints)
        except Problem as problem:
            answer = error(problem)
        except errors.SaysoError as fault:
            problem = problem_of(fault)
            if problem.kind.status >= 500:
                faults: FaultLog = http.app.state.faults
                faults.error(http.method, http.url.path, fault)
            answer = error(problem)
        except ClientDisconnect:
            return
        except Exception:  # noqa: BLE001  the details of an unexpected error belong into the log, not the answer
            _log.exception("%s %s failed", http.method, http.url.path)
            answer = error(Problem("internal", "internal error; see the server's log"))
        await answer(scope, receive, send)


async def _authenticate_and_respond(http: Http, endpoints: Mapping[str, Endpoint]) -> ASGIApp:
    state = http.app.state
    strangers: Rate = state.stranger_rate
    tokens: Tokens = state.tokens
    endpoint = endpoints.get("GET" if http.method == "HEAD" else http.method)
    principal: Principal | None = None
    slot: Slot | None = None  # `until_changed` releases it while it sleeps
    try:
        # From the headers: the body is not read yet. A token seen before needs no read here: it is checked where the
        # work runs.
        text = bearer_token(http)
        known = tokens.recall(text) if text else None
        look = partial(principal_of, http)
        principal = await in_thread(http, look) if known is None else _token_principal(http, known)
        if principal.token_id is not None:
            cast("Rate", state.rate).count(f"token {principal.token_id}")
            slot = cast("InFlight", state.in_flight).slot(principal.token_id)
            await slot.take(queues=endpoint is not None and endpoint.waits)
        else:
            strangers.count(f"session {principal.reviewer.identity.folded}")
        if endpoint is None:
            raise _no_endpoint(endpoints)
        answer = await endpoint.respond(http, principal, slot)
    except Problem as problem:
        if principal is None or problem.kind.code == "not_signed_in":  # the latter: revoked meanwhile
            strangers.count(f"stranger {'' if http.client is None else http.client.host}")
        raise
    finally:
        if slot is not None:
            slot.release()
    if tokens.has_uses_to_write and http.method not in LOOKING:  # a GET writes nothing, not even its use
        await in_thread(http, tokens.write_uses)
    return answer


def _no_endpoint(endpoints: Mapping[str, Endpoint]) -> Problem:
    if not endpoints:
        return Problem("not_found", "there is nothing at this URL; /api/v1/openapi.json lists what there is")
    allowed = ", ".join(sorted(endpoints))
    return Problem("method_not_allowed", f"this URL accepts {allowed}", headers={"allow": allowed})
