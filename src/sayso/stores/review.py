"""The verbs of people: list, decide, read the journal, purge; and what reviewers do together.

`PeopleVerbs` comment on a request, assign it, find mentions, delegate and snooze. A comment is a journal entry. A
mention is found through a small record that is written in the same transaction; no security depends on it. Delegations
are in the journal; a snooze is a reviewer's own setting and is not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Any, cast

from sayso import clock, errors
from sayso.model import lifecycle, teamwork
from sayso.model.ids import new_token
from sayso.model.journal import Entry, Head, RowDigests, purged
from sayso.model.request import Call, Decision, Request, State, without_secrets
from sayso.model.reviewer import Delegation, Identity, folded
from sayso.model.run import RunState
from sayso.model.teamwork import mentions_in
from sayso.stores import records, transaction
from sayso.stores.filter import Filter, Page
from sayso.stores.program import RequestStore
from sayso.stores.records import Record, RecordVerbs, drop_if_there, row_of_record, verb
from sayso.stores.transaction import Transaction, changed

_PAGE, _REQUESTS, _CHUNK = 1000, 500, 200


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
    def row_digests(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[RowDigests]:
        """Return how requests are tied to the journal, ordered by id; `after` is the last id seen."""

    def comments(self, requests: Iterable[Request]) -> Sequence[Entry]:
        """Return the journal entries with which these requests were commented on; those of one request in order."""
        rows = (row for one in requests for row in rows_of(self, run_id=one.run_id, request_id=one.id))
        return [row for row in rows if row.event == teamwork.COMMENTED]

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

    @verb
    def purge(tx: Transaction, request_id: str, by: Identity, *, before: datetime, channel: str) -> Request:
        """In one transaction, remove the content of a request that ended before an instant; see `sayso.model.journal`.

        The bytes may stay in the files until `scrub`. Does nothing if it was already purged.

        Raises:
            RequestNotFoundError: No request has this id.
            PurgeRefusedError: The request is not final, its run still needs it, or it ended later.
        """
        request = tx.load(request_id)
        run = tx.run(request.run_id)
        if run is not None and run.state is not RunState.ENDED:
            raise errors.PurgeRefusedError(request_id, f"is needed by its run, which is {run.state}")
        change = purged(request, by, before=before, channel=channel, now=tx.now())
        if change is None:
            return request
        tx.update(change)
        deliveries = map(transaction.delivery_kind, tx.record_keys(transaction.CHANNEL))
        for kind in (transaction.RESULT, transaction.SUBMISSION, *deliveries):
            drop_if_there(tx, kind, request_id)
        return change.request

    @verb
    def purge_run(tx: Transaction, run_id: str, by: Identity, *, before: datetime, channel: str) -> None:
        """In one transaction, remove all steps of a run that ended before an instant; it is never run again.

        Raises:
            RunNotFoundError: No run has this id.
            PurgeRefusedError: It has not ended, or ended later.
        """
        run = tx.run(run_id)
        if run is None:
            raise errors.RunNotFoundError(run_id)
        if run.state is not RunState.ENDED or run.updated_at >= before:
            raise errors.PurgeRefusedError(run_id, f"has been {run.state} since {run.updated_at:%Y-%m-%d %H:%M:%S}Z")
        tx.drop_steps(run_id)
        tx.note(run_id, "purged", by, channel, {"what": "steps", "before": clock.written(before)})

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


def requests_with(store: ReviewStore, ids: Collection[str], states: frozenset[State] = frozenset()) -> list[Request]:
    """Return the requests with these ids, in the order in which they were asked; expiries are not recorded.

    One read serves all of them. Those that do not exist, or are in none of the states, are left out.
    """
    if not ids:  # a filter without ids would list every request
        return []
    return [*store.list(Filter(states=states, ids=frozenset(ids)), limit=len(ids)).requests]


def page_where(
    read: Callable[..., Page], passes: Callable[[Request], bool], *, cursor: str | None, limit: int,
    chunk: int = _CHUNK, most: float = inf,
) -> tuple[Page, int]:  # fmt: skip
    """Return a page of the requests of a list that pass a test, and how many were read for it.

    `read` takes `cursor` and `limit`; it reads `chunk` at a time, with 0 as many as are missing, for a test that most
    pass. After `most` the page ends, short or even empty. Raises `ValueError` if the cursor is not from this list.
    """
    found, looked = list[Request](), 0
    while True:
        page = read(cursor=cursor, limit=chunk or limit - len(found))
        passing = [place for place, request in enumerate(page.requests) if passes(request)]
        passing = passing[: limit - len(found)]
        ends = page
        if len(found) + len(passing) == limit and passing[-1] + 1 < len(page.requests):
            # The cursor right after the last one; only a page that ends with it has that cursor.
            ends = read(cursor=cursor, limit=passing[-1] + 1)
            if not ends.requests or ends.requests[-1].id != page.requests[passing[-1]].id:
                chunk = 0  # a request changed meanwhile: read only as many as fit, which needs no such page
                continue
        found += [page.requests[place] for place in passing]
        cursor, looked = ends.cursor, looked + len(page.requests)
        if cursor is None or len(found) == limit or looked >= most:
            return Page(tuple(found), cursor), looked


def page_in_sequence(lists: Mapping[str, Callable[..., Page]], cursor: str | None, limit: int) -> Page:
    """Return a page of several lists, one after another, each of which is read with `cursor` and `limit`.

    Its cursor is the name of a list, a dot, and the cursor in it. Raises `ValueError` if the cursor is not one of them.
    """
    names, found = list(lists), list[Request]()
    name, dot, place = (f"{names[0]}." if cursor is None else cursor).partition(".")
    if not dot or name not in lists:
        raise ValueError(f"{cursor!r} is not a cursor of this list; begin again without one")
    for one in names[names.index(name) :]:
        if len(found) == limit:
            return Page(tuple(found), f"{one}.")
        page = lists[one](cursor=place or None, limit=limit - len(found))
        found += page.requests
        if page.cursor is not None:
            return Page(tuple(found), f"{one}.{page.cursor}")
        place = ""
    return Page(tuple(found), None)


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


_LOOKED_THROUGH = 20


class PeopleVerbs(RecordVerbs, ReviewStore):
    """The verbs of `sayso.stores.base.Store` with which reviewers work together."""

    @verb
    def comment(
        tx: Transaction, request_id: str, by: Identity, *, text: str, channel: str
    ) -> Request | errors.SaysoError:
        """In one transaction, write a comment into the journal; the request does not change.

        The people whom it mentions find the request with `mentions` until they comment on it themselves.

        Raises:
            RequestNotFoundError: No request has this id.
        """
        after = changed(tx, request_id, teamwork.comment, by=by, text=text, channel=channel)
        if isinstance(after, errors.SaysoError):
            return after
        # A comment by the person who stands in counts for the one who is away, who still finds the mention themselves.
        names = {name for one in (by, *records.stood_in_for(tx, by, tx.now())) for name in one.names}
        for kind in map(_mentioned, sorted(names)):
            row = tx.find_record(kind, request_id)
            if row is not None:  # people of several issuers may share a name
                answered = sorted(_answered_by(_body(row)) | {by.folded})
                tx.put_record(row_of_record(Record(kind, request_id, {"answered": answered})))
        # Mentions are taken from the masked text: otherwise a record would contain a masked value.
        mentioned = () if after.is_final else mentions_in(without_secrets(after, text))
        if mentioned:
            _owe(tx, after, "mentioned", by, lambda person: any(person.goes_by(name) for name in mentioned))
        for kind in map(_mentioned, mentioned):
            for other in tx.record_keys(kind)[:_LOOKED_THROUGH]:
                if _is_over(tx, other):
                    tx.drop_record(kind, other)
            tx.put_record(row_of_record(Record(kind, request_id, {})))
        return after

    @verb
    def assign(
        tx: Transaction, request_id: str, by: Identity, *, to: Identity, to_roles: Collection[str] | None,
        roles: Collection[str], force: bool, channel: str,
    ) -> Request | errors.SaysoError:  # fmt: skip
        """In one transaction, claim a pending request for another reviewer; `to_roles` is None if unknown."""
        after = changed(
            tx, request_id, teamwork.assign, by=by, person=by, to=to, to_roles=to_roles, roles=roles, force=force,
            channel=channel,
        )  # fmt: skip
        if not isinstance(after, errors.SaysoError):
            _owe(tx, after, "assigned", by, to.is_same)
        return after

    def mentions(self, who: Identity) -> frozenset[str]:
        """Return the ids of requests with a comment that mentions somebody, or a person for whom they stand in.

        Some of these requests may have ended since.
        """
        names = {name for one in (who, *self.stood_in_for(who)) for name in one.names}
        found = (one for name in sorted(names) for one in self.records(_mentioned(name)))
        return frozenset(one.key for one in found if who.folded not in _answered_by(one.body))

    def voters(self) -> dict[str, frozenset[str]]:
        """Return the pending requests that need further people, and who has approved each, as folded identities."""
        now = self.now()
        found = records.records_in(self, transaction.VOTED)
        return {one.key: frozenset(map(str, one.body["by"])) for one in found if one.due is not None and now < one.due}

    # -- away --------------------------------------------------------------------------------------------------

    @verb
    def delegate(tx: Transaction, by: Identity, *, to: Identity, until: datetime, channel: str) -> Delegation:
        """In one transaction, record that somebody is away until an instant, and who stands in; see `delegations`.

        It replaces their earlier delegation.

        Raises:
            ValueError: The end is past, or the person named themselves; nothing was changed.
        """
        now = tx.now()
        if to.is_same(by):
            raise ValueError(f"{str(by)!r} cannot stand in for themselves; nothing was changed")
        if until <= now:
            raise ValueError(f"{clock.written(until)} is in the past; nothing was changed")
        _drop_ended_delegations(tx, now)  # to keep few of them
        body: dict[str, Any] = {
            "by": [by.issuer, by.subject], "to": [to.issuer, to.subject], "since": clock.microseconds(now),
        }  # fmt: skip
        tx.put_record(row_of_record(Record(records.AWAY, by.folded, body, until)))
        tx.note(_delegation_chain(by), "delegated", by, channel, {"to": to.qualified, "until": clock.written(until)})
        return Delegation(by, to, now, until)

    @verb
    def end_delegation(tx: Transaction, by: Identity, *, channel: str) -> bool:
        """In one transaction, end a person's delegation; return whether it was in force."""
        row = tx.find_record(records.AWAY, by.folded)
        if row is None:
            return False
        tx.drop_record(records.AWAY, by.folded)
        counted = row.due is not None and clock.microseconds(tx.now()) < row.due
        if counted:
            tx.note(_delegation_chain(by), "delegation_ended", by, channel, {})
        return counted

    def drop_delegations(self, *, before: datetime) -> int:
        """In one transaction, drop the delegations that ended before an instant; return how many. The journal stays."""
        return self._transact(_drop_ended_delegations, before)

    def delegations(self) -> list[Delegation]:
        """Return the delegations in force, ordered by their end; altered records are left out."""
        rows = self._record_rows(records.AWAY, None, "", records.MOST_DELEGATIONS)
        return sorted(records.in_force(rows, self.now()), key=lambda one: (one.until, one.by.folded))

    def stood_in_for(self, who: Identity) -> list[Identity]:
        """Return the people for whom somebody stands in now."""
        return [one.by for one in self.delegations() if one.to.is_same(who)]

    @verb
    def snooze(tx: Transaction, request_id: str, who: Identity, *, until: datetime | None) -> Request:
        """In one transaction, hide a pending request from one person's list until an instant; None shows it again.

        It is a personal setting: the request and its end do not change, and the journal has no entry.

        Raises:
            RequestNotFoundError: No request has this id.
            DecisionRefusedError: It is not pending, or expires before; nothing was changed.
        """
        request, now, kind = tx.load(request_id), tx.now(), _snooze_kind(who)
        for key in tx.record_keys(kind)[:_LOOKED_THROUGH]:
            row = tx.find_record(kind, key)
            if row is not None and (key == request_id or row.due is None or row.due <= clock.microseconds(now)):
                tx.drop_record(kind, key)
        if until is None:
            return request
        if request.state is not State.PENDING or not now < until < request.expires_at:
            raise errors.DecisionRefusedError(
                request_id, f"request {request_id} is not pending until then; nothing was changed"
            )  # fmt: skip
        tx.put_record(row_of_record(Record(kind, request_id, {}, until)))
        return request

    def snoozes(self, who: Identity) -> dict[str, datetime]:
        """Return the pending requests that somebody has snoozed, with the ends of the snoozes."""
        return self.snoozes_of([who])[who.folded]

    def snoozes_of(self, people: Collection[Identity]) -> dict[str, dict[str, datetime]]:
        """Return what each of these people has snoozed, by folded identity. Two reads serve all of them."""
        kinds, now = {_snooze_kind(who): who.folded for who in people}, self.now()
        found = {who: dict[str, datetime]() for who in kinds.values()}
        for one in self.records_of(kinds):
            if one.due is not None and now < one.due:
                found[kinds[one.kind]][one.key] = one.due
        pending = _pending(self, {key for snoozed in found.values() for key in snoozed})
        return {
            who: {key: due for key, due in snoozed.items() if key in pending} for who, snoozed in found.items()
        }  # fmt: skip


def _owe(tx: Transaction, request: Request, event: str, by: Identity, is_meant: Callable[[Identity], bool]) -> None:
    """Record a message to a person for each channel that reaches them, and likewise to whoever stands in for them.

    Nobody is notified of their own action. Each message is a delivery beside that of the request.
    """
    now = tx.now()
    stand_ins = {one.to.folded: one.by for one in records.delegations(tx, now) if is_meant(one.by)}
    for channel in tx.record_keys(transaction.CHANNEL):
        row = tx.find_record(transaction.CHANNEL, channel)
        if row is None or (request.channels and channel not in request.channels):
            continue
        for name in map(str, cast("list[Any]", _body(row).get("people") or [])):
            person = Identity.named(name)
            absent = stand_ins.get(person.folded)
            if person.is_same(by) or (absent is None and not is_meant(person)):
                continue
            body: dict[str, Any] = {
                "changes": 0,
                "sent": [],
                "event": event,
                "by": by.qualified,
                "to": person.qualified,
            }
            body |= {} if absent is None or is_meant(person) else {"instead_of": absent.qualified}
            tx.put_record(
                row_of_record(Record(transaction.delivery_kind(channel), f"{request.id}/{new_token()}", body, now))
            )


def _delegation_chain(who: Identity) -> str:
    return f"sayso:away:{who.folded}"


def _drop_ended_delegations(tx: Transaction, before: datetime) -> int:
    rows = [tx.find_record(records.AWAY, key) for key in tx.record_keys(records.AWAY)]
    old = [row for row in rows if row is not None and row.due is not None and row.due < clock.microseconds(before)]
    for row in old:
        tx.drop_record(records.AWAY, row.key)
    return len(old)


def _mentioned(name: str) -> str:
    """Return the kind of the records, one per request, that mention people with this name."""
    return f"mention/{folded(name)}"


def _snooze_kind(who: Identity) -> str:
    return f"snooze/{who.folded}"


def _pending(store: ReviewStore, ids: Collection[str]) -> frozenset[str]:
    """Return which of these requests are pending. One that cannot be read is left out."""
    try:
        return frozenset(one.id for one in requests_with(store, ids, frozenset({State.PENDING})))
    except errors.StoreCorruptError:
        return frozenset() if len(ids) == 1 else frozenset[str]().union(*(_pending(store, {one}) for one in ids))


def _answered_by(body: dict[str, Any]) -> frozenset[str]:
    """Return which of the people with a mentioned name have commented since."""
    found = body.get("answered")
    return frozenset(map(str, cast("list[Any]", found))) if isinstance(found, list) else frozenset()


def _body(row: records.RecordRow) -> dict[str, Any]:
    try:
        return records.record_of(row).body
    except errors.StoreCorruptError:
        return {}


def _is_over(tx: Transaction, request_id: str) -> bool:
    """Return whether a mention is obsolete, because its request has ended or does not exist."""
    try:
        return tx.load(request_id).is_final
    except errors.RequestNotFoundError:
        return True
    except errors.StoreCorruptError:
        return False
