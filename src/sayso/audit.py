"""Reading the journal, and finding out whether it is whole.

Every transition stands in the journal, written in the transaction that made it, and chained by hash to the one
before it in its run. `verify` finds rows that were changed, removed, swapped or inserted inside a chain. That the end
of a chain, or a whole chain, was cut off cannot be known from the journal alone, nor that somebody who can write the
file computed a chain anew up to its end; a copy of the newest link, kept elsewhere, shows both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sayso.model.entry import Entry, chained, first_link
from sayso.stores.base import Store

__all__ = ["Break", "Verified", "entries", "verify"]

_PAGE = 1000
_KINDS = (str, int, int, str, str, str, str, str, str)


class Break(NamedTuple):
    """The first place where a chain does not hold.

    Attributes:
        run_id: Which chain.
        seq: The row that should stand there.
        reason: What is wrong with it.
    """

    run_id: str
    seq: int
    reason: str


class Verified(NamedTuple):
    """What a walk over the journal found.

    Attributes:
        rows: How many rows were read.
        chains: In how many chains.
        broken: The first break of every chain that has one.
    """

    rows: int
    chains: int
    broken: tuple[Break, ...]


def entries(store: Store, *, run_id: str | None = None, request_id: str | None = None) -> Iterator[Entry]:
    """Yield the journal by run and place, read page by page."""
    after: tuple[str, int] | None = None
    while True:
        page = store.journal(run_id=run_id, request_id=request_id, after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].run_id, page[-1].seq


def verify(store: Store, *, run_id: str | None = None) -> Verified:
    """Walk the chains of one run or of all, and compute every link anew."""
    rows, chains, broken = 0, 0, list[Break]()
    before, last = "", Entry("", 0, 0, "", "", "", "", "", "")
    is_broken = False
    for entry in entries(store, run_id=run_id):
        rows += 1
        if entry.run_id != last.run_id:
            chains, before, is_broken = chains + 1, first_link(str(entry.run_id)), False
            last = last._replace(seq=0)
        if not is_broken:
            wrong = _wrong(entry, before, last.seq + 1)
            if wrong is not None:
                broken.append(wrong)
                is_broken = True
        before, last = entry.link, entry
    return Verified(rows, chains, tuple(broken))


def _wrong(entry: Entry, before: str, seq: int) -> Break | None:
    if tuple(map(type, entry)) != _KINDS:  # a database takes bytes for text, and then nothing can be computed
        return Break(str(entry.run_id), seq, f"row {seq} holds a value of a kind that is never written")
    if entry.seq != seq:
        return Break(entry.run_id, seq, f"row {seq} is missing (row {entry.seq} follows)")
    if chained(before, *entry[:-1]).link != entry.link:
        return Break(entry.run_id, seq, f"row {seq} does not follow from row {seq - 1}: one of them was changed")
    return None
