"""One transaction of a store: how it changes a request and the small records beside it; and delegations.

Verbs change a request with `changed`: it loads, verifies, applies a rule of `sayso.model.lifecycle` and updates.
`insert` and `update` also write the records that a change requires: a delivery for each registered channel (sent by
`sayso.channels.outbox`), the time at which a request escalates, and the entry by which a server counts the open
requests of a token. Invariant: a change and its records become durable together, or not at all.

A record is a small JSON row, such as a token, a registered channel or a message to send. It has a kind, a key, a JSON
body and, optionally, the time when it is due. `RecordVerbs` are the verbs of `Store` that read and write records.

A delegation routes attention, never rights. What is assigned to the person who is away can be decided by the person who
stands in, who must be allowed to decide it anyway, and who also sees their mentions and messages. It adds no role and
no vote. It is in force from when it is written until its end by the store's clock. It is followed one step: if the
delegate is away too, their own delegation is not used. Each one is a record, and each person has a chain in the journal
for them. An ended one is dropped when the next one is written, or by a purge; the journal keeps it.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from sayso import clock, errors
from sayso.clock import instant, microseconds
from sayso.model import lifecycle
from sayso.model.canonical.json_tree import dumps, dumps_sorted
from sayso.model.journal import Entry
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, State
from sayso.model.reviewer import TOKENS, Delegation, Identity
from sayso.model.run import RunRecord, RunUpdate, Step
from sayso.stores.codec import altered


@dataclass(frozen=True)
class Record:
    """A small JSON row.

    Attributes:
        kind: What it is, e.g. `token`; the module that writes records of a kind owns the name.
        key: Unique among the records of its kind.
        body: JSON values; they are copied when stored.
        due: When it needs attention; None if never.

    Raises:
        ValueError: The kind or the key is empty or cannot be stored as text, or the instant has no time zone.
    """

    kind: str
    key: str
    body: dict[str, Any]
    due: datetime | None = None

    def __post_init__(self) -> None:
        for name, text in (("kind", self.kind), ("key", self.key)):
            if not text or text.encode(errors="ignore").decode() != text:
                raise ValueError(
                    f"the {name} of a record must be a valid, non-empty string, not {text!a}; nothing was written"
                )
        if self.due is not None and self.due.tzinfo is None:
            raise ValueError(f"record {self.key!r} is due at {self.due}, which has no time zone; nothing was written")


class RecordRow(NamedTuple):
    """A stored record: the body as sorted JSON, and the instant in microseconds."""

    kind: str
    key: str
    body: str
    due: int | None


def row_of_record(record: Record) -> RecordRow:
    """Return the row of a record; raises `TypeError` or `ValueError` if its body is not JSON."""
    return RecordRow(
        record.kind, record.key, dumps_sorted(record.body), None if record.due is None else microseconds(record.due)
    )


def digest_of(row: RecordRow) -> str:
    """Return the digest of a whole record with its body decrypted, for the journal."""
    return hashlib.sha256(dumps(list(row)).encode()).hexdigest()


def record_of(row: RecordRow) -> Record:
    """Return the record of a row; raises `StoreCorruptError` if the row was altered."""
    try:
        body: Any = json.loads(row.body)
        due = None if row.due is None else instant(row.due)
        if isinstance(body, dict):
            return Record(row.kind, row.key, cast("dict[str, Any]", body), due)
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        pass
    raise errors.StoreCorruptError(
        f"the record {row.kind} {row.key!r} cannot be read: its row was altered; nothing was changed, restore the store"
    )


T = TypeVar("T")
P = ParamSpec("P")


def verb(work: Callable[Concatenate[Transaction, P], T | errors.SaysoError]) -> Callable[Concatenate[Any, P], T]:
    """Make a method of a store from a function that is one transaction; the store passes the transaction first.

    An error that the function returns is raised after the commit. One that it raises rolls the transaction back.
    """

    @wraps(work)
    def method(store: Any, *args: P.args, **options: P.kwargs) -> T:
        return store._transact(work, *args, **options)  # noqa: SLF001  what every store implements for its verbs

    shown = signature(work)  # for `help`: callers pass no transaction
    _, *parameters = shown.parameters.values()
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    cast("Any", method).__signature__ = shown.replace(parameters=[own, *parameters])
    return method


class Note(NamedTuple):
    """A journal entry that is not about a request and is written together with a record.

    Attributes:
        run_id: The chain.
        event: What happened.
        by: Who did it.
        channel: The channel that was used.
        detail: Further facts.
    """

    run_id: str
    event: str
    by: Identity
    channel: str
    detail: dict[str, Any]


class RecordVerbs(ABC):
    """The verbs of `sayso.stores.base.Store` for records."""

    @abstractmethod
    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        """See `RequestStore._transact`."""

    @abstractmethod
    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        """Return a committed record."""

    @abstractmethod
    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        """Return committed records: by key, those after `after`; or by due time, those due by this microsecond."""

    def keep(self, record: Record, *, only_new: bool = False, note: Note | None = None) -> bool:
        """In one transaction, write a record, replacing the one with its kind and key.

        Args:
            record: The record.
            only_new: If there is a record with this kind and key, write nothing and return False.
            note: A journal entry that is written with the record.

        Raises:
            TypeError: Its body is not JSON; `ValueError` for a number that JSON does not have.
        """
        return self._transact(_keep, row_of_record(record), note, only_new=only_new)

    def record(self, kind: str, key: str) -> Record | None:
        """Return a committed record; None if there is none."""
        row = self._record_row(kind, key)
        return None if row is None else record_of(row)

    def records(
        self, kind: str, *, due_by: datetime | None = None, after: str = "", limit: int = 1000
    ) -> Sequence[Record]:
        """Return committed records of a kind, ordered by key.

        Args:
            kind: The kind.
            due_by: Only those due at this instant or before, the longest overdue first.
            after: The last key seen, to get the next page; not together with `due_by`.
            limit: The maximum number.

        Raises:
            ValueError: Both `due_by` and `after` are given.
        """
        if due_by is not None and after:
            raise ValueError("give due_by= or after=, not both")
        due = None if due_by is None else microseconds(due_by)
        return [record_of(row) for row in self._record_rows(kind, due, after, limit)]

    def records_of(self, kinds: Collection[str], limit: int = 1000) -> Sequence[Record]:
        """Return committed records of several kinds, ordered by kind and key; `limit` for each kind, on average."""
        return [record_of(row) for row in self._rows_of_kinds(sorted(kinds), limit * len(kinds))]

    def _rows_of_kinds(self, kinds: Sequence[str], limit: int) -> Sequence[RecordRow]:
        found = list[RecordRow]()
        for kind in kinds:
            found += self._record_rows(kind, None, "", limit - len(found))
        return found

    def count_records(self, kind: str, most: int) -> int:
        """Return how many committed records of a kind there are, at most `most`."""
        return len(self._record_rows(kind, None, "", most))

    @verb
    def swap(tx: Transaction, before: Record, after: Record, *, note: Note | None = None) -> bool:
        """In one transaction, write a record's next version, if body and due time have not changed since it was read.

        Args:
            before: The record as it was read.
            after: The new record.
            note: A journal entry that is written with the record.

        Returns:
            Whether it was written. If not, it was changed or dropped meanwhile, and nothing was written.

        Raises:
            ValueError: Their kinds or keys differ.
        """
        if (before.kind, before.key) != (after.kind, after.key):
            raise ValueError(f"{after.kind} {after.key!r} is not a next version of {before.kind} {before.key!r}")
        found = tx.find_record(before.kind, before.key)
        return found == row_of_record(before) and _keep(tx, row_of_record(after), note)

    def drop(self, kind: str, key: str) -> bool:
        """In one transaction, remove a record; return whether it existed."""
        return self._transact(drop_if_there, kind, key)


def _keep(tx: Transaction, row: RecordRow, note: Note | None, *, only_new: bool = False) -> bool:
    if only_new and tx.find_record(row.kind, row.key) is not None:
        return False
    tx.put_record(row)
    if note is not None:
        tx.note(*note)
    return True


def records_in(store: RecordVerbs, kind: str) -> Iterator[Record]:
    """Yield all records of a kind, page by page."""
    after = ""
    while found := store.records(kind, after=after):
        yield from found
        after = found[-1].key


def drop_if_there(tx: Transaction, kind: str, key: str) -> bool:
    """Remove a record; return whether it existed."""
    if tx.find_record(kind, key) is None:
        return False
    tx.drop_record(kind, key)
    return True


AWAY = "away"
MOST_DELEGATIONS = 1_000
"""How many delegations are read at most."""


def _read_delegation(row: RecordRow) -> Delegation:
    """Return the delegation in a record; raises `StoreCorruptError` if the record was altered."""
    record = record_of(row)
    try:
        by, to = (Identity(*map(str, record.body[name])) for name in ("by", "to"))
        found = Delegation(by, to, clock.instant(record.body["since"]), record.due or clock.instant(0))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise errors.StoreCorruptError(f"the delegation of {row.key!r} cannot be read: its row was altered") from error
    if found.by.folded != row.key:
        raise errors.StoreCorruptError(f"the delegation of {row.key!r} names somebody else: its row was altered")
    return found


def in_force(rows: Iterable[RecordRow | None], now: datetime) -> list[Delegation]:
    """Return the delegations that are in force; altered records are left out."""
    found: list[Delegation] = []
    for row in rows:
        with suppress(errors.StoreCorruptError):
            one = None if row is None else _read_delegation(row)
            found += [] if one is None or not one.counts(now) else [one]
    return found


def delegations(tx: Transaction, now: datetime) -> list[Delegation]:
    """Return the delegations that are in force in a transaction."""
    return in_force((tx.find_record(AWAY, key) for key in tx.record_keys(AWAY)[:MOST_DELEGATIONS]), now)


def stood_in_for(tx: Transaction, who: Identity, now: datetime) -> list[Identity]:
    """Return the people for whom somebody stands in now."""
    return [one.by for one in delegations(tx, now) if one.to.is_same(who)]


class Transaction(Protocol):
    """What a store offers to the verbs inside one transaction."""

    def now(self) -> datetime:
        """Return the store's time."""
        ...

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

        With `skip_locked`, raises `RunBusyError` while another transaction writes it, where that would be waited for.
        """
        ...

    def put_run(self, run: RunRecord, steps: Sequence[Step] = ()) -> None:
        """Write a new or changed run, and append steps to it."""
        ...

    def drop_steps(self, run_id: str) -> None:
        """Remove all steps of a run, and what they wait for."""
        ...

    def find_record(self, kind: str, key: str) -> RecordRow | None:
        """Return a record as written so far in this transaction."""
        ...

    def record_keys(self, kind: str) -> Sequence[str]:
        """Return the sorted keys of a kind."""
        ...

    def put_record(self, row: RecordRow) -> None:
        """Write a new record, or replace the one with its kind and key."""
        ...

    def drop_record(self, kind: str, key: str) -> None:
        """Remove a record that exists."""
        ...

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        """Write a journal entry that is not about a request."""
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


def insert(tx: Transaction, transition: Transition) -> None:
    """Write a new request, and its deliveries and other records."""
    tx.insert(transition)
    request = transition.request
    if request.requester.issuer == TOKENS:
        tx.put_record(_waiting(request))
    if request.escalation is not None:
        tx.put_record(row_of_record(Record(ESCALATION, request.id, {}, request.created_at + request.escalation.after)))
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
    update(tx, transition)
    return transition.request


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
