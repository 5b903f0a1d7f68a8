"""The verbs of people: list, decide, read the journal, and purge."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sayso import clock, errors
from sayso.model import lifecycle, teamwork
from sayso.model.journal import Anchor, Entry, Head, purged
from sayso.model.request import Call, Decision, Request
from sayso.model.reviewer import Identity
from sayso.model.run import RunState
from sayso.stores.filter import Filter, Page
from sayso.stores.records import drop_if_there
from sayso.stores.request_store import RequestStore
from sayso.stores.transaction import CHANNEL, RESULT, SUBMISSION, Transaction, changed, delivery_kind

_PAGE, _REQUESTS = 1000, 500


class ReviewStore(RequestStore):
    """What reviewers and operators do: list, decide, read the journal, and purge."""

    @abstractmethod
    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        """Return at most `limit` ids that begin with `prefix`."""

    @abstractmethod
    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        """Return a page of requests in the order in which they were asked, or in the opposite order with `newest`.

        Raises:
            ValueError: The cursor is not from this list.
        """

    @abstractmethod
    def count(self, wanted: Filter) -> int:
        """Return how many requests the list would have."""

    @abstractmethod
    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        """Return journal entries, ordered by run and position; `after` is the (run, seq) of the last one seen."""

    @abstractmethod
    def anchors(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[Anchor]:
        """Return how requests are tied to the journal, ordered by id; `after` is the last id seen."""

    def legible(self, entry: Entry) -> Entry:
        """Return a journal entry with its words decrypted; its link covers the encrypted words."""
        return entry

    def decide(
        self,
        request_id: str,
        decision: Decision,
        *,
        roles: Collection[str],
        seen: str | None,
        edited: Call | None = None,
    ) -> Request:
        """In one transaction, record a decision; the store sets its `at` and its `fingerprint`.

        Raises:
            RequestNotFoundError: No request has this id.
            DecisionRefusedError: Or a subclass; nothing changed.
        """
        return self._transact(
            changed, request_id, lifecycle.decide, decision=decision, roles=roles, seen=seen, edited=edited,
            person=decision.by,
        )  # fmt: skip

    def undo(self, request_id: str, by: Identity, *, channel: str) -> Request:
        """In one transaction, undo an approval or a vote of this person; raises `NotUndoneError`.

        If an undo and a start arrive at once, one of them is refused.
        """
        return self._transact(changed, request_id, lifecycle.undo, by=by, channel=channel)

    def claim(self, request_id: str, by: Identity, *, roles: Collection[str], channel: str) -> Request:
        """In one transaction, claim a pending request for a reviewer."""
        return self._transact(changed, request_id, teamwork.claim, by=by, person=by, roles=roles, channel=channel)

    def release(self, request_id: str, by: Identity, *, roles: Collection[str], force: bool, channel: str) -> Request:
        """In one transaction, release a claimed request."""
        return self._transact(
            changed, request_id, teamwork.release, by=by, person=by, roles=roles, force=force, channel=channel
        )

    def extend(
        self, request_id: str, by: Identity, *, roles: Collection[str], span: timedelta, channel: str
    ) -> Request:
        """In one transaction, set the end of a request or approval to `span` from now."""
        return self._transact(
            changed, request_id, teamwork.extend, by=by, person=by, roles=roles, span=span, channel=channel
        )

    def heads(self) -> Iterator[Head]:
        """Yield the newest entry of every chain, ordered by run."""
        last: Head | None = None
        for entry in rows_of(self):
            if last is not None and entry.run_id != last.run_id:
                yield last
            last = Head(entry.run_id, entry.seq, entry.link)
        if last is not None:
            yield last

    def purge(self, request_id: str, by: Identity, *, before: datetime, channel: str) -> Request:
        """In one transaction, remove the content of a request that ended before an instant; see `sayso.model.journal`.

        The bytes may stay in the files until `scrub`. Does nothing if it was already purged.

        Raises:
            RequestNotFoundError: No request has this id.
            PurgeRefusedError: The request is not final, its run still needs it, or it ended later.
        """
        return self._transact(_purged, request_id, by, before, channel)

    def purge_run(self, run_id: str, by: Identity, *, before: datetime, channel: str) -> None:
        """In one transaction, remove all steps of a run that ended before an instant; it is never run again.

        Raises:
            RunNotFoundError: No run has this id.
            PurgeRefusedError: It has not ended, or ended later.
        """
        self._transact(_purged_run, run_id, by, before, channel)

    def scrub(self) -> bool:
        """Erase what was purged from the files of the store.

        Returns:
            Whether everything is erased; if not, others were reading, and it must be tried again.
        """
        return True


# -- page by page --------------------------------------------------------------------------------------------------


def requests_in(
    store: ReviewStore, wanted: Filter, *, newest: bool = False, since: datetime | None = None
) -> Iterator[Request]:
    """Yield requests in the order in which they were asked, or newest first; expiries are not recorded.

    Args:
        since: Newest first, and only those that were asked at this instant or later.
    """
    cursor, has_more = None, True
    while has_more:
        page = store.list(wanted, cursor=cursor, limit=_REQUESTS, newest=newest or since is not None)
        found = [request for request in page.requests if since is None or request.created_at >= since]
        yield from found
        cursor = page.cursor
        # The clocks of two programs differ, so only a whole page of older requests ends the list.
        has_more = cursor is not None and (since is None or bool(found))


def rows_of(
    store: ReviewStore, *, run_id: str | None = None, request_id: str | None = None,
    after: tuple[str, int] | None = None,
) -> Iterator[Entry]:  # fmt: skip
    """Yield the stored journal entries by run and position, after `after`, a (run, seq)."""
    while True:
        page = store.journal(run_id=run_id, request_id=request_id, after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].run_id, page[-1].seq


# -- inside of a transaction ---------------------------------------------------------------------------------------


def _purged(tx: Transaction, request_id: str, by: Identity, before: datetime, channel: str) -> Request:
    request = tx.load(request_id)
    run = tx.run(request.run_id)
    if run is not None and run.state is not RunState.ENDED:
        raise errors.PurgeRefusedError(request_id, f"is needed by its run, which is {run.state}")
    change = purged(request, by, before=before, channel=channel, now=tx.now())
    if change is None:
        return request
    tx.update(change)
    for kind in (RESULT, SUBMISSION, *map(delivery_kind, tx.record_keys(CHANNEL))):
        drop_if_there(tx, kind, request_id)
    return change.request


def _purged_run(tx: Transaction, run_id: str, by: Identity, before: datetime, channel: str) -> None:
    run = tx.run(run_id)
    if run is None:
        raise errors.RunNotFoundError(run_id)
    if run.state is not RunState.ENDED or run.updated_at >= before:
        raise errors.PurgeRefusedError(run_id, f"has been {run.state} since {run.updated_at:%Y-%m-%d %H:%M:%S}Z")
    tx.drop_steps(run_id)
    tx.note(run_id, "purged", by, channel, {"what": "steps", "before": clock.written(before)})


_CHUNK = 200


@dataclass(frozen=True)
class Search:
    """A reviewer's search for requests.

    Attributes:
        wanted: The filter for the store.
        agent: Only requests asked under this name or `issuer:name`, ignoring case and look-alike letters.
        asked_by: Only requests asked at this instant or before.
    """

    wanted: Filter
    agent: str | None = None
    asked_by: datetime | None = None

    def page(self, store: ReviewStore, *, cursor: str | None, limit: int, newest: bool) -> Page:
        """Return a page; raises `ValueError` if the cursor is not from this list."""
        if self._is_indexed:
            return store.list(self.wanted, cursor=cursor, limit=limit, newest=newest)
        found: list[Request] = []
        chunk = _CHUNK
        while True:
            page = store.list(self.wanted, cursor=cursor, limit=chunk or limit - len(found), newest=newest)
            passing = [place for place, request in enumerate(page.requests) if self._passes(request)]
            passing = passing[: limit - len(found)]
            ends = page
            if len(found) + len(passing) == limit and passing[-1] + 1 < len(page.requests):
                # The cursor right after the last one; only a page that ends with it has that cursor.
                ends = store.list(self.wanted, cursor=cursor, limit=passing[-1] + 1, newest=newest)
                if not ends.requests or ends.requests[-1].id != page.requests[passing[-1]].id:
                    chunk = 0  # a request changed meanwhile: read only as many as fit, which needs no such page
                    continue
            found += [page.requests[place] for place in passing]
            cursor = ends.cursor
            if cursor is None or len(found) == limit:
                return Page(tuple(found), cursor)

    def count(self, store: ReviewStore) -> int:
        """Return how many requests match."""
        if self._is_indexed:
            return store.count(self.wanted)
        return sum(map(self._passes, requests_in(store, self.wanted)))

    @property
    def _is_indexed(self) -> bool:
        return self.agent is None and self.asked_by is None

    def _passes(self, request: Request) -> bool:
        if self.asked_by is not None and request.created_at > self.asked_by:
            return False
        return self.agent is None or request.requester.goes_by(self.agent)
