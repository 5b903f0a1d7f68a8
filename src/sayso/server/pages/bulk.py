"""Several decisions at once: a page that lists each call in full, and a report of each decision.

Each request is decided on its own, by the fingerprint that the page showed of it. One that changed meanwhile, or that
somebody else decided, is left as it is and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock, errors
from sayso.model.edit import is_target
from sayso.model.escaping import escape
from sayso.model.request import Request, State
from sayso.server.context import RequestContext
from sayso.server.pages.rendering import Row, render, row_of
from sayso.server.pages.request import undo_of
from sayso.view import card

_VERBS = ("approve", "reject")
_UNDO = "undo"
_MOST = 50
_WIDTH = 96


class _Item(NamedTuple):
    """One of the requests of a bulk page: all that somebody who decides has to see, and why it is left out."""

    row: Row
    call: str
    why_not: str | None


def confirm(context: RequestContext) -> Response:
    """List each call in full, with one button for all; nothing is decided."""
    verb = _verb(context.query("verb"))
    requests = [context.review.get(one) for one in _ids(context.http.query_params.getlist("id"))]
    items = [_item(context, verb, request) for request in requests]
    chosen = [request for request, item in zip(requests, items, strict=True) if item.why_not is None]
    needs_reason = verb == "reject" and any(map(is_target, chosen))
    return render(context, "bulk.html", verb=verb, items=items, chosen=len(chosen), needs_reason=needs_reason)


def decide(context: RequestContext) -> Response:
    """Decide what the page listed, or undo it, and report on each."""
    verb = context.form.get("verb", "")
    verb = verb if verb == _UNDO else _verb(verb)
    pairs = [one.partition(":") for one in context.form.getlist("item")]
    seen = {request_id: fingerprint for request_id, _, fingerprint in pairs if fingerprint}
    results = [_decided(context, verb, one, seen[one]) for one in _ids(list(seen))]
    done = sum(one.is_done for one in results)
    undone_by = [one.undo for one in results if one.undo is not None]
    return render(
        context, "bulk_done.html", verb=verb, results=results, done=done, undo=min(undone_by) if undone_by else None
    )


class _Result(NamedTuple):
    """What became of one request, and until when that can be undone."""

    id: str
    is_done: bool
    said: str
    fingerprint: str = ""
    undo: str | None = None


def _decided(context: RequestContext, verb: str, request_id: str, seen: str) -> _Result:
    """Decide one request, or undo its approval; return what the report says of it."""
    review, note = context.review, context.field("note")
    try:
        if verb == _UNDO:
            after = review.undo(request_id)
        elif verb == "approve":
            after = review.approve(request_id, comment=note, seen=seen)
        else:
            after = review.reject(request_id, note, seen=seen)
    except (errors.DecisionRefusedError, errors.RequestNotFoundError) as fault:
        return _Result(request_id, False, escape(str(fault)))
    said = f"{card.headline(after)}: {card.stands(after, clock.now())}"
    return _Result(after.id, True, said, after.current_fingerprint, undo_of(context, after))


def _item(context: RequestContext, verb: str, request: Request) -> _Item:
    why_not, now = None, clock.now()
    if request.state is not State.PENDING:
        why_not = "it does not wait any more"
    elif verb == "approve" and request.kind == "question":
        why_not = "it is a question, and takes an answer of its own"
    row = row_of(request, now, program_gone=context.review.program_is_gone(request))
    return _Item(row, "\n".join(card.ask_rows(request, now, width=_WIDTH, full=True)), why_not)


def _verb(name: str) -> str:
    if name not in _VERBS:
        raise HTTPException(400, "several can be approved or rejected at once, nothing else")
    return name


def _ids(given: Sequence[str]) -> list[str]:
    ids = list(dict.fromkeys(given))
    if not 0 < len(ids) <= _MOST:
        raise HTTPException(400, f"choose between 1 and {_MOST} requests")
    return ids
