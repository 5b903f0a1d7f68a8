"""The people's door to a store: list, decide, read the journal, and remove what is old."""

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
    """What people do, and those who look after a store: list, decide, read the journal, let go of what is old."""

    @abstractmethod
    def match(self, prefix: str, limit: int = 10) -> Sequence[str]:
        """Return the ids that begin with `prefix`, at most `limit`."""

    @abstractmethod
    def list(self, wanted: Filter, *, cursor: str | None = None, limit: int = 50, newest: bool = False) -> Page:
        """Return a page of requests in the order they were asked, or the other way round with `newest`.

        Raises:
            ValueError: The cursor is not one of this list.
        """

    @abstractmethod
    def count(self, wanted: Filter) -> int:
        """Return how many requests a list would hold."""

    @abstractmethod
    def journal(
        self, *, run_id: str | None = None, request_id: str | None = None, after: tuple[str, int] | None = None,
        limit: int = 1000,
    ) -> Sequence[Entry]:  # fmt: skip
        """Return rows of the journal, ordered by run and place; `after` is the (run, seq) of the last one seen."""

    @abstractmethod
    def anchors(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[Anchor]:
        """Return how requests are tied to the journal, ordered by id; `after` is the last id seen."""

    def legible(self, entry: Entry) -> Entry:
        """Return a row of the journal with its words opened, where they are sealed; the link covers the sealed ones."""
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
        """In one transaction, take a decision; its `at` is the store's instant, its `fingerprint` what it is about.

        Raises:
            RequestNotFoundError: There is no such request.
            DecisionRefusedError: One of its kinds; nothing changed.
        """
        return self._transact(
            changed, request_id, lifecycle.decide, decision=decision, roles=roles, seen=seen, edited=edited,
            person=decision.by,
        )  # fmt: skip

    def undo(self, request_id: str, by: Identity, *, channel: str) -> Request:
        """In one transaction, take back an approval or a vote of this person; raises `NotUndoneError`.

        Of an undo and a start that come at once, one is refused.
        """
        return self._transact(changed, request_id, lifecycle.undo, by=by, channel=channel)

    def claim(self, request_id: str, by: Identity, *, roles: Collection[str], channel: str) -> Request:
        """In one transaction, let a reviewer take a pending request on."""
        return self._transact(changed, request_id, teamwork.claim, by=by, person=by, roles=roles, channel=channel)

    def release(self, request_id: str, by: Identity, *, roles: Collection[str], force: bool, channel: str) -> Request:
        """In one transaction, give a claimed request back."""
        return self._transact(
            changed, request_id, teamwork.release, by=by, person=by, roles=roles, force=force, channel=channel
        )

    def extend(
        self, request_id: str, by: Identity, *, roles: Collection[str], span: timedelta, channel: str
    ) -> Request:
        """In one transaction, move the request's or approval's end to `span` from now."""
        return self._transact(
            changed, request_id, teamwork.extend, by=by, person=by, roles=roles, span=span, channel=channel
        )

    def heads(self) -> Iterator[Head]:
        """Yield the newest row of every chain, ordered by run."""
        last: Head | None = None
        for entry in rows_of(self):
            if last is not None and entry.run_id != last.run_id:
                yield last
            last = Head(entry.run_id, entry.seq, entry.link)
        if last is not None:
            yield last

    def purge(self, request_id: str, by: Identity, *, before: datetime, channel: str) -> Request:
        """In one transaction, remove what a request was about that ended before; see `sayso.model.journal`.

        The bytes may stay in the files until `scrub`. Does nothing to one that was purged already.

        Raises:
            RequestNotFoundError: There is no such request.
            PurgeRefusedError: Something can still happen to it, its run still needs it, or it ended later.
        """
        return self._transact(_purged, request_id, by, before, channel)

    def purge_run(self, run_id: str, by: Identity, *, before: datetime, channel: str) -> None:
        """In one transaction, remove all steps of a run that ended before; it is never begun again.

        Raises:
            RunNotFoundError: There is no such run.
            PurgeRefusedError: It has not ended, or later.
        """
        self._transact(_purged_run, run_id, by, before, channel)

    def scrub(self) -> bool:
        """Let nothing of what was removed remain in the files of the store.

        Returns:
            Whether nothing remains; where not, others were reading meanwhile, and it is to be tried again.
        """
        return True


# -- page by page --------------------------------------------------------------------------------------------------


def requests_in(
    store: ReviewStore, wanted: Filter, *, newest: bool = False, since: datetime | None = None
) -> Iterator[Request]:
    """Yield requests in the order of asking, or the newest first; what has expired by now is not recorded.

    Args:
        since: The newest first, and only those that were asked then or later.
    """
    cursor, has_more = None, True
    while has_more:
        page = store.list(wanted, cursor=cursor, limit=_REQUESTS, newest=newest or since is not None)
        found = [request for request in page.requests if since is None or request.created_at >= since]
        yield from found
        cursor = page.cursor
        # Clocks of two programs differ, so only a whole page of older ones is the end.
        has_more = cursor is not None and (since is None or bool(found))


def rows_of(
    store: ReviewStore, *, run_id: str | None = None, request_id: str | None = None,
    after: tuple[str, int] | None = None,
) -> Iterator[Entry]:  # fmt: skip
    """Yield the stored rows of the journal by run and place, after `after`, a (run, seq)."""
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
        raise errors.PurgeRefusedError(run_id, f"is {run.state} since {run.updated_at:%Y-%m-%d %H:%M:%S}Z")
    tx.drop_steps(run_id)
    tx.note(run_id, "purged", by, channel, {"what": "steps", "before": clock.written(before)})


_CHUNK = 200


@dataclass(frozen=True)
class Search:
    """Which requests a reviewer wants to see.

    Attributes:
        wanted: What the store looks for.
        agent: Only what was asked under this name, or `issuer:name`; case and look-alike letters do not count.
        asked_by: Only what was asked at this instant or before.
    """

    wanted: Filter
    agent: str | None = None
    asked_by: datetime | None = None

    def page(self, store: ReviewStore, *, cursor: str | None, limit: int, newest: bool) -> Page:
        """Return a page; raises `ValueError` where the cursor is none of this list."""
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
                # The cursor right behind the last one, which only a page that ends with it has.
                ends = store.list(self.wanted, cursor=cursor, limit=passing[-1] + 1, newest=newest)
                if not ends.requests or ends.requests[-1].id != page.requests[passing[-1]].id:
                    chunk = 0  # somebody decided in between: read no more than there is room for, and need no such page
                    continue
            found += [page.requests[place] for place in passing]
            cursor = ends.cursor
            if cursor is None or len(found) == limit:
                return Page(tuple(found), cursor)

    def count(self, store: ReviewStore) -> int:
        """Return how many there are."""
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
