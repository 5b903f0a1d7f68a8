"""The page of one request. `sayso.server.pages.actions` executes its forms.

What would run comes first, rendered by sayso; the program's own texts are separate, under a label that says whose they
are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, cast

from starlette.responses import Response

from sayso import audit, clock, errors
from sayso.model import duration
from sayso.model.canonical import MASK, Json, form_of, load
from sayso.model.canonical.json_tree import fields_of
from sayso.model.edit import PLAN_TOOL, is_read_only, is_target, schema_of, writes_over
from sayso.model.journal import Entry
from sayso.model.lifecycle import must_be_allowed, undo, undo_by
from sayso.model.parameters import place
from sayso.model.redaction import mark_secrets
from sayso.model.rendering import Change, as_amount, brief, quote_if_needed, quoted
from sayso.model.rendering import value as shown_value
from sayso.model.request import MODEL_WORDS, Call, Request, State, changed, without_secrets
from sayso.model.reviewer import LOCAL, TOKENS, name_of
from sayso.model.teamwork import comments_in
from sayso.model.text import escape, later, say, say_n
from sayso.server.auth.tokens import unknown_names
from sayso.server.context import RequestContext, redirect
from sayso.server.language import translated
from sayso.server.pages import grants
from sayso.server.pages.alike import outlier_notes, repeat_notes
from sayso.server.pages.arguments import Argument, Difference, arguments_of, differences, zone_warnings
from sayso.server.pages.edits import colleagues
from sayso.server.pages.forms import Widget, fields_for, flaws, with_problems
from sayso.server.pages.listing import PAGE, queue_of
from sayso.server.pages.rendering import error_text, facts, list_row, missing_roles, parts_of, render, risk_of
from sayso.server.pages.runs import last_undone, story_of, timeline
from sayso.stores.base import Filter
from sayso.view import full_text
from sayso.view.full_text import outcome_rows
from sayso.view.similar import arguments_apart, words_apart
from sayso.view.summary import is_high

_TITLE_ROOM, _LINE_ROOM, _MOST_EARLIER = 80, 64, 3
_CUSTOMER = frozenset({"customer", "customer_id", "account", "email", "user_id"})
_MOST_COMPARED = 300  # decided calls that are looked through for the same customer each time a page is drawn
_SPANS = {
    "1h": later("1 hour"), "4h": later("4 hours"), "24h": later("24 hours"),
    "7d": later("7 days"), "30d": later("30 days"),
}  # fmt: skip
SNOOZES = {
    "1h": later("1 hour"), "15m": later("15 minutes"), "4h": later("4 hours"),
    "24h": later("a day"), "3d": later("3 days"),
}  # fmt: skip
_GONE = later("program ended: its run has no name, so no program will fetch the decision")


@dataclass(frozen=True)
class Submitted:
    """A submitted form that decided nothing, to be shown again.

    Attributes:
        refusal: Why it decided nothing; None for a preview.
        problems: What is invalid, as `where: what is wrong`.
        widgets: The fields as they were filled in.
        preview: What the edit would change; None if not asked for.
        warnings: Effects of the edit that are easily overlooked.
        terms: The terms of a grant to preview.
    """

    refusal: str | None = None
    problems: Sequence[str] = ()
    widgets: tuple[Widget, ...] | None = None
    preview: Sequence[Difference] | None = None
    warnings: Sequence[str] = ()
    terms: dict[str, Any] | None = None


def show_request(context: RequestContext) -> Response:
    """Show a request by its id; a prefix of an id redirects to the full one."""
    asked = context.http.path_params["request_id"]
    request = context.review.get(asked)
    return request_page(context, request) if request.id == asked else redirect(context.path("r", request.id))


def request_page(
    context: RequestContext, request: Request, *, status: int = 200, sent: Submitted | None = None
) -> Response:  # fmt: skip
    """Return the page of a request in its current state."""
    now, sent, same_effect = clock.now(), sent or Submitted(), context.review.same_effect(request)
    is_pending, claimed, me = request.state is State.PENDING, request.claimed_by, context.reviewer.identity
    entries = list(audit.entries(context.settings.store, run_id=request.run_id, request_id=request.id))
    action = context.http.path_params.get("action")
    widgets, unreadable = sent.widgets or (), None
    if sent.widgets is None and is_pending:
        try:
            widgets = () if is_read_only(request) else fields_for(request)
        except errors.StoreCorruptError as fault:
            unreadable = escape(str(fault))
    widgets, problems = with_problems(widgets if is_pending else (), sent.problems)
    edited = request.edited if request.kind == "call" else None
    changes = [] if edited is None else differences_of(request, request.call, edited)
    zones = [] if edited is None else zone_warnings(request.call, edited)
    reason = why_not(context, request, now)
    moves = _possible_actions(context, request, reason)
    return render(
        context, "request.html", status=status, row=list_row(request, now, away=context.delegations),
        is_risky=is_high(request.risk), start=0 if request.execution is None else request.execution.starts,
        aims={"reject": "r", "feedback": "f"}.get(str(action), "") if sent.refusal is not None else "",
        is_unsure=sent.refusal is not None and context.form.get("sure") != "yes"
        and (action == "grant" or (action == "approve" and not grants.is_ticked(context.form))),
        leaves_out=sent.refusal is not None and action == "feedback" and sent.widgets is not None,
        facts=facts(request, now, context.delegations),
        question=request.question.text if request.kind == "question" else None, title=_title(request),
        arguments=_arguments(request, [one.change.path for one in changes]), words=_program_texts(request),
        function=escape(request.effective.tool) if request.kind == "call" else "",
        gone=None if request.purged_at is None
        else say("The arguments were removed on %(day)s.", day=f"{request.purged_at:%Y-%m-%d}"),
        same_effect=bool(same_effect),
        cautions=[
            *full_text.cautions(request), *zones, *full_text.effect_cautions(same_effect, now),
            *repeat_notes(context.settings.store, request, now), *outlier_notes(context.settings.store, request),
        ],
        is_programs=[one.channel for one in entries if one.event == "returned"][-1:] == ["program"],
        refused=None if request.returned is None or not is_pending
        else translated(escape(request.returned, block=True)),
        unverified=_unverified(request), by_token=request.requester.issuer == TOKENS, widgets=widgets,
        unreadable=unreadable, problems=problems, flaws=flaws(widgets), sent=sent,
        timeline=timeline(entries), undone=last_undone(entries) if is_pending else None,
        comments=_comments(context, entries), story=story_of(context, request), earlier=_earlier(context, request, now),
        left=say(_GONE) if context.review.program_is_gone(request) else None,
        snoozes=_snoozes(request, now), snoozed=_snoozed_until(context, request), moves=moves,
        colleagues=colleagues(context) if moves["assign"] else [],
        stream=None if request.is_final else context.path("events", shown=str(request.state), rows=request.id),
        changes=changes, changed_names={_argument_of(one.change.path).strip('"') for one in changes},
        outcome=[row.strip() for row in outcome_rows(request)], form=context.form,
        alike=grants.grant_form(context, request, sent.terms), proposed=grants.proposed(context, request),
        queue=_queue(context, request), done=_done(context, request), undo=undo_of(context, request),
        status_text=_status_for(context, request), has_voted=_has_voted(context, request),
        claimed_by_me="\n".join(name_of(one, 30) for one in (me, *context.stood_in_for)),
        instead_of=None if claimed is None or claimed.is_same(me) or not context.has_claimed(request)
        else name_of(claimed),
        is_barred_by_claim=moves["take_over"] and why_not(context, replace(request, claimed_by=None), now) is None,
        why_not=reason, only_votes=reason is not None and why_not(context, request, now, is_vote=True) is None,
        spans=later_ends(request, now),
    )  # fmt: skip


def _comments(context: RequestContext, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the comments among these rows of the journal.

    `unknown` are the names that one mentions by which nobody is known, for its author to read.
    """
    me, now, found = (context.reviewer.identity, *context.stood_in_for), clock.now(), comments_in(entries)
    mine = {name: None for one in found if one.by == me[0].qualified for name in one.mentions}
    unknown = set(unknown_names(context.settings.store, mine))
    return [
        {
            "by": quote_if_needed(one.by.removeprefix(f"{LOCAL}:")), "at": clock.written(one.at),
            "ago": duration.ago(one.at, now), "text": escape(one.text, block=True),
            "is_to_me": any(who.goes_by(name) for name in one.mentions for who in me),
            "is_mine": one.by == me[0].qualified,
            "unknown": ", ".join(
                f"@{quote_if_needed(name)}" for name in one.mentions if name in unknown and one.by == me[0].qualified
            ),
        }
        for one in found
    ]  # fmt: skip


def _snoozes(request: Request, now: datetime) -> list[tuple[str, str]]:
    """Return the spans for which a pending request can be snoozed, those that end before it expires."""
    is_pending = request.state is State.PENDING
    ends = [(span, say(text), now + duration.parse(span)) for span, text in SNOOZES.items() if is_pending]
    return [(span, text) for span, text, end in ends if end < request.expires_at]


def _snoozed_until(context: RequestContext, request: Request) -> str | None:
    """Return until when this person has snoozed a request, in ISO 8601; None if they have not."""
    until = context.snoozed.get(request.id)
    return None if until is None else clock.written(until)


def later_ends(request: Request, now: datetime) -> list[tuple[str, str]]:
    """Return the spans from now that would extend a request or an approval."""
    end = request.expires_at if request.state is State.PENDING else request.approval_expires_at
    if request.state not in {State.PENDING, State.APPROVED} or end is None:
        return []
    return [(span, say(text)) for span, text in _SPANS.items() if now + duration.parse(span) > end]


def _earlier(context: RequestContext, request: Request, now: datetime) -> dict[str, Any]:
    """Return calls that were decided before, newest first: id, what was called, and what became of it."""
    if request.kind != "call":
        return {"customer": (), "function": ()}
    decided, store = Filter(states=frozenset(State) - {State.PENDING}, kind="call"), context.settings.store
    mine, same = _customer_arguments(request), list[Request]()
    if mine:
        newest = store.list(decided, limit=_MOST_COMPARED, newest=True).requests
        same = [one for one in newest if one.id != request.id and mine & _customer_arguments(one)][:_MOST_EARLIER]
    seen = {request.id, *(one.id for one in same)}
    found = store.list(replace(decided, name=request.call.tool), limit=_MOST_EARLIER + len(seen), newest=True).requests
    others = [one for one in found if one.id not in seen][:_MOST_EARLIER]
    return {
        "customer": [(one.id, " ".join(parts_of(one)), full_text.status_line(one, now)) for one in same],
        "names": say(" or ").join(sorted({escape(name) for name, _ in mine})),  # of the arguments that they share
        "function": [(one.id, parts_of(one)[1], full_text.status_line(one, now)) for one in others],
    }


def _customer_arguments(request: Request) -> set[tuple[str, str]]:
    """Return the arguments that say who the customer is; none that is masked, of which nobody is to learn anything."""
    if request.kind != "call" or request.purged_at is not None:
        return set()
    call = request.effective
    named, real = (fields_of(cast("Json", tree)) or {} for tree in (call.drawn, load(call.form)))
    return {
        (name, str(tree).casefold())
        for name, tree in named.items()
        if name in _CUSTOMER and isinstance(tree, str | int) and not isinstance(tree, bool)
        and tree != "" and tree == real.get(name)
    }  # fmt: skip


def _arguments(request: Request, changed_paths: Sequence[str]) -> list[Argument]:
    if request.kind != "call" or request.purged_at is not None:
        return []
    names: Sequence[str] = ()
    with suppress(errors.StoreCorruptError):  # the page shows this error in place of the fields
        names = list(schema_of(request).names)
    return arguments_of(request.effective.drawn, names, changed_paths)


def _queue(context: RequestContext, request: Request) -> dict[str, Any]:
    """Return the list of pending requests beside a request."""
    asked, now = context.form.get("in", "") or context.query("in"), clock.now()

    def can_follow(one: Request) -> bool:
        is_refused = why_not(context, one, now, is_vote=True) is not None
        return one.id != request.id and not _has_voted(context, one) and not is_refused

    listing = queue_of(context, asked, request.id if request.state is State.PENDING else "", can_follow)
    ids = [one.id for one in listing.requests]
    at = ids.index(request.id) if request.id in ids else -1
    mine = (one.id for one in (*listing.requests[at + 1 :], *listing.requests[: max(at, 0)]) if can_follow(one))
    is_part = listing.next_page is not None or listing.start != ""
    whole = context.pending_count if is_part and not listing.words else 0
    total = f"{whole:,}" if whole else f"{len(ids)}{'+' if is_part else ''}"
    back = context.path() + (f"?{listing.here}" if listing.here else "")
    place = total if at < 0 or listing.start else say("%(part)s of %(whole)s", part=at + 1, whole=total)
    start = max(0, min(at - PAGE // 2, len(ids) - PAGE))
    shown = listing.requests[start : start + PAGE]
    words, arguments = words_apart(shown, _LINE_ROOM), arguments_apart(shown, _LINE_ROOM, equal=False)
    return {
        "rows": [
            (
                one.id,
                parts_of(one)[0],
                theirs or ours or name_of(one.requester, 30),
                _note_on_others(context, one),
                *risk_of(one),
            )
            for one, theirs, ours in zip(shown, words, arguments, strict=True)
        ],
        "asked": listing.here,  # the filters of the inbox from which it was opened, and where it was
        "back": back,
        "place": place,  # such as `3 of 20`
        "after": next(mine, ""),  # the request to open after this one is decided
    }


def _note_on_others(context: RequestContext, request: Request) -> str:
    """Return who else is at a pending request, or who must be: one line for the list beside another one."""
    lacks, count = missing_roles(request, context.reviewer), request.quorum.count
    if lacks:
        return say("needs the role %(roles)s", roles=lacks)
    if request.claimed_by is not None and not context.has_claimed(request):
        return say("claimed by %(by)s", by=name_of(request.claimed_by, 30))
    given = count - request.missing_votes
    return say("%(given)s of %(count)s approvals", given=given, count=count) if count > 1 else ""


def _has_voted(context: RequestContext, request: Request) -> bool:
    return request.state is State.PENDING and any(vote.by.is_same(context.reviewer.identity) for vote in request.votes)


def _done(context: RequestContext, request: Request) -> dict[str, Any] | None:
    """Return the request that was acted on just before this page opened."""
    asked = context.query("done")
    done = context.find(asked) if asked != request.id else None
    if done is None:
        return None
    owner = done.claimed_by if done.state is State.PENDING and not context.has_claimed(done) else None
    people = [] if owner is None else [one.identity.is_same(owner) for one in context.settings.sessions.people()]
    return {
        "row": list_row(done, clock.now()), "status": _status_for(context, done), "undo": undo_of(context, done),
        "is_approved": done.state is State.APPROVED and done.execution is None,  # its call has not started
        "snoozed": _snoozed_until(context, done),
        "by": "" if owner is None else name_of(owner, 30),  # to whom it was assigned
        "is_known": not people or any(people),  # whether that person is signed in, if sessions are recorded
    }  # fmt: skip


def _status_for(context: RequestContext, request: Request) -> str:
    """Return the status of a request, without the hint that it can be undone, which disappears with the button."""
    if _has_voted(context, request):
        return say_n(
            "your approval is recorded; %(num)s more reviewer must approve",
            "your approval is recorded; %(num)s more reviewers must approve", request.missing_votes,
        )  # fmt: skip
    if request.state is not State.APPROVED:
        return full_text.status_line(request, clock.now())
    status = (full_text.status_line if undo_of(context, request) is None else full_text.decided)(request, clock.now())
    grants = [one for one in context.review.grants() if one.request_id == request.id]
    if not grants:
        return status
    if any(request.quorum.missing([one.by for one in grant.grantors]) == 0 for grant in grants):
        return status + "; " + say("similar calls start without asking")
    return status + "; " + say("another reviewer must approve its grant before calls like it start")


class Undo(NamedTuple):
    """Until when a person can undo their decision, in ISO 8601, and how long they could at first, such as `5s`."""

    until: str
    within: str


def undo_of(context: RequestContext, request: Request) -> Undo | None:
    """Return how long this person can undo their decision; None if they cannot."""
    now, decision = clock.now(), undo_by(request, context.reviewer.identity)
    if decision is None or decision.held_for is None:
        return None
    try:
        undo(request, context.reviewer.identity, channel="web", now=now)
    except errors.NotUndoneError:
        return None
    return Undo(clock.written(decision.at + decision.held_for), duration.text(decision.held_for))


def why_not(context: RequestContext, request: Request, now: datetime, *, is_vote: bool = False) -> str | None:
    """Return why this person cannot decide, or with `is_vote` not even approve it unchanged; None if they can.

    The store checks again when they decide.
    """
    if request.state is not State.PENDING:
        return None
    if context.has_claimed(request):
        request = replace(request, claimed_by=context.reviewer.identity)  # the claim does not bar a stand-in
    try:
        must_be_allowed(request, context.reviewer.identity, context.reviewer.roles, now, is_vote=is_vote)
    except errors.DecisionRefusedError as fault:
        return error_text(fault)
    return None


def _title(request: Request) -> str:
    if request.kind == "question":
        return say("A question")
    call = request.effective
    title = call.shown.get("title")
    if call.tool == PLAN_TOOL and isinstance(title, str):
        return say("Plan %(title)s", title=brief(title, _TITLE_ROOM))
    return escape(call.name)


def _unverified(request: Request) -> list[str]:
    """Return the program's texts to show separately, without a summary that is shown in full under the name."""
    is_whole = full_text.program_words(request, 160) == full_text.program_words(request, 9999)
    is_shown = is_whole and request.requester.issuer != TOKENS
    return [name for name in full_text.unverified(request) if not (name == "summary" and is_shown)]


def _program_texts(request: Request) -> dict[str, str]:
    """Return the program's texts, escaped; its context is drawn as values."""
    found = {name: getattr(request, name) for name in full_text.TEXTS}
    words = {name: escape(text, block=True) for name, text in found.items() if text is not None}
    facts = dict(request.context or {})
    model = facts.get(MODEL_WORDS)
    if request.requester.issuer != TOKENS and isinstance(model, str):  # with a token all context is unverified
        words["model"] = escape(without_secrets(request, model), block=True)
        del facts[MODEL_WORDS]
    if facts:
        words["context"] = "\n".join(
            f"{escape(name)}: {shown_value(as_amount(name, mark_secrets(item)))}" for name, item in facts.items()
        )
    return words


def _possible_actions(context: RequestContext, request: Request, reason: str | None) -> dict[str, bool]:
    claimed, is_mine = request.claimed_by, context.has_claimed(request)
    is_pending, is_fixed = request.state is State.PENDING, False
    with suppress(errors.StoreCorruptError):  # the page shows this error in place of the fields
        is_fixed = is_read_only(request)
    return {
        "decide": is_pending and request.kind == "call",
        "edit": is_pending and request.kind == "call" and not is_fixed,
        "answer": is_pending and request.kind == "question",
        "cancel": request.state in {State.PENDING, State.APPROVED},
        "before_start": request.state is State.APPROVED and request.execution is None,
        "claim": is_pending and claimed is None and reason is None,
        "assign": is_pending and (claimed is None or is_mine) and reason is None,
        "release": is_pending and is_mine,
        "take_over": is_pending and claimed is not None and not is_mine,
        "resolve": request.state is State.UNKNOWN,
        "force": request.state is State.RUNNING,
        "needs_reason": is_target(request),
        "again": request.retries > 0 or request.idempotent,
    }


def is_open(request: Request, kind: str) -> bool:
    """Return whether a request is of this kind and pending."""
    return request.state is State.PENDING and request.kind == kind


def _argument_of(path: str) -> str:
    """Return the argument that a path begins with, quoted as in the path."""
    found = re.match(r'"(?:[^"\\]|\\.)*"|[^.\[]*', path)
    return path if found is None else found[0]


def differences_of(
    request: Request, before: Call, after: Call, typed: Mapping[str, object] | None = None
) -> list[Difference]:
    """Return the differences between two calls of a request, for its page.

    `typed` are the values that a person typed for some arguments. A value typed over a masked one is listed in any
    case, equal or not: otherwise a person could find a secret by guessing.
    """
    found, shown = changed(before, after, request.redact), before.drawn
    for name, value in (typed or {}).items():
        if name in shown and writes_over(form_of(value), shown[name]):
            path, masked = escape(place([name], quoted)), {None, MASK, f"{MASK} (changed)"}
            found = [one for one in found if _argument_of(one.path) != path or not {one.before, one.after} <= masked]
            found.append(Change(path, MASK, say("%(mask)s (new value)", mask=MASK)))
    return differences(found, before, after)
