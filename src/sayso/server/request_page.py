"""The page of one request: before the decision a form, after it what became of it, always at the same address.

What would run comes first and is drawn by us; the program's own words stand apart, under a label that says whose they
are. What a form does is `sayso.server.deed`. The invariant: the form carries the fingerprint of exactly what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from sayso import audit, clock, errors
from sayso.model.edit import PLAN_TOOL, is_target, schema_of
from sayso.model.request import Request, State
from sayso.model.reviewer import TOKENS
from sayso.model.text import escape
from sayso.server.draw import facts, row_of
from sayso.server.form import Widget, answer_fields, argument_fields, with_problems
from sayso.server.page import render
from sayso.server.visit import Visit, see_other
from sayso.terminal import PROGRAM_GONE
from sayso.view import Change, card
from sayso.view.arguments import brief, value
from sayso.view.card import changed, outcome_rows
from sayso.view.document import event_rows

__all__ = ["Sent", "fields_for", "request_page", "show_request", "standing"]

_WIDTH = 84
_TITLE_ROOM = 80


@dataclass(frozen=True)
class Sent:
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


def show_request(visit: Visit) -> Response:
    """Show a request by its id; a beginning of it leads to the whole address."""
    asked = visit.http.path_params["request_id"]
    request = visit.review.get(asked)
    if request.id != asked:
        return see_other(visit.path("r", request.id))
    return request_page(visit, request)


def fields_for(request: Request) -> tuple[Widget, ...]:
    """Return the fields of what a reviewer can change, or is to answer."""
    schema = schema_of(request)
    return argument_fields(request, schema) if request.kind == "call" else answer_fields(schema)


def request_page(visit: Visit, request: Request, *, status: int = 200, sent: Sent | None = None) -> Response:
    """Return the page of a request as it stands."""
    now, given, same_effect = clock.now(), Sent() if sent is None else sent, visit.review.same_effect(request)
    widgets, unreadable = _widgets(request, given)
    widgets, rest = with_problems(widgets, given.problems)
    timeline = event_rows(audit.entries(visit.settings.store, run_id=request.run_id, request_id=request.id))
    return render(
        visit, "request.html", status=status, row=row_of(request, now), facts=facts(request, now),
        subject=_subject(request), words=_words(request), same_effect=bool(same_effect),
        cautions=[*card.cautions(request), *card.effect_cautions(same_effect, now)],
        unverified=card.unverified(request), by_token=request.requester.issuer == TOKENS, widgets=widgets,
        unreadable=unreadable, problems=[escape(problem) for problem in rest], sent=given, timeline=timeline,
        left=PROGRAM_GONE if visit.review.program_is_gone(request) else None, moves=_moves(visit, request),
        stream=None if request.is_final else visit.path("events", shown=_mark(request), rows=request.id),
        **_after(request),
    )  # fmt: skip


def standing(request: Request) -> str:
    """Return where a request stands, in one line, for a page that is open."""
    return row_of(request, clock.now()).stands


def _mark(request: Request) -> str:
    return str(request.state)


def _widgets(request: Request, given: Sent) -> tuple[tuple[Widget, ...], str | None]:
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
    return {"question": None, "call": "\n".join(rows), "tool": _title(request)}


def _title(request: Request) -> str:
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


def _after(request: Request) -> dict[str, Any]:
    """Return what became of a request: what an edit changed, and how the call went."""
    found = []
    if request.kind == "call" and request.edited is not None:
        found = changed(request.call, request.edited, request.redact)
    return {"changes": found, "outcome": [row.strip() for row in outcome_rows(request)]}


def _moves(visit: Visit, request: Request) -> dict[str, bool]:
    """Return what can be done with a request now."""
    claimed = request.claimed_by
    is_mine = claimed is not None and claimed.is_same(visit.reviewer.identity)
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
