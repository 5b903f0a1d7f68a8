"""The programs' half of the API: ask, wait, start, and say how it ended, for tokens of the kind `ask`.

It is what a store at the other end of a line needs (`sayso.stores.http`): rows as a store has them, in and out. Each
operation is one verb of the store, on the program's own requests. The invariant: nothing here decides, and nothing
here tells of a request or run that is another's.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool

from sayso import clock, errors
from sayso.model import canonical
from sayso.model.journal import Entry
from sayso.model.lifecycle import Outcome, is_due
from sayso.model.rendering import brief
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity
from sayso.server.api import kept, stop
from sayso.server.api.endpoint import Answer, Context, Endpoint
from sayso.server.api.once import HEADERS, Once
from sayso.server.api.ownership import Ownership
from sayso.server.api.problems import Problem
from sayso.server.api.row_wire import (
    Ask,
    ByEffect,
    Changed,
    Entries,
    FindKey,
    FindQuery,
    Finish,
    Found,
    Ids,
    JournalQuery,
    Kept,
    MatchQuery,
    Note,
    Nothing,
    Return,
    Row,
    Rows,
    Seen,
    Settle,
    Start,
    Swept,
    Verify,
    WaitQuery,
    Which,
    Withdraw,
)  # fmt: skip
from sayso.server.api.validation import validate_request
from sayso.server.api.wait import Changes, until_changed
from sayso.stores.base import Filter
from sayso.stores.http_transport import mark_of, request_wire
from sayso.stores.transaction import waiting_kind

__all__ = [
    "OPERATIONS",
    "ask",
    "by_effect",
    "changes",
    "find",
    "find_key",
    "finish",
    "listed",
    "look_at",
    "match",
    "note",
    "own_journal",
    "result",
    "send_back",
    "settle",
    "start",
    "sweep",
    "verify",
    "withdraw",
]

_KINDS = ("ask",)
_PENDING = frozenset({State.PENDING})
_MOST_SENT = 2_000_000  # characters of rows in one answer
_rooms = tuple(threading.Lock() for _ in range(64))


def _row(request: Request) -> Row:
    return Row(**request_wire(request))


# -- ask -------------------------------------------------------------------------------------------------------


def ask(asked: Context) -> Answer:
    """Ask, or find what was asked."""
    said, own = asked.said(Ask), Ownership(asked)
    once = Once(asked, own, said)
    before = once.before()
    if before is not None:
        return Answer(_row(before))
    request = validate_request(said.request, me=own.me, owner=own.owner, now=clock.now())
    if request.retries > stop.MOST_RETRIES:
        raise errors.AskRefusedError(f"a call is retried {stop.MOST_RETRIES} times at most here; give the gate less")
    own.claim(request.run_id)  # before anything stands in it: of two that begin a run at once one is refused
    saved = None if said.saved is None else said.saved.read(own, request.run_id)
    with _room(own):  # so that of many who ask at once no more find room than there is
        known = _known(own, request)
        if known is None:
            known = _known_by_id(own, request)
        elif not own.is_mine(known):
            raise errors.RunNotFoundError(request.run_id)
        if known is None:
            _must_have_room(asked, own, request.run_id)
            _must_have_share(asked, own)
        # A key is compared with what it was used for by the store.
        is_known = known is not None and saved is None and not known.holds and request.key is None
        opened = known if known is not None and is_known else own.store.ask(request, saved)
    once.after(opened)
    return Answer(_row(opened), 201 if known is None and opened.id == request.id else 200)


def _known(own: Ownership, request: Request) -> Request | None:
    """Return the request that answers for this one."""
    if request.key is not None:
        return own.store.find_key(request.run_id, request.key)
    known = own.store.find(request.fingerprint)
    return None if known is not None and is_due(known, clock.now()) else known


def _known_by_id(own: Ownership, request: Request) -> Request | None:
    """Return the request of this id, where the program has asked it before."""
    try:
        known = own.store.get(request.id)
    except errors.RequestNotFoundError:
        return None
    if not own.is_mine(known) or known.fingerprint != request.fingerprint:
        raise errors.AskRefusedError("its id is taken; make a new one at random")
    return known


def _room(own: Ownership) -> threading.Lock:
    return _rooms[hash(own.me) % len(_rooms)]  # a run is one program's, so that this holds for its runs, too


def _must_have_room(asked: Context, own: Ownership, run_id: str) -> None:
    limit: int = asked.http.app.state.open_per_run
    waiting = Filter(states=_PENDING, run_id=run_id)
    if own.store.count(waiting) < limit:
        return
    for request in own.store.list(waiting, limit=1_000).requests:
        if is_due(request, clock.now()):
            own.store.settle(request.id)
    if own.store.count(waiting) >= limit:
        raise errors.TooManyOpenError(run_id, limit)


def _must_have_share(asked: Context, own: Ownership) -> None:
    """Refuse what is one too many of the program; reads no more records than may wait, and no other request."""
    limit: int = asked.http.app.state.open_per_token
    kind = waiting_kind(own.me)
    if len(own.store.records(kind, limit=limit)) < limit:
        return
    for record in own.store.records(kind, due_by=clock.now(), limit=limit):
        own.store.settle(record.key)
    if len(own.store.records(kind, limit=limit)) >= limit:
        raise errors.TooManyOpenForTokenError(own.me.subject, limit)


# -- one request -----------------------------------------------------------------------------------------------


async def look_at(asked: Context) -> Answer:
    """Return one, or wait until it differs from what If-None-Match says."""
    own, request_id = Ownership(asked), asked.path("request_id")
    request = await run_in_threadpool(own.request, request_id)
    seen = asked.http.headers.get("if-none-match", "").strip().removeprefix("W/").strip('"')
    wait = asked.said(WaitQuery).wait

    def look(_: Collection[str]) -> Request | None:
        now = own.request(request_id)
        return now if mark_of(now) != seen else None

    if seen == mark_of(request) and wait:
        request = await until_changed(asked, own.store, [request_id], look, wait) or request
    headers = {"etag": f'"{mark_of(request)}"'}
    return Answer(None, 304, headers) if seen == mark_of(request) else Answer(_row(request), 200, headers)


def settle(asked: Context) -> Row:
    """Write an end that was reached."""
    own, said = Ownership(asked), asked.said(Settle)
    return _row(own.store.settle(own.request(asked.path("request_id")).id, gone=said.gone))


def start(asked: Context) -> Row:
    """Start."""
    own, said = Ownership(asked), asked.said(Start)
    request = own.request(asked.path("request_id"))
    stop.must_be_answered(own, request)
    stop.must_have_starts(request)
    try:
        return _row(own.store.start(request.id, said.token, by=said.worker))
    except errors.EffectTakenError as refusal:
        if refusal.other is not None and own.is_mine(own.store.get(refusal.other)):
            raise
        # An effect counts across programs, and none is told of another's requests.
        raise errors.EffectTakenError(request.id, effect=refusal.effect, other=None, state=refusal.state) from None


def finish(asked: Context) -> Row:
    """Say how it ended."""
    own, said = Ownership(asked), asked.said(Finish)
    request, ended = own.request(asked.path("request_id")), said.outcome
    if ended.result is not None:
        _must_be_shown(ended.result)
    if ended.kept is not None:
        _must_be_shown(ended.kept)
    saved = None if said.saved is None else said.saved.read(own, request.run_id)
    outcome = Outcome(ended.state, ended.result, ended.error, ended.kept, ended.not_kept)
    return _row(own.store.finish(request.id, said.token, outcome, saved))


def _must_be_shown(result: str) -> None:
    try:
        tree = canonical.load(result)
        canonical.display(tree)
        brief(tree["result"], 200)
    except Exception as error:  # as in `sound`: what cannot be shown must not get onto a reviewer's page
        raise errors.ArgumentError("result", f"is no canonical form ({type(error).__name__})") from error


def withdraw(asked: Context) -> Row:
    """Take it back."""
    own = Ownership(asked)
    return _row(own.store.withdraw(own.request(asked.path("request_id")).id, own.me, asked.said(Withdraw).reason))


def send_back(asked: Context) -> Row:
    """Let an edit wait anew."""
    own = Ownership(asked)
    problems = asked.said(Return).problems
    return _row(own.store.send_back(own.request(asked.path("request_id")).id, own.me, problems))


def verify(asked: Context) -> Row:
    """Say whether it happened."""
    own, said = Ownership(asked), asked.said(Verify)
    request = own.request(asked.path("request_id"))
    # Recorded as the program's word: what it calls its hook says nothing that could be known here.
    resolve = partial(own.store.resolve, request.id, own.me, roles=None, channel="verify")
    return _row(resolve(happened=said.happened, comment=None))


# -- many ------------------------------------------------------------------------------------------------------


def find(asked: Context) -> Found:
    """Return the one that holds a fingerprint."""
    own = Ownership(asked)
    found = own.store.find(asked.said(FindQuery).fingerprint)
    return Found(request=None if found is None or not own.is_mine(found) else _row(found))


def find_key(asked: Context) -> Found:
    """Return the one that was asked with a key."""
    own, said = Ownership(asked), asked.said(FindKey)
    found = own.store.find_key(said.run_id, said.key)
    return Found(request=None if found is None or not own.is_mine(found) else _row(found))


def by_effect(asked: Context) -> Rows:
    """Return the program's own with an effect."""
    own = Ownership(asked)
    found = filter(own.is_mine, own.store.by_effect(asked.said(ByEffect).effect))
    return Rows(requests=[*map(_row, found)], cursor=None)


def result(asked: Context) -> Kept:
    """Return what it gave."""
    own = Ownership(asked)
    return Kept(result=own.store.result(own.request(asked.path("request_id")).id))


def match(asked: Context) -> Ids:
    """Return ids that begin so."""
    own, said = Ownership(asked), asked.said(MatchQuery)
    ids = own.store.match(said.prefix, 1_000)
    return Ids(ids=[one for one in ids if own.is_mine(own.store.get(one))][: said.limit])


def listed(asked: Context) -> Rows:
    """Return a page of them."""
    own, said = Ownership(asked), asked.said(Which)
    wanted, claimed = said.wanted, said.wanted.claimed_by
    try:
        states = frozenset(map(State, wanted.states))
        by = None if claimed is None else Identity(*claimed)
        only = Filter(states, wanted.run_id, wanted.name, wanted.risk, by, wanted.text, wanted.kind)
        page = own.page(only, said.cursor, said.limit, newest=said.newest)
    except ValueError as error:
        raise Problem("invalid_input", f"{error}; nothing was done") from None
    return Rows(requests=[*map(_row, page.requests)], cursor=page.cursor)


def sweep(asked: Context) -> Swept:
    """Write all ends that were reached."""
    return Swept(changed=Ownership(asked).store.sweep())


def note(asked: Context) -> Nothing:
    """Note it."""
    own, said = Ownership(asked), asked.said(Note)
    own.claim(said.run_id)
    own.store.note(said.run_id, said.event, own.me, dict[str, Any](said.detail))
    return Nothing()


def own_journal(asked: Context) -> Entries:
    """Return rows of the journal."""
    own, said = Ownership(asked), asked.said(JournalQuery)
    if said.request_id is not None:
        own.request(said.request_id)
    elif said.run_id is not None:
        own.must_be_mine(said.run_id)
    else:
        raise Problem("invalid_input", "say run_id or request_id; nothing was done")
    after = None if said.after_run is None else (said.after_run, said.after_seq)
    found: list[Entry] = []
    while True:  # until there is something that the program may read: an empty page is taken for the end
        rows = own.store.journal(run_id=said.run_id, request_id=said.request_id, after=after, limit=said.limit)
        found += filter(own.may_read, rows)
        if found or len(rows) < said.limit:
            return Entries(entries=[list(row) for row in found])
        after = rows[-1].run_id, rows[-1].seq


async def changes(asked: Context) -> Changed:
    """Wait until something differs from what was seen."""
    own, said = Ownership(asked), asked.said(Seen)
    if said.any is None:
        return await _changed(asked, own, said, None)
    with Changes.counted(own.store) as count:
        return await _changed(asked, own, said, count)


async def _changed(asked: Context, own: Ownership, said: Seen, count: Changes | None) -> Changed:
    def look(request_ids: Collection[str]) -> Changed | None:
        marked = [(mark_of(request), request) for one in request_ids if (request := _own_or_none(own, one)) is not None]
        changed = [(mark, request) for mark, request in marked if mark != said.seen[request.id]]
        if changed or (count is not None and count.mark != said.any):
            marks = {request.id: mark for mark, request in changed}
            rows = _rows([request for _, request in changed]) if said.rows else []
            return Changed(changed=marks, any=None if count is None else count.mark, requests=rows)
        return None

    found = await until_changed(asked, own.store, said.seen, look, said.wait, is_any=count is not None)
    return found or Changed(changed={}, any=said.any)


def _own_or_none(own: Ownership, request_id: str) -> Request | None:
    try:
        return own.request(request_id)
    except errors.RequestNotFoundError:
        return None


def _rows(requests: list[Request]) -> list[Row]:
    """Return as many as one answer takes."""
    found, room = list[Row](), _MOST_SENT
    for row in map(_row, requests):
        room -= len(row.schema_text) + sum(len(value) for value in row.row.values() if isinstance(value, str))
        if room < 0:
            break
        found.append(row)
    return found


_AT = "/v1/program/requests/{request_id}"
_NOT_THERE = ("request_not_found",)
_START = ("already_started", "not_approved", "approval_expired", "effect_taken", "outcome_unknown", "start_refused")
_SAVING = ("run_not_found", "run_busy")

OPERATIONS = [
    Endpoint(
        "POST", "/v1/program/requests", "Ask for a person's word on a call or question, or find it asked", ask,
        kinds=_KINDS, body=Ask, answer=Row, status=201,
        problems=(
            "ask_refused", "too_many_open", "too_many_open_for_token", "key_reused", "idempotency_key_reused",
            "request_not_found", *_SAVING,
        ),
        headers=HEADERS, also={200: "It was asked before; this is how it stands."},
    ),
    Endpoint(
        "GET", _AT, "How a request of the program's stands; with `wait`, when it differs", look_at,
        kinds=_KINDS, query=WaitQuery, answer=Row, problems=_NOT_THERE, waits=True,
        headers={"If-None-Match": "ETag of what was seen."}, also={304: "It is as it was seen."},
    ),
    Endpoint("POST", f"{_AT}/settle", "Write an end that was reached", settle, kinds=_KINDS, body=Settle, answer=Row,
              problems=_NOT_THERE),
    Endpoint("POST", f"{_AT}/start", "Take the single right to run an approved call", start, kinds=_KINDS, body=Start,
              answer=Row, problems=(*_NOT_THERE, *_START)),
    Endpoint("POST", f"{_AT}/finish", "Say how a started call ended", finish, kinds=_KINDS, body=Finish, answer=Row,
              problems=(*_NOT_THERE, "start_refused", "argument", *_SAVING)),
    Endpoint("POST", f"{_AT}/withdraw", "Take a request back, or forget a no", withdraw, kinds=_KINDS, body=Withdraw,
              answer=Row, problems=_NOT_THERE),
    Endpoint("POST", f"{_AT}/return", "Let an approved edit wait anew that the function's own types refuse", send_back,
              kinds=_KINDS, body=Return, answer=Row, problems=_NOT_THERE),
    Endpoint("POST", f"{_AT}/verify", "Say for a gate's hook whether a call had its effect", verify, kinds=_KINDS,
              body=Verify, answer=Row, problems=(*_NOT_THERE, "not_unknown")),
    Endpoint("GET", "/v1/program/find", "The request that holds a fingerprint", find, kinds=_KINDS, query=FindQuery,
              answer=Found),
    Endpoint("POST", "/v1/program/find-key", "The request that was asked with a key in a run", find_key, kinds=_KINDS,
              body=FindKey, answer=Found),
    Endpoint("POST", "/v1/program/by-effect", "The program's requests with an effect", by_effect, kinds=_KINDS,
              body=ByEffect, answer=Rows),
    Endpoint("GET", f"{_AT}/result", "What a call with a key returned", result, kinds=_KINDS, answer=Kept,
              problems=(*_NOT_THERE, "value_not_kept")),
    Endpoint("GET", "/v1/program/match", "Ids of the program's requests, by how they begin", match, kinds=_KINDS,
              query=MatchQuery, answer=Ids),
    Endpoint("POST", "/v1/program/list", "The program's requests", listed, kinds=_KINDS, body=Which, answer=Rows),
    Endpoint("POST", "/v1/program/changes", "Wait until a request differs from what was seen", changes, kinds=_KINDS,
              body=Seen, answer=Changed, waits=True),
    Endpoint("POST", "/v1/program/sweep", "Write all ends that were reached", sweep, kinds=_KINDS, answer=Swept,
              body=kept.Empty),
    Endpoint("POST", "/v1/program/notes", "Note in a run's journal what was denied", note, kinds=_KINDS, body=Note,
              answer=Nothing, problems=("run_not_found",)),
    Endpoint("GET", "/v1/program/journal", "What happened to a request, or in a run", own_journal, kinds=_KINDS,
              query=JournalQuery, answer=Entries, problems=("request_not_found", "run_not_found")),
    *kept.OPERATIONS,
]  # fmt: skip
