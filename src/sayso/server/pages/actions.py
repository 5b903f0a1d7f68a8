"""Executes the forms on the page of a request, and bulk decisions: decide, grant, undo, comment, claim, assign, snooze.

A form carries the fingerprint of exactly what it showed, and is refused if the request has another one now. A refused
form changes nothing: the page (`sayso.server.pages.request`) says why, and keeps what was filled in.

The page of a bulk decision shows each call in full. Alike calls share one table, whose equal columns are folded; every
other call has a part of its own. Each request is decided separately, by the fingerprint that the page showed. One that
changed meanwhile, or that somebody else decided, is left unchanged and reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock, errors
from sayso.model.edit import edited_call, is_target
from sayso.model.rendering import quote_if_needed
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import name_of
from sayso.model.teamwork import comments_in
from sayso.model.text import escape, say
from sayso.server.api.problems import kind_of
from sayso.server.context import RequestContext, redirect
from sayso.server.pages import grants
from sayso.server.pages import request as page
from sayso.server.pages.alike import FEWEST, fold, group_key, outlier_notes, similar_to, table_of
from sayso.server.pages.arguments import Difference, zone_warnings
from sayso.server.pages.edits import Edit, NotDoneError, answer_of, edit_of, person_named
from sayso.server.pages.listing import alike_to, decided_with, queue_of
from sayso.server.pages.rendering import error_text, known, list_row, parts_of, render, risk_unconfirmed
from sayso.stores.base import Store
from sayso.view import full_text
from sayso.view.summary import is_high

_LEAVES = frozenset({"answer", "approve", "assign", "cancel", "feedback", "grant", "reject", "snooze"})
"""The actions after which the next request opens."""
_START = re.compile("[0-9]{1,9}")
_NOTHING = "(nothing)"


def act(context: RequestContext) -> Response:
    """Execute a form of a request's page."""
    asked, action = context.http.path_params["request_id"], context.http.path_params["action"]
    seen = context.form.get("seen", "")
    if action not in {*_FORMS, "preview", "preview-grant"}:
        raise HTTPException(404, say("there is no such action"))
    request = context.review.get(asked)
    if request.id != asked or not seen:
        unknown = say("the form does not say which version of the request it showed; nothing was decided")
        raise HTTPException(400, unknown)
    try:
        if seen != request.current_fingerprint and action != "comment":
            raise errors.StaleViewError(request.id, seen=seen, current=request.current_fingerprint)
        if action in _FORMS:
            _FORMS[action](context, request, seen)
        elif page.is_open(request, "call"):
            return page.request_page(context, request, sent=_preview(context, request, action))
    except NotDoneError as refused:
        request = context.review.get(request.id)
        edit = edit_of(request, context.form)
        widgets = edit.widgets if edit.is_any else None
        return page.request_page(context, request, status=422, sent=page.Submitted(str(refused), widgets=widgets))
    except errors.DecisionRefusedError as fault:
        return _refused(context, request.id, fault)
    where = {"in": context.form.get("in", "")}
    # After a decision, the next pending request opens if the page named one.
    following = context.find(context.form.get("then", "")) if action in _LEAVES else None
    if following is not None and following.state is State.PENDING:
        return redirect(context.path("r", context.form["then"], **where, done=request.id))
    return redirect(context.path("r", request.id, **where))


def _approve(context: RequestContext, request: Request, seen: str) -> None:
    if page.is_open(request, "call") and grants.is_ticked(context.form):
        raise NotDoneError(say(
            "Terms of a grant are ticked, and “Approve” makes none. Untick them, or press “Approve, and the next ones"
            " like it”. Nothing was decided."
        ))  # fmt: skip
    given = edit_of(request, context.form).given(request)
    _must_confirm_risk(context, request)
    again = context.form.get("again") == "yes"
    context.review.approve(request.id, comment=context.field("note"), seen=seen, again=again, **given)


def _grant(context: RequestContext, request: Request, seen: str) -> None:
    _must_confirm_risk(context, request)
    grants.grant(context, request, seen)


def _must_confirm_risk(context: RequestContext, request: Request) -> None:
    why = risk_unconfirmed(request, context.form) if page.is_open(request, "call") else None
    if why is not None:
        raise NotDoneError(why)


def _feedback(context: RequestContext, request: Request, seen: str) -> None:
    note, edit = context.field("note"), edit_of(request, context.form)
    if edit.is_any:
        choice = context.form.get("edits")
        if choice is None:
            raise NotDoneError(say(
                "“Send back” sends only your note, without your changes. Tick below to add them to the note, or press"
                " it again. Nothing was decided."
            ))  # fmt: skip
        changes = page.differences_of(request, request.effective, _edited(request, edit)) if choice == "added" else ()
        note = "\n".join(filter(None, [note, *map(_as_text, changes)])) or None
    if note is None and request.state is State.PENDING:
        missing = say("To send it back, write in the note what should be different. Nothing was decided.")
        raise NotDoneError(missing)
    context.review.feedback(request.id, note or "", seen=seen)


def _as_text(difference: Difference) -> str:
    change, lines = difference
    if change.before is change.after is None:  # of a list that got longer or shorter
        return "\n".join([f"{change.path}:", *(f"{sign} {text.unescape()}" for sign, text in lines)])
    return f"{change.path}: {change.before or _NOTHING} → {change.after or _NOTHING}"


def _answer(context: RequestContext, request: Request, seen: str) -> None:  # noqa: ARG001  a question cannot change
    answer: object = None
    if page.is_open(request, "question"):
        answer, problems, _ = answer_of(request, context.form)
        if problems:
            raise errors.InvalidAnswerError(request.id, problems)
    context.review.answer(request.id, answer, comment=context.field("note"))


def _resolve(context: RequestContext, request: Request, _: str) -> None:
    happened, start = context.form.get("happened"), context.form.get("start", "")
    if happened not in {"yes", "no"}:
        raise NotDoneError(say("Choose whether it happened or not. Nothing was decided."))
    context.review.resolve(
        request.id, happened=happened == "yes", comment=context.field("note"), force=context.form.get("force") == "yes",
        start=int(start) if _START.fullmatch(start) else 0,
    )  # fmt: skip


def _comment(context: RequestContext, request: Request, _: str) -> None:
    try:
        context.review.comment(request.id, context.field("comment") or "")
    except ValueError as error:
        raise NotDoneError(escape(str(error))) from None


def _snooze(context: RequestContext, request: Request, _: str) -> None:
    span = context.form.get("for", "")
    if span not in page.SNOOZES:
        raise NotDoneError(say("Choose for how long. Nothing was changed."))
    context.review.snooze(request.id, span)


def _extend(context: RequestContext, request: Request, _: str) -> None:
    span = context.form.get("span", "")
    if span not in dict(page.later_ends(request, clock.now())):
        raise NotDoneError(say("It already expires later than that. Nothing was changed."))
    try:
        context.review.extend(request.id, span)
    except errors.ConfigError as fault:
        raise NotDoneError(escape(str(fault))) from None


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
    "release": lambda on, one, _: on.review.release(one.id, force=on.form.get("force") == "yes"),
    "resolve": _resolve,
    "snooze": _snooze,
    "undo": lambda on, one, _: on.review.undo(one.id),
    "wake": lambda on, one, _: on.review.snooze(one.id, None),
}


def _refused(context: RequestContext, request_id: str, fault: errors.DecisionRefusedError) -> Response:
    request = context.review.get(request_id)
    sent = page.Submitted(error_text(fault))
    if isinstance(fault, errors.InvalidChangesError | errors.InvalidAnswerError):
        widgets = None
        if page.is_open(request, "call"):
            widgets = edit_of(request, context.form).widgets
        elif page.is_open(request, "question"):
            _, _, widgets = answer_of(request, context.form)
        sent = page.Submitted(say("Some values are not valid. Nothing was decided."), fault.problems, widgets)
    return page.request_page(context, request, status=kind_of(type(fault)).status, sent=sent)


def _edited(request: Request, edit: Edit) -> Call:
    given = edit.given(request)
    return edited_call(request, given.get("changes"), given.get("arguments")) if given else request.effective


def _preview(context: RequestContext, request: Request, action: str) -> page.Submitted:
    edit = edit_of(request, context.form)
    if action == "preview-grant":
        return page.Submitted(widgets=edit.widgets, terms=grants.terms_of(context, request))
    after = _edited(request, edit)
    return page.Submitted(
        widgets=edit.widgets, preview=page.differences_of(request, request.effective, after, edit.changes),
        warnings=zone_warnings(request.effective, after),
    )  # fmt: skip


# -- several requests at once ----------------------------------------------------------------------------------------

_MOST = 1_000


def confirm(context: RequestContext) -> Response:
    """Show each call in full, with one button for all, or two without a verb in the address. Decides nothing.

    What is decided by now, as after the browser's Back, is listed with who decided it.
    """
    verbs = [_verb(context.query("verb"))] if context.query("verb") else ["approve", "reject"]
    asked, named = _asked(context), set(context.http.query_params.getlist("id"))
    requests = [one for one in asked if one.state is State.PENDING]
    now, items, parts = clock.now(), dict[str, dict[str, Any]](), list[dict[str, Any]]()
    comments_on = _comments(context, requests[:_MOST])
    for group in fold(requests[:_MOST]):  # alike calls with their table, or one request in full
        is_table = len(group) >= FEWEST
        calls = {
            one.id: _item(context, verbs, one, now, comments_on.get(one.id, ()), is_whole=not is_table) for one in group
        }
        comments, warnings = ({one: call[name] for one, call in calls.items()} for name in ("comments", "warnings"))
        others = similar_to(context.settings.store, group) if is_table else ()
        table = table_of(group, now, comments, warnings, others) if is_table else None
        is_left_out = all(one["why_not"] is not None for one in calls.values())
        has_odd = table is not None and (table["odd"] or table["unlike"])
        parts.append({
            "calls": calls, "row": calls[group[0].id]["row"], "table": table,
            "is_high": is_table and is_high(group[0].risk),  # so many of high risk that none is ticked for approval
            # Too few for a table by now: nobody chose them one by one, and outliers may be among them.
            "is_left": not (is_table or is_left_out or named.issuperset(calls)),
            "place": 2 if is_left_out else 0 if has_odd else 1,  # first what is to be read, last what is left out
        })  # fmt: skip
        items |= calls
    parts.sort(key=itemgetter("place"))
    tables = [part["table"] for part in parts if part["table"] is not None]
    chosen = [request for request in requests[:_MOST] if items[request.id]["why_not"] is None]
    then = _following(context, [one.id for one in asked], now)
    return render(
        context, "bulk.html", verbs=verbs, parts=parts, chosen=len(chosen), has_more=len(requests) > _MOST,
        most=_MOST, asked=context.query("in"), needs_reason="reject" in verbs and any(map(is_target, chosen)),
        odd=sum(len(table["odd"]) for table in tables),
        stands_out=any(item["stands_out"] for item in items.values()),
        unlike=any(line["is_unlike"] for table in tables for line in (*table["odd"], *table["unlike"])),
        risks=", ".join(sorted({items[one.id]["risk"] for one in chosen} - {""})),
        then=then, **_done(context, [one for one in asked if one.state is not State.PENDING], now),
        next=_next(context, [then], context.query("in")) if not chosen else None,
    )  # fmt: skip


def _done(context: RequestContext, decided: Sequence[Request], now: datetime) -> dict[str, Any]:
    """Return what was decided before the page of several requests was opened: each, and how many by whom."""
    results = [_result(context, one.id, one) for one in decided]
    for result, one in zip(results, decided, strict=True):
        result["status"] = (full_text.status_line if result["undo"] is None else full_text.decided)(one, now)
    who = Counter(
        known(str(one.state))
        if one.decision is None
        else full_text.verdict(one, one.decision, name_of(one.decision.by))
        for one in decided
    )
    names = {one.call.tool for one in decided if one.kind == "call"}
    undone_by = [one["undo"] for one in results if one["undo"] is not None]
    return {
        "results": results, "who": [f"{count} {verdict}" for verdict, count in who.items()],
        "undo": min(undone_by) if undone_by and len(undone_by) == len(results) else None,
        "history": context.path("history", tool=min(names) if len(names) == 1 else ""),
    }  # fmt: skip


def _following(context: RequestContext, shown: Sequence[str], now: datetime) -> str:
    """Return a request of the next row of the inbox that this person can decide; empty if there is none."""
    groups = queue_of(context, context.query("in"), "", lambda _: True, fold=True).groups
    seen = set(shown)
    last = max((at for at, group in enumerate(groups) if any(one.id in seen for one in group)), default=0)
    others = (one for group in (*groups[last:], *groups[:last]) for one in group if one.id not in seen)
    return next((one.id for one in others if page.why_not(context, one, now) is None), "")


def _next(context: RequestContext, ids: Sequence[str], address: str) -> dict[str, Any] | None:
    """Return the row of the first of these requests that waits for this person; `calls` says how many are in it."""
    found, now = map(context.find, filter(None, ids)), clock.now()
    waiting = (
        one for one in found if one is not None and one.state is State.PENDING and one.id not in context.approved
    )
    request = next((one for one in waiting if page.why_not(context, one, now) is None), None)
    if request is None:
        return None
    name, line = parts_of(request)
    alike = alike_to(context, request.id, address, _MOST)
    group = next((one for one in fold(alike) if request in one), [request])  # the filters may leave it out
    return {"id": request.id, "name": name, "line": line, "calls": len(group)}


def _asked(context: RequestContext) -> list[Request]:
    """Return the requests that the address names, and those alike to a request that it names, each once."""
    given, address = context.http.query_params, context.query("in")
    ids = given.getlist("id")
    if len(ids) > _MOST:
        raise _wrong_number()
    found = {one.id: one for one in context.get_each(ids)}
    alike = dict.fromkeys(given.getlist("alike")[:_MOST])
    is_alone = len(alike) == 1 and not ids
    for request_id in alike:
        if request_id not in found and len(found) <= _MOST:
            left = alike_to(context, request_id, address, _MOST + 1)
            found |= {one.id: one for one in (*left, *decided_with(context, request_id, is_alone=is_alone))}
    if not found:
        raise _wrong_number()
    return list(found.values())


def decide(context: RequestContext) -> Response:
    """Decide the listed requests, or undo their decisions, and report each result."""
    verb = context.form.get("verb", "")
    verb = verb if verb == "undo" else _verb(verb)
    pairs = [one.partition(":") for one in context.form.getlist("item")]
    seen = {request_id: fingerprint for request_id, _, fingerprint in pairs if fingerprint}
    if not 0 < len(seen) <= _MOST:
        raise _wrong_number()
    note = context.field("note")
    works = [partial(_decide, context, verb, note, *one) for one in seen.items()]
    found = dict(zip(seen, context.settings.store.together(works), strict=True))
    results = [_result(context, request_id, one) for request_id, one in found.items()]
    undone_by = [one["undo"] for one in results if one["undo"] is not None]
    # To go on with: what was undone, then what was shown and not decided, then the row that the page before named.
    left = [one for one in context.form.get("shown", "").split(",")[:_MOST] if one not in seen]
    following = [*(seen if verb == "undo" else ()), *left, context.form.get("then", "")]
    return render(
        context, "bulk_done.html", verb=verb, results=sorted(results, key=lambda one: one["is_done"]),
        done=sum(one["is_done"] for one in results), undo=min(undone_by, default=None),
        unfinished=sum(one["is_pending"] for one in results),
        asked=context.form.get("in", ""), then=context.form.get("then", ""),
        next=_next(context, following, context.form.get("in", "")), address=_address(context, found),
    )  # fmt: skip


def _address(context: RequestContext, found: Mapping[str, Request | BaseException]) -> str:
    """Return the address of a page (`confirm`) that shows what became of these requests; alike ones need only one."""
    decided = [one for one in found.values() if isinstance(one, Request)]
    refused = (context.find(request_id) for request_id, one in found.items() if not isinstance(one, Request))
    groups = dict[object, list[str]]()
    for one in (*decided, *filter(None, refused)):
        groups.setdefault(group_key(one) or one.id, []).append(one.id)
    named = list[tuple[str, str]]()
    for ids in groups.values():
        named += [("alike", ids[0])] if len(ids) >= FEWEST else [("id", one) for one in ids]
    return f"{context.path('bulk')}?{urlencode([*named, ('in', context.form.get('in', ''))])}"


def _decide(context: RequestContext, verb: str, note: str | None, request_id: str, seen: str, store: Store) -> Request:
    review = context.review_on(store)
    if verb == "undo":
        return review.undo(request_id)
    if verb == "approve":
        why = risk_unconfirmed(review.get(request_id), context.form)
        if why is not None:
            raise errors.DecisionRefusedError(request_id, why)
        return review.approve(request_id, comment=note, seen=seen)
    return review.reject(request_id, note, seen=seen)


def _result(context: RequestContext, request_id: str, found: Request | BaseException) -> dict[str, Any]:
    """Return the result for one request; `is_pending` if it is approved, but needs more approvals."""
    if isinstance(found, errors.SaysoError):
        return {"id": request_id, "text": error_text(found), "is_done": False, "is_pending": False, "undo": None}
    if isinstance(found, BaseException):
        raise found
    text = full_text.headline(found)
    is_pending = found.state is State.PENDING and bool(found.votes)
    if is_pending:
        text += f": {full_text.status_line(found, clock.now())}"
    return {
        "id": found.id, "text": text, "is_done": True, "is_pending": is_pending, "undo": page.undo_of(context, found),
        "fingerprint": found.current_fingerprint,
    }  # fmt: skip


def _item(
    context: RequestContext, verbs: Sequence[str], request: Request, now: datetime, comments: Sequence[str], *,
    is_whole: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return all that a reviewer must see to decide one request, and why it is left out, if it is."""
    left_out = page.why_not(context, request, now)
    if "approve" in verbs and request.kind == "question":
        left_out = say("It is a question and needs an answer.")
    row = list_row(request, now, program_gone=context.review.program_is_gone(request))
    others = context.review.same_effect(request)
    rows = full_text.ask_rows(request, now, width=96, full=True, same_effect=others) if is_whole else ()
    return {
        "row": row, "call": "\n".join(rows), "why_not": left_out, "comments": comments,
        "warnings": full_text.effect_cautions(others, now),
        "stands_out": outlier_notes(context.settings.store, request) if is_whole else (),  # a table has its own
        # This reviewer has approved it already, and others still have to.
        "is_approved": any(context.reviewer.identity.is_same(vote.by) for vote in request.votes),
        "risk": known(row["risk"]) if is_high(request.risk) else "",
    }  # fmt: skip


def _comments(context: RequestContext, requests: Sequence[Request]) -> dict[str, list[str]]:
    """Return the comments on these requests as lines, by request."""
    store, found = context.settings.store, dict[str, list[str]]()
    for entry in map(store.legible, store.comments(requests)):
        found.setdefault(entry.request_id, []).extend(
            say("%(by)s commented: %(text)s", by=quote_if_needed(one.by), text=escape(one.text))
            for one in comments_in([entry])
        )
    return found


def _verb(name: str) -> str:
    if name not in {"approve", "reject"}:
        raise HTTPException(400, say("only approve and reject work for several requests at once"))
    return name


def _wrong_number() -> HTTPException:
    return HTTPException(400, say("choose between 1 and %(most)s requests", most=f"{_MOST:,}"))
