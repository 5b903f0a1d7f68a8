"""One thing that can be asked of the API, declared once: from it come its route and its part of the OpenAPI document.

An operation names its method and path, the kinds of tokens that may, the pydantic models that read its query and body
and write its answer, and the problems of its own. The invariant: a handler runs only for somebody who is known, whose
token is of a kind that may, who did not ask too often, and with input that its models have taken.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, cast, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sayso import errors
from sayso.reviews import Review
from sayso.server.api.body import read_json
from sayso.server.api.principal import LOOKING, Principal, principal_of
from sayso.server.api.problem import Problem, of_fault, response
from sayso.server.api.rate import InFlight, Rate, Slot
from sayso.server.token import KINDS, TokenKind, Tokens
from sayso.server.visit import Settings

__all__ = ["Answer", "Asked", "Input", "Operation", "Output", "Place"]

_log = logging.getLogger("sayso.server")
_M = TypeVar("_M", bound=BaseModel)


class Input(BaseModel):
    """What a body or query may hold: the fields it names, of the types they have, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Output(BaseModel):
    """What an answer holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Asked:
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
Handler = Callable[[Asked], _Answered] | Callable[[Asked], Awaitable[_Answered]]


@dataclass(frozen=True)
class Operation:
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
        asked = Asked(http, principal, said, in_flight)
        if inspect.iscoroutinefunction(self.handler):
            return self._written(await self.handler(asked))
        return self._written(await run_in_threadpool(cast("Callable[[Asked], _Answered]", self.handler), asked))

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


class Place:
    """An ASGI program for all operations at one path; an answer of any kind leaves here, and no exception.

    Args:
        operations: By method; none means that there is nothing at this path.
    """

    def __init__(self, operations: Mapping[str, Operation]) -> None:
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
