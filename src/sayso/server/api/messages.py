"""The messages of the reviewers' part of the API: queries, request bodies and answers.

Answers have the same JSON as `--json` (`sayso.view.document`): arguments and answers are masked, and no message has a
field for a token's secret. The programs' messages are in `sayso.stores.http_messages`, because clients need them too.
Pydantic, already a dependency of the core, validates and serializes them and generates the OpenAPI schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sayso.audit.export import entry_document
from sayso.model import grant as grants
from sayso.model import request, reviewer
from sayso.model.journal import Entry as Row
from sayso.model.request import State
from sayso.model.run import RunRecord, RunState
from sayso.reviews import Review
from sayso.server.auth import tokens
from sayso.server.auth.tokens import TokenKind
from sayso.view.document import budget_document, grant_document, request_document


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

Cursor = Annotated[str | None, Field(max_length=2_000, description="`cursor` of the page before.")]
Limit = Annotated[int, Field(ge=1, le=200, description="How many at most.")]
Text = Annotated[str | None, Field(min_length=1, max_length=1_000)]


class RequestsQuery(Query):
    """A filter of requests."""

    state: list[State | Literal["all"]] = Field(
        default_factory=list[State | Literal["all"]], max_length=12,
        description="One or several, `all` for every one; by default all that are not final.",
    )  # fmt: skip
    run: Text = None
    tool: Annotated[Text, Field(description="By its name, or `module:function`.")] = None
    risk: Text = None
    agent: Annotated[Text, Field(description="Asked by this program: its name, or `issuer:name`.")] = None
    kind: Literal["call", "question"] | None = None
    text: Annotated[Text, Field(description="With this in id, run, function, arguments, prompt or question.")] = None
    q: Annotated[Text, Field(description="The old name of `text`.")] = None
    older_than: Annotated[Text, Field(description="Asked so long ago or longer: `90s`, `15m`, `24h`, `7d`.")] = None
    claimed_by: Annotated[Text, Field(description="`issuer:subject`, or the subject of a local person.")] = None
    mine: Annotated[bool, Field(description="Only what you have claimed.")] = False
    newest: Annotated[bool, Field(description="Newest first.")] = False
    cursor: Cursor = None
    limit: Limit = 50


class JournalQuery(Query):
    """A filter of journal rows."""

    run: Text = None
    cursor: Cursor = None
    limit: Limit = 200


class PageQuery(Query):
    """A page of a list."""

    cursor: Cursor = None
    limit: Limit = 200


class RunsQuery(Query):
    """A filter of runs."""

    state: RunState | None = None
    name: Text = None
    cursor: Cursor = None
    limit: Limit = 50


class EventsQuery(Query):
    """The event to continue after."""

    after: Annotated[
        str | None, Field(max_length=100, description="Id of the last event seen, where Last-Event-ID cannot be sent.")
    ] = None


# -- bodies ------------------------------------------------------------------------------------------------------

Comment = Annotated[str | None, Field(max_length=20_000, description="The program is told, and the record keeps it.")]
Seen = Annotated[
    str | None, Field(min_length=1, max_length=200, description="`fingerprint` of the request as it was looked at.")
]


class Approve(Input):
    """Approve the call, unchanged or with other arguments. `seen` or `If-Match` is required."""

    changes: dict[str, Any] | None = Field(None, description="New values for some arguments.")
    arguments: dict[str, Any] | None = Field(None, description="All arguments, in place of those that stand.")
    comment: Comment = None
    seen: Seen = None
    again: bool = Field(False, description="Let it start although its effect is taken; `comment` says why.")


class GrantTerms(Input):
    """Approve the call and the next ones like it: equal fields, numbers no larger. `seen` or `If-Match` is required."""

    count: int = Field(ge=1, le=10_000, description="How many more calls.")
    lasts: str = Field(max_length=100, description="How long it counts, from now: `90s`, `1h`, `7d`.")
    here: bool = Field(False, description="Only in the run of this request.")
    without: list[str] = Field(default_factory=list[str], max_length=100, description="Fields that may be anything.")
    at_most: dict[str, int | float] = Field(default_factory=dict[str, int | float], description="Smaller bounds.")
    exactly: list[str] = Field(default_factory=list[str], max_length=100, description="Numbers that stay equal.")
    changes: dict[str, Any] | None = Field(None, description="New values for some arguments.")
    comment: Comment = None
    seen: Seen = None


class GrantsQuery(Query):
    """A filter of grants."""

    ended: Annotated[bool, Field(description="Also those that were revoked, used up or expired.")] = False


class Reason(Input):
    """A reason for the journal."""

    reason: Annotated[str | None, Field(max_length=20_000, description="Why; the journal keeps it.")] = None


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

    text: str = Field(min_length=1, max_length=20_000, description="`@name` mentions somebody; the journal keeps it.")


class Empty(Input):
    """An empty body."""


class Release(Input):
    """Release a claimed request."""

    force: bool = Field(False, description="Free what somebody else claimed; the journal says so.")


class Assign(Input):
    """Assign a request to another reviewer."""

    to: str = Field(min_length=1, max_length=400, description="`issuer:subject`, or the subject of a local person.")
    force: bool = Field(False, description="Take it from somebody else who has it; the journal says so.")


class Away(Input):
    """Declare yourself away, and name who stands in."""

    to: str = Field(min_length=1, max_length=400, description="`issuer:subject`, or the subject of a local person.")
    until: str = Field(
        min_length=1, max_length=100, description="A span from now, `3d`, or ISO 8601, in UTC where it has no zone."
    )


class Snooze(Input):
    """Hide a request from your own list. Other lists and its expiry do not change."""

    until: str | None = Field(
        max_length=100, description="A span from now, `1h`, or ISO 8601, in UTC where it has no zone. null: it is back."
    )


class Extend(Input):
    """Set when a pending request or an unused approval expires, as a span from now."""

    span: str = Field(min_length=1, max_length=100, description="`90s`, `15m`, `24h`, `7d`.")


class Resolve(Input):
    """State whether a call with an unknown outcome had its effect."""

    happened: bool
    comment: Comment = None
    force: bool = Field(False, description="Also while it is recorded as running: its worker is surely gone.")


# -- answers ---------------------------------------------------------------------------------------------------


class Decision(Output):
    """The decision or vote of one person."""

    verb: Literal["approve", "reject", "feedback", "answer", "cancel"]
    by: str = Field(description="`issuer:subject`")
    at: datetime
    channel: str
    comment: str | None
    edited: bool
    again: bool = Field(description="Whether its effect may happen again, for the reason in `comment`.")


class Change(Output):
    """One value that a reviewer changed in the call, as display texts."""

    path: str
    before: str | None
    after: str | None


class Grant(Output):
    """A permission for the next calls like one that was approved."""

    id: str
    tool: str
    fields: list[str] = Field(description="What each field must be, as texts; secrets are masked.")
    run: str | None = Field(description="The run in which it counts; null for every run of the requester.")
    requester: str
    count: int
    left: int
    created_at: datetime
    until: datetime
    by: list[str] = Field(description="Who agreed to it, each as `issuer:subject`.")
    request: str = Field(description="Id of the request that it was drawn from.")
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

    budget: str = Field(description="The limit, as the policy's rule had it at the last such call.")
    used: str | None = Field(description="A number; null where the record was altered, so that nothing passes.")
    rule: str | None = Field(description="The name of the rule; null where no call has a part of it any more.")
    tool: str | None = Field(description="Of the newest such call.")
    agent: str | None = Field(description="Of a budget per agent, whose it is, as `issuer:subject`.")
    run: str | None = Field(description="Of a budget per run, which run.")

    @classmethod
    def of(cls, use: grants.BudgetUse) -> Budget:
        """Return the message for an account."""
        return cls.model_validate(budget_document(use))


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

    by: str = Field(description="Who is away: `issuer:subject`")
    to: str = Field(description="Who stands in: `issuer:subject`")
    since: datetime
    until: datetime
    warning: str | None = Field(None, description="Where it has just been made: that nobody is known by this name.")

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
    escalated_at: datetime | None = Field(description="When it came about; null while it has not.")


class Execution(Output):
    """The start of an approved call, and how it ended."""

    attempt: int
    starts: int = Field(description="How many starts there were; more than `attempt` where some stopped to ask.")
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
    program_gone: bool = Field(description="Whether nobody comes back for the decision: the program has surely ended.")
    fingerprint: str = Field(description="Of what a decision would be about now; an approval says that it saw this.")
    question: str | None = None
    answer: Any = None
    function: str | None = None
    tool: str | None = Field(None, description="`module:function`")
    arguments: dict[str, Any] | None = Field(None, description="What would run now.")
    proposed: dict[str, Any] | None = Field(None, description="What the program asked for.")
    changes: list[Change] | None = None
    key: str | None = Field(description="The occasion of the call in its run, e.g. a model's call id.")
    effect: str | None = Field(description="What the call does to the world, by a name that counts across runs.")
    title: str | None = Field(description="What the program calls the function.")
    summary: str | None = Field(description="What the call does, in the program's words.")
    prompt: str | None
    description: str | None
    risk: str | None
    rule: str | None
    context: dict[str, Any] | None
    unverified: list[str] = Field(description="Which of these words only the asker vouches for, a token's all.")
    warnings: list[str] = Field(description="What about it may deceive the eye.")
    requester: str
    on_behalf_of: str | None
    quorum: Quorum
    retries: int = Field(description="How many further starts one approval gives the call when it fails.")
    idempotent: bool = Field(description="Whether it may start again also when its outcome is unknown.")
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
    cursor: str | None = Field(description="Give it back to get what follows; null at the end.")


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
    link: str = Field(description="SHA-256 over this row and the link of the row before it in its run.")

    @classmethod
    def of(cls, row: Row) -> Entry:
        """Return the message for a row."""
        return cls.model_validate(entry_document(row))


class Journal(Output):
    """A page of the journal."""

    entries: list[Entry]
    cursor: str | None = Field(description="Give it back to get what follows; null at the end.")


class Run(Output):
    """A saved run of an agent, workflow or tool that has waited for a person."""

    id: str
    name: str
    kind: str
    state: RunState
    in_hand: bool = Field(description="Whether a program goes on with it just now.")
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
    cursor: str | None = Field(description="Give it back to get what follows; null at the end.")


class Me(Output):
    """The authenticated client."""

    kind: TokenKind
    name: str
    issuer: str
    roles: list[str]
    channel: str
    token: str | None = Field(description="The token's id; null for a session.")
    csrf: str | None = Field(description="What a session's changes carry as X-CSRF-Token; null for a token.")


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
    used_on: str | None = Field(description="The last day on which it was used; null before the first.")

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
