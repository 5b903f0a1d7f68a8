"""The pages of runs: the list, and what happened in one run, step by step.

A run of an agent, workflow or tool is stored from its first pause on; the run of a plain program is known only by its
requests. Texts of a program are drawn as values, never as sayso's own words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Any, Literal, NamedTuple, cast

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import errors
from sayso.clock import instant, now
from sayso.model import canonical
from sayso.model.canonical.json_tree import MASK
from sayso.model.lifecycle import is_due
from sayso.model.redaction import Redaction, mark_secrets, scrub, words_of
from sayso.model.rendering import brief, is_light
from sayso.model.request import Call, Request, State, secrets_of_call
from sayso.model.run import RunRecord, RunState
from sayso.model.text import escape, say, unisolated
from sayso.runs.load import Span, load_run, span_of
from sayso.runs.state import Body, bodies
from sayso.server.context import RequestContext
from sayso.server.pages.rendering import known, render, rows_of
from sayso.stores.base import Store
from sayso.stores.filter import Filter, RunFilter
from sayso.view.document import event_rows, moment

_PAGE, _ROOM, _MOST_ROWS = 50, 400, 500
_MOST_TOLD, _MOST_TEXT = 60, 2_000
_MOST_READ_PAGES, _MOST_NAMES = 5, 3
_MOST_READ = 20_000  # characters of a step's input or output; a larger one is not searched for secrets, nor shown
_KINDS = {"Tool": "tool", "Agent": "agent", "Workflow": "workflow"}  # words to translate, instead of class names
_UNREADABLE = (
    errors.StoreCorruptError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


def runs(context: RequestContext) -> Response:
    """List the stored runs, newest first, and those of plain programs by their newest request."""
    asked, store = {"state": context.query("state"), "name": context.query("name")}, context.settings.store
    at, of = context.query("cursor") or None, context.query("of")
    found, cursor, others, further = list[RunRecord](), None, list[PlainRun](), None
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


class PlainRun(NamedTuple):
    """A run of a program that is not stored, so that only its requests are known.

    Attributes:
        names: The functions that it called, the newest first.
        state: `paused` while a request of it waits, `running` while a call may start or runs, `broken` if the outcome
            of one is unknown, else `ended`.
        size: The number of its requests.
        begun, asked: When it first and last asked.
    """

    id: str
    names: str
    state: RunState
    size: str
    begun: datetime
    asked: datetime


_STATES = {
    RunState.PAUSED: frozenset({State.PENDING}), RunState.RUNNING: frozenset({State.APPROVED, State.RUNNING}),
    RunState.BROKEN: frozenset({State.UNKNOWN}), RunState.ENDED: frozenset[State](),
}  # fmt: skip
"""The states of which a plain run in this state has a request; the first that fits is its state."""


def _plain_runs(
    store: Store, state: RunState | None, name: str | None, cursor: str | None
) -> tuple[list[PlainRun], str | None]:
    """Return plain runs, each in the place of its newest request that fits, and the cursor of the next page.

    A page looks through a limited number of requests, so it may be short, or empty, although there are more.
    """
    at = now()
    wanted = Filter(_STATES[state] if state else frozenset(), name=name, at=at)
    found, seen = list[PlainRun](), set[str]()
    for _ in range(_MOST_READ_PAGES):
        page = store.list(wanted, cursor=cursor, limit=_PAGE, newest=True)
        firsts = dict[str, str]()  # the newest request on this page of each run that was not on one before
        for request in page.requests:
            if request.run_id not in seen:
                firsts.setdefault(request.run_id, request.id)
        seen.update(firsts)
        stored = _stored(store, frozenset(firsts))
        for run_id, request_id in firsts.items():
            if run_id in stored:
                continue
            newest = store.list(replace(wanted, run_id=run_id), limit=1, newest=True).requests
            if newest and newest[0].id == request_id:
                one = _plain_run(store, run_id, at)
                found += [one] if state in {None, one.state} else []
        cursor = page.cursor
        if cursor is None or len(found) >= _PAGE:
            break
    return found, cursor


def _plain_run(store: Store, run_id: str, at: datetime) -> PlainRun:
    page = store.list(Filter(run_id=run_id), limit=_PAGE, newest=True)
    requests = page.requests
    states = {one.state for one in requests if not is_due(one, at)}
    names = dict.fromkeys(say("A question") if one.kind == "question" else escape(one.call.name) for one in requests)
    return PlainRun(
        run_id, ", ".join(list(names)[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else ""),
        next((state for state, one in _STATES.items() if states & one), RunState.ENDED),
        f"{len(requests)}{'+' if page.cursor else ''}", requests[-1].created_at, requests[0].created_at,
    )  # fmt: skip


def _stored(store: Store, run_ids: frozenset[str]) -> frozenset[str]:
    """Return which of these runs are stored, without reading their steps."""
    if not run_ids:
        return run_ids
    try:
        return frozenset(run.id for run in store.runs(RunFilter(ids=run_ids), limit=len(run_ids))[0])
    except _UNREADABLE:  # one that cannot be read is stored, too
        return (
            run_ids
            if len(run_ids) == 1
            else frozenset[str]().union(*(_stored(store, frozenset({one})) for one in run_ids))
        )


def run(context: RequestContext) -> Response:
    """Show what happened in a run: its steps, its requests and its journal."""
    run_id: str = context.http.path_params["run_id"]
    store = context.settings.store
    requests = context.review.list(state="all", run_id=run_id, limit=_MOST_ROWS)
    loaded, steps, is_unreadable = None, list[dict[str, Any]](), False
    try:
        loaded = load_run(run_id, store=store)
        steps = [_step(span, _in_short) for span in loaded.spans]
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
        rows=rows_of(context.review, list(requests.requests), now()), journal=journal,
        is_cut=requests.cursor is not None or len(journal) == _MOST_ROWS,
        is_unreadable=is_unreadable, unknown=any(request.state is State.UNKNOWN for request in requests.requests),
    )  # fmt: skip


class Told(NamedTuple):
    """One item of the history that led to a request, as texts to show.

    Attributes:
        kind: `asked`, the input of the run; `says`, a text of a model; `step`, a tool's input and output.
        head: For a step, its path and status.
        text: The content, escaped. What is masked anywhere in the run is masked here.
    """

    kind: Literal["asked", "says", "step"]
    head: str
    text: str


def story_of(context: RequestContext, request: Request) -> list[Told] | None:
    """Return what happened in a request's run before it, oldest first; None if the run is not stored."""
    store = context.settings.store
    try:
        known = bodies(store.get_run(request.run_id).steps)
        before = list(takewhile(lambda item: request.id not in _requests_of(item[1]), known.items()))[-_MOST_TOLD:]
        others = store.list(Filter(run_id=request.run_id), limit=_MOST_ROWS, newest=True).requests
        names = frozenset[str]().union(*(one.redact for one in others), *map(_masked_in, known.values()))
        masked = Redaction(list(filter(words_of, names.union(request.redact))))
        hidden = frozenset[str]().union(*(_secrets_of(body, masked) for body in known.values()))
        hidden = hidden.union(*map(_secrets_of_request, {one.id: one for one in (*others, request)}.values()))
        told = [one for place, body in before for one in _told(place, body, masked, hidden)]
        texts = [scrub(one.text, hidden) for one in told]
        texts = [text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…" for text in texts]
        return [one._replace(text=escape(text, block=True)) for one, text in zip(told, texts, strict=True)]
    except errors.RunNotFoundError:
        return None
    except _UNREADABLE:
        return [Told("step", "", say("The steps of this run cannot be read."))]  # the call can still be decided


def _requests_of(body: Body) -> set[Any]:
    metadata: dict[str, Any] = body.get("metadata") or {}
    approval: dict[str, Any] = metadata.get("approval") or {}
    return {body.get("waits"), body.get("answered"), approval.get("approval_id")}


def _masked_in(body: Body) -> frozenset[str]:
    """Return the names whose values are masked in a step's own input."""
    found, waiting = set[str](), [body.get("input")]
    while waiting:
        tree: Any = waiting.pop()
        if isinstance(tree, dict):
            parts = cast("dict[str, Any]", tree)
            found.update(name for name, value in parts.items() if value == MASK)
            waiting += parts.values()
        elif isinstance(tree, list):
            waiting += cast("list[Any]", tree)
    return frozenset(found)


def _secrets_of(body: Body, masked: Redaction) -> frozenset[str]:
    """Return the values that are masked by name in a step's input and output, and in the calls that a model asked."""
    kept: dict[str, Any] = body.get("value") or {}
    reply: dict[str, Any] = body.get("reply") or {}
    trees = [json.loads(text) for text in (body.get("given"), kept.get("form")) if isinstance(text, str)]
    trees += [kept.get("plain"), *(call["arguments"] for call in reply.get("calls", ()))]
    return frozenset[str]().union(*map(masked.secrets, trees))


def _secrets_of_request(request: Request) -> frozenset[str]:
    """Return the masked values of a request's call, including those masked by a redactor rather than by name."""
    if not isinstance(request.subject, Call) or request.purged_at is not None:
        return frozenset()
    calls = {call.digest: call for call in (request.subject, request.effective)}
    return frozenset[str]().union(*(secrets_of_call(call, request) for call in calls.values()))


def _told(place: str, body: Body, masked: Redaction, hidden: frozenset[str]) -> Iterator[Told]:
    if "given" in body:
        given = cast("dict[str, Any]", canonical.display(masked.mask(json.loads(body["given"]))))
        prompt = given.get("prompt")
        yield Told("asked", "", prompt if isinstance(prompt, str) else _short(given, hidden))
    elif "reply" in body and body["reply"]["text"]:
        yield Told("says", "", str(body["reply"]["text"]))
    elif "status" in body:
        step = _step(span_of(place, body), partial(_short, hidden=hidden))
        yield Told("step", f"{step['path']} {step['status']}", step["said"])


def _in_short(tree: Any) -> str:
    return brief(mark_secrets(tree), _ROOM)


def _short(tree: Any, hidden: frozenset[str]) -> str:
    """Return a value shortened, after removing secrets from its texts: a shortened secret would not be found."""
    return _in_short(_scrubbed(tree, hidden)) if is_light(tree, _MOST_READ) else say("a value too large to show here")


def _scrubbed(tree: Any, hidden: frozenset[str]) -> Any:
    if isinstance(tree, str):
        return scrub(tree, hidden)
    if isinstance(tree, list):
        return [_scrubbed(item, hidden) for item in cast("list[Any]", tree)]
    if isinstance(tree, dict):
        return {scrub(name, hidden): _scrubbed(item, hidden) for name, item in cast("dict[str, Any]", tree).items()}
    return tree


def _step(span: Span, short: Callable[[Any], str]) -> dict[str, Any]:
    approval = span.metadata.get("approval")
    request_id = approval.get("approval_id") if isinstance(approval, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    said = [] if span.input is None else [say("took %(what)s", what=short(span.input))]
    said += [] if span.output is None else [say("gave %(what)s", what=short(span.output))]
    if span.error is not None:
        said = [say("error %(what)s", what=short(span.error))]
    return {
        "at": "" if span.t0 is None else moment(instant(span.t0 * 1000)),
        "path": escape(span.path),
        "kind": escape(_KINDS.get(span.type, span.type)),
        "status": escape(
            " ".join(known(str(span.status[part])) for part in ("code", "reason") if span.status.get(part))
        ),
        "said": unisolated("; ".join(said)),
        "request_id": request_id if isinstance(request_id, str) else None,
        "is_human": request_id is not None or span.status.get("code") in {"waiting", "decided"},
    }
