"""What the forms on the page of a request do: decide, grant, undo, claim, snooze, extend, resolve.

A form carries the fingerprint of exactly what it shows, and decides nothing about any other. A refused form changes
nothing: the page (`sayso.server.pages.request`) says why, with what was filled in.
"""

from __future__ import annotations

from dataclasses import replace

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import errors
from sayso.model.edit import edited_call, schema_of
from sayso.model.request import Request, State
from sayso.model.words import say
from sayso.server.api.problems import kind_of
from sayso.server.context import RequestContext, redirect
from sayso.server.pages import granting
from sayso.server.pages.arguments import zone_warnings
from sayso.server.pages.care import CARE, NotDoneError, care_for
from sayso.server.pages.edits import edit_of, read_answer
from sayso.server.pages.faults import told
from sayso.server.pages.rendering import unsure
from sayso.server.pages.request import Submitted, differences_of, fields_to_fill, is_open, request_page

_DECIDE = frozenset({"answer", "approve", "cancel", "feedback", "grant", "reject"})
_VERBS = _DECIDE | CARE | {"preview", "preview-grant", "resolve", "undo"}
_LEAVES = _DECIDE | {"assign", "snooze"}
"""After which the next request opens."""


def act(context: RequestContext) -> Response:
    """Do what a form of a request's page says."""
    asked, verb = context.http.path_params["request_id"], context.http.path_params["verb"]
    seen = context.form.get("seen", "")
    if verb not in _VERBS:
        raise HTTPException(404, say("there is no such thing to do"))
    request = context.review.get(asked)
    if request.id != asked or not seen:
        raise HTTPException(400, say("the form does not say which request it showed; nothing was decided"))
    try:
        if seen != request.current_fingerprint and verb != "comment":
            raise errors.StaleViewError(request.id, seen=seen, current=request.current_fingerprint)
        if verb == "preview" and is_open(request, "call"):
            return _preview(context, request)
        if verb == "preview-grant" and is_open(request, "call"):
            widgets, terms = edit_of(request, context.form).widgets, granting.terms_of(context, request)
            sent = Submitted(widgets=widgets, note=context.form.get("note", ""), terms=terms)
            return request_page(context, request, sent=sent)
        _do(context, request, verb, seen)
    except NotDoneError as refused:
        request = context.review.get(request.id)
        edit = edit_of(request, context.form) if is_open(request, "call") else None
        widgets = edit.widgets if edit is not None and edit.is_any else None
        sent = Submitted(str(refused), widgets=widgets, note=context.form.get("note", ""))
        return request_page(context, request, status=422, sent=sent)
    except errors.DecisionRefusedError as fault:
        return _refused(context, request.id, fault)
    return redirect(_next_page(context, request.id, verb) + ("#comments" if verb == "comment" else ""))


def _next_page(context: RequestContext, request_id: str, verb: str) -> str:
    """Return where a form leads: after a decision to the next request that waits, where the page named one."""
    asked = {"in": context.form.get("in", "")}
    after = context.form.get("then", "") if verb in _LEAVES else ""
    try:
        is_waiting = bool(after) and context.review.get(after).state is State.PENDING
    except (errors.RequestNotFoundError, errors.AmbiguousIdError):
        is_waiting = False
    if is_waiting:
        return context.path("r", after, **asked, done=request_id)
    return context.path("r", request_id, **asked)


def _do(context: RequestContext, request: Request, verb: str, seen: str) -> None:
    review, note, is_forced = context.review, context.field("note"), context.form.get("force") == "yes"
    match verb:
        case "approve":
            given = edit_of(request, context.form).given(request) if is_open(request, "call") else {}
            _must_be_sure(context, request)
            review.approve(request.id, comment=note, seen=seen, again=context.form.get("again") == "yes", **given)
        case "reject":
            review.reject(request.id, note, seen=seen)
        case "feedback":
            review.feedback(request.id, _feedback(context, request) or "", seen=seen)
        case "answer":
            review.answer(request.id, _answer(context, request), comment=note)
        case "cancel":
            review.cancel(request.id, note)
        case "resolve":
            review.resolve(request.id, happened=_happened(context), comment=note, force=is_forced)
        case "grant":
            _must_be_sure(context, request)
            granting.grant(context, request, seen)
        case "undo":
            review.undo(request.id)
        case _ if verb in CARE:
            care_for(context, request, verb)
        case _:
            pass  # a preview of what does not wait any more


def _must_be_sure(context: RequestContext, request: Request) -> None:
    why = unsure(request, context.form) if is_open(request, "call") else None
    if why is not None:
        raise NotDoneError(why)


def _feedback(context: RequestContext, request: Request) -> str | None:
    note = context.field("note")
    if note is None and request.state is State.PENDING:
        missing = say("To send it back, write into the note what should be different; nothing was decided.")
        raise NotDoneError(missing)
    return note


def _answer(context: RequestContext, request: Request) -> object:
    if not is_open(request, "question"):
        return None
    answer, problems, _ = read_answer(fields_to_fill(request), context.form, schema_of(request))
    if problems:
        raise errors.InvalidAnswerError(request.id, problems)
    return answer


def _happened(context: RequestContext) -> bool:
    happened = context.form.get("happened")
    if happened not in {"yes", "no"}:
        raise NotDoneError(say("Say whether it happened or not; nothing was decided."))
    return happened == "yes"


def _refused(context: RequestContext, request_id: str, fault: errors.DecisionRefusedError) -> Response:
    request = context.review.get(request_id)
    sent = Submitted(refusal=told(fault), note=context.form.get("note", ""))
    if isinstance(fault, errors.InvalidChangesError | errors.InvalidAnswerError):
        sent = replace(sent, refusal=say("This does not fit; nothing was decided."), problems=fault.problems)
        if is_open(request, "call"):
            sent = replace(sent, widgets=edit_of(request, context.form).widgets)
        elif is_open(request, "question"):
            sent = replace(sent, widgets=read_answer(fields_to_fill(request), context.form, schema_of(request))[2])
    return request_page(context, request, status=kind_of(type(fault)).status, sent=sent)


def _preview(context: RequestContext, request: Request) -> Response:
    edit = edit_of(request, context.form)
    given = edit.given(request)
    after = edited_call(request, given.get("changes"), given.get("arguments")) if given else request.effective
    sent = Submitted(
        widgets=edit.widgets, note=context.form.get("note", ""),
        preview=differences_of(request, request.effective, after, edit.changes),
        warnings=zone_warnings(request.effective, after),
    )  # fmt: skip
    return request_page(context, request, sent=sent)
