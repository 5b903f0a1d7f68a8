"""Looking, for reviewers: requests, the journal, runs, and who asks.

The invariant: none of this writes anything; what has reached its end is told as expired all the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sayso import errors
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, Reviewer
from sayso.model.run import RunState
from sayso.server.api import wire
from sayso.server.api.operation import Answer, Asked, Input, Operation
from sayso.server.api.problem import Problem
from sayso.stores.filter import RunFilter

__all__ = [
    "OPERATIONS",
    "READERS",
    "JournalQuery",
    "PageQuery",
    "Query",
    "RequestsQuery",
    "RunsQuery",
    "etag",
    "request_at",
    "shown",
]

READERS = ("admin", "review")
_ID = re.compile(r"rq_[0-9a-f]{32}")

Cursor = Annotated[str | None, Field(max_length=2_000, description="`cursor` of the page before.")]
Limit = Annotated[int, Field(ge=1, le=200, description="How many at most.")]
Text = Annotated[str | None, Field(min_length=1, max_length=1_000)]


class Query(Input):
    """What may stand after the question mark: texts, out of which numbers and truths are read."""

    model_config = ConfigDict(strict=False)


class RequestsQuery(Query):
    """Which requests."""

    state: list[State | Literal["all"]] = Field(
        default_factory=list[State | Literal["all"]], max_length=12,
        description="One or several, `all` for every one; by default all that are not final.",
    )  # fmt: skip
    run: Text = None
    tool: Annotated[Text, Field(description="By its name, or `module:function`.")] = None
    risk: Text = None
    agent: Annotated[Text, Field(description="Asked by this program: its name, or `issuer:name`.")] = None
    kind: Literal["call", "question"] | None = None
    text: Annotated[Text, Field(description="With this in id, run, function, prompt or question.")] = None
    q: Annotated[Text, Field(description="The old name of `text`.")] = None
    older_than: Annotated[Text, Field(description="Asked so long ago or longer: `90s`, `15m`, `24h`, `7d`.")] = None
    claimed_by: Annotated[Text, Field(description="`issuer:subject`, or the subject of a local person.")] = None
    mine: Annotated[bool, Field(description="Only what you have claimed.")] = False
    newest: Annotated[bool, Field(description="Newest first.")] = False
    cursor: Cursor = None
    limit: Limit = 50


class JournalQuery(Query):
    """Which rows of the journal."""

    run: Text = None
    cursor: Cursor = None
    limit: Limit = 200


class PageQuery(Query):
    """Which page."""

    cursor: Cursor = None
    limit: Limit = 200


class RunsQuery(Query):
    """Which runs."""

    state: RunState | None = None
    name: Text = None
    cursor: Cursor = None
    limit: Limit = 50


def _unfit(error: Exception) -> Problem:
    return Problem("invalid_input", f"{error}; nothing was done")


def _list(asked: Asked) -> wire.Requests:
    query = asked.said(RequestsQuery)
    if query.q is not None and query.text is not None:
        raise Problem("invalid_input", "`q` is the old name of `text`; give one of them, nothing was done")
    try:
        page = asked.review.list(
            state="all" if "all" in query.state else query.state or None, run=query.run, tool=query.tool,
            risk=query.risk, agent=query.agent, kind=query.kind, text=query.text or query.q,
            claimed_by=_claimer(asked, query), older_than=query.older_than, newest=query.newest, cursor=query.cursor,
            limit=query.limit,
        )  # fmt: skip
    except (ValueError, errors.ConfigError) as error:
        raise _unfit(error) from None
    return wire.Requests(requests=[wire.Request.of(one, asked.review) for one in page.requests], cursor=page.cursor)


def _claimer(asked: Asked, query: RequestsQuery) -> Reviewer | None:
    if query.mine:
        return asked.principal.reviewer
    if query.claimed_by is None:
        return None
    issuer, colon, subject = query.claimed_by.partition(":")
    return Reviewer(subject, issuer=issuer) if colon else Reviewer(issuer, issuer=LOCAL)


def request_at(asked: Asked) -> Request:
    """Return the request that the path names in full; a beginning of an id is none here."""
    request_id = asked.path("request_id")
    if _ID.fullmatch(request_id) is None:
        raise errors.RequestNotFoundError(request_id)
    return asked.review.get(request_id)


def etag(request: Request, content: wire.Request) -> str:
    """Return the tag of a request as it is told: what a decision would be about, where it stands, and all the rest."""
    text = json.dumps(content.model_dump(mode="json"), sort_keys=True)
    return f'"{request.current_fingerprint}.{request.state}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"'


def shown(asked: Asked, request: Request) -> Answer:
    """Return the answer that tells a request, with its tag."""
    content = wire.Request.of(request, asked.review)
    return Answer(content, headers={"etag": etag(request, content), "cache-control": "no-cache"})


def _get(asked: Asked) -> Answer:
    answer = shown(asked, request_at(asked))
    known = [tag.strip().removeprefix("W/") for tag in asked.http.headers.get("if-none-match", "").split(",")]
    if answer.headers["etag"] in known:
        return Answer(None, 304, answer.headers)
    return answer


def _journal_of_request(asked: Asked) -> wire.Journal:
    query, request = asked.said(PageQuery), request_at(asked)
    return _rows(asked, query.cursor, query.limit, run_id=request.run_id, request_id=request.id)


def _journal(asked: Asked) -> wire.Journal:
    query = asked.said(JournalQuery)
    return _rows(asked, query.cursor, query.limit, run_id=query.run, request_id=None)


def _rows(
    asked: Asked, cursor: str | None, limit: int, *, run_id: str | None, request_id: str | None
) -> wire.Journal:  # fmt: skip
    store = asked.settings.store
    rows = store.journal(run_id=run_id, request_id=request_id, after=_place(cursor), limit=limit)
    after = f"{rows[-1].seq}.{rows[-1].run_id}" if len(rows) == limit else None
    return wire.Journal(entries=[wire.Entry.of(store.legible(row)) for row in rows], cursor=after)


def _place(cursor: str | None) -> tuple[str, int] | None:
    if cursor is None:
        return None
    seq, dot, run_id = cursor.partition(".")
    if not dot or not seq.isascii() or not seq.isdigit() or len(seq) > 18:
        raise Problem("invalid_input", "this is not a cursor of the journal; begin again without one")
    return run_id, int(seq)


def _list_runs(asked: Asked) -> wire.Runs:
    query = asked.said(RunsQuery)
    states = frozenset[RunState]() if query.state is None else frozenset({query.state})
    try:
        found, cursor = asked.settings.store.runs(
            RunFilter(states, query.name), cursor=query.cursor, limit=query.limit
        )  # fmt: skip
    except ValueError as error:
        raise _unfit(error) from None
    return wire.Runs(runs=list(map(wire.Run.of, found)), cursor=cursor)


def _get_run(asked: Asked) -> wire.Run:
    return wire.Run.of(asked.settings.store.get_run(asked.path("run_id")).run)


def _me(asked: Asked) -> wire.Me:
    who = asked.principal
    return wire.Me(
        kind=who.kind, name=who.reviewer.subject, issuer=who.reviewer.issuer, roles=sorted(who.reviewer.roles),
        channel=who.channel, token=who.token_id, csrf=who.csrf,
    )  # fmt: skip


_UNCHANGED = {304: "It is still as `If-None-Match` says."}

OPERATIONS = (
    Operation("GET", "/v1/me", "Who asks", _me, answer=wire.Me),
    Operation(
        "GET", "/v1/requests", "List requests, oldest first", _list, kinds=READERS, query=RequestsQuery,
        answer=wire.Requests,
    ),
    Operation(
        "GET", "/v1/requests/{request_id}", "Show a request", _get, kinds=READERS, answer=wire.Request,
        problems=("request_not_found",), headers={"If-None-Match": "An ETag that is known."}, also=_UNCHANGED,
    ),
    Operation(
        "GET", "/v1/requests/{request_id}/journal", "What happened to a request", _journal_of_request, kinds=READERS,
        query=PageQuery, answer=wire.Journal, problems=("request_not_found",),
    ),
    Operation(
        "GET", "/v1/journal", "The journal, by run and place", _journal, kinds=READERS, query=JournalQuery,
        answer=wire.Journal,
    ),
    Operation(
        "GET", "/v1/runs", "List runs, newest first", _list_runs, kinds=READERS, query=RunsQuery,
        answer=wire.Runs,
    ),
    Operation(
        "GET", "/v1/runs/{run_id:path}", "Show a run", _get_run, kinds=READERS, answer=wire.Run,
        problems=("run_not_found",),
    ),
)  # fmt: skip
