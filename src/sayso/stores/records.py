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
from sayso.model.canonical.tags import dumps, dumps_sorted
from sayso.model.journal import Entry
from sayso.model.reviewer import Identity


@dataclass(frozen=True)
class Record:
    """One small row.

    Attributes:
        kind: What it is, e.g. `token`; whoever keeps records of a kind owns the word.
        key: Which one it is; there is one record of this kind and key.
        body: JSON values; they are copied when they are kept.
        due: When something is to be done about it; None where nothing is.

    Raises:
        ValueError: The kind or the key is empty or no text that can be written, or the instant has no zone.
    """

    kind: str
    key: str
    body: dict[str, Any]
    due: datetime | None = None

    def __post_init__(self) -> None:
        for name, text in (("kind", self.kind), ("key", self.key)):
            if not text or not _is_writable(text):
                raise ValueError(
                    f"the {name} of a record is a text that can be written, not {text!a}; nothing was kept"
                )
        if self.due is not None and self.due.tzinfo is None:
            raise ValueError(f"record {self.key!r} is due at {self.due}, which has no zone; nothing was kept")


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class RecordRow(NamedTuple):
    """A record as stores write it: the body as sorted JSON, and the instant in microseconds."""

    kind: str
    key: str
    body: str
    due: int | None


def row_of(record: Record) -> RecordRow:
    """Return what is written of a record; raises `TypeError` or `ValueError` where its body is no JSON."""
    return RecordRow(
        record.kind, record.key, dumps_sorted(record.body), None if record.due is None else microseconds(record.due)
    )


def digest_of(row: RecordRow) -> str:
    """Return the digest of a whole record, its body opened, for the journal."""
    return hashlib.sha256(dumps(list(row)).encode()).hexdigest()


def record_of(row: RecordRow) -> Record:
    """Return the record of a row; raises `StoreCorruptError` where somebody wrote something else into it."""
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
    """A row of the journal that is about no request, written together with a record.

    Attributes:
        run_id: In which chain.
        event: What happened.
        by: Who did it.
        channel: Through which channel.
        detail: What else there is to say.
    """

    run_id: str
    event: str
    by: Identity
    channel: str
    detail: dict[str, Any]


class RecordTransaction(Protocol):
    """What a store offers to the verbs about records inside one transaction."""

    def find_record(self, kind: str, key: str) -> RecordRow | None:
        """Return a record, as this transaction left it."""
        ...

    def record_keys(self, kind: str) -> Sequence[str]:
        """Return the keys of a kind, in order."""
        ...

    def put_record(self, row: RecordRow) -> None:
        """Write a record, new or in place of the one of its kind and key."""
        ...

    def drop_record(self, kind: str, key: str) -> None:
        """Take a record away that is there."""
        ...

    def note(self, run_id: str, event: str, by: Identity, channel: str, detail: dict[str, Any]) -> None:
        """Write a row of the journal that is about no request."""
        ...

    def newest(self, run_id: str) -> Entry | None:
        """Return the newest row of a chain in which there are only notes.

        Until the end of the transaction nobody else writes a record and its row in that chain.
        """
        ...


class RecordVerbs(ABC):
    """The part of `sayso.stores.base.Store` that is about records."""

    @abstractmethod
    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T:
        """As `RequestStore._transact`."""

    @abstractmethod
    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        """Return a record as last committed."""

    @abstractmethod
    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        """Return records as last committed: by key, those after this one; or by due, those due by this microsecond."""

    def keep(self, record: Record, *, only_new: bool = False, note: Note | None = None) -> bool:
        """In one transaction, write a record, in place of the one of its kind and key.

        Args:
            record: What to keep.
            only_new: Where there is one of this kind and key already, write nothing and return False.
            note: What the journal says of it, written if the record is.

        Raises:
            TypeError: Its body is no JSON; `ValueError` for a number that JSON does not have.
        """
        return self._transact(_keep, row_of(record), note, only_new=only_new)

    def record(self, kind: str, key: str) -> Record | None:
        """Return a record as last committed; None where there is none."""
        row = self._record_row(kind, key)
        return None if row is None else record_of(row)

    def record_row(self, kind: str, key: str) -> RecordRow | None:
        """Return a record's row as last committed, for who has read it before and asks whether it still is that."""
        return self._record_row(kind, key)

    def records(
        self, kind: str, *, due_by: datetime | None = None, after: str = "", limit: int = 1000
    ) -> Sequence[Record]:
        """Return records of a kind as last committed, ordered by key.

        Args:
            kind: Which ones.
            due_by: Only those that are due at this instant or before, those first that are due for longest.
            after: The last key seen, to get what follows; not together with `due_by`.
            limit: How many at most.

        Raises:
            ValueError: Both `due_by` and `after` are given.
        """
        if due_by is not None and after:
            raise ValueError("records are read on after a key or by when they are due, not both")
        due = None if due_by is None else microseconds(due_by)
        return [record_of(row) for row in self._record_rows(kind, due, after, limit)]

    def count_records(self, kind: str, most: int) -> int:
        """Return how many records of a kind there are, as last committed; `most` where there are more."""
        return len(self._record_rows(kind, None, "", most))

    def swap(self, before: Record, after: Record, *, note: Note | None = None) -> bool:
        """In one transaction, write a record's next version if it is still as it was read, in body and due.

        Args:
            before: As it was read.
            after: What to write.
            note: What the journal says of it, written if the record is.

        Returns:
            Whether it was; where not, it was changed or dropped meanwhile, and nothing was written.

        Raises:
            ValueError: The two are not of one kind and key.
        """
        if (before.kind, before.key) != (after.kind, after.key):
            raise ValueError(f"{after.kind} {after.key!r} is no next version of {before.kind} {before.key!r}")
        return self._transact(_swap, row_of(before), row_of(after), note)

    def drop(self, kind: str, key: str) -> bool:
        """In one transaction, take a record away; return whether it was there."""
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
    """Take a record away; return whether it was there."""
    if tx.find_record(kind, key) is None:
        return False
    tx.drop_record(kind, key)
    return True
