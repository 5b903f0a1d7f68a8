"""The pages of runs: the list, and what happened in one run, step by step; the story and the timeline of a request.

A run of an agent, workflow or tool is stored from its first pause on; the run of a plain program is known only by its
requests. Texts of a program are drawn as values, never as sayso's own words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock, errors
from sayso.clock import instant, written
from sayso.model import canonical
from sayso.model.journal import Entry, showable
from sayso.model.lifecycle import is_due
from sayso.model.redaction import Redaction, mark_secrets, scrub
from sayso.model.rendering import brief, is_light, quote_if_needed
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL
from sayso.model.run import RunRecord, RunState
from sayso.model.teamwork import COMMENTED
from sayso.model.text import escape, later, say, unisolated
from sayso.runs.load import LoadedRun, Span, masks_of, scrubbed, span_of
from sayso.runs.state import Body, bodies
from sayso.server.context import RequestContext
from sayso.server.pages.rendering import known, list_rows, render
from sayso.stores.base import Store
from sayso.stores.filter import Filter, RunFilter
from sayso.view import full_text
from sayso.view.as_json import event_rows, moment
from sayso.view.summary import channel_name

_PAGE, _ROOM, _MOST_ROWS = 50, 400, 500
_MOST_ITEMS, _MOST_TEXT = 60, 2_000
_MOST_READ_PAGES, _MOST_NAMES = 5, 3
_MOST_READ = 20_000  # characters of a step's input or output; a larger one is not searched for secrets, nor shown
_KINDS = {"Tool": "tool", "Agent": "agent", "Workflow": "workflow"}  # words to translate, instead of class names
_UNREADABLE = (
    errors.RequestNotFoundError, errors.StoreCorruptError, ArithmeticError, AttributeError, LookupError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip


def runs(context: RequestContext) -> Response:
    """List the stored runs, newest first, and those of plain programs by their newest request."""
    asked, store = {"state": context.query("state"), "name": context.query("name")}, context.settings.store
    at, of = context.query("cursor") or None, context.query("of")
    found, cursor, others, further = list[RunRecord](), None, list[dict[str, Any]](), None
    try:
        state = RunState(asked["state"]) if asked["state"] else None
        if of != "plain":
            states = frozenset[RunState]() if state is None else frozenset({state})
            page, cursor = store.runs(RunFilter(states, asked["name"] or None), cursor=at, limit=_PAGE)
            found = list(page)
        if of == "plain" or at is None:
            others, further = _plain_runs(store, state, asked["name"] or None, at)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    return render(
        context, "runs.html", records=found, others=others, asked=asked, states=list(map(str, RunState)), of=of,
        next_page=None if cursor is None else context.path("runs", cursor=cursor, of="stored", **asked),
        next_others=None if further is None else context.path("runs", cursor=further, of="plain", **asked),
    )  # fmt: skip


_STATES = {
    RunState.PAUSED: frozenset({State.PENDING}), RunState.RUNNING: frozenset({State.APPROVED, State.RUNNING}),
    RunState.BROKEN: frozenset({State.UNKNOWN}), RunState.ENDED: frozenset[State](),
}  # fmt: skip
"""The states of which a plain run in this state has a request; the first that fits is its state."""


def _plain_runs(
    store: Store, state: RunState | None, name: str | None, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return plain runs, each in the place of its newest request that fits, and the cursor of the next page.

    Such a run is not stored: it is of a program of which only the requests are known.
    A page looks through a limited number of requests, so it may be short, or empty, although there are more.
    """
    at, is_from_top = clock.now(), cursor is None
    wanted = Filter(_STATES[state] if state else frozenset(), name=name, at=at)
    found, seen = list[dict[str, Any]](), set[str]()
    for _ in range(_MOST_READ_PAGES):
        page = store.list(wanted, cursor=cursor, limit=_PAGE, newest=True)
        firsts = dict[str, str]()  # the newest request on this page of each run that was not on one before
        for request in page.requests:
            if request.run_id not in seen:
                firsts.setdefault(request.run_id, request.id)
        seen.update(firsts)
        ids = frozenset(firsts)  # a filter without ids would list every run
        stored = {one.id for one in store.runs(RunFilter(ids=ids), limit=len(ids))[0]} if ids else set[str]()
        for run_id, request_id in firsts.items():
            if run_id in stored:
                continue
            # From the top, the first that is met of a run is its newest. Below, a page before may have shown the run.
            newest = () if is_from_top else store.list(replace(wanted, run_id=run_id), limit=1, newest=True).requests
            if is_from_top or (newest and newest[0].id == request_id):
                one = _plain_run(store, run_id, at)
                found += [one] if state in {None, one["state"]} else []
        cursor = page.cursor
        if cursor is None or len(found) >= _PAGE:
            break
    return found, cursor


def _plain_run(store: Store, run_id: str, at: datetime) -> dict[str, Any]:
    page = store.list(Filter(run_id=run_id), limit=_PAGE, newest=True)
    requests = page.requests
    states = {one.state for one in requests if not is_due(one, at)}
    names = dict.fromkeys(say("A question") if one.kind == "question" else escape(one.call.name) for one in requests)
    return {
        "id": run_id, "size": f"{len(requests)}{'+' if page.cursor else ''}",
        "names": ", ".join(list(names)[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else ""),
        "state": next((state for state, one in _STATES.items() if states & one), RunState.ENDED),
        "begun": requests[-1].created_at, "asked": requests[0].created_at,
    }  # fmt: skip


def run(context: RequestContext) -> Response:
    """Show what happened in a run: its steps, its requests and its journal."""
    run_id: str = context.http.path_params["run_id"]
    store = context.settings.store
    requests = context.review.list(state="all", run=run_id, limit=_MOST_ROWS)
    loaded, steps, is_unreadable = None, list[dict[str, Any]](), False
    try:
        snapshot = store.get_run(run_id)
        known = bodies(snapshot.steps)
        masked, hidden = masks_of(known, requests.requests)
        loaded = LoadedRun(snapshot.run, known, store, masked)
        steps = [_step(span, hidden) for span in loaded.spans]
    except errors.RunNotFoundError:
        if not requests.requests:
            raise
    except _UNREADABLE:
        is_unreadable = True  # saved by a program; the requests can still be shown
    only_human = context.query("only") == "human"
    journal = event_rows(map(store.legible, store.journal(run_id=run_id, limit=_MOST_ROWS)))
    return render(
        context, "run.html", run_id=run_id, record=None if loaded is None else loaded.record,
        steps=[step for step in steps if step["is_human"] or not only_human], only_human=only_human,
        rows=list_rows(context.review, requests.requests, clock.now()), journal=journal,
        is_cut=requests.cursor is not None or len(journal) == _MOST_ROWS,
        is_unreadable=is_unreadable, unknown=any(request.state is State.UNKNOWN for request in requests.requests),
    )  # fmt: skip


def story_of(context: RequestContext, request: Request) -> list[tuple[str, str, str]] | None:
    """Return what happened in a request's run before it, oldest first; None if the run is not stored.

    Each item has its kind (`asked`, the input of the run; `says`, a text of a model; `step`), the path and status of a
    step, and its text, escaped. What is masked anywhere in the run is masked here.
    """
    store = context.settings.store
    try:
        known = bodies(store.get_run(request.run_id).steps)
        before = list(takewhile(lambda item: request.id not in _requests_of(item[1]), known.items()))[-_MOST_ITEMS:]
        others = store.list(Filter(run_id=request.run_id), limit=_MOST_ROWS, newest=True).requests
        masked, hidden = masks_of(known, {one.id: one for one in (*others, request)}.values())
        items = [one for place, body in before for one in _story_items(place, body, masked, hidden)]
        texts = [(kind, head, scrub(text, hidden)) for kind, head, text in items]
        return [
            (kind, head, escape(text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…", block=True))
            for kind, head, text in texts
        ]
    except errors.RunNotFoundError:
        return None
    except _UNREADABLE:
        return [("step", "", say("The steps of this run cannot be read."))]  # the call can still be decided


def _requests_of(body: Body) -> set[Any]:
    metadata: dict[str, Any] = body.get("metadata") or {}
    approval: dict[str, Any] = metadata.get("approval") or {}
    return {body.get("waits"), body.get("answered"), approval.get("approval_id")}


def _story_items(place: str, body: Body, masked: Redaction, hidden: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    if "given" in body:
        given = cast("dict[str, Any]", canonical.display(masked.mask(json.loads(body["given"]))))
        prompt = given.get("prompt")
        yield "asked", "", prompt if isinstance(prompt, str) else _brief(given, hidden)
    elif "reply" in body and body["reply"]["text"]:
        yield "says", "", str(body["reply"]["text"])
    elif "status" in body:
        step = _step(span_of(place, body, masked), hidden)
        yield "step", f"{step['path']} {step['status']}", step["text"]


def _brief(tree: Any, hidden: frozenset[str]) -> str:
    """Return a value shortened, after removing secrets from its texts: a shortened secret would not be found."""
    if not is_light(tree, _MOST_READ):
        return say("a value too large to show here")
    return brief(mark_secrets(scrubbed(tree, hidden)), _ROOM)


def _step(span: Span, hidden: frozenset[str]) -> dict[str, Any]:
    approval = span.metadata.get("approval")
    request_id = approval.get("approval_id") if isinstance(approval, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    texts = [] if span.input is None else [say("took %(what)s", what=_brief(span.input, hidden))]
    texts += [] if span.output is None else [say("gave %(what)s", what=_brief(span.output, hidden))]
    if span.error is not None:
        texts = [say("error %(what)s", what=_brief(span.error, hidden))]
    return {
        "at": "" if span.t0 is None else moment(instant(span.t0 * 1000)),
        "path": escape(span.path),
        "kind": escape(_KINDS.get(span.type, span.type)),
        "status": escape(
            " ".join(known(str(span.status[part])) for part in ("code", "reason") if span.status.get(part))
        ),
        "text": unisolated("; ".join(texts)),
        "request_id": request_id if isinstance(request_id, str) else None,
        "is_human": request_id is not None or span.status.get("code") in {"waiting", "decided"},
    }


# -- the timeline of a request -------------------------------------------------------------------------------------
# Its rows of the journal as sentences. A row that is not known here, or that was altered, is shown as in the journal.

_OF_PROGRAM = frozenset({"program", "clock", "sweep", "grant", "policy"})  # channels that no person used
_SENTENCES = {
    "asked": later("%(who)s asked"), "voted": later("%(who)s approved"), "approved": later("%(who)s approved"),
    "rejected": later("%(who)s rejected it"), "feedback": later("%(who)s sent it back"),
    "answered": later("%(who)s answered"), "cancelled": later("%(who)s cancelled the run"),
    "claimed": later("%(who)s claimed it"), "assigned": later("%(who)s assigned it to %(to)s"),
    "released": later("%(who)s unclaimed it"), "undone": later("%(who)s undid the approval; it is pending again"),
    "escalated": later("Nobody decided in time, so %(to)s may decide, too"),
    "returned": later("It is pending again"), "withdrawn": later("The program withdrew it"),
    "started": later("The call started"), "suspended": later("The call stopped to ask something else"),
    "done": later("The call is done"), "failed": later("The call failed"),
    "unknown": later("The outcome of the call is unknown"),
    "cleared": later("The program may ask for the same again"), "purged": later("The arguments were removed"),
}  # fmt: skip
_BY_RULE = {
    "grant": later("A grant let it start without asking"), "policy": later("A budget let it start without asking"),
}  # fmt: skip
_ENDS = {
    "expires_at": later("%(who)s extended it"), "approval_expires_at": later("%(who)s extended the approval"),
    "request": later("It expired, and nobody decided"),
    "approval": later("The approval expired before the call started"),
}  # fmt: skip


def timeline(entries: Iterable[Entry]) -> list[dict[str, str]]:
    """Return what happened to a request, oldest first, without the comments, which the page shows apart."""
    return [_as_sentence(entry) for entry in entries if entry.event != COMMENTED]


def last_undone(entries: Iterable[Entry]) -> dict[str, str] | None:
    """Return the undoing of an approval if nobody has decided since."""
    decisive = {"undone", "voted", "approved", "rejected", "feedback", "cancelled"}
    last = [entry for entry in entries if entry.event in decisive][-1:]
    return _as_sentence(last[0]) if last and last[0].event == "undone" else None


def _as_sentence(entry: Entry) -> dict[str, str]:
    """Return a row of the journal as a sentence."""
    entry, at, detail, until = showable(entry), None, None, ""
    with suppress(OverflowError, RecursionError, TypeError, ValueError):
        at, detail = instant(entry.at), json.loads(entry.detail)
    names = cast("dict[str, Any]", detail if isinstance(detail, dict) else {})
    sentence = _sentence(entry, names) if isinstance(detail, dict) else None
    if at is None or sentence is None:
        (row,) = event_rows([entry])
        utc, _, rest = row.partition("  ")
        text = " ".join(rest.split())
        return {"at": utc.replace(" ", "T"), "utc": utc, "text": text, "channel": "", "until": "", "words": ""}
    with suppress(TypeError, ValueError):
        until = written(datetime.fromisoformat(names.get("until", "")).astimezone(UTC))
    words = names.get("comment") or names.get("reason")
    return {
        "at": written(at), "utc": moment(at),  # the second is for people who have no scripts
        "text": sentence, "channel": "" if entry.channel in _OF_PROGRAM else channel_name(entry.channel),
        "until": until,  # the new end, for an extension
        "words": escape(words, block=True) if isinstance(words, str) else "",
    }  # fmt: skip


def _sentence(entry: Entry, detail: Mapping[str, Any]) -> str | None:
    who = _name(entry.by)
    match entry.event:
        case "approved" if entry.channel in _BY_RULE:
            text = say(_BY_RULE[entry.channel])
        case "approved" | "voted" if detail.get("edited") is True:
            text = say("%(who)s approved with changes", who=who)
        case "released" if isinstance(detail.get("claimed_by"), str):
            text = say("%(who)s unclaimed it for %(whom)s", who=who, whom=_name(detail["claimed_by"]))
        case "extended" | "expired" if str(detail.get("what")) in _ENDS:
            text = say(_ENDS[str(detail["what"])], who=who)
        case "resolved" if detail.get("happened") is True:
            text = say("%(who)s recorded that the call happened", who=who)
        case "resolved":
            text = say("%(who)s recorded that the call did not happen", who=who)
        case event if event in _SENTENCES:
            to = detail.get("to")
            text = say(_SENTENCES[event], who=who, to=_name(to) if isinstance(to, str) else "")
        case _:
            return None
    return "; ".join([text, *_additions(entry, detail)])


def _additions(entry: Entry, detail: Mapping[str, Any]) -> Iterator[str]:
    missing, attempt = detail.get("missing"), detail.get("attempt")
    if entry.event == "voted" and isinstance(missing, int):
        yield full_text.missing_approvals(missing)
    if isinstance(detail.get("on_behalf_of"), str):
        yield say("on behalf of %(who)s", who=", ".join(map(_name, detail["on_behalf_of"].split(", "))))
    if detail.get("again") is True:
        yield say("although its effect has already happened or is pending")
    if isinstance(detail.get("votes_reset"), int):
        yield say("the approvals before no longer count")
    if entry.event == "started" and isinstance(attempt, int) and attempt > 1:
        yield say("attempt %(attempt)s", attempt=attempt)
    if detail.get("may_try_again") is True:
        yield say("it may start again")


def _name(identity: str) -> str:
    return quote_if_needed(identity.removeprefix(f"{LOCAL}:").removeprefix("program:"))
