"""Requests and rows of the journal as JSON values: for `--json`, the HTTP API, and whoever else reads by program.

The keys are stable: none is renamed or taken away without a deprecation, new ones may come. Instants are ISO 8601 in
UTC with a Z, people `issuer:subject`, what there is not is null. The invariant: arguments and answers are masked.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sayso.clock import instant, written
from sayso.model import canonical
from sayso.model.call import Call
from sayso.model.decision import Decision
from sayso.model.entry import Entry
from sayso.model.escalation import Escalation
from sayso.model.request import Execution, Request
from sayso.model.reviewer import Identity
from sayso.model.show import card
from sayso.model.show.standing import changed

__all__ = ["entry_document", "request_document"]


def _at(moment: datetime | None) -> str | None:
    return None if moment is None else written(moment)


def _who(identity: Identity | None) -> str | None:
    return None if identity is None else identity.qualified


def request_document(request: Request, *, program_gone: bool | None = None) -> dict[str, Any]:
    """Return a request as JSON values.

    Args:
        request: The request.
        program_gone: Whether nobody comes back for the decision (`Review.program_is_gone`); None is not told.
    """
    return {
        "id": request.id,
        "kind": request.kind,
        "state": str(request.state),
        "run": request.run_id,
        **({} if program_gone is None else {"program_gone": program_gone}),
        "fingerprint": request.current_fingerprint,
        **_subject(request),
        "prompt": request.prompt,
        "description": request.description,
        "risk": request.risk,
        "rule": request.rule,
        "context": request.context,
        "unverified": card.unverified(request),
        "warnings": card.cautions(request),
        "requester": _who(request.requester),
        "on_behalf_of": _who(request.on_behalf_of),
        "quorum": {
            "count": request.quorum.count, "roles": sorted(request.quorum.roles), "missing": request.missing_votes,
        },
        "retries": request.retries,
        "idempotent": request.idempotent,
        "escalation": None if request.escalation is None else _escalation(request, request.escalation),
        "created_at": _at(request.created_at),
        "expires_at": _at(request.expires_at),
        "approval_expires_at": _at(request.approval_expires_at),
        "claimed_by": _who(request.claimed_by),
        "claimed_at": _at(request.claimed_at),
        "votes": [_decision(vote) for vote in request.votes],
        "decision": None if request.decision is None else _decision(request.decision),
        "execution": None if request.execution is None else _execution(request.execution),
    }  # fmt: skip


def _escalation(request: Request, escalation: Escalation) -> dict[str, Any]:
    return {
        "at": _at(request.created_at + escalation.after),
        "roles": sorted(escalation.roles),
        "people": [person.qualified for person in escalation.people],
        "escalated_at": _at(request.escalated_at),
    }


def _subject(request: Request) -> dict[str, Any]:
    subject = request.subject
    if not isinstance(subject, Call):
        return {"question": subject.text, "answer": request.answer}
    edited = request.edited
    found = [] if edited is None else changed(subject, edited, request.redact)
    return {
        "function": subject.name,
        "tool": subject.tool,
        "arguments": request.effective.arguments,
        "proposed": subject.arguments,
        "changes": [{"path": change.path, "before": change.before, "after": change.after} for change in found],
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "verb": decision.verb,
        "by": decision.by.qualified,
        "at": _at(decision.at),
        "channel": decision.channel,
        "comment": decision.comment,
        "edited": decision.edited,
    }


def _execution(execution: Execution) -> dict[str, Any]:
    result = execution.result
    return {
        "attempt": execution.attempt,
        "starts": execution.starts,
        "started_at": _at(execution.started_at),
        "finished_at": _at(execution.finished_at),
        "result": None if result is None else canonical.display(canonical.load(result)["result"]),
        "error": execution.error,
        "resolved_by": _who(execution.resolved_by),
    }


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return a row of the journal as JSON values; a `detail` that was altered so that it is no JSON stays a text."""
    try:
        detail = json.loads(entry.detail)
    except ValueError:
        detail = entry.detail
    return {
        "run": entry.run_id,
        "seq": entry.seq,
        "at": _at(instant(entry.at)),
        "request": entry.request_id or None,
        "event": entry.event,
        "by": entry.by,
        "channel": entry.channel,
        "detail": detail,
        "link": entry.link,
    }
