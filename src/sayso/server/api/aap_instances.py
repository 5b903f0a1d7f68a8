"""Instances of the Agent Approval Protocol: a token of the kind `ask`, and a webhook that says that a call was decided.

Who has a token of the kind `admin` makes them. A webhook has to answer a challenge before there is an instance. What it
is sent says which request was decided, and not how: the program asks for that with its token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from sayso import clock, errors
from sayso.channels import registry
from sayso.channels.http_post import Destination, post
from sayso.channels.notification import DeliveryError, Notification, UndeliverableError
from sayso.channels.webhook import WebhookKeys
from sayso.model.ids import new_token
from sayso.model.reviewer import TOKENS, Identity, folded
from sayso.server.api.aap import (
    Refusal,
    Strict,
    answer,
    conflict,
    digest_of,
    hash_of,
    idempotency_key,
    in_thread_of,
    read,
    written,
)
from sayso.server.api.endpoint import Context, Router
from sayso.server.api.ownership import AAP_RUNS
from sayso.server.api.problems import Problem
from sayso.server.auth.tokens import Tokens
from sayso.server.hosts import LOOPBACK
from sayso.stores.base import Store
from sayso.stores.records import Record

__all__ = ["Webhooks", "router"]

router = Router(kinds=("admin",))
_INSTANCE, _INSTANCE_NAME = "aap_instance", "aap_instance_name"
_LONGEST_ANSWER = 65_536
_RESOLVED = frozenset({"approved", "rejected", "feedback", "cancelled", "expired"})


class _Delivery(Strict):
    type: Literal["webhook"]
    url: str
    registration_id: str = Field(min_length=1, max_length=200)
    signing_secret: str


class _Instance(Strict):
    instance_name: str = Field("", min_length=1, max_length=100)
    delivery: _Delivery | None = None


@router.post("/aap/v1/instances", "Make an instance: a token, and where its decisions are announced")
async def provision(context: Context) -> Response:
    key = idempotency_key(context)
    wanted, text = await read(context, _Instance)
    return await in_thread_of(context, _provision, key, wanted, digest_of(text))


def _provision(context: Context, key: str, wanted: _Instance, digest: str) -> Response:
    who, tokens = context.principal.reviewer.identity, Tokens(context.store)
    instance_id = str(UUID(hash_of("aap", who.qualified, key)[:32]))
    name = wanted.instance_name or f"instance-{instance_id[:8]}"
    try:
        program = Identity(TOKENS, name)
    except ValueError as fault:
        raise Problem("invalid_input", f"instance_name: {fault}; nothing was made") from None
    known = context.store.record(_INSTANCE, instance_id)
    if known is None:
        known = _new_instance(context.store, tokens, instance_id, program, wanted.delivery, digest)
        status = 201
    elif known.body["digest"] != digest:
        raise conflict("idempotency_conflict", "this key was used for another instance; nothing was made")
    else:
        status = 200
    # Sent again, it has lost its answer, and the token with it, of which only a digest is kept: there is a new one.
    if (before := known.body.get("token_id")) is not None:
        tokens.revoke(before, by=who, channel="api")
    token, secret = tokens.new("ask", name, by=who, channel="api")
    context.store.keep(replace(known, body={**known.body, "token_id": token.id}))
    credential = {"token": secret, "expires_at": written(token.expires_at)}
    return answer(json.dumps({"instance": {"id": instance_id, "name": name}, "credential": credential}), status)


def _new_instance(
    store: Store, tokens: Tokens, instance_id: str, program: Identity, delivery: _Delivery | None, digest: str
) -> Record:
    """Keep an instance whose webhook has answered; raises `Problem` where it has not, or the name is another's."""
    name, key = program.subject, folded(program.subject)
    taken = conflict("instance_name_taken", f"there is a program named {name!a}, or alike, already; nothing was made")
    if any(one.kind == "ask" and folded(one.person.subject) == key for one in tokens.all()):
        raise taken
    body: dict[str, Any] = {"name": name, "digest": digest}
    if delivery is not None:
        _verify(delivery, instance_id)
        body["delivery"] = delivery.model_dump()
    # Of two that take a name at once one gets it: programs of one name would be one.
    if not store.keep(Record(_INSTANCE_NAME, key, {"id": instance_id}), only_new=True):
        holder = store.record(_INSTANCE_NAME, key)
        if holder is None or holder.body["id"] != instance_id:
            raise taken
    if delivery is not None:
        registry.register(store, [Webhooks(store)], by="program")
    record = Record(_INSTANCE, instance_id, body)
    store.keep(record)
    return record


def _post(delivery: _Delivery, message_id: str, message: Mapping[str, object], room: int = 0) -> tuple[int, bytes]:
    """Send a signed message; return the status and the beginning of the answer."""
    where = Destination.parse(delivery.url, allow_private=True)  # an operator named it, and agents run in own networks
    if not where.is_tls and where.host not in LOOPBACK:
        raise errors.ConfigError("the url of a webhook begins with https://, except on this machine")
    keys, body = WebhookKeys([delivery.signing_secret], whose="signing_secret"), json.dumps(message).encode()
    headers = {"content-type": "application/json", "user-agent": "sayso", **keys.headers(message_id, clock.now(), body)}
    return post(where, body, headers, room=room)


def _verify(delivery: _Delivery, instance_id: str) -> None:
    """Let the receiver show that it is there and knows its registration; raises `Problem` where it does not."""
    message_id, challenge = str(UUID(new_token())), new_token()
    message = {
        "id": message_id, "type": "webhook.verification", "registration_id": delivery.registration_id,
        "instance_id": instance_id, "created_at": written(clock.now()), "challenge": challenge,
    }  # fmt: skip
    try:
        status, answer = _post(delivery, message_id, message, _LONGEST_ANSWER)
        if status == 200 and json.loads(answer) == {"challenge": challenge}:
            return
        reason = f"it answered {status}, and not with the challenge"
    except (OSError, ValueError, errors.SaysoError) as fault:
        reason = str(fault)
    raise Refusal(422, "webhook_verification_failed", f"the receiver was not verified: {reason}; nothing was made")


class Webhooks:
    """A channel that tells instances that a request of theirs was decided; the store has it once one has a webhook."""

    name = "aap-instances"

    def __init__(self, store: Store) -> None:
        self._store = store

    def send(self, notification: Notification) -> None:
        """Send `request.resolved`, if it was decided and its instance has a webhook; else do nothing.

        Raises:
            DeliveryError: The receiver said no; it is tried again.
            UndeliverableError: It is gone for good (410).
        """
        if notification.state not in _RESOLVED or not notification.run_id.startswith(AAP_RUNS):
            return
        request = self._store.get(notification.request_id)
        holder = self._store.record(_INSTANCE_NAME, folded(request.requester.subject))
        instance = None if holder is None else self._store.record(_INSTANCE, holder.body["id"])
        if instance is None or "delivery" not in instance.body:
            return
        event_id = str(UUID(notification.id.removeprefix("msg_")))  # the same when it is sent again
        message = {
            "id": event_id, "type": "request.resolved", "instance_id": instance.key,
            "request_id": str(UUID(request.id[3:])), "created_at": written(clock.now()),
        }  # fmt: skip
        status, _ = _post(_Delivery.model_validate(instance.body["delivery"]), event_id, message)
        if status == 410:
            raise UndeliverableError(f"the webhook of {request.requester.subject} is gone for good (410)")
        if not 200 <= status < 300:
            raise DeliveryError(f"the webhook of {request.requester.subject} answered {status}; it is tried again")

    def follow_up(self, notification: Notification, reference: str | None) -> None:  # noqa: ARG002  each stands alone
        """Do as `send`."""
        self.send(notification)
