"""Bulk decisions: a page that shows each call in full, and a report of each decision.

Alike calls share one table, whose equal columns are folded; every other call has a part of its own. Each request is
decided separately, by the fingerprint that the page showed. One that changed meanwhile, or that somebody else decided,
is left unchanged and reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import audit, clock, errors
from sayso.model.edit import is_target
from sayso.model.request import Request, State
from sayso.model.teamwork import comments_in
from sayso.model.text import escape, say
from sayso.server.context import RequestContext
from sayso.server.pages.alike import FEWEST, Table, fold, table_of
from sayso.server.pages.faults import told
from sayso.server.pages.listing import alike_to, queue_of
from sayso.server.pages.rendering import Row, known, parts_of, render, row_of, unsure
from sayso.server.pages.request import Undo, undo_of, why_not
from sayso.stores.base import Store
from sayso.view import card
from sayso.view.summary import is_high, token

_VERBS = ("approve", "reject")
_UNDO = "undo"
_MOST = 1_000
_WIDTH = 96


class _Item(NamedTuple):
    """One request of a bulk page: all that a reviewer must see to decide it, and why it is left out, if it is.

    `is_approved` says that this reviewer has approved it already, and others still have to; `risk` is its risk in words
    if that is high.
    """

    row: Row
    call: str
    why_not: str | None
    comments: Sequence[str]
    warnings: Sequence[str]
    is_approved: bool
    risk: str


class _Part(NamedTuple):
    """Alike calls as a table, or one request in full.

    Attributes:
        items: The items by request id.
        table: The table; None for a single request.
        risk: Their common risk; `level` if it is one of the usual words.
        is_high: Whether they are of high risk, and so many that none is ticked for approval.
    """

    items: dict[str, _Item]
    table: Table | None
    name: str
    risk: str
    level: str
    is_high: bool


def confirm(context: RequestContext) -> Response:
    """Show each call in full, with one button for all, or two without a verb in the address. Decides nothing."""
    verbs = [_verb(context.query("verb"))] if context.query("verb") else list(_VERBS)
    requests = _asked(context)
    now = clock.now()
    parts = [_part(context, verbs, group, now) for group in fold(requests[:_MOST])]
    items = {one: item for part in parts for one, item in part.items.items()}
    parts.sort(key=_place)
    chosen = [request for request in requests[:_MOST] if items[request.id].why_not is None]
    return render(
        context, "bulk.html", verbs=verbs, parts=parts, chosen=len(chosen), has_more=len(requests) > _MOST,
        most=_MOST, asked=context.query("in"), needs_reason="reject" in verbs and any(map(is_target, chosen)),
        odd=sum(len(part.table.odd) for part in parts if part.table is not None),
        risks=", ".join(sorted({items[one.id].risk for one in chosen} - {""})),
        then=_following(context, [one.id for one in requests], now),
    )  # fmt: skip


def _following(context: RequestContext, shown: Sequence[str], now: datetime) -> str:
    """Return a request of the next row of the inbox that this person can decide; empty if there is none."""
    groups = queue_of(context, context.query("in"), "", lambda _: True, fold=True).groups
    seen = set(shown)
    last = max((at for at, group in enumerate(groups) if any(one.id in seen for one in group)), default=0)
    others = (one for group in (*groups[last:], *groups[:last]) for one in group if one.id not in seen)
    return next((one.id for one in others if why_not(context, one, now) is None), "")


class _Next(NamedTuple):
    """The next row of the inbox: one request, or the number of alike calls with it."""

    id: str
    name: str
    line: str
    calls: int


def _next(context: RequestContext) -> _Next | None:
    """Return the row that the page before named, as it is now."""
    then, address = context.form.get("then", ""), context.form.get("in", "")
    try:
        request = context.review.get(then) if then else None
    except (errors.RequestNotFoundError, errors.AmbiguousIdError):
        request = None
    if request is None or request.state is not State.PENDING:
        return None
    name, line = parts_of(request)
    group = next(one for one in fold(alike_to(context, then, address, _MOST) or [request]) if request in one)
    return _Next(request.id, name, line, len(group))


def _place(part: _Part) -> int:
    """Return the sort key of a part: parts with an outlier first, parts that are left out last."""
    if all(item.why_not is not None for item in part.items.values()):
        return 2
    return 0 if part.table is not None and part.table.odd else 1


def _asked(context: RequestContext) -> list[Request]:
    """Return the requests that the address names, and those alike to a request that it names, each once."""
    given, address = context.http.query_params, context.query("in")
    ids = given.getlist("id")
    if len(ids) > _MOST:
        raise _wrong_number()
    found = {one.id: one for one in map(context.review.get, ids)}
    for request_id in dict.fromkeys(given.getlist("alike")[:_MOST]):
        if request_id not in found and len(found) <= _MOST:
            found |= {one.id: one for one in alike_to(context, request_id, address, _MOST + 1)}
    if not found:
        raise _wrong_number()
    return list(found.values())


def decide(context: RequestContext) -> Response:
    """Decide the listed requests, or undo their decisions, and report each result."""
    verb = context.form.get("verb", "")
    verb = verb if verb == _UNDO else _verb(verb)
    pairs = [one.partition(":") for one in context.form.getlist("item")]
    seen = {request_id: fingerprint for request_id, _, fingerprint in pairs if fingerprint}
    if not 0 < len(seen) <= _MOST:
        raise _wrong_number()
    note = context.field("note")
    works = [partial(_decide, context, verb, note, *one) for one in seen.items()]
    found = zip(seen, context.settings.store.together(works), strict=True)
    results = [_result(context, request_id, one) for request_id, one in found]
    undone_by = [one.undo for one in results if one.undo is not None]
    return render(
        context, "bulk_done.html", verb=verb, results=sorted(results, key=lambda one: one.is_done),
        done=sum(one.is_done for one in results), undo=min(undone_by) if undone_by else None,
        unfinished=sum(one.is_pending for one in results),
        asked=context.form.get("in", ""), then=context.form.get("then", ""), next=_next(context),
    )  # fmt: skip


class _Result(NamedTuple):
    """The result for one request, and how long it can be undone."""

    id: str
    is_done: bool
    said: str
    fingerprint: str = ""
    undo: Undo | None = None
    is_pending: bool = False  # approved, but it needs more approvals


def _decide(
    context: RequestContext, verb: str, note: str | None, request_id: str, seen: str, store: Store
) -> Request:  # fmt: skip
    review = context.review_on(store)
    if verb == _UNDO:
        return review.undo(request_id)
    if verb == "approve":
        why = unsure(review.get(request_id), context.form)
        if why is not None:
            raise errors.DecisionRefusedError(request_id, why)
        return review.approve(request_id, comment=note, seen=seen)
    return review.reject(request_id, note, seen=seen)


def _result(context: RequestContext, request_id: str, found: Request | BaseException) -> _Result:
    if isinstance(found, errors.SaysoError):
        return _Result(request_id, False, told(found))
    if isinstance(found, BaseException):
        raise found
    said = card.headline(found)
    is_pending = found.state is State.PENDING and bool(found.votes)
    if is_pending:
        said += f": {card.status_line(found, clock.now())}"
    return _Result(found.id, True, said, found.current_fingerprint, undo_of(context, found), is_pending)


def _part(context: RequestContext, verbs: Sequence[str], group: Sequence[Request], now: datetime) -> _Part:
    is_table = len(group) >= FEWEST
    items = {one.id: _item(context, verbs, one, now, is_whole=not is_table) for one in group}
    row = items[group[0].id].row
    comments = {request_id: item.comments for request_id, item in items.items()}
    warnings = {request_id: item.warnings for request_id, item in items.items()}
    table = table_of(group, now, comments, warnings) if is_table else None
    return _Part(items, table, row.name, row.risk, row.level, is_table and is_high(group[0].risk))


def _item(
    context: RequestContext, verbs: Sequence[str], request: Request, now: datetime, *, is_whole: bool
) -> _Item:  # fmt: skip
    left_out = why_not(context, request, now)
    if request.state is not State.PENDING:
        left_out = say("It is no longer waiting.")
    elif "approve" in verbs and request.kind == "question":
        left_out = say("It is a question and needs an answer.")
    row = row_of(request, now, program_gone=context.review.program_is_gone(request))
    others = context.review.same_effect(request)
    rows = card.ask_rows(request, now, width=_WIDTH, full=True, same_effect=others) if is_whole else ()
    entries = audit.entries(context.settings.store, run_id=request.run_id, request_id=request.id)
    said = [say("%(by)s commented: %(text)s", by=token(one.by), text=escape(one.text)) for one in comments_in(entries)]
    is_approved = any(context.reviewer.identity.is_same(vote.by) for vote in request.votes)
    risk = known(row.risk) if is_high(request.risk) else ""
    return _Item(row, "\n".join(rows), left_out, said, card.effect_cautions(others, now), is_approved, risk)


def _verb(name: str) -> str:
    if name not in _VERBS:
        raise HTTPException(400, say("only approve and reject work for several requests at once"))
    return name


def _wrong_number() -> HTTPException:
    return HTTPException(400, say("choose between 1 and %(most)s requests", most=f"{_MOST:,}"))
