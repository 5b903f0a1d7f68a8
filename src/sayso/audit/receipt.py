"""Receipts: files that prove what happened to one request to somebody without access to the store.

A receipt states what was shown, who decided what, and the outcome. It includes the rows of the journal, from the
request's first to its last. `verify_receipt` compares the stated times, names, fingerprints, comments and states with
these rows. The rows hold only a digest of what was shown. The other facts (risk, rule, prompt, context, needed
reviewers, answer, error, result) are covered only by the receipt's digest and signature.
"""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from sayso import errors
from sayso.audit.checkpoint import first_of, history
from sayso.audit.signing import SignedDocument, Signer, document_text, read_bytes, read_document
from sayso.audit.verifier import verify
from sayso.clock import instant, written
from sayso.model import canonical
from sayso.model.ids import shown_digest
from sayso.model.journal import Entry, Trail, chained, first_link
from sayso.model.request import Call, Question, Request
from sayso.stores.base import Store
from sayso.stores.review import rows_of

_KIND = "receipt"
_LIMIT = 64 << 20
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_VERBS = {
    "approved": "approve", "rejected": "reject", "feedback": "feedback", "answered": "answer", "cancelled": "cancel",
    "withdrawn": "withdraw",
}  # fmt: skip
_TAKEN_BACK = frozenset({"returned", "undone"})
_AFTERWARDS = frozenset({"cleared", "commented", "extended", "purged"})


# -- writing ---------------------------------------------------------------------------------------------------------


def receipt_text(store: Store, request_id: str, signer: Signer | None = None) -> str:
    """Return the text of a request's receipt; raises the same errors as `receipt_of`."""
    return document_text(_KIND, receipt_of(store, request_id), signer)


def receipt_of(store: Store, request_id: str) -> dict[str, Any]:
    """Return the unsigned body of a receipt, as JSON values.

    Raises:
        RequestNotFoundError: There is no such request.
        EvidenceError: The request is not final, its content was purged, or its run or the checkpoints do not verify.
    """
    run_id, past = store.get(request_id).run_id, history(store)
    broken = [*past.broken, *(found.reason for found in verify(store, run_id=run_id, known=past.known).broken)]
    if broken:
        raise errors.EvidenceError(
            f"the journal of run {run_id!r} is broken: {first_of(broken)}; see `sayso log --verify`"
        )
    request = store.settle(request_id)
    if not request.is_final:
        raise errors.EvidenceError(f"{request_id} is {request.state}: a receipt can be made once the request has ended")
    if request.purged_at is not None:
        raise errors.EvidenceError(
            f"the content of {request_id} was removed on {request.purged_at:%Y-%m-%d}: make a receipt before a purge"
        )
    try:
        body = _body(store, request)
        _check(body)
    except _DAMAGED as error:
        raise errors.EvidenceError(
            f"the rows of {request_id} do not have the expected content ({type(error).__name__}), so there is nothing"
            " to prove; see `sayso log --verify`"
        ) from error
    return body


def _body(store: Store, request: Request) -> dict[str, Any]:
    own = list(rows_of(store, run_id=request.run_id, request_id=request.id))
    facts, first, last = _facts(own), own[0].seq, own[-1].seq
    rows = list(
        takewhile(
            lambda row: row.seq <= last,
            rows_of(store, run_id=request.run_id, after=(request.run_id, max(first - 2, 0))),
        )
    )
    before = rows.pop(0).link if first > 1 else first_link(request.run_id)
    execution, decision = request.execution, request.decision
    return {
        "format": "sayso/receipt/1",
        "request": facts["request"] | {
            "risk": request.risk, "rule": request.rule, "prompt": request.prompt, "description": request.description,
            "context": request.context,
            "needs": {"count": request.quorum.count, "roles": sorted(request.quorum.roles)},
        },
        "shown": _shown(request.subject),
        "edited": None if request.edited is None else _shown(request.edited),
        "votes": facts["votes"],
        "decision": facts["decision"] and facts["decision"] | {
            "comment": None if decision is None else decision.comment, "answer": request.answer,
        },
        "outcome": facts["outcome"] | {
            "state": str(request.state),
            "returned": None if execution is None or execution.result is None
            else cast("Any", canonical.display(canonical.load(execution.result)))["result"],
            "error": None if execution is None else execution.error,
        },
        "chain": {"before": before, "rows": [list(row) for row in rows]},
    }  # fmt: skip


def _shown(subject: Call | Question) -> dict[str, Any]:
    if isinstance(subject, Question):
        return {"question": subject.text, "text": subject.text}
    return {"arguments": subject.arguments, "text": subject.shown_text}


def _facts(own: list[Entry]) -> dict[str, Any]:
    """Return the facts that the rows of a request record, by the part of the receipt that states them."""
    asked, first = own[0], _detail(own[0])
    ended = _ended(own)
    started = [row for row in own if row.event == "started"]
    resolved = [row for row in own if row.event == "resolved"]
    return {
        "request": {
            "id": asked.request_id, "kind": first["kind"], "run": asked.run_id, "fingerprint": first["fingerprint"],
            "tool": first.get("tool"), "requester": asked.by, "on_behalf_of": first.get("on_behalf_of"),
            "asked_at": _at(asked),
        },
        "votes": [
            {**_decision_facts(row), "edited": bool(_detail(row).get("edited"))} for row in own if row.event == "voted"
        ],
        "decision": None if ended is None else {"verb": _VERBS[ended.event], **_decision_facts(ended)},
        "outcome": {
            "started_at": _at(started[-1]) if started else None,
            "at": _at([row for row in own if row.event not in _AFTERWARDS][-1]),
            "resolved_by": resolved[-1].by if resolved else None,
        },
    }  # fmt: skip


def _ended(own: list[Entry]) -> Entry | None:
    """Return the row of the decision; None if there is none, or it was undone or returned."""
    last = next((row for row in reversed(own) if row.event in _VERBS or row.event in _TAKEN_BACK), None)
    return None if last is None or last.event in _TAKEN_BACK else last


def _decision_facts(row: Entry) -> dict[str, Any]:
    return {"by": row.by, "channel": row.channel, "at": _at(row), "fingerprint": _detail(row).get("fingerprint")}


def _detail(row: Entry) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(row.detail))


def _at(row: Entry) -> str:
    return written(instant(row.at))


# -- verifying -------------------------------------------------------------------------------------------------------


def verify_receipt_file(path: Path, *, trusted: str | None = None) -> SignedDocument:
    """Read and verify the receipt in a file; raises the same errors as `verify_receipt`."""
    return verify_receipt(read_bytes(_KIND, path, _LIMIT), trusted=trusted)


def verify_receipt(content: bytes, *, trusted: str | None = None) -> SignedDocument:
    """Parse and verify a receipt. This needs no store.

    Args:
        trusted: The public key that must have signed it; None accepts the key that the receipt names.

    Raises:
        EvidenceError: It is not a receipt, was changed or truncated, contradicts itself, or is not signed by that key.
    """
    found = read_document(_KIND, content, trusted=trusted)
    try:
        _check(found.body)
    except _DAMAGED as error:
        raise errors.EvidenceError(
            f"the receipt does not have the content of a receipt ({type(error).__name__})"
        ) from error
    return found


def _check(body: dict[str, Any]) -> None:
    """Check that the rows form a chain and agree with what the receipt states."""
    own = _own_rows(body)
    _check_shown(body, own)
    trail = Trail()
    for row in own:
        trail, problem = trail.after(row.event, row.detail)
        if problem is not None:
            raise errors.EvidenceError(f"row {row.seq} in the receipt is not possible there: the request was {problem}")
    if body["outcome"]["state"] not in trail.states:
        raise errors.EvidenceError("outcome.state of the receipt does not match its rows")
    facts = _facts(own)
    ended = _ended(own)
    if ended is not None and ended.event != "withdrawn":
        detail = _detail(ended)
        comment = detail.get("comment", detail.get("reason"))
        if not str(comment).startswith("sealed:"):
            facts["decision"]["comment"] = comment
    for part, fact in facts.items():
        found = body[part]
        if isinstance(fact, dict):
            names = cast("dict[str, Any]", fact)
            found = {name: found[name] for name in names}
        if json.dumps(found) != json.dumps(fact):
            raise errors.EvidenceError(f"{part} of the receipt does not match its rows")


def _own_rows(body: dict[str, Any]) -> list[Entry]:
    """Return the rows of the request, after checking that each row links to the one before."""
    rows = [Entry(*row) for row in body["chain"]["rows"]]
    run_id, before = body["request"]["run"], body["chain"]["before"]
    if rows[0].seq == 1 and before != first_link(run_id):
        raise errors.EvidenceError("the rows in the receipt do not connect to the beginning of their chain")
    for place, row in enumerate(rows, rows[0].seq):
        if (row.run_id, row.seq) != (run_id, place) or chained(before, *row[:-1]) != row:
            raise errors.EvidenceError(f"row {place} in the receipt does not follow from the one before")
        before = row.link
    own = [row for row in rows if row.request_id == body["request"]["id"]]
    if not own or own[0] != rows[0] or own[0].event != "asked":
        raise errors.EvidenceError("the rows in the receipt do not begin where its request was asked")
    return own


def _check_shown(body: dict[str, Any], own: list[Entry]) -> None:
    details = [_detail(row) for row in own]
    # A returned edit was not the call shown last, and after an undone approval an earlier edit may be the current one.
    back = max(
        (n for n, row in enumerate(own) if row.event == "returned" or (row.event == "undone" and details[n])), default=0
    )
    first, *edits = [detail["shown"] for n, detail in enumerate(details) if "shown" in detail and not 0 < n < back]
    wanted = {"shown": first}
    if edits or body["edited"] is not None:
        wanted["edited"] = edits[-1] if edits else None
    for part, digest in wanted.items():
        found, text = body[part], body[part]["text"]
        if shown_digest(text) != digest:
            raise errors.EvidenceError(f"{part} of the receipt does not match its rows")
        drawn = {"question": text} if "question" in found else {"arguments": canonical.display(canonical.load(text))}
        if json.dumps({**drawn, "text": text}) != json.dumps(found):
            raise errors.EvidenceError(f"{part} of the receipt does not match its text")
