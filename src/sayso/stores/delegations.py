"""Delegations: who is away until when, and who stands in for them.

A delegation routes attention, never rights. What is assigned to the person who is away can be decided by the person who
stands in, who must be allowed to decide it anyway, and who also sees their mentions and messages. It adds no role and
no vote. It is in force from when it is written until its end by the store's clock. It is followed one step: if the
delegate is away too, their own delegation is not used. Each one is a record, and each person has a chain in the journal
for them. An ended one is dropped when the next one is written, or by a purge; the journal keeps it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from sayso import clock, errors
from sayso.model.reviewer import Delegation, Identity
from sayso.stores.records import Record, RecordRow, RecordTransaction, record_of, row_of

AWAY = "away"
MOST = 1_000
"""How many delegations are read at most."""


def read(row: RecordRow) -> Delegation:
    """Return the delegation in a record; raises `StoreCorruptError` if the record was altered."""
    record = record_of(row)
    try:
        by, to = (Identity(*map(str, record.body[name])) for name in ("by", "to"))
        found = Delegation(by, to, clock.instant(record.body["since"]), record.due or clock.instant(0))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise errors.StoreCorruptError(f"the delegation of {row.key!r} cannot be read: its row was altered") from error
    if found.by.folded != row.key:
        raise errors.StoreCorruptError(f"the delegation of {row.key!r} names somebody else: its row was altered")
    return found


def chain_of(who: Identity) -> str:
    """Return the journal chain for a person's delegations."""
    return f"sayso:away:{who.folded}"


def delegate(
    tx: RecordTransaction, by: Identity, to: Identity, until: datetime, channel: str, now: datetime
) -> Delegation:
    """Write a delegation in place of the person's earlier one; raises `ValueError`, and then nothing is changed."""
    if to.is_same(by):
        raise ValueError(f"{str(by)!r} cannot stand in for themselves; nothing was changed")
    if until <= now:
        raise ValueError(f"{clock.written(until)} is in the past; nothing was changed")
    drop_ended(tx, now)
    body: dict[str, Any] = {
        "by": [by.issuer, by.subject], "to": [to.issuer, to.subject], "since": clock.microseconds(now),
    }  # fmt: skip
    tx.put_record(row_of(Record(AWAY, by.folded, body, until)))
    tx.note(chain_of(by), "delegated", by, channel, {"to": to.qualified, "until": clock.written(until)})
    return Delegation(by, to, now, until)


def end(tx: RecordTransaction, by: Identity, channel: str, now: datetime) -> bool:
    """End a person's delegation; return whether it was in force."""
    row = tx.find_record(AWAY, by.folded)
    if row is None:
        return False
    tx.drop_record(AWAY, by.folded)
    counted = row.due is not None and clock.microseconds(now) < row.due
    if counted:
        tx.note(chain_of(by), "delegation_ended", by, channel, {})
    return counted


def drop_ended(tx: RecordTransaction, before: datetime) -> int:
    """Drop the delegations that ended before an instant, to keep few of them; return how many."""
    rows = [tx.find_record(AWAY, key) for key in tx.record_keys(AWAY)]
    old = [row for row in rows if row is not None and row.due is not None and row.due < clock.microseconds(before)]
    for row in old:
        tx.drop_record(AWAY, row.key)
    return len(old)


def stand_in(tx: RecordTransaction, who: Identity, now: datetime) -> Identity | None:
    """Return who stands in for somebody now; None if nobody does, or the record was altered."""
    row = tx.find_record(AWAY, who.folded)
    with suppress(errors.StoreCorruptError):
        found = None if row is None else read(row)
        return found.to if found is not None and found.counts(now) else None
    return None


def counting(tx: RecordTransaction, now: datetime) -> list[Delegation]:
    """Return the delegations that are in force; altered records are left out."""
    found: list[Delegation] = []
    for key in tx.record_keys(AWAY)[:MOST]:
        row = tx.find_record(AWAY, key)
        with suppress(errors.StoreCorruptError):
            one = None if row is None else read(row)
            found += [] if one is None or not one.counts(now) else [one]
    return found


def stood_in_for(tx: RecordTransaction, who: Identity, now: datetime) -> list[Identity]:
    """Return the people for whom somebody stands in now."""
    return [one.by for one in counting(tx, now) if one.to.is_same(who)]
