"""The page of one request, and what its forms do: decide, claim, release, extend, resolve.

What would run comes first and is drawn by us; the program's own words stand apart, under a label that says whose they
are. A form carries the fingerprint of exactly what it shows, and decides nothing about any other. A refused form
changes nothing, and the page says why and in which state the request is now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import audit, clock, errors
from sayso.model.edit import PLAN_TOOL, edited_call, is_target, schema_of
from sayso.model.escaping import escape
from sayso.model.rendering import brief, value
from sayso.model.request import Request, State, changed
from sayso.model.reviewer import TOKENS
from sayso.server.context import RequestContext, redirect
from sayso.server.error_pages import status_of
from sayso.server.pages.form_input import Edit, read_answer, read_edit
from sayso.server.pages.forms import Widget, answer_fields, argument_fields, with_problems
from sayso.server.pages.rendering import facts, render, row_of
from sayso.terminal import PROGRAM_GONE
from sayso.view import Change, card
from sayso.view.card import outcome_rows
from sayso.view.document import event_rows

__all__ = ["VERBS", "Submitted", "act", "fields_for", "request_page", "show_request", "standing"]

_WIDTH = 84
_TITLE_ROOM = 80


@dataclass(frozen=True)
class Submitted:
    """What a reviewer sent that decided nothing, to be shown again.

    Attributes:
        refusal: Why it decided nothing.
        problems: What does not fit, `where: what is wrong`.
        widgets: The fields as they were filled in.
        note: What was written beside them.
        preview: What the edit would change; None where that was not asked for.
    """

    refusal: str | None = None
    problems: Sequence[str] = ()
    widgets: tuple[Widget, ...] | None = None
    note: str = ""
    preview: Sequence[Change] | None = None


def show_request(context: RequestContext) -> Response:
    """Show a request by its id; a beginning of it leads to the whole address."""
    asked = context.http.path_params["request_id"]
    request = context.review.get(asked)
    if request.id != asked:
        return redirect(context.path("r", request.id))
    return request_page(context, request)


def fields_for(request: Request) -> tuple[Widget, ...]:
    """Return the fields of what a reviewer can change, or is to answer."""
    schema = schema_of(request)
    return argument_fields(request, schema) if request.kind == "call" else answer_fields(schema)


def request_page(
    context: RequestContext, request: Request, *, status: int = 200, sent: Submitted | None = None
) -> Response:
    """Return the page of a request as it stands."""
    now, given, same_effect = clock.now(), Submitted() if sent is None else sent, context.review.same_effect(request)
    widgets, unreadable = _widgets(request, given)
    widgets, rest = with_problems(widgets, given.problems)
    timeline = event_rows(audit.entries(context.settings.store, run_id=request.run_id, request_id=request.id))
    return render(
        context, "request.html", status=status, row=row_of(request, now), facts=facts(request, now),
        subject=_subject(request), words=_words(request), same_effect=bool(same_effect),
        cautions=[*card.cautions(request), *card.effect_cautions(same_effect, now)],
        unverified=card.unverified(request), by_token=request.requester.issuer == TOKENS, widgets=widgets,
        unreadable=unreadable, problems=[escape(problem) for problem in rest], sent=given, timeline=timeline,
        left=PROGRAM_GONE if context.review.program_is_gone(request) else None,
        moves=_possible_actions(context, request),
        stream=None if request.is_final else context.path("events", shown=_mark(request), rows=request.id),
        **_result(request),
    )  # fmt: skip


def standing(request: Request) -> str:
    """Return where a request stands, in one line, for a page that is open."""
    return row_of(request, clock.now()).stands


def _mark(request: Request) -> str:
    return str(request.state)


def _widgets(request: Request, given: Submitted) -> tuple[tuple[Widget, ...], str | None]:
    if request.state is not State.PENDING:
        return (), None
    if given.widgets is not None:
        return given.widgets, None
    try:
        return fields_for(request), None
    except errors.StoreCorruptError as fault:
        return (), escape(str(fault))


def _subject(request: Request) -> dict[str, Any]:
    if request.kind == "question":
        return {"question": request.question.text, "call": "", "tool": ""}
    rows = card.subject_rows(request, width=_WIDTH, full=True)
    return {"question": None, "call": "\n".join(rows), "tool": _call_title(request)}


def _call_title(request: Request) -> str:
    """Return what heads the page of a call: the name of its function, or which plan is to be carried out."""
    call = request.effective
    title = call.shown.get("title")
    if call.tool != PLAN_TOOL or not isinstance(title, str):
        return escape(call.name)
    return f"Plan {brief(title, _TITLE_ROOM)}"


def _words(request: Request) -> dict[str, str]:
    """Return what the program says, as texts; facts for the front end are drawn as values are."""
    said = {"title": request.title, "summary": request.summary, "effect": request.effect}
    said |= {"prompt": request.prompt, "description": request.description, "rule": request.rule}
    told = {name: escape(words, block=True) for name, words in said.items() if words is not None}
    return told | ({} if request.context is None else {"context": _context(request.context)})


def _context(context: dict[str, Any]) -> str:
    return "\n".join(f"{escape(name)}: {value(item)}" for name, item in context.items())


def _result(request: Request) -> dict[str, Any]:
    """Return what became of a request: what an edit changed, and how the call went."""
    found = []
    if request.kind == "call" and request.edited is not None:
        found = changed(request.call, request.edited, request.redact)
    return {"changes": found, "outcome": [row.strip() for row in outcome_rows(request)]}


def _possible_actions(context: RequestContext, request: Request) -> dict[str, bool]:
    """Return what can be done with a request now."""
    claimed = request.claimed_by
    is_mine = claimed is not None and claimed.is_same(context.reviewer.identity)
    is_pending = request.state is State.PENDING
    return {
        "decide": is_pending and request.kind == "call",
        "answer": is_pending and request.kind == "question",
        "cancel": request.state in {State.PENDING, State.APPROVED},
        "claim": is_pending and claimed is None,
        "release": is_pending and is_mine,
        "take_over": is_pending and claimed is not None and not is_mine,
        "extend": request.state in {State.PENDING, State.APPROVED},
        "resolve": request.state is State.UNKNOWN,
        "force": request.state is State.RUNNING,
        "needs_reason": is_target(request),
        "again": request.retries > 0 or request.idempotent,
    }


class _RefusedError(Exception):
    """A form that decides nothing."""

    def __init__(self, status: int, sent: Submitted) -> None:
        super().__init__(status)
        self.status, self.sent = status, sent


def act(context: RequestContext) -> Response:
    """Do what a form of a request's page says."""
    asked, deed = context.http.path_params["request_id"], VERBS.get(context.http.path_params["verb"])
    seen = context.form.get("seen", "")
    if deed is None:
        raise HTTPException(404, "there is no such thing to do")
    request = context.review.get(asked)
    if request.id != asked or not seen:
        raise HTTPException(400, "the form does not say which request it showed; nothing was decided")
    try:
        if seen != request.current_fingerprint:
            raise errors.StaleViewError(request.id, seen=seen, current=request.current_fingerprint)
        answered = deed(context, request, seen)
    except _RefusedError as refused:
        return request_page(context, context.review.get(asked), status=refused.status, sent=refused.sent)
    except errors.DecisionRefusedError as fault:
        return _refused(context, asked, fault)
    return redirect(context.path("r", request.id)) if answered is None else answered


def _refused(context: RequestContext, request_id: str, fault: errors.DecisionRefusedError) -> Response:
    """Show the request as it stands now, and why nothing was decided."""
    request = context.review.get(request_id)
    sent = Submitted(refusal=escape(str(fault)), note=context.form.get("note", ""))
    if isinstance(fault, errors.InvalidChangesError | errors.InvalidAnswerError):
        sent = replace(sent, refusal="This does not fit; nothing was decided.", problems=fault.problems)
        if request.state is State.PENDING and request.kind == "call":
            sent = replace(sent, widgets=_edit(context, request).widgets)
        elif request.state is State.PENDING:
            schema = schema_of(request)
            sent = replace(sent, widgets=read_answer(fields_for(request), context.form, schema)[2])
    return request_page(context, request, status=status_of(fault), sent=sent)


def _edit(context: RequestContext, request: Request) -> Edit:
    schema = schema_of(request)
    return read_edit(argument_fields(request, schema), context.form, schema.classes)


def _given(request: Request, edit: Edit) -> dict[str, Any]:
    """Return an edit as the door takes it."""
    if edit.problems:
        raise errors.InvalidChangesError(request.id, edit.problems)
    if edit.left_out:
        return {"arguments": edit.arguments(request.effective.shown)}
    return {"changes": edit.changes} if edit.changes else {}


def _approve(context: RequestContext, request: Request, seen: str) -> None:
    given: dict[str, Any] = {}
    if request.state is State.PENDING and request.kind == "call":
        given = _given(request, _edit(context, request))
    again = context.form.get("again") == "yes"
    context.review.approve(request.id, comment=context.field("note"), seen=seen, again=again, **given)


def _preview(context: RequestContext, request: Request, seen: str) -> Response:  # noqa: ARG001  every deed is called alike
    if request.state is not State.PENDING or request.kind != "call":
        return redirect(context.path("r", request.id))
    edit = _edit(context, request)
    given = _given(request, edit)
    after = edited_call(request, given.get("changes"), given.get("arguments")) if given else request.effective
    sent = Submitted(
        widgets=edit.widgets, note=context.form.get("note", ""),
        preview=changed(request.effective, after, request.redact),
    )  # fmt: skip
    return request_page(context, request, sent=sent)


def _reject(context: RequestContext, request: Request, seen: str) -> None:
    context.review.reject(request.id, context.field("note"), seen=seen)


def _feedback(context: RequestContext, request: Request, seen: str) -> None:
    words = context.field("note")
    if words is None and request.state is State.PENDING:
        edit = _edit(context, request) if request.kind == "call" else None
        missing = "To send it back, write into the note what should be different; nothing was decided."
        raise _RefusedError(422, Submitted(refusal=missing, widgets=None if edit is None else edit.widgets))
    context.review.feedback(request.id, words or "", seen=seen)


def _answer(context: RequestContext, request: Request, seen: str) -> None:  # noqa: ARG001  a question's text never changes
    answer: object = None
    if request.kind == "question" and request.state is State.PENDING:
        answer, problems, _ = read_answer(fields_for(request), context.form, schema_of(request))
        if problems:
            raise errors.InvalidAnswerError(request.id, problems)
    context.review.answer(request.id, answer, comment=context.field("note"))


def _cancel(context: RequestContext, request: Request, seen: str) -> None:  # noqa: ARG001  it is about the whole run
    context.review.cancel(request.id, context.field("note"))


def _claim(context: RequestContext, request: Request, seen: str) -> None:  # noqa: ARG001  it decides nothing
    context.review.claim(request.id)


def _release(context: RequestContext, request: Request, seen: str) -> None:  # noqa: ARG001  the same
    context.review.release(request.id, force=context.form.get("force") == "yes")


def _extend(context: RequestContext, request: Request, seen: str) -> None:  # noqa: ARG001  the same
    try:
        context.review.extend(request.id, context.form.get("span", ""))
    except errors.ConfigError as fault:
        raise _RefusedError(422, Submitted(refusal=escape(str(fault)))) from None


def _resolve(context: RequestContext, request: Request, seen: str) -> None:  # noqa: ARG001  it is about what happened
    said = context.form.get("happened")
    if said not in {"yes", "no"}:
        raise _RefusedError(422, Submitted(refusal="Say whether it happened or not; nothing was decided."))
    force = context.form.get("force") == "yes"
    context.review.resolve(request.id, happened=said == "yes", comment=context.field("note"), force=force)


VERBS: dict[str, Callable[[RequestContext, Request, str], Response | None]] = {
    "answer": _answer,
    "approve": _approve,
    "cancel": _cancel,
    "claim": _claim,
    "extend": _extend,
    "feedback": _feedback,
    "preview": _preview,
    "reject": _reject,
    "release": _release,
    "resolve": _resolve,
}
