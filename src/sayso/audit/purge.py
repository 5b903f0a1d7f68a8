"""Purges what is old: the contents of requests that ended before a day, the steps of ended runs, and old absences.

Each request is purged in a transaction of its own, with a row in the journal; the rows of the journal stay and still
verify. At the end nothing of it is left in the files. What waits, is approved, runs or has an unknown outcome is never
touched, nor what belongs to a run that has not ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from sayso import errors
from sayso.model.journal import ended_at
from sayso.model.request import FINAL, LIVE, Request
from sayso.model.reviewer import Identity
from sayso.model.run import RunState
from sayso.stores.base import Filter, Store
from sayso.stores.filter import RunFilter
from sayso.stores.review import requests_in, rows_of

_PAGE = 200
_WORDS = ('"comment":"', '"reason":"')


class Purged(NamedTuple):
    """What was purged, or would be.

    Attributes:
        requests: Of how many requests.
        runs: Of how many runs.
        live: To how many requests something can still happen, so that they were left alone.
        needed: How many are final, and belong to a run that has not ended; left alone, too.
        words: How many rows of the journal keep people's words about these requests: they are never rewritten.
        is_scrubbed: Whether nothing remains in the files.
    """

    requests: int
    runs: int
    live: int
    needed: int
    words: int
    is_scrubbed: bool


def purge(store: Store, *, before: datetime, by: Identity, channel: str, is_dry: bool = False) -> Purged:
    """Remove what requests and runs were about that ended before an instant; a dry one only counts.

    Raises:
        StoreError: One of its kinds; what was removed by then stays removed, and the next try goes on.
    """
    if not is_dry:
        store.sweep()
        store.drop_delegations(before=min(before, store.now()))
    requests = needed = words = 0
    for request in requests_in(store, Filter(states=FINAL)):
        if request.purged_at is not None or ended_at(request) >= before:
            continue
        if _is_needed(store, request.run_id) if is_dry else not _is_gone(store, request, before, by, channel):
            needed += 1
            continue
        requests += 1
        rows = rows_of(store, run_id=request.run_id, request_id=request.id)
        words += sum(any(word in row.detail for word in _WORDS) for row in rows)
    runs = 0
    for run_id in list(_old_runs(store, before)):
        runs += 1
        if not is_dry:
            store.purge_run(run_id, by, before=before, channel=channel)
    live = store.count(Filter(states=LIVE))
    return Purged(requests, runs, live, needed, words, is_dry or store.scrub())


def _is_gone(store: Store, request: Request, before: datetime, by: Identity, channel: str) -> bool:
    try:
        store.purge(request.id, by, before=before, channel=channel)
    except errors.PurgeRefusedError:  # what is needed only the store knows, at that moment
        return False
    return True


def _is_needed(store: Store, run_id: str) -> bool:
    try:
        return store.get_run(run_id).run.state is not RunState.ENDED
    except errors.RunNotFoundError:
        return False


def _old_runs(store: Store, before: datetime) -> Iterator[str]:
    cursor: str | None = None
    while True:
        found, cursor = store.runs(RunFilter(frozenset({RunState.ENDED})), cursor=cursor, limit=_PAGE)
        yield from (run.id for run in found if run.updated_at < before and store.get_run(run.id).steps)
        if cursor is None:
            return
