"""The provider side of the Agent Approval Protocol (AAP), below `/api/aap`, for its official clients.

Each operation maps to a verb of the store: the idempotency key is the request's key, the fencing token of a start is
derived from the consume key, and an id is the request's id as a UUID. A submission is returned byte for byte; people
see it masked. An instance is a token of the kind `ask` and an optional webhook that has answered a challenge. A webhook
gets which request was decided, not how. Nothing here decides, and edits are not supported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Literal, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel, Field
from starlette.responses import Response

from sayso import clock, errors
from sayso.channels import registry
from sayso.channels.registry import Channel, DeliveryError, Notification, UndeliverableError
from sayso.channels.settings import is_protected
from sayso.channels.webhook import Destination, Receivers, WebhookKeys, post
from sayso.model import canonical, redaction
from sayso.model.duration import parse as parse_span
from sayso.model.edit import READ_ONLY
from sayso.model.ids import call_digest, fingerprint, new_request_id, new_token
from sayso.model.lifecycle import Outcome, is_due
from sayso.model.redaction import Redaction
from sayso.model.request import Call, Request, State, secrets_of_call
from sayso.model.reviewer import TOKENS, Identity, folded
from sayso.model.schema import Schema
from sayso.server.api import program
from sayso.server.api.endpoint import Context, Router, parsed, validated
from sayso.server.api.long_poll import until_changed
from sayso.server.api.messages import Input, Query
from sayso.server.api.problems import Problem, ProblemKind
from sayso.server.api.validation import AAP_RUNS, Denied, Ownership
from sayso.server.auth.tokens import Tokens
from sayso.server.protection import read_bytes
from sayso.stores import http_messages as messages
from sayso.stores.base import Store
from sayso.stores.records import Record
from sayso.stores.transaction import SUBMISSION

__all__ = ["Webhooks", "error", "router"]

_M = TypeVar("_M", bound=BaseModel)
router = Router(kinds=("ask",))

_LONGEST_POLL = 25  # seconds; the protocol's maximum
_LONGEST_KEY, _LONGEST_NOTE = 200, 10_000
_LONGEST_SPAN = parse_span("30d")
_CONSUMABLE = frozenset({State.APPROVED, State.RUNNING, State.DONE, State.FAILED, State.UNKNOWN, State.EXPIRED})


class _Submission(Input):
    tool: str = Field(min_length=1, max_length=200)
    arguments: dict[str, Any]
    timeout: str = Field(pattern=r"^[0-9]{1,9}[smhd]$")
    server: str = Field("", min_length=1, max_length=500)
    agent_reasoning: str = ""
    context: dict[str, Any] = Field(default_factory=dict[str, Any])


class _Outcome(Input):
    status: Literal["succeeded", "failed"]
    note: str | None = Field(None, min_length=1, max_length=_LONGEST_NOTE)


class _Poll(Query):
    wait: str = Field("0s", pattern=r"^[0-9]{1,5}s?$")


# -- errors, and what is common ------------------------------------------------------------------------------------


class _Refusal(Problem):
    """An error with a code of the protocol."""

    def __init__(self, status: int, code: str, message: str) -> None:
        Exception.__init__(self, message)
        self.kind, self.detail, self.headers, self.data = ProblemKind(code, status, message), message, {}, {}


_TYPES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict", 429: "rate_limited"}


def error(problem: Problem) -> Response:
    """Return the response for a problem in the protocol's error format."""
    code, status, _ = problem.kind
    kind = _TYPES.get(status, "invalid_request" if status < 500 else "internal_error")
    fault = {"type": kind, "code": code, "message": problem.detail, "request_id": str(UUID(new_token()))}
    return Response(json.dumps({"error": fault}), status, problem.headers, "application/json")


async def _read(context: Context, model: type[_M]) -> tuple[_M, str]:
    """Return the validated body and its raw text; raises `Problem`."""
    body = await read_bytes(context.http)
    tree = parsed(body)
    if isinstance(tree, dict) and None in tree.values():
        raise Problem("invalid_input", "a field of the body is null; leave it out; nothing was done")
    return validated("body", partial(model.model_validate, tree)), body.decode().strip()


def _idempotency_key(context: Context) -> str:
    """Return the idempotency key of a request; raises `Problem` if it is missing or invalid."""
    key = context.http.headers.get("idempotency-key", "")
    if not key:
        raise _Refusal(400, "missing_idempotency_key", "send the header Idempotency-Key; nothing was done")
    if len(key) > _LONGEST_KEY or not key.isprintable() or key != key.strip():
        raise _Refusal(
            400,
            "invalid_idempotency_key",
            f"an idempotency key has 1 to {_LONGEST_KEY} printable characters; nothing was done",
        )
    return key


def _hash_of(*parts: str) -> str:
    """Return the SHA-256, in hexadecimal, of texts that contain no NUL."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _digest_of(text: str) -> str:
    """Return the digest of a JSON text, independent of key order and whitespace.

    Raises `Problem` if a number has more digits than a person would see.
    """

    def exact(digits: str) -> float:
        with suppress(InvalidOperation):  # an exponent outside of the range of `Decimal`
            if Decimal(digits) == Decimal(repr(float(digits))):
                return float(digits)
        raise Problem("invalid_input", f"the number {digits[:40]} has too many digits; send it as a text")

    return _hash_of("aap", json.dumps(json.loads(text, parse_float=exact), sort_keys=True))


def _written(at: datetime) -> str:
    """Format an instant for the protocol."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _request_id(own: Ownership) -> str:
    try:
        return f"rq_{UUID(own.path('id')).hex}"
    except ValueError:
        raise errors.RequestNotFoundError(own.path("id")) from None


def _answer(text: str, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(text, status, media_type="application/json")


# -- a request as the protocol shows it ----------------------------------------------------------------------------


def _found(own: Ownership, request_id: str) -> tuple[Request, Record]:
    """Return a request that this program asked through the protocol, and its submission.

    Raises:
        RequestNotFoundError: There is none.
        StoreCorruptError: The stored submission was altered.
    """
    request = own.request(request_id)
    record = own.store.record(SUBMISSION, request.id)
    if record is None:
        raise errors.RequestNotFoundError(request_id)
    if _digest_of(record.body["text"]) != request.place:
        raise errors.StoreCorruptError(f"the submission of {request.id} was altered; nothing was done")
    return request, record


def _shown(request: Request, record: Record) -> str:
    """Return the request as JSON: the submission byte for byte, with its current status."""
    text: str = record.body["text"]
    span = parse_span(json.loads(text)["timeout"])
    # Not `expires_at`, which a reviewer may move: a client takes a changed deadline for another request.
    more: dict[str, Any] = {
        "id": str(UUID(request.id[3:])), "created_at": _written(request.created_at),
        "deadline_at": _written(request.created_at + span), "status": "pending",
    }  # fmt: skip
    if decision := _decision(request):
        more |= {"status": decision["status"], "decision": decision}
    if more["status"] == "approved" and request.execution is not None:
        reported = {"outcome": record.body["outcome"]} if "outcome" in record.body else {}
        more["consumption"] = {"consumed_at": _written(request.execution.started_at), **reported}
    return f"{text[:-1]},{json.dumps(more)[1:]}"


def _decision(request: Request) -> dict[str, str] | None:
    """Return the decision, or None while pending. A decision that the protocol does not know counts as denied."""
    state, decision = request.state, request.decision
    if state is State.PENDING:
        if not is_due(request, clock.now()):
            return None
        return {"status": "expired", "decided_at": _written(request.expires_at)}
    if decision is None:
        status = "expired" if state is State.EXPIRED else "denied"
        return {"status": status, "decided_at": _written(request.expires_at)}
    facts = {"decided_at": _written(decision.at), **({"note": decision.comment} if decision.comment else {})}
    if state is State.CANCELLED:
        return {"status": "cancelled", **facts}
    ends = request.approval_expires_at
    if request.held_until is not None and clock.now() < request.held_until:
        return None  # it can still be undone
    if decision.verb == "approve" and state in _CONSUMABLE and request.edited is None and ends is not None:
        return {"status": "approved", **facts, "expires_at": _written(ends)}
    return {"status": "denied", **facts}


# -- the program's operations --------------------------------------------------------------------------------------


@router.post("/aap/v1/requests", "Submit a call")
async def create(own: Ownership) -> Response:
    key = _idempotency_key(own)
    submission, text = await _read(own, _Submission)
    try:
        return await own.commit(_create, key, submission, text)
    except Denied as denial:
        raise await program.refused(own, denial) from None


def _create(own: Ownership, key: str, submission: _Submission, text: str) -> Response:
    digest, run_id = _digest_of(text), f"{AAP_RUNS}{own.me.subject}:{_hash_of(key)[:32]}"
    request = own.store.find_key(run_id, key)
    status = 200 if request is not None else 201
    if request is None:
        asked = _asked(submission, run_id, key, digest)
        # Store the submission before the request, so that no request lacks one. A crash in between leaves only an
        # orphaned submission.
        own.store.keep(Record(SUBMISSION, asked.id, {"text": text}))
        try:
            request = program.record(own, program.validated_request(own, asked))
        except BaseException:
            own.store.drop(SUBMISSION, asked.id)
            raise
        if request.id != asked.id:  # another server has recorded a request with this key
            own.store.drop(SUBMISSION, asked.id)
            status = 200
    if request.place != digest:
        raise _Refusal(409, "idempotency_conflict", "this key was used for another submission; no request was made")
    return _answer(_shown(*_found(own, request.id)), status)


def _asked(submission: _Submission, run_id: str, key: str, digest: str) -> messages.AskedRequest:
    """Return the request for a submission. The digest becomes its `place`, so the fingerprint covers it."""
    arguments, lasts = submission.arguments, parse_span(submission.timeout)
    if lasts > _LONGEST_SPAN:
        raise Problem("invalid_input", "timeout: at most 30d; no request was made")
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


@router.get("/aap/v1/requests/{id}", "Get a request, now or once it is decided", waits=True)
async def get(own: Ownership, query: _Poll) -> Response:
    request_id, wait = _request_id(own), min(int(query.wait.rstrip("s")), _LONGEST_POLL)

    def look(own: Ownership, _: object = None) -> str | None:
        request, record = _found(own, request_id)
        return None if _decision(request) is None else _shown(request, record)

    def shown(own: Ownership) -> str:  # not in the event loop: the submission may have a megabyte
        return _shown(*_found(own, request_id))

    text = await until_changed(own, [request_id], look, wait) if wait else None
    return _answer(await own.look(shown) if text is None else text)


@router.delete("/aap/v1/requests/{id}", "Withdraw a request that is not decided")
def cancel(own: Ownership) -> Response:
    request, record = _found(own, _request_id(own))
    if _decision(request) is None:
        request = own.store.withdraw(request.id, own.me, "the program cancelled it")
    if request.state is not State.CANCELLED:
        raise _Refusal(409, "already_terminal", f"the request is already {request.state}; nothing changed")
    return _answer(_shown(request, record))


@router.post("/aap/v1/requests/{id}/consume", "Acquire the single right to run an approved call")
def consume(own: Ownership) -> Response:
    key = _idempotency_key(own)
    request, record = _found(own, _request_id(own))
    token = _hash_of("aap", request.id, key)
    try:
        program.must_have_starts(own, request)  # it may have given its start back through the sayso API
        # `by` is the program's name, not this process, whose end would make the outcome unknown.
        request = own.store.start(request.id, token, by=f"{AAP_RUNS}{own.me.subject}", seen=request)
    except errors.ApprovalExpiredError as refusal:
        raise _Refusal(409, "approval_expired", str(refusal)) from None
    except errors.StartRefusedError as refusal:
        request = own.store.get(request.id)
        if request.execution is None:
            raise _Refusal(409, "not_approved", str(refusal)) from None
        if request.execution.token != token:
            raise _Refusal(409, "already_consumed", str(refusal)) from None
    return _answer(_shown(request, record))


@router.post("/aap/v1/requests/{id}/outcome", "Report how a consumed call ended")
async def outcome(own: Ownership) -> Response:
    request_id, (report, _) = _request_id(own), await _read(own, _Outcome)
    return await own.look(_report, request_id, report)


def _report(own: Ownership, request_id: str, report: _Outcome) -> Response:
    request, record = _found(own, request_id)
    if request.execution is None:
        raise _Refusal(409, "not_consumed", "the call was not consumed; nothing was recorded")
    reported: dict[str, str] = report.model_dump(exclude_none=True)
    known: dict[str, str] | None = record.body.get("outcome")
    if known is None and request.state in {State.RUNNING, State.UNKNOWN}:
        known = {**reported, "reported_at": _written(clock.now())}
        # Written before `finish`, so that after a crash in between the client can send the same report again.
        after = replace(record, body={**record.body, "outcome": known})
        if not own.store.swap(record, after):
            return _report(own, request_id, report)
        record = after
    if known is None or {**known, "reported_at": ""} != {**reported, "reported_at": ""}:
        words = f"another outcome is already recorded ({request.state}); nothing changed"
        raise _Refusal(409, "outcome_conflict", words)
    if request.state in {State.RUNNING, State.UNKNOWN}:
        note = None if report.note is None else redaction.fit(report.note, secrets_of_call(request.call, request))
        ended = Outcome("done", None if note is None else canonical.encode({"result": note}).text)
        if report.status == "failed":
            ended = Outcome("failed", error=note or "the program gave no reason")
        request = own.store.finish(request.id, request.execution.token, ended)
    return _answer(_shown(request, record))


# -- instances --------------------------------------------------------------------------------------------------------


_INSTANCE, _INSTANCE_NAME = "aap_instance", "aap_instance_name"
_LONGEST_ANSWER = 65_536
_RESOLVED = frozenset({"approved", "rejected", "feedback", "cancelled", "expired"})


class _Delivery(Input):
    type: Literal["webhook"]
    url: str
    registration_id: str = Field(min_length=1, max_length=200)
    signing_secret: str


class _Instance(Input):
    instance_name: str = Field("", min_length=1, max_length=100)
    delivery: _Delivery | None = None


@router.post("/aap/v1/instances", "Create an instance: a token, and a webhook for its decisions", kinds=("admin",))
async def provision(context: Context) -> Response:
    key = _idempotency_key(context)
    wanted, text = await _read(context, _Instance)
    return await context.look(_provision, key, wanted, _digest_of(text))


def _provision(context: Context, key: str, wanted: _Instance, digest: str) -> Response:
    who, tokens = context.principal.reviewer.identity, Tokens(context.store)
    instance_id = str(UUID(_hash_of("aap", who.qualified, key)[:32]))
    name = wanted.instance_name or f"instance-{instance_id[:8]}"
    try:
        program = Identity(TOKENS, name)
    except ValueError as fault:
        raise Problem("invalid_input", f"instance_name: {fault}; no instance was created") from None
    known = context.store.record(_INSTANCE, instance_id)
    if known is None:
        known = _new_instance(context.store, tokens, instance_id, program, wanted.delivery, digest)
        status = 201
    elif known.body["digest"] != digest:
        raise _Refusal(409, "idempotency_conflict", "this key was used for another instance; no instance was created")
    else:
        status = 200
    # A repeated request means that the client lost the answer. The token cannot be shown again, so make a new one.
    if (before := known.body.get("token_id")) is not None:
        tokens.revoke(before, by=who, channel="api")
    token, secret = tokens.new("ask", name, by=who, channel="api")
    context.store.keep(replace(known, body={**known.body, "token_id": token.id}))
    credential = {"token": secret, "expires_at": _written(token.expires_at)}
    return _answer(json.dumps({"instance": {"id": instance_id, "name": name}, "credential": credential}), status)


def _new_instance(
    store: Store, tokens: Tokens, instance_id: str, program: Identity, delivery: _Delivery | None, digest: str
) -> Record:
    """Store an instance after verifying its webhook; raises `Problem` if that fails or the name is taken."""
    name, key = program.subject, folded(program.subject)
    words = f"a program named {name!a}, or similarly, already exists; no instance was created"
    taken = _Refusal(409, "instance_name_taken", words)
    if any(one.kind == "ask" and folded(one.person.subject) == key for one in tokens.all()):
        raise taken
    body: dict[str, Any] = {"name": name, "digest": digest}
    if delivery is not None:
        _verify(delivery, instance_id)
        body["delivery"] = delivery.model_dump()
    # `only_new`, so that of two concurrent instances with one name one is refused: they would be one program.
    if not store.keep(Record(_INSTANCE_NAME, key, {"id": instance_id}), only_new=True):
        holder = store.record(_INSTANCE_NAME, key)
        if holder is None or holder.body["id"] != instance_id:
            raise taken
    if delivery is not None:
        registry.register(store, [Webhooks(store)], by="program")
    record = Record(_INSTANCE, instance_id, body)
    store.keep(record)
    return record


def _signed(
    delivery: _Delivery, message_id: str, message: Mapping[str, object]
) -> tuple[Destination, bytes, dict[str, str]]:  # fmt: skip
    """Return the destination of a message, its body, and its headers with the signature."""
    where = Destination.parse(delivery.url, allow_private=True)  # set by an admin, and agents run in private networks
    if not is_protected(delivery.url):
        raise errors.ConfigError("the url of a webhook must begin with https://, except on this machine")
    return where, *WebhookKeys([delivery.signing_secret], source="signing_secret").signed(message_id, message)


def _verify(delivery: _Delivery, instance_id: str) -> None:
    """Send a challenge to the webhook and check the response; raises `Problem` if it is wrong or missing."""
    message_id, challenge = str(UUID(new_token())), new_token()
    message = {
        "id": message_id, "type": "webhook.verification", "registration_id": delivery.registration_id,
        "instance_id": instance_id, "created_at": _written(clock.now()), "challenge": challenge,
    }  # fmt: skip
    try:
        status, content = post(*_signed(delivery, message_id, message), room=_LONGEST_ANSWER)
        if status == 200 and json.loads(content) == {"challenge": challenge}:
            return
        reason = f"it answered {status} without the challenge"
    except (OSError, ValueError, RecursionError, errors.SaysoError) as fault:
        reason = str(fault)
    raise _Refusal(
        422, "webhook_verification_failed", f"the webhook could not be verified: {reason}; no instance was created"
    )


class Webhooks(Channel):
    """The channel that notifies instances of decided requests. It is registered with the first webhook."""

    name = "aap-instances"

    def __init__(self, store: Store) -> None:
        self._store, self._receivers = store, Receivers()

    def send(self, notification: Notification) -> None:
        """Send `request.resolved` if the request was decided and its instance has a webhook; else do nothing.

        Raises:
            DeliveryError: The receiver failed or refused; it is tried again.
            UndeliverableError: The receiver is gone for good (410).
        """
        if notification.state not in _RESOLVED or not notification.run_id.startswith(AAP_RUNS):
            return
        request = self._store.get(notification.request_id)
        holder = self._store.record(_INSTANCE_NAME, folded(request.requester.subject))
        instance = None if holder is None else self._store.record(_INSTANCE, holder.body["id"])
        if instance is None or "delivery" not in instance.body:
            return
        event_id = str(UUID(notification.id.removeprefix("msg_")))  # the same on each retry
        message = {
            "id": event_id, "type": "request.resolved", "instance_id": instance.key,
            "request_id": str(UUID(request.id[3:])), "created_at": _written(clock.now()),
        }  # fmt: skip
        delivery = _Delivery.model_validate(instance.body["delivery"])
        status, _ = self._receivers.post(*_signed(delivery, event_id, message))
        if status == 410:
            raise UndeliverableError(f"the webhook of {request.requester.subject} is gone (410)")
        if not 200 <= status < 300:
            raise DeliveryError(
                f"the webhook of {request.requester.subject} answered {status}; the message is retried later"
            )
