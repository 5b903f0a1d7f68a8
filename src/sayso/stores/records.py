"""Records: small JSON rows beside requests, such as tokens, registered channels and messages to send.

A record has a kind, a key, a JSON body and, optionally, the time when it is due. `RecordVerbs` are the verbs of `Store`
that read and write records.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from sayso import errors
from sayso.clock import instant, microseconds
from sayso.model.canonical.json_tree import dumps, dumps_sorted
from sayso.model.journal import Entry
from sayso.model.reviewer import Identity


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
            if not text or not _is_writable(text):
                raise ValueError(
                    f"the {name} of a record must be a valid, non-empty string, not {text!a}; nothing was written"
                )
        if self.due is not None and self.due.tzinfo is None:
            raise ValueError(f"record {self.key!r} is due at {self.due}, which has no time zone; nothing was written")


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class RecordRow(NamedTuple):
    """A stored record: the body as sorted JSON, and the instant in microseconds."""

    kind: str
    key: str
    body: str
    due: int | None


def row_of(record: Record) -> RecordRow:
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


class RecordTransaction(Protocol):
    """What a store offers to the verbs for records inside one transaction."""

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
        return self._transact(_keep, row_of(record), note, only_new=only_new)

    def record(self, kind: str, key: str) -> Record | None:
        """Return a committed record; None if there is none."""
        row = self._record_row(kind, key)
        return None if row is None else record_of(row)

    def record_row(self, kind: str, key: str) -> RecordRow | None:
        """Return a committed record's row, for a caller that checks whether it has changed."""
        return self._record_row(kind, key)

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

    def count_records(self, kind: str, most: int) -> int:
        """Return how many committed records of a kind there are, at most `most`."""
        return len(self._record_rows(kind, None, "", most))

    def swap(self, before: Record, after: Record, *, note: Note | None = None) -> bool:
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
        return self._transact(_swap, row_of(before), row_of(after), note)

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


def _swap(tx: RecordTransaction, old: RecordRow, new: RecordRow, note: Note | None) -> bool:
    return tx.find_record(old.kind, old.key) == old and _keep(tx, new, note)


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
