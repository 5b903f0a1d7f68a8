"""One transaction of a store: how a request changes in it, and the records that a change writes.

Verbs change a request with `changed`: it loads the request, verifies its row by the journal, applies a rule of
`sayso.model.lifecycle`, and updates it. `insert` and `update` also write the records that a change requires: a delivery
for each registered channel (sent by `sayso.channels.outbox`), the time at which a request escalates, and the entry by
which a server counts the open requests of a token. Invariant: a change and its records become durable together, or not
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from sayso import errors
from sayso.model import lifecycle
from sayso.model.journal import Entry
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, State
from sayso.model.reviewer import TOKENS, Identity
from sayso.model.run import RunRecord, RunUpdate, Step
from sayso.stores.codec import altered
from sayso.stores.records import (
    AWAY,
    Record,
    RecordRow,
    RecordTransaction,
    drop_if_there,
    in_force,
    record_of,
    row_of_record,
)


class Transaction(RecordTransaction, Protocol):
    """What a store offers to the verbs inside one transaction."""

    def load(self, request_id: str) -> Request:
        """Return a request; raises `RequestNotFoundError`."""
        ...

    def holder(self, fingerprint: str) -> Request | None:
        """Return the request that holds this fingerprint, if any."""
        ...

    def keyed(self, run_id: str, key: str) -> Request | None:
        """Return the request with this key in this run, in any state.

        Raises `AlteredRequestError` if only the journal still has it.
        """
        ...

    def with_effect(self, effect: str) -> Sequence[Request]:
        """Return the requests with this effect in the order in which they were asked.

        Raises `AlteredRequestError` if the row of one does not match the journal, or was deleted.
        """
        ...

    def insert(self, transition: Transition) -> None:
        """Write a new request and its journal entry, whose detail gets the digests of its `RowDigests`."""
        ...

    def update(self, transition: Transition) -> None:
        """Write a changed request and its journal entry, with the `row_digest` of its `RowDigests`."""
        ...

    def verify(self, request: Request) -> bool:
        """Return whether the whole row of a loaded request matches its newest journal entry."""
        ...

    def run(self, run_id: str, *, skip_locked: bool = False) -> RunRecord | None:
        """Return a run, if it is stored here.

        With `skip_locked`, raises `RunBusyError` where it would wait for another transaction that writes it.
        """
        ...

    def put_run(self, run: RunRecord, steps: Sequence[Step] = ()) -> None:
        """Write a new or changed run, and append steps to it."""
        ...

    def drop_steps(self, run_id: str) -> None:
        """Remove all steps of a run, and what they wait for."""
        ...

    def newest(self, run_id: str) -> Entry | None:
        """Return the newest entry of a chain that contains only notes.

        Until the end of the transaction, nobody else writes a record together with its entry in that chain.
        """
        ...


CHANNEL, ESCALATION, LEASE, RESULT, SUBMISSION = "channel", "escalation", "lease", "result", "submission"
VOTED = "voted"

# Events without a message; every other event, even a future one, is reported.
SILENT = frozenset({"assigned", "claimed", "cleared", "commented", "released", "started", "suspended", "voted"})

# A manual change since this process read the row must be found before somebody decides it or it starts. So each change
# compares all columns and the newest journal entry, except the end of a call: that is recorded in any case.
ENDS_OF_CALLS = frozenset({"suspended", "done", "failed", "unknown"})

# Events after which a request no longer waits for a person, and those after which it may wait again.
_AFTER_DECISION = frozenset({"started", "suspended", "done", "failed", "unknown", "resolved"})
_WAITS_AGAIN = frozenset({"returned", "undone"})


def delivery_kind(channel: str) -> str:
    """Return the kind of record for a channel's deliveries; the key is the id of the request."""
    return f"delivery/{channel}"


def waiting_kind(requester: Identity) -> str:
    """Return the kind of record by which the pending requests of a token's program are counted."""
    return f"waiting/{requester.qualified}"


def _waiting(request: Request) -> RecordRow:
    return row_of_record(Record(waiting_kind(request.requester), request.id, {}, request.expires_at))


def _put_escalation(tx: Transaction, request: Request) -> None:
    """Record when more people may decide, for the sweep, which drops the record once that time has come."""
    if request.escalation is not None and request.escalated_at is None:
        tx.put_record(row_of_record(Record(ESCALATION, request.id, {}, request.created_at + request.escalation.after)))


def insert(tx: Transaction, transition: Transition) -> None:
    """Write a new request, and its deliveries and other records."""
    tx.insert(transition)
    request = transition.request
    if request.requester.issuer == TOKENS:
        tx.put_record(_waiting(request))
    _put_escalation(tx, request)
    # A named channel that is not registered yet gets its messages when it is.
    for channel in request.channels or tx.record_keys(CHANNEL):
        tx.put_record(row_of_record(Record(delivery_kind(channel), request.id, {"changes": 0, "sent": []}, tx.now())))


def update(tx: Transaction, transition: Transition) -> None:
    """Write a changed request, and make its deliveries due again."""
    tx.update(transition)
    request = transition.request
    if request.requester.issuer == TOKENS and transition.event not in _AFTER_DECISION:
        kind = waiting_kind(request.requester)
        if request.state is not State.PENDING:
            drop_if_there(tx, kind, request.id)
        elif transition.event in _WAITS_AGAIN:
            tx.put_record(_waiting(request))
    if transition.event in _WAITS_AGAIN:
        _put_escalation(tx, request)
    if request.quorum.count > 1:
        # Who has approved a request that needs further people, so that their lists find it without reading all.
        if request.state is State.PENDING and request.votes:
            body = {"by": [vote.by.folded for vote in request.votes]}
            tx.put_record(row_of_record(Record(VOTED, request.id, body, request.expires_at)))
        else:
            drop_if_there(tx, VOTED, request.id)
    if transition.event in SILENT:
        return
    for channel in tx.record_keys(CHANNEL):
        row = tx.find_record(delivery_kind(channel), request.id)
        if row is None:
            continue  # asked before this channel existed
        record = record_of(row)
        # A process that is sending it now detects the change by the count. Until it has finished, the delivery stays
        # its own, so that two processes do not send it; and a delivery that was given up stays so.
        is_free = not record.body.keys() & {"holder", "given_up"}
        body = {**record.body, "changes": record.body["changes"] + 1}
        tx.put_record(row_of_record(replace(record, body=body, due=tx.now() if is_free else record.due)))


def save(tx: Transaction, saved: RunUpdate) -> None:
    """Write what a run's holder saves; raises `RunBusyError` if it does not hold the run any more."""
    known = tx.run(saved.run.id)
    if known is not None and known.holder != saved.run.holder:
        raise errors.RunBusyError(known.id)
    run = known or saved.run  # not what the holder knows, which may have renewed its lease since
    if saved.left is not None:
        run = run.left(saved.left, tx.now())
    if known != run or saved.steps:
        tx.put_run(run, saved.steps)


def changed(
    tx: Transaction, request_id: str, rule: Callable[..., Transition], *, is_start: bool = False,
    person: Identity | None = None, **options: Any,
) -> Request | errors.SaysoError:  # fmt: skip
    """Change a request by a rule of `lifecycle`; return the error to raise after the commit, if any.

    If `person` stands in for the reviewer who has claimed the request, that claim is ignored, and nothing else.
    """
    request, now = tx.load(request_id), tx.now()
    if not tx.verify(request):
        return altered(request_id, is_start=is_start)
    ended = lapsed(request, now) if request.escalation is not None or lifecycle.is_due(request, now) else None
    if ended is not None:
        update(tx, ended)
        request = ended.request
    absent, seen = None, request
    claimed = request.claimed_by
    if person is not None and claimed is not None and request.state is State.PENDING and not claimed.is_same(person):
        found = in_force([tx.find_record(AWAY, claimed.folded)], now)
        if found and found[0].to.is_same(person):
            absent, seen = claimed, replace(request, claimed_by=person)
    try:
        transition = rule(seen, now=now, **options)
    except errors.SaysoError as refusal:
        return refusal  # raised after the commit, so that an expiry that was found is stored
    if absent is not None:
        transition.detail["on_behalf_of"] = absent.qualified
        if transition.request.claimed_by == person and transition.event not in {"assigned", "claimed"}:
            again = replace(transition.request, claimed_by=absent, claimed_at=request.claimed_at)
            transition = transition._replace(request=again)
        elif transition.event in {"voted", "approved"} and transition.request.votes[-1].claimed is not None:
            transition = transition._replace(request=_claimed_for(transition.request, absent))
    update(tx, transition)
    return transition.request


def _claimed_for(request: Request, absent: Identity) -> Request:
    """Return a request whose last approval, by who stands in, ended the claim of the person who is away."""
    last = request.votes[-1]
    vote = replace(last, claimed=absent)
    decision = vote if request.decision is last else request.decision
    return replace(request, votes=(*request.votes[:-1], vote), decision=decision)


def changed_if_any(tx: Transaction, request_id: str, rule: Callable[..., Transition | None], **options: Any) -> Request:
    """Change a request, in any state, by a rule that may find nothing to change."""
    request = tx.load(request_id)
    transition = rule(request, now=tx.now(), **options)
    if transition is None:
        return request
    update(tx, transition)
    return transition.request


def lapsed(request: Request, now: datetime) -> Transition | None:
    """Return the change of a request that time alone has caused, if any."""
    if lifecycle.is_due(request, now):
        return lifecycle.expire(request, now)
    return None if request.escalation is None else lifecycle.escalate(request, now)
