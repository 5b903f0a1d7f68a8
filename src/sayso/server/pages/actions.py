"""Executes the forms on the page of a request: decide, grant, undo, comment, claim, assign, snooze, extend, resolve.

A form carries the fingerprint of exactly what it showed, and is refused if the request has another one now. A refused
form changes nothing: the page (`sayso.server.pages.request`) says why, and keeps what was filled in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock, errors
from sayso.model.edit import edited_call, schema_of
from sayso.model.request import Request, State
from sayso.model.text import escape, say
from sayso.server.api.problems import kind_of
from sayso.server.context import RequestContext, redirect
from sayso.server.pages import grants
from sayso.server.pages.arguments import zone_warnings
from sayso.server.pages.care import SNOOZES, NotDoneError, later_ends, person_named
from sayso.server.pages.edits import edit_of, read_answer
from sayso.server.pages.faults import told
from sayso.server.pages.rendering import unsure
from sayso.server.pages.request import Submitted, differences_of, fields_to_fill, is_open, request_page

_LEAVES = frozenset({"answer", "approve", "assign", "cancel", "feedback", "grant", "reject", "snooze"})
"""The verbs after which the next request opens."""


def act(context: RequestContext) -> Response:
    """Execute a form of a request's page."""
    asked, verb = context.http.path_params["request_id"], context.http.path_params["verb"]
    seen = context.form.get("seen", "")
    if verb not in {*_FORMS, *_PREVIEWS}:
        raise HTTPException(404, say("there is no such action"))
    request = context.review.get(asked)
    if request.id != asked or not seen:
        raise HTTPException(
            400, say("the form does not say which version of the request it showed; nothing was decided")
        )
    try:
        if seen != request.current_fingerprint and verb != "comment":
            raise errors.StaleViewError(request.id, seen=seen, current=request.current_fingerprint)
        if verb in _FORMS:
            _FORMS[verb](context, request, seen)
        elif is_open(request, "call"):
            return request_page(context, request, sent=_PREVIEWS[verb](context, request))
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
    """Return the address after a form: after a decision, the next pending request if the page named one."""
    asked = {"in": context.form.get("in", "")}
    after = context.form.get("then", "") if verb in _LEAVES else ""
    try:
        is_waiting = bool(after) and context.review.get(after).state is State.PENDING
    except (errors.RequestNotFoundError, errors.AmbiguousIdError):
        is_waiting = False
    if is_waiting:
        return context.path("r", after, **asked, done=request_id)
    return context.path("r", request_id, **asked)


def _approve(context: RequestContext, request: Request, seen: str) -> None:
    given = edit_of(request, context.form).given(request) if is_open(request, "call") else {}
    _must_be_sure(context, request)
    again = context.form.get("again") == "yes"
    context.review.approve(request.id, comment=context.field("note"), seen=seen, again=again, **given)


def _grant(context: RequestContext, request: Request, seen: str) -> None:
    _must_be_sure(context, request)
    grants.grant(context, request, seen)


def _must_be_sure(context: RequestContext, request: Request) -> None:
    why = unsure(request, context.form) if is_open(request, "call") else None
    if why is not None:
        raise NotDoneError(why)


def _feedback(context: RequestContext, request: Request, seen: str) -> None:
    note = context.field("note")
    if note is None and request.state is State.PENDING:
        missing = say("To send it back, write in the note what should be different. Nothing was decided.")
        raise NotDoneError(missing)
    context.review.feedback(request.id, note or "", seen=seen)


def _answer(context: RequestContext, request: Request, seen: str) -> None:  # noqa: ARG001  a question cannot change
    answer: object = None
    if is_open(request, "question"):
        answer, problems, _ = read_answer(fields_to_fill(request), context.form, schema_of(request))
        if problems:
            raise errors.InvalidAnswerError(request.id, problems)
    context.review.answer(request.id, answer, comment=context.field("note"))


def _resolve(context: RequestContext, request: Request, _: str) -> None:
    happened = context.form.get("happened")
    if happened not in {"yes", "no"}:
        raise NotDoneError(say("Choose whether it happened or not. Nothing was decided."))
    context.review.resolve(
        request.id, happened=happened == "yes", comment=context.field("note"), force=_is_forced(context)
    )


def _comment(context: RequestContext, request: Request, _: str) -> None:
    try:
        context.review.comment(request.id, context.field("comment") or "")
    except ValueError as error:
        raise NotDoneError(escape(str(error))) from None


def _snooze(context: RequestContext, request: Request, _: str) -> None:
    span = context.form.get("for", "")
    if span not in SNOOZES:
        raise NotDoneError(say("Choose for how long. Nothing was changed."))
    context.review.snooze(request.id, span)


def _extend(context: RequestContext, request: Request, _: str) -> None:
    span = context.form.get("span", "")
    if span not in dict(later_ends(request, clock.now())):
        raise NotDoneError(say("That is not later than its current end. Nothing was changed."))
    try:
        context.review.extend(request.id, span)
    except errors.ConfigError as fault:
        raise NotDoneError(escape(str(fault))) from None


def _is_forced(context: RequestContext) -> bool:
    return context.form.get("force") == "yes"


_FORMS: dict[str, Callable[[RequestContext, Request, str], object]] = {
    "answer": _answer,
    "approve": _approve,
    "assign": lambda on, one, _: on.review.assign(one.id, person_named(on, on.field("to") or "")),
    "cancel": lambda on, one, _: on.review.cancel(one.id, on.field("note")),
    "claim": lambda on, one, _: on.review.claim(one.id),
    "comment": _comment,
    "extend": _extend,
    "feedback": _feedback,
    "grant": _grant,
    "reject": lambda on, one, seen: on.review.reject(one.id, on.field("note"), seen=seen),
    "release": lambda on, one, _: on.review.release(one.id, force=_is_forced(on)),
    "resolve": _resolve,
    "snooze": _snooze,
    "undo": lambda on, one, _: on.review.undo(one.id),
    "wake": lambda on, one, _: on.review.snooze(one.id, None),
}


def _refused(context: RequestContext, request_id: str, fault: errors.DecisionRefusedError) -> Response:
    request = context.review.get(request_id)
    sent = Submitted(refusal=told(fault), note=context.form.get("note", ""))
    if isinstance(fault, errors.InvalidChangesError | errors.InvalidAnswerError):
        sent = replace(sent, refusal=say("Some values are not valid. Nothing was decided."), problems=fault.problems)
        if is_open(request, "call"):
            sent = replace(sent, widgets=edit_of(request, context.form).widgets)
        elif is_open(request, "question"):
            sent = replace(sent, widgets=read_answer(fields_to_fill(request), context.form, schema_of(request))[2])
    return request_page(context, request, status=kind_of(type(fault)).status, sent=sent)


def _preview(context: RequestContext, request: Request) -> Submitted:
    edit = edit_of(request, context.form)
    given = edit.given(request)
    after = edited_call(request, given.get("changes"), given.get("arguments")) if given else request.effective
    return Submitted(
        widgets=edit.widgets, note=context.form.get("note", ""),
        preview=differences_of(request, request.effective, after, edit.changes),
        warnings=zone_warnings(request.effective, after),
    )  # fmt: skip


def _preview_grant(context: RequestContext, request: Request) -> Submitted:
    widgets, terms = edit_of(request, context.form).widgets, grants.terms_of(context, request)
    return Submitted(widgets=widgets, note=context.form.get("note", ""), terms=terms)


_PREVIEWS = {"preview": _preview, "preview-grant": _preview_grant}
