"""Verification of the journal: that it is complete, and that the requests match it. Proofs are in the other modules.

`checkpoint` writes the signed heads of all chains to the journal, and to an anchor file outside the store. `export`
writes receipts, which prove one request to somebody without access to the store, and rows for other systems, and purges
the content of old requests. Nothing here changes an existing row of the journal.

Every transition has a row, written in the same transaction and chained by hash to the previous row of its run. `verify`
finds rows that were changed, removed, swapped or inserted; requests that differ from their last row or from what was
asked; grants, budgets and a stop that differ from theirs; impossible transitions; and a chain whose end was removed
while one of its requests still exists. By itself it cannot find an end that was removed together with its requests, nor
a chain that was computed anew up to its end. The rows that a checkpoint or an anchor names (`ExpectedRow`) reveal both.
Rows are read page by page, so memory grows with the number of requests, not of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sayso import errors
from sayso.model.journal import KINDS, Entry, Head, RowDigests, Trail, chained, first_link
from sayso.stores.base import Store
from sayso.stores.grants import KINDS as RECORDS
from sayso.stores.grants import chain_of, digest_in
from sayso.stores.records import digest_of, records_in, row_of_record
from sayso.stores.review import rows_of

__all__ = ["Break", "Entry", "ExpectedRow", "Verified", "entries", "row_problem", "verify"]


_PAGE = 1000
_OF_RECORDS = tuple(chain_of(kind, "") for kind in RECORDS)
_RECORDS = "sayso:records"  # the run id of a break in a record that cannot be read


class Break(NamedTuple):
    """The first error of a chain.

    Attributes:
        run_id: The chain.
        seq: The position of the invalid row, or of the last row of the request that does not match it.
        reason: The problem, as a text.
    """

    run_id: str
    seq: int
    reason: str


class Verified(NamedTuple):
    """The result of `verify`.

    Attributes:
        rows: The number of journal rows that were read.
        chains: The number of chains that they form.
        broken: The first error of every chain that has one.
        requests: The number of requests that were compared with their rows.
        unopened: How many of these are encrypted with an unavailable key; only their state and position were compared.
    """

    rows: int
    chains: int
    broken: tuple[Break, ...]
    requests: int = 0
    unopened: int = 0


class ExpectedRow(NamedTuple):
    """A row that must be in the journal, because a checkpoint or an anchor names it.

    Attributes:
        head: The row's chain, position and link.
        witness: The source that names it, for messages, e.g. `the anchor of 2026-01-31`.
    """

    head: Head
    witness: str


class _Rows(NamedTuple):
    """The last row read of a request, and the state that its rows describe so far."""

    run_id: str
    seq: int
    link: str
    trail: Trail


class _Walk:
    """The state of a walk over the journal."""

    def __init__(self, known: Iterable[ExpectedRow]) -> None:
        self.rows = self.chains = 0
        self.broken: dict[str, Break] = {}
        self.trails: dict[str, _Rows] = {}
        self.records: dict[str, Entry] = {}  # the newest row of each chain about a record
        self._known: dict[str, dict[int, list[ExpectedRow]]] = {}
        for one in known:
            self._known.setdefault(one.head.run_id, {}).setdefault(one.head.seq, []).append(one)
        self._here: dict[int, list[ExpectedRow]] = {}
        self._last = Entry("", 0, 0, "", "", "", "", "", "")

    def step(self, entry: Entry) -> None:
        self.rows += 1
        last = self._last
        if entry.run_id != last.run_id:
            self._end()
            self.chains += 1
            self._here = self._known.pop(entry.run_id, {})
            last = last._replace(seq=0, link=first_link(str(entry.run_id)))
        if entry.run_id not in self.broken:
            problem = row_problem(entry, last.link, last.seq + 1)
            wrong = None if problem is None else Break(str(entry.run_id), last.seq + 1, problem)
            unlike = [one for one in self._here.pop(entry.seq, ()) if one.head.link != entry.link]
            if wrong is None and unlike:
                problem = f"row {entry.seq} does not match {unlike[0].witness}: the chain was rewritten"
                wrong = Break(entry.run_id, entry.seq, problem)
            if wrong is None and entry.request_id:
                self.trails[entry.request_id], wrong = _next_rows(self.trails.get(entry.request_id), entry)
            if wrong is not None:
                self.broken[entry.run_id] = wrong
            elif entry.run_id.startswith(_OF_RECORDS):
                self.records[entry.run_id] = entry
        self._last = entry

    def end(self) -> None:
        self._end()
        for run_id, known in self._known.items():
            seq, (one, *_) = max(known.items())
            reason = f"{one.witness} has {seq} rows of it, but none is here: the chain was lost"
            self.broken.setdefault(run_id, Break(run_id, seq, f"{reason}, or an older copy of the store was restored"))

    def _end(self) -> None:
        run_id, last = self._last.run_id, self._last.seq
        if self._here and run_id not in self.broken:
            seq, (one, *_) = max(self._here.items())
            reason = f"it ends with row {last}, but {one.witness} has row {seq}: its end was cut off"
            self.broken[run_id] = Break(run_id, last, f"{reason}, or an older copy of the store was restored")
        self._here = {}


def entries(store: Store, *, run_id: str | None = None, request_id: str | None = None) -> Iterator[Entry]:
    """Yield the rows of the journal by run and position, decrypted if the key is available."""
    for entry in rows_of(store, run_id=run_id, request_id=request_id):
        yield store.legible(entry)


def _all_row_digests(store: Store, run_id: str | None) -> Iterator[RowDigests]:
    after = ""
    while True:
        page = store.row_digests(run_id=run_id, after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].request_id


def verify(store: Store, *, run_id: str | None = None, known: Iterable[ExpectedRow] = ()) -> Verified:
    """Recompute every link of one chain or of all chains, and compare every request with its rows.

    Args:
        run_id: Verify only the chain of this run.
        known: Rows that must exist; rows of chains that are not verified are ignored.
    """
    walk = _Walk(one for one in known if run_id in {None, one.head.run_id})
    requests = unopened = 0
    for entry in rows_of(store, run_id=run_id):
        walk.step(entry)
    walk.end()
    missing = dict(walk.trails)
    for row in _all_row_digests(store, run_id):
        requests += 1
        unopened += row.asked is None
        trail = missing.pop(row.request_id, None)
        if row.run_id in walk.broken or _mismatch(row, trail) is None:
            continue
        wrong = _settled_mismatch(store, row)
        if wrong is not None:
            walk.broken[row.run_id] = wrong
    for request_id, trail in missing.items():
        reason = f"{request_id} is missing, although row {trail.seq} is about it"
        walk.broken.setdefault(trail.run_id, Break(trail.run_id, trail.seq, reason))
    try:
        for wrong in _record_mismatches(store, run_id, walk.records):
            walk.broken.setdefault(wrong.run_id, wrong)
    except errors.StoreSealedError as error:
        if not unopened:  # otherwise the key is unavailable, and nothing can be compared
            walk.broken.setdefault(_RECORDS, Break(_RECORDS, 1, str(error)))
    except errors.StoreCorruptError as error:
        walk.broken.setdefault(_RECORDS, Break(_RECORDS, 1, str(error)))
    return Verified(walk.rows, walk.chains, tuple(walk.broken.values()), requests, unopened)


def _record_mismatches(store: Store, run_id: str | None, newest: dict[str, Entry]) -> Iterator[Break]:
    """Yield a break for each record that does not match the newest row of its chain."""
    found = _records(store, run_id)
    for chain in sorted(found.keys() | newest.keys()):
        entry, digests = newest.get(chain), found.get(chain, [])
        while True:  # the walk is not one transaction, so compare again until nothing changes
            left = None if entry is None else digest_in(entry.detail)
            if digests == ([] if left is None else [left]):
                break
            rows = list(rows_of(store, run_id=chain))
            again = rows[-1] if rows else None
            if again == entry:
                seq = 1 if entry is None else entry.seq
                yield Break(chain, seq, f"its record does not match row {seq}: it was altered, removed or restored")
                break
            entry, digests = again, _records(store, chain).get(chain, [])


def _records(store: Store, run_id: str | None) -> dict[str, list[str]]:
    """Return the digests of the records that have rows in the journal, by chain."""
    found: dict[str, list[str]] = {}
    for record in (one for kind in RECORDS for one in records_in(store, kind)):
        chain = chain_of(record.kind, record.key)
        if run_id in {None, chain}:
            found.setdefault(chain, []).append(digest_of(row_of_record(record)))
    return found


def row_problem(entry: Entry, before: str, seq: int) -> str | None:
    """Return why a row is invalid at this position, after the row with the link `before`; None if it is valid."""
    if tuple(map(type, entry)) != KINDS:  # SQLite may return bytes for a text column, and they have no link
        return f"row {seq} has a value of a kind that sayso never writes"
    if entry.seq != seq:
        return f"row {seq} is missing (row {entry.seq} follows)"
    if chained(before, *entry[:-1]).link != entry.link:
        return f"row {seq} does not follow from row {seq - 1}: one of them was changed"
    return None


def _next_rows(before: _Rows | None, entry: Entry) -> tuple[_Rows, Break | None]:
    """Return a request's state after its next row, and an error if that row is not a possible transition."""
    known = before.trail if before is not None and before.run_id == entry.run_id else Trail()
    trail, problem = known.after(entry.event, entry.detail)
    rows = _Rows(entry.run_id, entry.seq, entry.link, trail)
    if problem is None:
        return rows, None
    reason = f"row {entry.seq} is not possible there: {entry.request_id} was {problem}"
    return rows, Break(entry.run_id, entry.seq, reason)


def _mismatch(row: RowDigests, rows: _Rows | None) -> Break | None:
    """Return how a request differs from its rows; None if it does not."""
    if rows is None or rows.run_id != row.run_id:
        reason = f"{row.request_id} has no rows in this chain: they were cut off, or it was inserted by hand"
        return Break(row.run_id, 1, reason)
    if row.link != rows.link:
        reason = f"{row.request_id} does not match its last row, {rows.seq}: rows after that were cut off"
        return Break(row.run_id, rows.seq, f"{reason}, or its own row was restored or changed")
    if row.state not in rows.trail.states:
        left = " or ".join(sorted(rows.trail.states))
        reason = f"{row.request_id} is {row.state}, but row {rows.seq} left it {left}"
        return Break(row.run_id, rows.seq, reason)
    if row.asked is not None and row.asked != rows.trail.asked:
        reason = (
            f"{row.request_id} does not match what was asked: its row was rewritten, or was sealed with another key"
        )
        return Break(row.run_id, rows.seq, reason)
    if row.row_digest is not None and row.row_digest != rows.trail.row_digest:
        reason = f"the row of {row.request_id} does not match row {rows.seq} of the journal: it was rewritten"
        return Break(row.run_id, rows.seq, reason)
    return None


def _settled_mismatch(store: Store, row: RowDigests) -> Break | None:
    """Compare one request again until it does not change meanwhile, because the walk is not one transaction."""
    while True:
        rows = None
        for entry in rows_of(store, run_id=row.run_id, request_id=row.request_id):
            rows, _ = _next_rows(rows, entry)
        again = next((a for a in _all_row_digests(store, row.run_id) if a.request_id == row.request_id), None)
        if again is None or again.link == row.link:
            return _mismatch(row, rows)
        row = again
