"""What the lines of a JSON-lines store add up to, in this process's memory.

Requests stay as the columns that were written, and are decoded when somebody asks for them. A line that this process
wrote is applied as one that it read, so that what it knows is always what the file says.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sayso import errors
from sayso.clock import microseconds
from sayso.model.entry import Anchor, Entry, first_link
from sayso.model.request import LIVE, Request, State
from sayso.model.run import Step
from sayso.stores.base import Filter, Page
from sayso.stores.memory_runs import RunShelf, run_of, run_values
from sayso.stores.memory_slips import SlipShelf
from sayso.stores.row import Row, anchor_of, is_borne_out, request_of
from sayso.stores.run_verbs import NOT_DECIDED
from sayso.stores.seal import Seal
from sayso.stores.select import read_cursor

__all__ = ["JsonlState"]

_NOTHING: dict[str, Any] = dict.fromkeys(Row._fields)
_LIVE = frozenset(state.value for state in LIVE)


class JsonlState:
    """Requests, the journal and runs.

    Attributes:
        rows: Columns of requests by id, in the order in which they were asked.
        shapes: Texts of shapes, by digest.
        shelf: The runs.
        slip_shelf: The slips.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self.rows: dict[str, Row] = {}
        self.shapes: dict[str, str] = {}
        self.shelf = RunShelf(self._is_decided)
        self.slip_shelf = SlipShelf(seal)
        self._ids: list[str] = []  # cursors are places here, from 1
        self._live: dict[str, int] = {}  # places of those to which something can still happen
        self._holders: dict[str, str] = {}
        self._chains: dict[str, list[Entry]] = {}
        self._known: dict[str, Request] = {}
        self._borne_out = set[str]()  # requests that surely stand as the journal left them

    # -- writing -----------------------------------------------------------------------------------------------

    def apply(self, record: Mapping[str, Any]) -> None:
        """Take in what a line says; raises `LookupError`, `TypeError` or `ValueError` where it says nothing usable."""
        self.shapes.update(record.get("shapes", {}))
        for columns in record.get("asked", ()):
            self._put(Row(**{**_NOTHING, **columns}))
        for columns in record.get("changed", ()):
            self._put(self.rows[columns["id"]]._replace(**columns))
        for entry in record.get("journal", ()):
            self._chains.setdefault(entry[0], []).append(Entry(*entry))
            self._borne_out.discard(entry[3])
        for run in record.get("runs", ()):
            self.shelf.put(run_of(run))
        for run_id, _, place, body, waits in record.get("steps", ()):
            self.shelf.add(run_id, (Step(place, body, waits),))
        for run_id in record.get("dropped", ()):
            self.shelf.drop(run_id)
        self.slip_shelf.apply(record.get("slips", ()))

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield what lines have to say for all this; a file of them says nothing that does not stand any more."""
        yield {"shapes": self.shapes}
        for row in self.rows.values():
            yield {"asked": [{name: value for name, value in row._asdict().items() if value is not None}]}
        for chain in self._chains.values():
            yield {"journal": chain}
        for run, steps in ((kept.run, kept.steps) for kept in self.shelf.everything()):
            written = [(run.id, n, step.place, step.body, step.waits) for n, step in enumerate(steps, 1)]
            yield {"runs": [run_values(run)], "steps": written}
        yield {"slips": self.slip_shelf.everything()}

    def remember(self, request: Request) -> None:
        """Know already what a row means that was just written here and applied."""
        self._known[request.id] = request
        self._borne_out.add(request.id)

    def _put(self, row: Row) -> None:
        before = self.rows.get(row.id)
        if before is None:
            self._ids.append(row.id)
            self._live[row.id] = len(self._ids)
        elif before.holds and self._holders.get(before.fingerprint) == row.id:
            del self._holders[before.fingerprint]
        self.rows[row.id] = row
        self._known.pop(row.id, None)
        self._borne_out.discard(row.id)
        if row.holds:
            self._holders[row.fingerprint] = row.id
        if row.state not in _LIVE:
            self._live.pop(row.id, None)

    # -- reading -----------------------------------------------------------------------------------------------

    def request(self, request_id: str) -> Request:
        """Return a request; raises `RequestNotFoundError`."""
        known = self._known.get(request_id)
        if known is None:
            row = self.rows.get(request_id)
            if row is None:
                raise errors.RequestNotFoundError(request_id)
            known = self._known[request_id] = request_of(row, self._seal, self._shape)
        return known

    def _shape(self, digest: str) -> str:
        try:
            return self.shapes[digest]
        except KeyError:
            raise errors.StoreCorruptError(f"the shape {digest[:12]} of a request is missing") from None

    def held(self, fingerprint: str) -> Request | None:
        """Return the request that holds a fingerprint."""
        request_id = self._holders.get(fingerprint)
        return None if request_id is None else self.request(request_id)

    def stands(self, request_id: str) -> bool:
        """Say whether a request is as the newest row about it left it."""
        if request_id in self._borne_out:
            return True
        row = self.rows[request_id]
        newest = next((e for e in reversed(self._chains.get(row.run_id, ())) if e.request_id == request_id), None)
        if not is_borne_out(row, None if newest is None else (newest.link, newest.detail), self._seal):
            return False
        self._borne_out.add(request_id)
        return True

    def head(self, run_id: str) -> tuple[int, str]:
        """Return place and link of the last row of a chain."""
        chain = self._chains.get(run_id)
        return (chain[-1].seq, chain[-1].link) if chain else (0, first_link(run_id))

    def match(self, prefix: str, limit: int) -> Sequence[str]:
        """Return ids that begin so."""
        return list(islice((request_id for request_id in self._ids if request_id.startswith(prefix)), limit))

    def due(self, now: int) -> Sequence[str]:
        """Return the ids of requests whose end is reached, and of all that are running."""
        rows = map(self.rows.__getitem__, self._live)
        return [r.id for r in rows if r.state == State.RUNNING or (r.ends_at is not None and r.ends_at <= now)]

    def page(self, wanted: Filter, cursor: str | None, limit: int, *, newest: bool) -> Page:
        """Return a page of requests."""
        found = list(islice(self._matching(wanted, read_cursor(cursor), newest=newest), limit + 1))
        more = len(found) > limit
        return Page(
            tuple(self.request(request_id) for _, request_id in found[:limit]),
            str(found[limit - 1][0]) if more else None,
        )

    def count(self, wanted: Filter) -> int:
        """Return how many requests pass."""
        return sum(1 for _ in self._matching(wanted, None, newest=False))

    def _matching(self, wanted: Filter, after: int | None, *, newest: bool) -> Iterator[tuple[int, str]]:
        beyond = range(1, len(self._ids) + 1)
        if after is not None:
            beyond = range(1, min(after, len(beyond) + 1)) if newest else range(after + 1, len(beyond) + 1)
        places: Sequence[int] = beyond
        if wanted.states and wanted.states <= LIVE:  # what is due is live, too
            places = [place for place in self._live.values() if place in beyond]
        for place in reversed(places) if newest else places:
            request_id = self._ids[place - 1]
            if _passes(self.rows[request_id], wanted):
                yield place, request_id

    def journal(
        self, run_id: str | None, request_id: str | None, after: tuple[str, int] | None, limit: int
    ) -> Sequence[Entry]:
        """Return rows of the journal."""
        if run_id is None and request_id is not None:
            row = self.rows.get(request_id)
            run_id = "" if row is None else row.run_id
        run, seq = after or ("", 0)
        wanted = sorted(each for each in self._chains if each >= run) if run_id is None else [run_id]
        return list(islice(self._rows(wanted, request_id, run, seq), limit))

    def _rows(self, runs: Sequence[str], request_id: str | None, run: str, seq: int) -> Iterator[Entry]:
        for each in runs:
            if each < run:
                continue
            chain = self._chains.get(each, [])
            begin = bisect_left(chain, seq + 1, key=lambda entry: entry.seq) if each == run else 0
            for entry in islice(chain, begin, None):
                if request_id is None or entry.request_id == request_id:
                    yield entry

    def anchors(self, run_id: str | None, after: str, limit: int) -> Sequence[Anchor]:
        """Return how requests are tied to the journal."""
        rows = self.rows.values()
        found = heapq.nsmallest(limit, (r.id for r in rows if r.id > after and run_id in {None, r.run_id}))
        return [anchor_of(self.rows[request_id], self._seal) for request_id in found]

    def marks(self, request_ids: Sequence[str]) -> dict[str, object]:
        """Return what differs after each change of these requests."""
        return {request_id: self.rows[request_id].link for request_id in request_ids if request_id in self.rows}

    def _is_decided(self, request_id: str) -> bool:
        row = self.rows.get(request_id)
        return row is not None and row.state not in NOT_DECIDED


def _state(row: Row, wanted: Filter) -> str:
    is_due = wanted.at is not None and row.ends_at is not None and row.ends_at <= microseconds(wanted.at)
    return State.EXPIRED if is_due else row.state


def _passes(row: Row, wanted: Filter) -> bool:
    return (
        (not wanted.states or _state(row, wanted) in wanted.states)
        and wanted.kind in {None, row.kind}
        and wanted.run_id in {None, row.run_id}
        and (wanted.name is None or (wanted.name in {row.name, row.tool}))
        and wanted.risk in {None, row.risk}
        and (wanted.claimed_by is None or wanted.claimed_by.folded == row.claimed_by)
        and (wanted.text is None or wanted.text.casefold() in row.search)
    )
