"""What programs say to the API and hear from it, as the pydantic models of their operations.

Rows go in and out as a store has them (`sayso.stores.http_transport`); the texts in them are looked into by
`sayso.server.api.validation`. The invariant: a field that is not named here is refused.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sayso.model.lifecycle import MOST_KEPT
from sayso.server.api import kept
from sayso.server.api.endpoint import Input, Output
from sayso.server.api.review import Query
from sayso.server.api.validation import AskedRequest
from sayso.server.api.wait import LONGEST

__all__ = [
    "Ask", "ByEffect", "Changed", "Ended", "Entries", "FindKey", "FindQuery", "Finish", "Found", "Ids",
    "JournalQuery", "Kept", "MatchQuery", "Note", "Nothing", "Return", "Row", "Rows", "Seen", "Settle", "Start",
    "Swept", "Verify", "WaitQuery", "Wanted", "Which", "Withdraw",
]  # fmt: skip

_MOST_WATCHED = 2_000

Name = Annotated[str, Field(min_length=1, max_length=500)]
Reason = Annotated[str | None, Field(max_length=2_000)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST, description="For how many seconds to wait for a change.")]


class Row(Output):
    """A request as it stands: the columns of its row, the text of its schema, and a mark that each change changes."""

    row: dict[str, str | int | None]
    schema_text: str
    mark: str


class Found(Output):
    """The request that was looked for, if there is one."""

    request: Row | None


class Rows(Output):
    """A part of a list; there may be few and still a cursor, which leads to the rest."""

    requests: list[Row]
    cursor: str | None


class Ids(Output):
    """Ids of requests."""

    ids: list[str]


class Swept(Output):
    """How many requests have reached their end."""

    changed: int


class Nothing(Output):
    """Done; there is nothing to tell."""


class Entries(Output):
    """Rows of the journal, each as run, place, instant, request, event, who, channel, detail and link."""

    entries: list[list[str | int]]


class Changed(Output):
    """Which requests differ from what was seen, with their marks now; and the mark of the whole store.

    `requests` are those of them that were wanted in full, as far as there is room; the others are to be asked for.
    """

    changed: dict[str, str]
    any: str | None
    requests: list[Row] = Field(default_factory=list[Row])


class Ask(Input):
    """Ask for a person's word, and save the run that waits for it."""

    request: AskedRequest
    saved: kept.SavedRun | None = None


class Start(Input):
    """Take the single right to run an approved call."""

    token: Name = Field(description="New, random, and kept: `finish` wants it back.")
    worker: Name = Field(description="The process that runs the call.")


class Ended(Input):
    """How a call ended."""

    state: Literal["done", "failed", "unknown", "suspended"]
    result: str | None = Field(None, max_length=200_000, description="In its canonical form, as JSON text.")
    error: str | None = Field(None, max_length=10_000)
    kept: str | None = Field(None, max_length=MOST_KEPT, description="The real result of a call with a key, likewise.")
    not_kept: str | None = Field(None, max_length=500, description="Why there is none.")


class Finish(Input):
    """Say how a started call ended."""

    token: Name
    outcome: Ended
    saved: kept.SavedRun | None = None


class Settle(Input):
    """Write an end that was reached, or that a worker is gone."""

    gone: str | None = Field(None, max_length=500, description="A worker on the program's own machine that has ended.")


class Withdraw(Input):
    """Take a request back, or forget a no."""

    reason: Reason = None


class Return(Input):
    """Say why the function's own types refuse an edit that was approved."""

    problems: list[Annotated[str, Field(min_length=1, max_length=1_000)]] = Field(min_length=1, max_length=50)


class Verify(Input):
    """Say, for the gate's own `verify=` hook, whether a call had its effect whose outcome is unknown."""

    happened: bool
    hook: Name = Field(description="What the program calls it; not recorded, as who says so is the token.")


class Note(Input):
    """Add a row to the journal of a run that is about no request."""

    run_id: Name
    event: Literal[
        "denied", "confirm.requested", "confirm.decided", "confirm.cancelled", "plan_approved", "plan_rejected"
    ]
    detail: dict[str, str | int | bool | None] = Field(max_length=20)


class Seen(Input):
    """What was seen of requests; the answer waits until one of them differs."""

    seen: dict[str, str | None] = Field(max_length=_MOST_WATCHED, description="Marks by id; null for none yet.")
    any: str | None = Field(None, max_length=200, description="The store's mark, to hear of any change at all.")
    wait: Seconds = 0.0
    rows: bool = Field(default=False, description="Whether to send along how those stand that differ.")


class Wanted(Input):
    """Which requests; what is null or empty does not restrict."""

    states: list[str] = Field(default_factory=list[str], max_length=11)
    run_id: Annotated[str | None, Field(max_length=500)] = None
    name: Annotated[str | None, Field(max_length=500)] = None
    risk: Annotated[str | None, Field(max_length=200)] = None
    text: Annotated[str | None, Field(max_length=1_000)] = None
    kind: Literal["call", "question"] | None = None
    claimed_by: Annotated[list[str] | None, Field(min_length=2, max_length=2)] = None


class Which(Input):
    """Which page."""

    wanted: Wanted = Wanted()
    cursor: Annotated[str | None, Field(max_length=200)] = None
    limit: int = Field(50, ge=1, le=1_000)
    newest: bool = False


class FindQuery(Query):
    """Which request."""

    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FindKey(Input):
    """Which request: the one that was asked with this key in this run."""

    run_id: Name
    key: Name


class ByEffect(Input):
    """Which requests: those with this effect."""

    effect: Name


class Kept(Output):
    """What a call with a key returned, in its canonical form, as JSON text."""

    result: str


class MatchQuery(Query):
    """How ids begin."""

    prefix: Annotated[str, Field(max_length=100)]
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class WaitQuery(Query):
    """How long to wait."""

    wait: Seconds = 0.0


class JournalQuery(Query):
    """Which rows: of a run or of a request, after the place of the last one seen."""

    run_id: Annotated[str | None, Field(max_length=500)] = None
    request_id: Annotated[str | None, Field(max_length=100)] = None
    after_run: Annotated[str | None, Field(max_length=500)] = None
    after_seq: Annotated[int, Field(ge=-1, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=1_000)] = 1_000
