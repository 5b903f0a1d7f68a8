"""The programs' part of the API, for tokens of the kind `ask`: each endpoint is one verb of `sayso.stores.http`.

A program sees only its own requests and runs (`sayso.server.api.validation`). Nothing here decides. The server does not
trust what a program sends if it can compute it itself (`sayso.server.api.validation`).
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from pydantic_core import to_json

from sayso import clock, errors
from sayso.model import canonical
from sayso.model.duration import ago
from sayso.model.journal import Entry
from sayso.model.lifecycle import MOST_KEPT, Outcome, is_due
from sayso.model.rendering import brief
from sayso.model.request import Execution, Request, State
from sayso.model.run import RunRecord, RunState, RunUpdate
from sayso.server.api.endpoint import Router, encoded, in_thread, validated
from sayso.server.api.long_poll import StoreVersion, until_changed
from sayso.server.api.problems import Problem, document_of, problem_of, refusing_input
from sayso.server.api.validation import Denied, Ownership, validate_request
from sayso.stores import http_messages as messages
from sayso.stores.base import Filter
from sayso.stores.review import requests_with
from sayso.stores.transaction import waiting_kind

__all__ = ["MOST_RETRIES", "message_of", "must_have_starts", "record", "refused", "router", "validated_request"]

F = TypeVar("F", bound=Callable[..., Any])
router = Router(kinds=("ask",))
_NOT_THERE = ("request_not_found",)
_SAVING = ("run_not_found", "run_busy", "request_not_found")

MOST_RETRIES = 5
"""The most retries that a server allows a program's call, and the most repeated starts of an idempotent one."""

# The terms of an approval beside the call itself. If a program asks again with other terms, its call is not started.
_SAME_AT_START = (
    "subject", "quorum", "escalation", "retries", "idempotent", "always", "effect", "redact", "on_behalf_of",
    "also_for",
)  # fmt: skip
_MAX_SENT = 2_000_000  # characters of requests in one answer
_MAX_LOOKED_AT = 1_000
_MAX_SEARCHED = 1_000
_MAX_WORDS, _MAX_RESULT, _MAX_STEPS = 10_000, 200_000, 10_000
_MAX_DETAIL = 65_536  # bytes of a note; lists of the journal read hundreds of them at once
_SMALL = 8_000  # characters up to which a schema is checked in the event loop


def _operation(summary: str, **options: Any) -> Callable[[F], F]:
    """Register the decorated function as the endpoint of its input message."""

    def add(handler: F) -> F:
        _, message = inspect.signature(handler, eval_str=True).parameters.values()
        return router.post(f"/v1/program{message.annotation.path()}", summary, **options)(handler)

    return add


# -- asking ------------------------------------------------------------------------------------------------------


@_operation(
    "Request a decision on a call or question, or find the existing request",
    problems=("ask_refused", "too_many_open", "too_many_open_for_token", "key_reused", *_SAVING),
)
async def ask(own: Ownership, message: messages.Ask) -> messages.RequestMessage:
    # Validate before the transaction, which blocks other writes. Validate a large schema in a thread.
    check = partial(validated_request, own, message.request)
    try:
        request = check() if len(message.request.subject.schema) <= _SMALL else await in_thread(own.http, check)
    except Denied as denial:
        raise await refused(own, denial) from None
    found = await own.commit(_ask, request, message)
    if message.seconds and found.state is State.PENDING:
        request_id = found.id

        def decided(own: Ownership, _: object) -> Request | None:
            request = own.request(request_id)
            return None if request.state is State.PENDING else request

        after = await until_changed(own, [request_id], decided, message.seconds)
        found = found if after is None else after
        if message.start is not None and found.state is State.APPROVED:
            found = await own.commit(_ask, request, message)
    return message_of(found)


def _ask(own: Ownership, request: Request, message: messages.Ask) -> Request:
    """Find or record a request, and start it at once if it is approved on the terms that the program asks for now."""
    found, begin = record(own, request, message.update), message.start
    if begin is None or found.state is not State.APPROVED or found.edited is not None:
        return found
    if found.execution is not None:
        return found  # this message may come again, after a later start; the separate one says which starts it knows
    if found.held_until is not None and own.store.now() < found.held_until:
        return found  # it can still be undone; the program's separate start is told for how long
    if any(getattr(found, name) != getattr(request, name) for name in _SAME_AT_START):
        return found
    return _started(own, found, begin)


async def refused(own: Ownership, denial: Denied) -> errors.AskRefusedError:
    """Record in the journal that the server's policy denies a call, and return the error for the program."""

    def note(own: Ownership) -> None:
        own.claim(denial.run_id)
        own.store.note(denial.run_id, "denied", own.me, dict[str, Any](denial.detail))

    await own.commit(note)
    return errors.AskRefusedError(str(denial))


def validated_request(own: Ownership, asked: messages.AskedRequest) -> Request:
    """Validate what a program asks and return it as a request; raises `AskRefusedError` or `Denied`."""
    request = validate_request(asked, me=own.me, owner=own.owner, now=clock.now())
    if request.retries > MOST_RETRIES:
        raise errors.AskRefusedError(f"this server allows at most {MOST_RETRIES} retries; set fewer in the gate")
    return request


def record(own: Ownership, request: Request, update: RunUpdate | None = None) -> Request:
    """Return the existing request for one that is asked, or record it. Call it in a transaction of the writer.

    There is one writer, so concurrent asks cannot exceed the limits of pending requests.
    """
    is_new = own.claim(request.run_id)  # before the first write: of two programs that begin a run, one is refused
    saved = None if update is None else _update(own, update, request.run_id)
    known = None
    if not is_new:  # a new run has no requests
        if request.key is not None:
            known = own.store.find_key(request.run_id, request.key)
        elif (same := own.store.find(request.fingerprint)) is not None and not is_due(same, clock.now()):
            known = same
    known = known or _known_by_id(own, request)
    if known is not None and not own.is_mine(known):
        raise errors.RunNotFoundError(request.run_id)
    if known is None:
        _must_have_room(own, request.run_id, is_new=is_new)
    # With a key the store decides: it compares the call with the one for which the key was used.
    if known is not None and saved is None and request.key is None:
        return known
    return own.store.ask(request, saved)


def _known_by_id(own: Ownership, request: Request) -> Request | None:
    """Return the request with this id if the program has asked it; raises `AskRefusedError` if the id is taken."""
    try:
        known = own.store.get(request.id)
    except errors.RequestNotFoundError:
        return None
    if not own.is_mine(known) or known.fingerprint != request.fingerprint:
        raise errors.AskRefusedError("its id is already used; generate a new random one")
    return known


def _must_have_room(own: Ownership, run_id: str, *, is_new: bool) -> None:
    """Refuse a request if its run or its program has too many pending ones.

    For the program this counts the records of pending requests, up to the limit, and reads no request.
    """
    state, store, now = own.http.app.state, own.store, clock.now()
    in_run, kind = Filter(states=frozenset({State.PENDING}), run_id=run_id), waiting_kind(own.me)
    if (0 if is_new else store.count(in_run)) >= state.open_per_run:
        for request in store.list(in_run, limit=1_000).requests:
            if is_due(request, now):
                store.settle(request.id)
        if store.count(in_run) >= state.open_per_run:
            raise errors.TooManyOpenError(run_id, state.open_per_run)
    if store.count_records(kind, state.open_per_token) >= state.open_per_token:
        for record in store.records(kind, due_by=now, limit=state.open_per_token):
            store.settle(record.key)
        if store.count_records(kind, state.open_per_token) >= state.open_per_token:
            raise errors.TooManyOpenForTokenError(own.me.subject, state.open_per_token)


def _update(own: Ownership, update: RunUpdate, asked_in: str = "") -> RunUpdate:
    """Check an update of a run, claim the run for the program, and return the update.

    Raises:
        RunNotFoundError: Another program began the run.
        RequestNotFoundError: It waits for another program's request.
    """
    run = update.run
    if max(len(text) for text in (run.id, run.name, run.kind, run.holder or "")) > 600 or not (run.id and run.name):
        raise Problem("invalid_input", "a run's id, name, kind and holder have 1 to 600 characters; nothing was done")
    if len(update.steps) > _MAX_STEPS:
        raise Problem("invalid_input", f"at most {_MAX_STEPS:,} steps are saved at a time; nothing was done")
    if update.left is RunState.RUNNING:
        raise Problem("invalid_input", "a run must be handed back as paused, broken or ended; nothing was done")
    own.must_be_able_to_save(update)
    if run.id != asked_in:
        own.claim(run.id)
    # The server dates the run: a store cannot read any time that a program could send, and could list no runs.
    now = clock.now()
    begun = run.created_at if run.created_at.tzinfo is not None and clock.EPOCH <= run.created_at <= now else now
    return update._replace(run=replace(run, created_at=begun, updated_at=now))


# -- one request -------------------------------------------------------------------------------------------------


_changing = attrgetter(
    "state", "holds", "votes", "decision", "edited", "returned", "claimed_by", "claimed_at", "escalated_at",
    "approval_expires_at", "execution", "expires_at", "purged_at",
)  # fmt: skip


def message_of(request: Request) -> messages.RequestMessage:
    """Return a request as a message for its program, with an ETag that differs after each change."""
    etag = hashlib.sha256(encoded(_changing(request))).hexdigest()[:32]
    return messages.RequestMessage.of(request=request, etag=etag)


@_operation("Get a request of the program", problems=_NOT_THERE)
def get(own: Ownership, message: messages.Get) -> messages.RequestMessage:
    return message_of(own.request(message.request_id))


@_operation("Record the expiry of a request", problems=_NOT_THERE, is_brief=True)
def settle(own: Ownership, message: messages.Settle) -> messages.RequestMessage:
    return message_of(own.store.settle(own.request(message.request_id).id, gone=message.gone))


@_operation(
    "Acquire the single right to run an approved call",
    problems=(
        *_NOT_THERE, "already_started", "not_approved", "approval_expired", "approval_held", "effect_taken",
        "grant_ended", "stopped", "outcome_unknown",
        "start_refused",
    ),
    is_brief=True,
)  # fmt: skip
def start(own: Ownership, message: messages.Start) -> messages.RequestMessage:
    request = own.request(message.request_id)
    must_have_starts(own, request)
    _must_be_in_time(request, message.seen)
    return message_of(_started(own, request, message))


def _started(own: Ownership, request: Request, begin: messages.Begin | messages.Start) -> Request:
    try:
        # `seen`: another start may have come meanwhile, or have stopped, and used up what was just checked.
        return own.store.start(request.id, begin.token, by=begin.worker, seen=request)
    except errors.EffectTakenError as refusal:
        if refusal.other is not None and own.is_mine(own.store.get(refusal.other)):
            raise
        # Effects are shared by all programs, but the id of another program's request is not revealed.
        raise errors.EffectTakenError(request.id, effect=refusal.effect, other=None, state=refusal.state) from None


def _must_be_in_time(request: Request, seen: int | None) -> None:
    """Raise `AlreadyStartedError` for a start that was sent before another one ended, and came after it.

    The store recognizes a message that comes again by the token of the last start, but not by those of earlier ones.
    """
    execution = request.execution
    if execution is not None and seen is not None and execution.starts > seen:
        raise _already_started(request, execution)


def _already_started(request: Request, execution: Execution) -> errors.AlreadyStartedError:
    at = execution.started_at
    return errors.AlreadyStartedError(request.id, state=request.state, at=at, age=ago(at, clock.now()))


def must_have_starts(own: Ownership, request: Request) -> None:
    """Raise `AlreadyStartedError` for a call that has used its starts. Not left to the program, which is not trusted.

    A call that stops to ask a person something else gives its start back (`suspended`). The server grants the start
    again only after a person has answered something in the same run since. So each start beyond those shown at the
    approval costs one more answer of a person.
    """
    execution = request.execution
    if execution is None:
        return
    # A person who found that a start did not happen allows one more.
    is_spent = execution.attempt > MOST_RETRIES and not _is_answered(own, request, execution.started_at)
    if execution.stopped and execution.error is None:  # with an error, a later start failed
        wanted = Filter(run_id=request.run_id)
        asked = own.page(wanted, None, _MAX_LOOKED_AT, newest=True).requests  # of this run, newest first
        is_spent = is_spent or not any(_is_answered(own, one, execution.started_at) for one in asked)
    if is_spent:
        raise _already_started(request, execution)


def _is_answered(own: Ownership, request: Request, since: datetime) -> bool:
    """Return whether a person has decided a request, or resolved its outcome, since an instant.

    The program itself does not count, nor a decision by a grant or a budget, which no person looked at.
    """
    decision, execution = request.decision, request.execution
    if decision is not None and decision.under is None and decision.by != own.me and decision.at >= since:
        return True
    if execution is None or execution.resolved_by in {None, own.me} or execution.finished_at is None:
        return False
    return execution.finished_at >= since


@_operation("Renew the leases of running calls and of runs", is_brief=True)
def renew(own: Ownership, message: messages.Renew) -> messages.Renewed:
    # One that cannot be read, or is not the program's, costs no other its lease.
    starts, runs = list[tuple[str, str]](), list[tuple[str, str]]()
    for request_id, token in message.starts:
        with suppress(errors.RequestNotFoundError, errors.StoreCorruptError):
            starts.append((own.request(request_id).id, token))
    for run_id, holder in message.runs:
        with suppress(errors.RunNotFoundError, errors.StoreCorruptError):
            own.must_be_mine(run_id)
            runs.append((run_id, holder))
    return messages.Renewed.of(lost=own.store.renew(starts, runs))


@_operation("Report the outcome of a started call", problems=(*_SAVING, "start_refused", "argument"), is_brief=True)
def finish(own: Ownership, message: messages.Finish) -> messages.RequestMessage:
    request = own.request(message.request_id)
    _must_be_storable(message.outcome)
    update = None if message.update is None else _update(own, message.update, request.run_id)
    return message_of(own.store.finish(request.id, message.token, message.outcome, update))


def _must_be_storable(outcome: Outcome) -> None:
    for name, text, limit in (
        ("result", outcome.result, _MAX_RESULT), ("kept", outcome.kept, MOST_KEPT),
        ("error", outcome.error, _MAX_WORDS), ("not_kept", outcome.not_kept, 500),
    ):  # fmt: skip
        if text is not None and len(text) > limit:
            raise Problem("invalid_input", f"`{name}` has at most {limit:,} characters; nothing was done")
    for text in filter(None, (outcome.result, outcome.kept)):
        try:
            tree = canonical.load(text)
            to_json(canonical.display(tree))  # refuses what no JSON answer can have: lone surrogates, too many levels
            brief(tree["result"], 200)
        except Exception as error:  # a value that cannot be shown must not break a reviewer's page
            raise errors.ArgumentError("result", f"is not in canonical form ({type(error).__name__})") from error


@_operation("Withdraw a request, or forget a rejection", problems=_NOT_THERE, is_brief=True)
def withdraw(own: Ownership, message: messages.Withdraw) -> messages.RequestMessage:
    return message_of(own.store.withdraw(own.request(message.request_id).id, own.me, message.reason))


@_operation(
    "Return an approved edit to pending, because the function's types refuse it", problems=_NOT_THERE, is_brief=True
)
def send_back(own: Ownership, message: messages.SendBack) -> messages.RequestMessage:
    return message_of(own.store.send_back(own.request(message.request_id).id, own.me, message.problems))


@_operation(
    "Report, for a gate's hook, whether a call took effect", problems=(*_NOT_THERE, "not_unknown", "argument"),
    is_brief=True,
)  # fmt: skip
def verify(own: Ownership, message: messages.Verify) -> messages.RequestMessage:
    request = own.request(message.request_id)
    if message.outcome is not None:
        _must_be_storable(message.outcome)
    # Recorded as by the program. The name of its hook is not recorded, because the server cannot check it.
    return message_of(own.store.resolve(
        request.id, own.me, roles=None, channel="verify", happened=message.happened, comment=None, token=message.token,
        outcome=message.outcome,
    ))  # fmt: skip


@_operation("Get the stored result of a call with a key", problems=(*_NOT_THERE, "value_not_kept"))
def get_result(own: Ownership, message: messages.GetResult) -> messages.Result:
    return messages.Result.of(result=own.store.result(own.request(message.request_id).id))


# -- many requests -----------------------------------------------------------------------------------------------


@_operation("Find the open request with a fingerprint")
def find(own: Ownership, message: messages.Find) -> messages.Found:
    return _found(own, own.store.find(message.fingerprint))


@_operation("Find the request with a key in a run")
def find_key(own: Ownership, message: messages.FindKey) -> messages.Found:
    return _found(own, own.store.find_key(message.run_id, message.key))


def _found(own: Ownership, found: Request | None) -> messages.Found:
    return messages.Found.of(found=None if found is None or not own.is_mine(found) else message_of(found))


@_operation("Find the program's requests with an effect")
def by_effect(own: Ownership, message: messages.ByEffect) -> messages.Requests:
    return messages.Requests.of(requests=[*filter(own.is_mine, own.store.by_effect(message.effect))], cursor=None)


@_operation("Find ids of the program's requests by prefix")
def match(own: Ownership, message: messages.Match) -> messages.Ids:
    ids = own.store.match(message.prefix, _MAX_LOOKED_AT)
    mine = {one.id for one in requests_with(own.store, ids) if own.is_mine(one)}
    return messages.Ids.of(ids=[one for one in ids if one in mine][: message.limit])


@_operation("The program's requests")
def list_requests(own: Ownership, message: messages.List) -> messages.Requests:
    wanted = message.wanted
    _must_be_short(wanted.run_id, wanted.name, wanted.risk, wanted.text)
    with refusing_input():
        page = own.page(wanted, message.cursor, message.limit, newest=message.newest)
    return messages.Requests.of(requests=page.requests, cursor=page.cursor)


def _must_be_short(*texts: str | None) -> None:
    """Refuse filters that are slow to search for, or that exceed SQLite's limit for patterns."""
    if any(text is not None and len(text) > _MAX_SEARCHED for text in texts):
        raise Problem("invalid_input", f"a filter has at most {_MAX_SEARCHED:,} characters; nothing was done")


@_operation("Record all expiries that are due")
def sweep(own: Ownership, _: messages.Sweep) -> messages.Swept:
    return messages.Swept.of(changed=own.store.sweep())


@_operation("Record a denial in a run's journal", problems=("run_not_found",), is_brief=True)
def note(own: Ownership, message: messages.Note) -> messages.Done:
    if len(encoded(message.detail)) > _MAX_DETAIL:
        raise Problem("invalid_input", f"`detail` has at most {_MAX_DETAIL:,} bytes; nothing was done")
    own.claim(message.run_id)
    own.store.note(message.run_id, message.event, own.me, dict[str, Any](message.detail))
    return messages.Done()


@_operation("List journal rows of a request or a run", problems=("request_not_found", "run_not_found"))
def journal(own: Ownership, message: messages.Journal) -> messages.Entries:
    if message.request_id is not None:
        own.request(message.request_id)
    elif message.run_id is not None:
        own.must_be_mine(message.run_id)
    else:
        raise Problem("invalid_input", "give run_id or request_id; nothing was done")
    found, after, limit = list[Entry](), message.after, message.limit
    while True:  # until a row is readable, because a client takes an empty page for the end
        rows = own.store.journal(run_id=message.run_id, request_id=message.request_id, after=after, limit=limit)
        found += filter(own.may_read, rows)
        if found or len(rows) < limit:
            return messages.Entries.of(entries=found)
        after = rows[-1].run_id, rows[-1].seq


@_operation("Wait until a request has changed", waits=True)
async def wait(own: Ownership, message: messages.Wait) -> messages.Changes:
    seen, known, seconds = message.seen, message.version, message.seconds
    del message  # not kept in memory for as long as the program waits
    with nullcontext() if known is None else StoreVersion.counted(own.store) as version:
        look = partial(_changes, seen, known, version)
        found = await until_changed(own, seen, look, seconds, is_any=version is not None)
    return found or messages.Changes.of(changed={}, version=known, requests=[])


def _changes(
    seen: Mapping[str, str | None], known: str | None, version: StoreVersion | None, own: Ownership,
    request_ids: Collection[str],
) -> messages.Changes | None:  # fmt: skip
    found = [message_of(one) for one in map(own.request_or_none, request_ids) if one is not None]
    changed = [one for one in found if one.etag != seen[one.request.id]]
    if not changed and (version is None or version.value == known):
        return None
    fitting, room = list[messages.RequestMessage](), _MAX_SENT
    for one in changed:
        room -= len(one.model_dump_json()) if len(changed) > 1 else 0  # a single one is always sent
        if room < 0:
            break
        fitting.append(one)
    return messages.Changes.of(
        changed={one.request.id: one.etag for one in changed}, version=None if version is None else version.value,
        requests=fitting,
    )  # fmt: skip


@router.post("/v1/program/batch", "Run several operations; each has its own result", waits=True)
async def batch(own: Ownership, message: messages.Batch) -> messages.Answers:
    answers = await asyncio.gather(*(_run_operation(own, one) for one in message.operations))
    return messages.Answers.of(answers=answers)


async def _run_operation(own: Ownership, operation: messages.Operation) -> messages.Answered:
    endpoint = _BATCHED.get(operation.verb)
    if endpoint is None or endpoint.input is None:
        problem = Problem("not_found", f"{operation.verb!a} is not allowed in a batch; nothing was done")
    else:
        try:
            own.http.app.state.rate.count(f"token {own.principal.token_id}")
            given = validated("body", partial(endpoint.input.model_validate_json, json.dumps(operation.body)))
            answer = await endpoint.run(type(own)(own.http, own.principal, own.slot), [given])
            return messages.Answered.of(status=200, body=answer)
        except (errors.SaysoError, Problem) as fault:
            problem = problem_of(fault)
    return messages.Answered.of(status=problem.kind.status, body=document_of(problem))


# -- runs: the content of steps is private to the program and is not inspected ----------------------------------

_READY = (1_000, 10_000, 100_000)  # ready runs of all programs to search, in growing steps
_READY_TIMEOUT = 2.0  # seconds


@_operation("List the program's runs, newest first")
def runs(own: Ownership, message: messages.Runs) -> messages.RunsPage:
    _must_be_short(message.wanted.name)
    found, looked_at, cursor = list[RunRecord](), 0, message.cursor
    while True:
        with refusing_input():
            page, cursor = own.store.runs(message.wanted, cursor=cursor, limit=message.limit - len(found))
        found += [run for run in page if own.is_my_run(run.id)]
        looked_at += len(page)
        if cursor is None or len(found) == message.limit or looked_at >= _MAX_LOOKED_AT:
            return messages.RunsPage.of(runs=found, cursor=cursor)


@_operation("Get a run and its steps", problems=("run_not_found",))
def get_run(own: Ownership, message: messages.GetRun) -> messages.RunSnapshotMessage:
    return messages.RunSnapshotMessage.of(snapshot=own.run(message.run_id))


@_operation("Save a run whose lease the program holds", problems=_SAVING, is_brief=True)
def save_run(own: Ownership, message: messages.SaveRun) -> messages.Done:
    own.store.save_run(_update(own, message.update))
    return messages.Done()


@_operation("Acquire the lease of a run", problems=_SAVING, is_brief=True)
def take_run(own: Ownership, message: messages.TakeRun) -> messages.RunSnapshotMessage:
    own.must_be_mine(message.run_id)
    return messages.RunSnapshotMessage.of(
        snapshot=own.store.take_run(message.run_id, message.holder, gone=message.gone)
    )


@_operation("Release the lease of a run", problems=_SAVING, is_brief=True)
def leave_run(own: Ownership, message: messages.LeaveRun) -> messages.Done:
    own.store.leave_run(_update(own, message.update._replace(left=message.state)), message.state)
    return messages.Done()


@_operation("List runs that can be resumed")
def ready_runs(own: Ownership, message: messages.ReadyRuns) -> messages.RunsPage:
    found: list[RunRecord] = []
    for run_id in _ready(own, message.names):
        try:
            found.append(own.run(run_id).run)
        except errors.RunNotFoundError:
            continue
        if len(found) == message.limit:
            break
    return messages.RunsPage.of(runs=found, cursor=None)


def _ready(own: Ownership, names: Sequence[str]) -> Iterator[str]:
    """Yield ids of ready runs for two seconds at most, so that other programs' runs do not hide the program's own."""
    ends, seen = time.monotonic() + _READY_TIMEOUT, set[str]()
    for most in _READY:
        found = own.store.ready_runs(names, most)
        for run_id in found:
            if run_id in seen:
                continue
            seen.add(run_id)
            yield run_id
            if time.monotonic() > ends:
                return
        if len(found) < most:
            return


_BATCHED = {
    one.path.rpartition("/")[2]: one for one in router.endpoints if one.handler not in {wait, batch}
}  # fmt: skip
