"""The provider's side of the Agent Approval Protocol (AAP), below `/api/aap`, for its official clients.

A program submits a call, polls for the decision, takes the right to run it (`consume`) and reports how it ended; each
is a verb of the store that programs of sayso use as well. An idempotency key is the key of the request, a consume key
makes the fencing token of the start, and an id is the request's as a UUID. A submission is returned as it came, to the
byte; what people see of it is masked. `aap_instances` makes tokens for programs, and sends webhooks to them.

Invariant: nothing here decides, and what a person approved is what the submission says: no edit is possible.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Literal, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from sayso import clock, errors
from sayso.model import canonical, redaction
from sayso.model.duration import parse as parse_span
from sayso.model.edit import READ_ONLY
from sayso.model.ids import call_digest, fingerprint, new_request_id, new_token
from sayso.model.lifecycle import Outcome, is_due
from sayso.model.redaction import Redaction
from sayso.model.request import Call, Request, State, secrets_of_call
from sayso.model.schema import Schema
from sayso.server.api import program
from sayso.server.api.endpoint import Context, Router, parsed, read_bytes, validated
from sayso.server.api.long_poll import until_changed
from sayso.server.api.ownership import AAP_RUNS, Ownership
from sayso.server.api.problems import Problem, ProblemKind
from sayso.stores import http_messages as messages
from sayso.stores.records import Record
from sayso.stores.transaction import SUBMISSION

__all__ = [
    "Refusal", "Strict", "answer", "conflict", "digest_of", "error", "hash_of", "idempotency_key", "in_thread_of",
    "read", "router", "written",
]  # fmt: skip

_T = TypeVar("_T")
_M = TypeVar("_M", bound=BaseModel)
router = Router(kinds=("ask",))

_LONGEST_POLL = 25  # seconds; the protocol's
_LONGEST_KEY, _LONGEST_NOTE = 200, 10_000
_LONGEST_SPAN = parse_span("30d")
_CONSUMABLE = frozenset({State.APPROVED, State.RUNNING, State.DONE, State.FAILED, State.UNKNOWN, State.EXPIRED})


class Strict(BaseModel):
    """An object of the protocol: no unknown field, and no other type than its own."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Submission(Strict):
    tool: str = Field(min_length=1, max_length=200)
    arguments: dict[str, Any]
    timeout: str = Field(pattern=r"^[0-9]{1,9}[smhd]$")
    server: str = Field("", min_length=1, max_length=500)
    agent_reasoning: str = ""
    context: dict[str, Any] = {}


class _Outcome(Strict):
    status: Literal["succeeded", "failed"]
    note: str | None = Field(None, min_length=1, max_length=_LONGEST_NOTE)


class _Poll(BaseModel):
    model_config = ConfigDict(extra="forbid")
    wait: str = Field("0s", pattern=r"^[0-9]{1,5}s?$")


# -- errors, and what is common ------------------------------------------------------------------------------------


class Refusal(Problem):
    """An error with a code of the protocol's own."""

    def __init__(self, status: int, code: str, message: str) -> None:
        Exception.__init__(self, message)
        self.kind, self.detail, self.headers, self.data = ProblemKind(code, status, message), message, {}, {}


def conflict(code: str, message: str) -> Refusal:
    """Return a refusal with the status 409."""
    return Refusal(409, code, message)


_TYPES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict", 429: "rate_limited"}


def error(problem: Problem) -> Response:
    """Return the response for a problem, as the protocol writes errors."""
    code, status, _ = problem.kind
    kind = _TYPES.get(status, "invalid_request" if status < 500 else "internal_error")
    said = {"type": kind, "code": code, "message": problem.detail, "request_id": str(UUID(new_token()))}
    return Response(json.dumps({"error": said}), status, problem.headers, "application/json")


async def read(context: Context, model: type[_M]) -> tuple[_M, str]:
    """Return the body, checked, and its text as it came; raises `Problem`."""
    body = await read_bytes(context.http)
    tree = parsed(body)
    if isinstance(tree, dict) and None in tree.values():
        raise Problem("invalid_input", "a field of the body is null; leave it out; nothing was done")
    return validated("body", partial(model.model_validate, tree)), body.decode().strip()


def idempotency_key(context: Context) -> str:
    """Return the idempotency key of a request; raises `Problem` where there is none."""
    key = context.http.headers.get("idempotency-key", "")
    if not key:
        raise Refusal(400, "missing_idempotency_key", "send the header Idempotency-Key; nothing was done")
    if len(key) > _LONGEST_KEY or not key.isprintable() or key != key.strip():
        raise Refusal(400, "invalid_idempotency_key", f"a key has 1 to {_LONGEST_KEY} characters; nothing was done")
    return key


def hash_of(*parts: str) -> str:
    """Return SHA-256, in hex, over texts without NUL."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def digest_of(text: str) -> str:
    """Return the digest of a JSON text, the same for each order of its keys and for each way to space it.

    Raises:
        Problem: A number in it has more digits than a person would be shown.
    """

    def exact(digits: str) -> float:
        with suppress(InvalidOperation):  # an exponent that no decimal has
            if Decimal(digits) == Decimal(repr(float(digits))):
                return float(digits)
        raise Problem("invalid_input", f"the number {digits[:40]} has too many digits; send it as a text")

    return hash_of("aap", json.dumps(json.loads(text, parse_float=exact), sort_keys=True))


def written(at: datetime) -> str:
    """Return an instant as the protocol writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _request_id(own: Ownership) -> str:
    try:
        return f"rq_{UUID(own.path('id')).hex}"
    except ValueError:
        raise errors.RequestNotFoundError(own.path("id")) from None


def answer(text: str, status: int = 200) -> Response:
    """Return a response with a JSON text."""
    return Response(text, status, media_type="application/json")


async def in_thread_of(own: Context, work: Callable[..., _T], *args: Any) -> _T:
    """Return what `work(own, *args)` returns, done in a thread."""
    return await own.look(work, *args)


# -- a request as the protocol shows it ----------------------------------------------------------------------------


def _found(own: Ownership, request_id: str) -> tuple[Request, Record]:
    """Return a request of this program's that came by this protocol, and its submission.

    Raises:
        RequestNotFoundError: There is none.
        StoreCorruptError: The submission is not the one that was asked.
    """
    request = own.request(request_id)
    record = own.store.record(SUBMISSION, request.id)
    if record is None:
        raise errors.RequestNotFoundError(request_id)
    if digest_of(record.body["text"]) != request.place:
        raise errors.StoreCorruptError(f"the submission of {request.id} was altered; nothing was done")
    return request, record


def _shown(request: Request, record: Record) -> str:
    """Return the request as JSON: the submission as it came, with how it stands."""
    text: str = record.body["text"]
    span = parse_span(json.loads(text)["timeout"])
    # Not `expires_at`: a reviewer may move that, and a client takes another deadline for another request.
    more: dict[str, Any] = {
        "id": str(UUID(request.id[3:])), "created_at": written(request.created_at),
        "deadline_at": written(request.created_at + span), "status": "pending",
    }  # fmt: skip
    if decision := _decision(request):
        more |= {"status": decision["status"], "decision": decision}
    if more["status"] == "approved" and request.execution is not None:
        reported = {"outcome": record.body["outcome"]} if "outcome" in record.body else {}
        more["consumption"] = {"consumed_at": written(request.execution.started_at), **reported}
    return f"{text[:-1]},{json.dumps(more)[1:]}"


def _decision(request: Request) -> dict[str, str] | None:
    """Return what was decided; None while nothing is. What the protocol has no word for is a no."""
    state, decision = request.state, request.decision
    if state is State.PENDING:
        if not is_due(request, clock.now()):
            return None
        return {"status": "expired", "decided_at": written(request.expires_at)}
    if decision is None:
        status = "expired" if state is State.EXPIRED else "denied"
        return {"status": status, "decided_at": written(request.expires_at)}
    said = {"decided_at": written(decision.at), **({"note": decision.comment} if decision.comment else {})}
    if state is State.CANCELLED:
        return {"status": "cancelled", **said}
    ends = request.approval_expires_at
    if request.held_until is not None and clock.now() < request.held_until:
        return None  # it can still be undone
    if decision.verb == "approve" and state in _CONSUMABLE and request.edited is None and ends is not None:
        return {"status": "approved", **said, "expires_at": written(ends)}
    return {"status": "denied", **said}


# -- the program's operations --------------------------------------------------------------------------------------


@router.post("/aap/v1/requests", "Submit a call")
async def create(own: Ownership) -> Response:
    key = idempotency_key(own)
    submission, text = await read(own, _Submission)
    return await own.commit(_create, key, submission, text)


def _create(own: Ownership, key: str, submission: _Submission, text: str) -> Response:
    digest, run_id = digest_of(text), f"{AAP_RUNS}{own.me.subject}:{hash_of(key)[:32]}"
    request = own.store.find_key(run_id, key)
    status = 200 if request is not None else 201
    if request is None:
        asked = _asked(submission, run_id, key, digest)
        # Kept before it is asked, so that there is no request without its submission. What is broken off in between
        # leaves a submission that nothing refers to.
        own.store.keep(Record(SUBMISSION, asked.id, {"text": text}))
        try:
            request = program.record(own, program.validated_request(own, asked))
        except BaseException:
            own.store.drop(SUBMISSION, asked.id)
            raise
        if request.id != asked.id:  # another server was faster
            own.store.drop(SUBMISSION, asked.id)
            status = 200
    if request.place != digest:
        raise conflict("idempotency_conflict", "this key was used for another submission; nothing was asked")
    return answer(_shown(*_found(own, request.id)), status)


def _asked(submission: _Submission, run_id: str, key: str, digest: str) -> messages.AskedRequest:
    """Return the request of a submission; its digest is the place, and so is covered by the fingerprint."""
    arguments, lasts = submission.arguments, parse_span(submission.timeout)
    if lasts > _LONGEST_SPAN:
        raise Problem("invalid_input", "timeout: at most 30d; nothing was asked")
    form = canonical.encode(arguments)
    schema = Schema.of_json({
        "type": "object", "properties": {name: {} for name in arguments}, "required": [*arguments],
        "additionalProperties": False, READ_ONLY: True,
    })  # fmt: skip
    subject = call_digest(submission.tool, schema.digest, form.digest_input)
    call = Call(submission.tool, submission.tool, form.text, None, subject, schema.text, schema.digest)
    secrets = Redaction().secrets(canonical.load(form.text))
    facts = submission.context | ({"server": submission.server} if submission.server else {})
    shown = canonical.display(Redaction().mask(canonical.load(canonical.encode(facts).text)))
    return messages.AskedRequest.of(
        id=new_request_id(), run_id=run_id, fingerprint=fingerprint(run_id, subject, digest, key), subject=call,
        lasts=lasts, approval_window=lasts, key=key, place=digest,
        prompt=redaction.fit(submission.agent_reasoning, secrets) or None,
        context=cast("dict[str, Any]", shown) or None,
    )  # fmt: skip


@router.get("/aap/v1/requests/{id}", "How a request stands, now or once it is decided", waits=True)
async def get(own: Ownership, query: _Poll) -> Response:
    request_id, wait = _request_id(own), min(int(query.wait.rstrip("s")), _LONGEST_POLL)

    def look(own: Ownership, _: object = None) -> str | None:
        request, record = _found(own, request_id)
        return None if _decision(request) is None else _shown(request, record)

    text = await until_changed(own, [request_id], look, wait) if wait else None
    return answer(text or await own.look(_as_it_stands, request_id))


def _as_it_stands(own: Ownership, request_id: str) -> str:
    return _shown(*_found(own, request_id))


@router.delete("/aap/v1/requests/{id}", "Take a request back that nobody has decided")
def cancel(own: Ownership) -> Response:
    request, record = _found(own, _request_id(own))
    if _decision(request) is None:
        request = own.store.withdraw(request.id, own.me, "the program cancelled it")
    if request.state is not State.CANCELLED:
        raise conflict("already_terminal", f"the request is {request.state} already; nothing changed")
    return answer(_shown(request, record))


@router.post("/aap/v1/requests/{id}/consume", "Take the single right to run an approved call")
def consume(own: Ownership) -> Response:
    key = idempotency_key(own)
    request, record = _found(own, _request_id(own))
    token = hash_of("aap", request.id, key)
    try:
        program.must_have_starts(own, request)  # it may have given its start back as a program of sayso does
        # The program runs the call, and not this process: no end of a server makes its outcome unknown.
        request = own.store.start(request.id, token, by=f"{AAP_RUNS}{own.me.subject}", seen=request)
    except errors.ApprovalExpiredError as refusal:
        raise conflict("approval_expired", str(refusal)) from None
    except errors.StartRefusedError as refusal:
        request = own.store.get(request.id)
        if request.execution is None:
            raise conflict("not_approved", str(refusal)) from None
        if request.execution.token != token:
            raise conflict("already_consumed", str(refusal)) from None
    return answer(_shown(request, record))


@router.post("/aap/v1/requests/{id}/outcome", "Say how a consumed call ended")
async def outcome(own: Ownership) -> Response:
    request_id, (report, _) = _request_id(own), await read(own, _Outcome)
    return await in_thread_of(own, _report, request_id, report)


def _report(own: Ownership, request_id: str, report: _Outcome) -> Response:
    request, record = _found(own, request_id)
    if request.execution is None:
        raise conflict("not_consumed", "the call was not consumed; nothing was recorded")
    reported: dict[str, str] = report.model_dump(exclude_none=True)
    known: dict[str, str] | None = record.body.get("outcome")
    if known is None and request.state in {State.RUNNING, State.UNKNOWN}:
        known = {**reported, "reported_at": written(clock.now())}
        # Written first: a report that is broken off here is the same when it is sent again.
        after = replace(record, body={**record.body, "outcome": known})
        if not own.store.swap(record, after):
            return _report(own, request_id, report)
        record = after
    if known is None or {**known, "reported_at": ""} != {**reported, "reported_at": ""}:
        raise conflict("outcome_conflict", f"the outcome is recorded already ({request.state}); nothing changed")
    if request.state in {State.RUNNING, State.UNKNOWN}:
        request = own.store.finish(request.id, request.execution.token, _outcome(request, report))
    return answer(_shown(request, record))


def _outcome(request: Request, report: _Outcome) -> Outcome:
    note = None if report.note is None else redaction.fit(report.note, secrets_of_call(request.call, request))
    if report.status == "failed":
        return Outcome("failed", error=note or "the program gave no reason")
    return Outcome("done", None if note is None else canonical.encode({"result": note}).text)
