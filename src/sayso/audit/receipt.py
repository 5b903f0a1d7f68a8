"""Receipts: what became of one request, in a file that proves it to somebody who has no store.

A receipt holds what was shown, who decided what and how it ended; the rows of the journal that say so, from the
request's first to the newest that the first checkpoint after it knows, with what it takes to compute each link; and
that checkpoint with its proof. Invariant: `verify_receipt` believes no fact that the rows speak of, and do not say so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from sayso import errors
from sayso.audit.checkpoint import Checkpoint, covering, line_of
from sayso.audit.key import Signer, signed_by
from sayso.audit.paper import read_bytes, read_paper, written_paper
from sayso.audit.statement import facts_of, statement_of
from sayso.audit.tree import climbed, proof_of
from sayso.audit.walk import must_agree, rows_of
from sayso.model.journal import Entry, Head, chained, first_link
from sayso.model.request import Request
from sayso.stores.base import Store

__all__ = ["Proven", "receipt_of", "receipt_text", "verify_receipt", "verify_receipt_file"]

_KIND = "receipt"
_LIMIT = 64 << 20
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Proven(NamedTuple):
    """What a receipt says, after everything in it was found to go together.

    Attributes:
        body: What it says.
        key: The public key that signed it; None where nobody did.
        checkpoint: That knows its rows; None where there was none.
    """

    body: dict[str, Any]
    key: str | None
    checkpoint: Checkpoint | None


def receipt_text(store: Store, request_id: str, signer: Signer | None = None) -> str:
    """Return the receipt of a request as it is written to a file; raises as `receipt_of`."""
    return written_paper(_KIND, receipt_of(store, request_id), signer)


def receipt_of(store: Store, request_id: str) -> dict[str, Any]:
    """Return what a receipt of this request says, as JSON values; it is not signed.

    Raises:
        RequestNotFoundError: There is no such request.
        EvidenceError: Something can still happen to it, what was shown was removed, or it does not agree with its rows:
            there is nothing to prove.
    """
    must_agree(store, store.get(request_id))
    request = store.settle(request_id)
    if not request.is_final:
        raise errors.EvidenceError(
            f"{request_id} is {request.state}: there is a receipt when nothing can happen any more"
        )
    if request.purged_at is not None:
        raise errors.EvidenceError(
            f"what was shown of {request_id} was removed on {request.purged_at:%Y-%m-%d}: a receipt is made before that"
        )
    try:
        return _body(store, request)
    except _DAMAGED as error:
        raise errors.EvidenceError(
            f"the rows of {request_id} do not say what such rows say ({type(error).__name__}): there is nothing to"
            " prove; see `sayso log --verify`"
        ) from error


def _body(store: Store, request: Request) -> dict[str, Any]:
    own = list(rows_of(store, run_id=request.run_id, request_id=request.id))
    covered = covering(store, Head(request.run_id, own[-1].seq, own[-1].link))
    last = own[-1].seq if covered is None else covered[2].seq
    rows = _between(store, request.run_id, own[0].seq, last)
    if covered is not None and rows[-1].link != covered[2].link:
        raise errors.EvidenceError(
            f"row {last} of run {request.run_id!r} is not the one that {covered[0].witness} knows, or is gone: there is"
            " nothing to prove; see `sayso log --verify`"
        )
    body: dict[str, Any] = {
        "format": "sayso/receipt/1",
        **statement_of(request, own),
        "chain": {
            "before": rows[0].link if own[0].seq > 1 else first_link(request.run_id),
            "rows": _lists(rows, own[0]),
        },
        "checkpoint": None if covered is None else _checkpoint(*covered),
    }
    _followed(body)
    _must_be_said(body, own)
    return body


def _between(store: Store, run_id: str, first: int, last: int) -> list[Entry]:
    """Return rows of a chain, with the one before the first, where there is one."""
    found: list[Entry] = []
    for entry in rows_of(store, run_id=run_id, after=(run_id, max(first - 2, 0))):
        if entry.seq > last:
            break
        found.append(entry)
    return found


def _lists(rows: list[Entry], first: Entry) -> list[list[Any]]:
    return [list(entry) for entry in rows if entry.seq >= first.seq]


def _checkpoint(made: Checkpoint, lines: Sequence[str], head: Head) -> dict[str, Any]:
    return {**made._asdict(), "proof": proof_of(lines, lines.index(line_of(head)))}


# -- verifying -------------------------------------------------------------------------------------------------------


def verify_receipt_file(path: Path, *, trusted: str | None = None) -> Proven:
    """Return what the receipt in a file says; raises as `verify_receipt`."""
    return verify_receipt(read_bytes(_KIND, path, _LIMIT), trusted=trusted)


def verify_receipt(content: bytes, *, trusted: str | None = None) -> Proven:
    """Return what a receipt says, after everything in it was found to go together. Needs no store.

    Args:
        content: The whole file.
        trusted: The public key that must have signed it and its checkpoint; None believes the one that it names.

    Raises:
        EvidenceError: It is none, was changed or cut off, does not go together, or is not signed by that key.
    """
    body, key = read_paper(_KIND, content, trusted=trusted)
    try:
        rows = _followed(body)
        request_id = body["request"]["id"]
        own = [row for row in rows if row.request_id == request_id]
        if not own or own[0] != rows[0] or own[0].event != "asked":
            raise errors.EvidenceError("the rows in the receipt do not begin where its request was asked")
        _must_be_said(body, own)
        made = None if body["checkpoint"] is None else _known_to(body["checkpoint"], rows[-1], trusted)
    except _DAMAGED as error:
        raise errors.EvidenceError(f"the receipt does not say what a receipt says ({type(error).__name__})") from error
    return Proven(body, key, made)


def _followed(body: dict[str, Any]) -> list[Entry]:
    """Return the rows, of which each follows from the one before."""
    before = body["chain"]["before"]
    rows = [Entry(*row) for row in body["chain"]["rows"]]
    run_id, seq = body["request"]["run"], rows[0].seq
    if seq == 1 and before != first_link(run_id):
        raise errors.EvidenceError("the rows in the receipt do not follow from the beginning of their chain")
    for place, row in enumerate(rows, seq):
        if (row.run_id, row.seq) != (run_id, place) or chained(before, *row[:-1]) != row:
            raise errors.EvidenceError(f"row {place} in the receipt does not follow from the one before")
        before = row.link
    return rows


def _must_be_said(body: dict[str, Any], own: list[Entry]) -> None:
    """Compare what the receipt says with what the request's own rows say."""
    for where, said in facts_of(own, body).items():
        part, _, name = where.partition(".")
        found = body[part] if not name else cast("dict[str, Any]", body[part] or {}).get(name)
        if json.dumps(found) != json.dumps(said):
            raise errors.EvidenceError(f"the receipt says of {where} what its rows do not say")


def _known_to(found: dict[str, Any], last: Entry, trusted: str | None) -> Checkpoint:
    """Return the checkpoint, which knows the last row."""
    made = Checkpoint(**{name: found[name] for name in Checkpoint._fields})
    if climbed(line_of(Head(last.run_id, last.seq, last.link)), found["proof"]) != made.root:
        raise errors.EvidenceError("the proof in the receipt does not lead to the root of its checkpoint")
    if trusted is not None and made.key != trusted:
        raise errors.EvidenceError(f"the receipt's checkpoint is not signed by {trusted}")
    if made.key is not None and not signed_by(made.key, made.signature, made.statement.encode("ascii")):
        raise errors.EvidenceError("the signature of the receipt's checkpoint does not hold")
    return made
