"""One endpoint of the API: who may call it, the models that check its input, and the JSON that it answers.

A handler runs only for a known principal, with a token of a kind that may, below its limits, and with input that its
models have taken. Its declaration makes its route and its part of the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, NoReturn, TypeVar, cast, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sayso import errors
from sayso.model.reviewer import TOKENS, Identity, Reviewer
from sayso.reviews import Review
from sayso.server.api.limits import InFlight, Rate, Slot
from sayso.server.api.problems import Problem, of_fault, response
from sayso.server.auth.sessions import Session
from sayso.server.auth.tokens import KINDS, Token, TokenKind, Tokens
from sayso.server.context import Settings, is_same_origin, is_signed_in

__all__ = [
    "LOOKING",
    "MAX_BODY",
    "Answer",
    "Context",
    "Endpoint",
    "EndpointsAtPath",
    "Input",
    "Output",
    "Principal",
    "is_still_good",
    "parsed",
    "principal_of",
    "read_bytes",
    "read_json",
]

T = TypeVar("T")
MAX_BODY = 2_000_000
_LARGE = 20_000
_BODY_TIMEOUT = 30.0  # seconds for a body to arrive
_DEEPEST = 64
_SURROGATE = re.compile("[\ud800-\udfff]")


async def read_json(http: Http, then: Callable[[Any], T]) -> T:
    """Return what `then` makes of the body of a request, as JSON values; an empty one is an empty object.

    What is large is read in a thread, so that nobody else has to wait.

    Raises:
        Problem: It is too long, too slow, is not called JSON, or is none.
    """
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            body = await read_bytes(http)
    except TimeoutError:
        raise Problem("body_too_slow", f"the body did not come in {_BODY_TIMEOUT:.0f} s; nothing was done") from None
    kind = http.headers.get("content-type", "").partition(";")[0].strip().casefold()
    if not body and kind in {"", "application/json"}:
        return then({})
    if kind != "application/json":
        raise Problem("wrong_content_type", "send the body with Content-Type: application/json; nothing was done")
    if len(body) <= _LARGE:
        return then(parsed(body))
    return await run_in_threadpool(lambda: then(parsed(body)))


async def read_bytes(http: Http) -> bytes:
    """Return the body as it came; raises `Problem` where it is too long."""
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Problem("body_too_large", f"a body has at most {MAX_BODY:,} bytes; nothing was done")
    return bytes(body)


def parsed(body: bytes) -> Any:
    """Return what a body says as JSON values; raises `Problem` where that is not certain."""
    try:
        content = json.loads(
            body.decode(), object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite
        )  # fmt: skip
    except UnicodeDecodeError:
        raise Problem("invalid_json", "the body is not UTF-8; nothing was done") from None
    except RecursionError:
        raise Problem("invalid_json", _TOO_DEEP) from None
    except ValueError as error:
        raise Problem("invalid_json", f"the body cannot be read ({_said(error)}); nothing was done") from None
    _must_be_shallow(content)
    return content


_TOO_DEEP = f"the body is nested deeper than {_DEEPEST} levels; nothing was done"


def _said(error: ValueError) -> str:
    # What Python says of a number with too many digits names a setting of this server.
    if isinstance(error, json.JSONDecodeError | _NotStrict):
        return str(error)
    return "a number has too many digits"


class _NotStrict(ValueError):
    """JSON that some readers take and others do not, or take for something else."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotStrict("an object names a key twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is no number in JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotStrict("a number is too large")
    return number


def _must_be_shallow(content: Any) -> None:
    """Refuse what is too deep, and texts that are no Unicode; without recursion, for that is what depth attacks."""
    level: list[Any] = [content]
    for _ in range(_DEEPEST + 1):
        below: list[Any] = []
        for value in level:
            match value:
                case dict():
                    below += [*value.keys(), *value.values()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
                case list():
                    below += value
                case str() if _SURROGATE.search(value):
                    raise Problem("invalid_json", "a text has half of a surrogate pair; nothing was done")
                case _:
                    pass
        if not below:
            return
        level = below
    raise Problem("invalid_json", _TOO_DEEP)


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
    if http.method not in LOOKING and not (
        is_same_origin(http) and session.is_mine(http.headers.get("x-csrf-token", ""))
    ):
        raise Problem(
            "not_from_here",
            "a session changes something only with its X-CSRF-Token and this server's Origin; nothing was done",
        )
    return Principal("review", session.reviewer, None, "web", session)


def is_still_good(http: Http, who: Principal) -> bool:
    """Say whether somebody who was known before still is; this is no use of a session. Reads the store."""
    tokens: Tokens = http.app.state.tokens
    if who.session is not None:
        return is_signed_in(http, who.session)
    return who.token_id is not None and tokens.is_good(who.token_id)


def _session(http: Http) -> Session | None:
    """Return the session that has begun; a program around that knows its people has the last word, and begins none."""
    settings: Settings = http.app.state.settings
    cookie = http.cookies.get(settings.cookie(http)[0])
    if settings.who is None:
        return settings.sessions.find(cookie)
    person = settings.who(http)
    return settings.sessions.find_unrecorded(cookie, person) if person and settings.sign_in.admits(person) else None


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


_log = logging.getLogger("sayso.server")
_M = TypeVar("_M", bound=BaseModel)


class Input(BaseModel):
    """What a body or query may hold: the fields it names, of the types they have, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Output(BaseModel):
    """What an answer holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Context:
    """A request to the API, by somebody who may make it, with input that was taken.

    Attributes:
        http: As it came.
        principal: Who asks.
        settings: What the inbox works with.
        in_flight: Its slot among the requests of its token that are worked on; None for a session.
    """

    def __init__(
        self, http: Http, principal: Principal, said: Mapping[type[BaseModel], BaseModel],
        in_flight: Slot | None,
    ) -> None:  # fmt: skip
        self.http, self.principal, self._said, self.in_flight = http, principal, said, in_flight
        self.settings: Settings = http.app.state.settings

    @cached_property
    def review(self) -> Review:
        """The person's door, in the name of who asks; looking writes nothing."""
        who = self.principal
        return Review(self.settings.store, reviewer=who.reviewer, channel=who.channel, sweeps=False)

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.http.path_params[name])

    def said(self, model: type[_M]) -> _M:
        """Return the body or query as the model that the operation declares for it."""
        return cast("_M", self._said[model])


@dataclass(frozen=True)
class Answer:
    """What a handler answers when the plain model is not all: another status, or headers."""

    content: BaseModel | None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


_Answered = BaseModel | Answer | Response
Handler = Callable[[Context], _Answered] | Callable[[Context], Awaitable[_Answered]]


@dataclass(frozen=True)
class Endpoint:
    """One operation.

    Attributes:
        method: `GET` and the like; a HEAD is answered as a GET is.
        path: Below `/api`, with parameters in braces: `/v1/requests/{request_id}`.
        summary: What it does, in one line.
        handler: Does it: a plain function, which then runs in a thread, or a coroutine function, which must not block.
        kinds: The kinds of tokens that may; a session counts as `review`.
        query, body: Models that read them; None where there is none.
        answer: The model of the answer's content.
        status: Of the answer when all went well.
        problems: Codes of problems beside those that every operation has.
        headers: Request headers it reads, with what they mean.
        also: Further statuses when all went well, with what they mean: `{304: "…"}`.
        media_type: Of the answer.
        waits: Whether it may answer late, when something has changed.
    """

    method: str
    path: str
    summary: str
    handler: Handler = field(repr=False)
    kinds: Collection[TokenKind] = KINDS
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200
    problems: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    also: Mapping[int, str] = field(default_factory=dict[int, str])
    media_type: str = "application/json"
    waits: bool = False

    @property
    def name(self) -> str:
        """Its name in the OpenAPI document: that of its handler."""
        return self.handler.__name__.strip("_")

    def is_wait(self, http: Http) -> bool:
        """Say whether a request is answered late, when something has changed."""
        return self.waits and (self.query is None or "wait" in http.query_params)

    async def answered(self, http: Http, principal: Principal, in_flight: Slot | None) -> Response:
        """Do it, for somebody who is known.

        Raises:
            Problem: The token's kind may not, or the input does not fit.
        """
        if principal.kind not in self.kinds:
            raise Problem(
                "wrong_token_kind", f"a token of the kind {principal.kind!r} does not do this; nothing was done"
            )
        said: dict[type[BaseModel], BaseModel] = {}
        if self.query is not None:
            said[self.query] = _taken(self.query, _query(http, self.query), "query")
        elif http.url.query:
            raise Problem("invalid_input", "this takes nothing after the question mark; nothing was done")
        if self.body is not None:
            said[self.body] = await read_json(http, partial(_taken, self.body, where="body"))
        asked = Context(http, principal, said, in_flight)
        if inspect.iscoroutinefunction(self.handler):
            return self._written(await self.handler(asked))
        return self._written(await run_in_threadpool(cast("Callable[[Context], _Answered]", self.handler), asked))

    def _written(self, answered: _Answered) -> Response:
        if isinstance(answered, Response):
            return answered
        if isinstance(answered, BaseModel):
            answered = Answer(answered, self.status)
        headers = dict(answered.headers)
        if answered.content is None:
            return Response(status_code=answered.status, headers=headers)
        # ASCII: what could deceive an eye, a terminal or a log stays an escape.
        text = json.dumps(answered.content.model_dump(mode="json"), allow_nan=False, separators=(",", ":"))
        return Response(text, answered.status, headers, "application/json")


def _query(http: Http, model: type[BaseModel]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in http.query_params.multi_items():
        known = model.model_fields.get(name)
        if known is not None and get_origin(known.annotation) is list:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Problem("invalid_input", f"{name!a} stands twice in the query; nothing was done")
        else:
            found[name] = value
    return found


def _taken(model: type[_M], given: Any, where: str) -> _M:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = [
            f"{'.'.join([where, *(ascii(part)[1:-1] if isinstance(part, str) else str(part) for part in each['loc'])])}"
            f": {each['msg']}"
            for each in error.errors(include_url=False, include_input=False, include_context=False)[:20]
        ]
        raise Problem("invalid_input", f"the {where} does not fit; nothing was done", problems=problems) from None


class EndpointsAtPath:
    """An ASGI program for all operations at one path; an answer of any kind leaves here, and no exception.

    Args:
        operations: By method; none means that there is nothing at this path.
    """

    def __init__(self, operations: Mapping[str, Endpoint]) -> None:
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        http = Http(scope, receive)
        try:
            answer = await self._answered(http)
        except Problem as problem:
            answer = response(problem)
        except errors.SaysoError as fault:
            problem = of_fault(fault)
            if problem.kind.status >= 500:
                _log.error("%s %s: %s", http.method, http.url.path, fault)
            answer = response(problem)
        except ClientDisconnect:
            return
        except Exception:  # noqa: BLE001  the edge of the process: the log says what happened, the answer does not
            _log.exception("%s %s failed", http.method, http.url.path)
            answer = response(Problem("internal", "something went wrong here; the server's log says more"))
        await answer(scope, receive, send)

    async def _answered(self, http: Http) -> Response:
        try:
            principal = await run_in_threadpool(principal_of, http)  # by its headers: no body has been read
        except Problem:
            strangers: Rate = http.app.state.stranger_rate
            strangers.count(f"stranger {'' if http.client is None else http.client.host}")
            raise
        if principal.token_id is None:
            sessions: Rate = http.app.state.stranger_rate
            sessions.count(f"session {principal.reviewer.identity.folded}")
            return await self._done(http, principal, None)
        rate: Rate = http.app.state.rate
        rate.count(f"token {principal.token_id}")
        operation, in_flight = self._operations.get(http.method), cast("InFlight", http.app.state.in_flight)
        is_wait = operation is not None and operation.is_wait(http)
        async with in_flight.one_of(principal.token_id, queues=is_wait) as slot:  # let go while `until_changed` sleeps
            return await self._done(http, principal, slot)

    async def _done(self, http: Http, principal: Principal, in_flight: Slot | None) -> Response:
        operation = self._operations.get("GET" if http.method == "HEAD" else http.method)
        if operation is not None:
            answer = await operation.answered(http, principal, in_flight)
            if http.method not in LOOKING:  # who only looks writes nothing, not even that
                tokens: Tokens = http.app.state.tokens
                await run_in_threadpool(tokens.write_uses)
            return answer
        if not self._operations:
            raise Problem("not_found", "there is nothing at this address; /api/v1/openapi.json tells what there is")
        allowed = ", ".join(sorted(self._operations))
        raise Problem("method_not_allowed", f"this address takes {allowed}", headers={"allow": allowed})
