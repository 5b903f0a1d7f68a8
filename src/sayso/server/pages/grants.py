"""Grants: the form on the page of a request, the page of grants, and the stop of all starts.

A grant is derived from the current call (`sayso.model.grant`). The form can widen it only by fields that may be
anything, which the reviewer ticks one by one. Fields that differ from call to call are listed separately, because a
grant that requires them to be equal would match hardly any other call.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock, errors
from sayso.model.edit import edited_call
from sayso.model.grant import Condition, Grant
from sayso.model.redaction import MASK
from sayso.model.rendering import brief
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import TOKENS
from sayso.model.text import escape, say
from sayso.server.context import RequestContext, redirect
from sayso.server.language import translated
from sayso.server.pages.edits import NotDoneError, clear_number, edit_of
from sayso.server.pages.rendering import list_rows, parts_of, render
from sayso.stores.filter import Filter
from sayso.view import full_text
from sayso.view.summary import time_left

_BOUND = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
_FREE = re.compile(
    r"(?i)(?:^|_)(?:body|notes?|subject|message|text|comment|reason|description|title|memo|remark|summary|content)(?:$|_)"
)
_LONG, _ROOM = 60, 120
_FEWEST, _RARE = 3, 10  # among 3 or more earlier calls, a field differs if at most 1 in 10 has its value
_MOST_SHOWN, _MOST_ENDED, _MOST_STARTING = 5, 50, 20


def grant_form(context: RequestContext, request: Request, terms: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the content of the form; None if there can be no grant.

    Earlier calls are counted for `terms`. Without them nothing is counted: it reads up to 2,000 requests.
    """
    if request.state is not State.PENDING or request.kind != "call" or request.always:
        return None
    changes = None if terms is None else terms["changes"]
    call = request.effective if changes is None else edited_call(request, changes)
    draft = _draft(request, call)
    # The context given with a token is shown on this page only as the program's own words, not among the terms.
    shown = [path for path in draft.conditions if not _is_unverified(draft, path)]
    # If the edit sets a masked value, nothing is counted, since the count would confirm guesses.
    is_guess = bool(changes) and any(  # a call that is one field has an empty path
        condition.kind == "secret" and path.partition(".")[0] in {*changes, ""}
        for path, condition in draft.conditions.items()
    )
    calls: Sequence[Request] | None = None  # of the last 30 days, with any values
    if terms is not None and not is_guess:
        _, calls = context.review.preview_grant(
            request.id, changes=changes, here=terms["here"], without=list(draft.conditions)
        )
    differing = Counter(path for one in calls or () for path in draft.differing(one))
    found: list[dict[str, Any]] = []
    for path in shown:
        condition = draft.conditions[path]
        same = None if calls is None else len(calls) - differing[path]
        is_rare = calls is not None and same is not None and len(calls) >= _FEWEST and same * _RARE <= len(calls)
        found.append({
            "path": escape(path), "is_number": condition.kind == "at_most", "same": same,
            "value": MASK if condition.kind == "secret" else condition.value if condition.kind == "at_most"
            else brief(json.loads(condition.value), _ROOM),
            # Whether it differs from call to call, judged by its name, its value and earlier calls.
            "is_free": not path.startswith("context:") and condition.kind == "equal"
            and (is_rare or _is_prose(path, condition)),
        })  # fmt: skip
    return {
        "free": [one for one in found if one["is_free"]], "kept": [one for one in found if not one["is_free"]],
        "has_facts": len(shown) < len(draft.conditions), "is_guess": is_guess,
        "past": None if terms is None or calls is None else _earlier_calls(request, call, calls, terms),
        "is_open": terms is not None or is_ticked(context.form) or context.http.path_params.get("action") == "grant",
    }  # fmt: skip


def is_ticked(form: Mapping[str, str]) -> bool:
    """Return whether terms of a grant are ticked in a form."""
    return any(form.get(name) for name in ("without", "exactly", "here"))


def proposed(context: RequestContext, request: Request) -> list[dict[str, Any]]:
    """Return the grants that were proposed with the votes on a pending request; its approval does not agree to them."""
    if request.state is not State.PENDING or not request.votes:
        return []
    found = [(one, *_agreement(context, one)) for one in context.review.grants() if one.request_id == request.id]
    return [
        {"grant": one, "lines": _lines(one), "left": time_left(one.until, clock.now()), "missing": missing,
         "may_agree": may_agree}
        for one, missing, may_agree in found if missing
    ]  # fmt: skip


def _lines(grant: Grant) -> list[str]:
    """Return the terms without the context that a program tells with a token, which is no more than its own words."""
    lines = zip([*grant.conditions, *grant.without], grant.lines(), strict=True)
    return [line for path, line in lines if not _is_unverified(grant, path)]


def terms_of(context: RequestContext, request: Request) -> dict[str, Any]:
    """Return the terms of a grant in a form: fields that may be anything, smaller bounds, exact numbers.

    Forms contain the escaped paths of fields. A bound that was left as shown is kept if the same form raises the call's
    number, and drops to that number if the form lowers it.

    Raises:
        NotDoneError: The form is invalid.
        DecisionRefusedError: The edit or the terms are invalid.
    """
    given = edit_of(request, context.form).given(request)
    if "arguments" in given:
        missing = say("A grant covers every argument, so none can be left out of the call itself. Nothing was decided.")
        raise NotDoneError(missing)
    form, changes = context.form, given.get("changes")
    shown, draft = _draft(request, request.effective), _draft(request, edited_call(request, changes or {}))
    paths = {escape(path): path for path in (*shown.conditions, *draft.conditions)}
    without, exactly = ([paths.get(one, one) for one in form.getlist(name)] for name in ("without", "exactly"))
    at_most: dict[str, Decimal] = {}
    for path, condition in draft.conditions.items():
        typed = form.get(f"at_most:{escape(path)}", "").strip()
        if condition.kind != "at_most" or not typed or path in {*without, *exactly}:
            continue
        try:
            typed = clear_number(typed)
        except ValueError as error:
            raise NotDoneError(f"{escape(path)}: {error}") from None
        if not _BOUND.fullmatch(typed):
            raise NotDoneError(
                say("%(path)s: the upper bound must be a number of 0 or more. Nothing was decided.", path=escape(path))
            )
        before, bound = shown.conditions.get(path), Decimal(typed)
        is_as_shown = before is not None and before.kind == "at_most" and bound == Decimal(before.value)
        if not is_as_shown or bound < Decimal(condition.value):
            at_most[path] = bound
    terms: dict[str, Any] = {
        "here": form.get("here") == "yes", "without": without, "exactly": exactly, "at_most": at_most,
    }  # fmt: skip
    _draft(request, edited_call(request, changes or {}), **terms)  # raises if they are invalid
    return {"changes": changes, **terms}


def grant(context: RequestContext, request: Request, seen: str) -> None:
    """Approve a call and the next ones like it, on the terms of the form."""
    is_open = request.state is State.PENDING and request.kind == "call"
    terms, count = terms_of(context, request) if is_open else {}, context.form.get("count", "")
    if not (count.isascii() and count.isdigit() and len(count) < 6):
        raise NotDoneError(say("Enter for how many more calls, as a whole number. Nothing was decided."))
    try:
        context.review.grant(
            request.id, count=int(count), lasts=context.form.get("lasts", ""), comment=context.field("note"), seen=seen,
            **terms,
        )  # fmt: skip
    except errors.ConfigError as fault:
        raise NotDoneError(translated(escape(str(fault)))) from None


def _draft(request: Request, call: Call, **terms: Any) -> Grant:
    now = clock.now()
    return Grant.of(request, call, count=1, until=now + timedelta(hours=1), now=now, **terms)


def _is_unverified(grant: Grant, path: str) -> bool:
    return grant.requester.issuer == TOKENS and path.startswith("context:")


def _is_prose(path: str, condition: Condition) -> bool:
    """Return whether a field is a text that is probably written anew for each call."""
    tree = json.loads(condition.value)
    if not isinstance(tree, str):
        return False
    return "\n" in tree or len(tree) > _LONG or _FREE.search(path.rpartition(".")[2]) is not None


def _earlier_calls(request: Request, call: Call, calls: Sequence[Request], terms: dict[str, Any]) -> dict[str, Any]:
    """Return the earlier calls of the same requester that the terms would have let through."""
    rest = {name: value for name, value in terms.items() if name != "changes"}
    looked_at, now = _draft(request, call, **rest), clock.now()
    fitting = [one for one in calls if looked_at.lacks(one) is None]
    return {
        "fitting": len(fitting), "whole": len(calls), "refused": sum(map(_is_refused, fitting)),
        "newest": [
            (one.id, parts_of(one)[1], full_text.status_line(one, now), _is_refused(one))
            for one in fitting[:_MOST_SHOWN]
        ],
        "terms": _lines(looked_at) + ([] if looked_at.run is None else [say("only in this run")]),
    }  # fmt: skip


def _is_refused(request: Request) -> bool:
    """Return whether people did not approve a call unchanged."""
    decision = request.decision
    if decision is None or decision.is_withdrawal:
        return False
    return decision.verb != "approve" or request.edited is not None


# -- the page --------------------------------------------------------------------------------------------------------


def grants(context: RequestContext) -> Response:
    """Show the grants in force, and those that have ended."""
    found, now = context.review.grants(ended=True), clock.now()
    standing = [
        (grant, time_left(grant.until, now), *_agreement(context, grant)) for grant in found if grant.ended is None
    ]
    ended = [grant for grant in found if grant.ended is not None][:_MOST_ENDED]
    return render(context, "grants.html", standing=standing, ended=ended)


def _agreement(context: RequestContext, grant: Grant) -> tuple[int, bool]:
    """Return how many more people must agree to a grant, and whether the reader can be one of them."""
    try:
        request = context.review.get(grant.request_id)
    except (errors.RequestNotFoundError, errors.StoreCorruptError):
        return 0, False
    me, people = context.reviewer, [one.by for one in grant.grantors]
    missing, is_mine = request.quorum.missing(people), any(me.identity.is_same(one) for one in people)
    asked = me.identity.is_same(grant.requester) or any(me.identity.may_be(one) for one in grant.acts_for)
    return missing, missing > 0 and not is_mine and not asked and request.admits(me.identity, me.roles)


def act_on_grant(context: RequestContext) -> Response:
    """Revoke a grant, or agree to it, on the list of grants or on the page of its request."""
    grant_id, verb = context.http.path_params["grant_id"], context.http.path_params["verb"]
    verbs = {"revoke": context.review.revoke, "agree": context.review.agree}
    if verb not in verbs:
        raise HTTPException(404, say("there is no such action"))
    try:
        verbs[verb](grant_id)
    except errors.GrantNotFoundError:
        raise HTTPException(404, say("there is no such grant; nothing was changed")) from None
    except errors.DecisionRefusedError as fault:
        raise HTTPException(403, str(fault)) from None
    request_id = context.form.get("request")
    return redirect(context.path("r", request_id) if request_id else context.path("grants"))


def stop_starts(context: RequestContext) -> Response:
    """Block every start."""
    context.review.stop(reason=context.field("note"))
    return redirect(context.path("grants"))


def confirm_restart(context: RequestContext, status: int = 200) -> Response:
    """Ask for confirmation, listing the approved calls that will start. Changes nothing. 409 says that they changed."""
    if context.review.stopped() is None:
        return redirect(context.path("grants"))
    requests, count, seen = _waiting_calls(context)
    return render(
        context, "restart.html", status=status, rows=list_rows(context.review, requests, clock.now()), count=count,
        seen=seen, is_stale=status == 409, grants=len(context.review.grants()),
    )  # fmt: skip


def _waiting_calls(context: RequestContext) -> tuple[list[Request], int, str]:
    """Return the first approved calls that wait, how many wait, and a digest of both."""
    approved, store = Filter(states=frozenset({State.APPROVED}), kind="call", at=clock.now()), context.settings.store
    requests, count = list(store.list(approved, limit=_MOST_STARTING).requests), store.count(approved)
    shown = ",".join([str(count), *(f"{one.id}:{one.current_fingerprint}" for one in requests)])
    return requests, count, hashlib.sha256(shown.encode()).hexdigest()


def restart(context: RequestContext) -> Response:
    """Let calls start again, if those that wait are the ones that the page listed; else list them again."""
    if context.review.stopped() is not None and context.form.get("seen") != _waiting_calls(context)[2]:
        return confirm_restart(context, 409)
    context.review.go()
    return redirect(context.path("grants"))
