"""The small JSON rows beside the requests, such as a token, a registered channel or a message to send; delegations.

A record has a kind, a key, a JSON body and, optionally, the time when it is due. `RecordVerbs` are the verbs of `Store`
that read and write records; `RecordTransaction` is what they need of a transaction.

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
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from sayso import clock, errors
from sayso.clock import instant, microseconds
from sayso.model.canonical.json_tree import dumps, dumps_sorted
from sayso.model.reviewer import Delegation, Identity


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


class RecordTransaction(Protocol):
    """The part of a transaction that reads and writes records."""

    def now(self) -> datetime:
        """Return the store's time."""
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


T = TypeVar("T")
P = ParamSpec("P")
Tx = TypeVar("Tx", bound=RecordTransaction)


def verb(work: Callable[Concatenate[Tx, P], T | errors.SaysoError]) -> Callable[Concatenate[Any, P], T]:
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
    def swap(tx: RecordTransaction, before: Record, after: Record, *, note: Note | None = None) -> bool:
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


def _keep(tx: RecordTransaction, row: RecordRow, note: Note | None, *, only_new: bool = False) -> bool:
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


def drop_if_there(tx: RecordTransaction, kind: str, key: str) -> bool:
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


def delegations(tx: RecordTransaction, now: datetime) -> list[Delegation]:
    """Return the delegations that are in force in a transaction."""
    return in_force((tx.find_record(AWAY, key) for key in tx.record_keys(AWAY)[:MOST_DELEGATIONS]), now)


def stood_in_for(tx: RecordTransaction, who: Identity, now: datetime) -> list[Identity]:
    """Return the people for whom somebody stands in now."""
    return [one.by for one in delegations(tx, now) if one.to.is_same(who)]
