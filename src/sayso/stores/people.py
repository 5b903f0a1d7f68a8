"""What reviewers do together: comment on a request, assign it, find where they are mentioned, and snooze.

A comment is a fact of the record: a row of the journal. That somebody is mentioned is looked up by a small record
beside it, written in the same transaction; nothing of trust depends on it. What somebody has snoozed is their own
setting, and stands in no journal.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, TypeVar, cast

from sayso import clock, errors
from sayso.model import lifecycle
from sayso.model.comments import comment, mentions_in
from sayso.model.request import Request, State, without_secrets
from sayso.model.reviewer import Identity, folded
from sayso.stores.records import Record, RecordRow, RecordVerbs, record_of, row_of
from sayso.stores.transaction import Transaction, changed

_LOOKED_THROUGH = 20

T = TypeVar("T")


class PeopleVerbs(RecordVerbs):
    """The part of `sayso.stores.base.Store` that is about reviewers among each other."""

    @abstractmethod
    def _transact(self, work: Callable[..., T | errors.SaysoError], *args: Any, **options: Any) -> T: ...

    def comment(self, request_id: str, by: Identity, *, text: str, channel: str) -> Request:
        """In one transaction, write a comment into the journal; the request stays as it is.

        Whom it mentions finds the request by `mentions` until they comment on it themselves.

        Raises:
            RequestNotFoundError: There is no such request.
        """
        return self._transact(_commented, request_id, by=by, text=text, channel=channel)

    def assign(
        self, request_id: str, by: Identity, *, to: Identity, to_roles: Collection[str] | None, roles: Collection[str],
        force: bool, channel: str,
    ) -> Request:  # fmt: skip
        """In one transaction, let another reviewer take a pending request on; `to_roles` is None where unknown."""
        return self._transact(
            changed, request_id, lifecycle.assign, by=by, to=to, to_roles=to_roles, roles=roles, force=force,
            channel=channel,
        )  # fmt: skip

    def mentions(self, who: Identity) -> frozenset[str]:
        """Return the ids of requests in whose comments somebody is mentioned; some may have ended since."""
        found = (one for name in who.names for one in self.records(_mentioned(name)))
        return frozenset(one.key for one in found if who.folded not in _answered_by(one.body))

    def snooze(self, request_id: str, who: Identity, *, until: datetime | None) -> Request:
        """In one transaction, keep a pending request out of one person's list until an instant; None brings it back.

        It is their own setting: the request stays as it is, with its end, and the journal says nothing.

        Raises:
            RequestNotFoundError: There is no such request.
            DecisionRefusedError: It does not wait, or ends before; nothing was changed.
        """
        return self._transact(_snoozed, request_id, who, until)

    def snoozes(self, who: Identity) -> dict[str, datetime]:
        """Return until when somebody has snoozed which requests; those that are back may be among them."""
        return {one.key: one.due for one in self.records(_snooze_kind(who)) if one.due is not None}


def _mentioned(name: str) -> str:
    """Return the kind of record in which it stands, by request, that somebody of this name is mentioned."""
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
            request_id, f"request {request_id} does not wait until then; nothing was changed"
        )  # fmt: skip
    tx.put_record(row_of(Record(kind, request_id, {}, until)))
    return request


def _commented(
    tx: Transaction, request_id: str, *, by: Identity, text: str, channel: str
) -> Request | errors.SaysoError:  # fmt: skip
    after = changed(tx, request_id, comment, by=by, text=text, channel=channel)
    if isinstance(after, errors.SaysoError):
        return after
    for kind in map(_mentioned, by.names):
        row = tx.find_record(kind, request_id)
        if row is not None:  # one name may be that of several people, each by another issuer
            answered = sorted(_answered_by(_body(row)) | {by.folded})
            tx.put_record(row_of(Record(kind, request_id, {"answered": answered})))
    # The names are those of what was written: a mention of a masked value would name it in a record.
    for kind in map(_mentioned, () if after.is_final else mentions_in(without_secrets(after, text))):
        for other in tx.record_keys(kind)[:_LOOKED_THROUGH]:
            if _is_over(tx, other):
                tx.drop_record(kind, other)
        tx.put_record(row_of(Record(kind, request_id, {})))
    return after


def _answered_by(body: dict[str, Any]) -> frozenset[str]:
    """Return who, of those that go by a mentioned name, has commented since."""
    found = body.get("answered")
    return frozenset(map(str, cast("list[Any]", found))) if isinstance(found, list) else frozenset()


def _body(row: RecordRow) -> dict[str, Any]:
    try:
        return record_of(row).body
    except errors.StoreCorruptError:
        return {}


def _is_over(tx: Transaction, request_id: str) -> bool:
    """Say whether a mention leads nowhere any more: its request has ended, or there is none."""
    try:
        return tx.load(request_id).is_final
    except errors.RequestNotFoundError:
        return True
    except errors.StoreCorruptError:
        return False
