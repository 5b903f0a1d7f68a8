"""The reviewers' half of the API: look at requests, runs and the journal, decide, and look after tokens.

An approval says what was seen, as `If-Match` with a request's ETag or as `seen` with its fingerprint. What would run
now is what was seen, or nothing is decided. Looking writes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from starlette.responses import JSONResponse

from sayso import errors, mplp
from sayso.model import duration
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, Reviewer
from sayso.model.run import RunState
from sayso.server.api import wire
from sayso.server.api.endpoint import Answer, Context, Endpoint, Input
from sayso.server.api.problems import Problem
from sayso.server.auth.tokens import TokenKind, Tokens
from sayso.stores.filter import RunFilter

__all__ = [
    "OPERATIONS",
    "READERS",
    "Approve",
    "Cancel",
    "Claim",
    "Extend",
    "Feedback",
    "JournalQuery",
    "PageQuery",
    "Query",
    "Reject",
    "Release",
    "Reply",
    "RequestsQuery",
    "Resolve",
    "RunsQuery",
    "answer",
    "approve",
    "cancel",
    "claim",
    "etag",
    "extend",
    "feedback",
    "reject",
    "release",
    "request_at",
    "resolve",
    "revoke",
    "shown",
    "tokens",
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


def _list(asked: Context) -> wire.Requests:
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


def _claimer(asked: Context, query: RequestsQuery) -> Reviewer | None:
    if query.mine:
        return asked.principal.reviewer
    if query.claimed_by is None:
        return None
    issuer, colon, subject = query.claimed_by.partition(":")
    return Reviewer(subject, issuer=issuer) if colon else Reviewer(issuer, issuer=LOCAL)


def request_at(asked: Context) -> Request:
    """Return the request that the path names in full; a beginning of an id is none here."""
    request_id = asked.path("request_id")
    if _ID.fullmatch(request_id) is None:
        raise errors.RequestNotFoundError(request_id)
    return asked.review.get(request_id)


def etag(request: Request, content: wire.Request) -> str:
    """Return the tag of a request as it is told: what a decision would be about, where it stands, and all the rest."""
    text = json.dumps(content.model_dump(mode="json"), sort_keys=True)
    return f'"{request.current_fingerprint}.{request.state}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"'


def shown(asked: Context, request: Request) -> Answer:
    """Return the answer that tells a request, with its tag."""
    content = wire.Request.of(request, asked.review)
    return Answer(content, headers={"etag": etag(request, content), "cache-control": "no-cache"})


def _get(asked: Context) -> Answer:
    answer = shown(asked, request_at(asked))
    known = [tag.strip().removeprefix("W/") for tag in asked.http.headers.get("if-none-match", "").split(",")]
    if answer.headers["etag"] in known:
        return Answer(None, 304, answer.headers)
    return answer


def _journal_of_request(asked: Context) -> wire.Journal:
    query, request = asked.said(PageQuery), request_at(asked)
    return _rows(asked, query.cursor, query.limit, run_id=request.run_id, request_id=request.id)


def _journal(asked: Context) -> wire.Journal:
    query = asked.said(JournalQuery)
    return _rows(asked, query.cursor, query.limit, run_id=query.run, request_id=None)


def _rows(
    asked: Context, cursor: str | None, limit: int, *, run_id: str | None, request_id: str | None
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


def _list_runs(asked: Context) -> wire.Runs:
    query = asked.said(RunsQuery)
    states = frozenset[RunState]() if query.state is None else frozenset({query.state})
    try:
        found, cursor = asked.settings.store.runs(
            RunFilter(states, query.name), cursor=query.cursor, limit=query.limit
        )  # fmt: skip
    except ValueError as error:
        raise _unfit(error) from None
    return wire.Runs(runs=list(map(wire.Run.of, found)), cursor=cursor)


def _get_run(asked: Context) -> wire.Run:
    return wire.Run.of(asked.settings.store.get_run(asked.path("run_id")).run)


def _me(asked: Context) -> wire.Me:
    who = asked.principal
    return wire.Me(
        kind=who.kind, name=who.reviewer.subject, issuer=who.reviewer.issuer, roles=sorted(who.reviewer.roles),
        channel=who.channel, token=who.token_id, csrf=who.csrf,
    )  # fmt: skip


_UNCHANGED = {304: "It is still as `If-None-Match` says."}

_LOOKING = (
    Endpoint("GET", "/v1/me", "Who asks", _me, answer=wire.Me),
    Endpoint(
        "GET", "/v1/requests", "List requests, oldest first", _list, kinds=READERS, query=RequestsQuery,
        answer=wire.Requests,
    ),
    Endpoint(
        "GET", "/v1/requests/{request_id}", "Show a request", _get, kinds=READERS, answer=wire.Request,
        problems=("request_not_found",), headers={"If-None-Match": "An ETag that is known."}, also=_UNCHANGED,
    ),
    Endpoint(
        "GET", "/v1/requests/{request_id}/journal", "What happened to a request", _journal_of_request, kinds=READERS,
        query=PageQuery, answer=wire.Journal, problems=("request_not_found",),
    ),
    Endpoint(
        "GET", "/v1/journal", "The journal, by run and place", _journal, kinds=READERS, query=JournalQuery,
        answer=wire.Journal,
    ),
    Endpoint(
        "GET", "/v1/runs", "List runs, newest first", _list_runs, kinds=READERS, query=RunsQuery,
        answer=wire.Runs,
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id:path}", "Show a run", _get_run, kinds=READERS, answer=wire.Run,
        problems=("run_not_found",),
    ),
)  # fmt: skip


Comment = Annotated[str | None, Field(max_length=20_000, description="The program is told, and the record keeps it.")]
Seen = Annotated[
    str | None, Field(min_length=1, max_length=200, description="`fingerprint` of the request as it was looked at.")
]
_MATCH = {"If-Match": "ETag of the request as it was looked at; instead of `seen`."}


class Approve(Input):
    """Let the call run, as it stands or with other arguments. `seen` or `If-Match` is needed."""

    changes: dict[str, Any] | None = Field(None, description="New values for some arguments.")
    arguments: dict[str, Any] | None = Field(None, description="All arguments, in place of those that stand.")
    comment: Comment = None
    seen: Seen = None
    again: bool = Field(False, description="Let it start although its effect is taken; `comment` says why.")


class Reject(Input):
    """Say no."""

    comment: Comment = None
    seen: Seen = None


class Feedback(Input):
    """Send a call back with words to the program."""

    comment: str = Field(min_length=1, max_length=20_000)
    seen: Seen = None


class Reply(Input):
    """Answer a question, by a value of its type."""

    value: Any
    comment: Comment = None


class Cancel(Input):
    """End the whole run."""

    comment: Comment = None


class Claim(Input):
    """Take a request on; the body is empty."""


class Release(Input):
    """Give a claimed request back."""

    force: bool = Field(False, description="Free what somebody else claimed; the journal says so.")


class Extend(Input):
    """Let a pending request, or an unused approval, end so long from now."""

    span: str = Field(min_length=1, max_length=100, description="`90s`, `15m`, `24h`, `7d`.")


class Resolve(Input):
    """Say whether a call had its effect whose outcome is unknown."""

    happened: bool
    comment: Comment = None
    force: bool = Field(False, description="Also while it is recorded as running: its worker is surely gone.")


def _seen(asked: Context, said: str | None) -> str | None:
    """Return the fingerprint that was looked at, as the header or the body says it."""
    tag = asked.http.headers.get("if-match")
    if tag is None:
        return said
    matched = tag.strip().removeprefix("W/").strip('"').partition(".")[0]
    if said is not None and said != matched:
        raise Problem("invalid_input", "If-Match and `seen` name different fingerprints; nothing was decided")
    return matched or None


def approve(asked: Context) -> Answer:
    """Approve."""
    request, said = request_at(asked), asked.said(Approve)
    seen = _seen(asked, said.seen)
    if seen is None or seen == "*":
        raise Problem(
            "seen_required",
            "an approval needs If-Match, or `seen`, with what was looked at; nothing was decided, look first",
        )
    return shown(asked, asked.review.approve(
        request.id, changes=said.changes, arguments=said.arguments, comment=said.comment, seen=seen,
        again=said.again,
    ))  # fmt: skip


def reject(asked: Context) -> Answer:
    """Say no."""
    request, said = request_at(asked), asked.said(Reject)
    return shown(asked, asked.review.reject(request.id, said.comment, seen=_seen(asked, said.seen)))


def feedback(asked: Context) -> Answer:
    """Send back."""
    request, said = request_at(asked), asked.said(Feedback)
    return shown(asked, asked.review.feedback(request.id, said.comment, seen=_seen(asked, said.seen)))


def answer(asked: Context) -> Answer:
    """Answer a question."""
    request, said = request_at(asked), asked.said(Reply)
    return shown(asked, asked.review.answer(request.id, said.value, comment=said.comment))


def cancel(asked: Context) -> Answer:
    """End the run."""
    return shown(asked, asked.review.cancel(request_at(asked).id, asked.said(Cancel).comment))


def claim(asked: Context) -> Answer:
    """Take on."""
    return shown(asked, asked.review.claim(request_at(asked).id))


def release(asked: Context) -> Answer:
    """Give back."""
    return shown(asked, asked.review.release(request_at(asked).id, force=asked.said(Release).force))


def extend(asked: Context) -> Answer:
    """Let last longer."""
    request = request_at(asked)
    try:
        span = duration.parse(asked.said(Extend).span)
    except errors.ConfigError as error:
        raise Problem("invalid_input", f"{error}; nothing was changed") from None
    return shown(asked, asked.review.extend(request.id, span))


def resolve(asked: Context) -> Answer:
    """Say what became of it."""
    request, said = request_at(asked), asked.said(Resolve)
    return shown(asked, asked.review.resolve(
        request.id, happened=said.happened, comment=said.comment, force=said.force
    ))  # fmt: skip


_ALWAYS = ("request_not_found", "own_request", "missing_role", "claimed", "already_decided", "request_expired")


def _verb(
    handler: Callable[[Context], Answer], summary: str, body: type[Input], *more: str,
    kinds: tuple[TokenKind, ...] = ("review",), matches: bool = False,
) -> Endpoint:  # fmt: skip
    name = handler.__name__
    return Endpoint(
        "POST", f"/v1/requests/{{request_id}}/{name}", summary, handler, kinds=kinds, body=body, answer=wire.Request,
        problems=(*_ALWAYS, *more), headers=_MATCH if matches else {},
    )  # fmt: skip


_KEEPERS: tuple[TokenKind, ...] = ("admin", "review")

_DECIDING = (
    _verb(
        approve, "Approve a call, as it stands or with changes", Approve, "seen_required", "stale_view", "wrong_kind",
        "invalid_changes", "already_voted", "reason_missing", "decision_refused", matches=True,
    ),
    _verb(reject, "Say no", Reject, "stale_view", "reason_missing", matches=True),
    _verb(
        feedback, "Send a call back with words to the program", Feedback, "stale_view", "wrong_kind", "reason_missing",
        matches=True,
    ),
    _verb(answer, "Answer a question", Reply, "wrong_kind", "invalid_answer"),
    _verb(cancel, "End the whole run at a request", Cancel),
    _verb(claim, "Take a request on: nobody else can decide it", Claim),
    _verb(release, "Give a claimed request back", Release, "not_claimed", kinds=_KEEPERS),
    _verb(extend, "Let a request, or an unused approval, last longer", Extend),
    _verb(resolve, "Say whether a call happened whose outcome is unknown", Resolve, "not_unknown", kinds=_KEEPERS),
)  # fmt: skip


def tokens(asked: Context) -> wire.Tokens:
    """List all."""
    return wire.Tokens(tokens=list(map(wire.Token.of, Tokens(asked.settings.store).all())))


def revoke(asked: Context) -> wire.Token:
    """End one."""
    who = asked.principal
    token = Tokens(asked.settings.store).revoke(asked.path("token_id"), by=who.reviewer.identity, channel=who.channel)
    if token is None:
        raise Problem("not_found", "there is no token of this id; nothing was changed")
    return wire.Token.of(token)


_TOKENS = (
    Endpoint("GET", "/v1/tokens", "List tokens", tokens, kinds=("admin",), answer=wire.Tokens),
    Endpoint(
        "DELETE", "/v1/tokens/{token_id}", "Revoke a token, at once", revoke, kinds=("admin",), answer=wire.Token,
        problems=("not_found",),
    ),
)  # fmt: skip


def _confirm(asked: Context) -> JSONResponse:
    try:
        return JSONResponse(mplp.document_of(asked.settings.store, asked.path("confirm_id")))
    except mplp.ConfirmNotFoundError:
        raise Problem("not_found", "there is no Confirm, plan or request of this id here; nothing was done") from None
    except mplp.NotConformantError:
        words = "what a program asked for by this id is no document of the protocol; nothing was done"
        raise Problem("not_found", words) from None


def _schema(asked: Context) -> JSONResponse:
    try:
        return JSONResponse(mplp.schema(asked.path("kind")))
    except KeyError as error:
        raise Problem("not_found", f"{error.args[0]}; nothing was done") from None


_CONFIRMS = (
    Endpoint(
        "GET", "/v1/confirms/{confirm_id}", "Show a request, or all rounds of a plan, as a Confirm", _confirm,
        kinds=READERS, problems=("not_found",),
    ),
    Endpoint(
        "GET", "/v1/schemas/{kind}", "A schema of the Confirm protocol: confirm, plan or learning-sample", _schema,
        problems=("not_found",),
    ),
)  # fmt: skip

OPERATIONS = (*_LOOKING, *_DECIDING, *_TOKENS, *_CONFIRMS)
