"""What a change of a request owes to the channels: written beside it, in its own transaction, for every store.

Every verb that changes a request does so by `insert` and `update` of this module. Each registered channel (a slip of
kind `channel`) gets a delivery for a new request, which is due at once and again after every change that people are to
hear of; `sayso.channels.outbox` delivers it. A request that escalates gets a slip that is due at that time. What a
token asked has a slip of its program while it waits, so that a server counts them without a look at any other.
Invariant: what is recorded of a request and what is owed for it become durable together, or neither does.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sayso import errors
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, State
from sayso.model.reviewer import TOKENS, Identity
from sayso.stores.records import Slip, row_of, slip_of

if TYPE_CHECKING:
    from sayso.stores.base import Transaction

__all__ = ["CHANNEL", "ESCALATION", "RESULT", "delivery_kind", "insert", "leaving_altered", "update", "waiting_kind"]

CHANNEL, ESCALATION, RESULT = "channel", "escalation", "result"

# Changes of which no message is made; whatever else may come to be is told.
_SILENT = frozenset({"claimed", "cleared", "released", "started", "suspended", "voted"})


def delivery_kind(channel: str) -> str:
    """Return the kind of slip in which a channel's deliveries stand, each under the id of its request."""
    return f"delivery/{channel}"


def waiting_kind(requester: Identity) -> str:
    """Return the kind of slip by which the waiting requests of a token's program are counted."""
    return f"waiting/{requester.qualified}"


def insert(tx: Transaction, transition: Transition) -> None:
    """Write a new request, and what is owed for it."""
    tx.insert(transition)
    request = transition.request
    if request.requester.issuer == TOKENS:
        tx.put_slip(row_of(Slip(waiting_kind(request.requester), request.id, {}, request.expires_at)))
    if request.escalation is not None:
        tx.put_slip(row_of(Slip(ESCALATION, request.id, {}, request.created_at + request.escalation.after)))
    for channel in tx.slip_keys(CHANNEL):
        tx.put_slip(row_of(Slip(delivery_kind(channel), request.id, {"changes": 0, "told": []}, tx.now())))


def update(tx: Transaction, transition: Transition) -> None:
    """Write a changed request, and that its deliveries are due again."""
    tx.update(transition)
    request = transition.request
    if request.requester.issuer == TOKENS and request.state is not State.PENDING:
        kind = waiting_kind(request.requester)
        if tx.find_slip(kind, request.id) is not None:
            tx.drop_slip(kind, request.id)
    if transition.event in _SILENT:
        return
    for channel in tx.slip_keys(CHANNEL):
        _make_due(tx, channel, request)


def _make_due(tx: Transaction, channel: str, request: Request) -> None:
    row = tx.find_slip(delivery_kind(channel), request.id)
    if row is None:
        return  # asked before there was this channel
    slip = slip_of(row)
    # Who delivers it just now finds by the count that it has changed. Until then it stays theirs, or it would be sent
    # by two; and what was given up stays so.
    is_free = not slip.body.keys() & {"holder", "given_up"}
    body = {**slip.body, "changes": slip.body["changes"] + 1}
    tx.put_slip(row_of(replace(slip, body=body, due=tx.now() if is_free else slip.due)))


@contextmanager
def leaving_altered(done: str) -> Generator[None]:
    """Leave a request as it is, with a line in the log, whose row was altered or cannot be read."""
    try:
        yield
    except errors.StoreCorruptError as error:
        logging.getLogger("sayso").warning("not %s: %s", done, error)
