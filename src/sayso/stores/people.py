"""What reviewers do together: comment on a request, assign it, find their mentions, and snooze.

A comment is a journal entry. A mention is found through a small record that is written in the same transaction; no
security depends on it. A snooze is a reviewer's own setting, and is not in the journal. Delegations
(`sayso.stores.delegations`) are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

from sayso import clock, errors
from sayso.model import teamwork
from sayso.model.ids import new_token
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, State, without_secrets
from sayso.model.reviewer import Delegation, Identity, folded
from sayso.model.teamwork import comment, mentions_in
from sayso.stores import delegations
from sayso.stores.delegations import AWAY, MOST, counting, read, stood_in_for
from sayso.stores.records import Record, RecordRow, RecordVerbs, record_of, records_in, row_of
from sayso.stores.request_store import RequestStore
from sayso.stores.transaction import CHANNEL, VOTED, Transaction, changed, delivery_kind

_LOOKED_THROUGH = 20


class PeopleVerbs(RecordVerbs, RequestStore):
    """The verbs of `sayso.stores.base.Store` with which reviewers work together."""

    def comment(self, request_id: str, by: Identity, *, text: str, channel: str) -> Request:
        """In one transaction, write a comment into the journal; the request does not change.

        The people whom it mentions find the request with `mentions` until they comment on it themselves.

        Raises:
            RequestNotFoundError: No request has this id.
        """
        return self._transact(_commented, request_id, by=by, text=text, channel=channel)

    def assign(
        self, request_id: str, by: Identity, *, to: Identity, to_roles: Collection[str] | None, roles: Collection[str],
        force: bool, channel: str,
    ) -> Request:  # fmt: skip
        """In one transaction, claim a pending request for another reviewer; `to_roles` is None if unknown."""
        return self._transact(
            _assigned, request_id, teamwork.assign, by=by, person=by, to=to, to_roles=to_roles, roles=roles,
            force=force, channel=channel,
        )  # fmt: skip

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
        found = (one for one in records_in(self, VOTED) if one.due is not None and now < one.due)
        return {one.key: frozenset(map(str, one.body["by"])) for one in found}

    # -- away --------------------------------------------------------------------------------------------------

    def delegate(self, by: Identity, *, to: Identity, until: datetime, channel: str) -> Delegation:
        """In one transaction, record that somebody is away until an instant, and who stands in; see `delegations`.

        It replaces their earlier delegation.

        Raises:
            ValueError: The end is past, or the person named themselves; nothing was changed.
        """
        return self._transact(_delegated, by, to, until, channel)

    def end_delegation(self, by: Identity, *, channel: str) -> bool:
        """In one transaction, end a person's delegation; return whether it was in force."""
        return self._transact(_delegation_ended, by, channel)

    def drop_delegations(self, *, before: datetime) -> int:
        """In one transaction, drop the delegations that ended before an instant; return how many. The journal stays."""
        return self._transact(delegations.drop_ended, before)

    def delegations(self) -> list[Delegation]:
        """Return the delegations in force, ordered by their end; altered records are left out."""
        found, now = list[Delegation](), self.now()
        for row in self._record_rows(AWAY, None, "", MOST):
            with suppress(errors.StoreCorruptError):
                found.append(read(row))
        return sorted((one for one in found if one.counts(now)), key=lambda one: (one.until, one.by.folded))

    def stood_in_for(self, who: Identity) -> list[Identity]:
        """Return the people for whom somebody stands in now."""
        return [one.by for one in self.delegations() if one.to.is_same(who)]

    def snooze(self, request_id: str, who: Identity, *, until: datetime | None) -> Request:
        """In one transaction, hide a pending request from one person's list until an instant; None shows it again.

        It is a personal setting: the request and its end do not change, and the journal has no entry.

        Raises:
            RequestNotFoundError: No request has this id.
            DecisionRefusedError: It is not pending, or expires before; nothing was changed.
        """
        return self._transact(_snoozed, request_id, who, until)

    def snoozes(self, who: Identity) -> dict[str, datetime]:
        """Return the requests that somebody has snoozed, with the ends of the snoozes, some of which may be past."""
        return {one.key: one.due for one in self.records(_snooze_kind(who)) if one.due is not None}


def _assigned(
    tx: Transaction, request_id: str, rule: Callable[..., Transition], *, by: Identity, to: Identity, **options: Any
) -> Request | errors.SaysoError:  # fmt: skip
    after = changed(tx, request_id, rule, by=by, to=to, **options)
    if not isinstance(after, errors.SaysoError):
        _owe(tx, after, "assigned", by, to.is_same)
    return after


def _owe(tx: Transaction, request: Request, event: str, by: Identity, is_meant: Callable[[Identity], bool]) -> None:
    """Record a message to a person for each channel that reaches them, and likewise to whoever stands in for them.

    Nobody is notified of their own action. Each message is a delivery beside that of the request.
    """
    now = tx.now()
    stand_ins = {one.to.folded: one.by for one in counting(tx, now) if is_meant(one.by)}
    for channel in tx.record_keys(CHANNEL):
        row = tx.find_record(CHANNEL, channel)
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
            tx.put_record(row_of(Record(delivery_kind(channel), f"{request.id}/{new_token()}", body, now)))


def _delegated(tx: Transaction, by: Identity, to: Identity, until: datetime, channel: str) -> Delegation:
    return delegations.delegate(tx, by, to, until, channel, tx.now())


def _delegation_ended(tx: Transaction, by: Identity, channel: str) -> bool:
    return delegations.end(tx, by, channel, tx.now())


def _mentioned(name: str) -> str:
    """Return the kind of the records, one per request, that mention people with this name."""
    return f"mention/{folded(name)}"


def _snooze_kind(who: Identity) -> str:
    return f"snooze/{who.folded}"


def _snoozed(tx: Transaction, request_id: str, who: Identity, until: datetime | None) -> Request:
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
    tx.put_record(row_of(Record(kind, request_id, {}, until)))
    return request


def _commented(
    tx: Transaction, request_id: str, *, by: Identity, text: str, channel: str
) -> Request | errors.SaysoError:  # fmt: skip
    after = changed(tx, request_id, comment, by=by, text=text, channel=channel)
    if isinstance(after, errors.SaysoError):
        return after
    # A comment by the person who stands in counts for the one who is away, who still finds the mention themselves.
    names = {name for one in (by, *stood_in_for(tx, by, tx.now())) for name in one.names}
    for kind in map(_mentioned, sorted(names)):
        row = tx.find_record(kind, request_id)
        if row is not None:  # people of several issuers may share a name
            answered = sorted(_answered_by(_body(row)) | {by.folded})
            tx.put_record(row_of(Record(kind, request_id, {"answered": answered})))
    # Mentions are taken from the masked text: otherwise a record would contain a masked value.
    mentioned = () if after.is_final else mentions_in(without_secrets(after, text))
    if mentioned:
        _owe(tx, after, "mentioned", by, lambda person: any(person.goes_by(name) for name in mentioned))
    for kind in map(_mentioned, mentioned):
        for other in tx.record_keys(kind)[:_LOOKED_THROUGH]:
            if _is_over(tx, other):
                tx.drop_record(kind, other)
        tx.put_record(row_of(Record(kind, request_id, {})))
    return after


def _answered_by(body: dict[str, Any]) -> frozenset[str]:
    """Return which of the people with a mentioned name have commented since."""
    found = body.get("answered")
    return frozenset(map(str, cast("list[Any]", found))) if isinstance(found, list) else frozenset()


def _body(row: RecordRow) -> dict[str, Any]:
    try:
        return record_of(row).body
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
