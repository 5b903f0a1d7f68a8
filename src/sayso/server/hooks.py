"""Decisions by webhook: another program of yours reports what one of its people decided.

The signature alone authenticates the sender of a message (`sayso.channels.webhook`). The settings list the people that
a hook may name; the journal records them as `hook-NAME:subject`. A message takes effect once: its id is stored with the
answer, and a repeated message gets the same answer. The signature is verified before the message is parsed or the store
is read. An approval must carry the fingerprint of what the person saw.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Self, cast

from pydantic import Field, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response

from sayso import clock, errors
from sayso.channels.settings import Table
from sayso.channels.webhook import ID, SIGNATURE, TIMESTAMP, WINDOW, WebhookKeys
from sayso.model.request import Request
from sayso.model.reviewer import Reviewer
from sayso.reviews import Review
from sayso.server.api import problems
from sayso.server.api.endpoint import parsed, validated
from sayso.server.api.messages import Input
from sayso.server.api.problems import Problem
from sayso.server.context import settings_of
from sayso.server.protection import Rate, read_bytes
from sayso.stores.base import Store
from sayso.stores.records import Record

_KNOWN = ("issuer", "reviewers", "roles", "secret_env")
_RECORD = "seen"
# Longer than a signature can be valid, even if the clocks are ten minutes apart.
_KEPT_FOR = 2 * WINDOW + timedelta(minutes=10)
_MOST_FORGOTTEN = 20
_BODY_TIMEOUT = 10.0  # seconds for a body, whose sender is not authenticated yet
_UNSIGNED = frozenset({"body_too_large", "body_too_slow", "not_signed_in"})


@dataclass(frozen=True)
class Hook:
    """A program that may send decisions of the reviewers that it lists, signed with one of its keys."""

    name: str
    keys: WebhookKeys
    reviewers: Mapping[str, Reviewer]

    @classmethod
    def of_table(cls, name: str, settings: Any) -> Self:
        """Parse the table `[hooks.NAME]`; raises `ConfigError`."""
        if not isinstance(settings, dict):
            raise errors.ConfigError(f"hooks.{name} must be a table, [hooks.{name}]; the hook is off")
        table = Table(f"hooks.{name}", cast("dict[str, Any]", settings), known=_KNOWN)
        listed: list[Any] = table.get("reviewers", list, [])
        if not listed:
            raise table.error("reviewers", "must list the people for whom this hook may decide")
        roles, issuer = table.texts("roles"), table.get("issuer", str, f"hook-{name}")
        found = [table.person("reviewers", person, issuer=issuer, roles=roles) for person in listed]
        people = {one.subject: one for one in found}
        if len(people) < len(found):
            raise table.error("reviewers", "names a person twice")
        keys = WebhookKeys(table.secret("secret_env").split(), source=f"[{table.where}] secret_env")
        return cls(name, keys, people)


class _Person(Input):
    subject: str = Field(min_length=1, max_length=200)


class _Message(Input):
    """The JSON body of a message."""

    request_id: str = Field(pattern="^rq_[0-9a-f]{32}$")
    verb: Literal["approve", "reject", "feedback", "answer", "cancel"]
    reviewer: _Person
    fingerprint: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    changes: dict[str, Any] | None = None
    comment: str | None = Field(default=None, max_length=10_000)
    answer: Any = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = self.model_fields_set
        if self.verb == "approve" and self.fingerprint is None:
            raise ValueError("an approval must have the fingerprint of what was seen")
        if self.verb == "feedback" and not self.comment:
            raise ValueError("feedback needs a comment for the program")
        if ("answer" in given) != (self.verb == "answer") or ("changes" in given and self.verb != "approve"):
            raise ValueError("only approve takes changes, and only answer takes an answer")
        return self


class Hooks:
    """All hooks of one inbox.

    Args:
        tables: The tables below `[hooks]` in the settings.
        rate: How often one hook may send messages.
        admits: Returns whether a person may review on this server.

    Raises:
        ConfigError: A table is invalid.
    """

    def __init__(
        self, store: Store, tables: Mapping[str, Any], *, rate: Rate | None = None,
        admits: Callable[[Reviewer], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        self._store, self._admits = store, admits
        self._rate = Rate(None) if rate is None else rate
        self._hooks = [Hook.of_table(name, settings) for name, settings in tables.items()]
        # Two copies of a message that arrive together must not both decide: the second waits for the first's answer.
        self._one_by_one = threading.Lock()

    def answer(self, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        """Record the decision of a message once, and return the status and content of the answer.

        Raises:
            Problem: It is not signed, exceeds the rate, or is invalid; it may be sent again.
            SaysoError: The store failed; it may be sent again.
        """
        now = clock.now()
        message_id, seconds, signature = (headers.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
        signed = (one for one in self._hooks if one.keys.has_signed(message_id, seconds, signature, body, now=now))
        hook = next(signed, None)
        if hook is None:
            words = "the signature is not valid for any hook, or is older than five minutes; nothing was decided"
            raise Problem("not_signed_in", words)
        self._rate.count(f"hook {hook.name}")
        key, digest = f"hook/{hook.name}/{message_id}", hashlib.sha256(body).hexdigest()
        with self._one_by_one:
            if (answered := self._stored_answer(key, digest)) is not None:
                return answered
            message = validated("message", partial(_Message.model_validate, parsed(body)), "nothing was decided")
            status, content = self._decide(hook, message)
            known = {"digest": digest, "status": status, "content": content}
            # If another process took the same message, its stored answer wins over this refusal.
            is_kept = self._store.keep(Record(_RECORD, key, known, clock.now() + _KEPT_FOR), only_new=status != 200)
            return (None if is_kept else self._stored_answer(key, digest)) or (status, content)

    def _stored_answer(self, key: str, digest: str) -> tuple[int, dict[str, Any]] | None:
        for record in self._store.records(_RECORD, due_by=clock.now(), limit=_MOST_FORGOTTEN):
            self._store.drop(_RECORD, record.key)
        record = self._store.record(_RECORD, key)
        if record is None:
            return None
        if record.body["digest"] != digest:
            raise Problem("invalid_input", f"this {ID} was already used for another message; nothing was decided")
        return record.body["status"], record.body["content"]

    def _decide(self, hook: Hook, message: _Message) -> tuple[int, dict[str, Any]]:
        """Decide, and return the status and content of the answer. A refusal is stored as the answer, too."""
        try:
            request = _decide_as(self._review(hook, message.reviewer.subject), message)
        except (errors.DecisionRefusedError, errors.RequestNotFoundError, Problem) as fault:
            problem = problems.problem_of(fault)
            return problem.kind.status, problems.document_of(problem)
        return 200, {
            "request_id": request.id, "state": str(request.state), "fingerprint": request.current_fingerprint,
            "missing_votes": request.missing_votes if request.state == "pending" else 0,
        }  # fmt: skip

    def _review(self, hook: Hook, subject: str) -> Review:
        reviewer = hook.reviewers.get(subject)
        if reviewer is None:
            raise Problem("invalid_input", "this hook may not decide for reviewer.subject; nothing was decided")
        if not self._admits(reviewer):
            words = "the settings of this server do not allow this person to review; nothing was decided"
            raise Problem("not_admitted", words)
        return Review(self._store, reviewer=reviewer, channel=f"hook-{hook.name}")


def _decide_as(review: Review, message: _Message) -> Request:
    request_id, seen, comment = message.request_id, message.fingerprint, message.comment
    if seen is not None and message.verb in {"answer", "cancel"}:  # `Review` takes no `seen` for these verbs
        current = review.get(request_id).current_fingerprint
        if current != seen:
            raise errors.StaleViewError(request_id, seen=seen, current=current)
    given: dict[str, Any] = {"comment": comment}
    if message.verb in {"approve", "reject", "feedback"}:
        given["seen"] = seen
    if message.verb == "approve":
        given["changes"] = message.changes
    if message.verb == "answer":
        given["value"] = message.answer
    return getattr(review, message.verb)(request_id, **given)


async def receive(http: Http) -> Response:
    """Handle `POST /hooks/decisions`, a decision sent by webhook."""
    try:
        status, content = await _receive(http)
    except ClientDisconnect:
        return Response(status_code=400)  # the client is gone and does not read it
    except (errors.SaysoError, Problem) as fault:
        return problems.response(problems.problem_of(fault))
    kind = "application/json" if status == 200 else problems.MEDIA_TYPE
    return Response(json.dumps(content, sort_keys=True), status_code=status, media_type=kind)


async def _receive(http: Http) -> tuple[int, dict[str, Any]]:
    hooks: Hooks = http.app.state.hooks
    rate: Rate = http.app.state.stranger_rate
    stranger = f"unsigned {settings_of(http).sender(http)}"
    rate.must_have_room(stranger)  # before the body is read and a signature computed, which cost more
    try:
        given = {name: http.headers.getlist(name) for name in (ID, TIMESTAMP, SIGNATURE)}
        headers = {name: values[0] for name, values in given.items() if len(values) == 1}
        return await run_in_threadpool(hooks.answer, headers, await read_bytes(http, patience=_BODY_TIMEOUT))
    except (ClientDisconnect, Problem) as fault:
        if isinstance(fault, ClientDisconnect) or fault.kind.code in _UNSIGNED:
            rate.count(stranger)
        raise
