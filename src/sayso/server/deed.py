"""What a form of a request's page does: decide, claim, release, extend, resolve; each by the person's door.

A form says which fingerprint it showed, and decides nothing about any other. The invariant: what is refused changes
nothing, and the page says so together with where the request stands now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import errors
from sayso.model.edit import edited_call, schema_of
from sayso.model.request import Request, State
from sayso.model.text import escape
from sayso.server.fault import status_of
from sayso.server.form import Edit, argument_fields, read_answer, read_edit
from sayso.server.request_page import Sent, fields_for, request_page
from sayso.server.visit import Visit, see_other
from sayso.view.card import changed

__all__ = ["VERBS", "do"]


class _Refused(Exception):
    """A form that decides nothing."""

    def __init__(self, status: int, sent: Sent) -> None:
        super().__init__(status)
        self.status, self.sent = status, sent


def do(visit: Visit) -> Response:
    """Do what a form of a request's page says."""
    asked, deed = visit.http.path_params["request_id"], VERBS.get(visit.http.path_params["verb"])
    seen = visit.form.get("seen", "")
    if deed is None:
        raise HTTPException(404, "there is no such thing to do")
    request = visit.review.get(asked)
    if request.id != asked or not seen:
        raise HTTPException(400, "the form does not say which request it showed; nothing was decided")
    try:
        if seen != request.current_fingerprint:
            raise errors.StaleViewError(request.id, seen=seen, current=request.current_fingerprint)
        answered = deed(visit, request, seen)
    except _Refused as refused:
        return request_page(visit, visit.review.get(asked), status=refused.status, sent=refused.sent)
    except errors.DecisionRefusedError as fault:
        return _refused(visit, asked, fault)
    return see_other(visit.path("r", request.id)) if answered is None else answered


def _refused(visit: Visit, request_id: str, fault: errors.DecisionRefusedError) -> Response:
    """Show the request as it stands now, and why nothing was decided."""
    request = visit.review.get(request_id)
    sent = Sent(refusal=escape(str(fault)), note=visit.form.get("note", ""))
    if isinstance(fault, errors.InvalidChangesError | errors.InvalidAnswerError):
        sent = replace(sent, refusal="This does not fit; nothing was decided.", problems=fault.problems)
        if request.state is State.PENDING and request.kind == "call":
            sent = replace(sent, widgets=_edit(visit, request).widgets)
        elif request.state is State.PENDING:
            schema = schema_of(request)
            sent = replace(sent, widgets=read_answer(fields_for(request), visit.form, schema)[2])
    return request_page(visit, request, status=status_of(fault), sent=sent)


def _edit(visit: Visit, request: Request) -> Edit:
    schema = schema_of(request)
    return read_edit(argument_fields(request, schema), visit.form, schema.classes)


def _given(request: Request, edit: Edit) -> dict[str, Any]:
    """Return an edit as the door takes it."""
    if edit.problems:
        raise errors.InvalidChangesError(request.id, edit.problems)
    if edit.left_out:
        return {"arguments": edit.arguments(request.effective.shown)}
    return {"changes": edit.changes} if edit.changes else {}


def _approve(visit: Visit, request: Request, seen: str) -> None:
    given: dict[str, Any] = {}
    if request.state is State.PENDING and request.kind == "call":
        given = _given(request, _edit(visit, request))
    again = visit.form.get("again") == "yes"
    visit.review.approve(request.id, comment=visit.said("note"), seen=seen, again=again, **given)


def _preview(visit: Visit, request: Request, seen: str) -> Response:  # noqa: ARG001  every deed is called alike
    if request.state is not State.PENDING or request.kind != "call":
        return see_other(visit.path("r", request.id))
    edit = _edit(visit, request)
    given = _given(request, edit)
    after = edited_call(request, given.get("changes"), given.get("arguments")) if given else request.effective
    sent = Sent(
        widgets=edit.widgets, note=visit.form.get("note", ""),
        preview=changed(request.effective, after, request.redact),
    )  # fmt: skip
    return request_page(visit, request, sent=sent)


def _reject(visit: Visit, request: Request, seen: str) -> None:
    visit.review.reject(request.id, visit.said("note"), seen=seen)


def _feedback(visit: Visit, request: Request, seen: str) -> None:
    words = visit.said("note")
    if words is None and request.state is State.PENDING:
        edit = _edit(visit, request) if request.kind == "call" else None
        missing = "To send it back, write into the note what should be different; nothing was decided."
        raise _Refused(422, Sent(refusal=missing, widgets=None if edit is None else edit.widgets))
    visit.review.feedback(request.id, words or "", seen=seen)


def _answer(visit: Visit, request: Request, seen: str) -> None:  # noqa: ARG001  a question's text never changes
    answer: object = None
    if request.kind == "question" and request.state is State.PENDING:
        answer, problems, _ = read_answer(fields_for(request), visit.form, schema_of(request))
        if problems:
            raise errors.InvalidAnswerError(request.id, problems)
    visit.review.answer(request.id, answer, comment=visit.said("note"))


def _cancel(visit: Visit, request: Request, seen: str) -> None:  # noqa: ARG001  it is about the whole run
    visit.review.cancel(request.id, visit.said("note"))


def _claim(visit: Visit, request: Request, seen: str) -> None:  # noqa: ARG001  it decides nothing
    visit.review.claim(request.id)


def _release(visit: Visit, request: Request, seen: str) -> None:  # noqa: ARG001  the same
    visit.review.release(request.id, force=visit.form.get("force") == "yes")


def _extend(visit: Visit, request: Request, seen: str) -> None:  # noqa: ARG001  the same
    try:
        visit.review.extend(request.id, visit.form.get("span", ""))
    except errors.ConfigError as fault:
        raise _Refused(422, Sent(refusal=escape(str(fault)))) from None


def _resolve(visit: Visit, request: Request, seen: str) -> None:  # noqa: ARG001  it is about what happened
    said = visit.form.get("happened")
    if said not in {"yes", "no"}:
        raise _Refused(422, Sent(refusal="Say whether it happened or not; nothing was decided."))
    force = visit.form.get("force") == "yes"
    visit.review.resolve(request.id, happened=said == "yes", comment=visit.said("note"), force=force)


VERBS: dict[str, Callable[[Visit, Request, str], Response | None]] = {
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
