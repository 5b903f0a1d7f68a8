"""The messages between `HttpStore` and a sayso server: one pydantic class for each verb and for each answer.

They contain the objects of `sayso.model` and no database columns, so that a change of the database schema does not
change the protocol. Both sides reject unknown fields and wrong types; the server's further checks are in
`sayso.server.api.validation`. The OpenAPI document is generated from these classes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from sayso.model.journal import Entry
from sayso.model.lifecycle import Outcome
from sayso.model.request import Call, Question, Request
from sayso.model.reviewer import Escalation, Identity, Quorum
from sayso.model.run import RunRecord, RunSnapshot, RunState, RunUpdate
from sayso.model.text import storable
from sayso.stores.filter import Filter, RunFilter

LONGEST_WAIT = 30.0
"""Seconds; proxies close a connection that is silent for a minute."""

LARGEST = 2_000_000
"""Bytes of a message that a server takes."""

Name = Annotated[str, Field(min_length=1, max_length=500)]
OptionalName = Annotated[str | None, Field(min_length=1, max_length=500)]
Holder = Annotated[str, Field(min_length=1, max_length=600)]
RequestId = Annotated[str, Field(max_length=100)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Message(BaseModel):
    """A message. It has exactly the fields that its subclass declares, with exactly their types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """Return a message without validating it; the receiver validates it."""
        return cls.model_construct(**fields)

    @classmethod
    def path(cls) -> str:
        """Return the path of its endpoint below `/v1/program`: `/find-key` for `FindKey`."""
        return "/" + re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()


# -- what programs send ------------------------------------------------------------------------------------------


class AskedRequest(Message):
    """A request as a program asks it: the fields of `Request` that the program sets.

    The server computes the digests and the fingerprint again, and sets the requester and every instant itself.
    """

    id: str = Field(pattern=r"^rq_[0-9a-f]{32}$", description="Random, made by the program.")
    run_id: Name
    fingerprint: Digest
    subject: Call | Question
    lasts: timedelta = Field(description="How long until it expires; at most 30 days.")
    approval_window: timedelta
    quorum: Quorum = Quorum()
    on_behalf_of: Identity | None = None
    also_for: tuple[Identity, ...] = Field((), max_length=20)
    process: OptionalName = None
    key: OptionalName = None
    effect: OptionalName = None
    title: str | None = Field(None, max_length=500)
    summary: str | None = Field(None, max_length=2_000)
    prompt: str | None = None
    description: str | None = None
    risk: str | None = Field(None, max_length=200)
    rule: str | None = None
    context: dict[str, Any] | None = None
    place: str = ""
    retries: int = Field(0, ge=0, le=100)
    idempotent: bool = False
    redact: tuple[str, ...] = Field((), max_length=100)
    channels: tuple[Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,40}$")], ...] = Field((), max_length=20)
    notify_arguments: bool = False
    escalation: Escalation | None = None
    always: bool = False
    budgets: tuple[tuple[Annotated[str, Field(max_length=500)], OptionalName], ...] = Field(
        (),
        max_length=20,
        description="Budgets in which the program may call it; they count if the server's policy has them too.",
    )

    @classmethod
    def of_request(cls, request: Request) -> AskedRequest:
        """Return the message for a new request."""
        fields = {name: getattr(request, name) for name in cls.model_fields if name != "lasts"}
        for name in ("title", "summary", "prompt", "description", "rule", "context"):
            fields[name] = storable(fields[name])
        return cls.of(**fields, lasts=request.expires_at - request.created_at)


class Begin(Message):
    """The start of a call."""

    token: Name = Field(description="New and random; `finish` must send it again.")
    worker: Name = Field(description="The process that runs the call.")


class Ask(Message):
    """Ask for a person's decision on a call or question, or find it asked; save the run that waits for it."""

    request: AskedRequest
    update: RunUpdate | None = None
    seconds: float = Field(0.0, ge=0, le=LONGEST_WAIT, description="How long to wait for the decision.")
    start: Begin | None = Field(
        None, description="Starts the call if it is approved as it was asked and was never started."
    )


class _OfRequest(Message):
    """A message about one request."""

    request_id: RequestId


class Operation(Message):
    """One verb of a batch."""

    verb: str = Field(max_length=50, description="The last part of its path: `ask`, `start`, `finish`.")
    body: dict[str, Any]


class Batch(Message):
    """Run several independent verbs in one round trip, and usually in one commit."""

    operations: list[Operation] = Field(max_length=200)


class Get(_OfRequest):
    """Return a request."""


class GetResult(_OfRequest):
    """Return the result of a call with a key."""


class Settle(_OfRequest):
    """Record that a request has reached its end, or that its worker is gone."""

    gone: str | None = Field(None, max_length=500, description="A worker on the program's machine that has ended.")


class Start(_OfRequest, Begin):
    """Take the single right to run an approved call."""

    seen: int | None = Field(
        None,
        ge=0,
        description="How many starts the program knows of; after a further one this message is late, and refused.",
    )


class Renew(Message):
    """Renew leases. A call becomes `unknown` when its lease ends, and a run can be taken from another machine."""

    starts: list[tuple[RequestId, Name]] = Field(
        max_length=1_000, description="Requests, each with the token of its start."
    )
    runs: list[tuple[Name, Name]] = Field(default=[], max_length=1_000, description="Runs, each with its holder.")


class Finish(_OfRequest):
    """Record how a started call ended, and save the run that it belongs to."""

    token: Name
    outcome: Outcome
    update: RunUpdate | None = None


class Withdraw(_OfRequest):
    """Withdraw a request, or forget its rejection."""

    reason: str | None = Field(None, max_length=2_000)


class SendBack(_OfRequest):
    """Return an approved edit to its reviewers because the function's own types reject it; it is pending again."""

    problems: list[Annotated[str, Field(min_length=1, max_length=1_000)]] = Field(min_length=1, max_length=50)


class Verify(_OfRequest):
    """Record, for the gate's own `verify=` hook, whether a call with an unknown outcome took effect."""

    happened: bool
    token: OptionalName = Field(None, description="Of the start that the hook examined; a later start is not resolved.")
    outcome: Outcome | None = Field(None, description="The result, if the hook says that it happened and has found it.")


class Find(Message):
    """Find the request that holds a fingerprint."""

    fingerprint: Digest


class FindKey(Message):
    """Find the request with a key in a run."""

    run_id: Name
    key: Name


class ByEffect(Message):
    """List the program's requests with an effect."""

    effect: Name


class Match(Message):
    """List the ids of the program's requests that begin with a prefix."""

    prefix: RequestId
    limit: int = Field(10, ge=1, le=100)


class List(Message):
    """List the program's requests."""

    wanted: Filter = Filter()
    cursor: str | None = Field(None, max_length=200)
    limit: int = Field(50, ge=1, le=1_000)
    newest: bool = False


class Wait(Message):
    """Wait until a request differs from its ETag, or until anything changes."""

    seen: dict[str, str | None] = Field(max_length=2_000, description="ETags by id; null for none yet.")
    version: str | None = Field(None, max_length=200, description="Of the whole store, to notice any change.")
    seconds: float = Field(0.0, ge=0, le=LONGEST_WAIT)


class Sweep(Message):
    """Record every end that was reached."""


class Note(Message):
    """Add an entry to a run's journal that is not about a request."""

    run_id: Name
    event: Literal[
        "allowed",
        "denied",
        "confirm.requested",
        "confirm.decided",
        "confirm.cancelled",
        "plan_approved",
        "plan_rejected",
    ]
    detail: dict[str, str | int | bool | None] = Field(max_length=20)


class Journal(Message):
    """List journal entries of a run or a request."""

    run_id: OptionalName = None
    request_id: RequestId | None = None
    after: tuple[str, int] | None = Field(None, description="Run and number of the last row that was read.")
    limit: int = Field(1_000, ge=1, le=1_000)


class Runs(Message):
    """List the program's runs, newest first."""

    wanted: RunFilter = RunFilter()
    cursor: str | None = Field(None, max_length=200)
    limit: int = Field(50, ge=1, le=1_000)


class GetRun(Message):
    """Show a run and its steps."""

    run_id: Name


class SaveRun(Message):
    """Save a run that the program holds."""

    update: RunUpdate


class TakeRun(Message):
    """Take a run, so that no other process continues it."""

    run_id: Name
    holder: Holder
    gone: Holder | None = Field(None, description="A holder on the program's machine that has released it.")


class LeaveRun(Message):
    """Save the rest of a run, and release it."""

    update: RunUpdate
    state: RunState


class ReadyRuns(Message):
    """List runs that can continue, of runnables with one of these names."""

    names: list[Name] = Field(max_length=1_000)
    limit: int = Field(100, ge=1, le=1_000)


# -- what the server answers -------------------------------------------------------------------------------------


class RequestMessage(Message):
    """A request, with an ETag that differs after every change."""

    request: Request
    etag: str


class Found(Message):
    """The request that was found, if there is one."""

    found: RequestMessage | None


class Requests(Message):
    """A part of a list. It may be short although there is a cursor to the rest."""

    requests: Sequence[Request]
    cursor: str | None = None


class Result(Message):
    """The result of a call with a key, in canonical form, as JSON text."""

    result: str


class Ids(Message):
    """Ids of requests."""

    ids: Sequence[str]


class Changes(Message):
    """The requests that differ from their ETags, by id with the new ETags, and the version of the whole store.

    `requests` has as many of them as fit; the others must be fetched.
    """

    changed: dict[str, str]
    version: str | None
    requests: Sequence[RequestMessage] = ()


class Swept(Message):
    """How many requests reached their end."""

    changed: int


class Renewed(Message):
    """What lost its lease: calls that are `unknown`, resolved or started by another worker; runs that another holds."""

    lost: list[str]


class Done(Message):
    """The verb was done and returns nothing."""


class Answered(Message):
    """The answer to one operation of a batch: the message of its verb, or problem details."""

    status: int
    body: Any


class Answers(Message):
    """The answers to the operations of a batch, in their order."""

    answers: Sequence[Answered]


class Entries(Message):
    """Journal entries, each as run, place, instant, request, event, who, channel, detail and link."""

    entries: Sequence[Entry]


class RunSnapshotMessage(Message):
    """A run and its steps."""

    snapshot: RunSnapshot


class RunsPage(Message):
    """A page of runs."""

    runs: Sequence[RunRecord]
    cursor: str | None = None
