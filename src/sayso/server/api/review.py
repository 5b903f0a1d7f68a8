"""The reviewers' part of the API: read requests, runs and the journal, decide, and manage tokens.

An approval must name what was seen, as `If-Match` with a request's ETag or as `seen` with its fingerprint. If that is
not what would run now, nothing is decided. Reading writes nothing, but a request past its expiry is shown as expired.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from starlette.responses import JSONResponse, Response

from sayso import errors, mplp
from sayso.audit.export import entry_document
from sayso.model import duration
from sayso.model.request import Request
from sayso.model.reviewer import LOCAL, Identity, Reviewer
from sayso.model.run import RunState
from sayso.server.api import messages
from sayso.server.api.endpoint import Context, Endpoint, Router, encoded
from sayso.server.api.problems import Problem, refusing_input
from sayso.server.auth.tokens import TokenKind, Tokens, doubt_about, with_roles
from sayso.server.context import settings_of
from sayso.stores.filter import RunFilter
from sayso.view.as_json import budget_document

__all__ = ["router"]

_Decide = Callable[[Context, Request, Any], Request]
router = Router()
_READERS: tuple[TokenKind, ...] = ("admin", "review")
_ID, _GRANT_ID = re.compile(r"rq_[0-9a-f]{32}"), re.compile(r"gr_[0-9a-f]{32}")
_AT = "/v1/requests/{request_id}"


@router.get("/v1/me", "Who asks")
def me(context: Context) -> messages.Me:
    who = context.principal
    return messages.Me(
        kind=who.kind, name=who.reviewer.subject, issuer=who.reviewer.issuer, roles=sorted(who.reviewer.roles),
        channel=who.channel, token=who.token_id, csrf=None if who.session is None else who.session.csrf,
    )  # fmt: skip


# -- looking -----------------------------------------------------------------------------------------------------


@router.get("/v1/requests", "List requests, oldest first", kinds=_READERS)
def list_requests(context: Context, query: messages.RequestsQuery) -> messages.Requests:
    given: dict[str, Any] = {**vars(query), "state": "all" if "all" in query.state else query.state or None}
    with refusing_input():
        if given.pop("mine"):
            given["claimed_by"] = context.principal.reviewer
        elif query.claimed_by is not None:
            given["claimed_by"] = _person(query.claimed_by)
        page = context.review.list(**given)
    found = [messages.Request.of(one, context.review) for one in page.requests]
    return messages.Requests(requests=found, cursor=page.cursor)


def _person(name: str) -> Reviewer:
    """Parse `issuer:subject`, or the subject of a local person; raises `ValueError`."""
    issuer, colon, subject = name.partition(":")
    return Reviewer(subject, issuer=issuer) if colon else Reviewer(issuer, issuer=LOCAL)


@router.get(
    _AT, "Show a request", kinds=_READERS, problems=("request_not_found",),
    reads={"If-None-Match": "A known ETag of the request."}, also={304: "Unchanged since `If-None-Match`."},
)  # fmt: skip
def get_request(context: Context) -> messages.Request:
    answer = _shown(context, _request(context))
    known = [tag.strip().removeprefix("W/") for tag in context.http.headers.get("if-none-match", "").split(",")]
    if context.headers["etag"] in known:
        context.status = 304
    return answer


def _request(context: Context) -> Request:
    """Return the request of the path. Its id must be complete: a prefix is not accepted here."""
    request_id = context.path("request_id")
    if _ID.fullmatch(request_id) is None:
        raise errors.RequestNotFoundError(request_id)
    return context.review.get(request_id)


def _shown(context: Context, request: Request) -> messages.Request:
    """Return the message for a request, and set an ETag of its fingerprint, its state and a digest of the message."""
    answer = messages.Request.of(request, context.review)
    digest = hashlib.sha256(encoded(answer)).hexdigest()[:16]
    context.headers |= {
        "etag": f'"{request.current_fingerprint}.{request.state}.{digest}"', "cache-control": "no-cache"
    }  # fmt: skip
    return answer


@router.get(f"{_AT}/journal", "List the journal rows of a request", kinds=_READERS, problems=("request_not_found",))
def journal_of_request(context: Context, query: messages.PageQuery) -> messages.Journal:
    request = _request(context)
    return _rows(context, query, request.run_id, request.id)


@router.get("/v1/journal", "List all journal rows, by run and position", kinds=_READERS)
def journal(context: Context, query: messages.JournalQuery) -> messages.Journal:
    return _rows(context, query, query.run, None)


def _rows(
    context: Context, query: messages.PageQuery, run_id: str | None, request_id: str | None
) -> messages.Journal:  # fmt: skip
    store, after = context.store, None
    if query.cursor is not None:
        seq, dot, run = query.cursor.partition(".")
        if not dot or not seq.isascii() or not seq.isdigit() or len(seq) > 18:
            raise Problem("invalid_input", "this is not a cursor of the journal; begin again without one")
        after = run, int(seq)
    rows = store.journal(run_id=run_id, request_id=request_id, after=after, limit=query.limit)
    cursor = f"{rows[-1].seq}.{rows[-1].run_id}" if len(rows) == query.limit else None
    entries = [messages.Entry.model_validate(entry_document(store.legible(row))) for row in rows]
    return messages.Journal(entries=entries, cursor=cursor)


@router.get("/v1/runs", "List runs, newest first", kinds=_READERS)
def list_runs(context: Context, query: messages.RunsQuery) -> messages.Runs:
    states = frozenset[RunState]() if query.state is None else frozenset({query.state})
    wanted = RunFilter(states, query.name)
    with refusing_input():
        found, cursor = context.store.runs(wanted, cursor=query.cursor, limit=query.limit)
    return messages.Runs(runs=list(map(messages.Run.of, found)), cursor=cursor)


@router.get("/v1/runs/{run_id:path}", "Show a run", kinds=_READERS, problems=("run_not_found",))
def get_run(context: Context) -> messages.Run:
    return messages.Run.of(context.store.get_run(context.path("run_id")).run)


# -- deciding: each verb of `sayso.reviews` ----------------------------------------------------------------------

_REVIEW: tuple[TokenKind, ...] = ("review",)
_EACH = ("request_not_found", "own_request", "missing_role", "claimed", "already_decided", "request_expired")
_MATCH = {"If-Match": "The ETag of the request as you saw it, instead of `seen`."}


def _seen(context: Context, seen: str | None) -> str | None:
    """Return the fingerprint that the client saw, from `If-Match` or the body."""
    tag = context.http.headers.get("if-match")
    if tag is None:
        return seen
    matched = tag.strip().removeprefix("W/").strip('"').partition(".")[0]
    if seen is not None and seen != matched:
        raise Problem("invalid_input", "If-Match and `seen` name different fingerprints; nothing was decided")
    return matched or None


def _operation(
    verb: str, body: type[messages.Input], summary: str, *problems: str, kinds: tuple[TokenKind, ...] = _REVIEW,
    sees: str = "", undone: str | None = None, decide: _Decide | None = None, **options: Any,
) -> None:  # fmt: skip
    """Register a verb of `Review`, whose keywords are the fields of the body, as an endpoint that returns the request.

    Args:
        sees: What needs the fingerprint of what the client saw, for the message of a problem; empty if nothing does.
        undone: Ends the message about a value that is valid by its schema and refused by the verb.
        decide: Decides in place of the verb itself.
    """

    def handler(context: Context, body: Any) -> messages.Request:
        request = _request(context)
        given: dict[str, Any] = {**vars(body)}
        if "seen" in given:
            given["seen"] = _must_have_seen(context, body.seen, sees) if sees else _seen(context, body.seen)
        with nullcontext() if undone is None else refusing_input(undone):
            after: Request = (
                getattr(context.review, verb)(request.id, **given) if decide is None else decide(context, request, body)
            )
        return _shown(context, after)

    handler.__name__ = verb
    router.endpoints.append(Endpoint(
        "POST", f"{_AT}/{verb}", summary, handler, Context, body, messages.Request, is_brief=True,
        problems=(*_EACH, *problems), kinds=kinds, **options,
    ))  # fmt: skip


def _must_have_seen(context: Context, seen: str | None, what: str) -> str:
    found = _seen(context, seen)
    if found is None or found == "*":
        words = f"{what} needs If-Match or `seen`, to name the version that you saw; nothing was decided"
        raise Problem("seen_required", words)
    return found


def _assign(context: Context, request: Request, body: messages.Assign) -> Request:
    to, people = _person(body.to), settings_of(context.http).sessions.people()
    who = with_roles(context.store, people, to.identity) or to.identity
    after = context.review.assign(request.id, who, force=body.force)
    if isinstance(who, Identity) and after.wanted_roles:
        context.headers["sayso-warning"] = (
            "the request needs a role, and this server does not know the roles of this person"
        )
    return after


def _snooze(context: Context, request: Request, body: messages.Snooze) -> Request:
    return context.review.snooze(request.id, body.until)


_operation(
    "approve", messages.Approve, "Approve a call, as proposed or with changes", "seen_required", "stale_view",
    "wrong_kind", "invalid_changes", "already_voted", "reason_missing", "decision_refused", reads=_MATCH,
    sees="an approval",
)  # fmt: skip
_operation("reject", messages.Reject, "Reject a request", "stale_view", "reason_missing", reads=_MATCH)
_operation(
    "feedback", messages.Feedback, "Send a call back to the program with a message", "stale_view", "wrong_kind",
    "reason_missing", reads=_MATCH,
)  # fmt: skip
_operation("answer", messages.Reply, "Answer a question", "wrong_kind", "invalid_answer")
_operation("cancel", messages.Cancel, "Cancel a request and end its run")
_operation("comment", messages.Remark, "Comment on a request for its other reviewers", "invalid_input", undone="")
_operation("claim", messages.Empty, "Claim a request: nobody else can decide it")
_operation(
    "assign", messages.Assign, "Assign a request to another reviewer", "already_voted", "invalid_input",
    undone="; nothing was done", decide=_assign,
)  # fmt: skip
_operation(
    "snooze", messages.Snooze, "Hide a request from your own list", "decision_refused", "invalid_input",
    undone="; nothing was done", decide=_snooze,
)  # fmt: skip
_operation("release", messages.Release, "Release a claimed request", "not_claimed", kinds=_READERS)
_operation(
    "extend", messages.Extend, "Postpone the expiry of a request or an unused approval", undone="; nothing was changed"
)
_operation(
    "resolve", messages.Resolve, "Record whether a call with an unknown outcome happened", "not_unknown", "stale_view",
    kinds=_READERS,
)  # fmt: skip


# -- away --------------------------------------------------------------------------------------------------------


@router.get("/v1/away", "List who is away, and their stand-ins", kinds=_READERS)
def list_away(context: Context) -> messages.Delegations:
    return messages.Delegations(away=list(map(messages.Delegation.of, context.review.delegations())))


@router.post("/v1/away", "Declare yourself away, and name a stand-in", kinds=_REVIEW, problems=("invalid_input",))
def away(context: Context, body: messages.Away) -> messages.Delegation:
    with refusing_input(""):
        made = context.review.delegate(_person(body.to), body.until)
    return messages.Delegation.of(made, warning=doubt_about(context.store, made.to))


@router.post("/v1/back", "Declare yourself back", kinds=_REVIEW)
def back(context: Context, _: messages.Empty) -> messages.Delegations:
    context.review.end_delegation()
    return list_away(context)


# -- grants and the stop -----------------------------------------------------------------------------------------


@router.post(
    f"{_AT}/grant", "Approve a call, and grant similar calls in advance", kinds=_REVIEW, reads=_MATCH,
    problems=(*_EACH, "seen_required", "stale_view", "wrong_kind", "invalid_changes", "already_voted", "grant_refused"),
)  # fmt: skip
def grant(context: Context, body: messages.GrantTerms) -> messages.Grant:
    request = _request(context)
    given: dict[str, Any] = {**vars(body), "seen": _must_have_seen(context, body.seen, "a grant")}
    with refusing_input("; nothing was decided"):
        given["lasts"] = duration.parse(body.lasts)
    return messages.Grant.of(context.review.grant(request.id, **given))


@router.get("/v1/grants", "List grants, newest first, and the use of budgets", kinds=_READERS)
def list_grants(context: Context, query: messages.GrantsQuery) -> messages.Grants:
    found = list(map(messages.Grant.of, context.review.grants(ended=query.ended)))
    budgets = [messages.Budget.model_validate(budget_document(one)) for one in context.store.budgets()]
    return messages.Grants(grants=found, budgets=budgets)


@router.post(
    "/v1/grants/{grant_id}/agree", "Agree to another reviewer's grant", kinds=_REVIEW,
    problems=("grant_not_found", "own_request", "missing_role", "already_voted"),
)  # fmt: skip
def agree(context: Context, _: messages.Empty) -> messages.Grant:
    return messages.Grant.of(context.review.agree(_grant_id(context)))


@router.post("/v1/grants/{grant_id}/revoke", "Revoke a grant at once", kinds=_READERS, problems=("grant_not_found",))
def revoke_grant(context: Context, body: messages.Reason) -> messages.Grant:
    return messages.Grant.of(context.review.revoke(_grant_id(context), reason=body.reason))


def _grant_id(context: Context) -> str:
    grant_id = context.path("grant_id")
    if _GRANT_ID.fullmatch(grant_id) is None:
        raise errors.GrantNotFoundError(grant_id)
    return grant_id


@router.get("/v1/stop", "Get whether all calls are stopped", kinds=_READERS)
def stopped(context: Context) -> messages.Stop:
    found = context.review.stopped()
    if found is None:
        return messages.Stop(stopped=False)
    return messages.Stop(stopped=True, by=found.by.qualified, at=found.at, reason=found.reason)


@router.post("/v1/stop", "Block all calls from starting, even approved ones", kinds=_READERS)
def stop(context: Context, body: messages.Reason) -> messages.Stop:
    context.review.stop(reason=body.reason)
    return stopped(context)


@router.post("/v1/go", "Let calls start again", kinds=_REVIEW)  # approved calls start: only a person may decide that
def go(context: Context, body: messages.Reason) -> messages.Stop:
    context.review.go(reason=body.reason)
    return stopped(context)


# -- tokens: made only on the server's machine, so that a leaked admin token cannot create reviewers --------------


@router.get("/v1/tokens", "List tokens", kinds=("admin",))
def tokens(context: Context) -> messages.Tokens:
    return messages.Tokens(tokens=list(map(messages.Token.of, Tokens(context.store).all())))


@router.delete("/v1/tokens/{token_id}", "Revoke a token at once", kinds=("admin",), problems=("not_found",))
def revoke(context: Context) -> messages.Token:
    who, all_tokens = context.principal, Tokens(context.store)
    token = all_tokens.revoke(context.path("token_id"), by=who.reviewer.identity, channel=who.channel)
    if token is None:
        raise Problem("not_found", "there is no token with this id; nothing was changed")
    return messages.Token.of(token)


# -- the Confirm protocol: documents generated from the record, and their schemas --------------------------------


@router.get(
    "/v1/confirms/{confirm_id}", "Show a request, or all rounds of a plan, as a Confirm", kinds=_READERS,
    problems=("not_found",),
)  # fmt: skip
def confirm(context: Context) -> Response:
    try:
        return JSONResponse(mplp.document_of(context.store, context.path("confirm_id")))
    except mplp.ConfirmNotFoundError:
        raise Problem("not_found", "there is no Confirm, plan or request with this id; nothing was done") from None
    except mplp.NotConformantError:
        words = "the request with this id is not a document of the Confirm protocol; nothing was done"
        raise Problem("not_found", words) from None


@router.get(
    "/v1/schemas/{kind}",
    "Get a schema of the Confirm protocol: confirm, plan or learning-sample",
    problems=("not_found",),
)
def schema(context: Context) -> Response:
    try:
        return JSONResponse(mplp.schema(context.path("kind")))
    except KeyError as error:
        raise Problem("not_found", f"{error.args[0]}; nothing was done") from None
