"""Receipts: what became of one request, in a file that proves it to somebody who has no store.

A receipt states what was shown, who decided what and how it ended; it holds the rows of the journal that say so, from
the request's first to the newest that the first checkpoint after it names, and that checkpoint with its proof. Times,
names, fingerprints, comments and outcomes are taken from the rows. What was shown is in no row, but its digest is.
`verify_receipt` compares every stated fact with the rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from sayso import errors
from sayso.audit.checkpoint import Checkpoint, covering, head_line, proof_of, root_by_proof
from sayso.audit.signing import Signer, document_text, read_bytes, read_document, signed_by
from sayso.audit.verifier import must_agree, rows_of
from sayso.clock import instant, written
from sayso.model import canonical
from sayso.model.fingerprint import shown_digest
from sayso.model.journal import Entry, Head, Trail, chained, first_link
from sayso.model.request import Call, Question, Request
from sayso.stores.base import Store

__all__ = ["Proven", "facts_of", "receipt_of", "receipt_text", "statement_of", "verify_receipt", "verify_receipt_file"]

_VERBS = {
    "approved": "approve", "rejected": "reject", "feedback": "feedback", "answered": "answer", "cancelled": "cancel",
    "withdrawn": "withdraw",
}  # fmt: skip
_AFTERWARDS = frozenset({"cleared", "extended", "purged"})


def statement_of(request: Request, own: list[Entry]) -> dict[str, Any]:
    """Return what a receipt states about a final request, as JSON values; `own` are its rows."""
    execution, decision = request.execution, request.decision
    statement: dict[str, Any] = {
        "request": {
            "id": request.id, "kind": request.kind, "run": request.run_id,
            "risk": request.risk, "rule": request.rule, "prompt": request.prompt, "description": request.description,
            "context": request.context,
            "needs": {"count": request.quorum.count, "roles": sorted(request.quorum.roles)},
        },
        "shown": _shown(request.subject),
        "edited": None if request.edited is None else _shown(request.edited),
        "decision": None if decision is None else {"comment": decision.comment, "answer": request.answer},
        "outcome": {
            "state": str(request.state),
            "returned": None if execution is None or execution.result is None else _result(execution.result),
            "error": None if execution is None else execution.error,
        },
    }  # fmt: skip
    for where, fact in _facts(own).items():
        part, _, name = where.partition(".")
        statement[part] = fact if not name else {**(statement[part] or {}), name: fact}
    return statement


def _shown(subject: Call | Question) -> dict[str, Any]:
    if isinstance(subject, Question):
        return {"question": subject.text, "text": subject.text}
    return {"arguments": subject.arguments, "text": subject.shown_text}


def _result(text: str) -> Any:
    return cast("Any", canonical.display(canonical.load(text)))["result"]


def facts_of(own: list[Entry], body: dict[str, Any]) -> dict[str, Any]:
    """Return the facts in a request's rows, by their place in a receipt: `part.name`.

    Args:
        own: The rows of the request.
        body: The receipt, for what only its digest stands in the rows.

    Raises:
        EvidenceError: What was shown has another digest in the rows, or the outcome is none that they lead to.
    """
    details = [_detail(row) for row in own]
    # An edit that came back was not the call that was shown last.
    back = max((place for place, row in enumerate(own) if row.event == "returned"), default=0)
    digests = [detail["shown"] for place, detail in enumerate(details) if "shown" in detail and not 0 < place < back]
    _check_shown("shown", body["shown"], digests[0])
    if len(digests) > 1 or body["edited"] is not None:
        _check_shown("edited", body["edited"], digests[-1] if len(digests) > 1 else None)
    trail = Trail()
    for row in own:
        trail, problem = trail.after(row.event, row.detail)
        if problem is not None:
            raise errors.EvidenceError(f"row {row.seq} in the receipt cannot follow: the request was {problem}")
    if body["outcome"]["state"] not in trail.states:
        raise errors.EvidenceError("outcome.state of the receipt does not agree with its rows")
    facts = _facts(own)
    row, detail = _ended(own)
    comment = detail.get("comment", detail.get("reason"))
    if (
        row is not None
        and row.event != "withdrawn"
        and not (isinstance(comment, str) and comment.startswith("sealed:"))
    ):
        facts["decision.comment"] = comment
    return facts


def _check_shown(part: str, found: Any, digest: str | None) -> None:
    text = found["text"]
    if shown_digest(text) != digest:
        raise errors.EvidenceError(f"{part} of the receipt does not agree with its rows")
    drawn = {"question": text} if "question" in found else {"arguments": canonical.display(canonical.load(text))}
    if json.dumps({**drawn, "text": text}) != json.dumps(found):
        raise errors.EvidenceError(f"{part} of the receipt is not what its text stands for")


def _facts(own: list[Entry]) -> dict[str, Any]:
    asked, first = own[0], _detail(own[0])
    facts: dict[str, Any] = {
        "request.id": asked.request_id, "request.kind": first["kind"], "request.run": asked.run_id,
        "request.fingerprint": first["fingerprint"], "request.tool": first.get("tool"),
        "request.requester": asked.by, "request.on_behalf_of": first.get("on_behalf_of"),
        "request.asked_at": _at(asked),
        "votes": [_vote(row) for row in own if row.event == "voted"],
    }  # fmt: skip
    row, detail = _ended(own)
    if row is None:
        facts["decision"] = None
    else:
        facts |= {
            "decision.verb": _VERBS[row.event], "decision.by": row.by, "decision.channel": row.channel,
            "decision.at": _at(row), "decision.fingerprint": detail.get("fingerprint"),
        }  # fmt: skip
    started = [each for each in own if each.event == "started"]
    facts["outcome.started_at"] = _at(started[-1]) if started else None
    facts["outcome.at"] = _at([each for each in own if each.event not in _AFTERWARDS][-1])
    resolved = [each for each in own if each.event == "resolved"]
    facts["outcome.resolved_by"] = resolved[-1].by if resolved else None
    return facts


def _ended(own: list[Entry]) -> tuple[Entry | None, dict[str, Any]]:
    """Return the row of the decision, and its detail."""
    row = next((each for each in reversed(own) if each.event in _VERBS), None)
    return row, {} if row is None else _detail(row)


def _vote(row: Entry) -> dict[str, Any]:
    detail = _detail(row)
    return {
        "by": row.by, "channel": row.channel, "at": _at(row), "fingerprint": detail.get("fingerprint"),
        "edited": bool(detail.get("edited")),
    }  # fmt: skip


def _detail(row: Entry) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(row.detail))


def _at(row: Entry) -> str:
    return written(instant(row.at))


_KIND = "receipt"
_LIMIT = 64 << 20
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Proven(NamedTuple):
    """A receipt that was verified.

    Attributes:
        body: Its content.
        key: The public key that signed it; None where nobody did.
        checkpoint: That knows its rows; None where there was none.
    """

    body: dict[str, Any]
    key: str | None
    checkpoint: Checkpoint | None


def receipt_text(store: Store, request_id: str, signer: Signer | None = None) -> str:
    """Return the receipt of a request as it is written to a file; raises as `receipt_of`."""
    return document_text(_KIND, receipt_of(store, request_id), signer)


def receipt_of(store: Store, request_id: str) -> dict[str, Any]:
    """Return the body of a receipt, as JSON values; it is not signed.

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
    _check_facts(body, own)
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
    return {**made._asdict(), "proof": proof_of(lines, lines.index(head_line(head)))}


# -- verifying -------------------------------------------------------------------------------------------------------


def verify_receipt_file(path: Path, *, trusted: str | None = None) -> Proven:
    """Return the receipt in a file, after verifying it; raises as `verify_receipt`."""
    return verify_receipt(read_bytes(_KIND, path, _LIMIT), trusted=trusted)


def verify_receipt(content: bytes, *, trusted: str | None = None) -> Proven:
    """Return a receipt, after verifying it. Needs no store.

    Args:
        content: The whole file.
        trusted: The public key that must have signed it and its checkpoint; None believes the one that it names.

    Raises:
        EvidenceError: It is none, was changed or truncated, contradicts itself, or is not signed by that key.
    """
    body, key = read_document(_KIND, content, trusted=trusted)
    try:
        rows = _followed(body)
        request_id = body["request"]["id"]
        own = [row for row in rows if row.request_id == request_id]
        if not own or own[0] != rows[0] or own[0].event != "asked":
            raise errors.EvidenceError("the rows in the receipt do not begin where its request was asked")
        _check_facts(body, own)
        made = None if body["checkpoint"] is None else _known_to(body["checkpoint"], rows[-1], trusted)
    except _DAMAGED as error:
        raise errors.EvidenceError(f"the receipt has not the content of a receipt ({type(error).__name__})") from error
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


def _check_facts(body: dict[str, Any], own: list[Entry]) -> None:
    """Compare the facts of the receipt with those of the request's own rows."""
    for where, fact in facts_of(own, body).items():
        part, _, name = where.partition(".")
        found = body[part] if not name else cast("dict[str, Any]", body[part] or {}).get(name)
        if json.dumps(found) != json.dumps(fact):
            raise errors.EvidenceError(f"{where} of the receipt does not agree with its rows")


def _known_to(found: dict[str, Any], last: Entry, trusted: str | None) -> Checkpoint:
    """Return the checkpoint, which knows the last row."""
    made = Checkpoint(**{name: found[name] for name in Checkpoint._fields})
    if root_by_proof(head_line(Head(last.run_id, last.seq, last.link)), found["proof"]) != made.root:
        raise errors.EvidenceError("the proof in the receipt does not lead to the root of its checkpoint")
    if trusted is not None and made.key != trusted:
        raise errors.EvidenceError(f"the receipt's checkpoint is not signed by {trusted}")
    if made.key is not None and not signed_by(made.key, made.signature, made.statement.encode("ascii")):
        raise errors.EvidenceError("the signature of the receipt's checkpoint does not hold")
    return made
