"""What a receipt states: what was shown of a request, who decided what, and how it ended.

`statement_of` writes it from a request and its rows, and `facts_of` reads back from rows alone what they say of it.
Invariant: times, names, fingerprints, words and outcomes are the rows' own; only what no row holds comes from the
request, and of that a row holds the digest where it is what a person was shown.
"""

from __future__ import annotations

import json
from typing import Any, cast

from sayso import errors
from sayso.clock import instant, written
from sayso.model import canonical
from sayso.model.fingerprint import shown_digest
from sayso.model.journal import Entry, Trail
from sayso.model.request import Call, Question, Request

__all__ = ["facts_of", "statement_of"]

_VERBS = {
    "approved": "approve", "rejected": "reject", "feedback": "feedback", "answered": "answer", "cancelled": "cancel",
    "withdrawn": "withdraw",
}  # fmt: skip
_AFTERWARDS = frozenset({"cleared", "extended", "purged"})


def statement_of(request: Request, own: list[Entry]) -> dict[str, Any]:
    """Return the statement about a final request, as JSON values; `own` are its rows."""
    execution, decision = request.execution, request.decision
    said: dict[str, Any] = {
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
        said[part] = fact if not name else {**(said[part] or {}), name: fact}
    return said


def _shown(subject: Call | Question) -> dict[str, Any]:
    if isinstance(subject, Question):
        return {"question": subject.text, "text": subject.text}
    return {"arguments": subject.arguments, "text": subject.shown_text}


def _result(text: str) -> Any:
    return cast("Any", canonical.display(canonical.load(text)))["result"]


def facts_of(own: list[Entry], body: dict[str, Any]) -> dict[str, Any]:
    """Return what a request's rows say, by where it stands in a receipt: `part.name`.

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
    _must_be_shown("shown", body["shown"], digests[0])
    if len(digests) > 1 or body["edited"] is not None:
        _must_be_shown("edited", body["edited"], digests[-1] if len(digests) > 1 else None)
    said = Trail()
    for row in own:
        said, problem = said.after(row.event, row.detail)
        if problem is not None:
            raise errors.EvidenceError(f"row {row.seq} in the receipt cannot follow: the request was {problem}")
    if body["outcome"]["state"] not in said.states:
        raise errors.EvidenceError("the receipt says of outcome.state what its rows do not say")
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


def _must_be_shown(part: str, found: Any, digest: str | None) -> None:
    text = found["text"]
    if shown_digest(text) != digest:
        raise errors.EvidenceError(f"the receipt says of {part} what its rows do not say")
    drawn = {"question": text} if "question" in found else {"arguments": canonical.display(canonical.load(text))}
    if json.dumps({**drawn, "text": text}) != json.dumps(found):
        raise errors.EvidenceError(f"what the receipt draws of {part} is not what its text says")


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
