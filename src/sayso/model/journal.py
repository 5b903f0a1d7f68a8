"""The journal: entries chained by hash, the order in which events may follow each other, and purging a request.

An `Entry` is one transition of a request, or a fact of a run, such as a denial. Its `link` is SHA-256 over the JSON
array of the previous link and every other field, in the order of `Entry`, without spaces, as UTF-8. Walking the chain
(`sayso.audit.verify`) detects rows that were changed, removed, swapped or inserted. Detecting a chain that was
truncated takes a copy of its head that is kept elsewhere (`sayso.audit.checkpoint`). `Trail` checks that the entries of
one request follow from each other.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, cast

from sayso import clock, errors
from sayso.model.canonical.json_tree import dumps, quote
from sayso.model.lifecycle import Transition
from sayso.model.request import Call, Decision, Request, State
from sayso.model.reviewer import Identity


class Entry(NamedTuple):
    """A transition as the journal stores it.

    Attributes:
        run_id: The chain that it belongs to.
        seq: Its position there, from 1.
        at: Microseconds since 1970, UTC, by the store's clock.
        request_id: The request.
        event: What happened: `asked`, `voted`, `approved`, `started`, …
        by: Who did it, as `issuer:subject`.
        channel: The channel that was used.
        detail: A JSON object as text; never contains the value of an argument.
        link: Hash of all fields above and of the previous link.
    """

    run_id: str
    seq: int
    at: int
    request_id: str
    event: str
    by: str
    channel: str
    detail: str
    link: str


KINDS = (str, int, int, str, str, str, str, str, str)
"""The types of `Entry`'s fields. They are checked because a database may return other types."""


def showable(entry: Entry) -> Entry:
    """Return an entry with texts in place of values of other types, which only an altered row has."""
    fields: list[Any] = [value if type(value) is kind else str(value) for value, kind in zip(entry, KINDS, strict=True)]
    return Entry(*fields)


class Head(NamedTuple):
    """A position in a chain, usually its newest row.

    Attributes:
        run_id: The chain.
        seq: The row's position.
        link: The row's link, which covers all rows up to it.
    """

    run_id: str
    seq: int
    link: str


class RowDigests(NamedTuple):
    """How the row of a request is tied to the journal, for `sayso.audit`.

    Attributes:
        request_id: The request.
        run_id: The chain that has its entries.
        state: The state in the row.
        link: The link of the journal entry that last changed the row.
        asked: Digest of what never changes, computed from the row (`sayso.stores.codec.asked_digest`). The journal's
            `asked` entry has the original. None if the row is encrypted and there is no key for it.
        row_digest: Digest of the whole row, computed from it (`sayso.stores.codec.row_digest`). Every journal entry of
            the request has the digest at that time. None as for `asked`, and if nobody could have changed the row.
    """

    request_id: str
    run_id: str
    state: str
    link: str
    asked: str | None
    row_digest: str | None = None


def first_link(run_id: str) -> str:
    """Return the link before the first row of a chain."""
    return hashlib.sha256(b"sayso/journal/1:" + run_id.encode()).hexdigest()


def chained(
    before: str, run_id: str, seq: int, at: int, request_id: str, event: str, by: str, channel: str, detail: str
) -> Entry:
    """Return the row that follows the link `before`."""
    content = (
        f"[{quote(before)},{quote(run_id)},{seq},{at},{quote(request_id)},{quote(event)},{quote(by)},{quote(channel)},"
        f"{quote(detail)}]"
    )
    link = hashlib.sha256(content.encode()).hexdigest()
    return Entry(run_id, seq, at, request_id, event, by, channel, detail, link)


def _states(*states: State) -> frozenset[str]:
    return frozenset(state.value for state in states)


_WAITS, _APPROVED = _states(State.PENDING), _states(State.APPROVED)
_LEADS_TO = {
    **dict.fromkeys(("asked", "voted", "assigned", "claimed", "escalated", "released", "returned", "undone"), _WAITS),
    **dict.fromkeys(("approved", "suspended"), _APPROVED),
    **dict.fromkeys(("cancelled", "withdrawn"), _states(State.CANCELLED)),
    "rejected": _states(State.REJECTED), "feedback": _states(State.FEEDBACK), "answered": _states(State.ANSWERED),
    "expired": _states(State.EXPIRED), "started": _states(State.RUNNING), "done": _states(State.DONE),
    "unknown": _states(State.UNKNOWN),
}  # fmt: skip
_OPEN = _states(State.PENDING, State.APPROVED)
_BEGUN = _states(State.RUNNING, State.UNKNOWN)
_COMES_FROM = {
    "voted": _WAITS, "assigned": _WAITS, "claimed": _WAITS, "escalated": _WAITS, "released": _WAITS, "approved": _WAITS,
    "rejected": _WAITS, "feedback": _WAITS, "answered": _WAITS, "cancelled": _OPEN, "withdrawn": _OPEN,
    "expired": _OPEN, "extended": _OPEN, "returned": _APPROVED, "undone": _OPEN,
    "started": _states(State.APPROVED, State.UNKNOWN), "suspended": _BEGUN,
    "done": _BEGUN, "failed": _BEGUN, "unknown": _BEGUN | _OPEN, "resolved": _BEGUN,
    "cleared": _states(State.REJECTED, State.FEEDBACK, State.ANSWERED, State.CANCELLED),
}  # fmt: skip


class Trail(NamedTuple):
    """What the journal entries of a request say about it, up to one of them.

    Attributes:
        states: The states that it can be in; empty before its first entry.
        asked: Digest of what was asked, or of what a purge left of it.
        row_digest: Digest of its whole row at that entry; None if the entry has none.
        approved: Fingerprint of what was last approved.
    """

    states: frozenset[str] = frozenset()
    asked: str | None = None
    row_digest: str | None = None
    approved: str | None = None

    def after(self, event: str, detail: str) -> tuple[Trail, str | None]:
        """Return the trail after the next entry, and why that entry cannot follow; None if it can.

        Args:
            event: What happened.
            detail: The entry's detail, a JSON object as text.
        """
        read = detail_of(detail)
        asked = _text(read, "asked") if event == "purged" or not self.states else self.asked
        approved = _text(read, "fingerprint") if event == "approved" else self.approved
        new = Trail(self._states_after(event, read), asked, _text(read, "row_digest"), approved)
        return new, self._problem(event, read)

    def _states_after(self, event: str, read: dict[str, Any]) -> frozenset[str]:
        if event in _LEADS_TO:
            return _LEADS_TO[event]
        match event:
            case "failed":
                return _states(State.APPROVED if read.get("may_try_again") else State.FAILED)
            case "resolved":
                return _states(State.DONE) if read.get("happened") else _states(State.FAILED, State.APPROVED)
            case "commented" | "extended" | "cleared" | "purged":
                return self.states
            case _:
                return _states(*State)

    def _problem(self, event: str, read: dict[str, Any]) -> str | None:
        if (event == "asked") is bool(self.states):
            return "asked a second time" if self.states else f"{event} before it was asked"
        before = _COMES_FROM.get(event)
        if before is not None and not before & self.states:
            return f"{event} while it was {' or '.join(sorted(self.states))}"
        if event == "started" and _text(read, "fingerprint") != self.approved:
            return "started with another call than the approved one"
        return None


def row_digest_in(detail: str) -> str | None:
    """Return the digest of the whole request row that a journal entry carries; None if it has none."""
    return _text(detail_of(detail), "row_digest")


def _text(read: dict[str, Any], name: str) -> str | None:
    found = read.get(name)
    return found if isinstance(found, str) else None


def detail_of(detail: str) -> dict[str, Any]:
    """Return the detail of an entry as JSON values; empty if somebody altered it."""
    try:
        found: Any = json.loads(detail)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


_GONE = "<purged>"


def ended_at(request: Request) -> datetime:
    """Return the latest instant in the record of a final request."""
    instants = [request.created_at, *(vote.at for vote in request.votes)]
    if request.state is State.EXPIRED:
        instants.append(request.approval_expires_at or request.expires_at)
    if request.decision is not None:
        instants.append(request.decision.at)
    if request.execution is not None:
        instants.append(request.execution.finished_at or request.execution.started_at)
    return max(instants)


def purged(request: Request, by: Identity, *, before: datetime, channel: str, now: datetime) -> Transition | None:
    """Return the transition that removes the content of a request; None if it was purged before.

    Args:
        request: The current request.
        by: Who removes it.
        before: A request that ended at this instant or later is refused.
        channel: The channel that was used.
        now: The store's time.

    Raises:
        PurgeRefusedError: The request is not final, or ended later.
    """
    if not request.is_final:
        raise errors.PurgeRefusedError(request.id, f"is {request.state}, and can still change")
    if ended_at(request) >= before:
        raise errors.PurgeRefusedError(
            request.id,
            f"ended on {ended_at(request):%Y-%m-%d %H:%M:%S}Z, which is not before {before:%Y-%m-%d %H:%M:%S}Z",
        )
    if request.purged_at is not None:
        return None
    form, decision, execution = dumps({_GONE: f"{now:%Y-%m-%d}"}), request.decision, request.execution
    subject, muted = request.subject, None if decision is None else _mute(decision)
    if execution is not None:
        not_kept = execution.not_kept if execution.kept is None else "it was purged"
        execution = replace(execution, result=None, error=None, kept=None, not_kept=not_kept)
    gone = replace(
        request,
        subject=_bare(subject, form) if isinstance(subject, Call) else replace(subject, text=_GONE),
        edited=None if request.edited is None else _bare(request.edited, form),
        title=None, summary=None, prompt=None, description=None, rule=None, context=None, decision=muted,
        votes=tuple((muted or vote) if vote is decision else _mute(vote) for vote in request.votes),
        execution=execution, purged_at=now,
    )  # fmt: skip
    return Transition(gone, "purged", by, channel, {"before": clock.written(before)})


def _bare(call: Call, form: str) -> Call:
    return replace(call, form=form, masked=None)


def _mute(decision: Decision) -> Decision:
    return replace(decision, comment=None, answer=None)
