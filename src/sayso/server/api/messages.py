"""The messages of the reviewers' part of the API: queries, request bodies and answers.

Answers have the same JSON as `--json` (`sayso.view.as_json`): arguments and answers are masked, and no message has a
field for a token's secret. The programs' messages are in `sayso.stores.http_messages`, because clients need them too.
Pydantic, already a dependency of the core, validates and serializes them and generates the OpenAPI schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sayso.model import grant as grants
from sayso.model import request, reviewer
from sayso.model.request import State
from sayso.model.run import RunRecord, RunState
from sayso.reviews import Review
from sayso.server.auth import tokens
from sayso.server.auth.tokens import TokenKind
from sayso.view.as_json import grant_document, request_document


class Query(BaseModel):
    """A query string: texts, from which numbers and booleans are parsed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(BaseModel):
    """A request body: the declared fields with exactly their types, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Output(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# -- queries -----------------------------------------------------------------------------------------------------

Cursor = Annotated[str | None, Field(max_length=2_000, description="The `cursor` of the previous page.")]
Limit = Annotated[int, Field(ge=1, le=200, description="The maximum number of items.")]
Text = Annotated[str | None, Field(min_length=1, max_length=1_000)]


class PageQuery(Query):
    """A page of a list."""

    cursor: Cursor = None
    limit: Limit = 200


class RequestsQuery(PageQuery):
    """A filter of requests."""

    state: list[State | Literal["all"]] = Field(
        default_factory=list[State | Literal["all"]], max_length=12,
        description="One or several states, or `all`; by default all that are not final.",
    )  # fmt: skip
    run: Text = None
    tool: Annotated[Text, Field(description="The function, by name or `module:function`.")] = None
    risk: Text = None
    agent: Annotated[Text, Field(description="The program that made the request, by name or `issuer:name`.")] = None
    kind: Literal["call", "question"] | None = None
    text: Annotated[
        Text, Field(description="Only with each of these words in id, run, function, arguments, prompt or question.")
    ] = None
    older_than: Annotated[Text, Field(description="The minimum age: `90s`, `15m`, `24h`, `7d`.")] = None
    claimed_by: Annotated[Text, Field(description="`issuer:subject`, or the subject of a local person.")] = None
    mine: Annotated[bool, Field(description="Only requests that you have claimed.")] = False
    newest: Annotated[bool, Field(description="Newest first.")] = False
    limit: Limit = 50


class JournalQuery(PageQuery):
    """A filter of journal rows."""

    run: Text = None


class RunsQuery(PageQuery):
    """A filter of runs."""

    state: RunState | None = None
    name: Text = None
    limit: Limit = 50


class EventsQuery(Query):
    """The event to continue after."""

    after: Annotated[
        str | None,
        Field(max_length=100, description="The id of the last event received, if Last-Event-ID cannot be sent."),
    ] = None


# -- bodies ------------------------------------------------------------------------------------------------------

Comment = Annotated[str | None, Field(max_length=20_000, description="For the program and the record.")]
Seen = Annotated[
    str | None, Field(min_length=1, max_length=200, description="The `fingerprint` of the request as you saw it.")
]


class Approve(Input):
    """Approve the call, unchanged or with other arguments. `seen` or `If-Match` is required."""

    changes: dict[str, Any] | None = Field(None, description="New values for some arguments.")
    arguments: dict[str, Any] | None = Field(None, description="All arguments, instead of the proposed ones.")
    comment: Comment = None
    seen: Seen = None
    again: bool = Field(False, description="Start it although another call has the same effect; needs `comment`.")


class GrantTerms(Input):
    """Approve the call and the next ones like it: equal fields, numbers no larger. `seen` or `If-Match` is required."""

    count: int = Field(ge=1, le=10_000, description="How many more calls.")
    lasts: str = Field(max_length=100, description="How long the grant lasts, from now: `90s`, `1h`, `7d`.")
    here: bool = Field(False, description="Only in the run of this request.")
    without: list[str] = Field(default_factory=list[str], max_length=100, description="Fields that may have any value.")
    at_most: dict[str, int | float] = Field(
        default_factory=dict[str, int | float], description="Upper bounds of numbers."
    )
    exactly: list[str] = Field(default_factory=list[str], max_length=100, description="Numbers that must stay equal.")
    changes: dict[str, Any] | None = Field(None, description="New values for some arguments.")
    comment: Comment = None
    seen: Seen = None


class GrantsQuery(Query):
    """A filter of grants."""

    ended: Annotated[bool, Field(description="Include grants that were revoked, used up or expired.")] = False


class Reason(Input):
    """A reason for the journal."""

    reason: Annotated[str | None, Field(max_length=20_000, description="The reason, for the journal.")] = None


class Reject(Input):
    """Reject the request."""

    comment: Comment = None
    seen: Seen = None


class Feedback(Input):
    """Send a call back to the program with feedback."""

    comment: str = Field(min_length=1, max_length=20_000)
    seen: Seen = None


class Reply(Input):
    """Answer a question with a value of its type."""

    value: Any
    comment: Comment = None


class Cancel(Input):
    """Cancel the request and end its run."""

    comment: Comment = None


class Remark(Input):
    """Comment for the other reviewers."""

    text: str = Field(
        min_length=1, max_length=20_000, description="The comment, also for the journal; `@name` mentions a person."
    )


class Empty(Input):
    """An empty body."""


class Release(Input):
    """Release a claimed request."""

    force: bool = Field(False, description="Release a request that another person claimed; the journal records it.")


class Assign(Input):
    """Assign a request to another reviewer."""

    to: str = Field(min_length=1, max_length=400, description="`issuer:subject`, or the subject of a local person.")
    force: bool = Field(False, description="Reassign a request that another person claimed; the journal records it.")


class Away(Input):
    """Declare yourself away, and name who stands in."""

    to: str = Field(min_length=1, max_length=400, description="`issuer:subject`, or the subject of a local person.")
    until: str = Field(
        min_length=1, max_length=100, description="A duration from now, `3d`, or ISO 8601, by default in UTC."
    )


class Snooze(Input):
    """Hide a request from your own list. Other lists and its expiry do not change."""

    until: str | None = Field(
        max_length=100, description="A duration from now, `1h`, or ISO 8601, by default in UTC; null ends the snooze."
    )


class Extend(Input):
    """Set when a pending request or an unused approval expires, as a span from now."""

    span: str = Field(min_length=1, max_length=100, description="`90s`, `15m`, `24h`, `7d`.")


class Resolve(Input):
    """State whether a call with an unknown outcome had its effect."""

    happened: bool
    comment: Comment = None
    force: bool = Field(False, description="Even if it is recorded as running, because its worker has ended.")
    start: int = Field(1, ge=1, description="The `starts` of the execution that was examined; not a later one.")


# -- answers ---------------------------------------------------------------------------------------------------


class Decision(Output):
    """The decision or vote of one person."""

    verb: Literal["approve", "reject", "feedback", "answer", "cancel"]
    by: str = Field(description="`issuer:subject`")
    at: datetime
    channel: str
    comment: str | None
    edited: bool
    again: bool = Field(description="Whether the effect may happen again, for the reason in `comment`.")


class Change(Output):
    """One value that a reviewer changed in the call, as display texts."""

    path: str
    before: str | None
    after: str | None


class Grant(Output):
    """A permission for the next calls like one that was approved."""

    id: str
    tool: str
    fields: list[str] = Field(description="The condition on each field, as text; secrets are masked.")
    run: str | None = Field(description="The run in which it is valid; null for every run of the requester.")
    requester: str
    count: int
    left: int
    created_at: datetime
    until: datetime
    by: list[str] = Field(description="The reviewers who agreed to it, each as `issuer:subject`.")
    request: str = Field(description="The id of the request from which it was made.")
    comment: str | None
    ended: Literal["revoked", "used up", "expired"] | None
    ended_by: str | None
    ended_at: datetime | None

    @classmethod
    def of(cls, grant: grants.Grant) -> Grant:
        """Return the message for a grant."""
        return cls.model_validate(grant_document(grant))


class Budget(Output):
    """The use of a policy's budget by one agent, run or rule."""

    budget: str = Field(description="The limit, as in the policy at the latest call.")
    used: str | None = Field(description="A number; null if the record was altered, so that no call passes.")
    rule: str | None = Field(description="The name of the rule; null if no call uses the budget any more.")
    tool: str | None = Field(description="The tool of the latest call.")
    agent: str | None = Field(description="For a budget per agent: the agent, as `issuer:subject`.")
    run: str | None = Field(description="For a budget per run: the run.")


class Grants(Output):
    """Grants, newest first, and the budgets of policies."""

    grants: list[Grant]
    budgets: list[Budget]


class Stop(Output):
    """Whether all starts are stopped, and by whom."""

    stopped: bool
    by: str | None = None
    at: datetime | None = None
    reason: str | None = None


class Delegation(Output):
    """A person who is away, and who stands in."""

    by: str = Field(description="The person who is away: `issuer:subject`")
    to: str = Field(description="The stand-in: `issuer:subject`")
    since: datetime
    until: datetime
    warning: str | None = Field(
        None, description="Only in the answer that creates it: that nobody is known by this name."
    )

    @classmethod
    def of(cls, found: reviewer.Delegation, warning: str | None = None) -> Delegation:
        """Return the message for a delegation."""
        return cls(
            by=found.by.qualified, to=found.to.qualified, since=found.since, until=found.until, warning=warning
        )  # fmt: skip


class Delegations(Output):
    """The people who are away now, in the order of their return."""

    away: list[Delegation]


class Quorum(Output):
    """The reviewers that an approval needs."""

    count: int
    roles: list[str]
    missing: int = Field(description="How many more distinct reviewers must agree.")


class Escalation(Output):
    """Who else may decide once the request has been pending for a while."""

    at: datetime
    roles: list[str]
    people: list[str] = Field(description="Each as `issuer:subject`.")
    escalated_at: datetime | None = Field(description="When the escalation happened; null before.")


class Execution(Output):
    """The start of an approved call, and how it ended."""

    attempt: int
    starts: int = Field(description="The number of starts; more than `attempt` if some stopped to ask.")
    unresolved: bool = Field(
        description="Whether an earlier start of this idempotent call may have taken effect, and nobody has found out."
    )
    started_at: datetime
    finished_at: datetime | None
    result: Any
    error: str | None
    resolved_by: str | None


class Request(Output):
    """A request, with masked arguments. A question has `question` and `answer`; a call has `function` and so on."""

    id: str
    kind: Literal["call", "question"]
    state: State
    run: str
    program_gone: bool = Field(description="Whether no program will fetch the decision, because it has ended.")
    fingerprint: str = Field(description="Identifies what a decision would now be about; an approval must name it.")
    question: str | None = None
    answer: Any = None
    function: str | None = None
    tool: str | None = Field(None, description="`module:function`")
    arguments: dict[str, Any] | None = Field(None, description="The arguments that would run now.")
    proposed: dict[str, Any] | None = Field(None, description="The arguments that the program proposed.")
    changes: list[Change] | None = None
    key: str | None = Field(description="The idempotency key of the call in its run, e.g. a model's call id.")
    effect: str | None = Field(description="The name of the call's effect, across runs.")
    title: str | None = Field(description="The program's title of the call.")
    summary: str | None = Field(description="What the call does, in the program's words.")
    prompt: str | None
    description: str | None
    risk: str | None
    rule: str | None
    context: dict[str, Any] | None
    unverified: list[str] = Field(description="The fields that the program wrote and nobody verified.")
    warnings: list[str] = Field(description="Warnings about misleading characters and the like.")
    requester: str
    on_behalf_of: str | None
    quorum: Quorum
    retries: int = Field(description="How many times one approval lets a failed call start again.")
    idempotent: bool = Field(description="Whether it may start again even if its outcome is unknown.")
    escalation: Escalation | None
    created_at: datetime
    expires_at: datetime
    approval_expires_at: datetime | None
    claimed_by: str | None
    claimed_at: datetime | None
    returned: str | None
    votes: list[Decision]
    decision: Decision | None
    execution: Execution | None

    @classmethod
    def of(cls, request: request.Request, review: Review) -> Request:
        """Return the message for a request, including whether its program is gone."""
        return cls.model_validate(request_document(request, program_gone=review.program_is_gone(request)))


class Requests(Output):
    """A page of requests."""

    requests: list[Request]
    cursor: str | None = Field(description="The cursor of the next page; null at the end.")


class Entry(Output):
    """A row of the journal: something that happened."""

    run: str
    seq: int
    at: datetime
    request: str | None
    event: str
    by: str
    channel: str
    detail: Any
    link: str = Field(description="SHA-256 over this row and the link of the previous row of its run.")


class Journal(Output):
    """A page of the journal."""

    entries: list[Entry]
    cursor: str | None = Field(description="The cursor of the next page; null at the end.")


class Run(Output):
    """A saved run of an agent, workflow or tool that has waited for a person."""

    id: str
    name: str
    kind: str
    state: RunState
    in_hand: bool = Field(description="Whether a program is executing it now.")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, run: RunRecord) -> Run:
        """Return the message for a run, without its holder, which names a process."""
        return cls(
            id=run.id, name=run.name, kind=run.kind, state=run.state, in_hand=run.holder is not None,
            created_at=run.created_at, updated_at=run.updated_at,
        )  # fmt: skip


class Runs(Output):
    """A page of runs, newest first."""

    runs: list[Run]
    cursor: str | None = Field(description="The cursor of the next page; null at the end.")


class Me(Output):
    """The authenticated client."""

    kind: TokenKind
    name: str
    issuer: str
    roles: list[str]
    channel: str
    token: str | None = Field(description="The token's id; null for a session.")
    csrf: str | None = Field(description="The X-CSRF-Token for changes in this session; null for a token.")


class Token(Output):
    """A token, without its secret."""

    id: str
    kind: TokenKind
    name: str
    issuer: str
    roles: list[str]
    made_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    used_on: str | None = Field(description="The last day on which it was used; null if never.")

    @classmethod
    def of(cls, token: tokens.Token) -> Token:
        """Return the message for a token."""
        return cls(
            id=token.id, kind=token.kind, name=token.person.subject, issuer=token.person.issuer,
            roles=sorted(token.roles), made_at=token.made_at, expires_at=token.expires_at, revoked_at=token.revoked_at,
            used_on=token.used_on,
        )  # fmt: skip


class Tokens(Output):
    """All tokens, including revoked and expired ones."""

    tokens: Sequence[Token]


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457). `code` never changes; further members depend on it."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str
    title: str
    status: int
    detail: str
    code: str
