"""A request, a grant and the use of a budget as JSON values, and journal entries as rows of text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from sayso.clock import instant, written
from sayso.model import canonical
from sayso.model.grant import BudgetUse, Grant
from sayso.model.journal import Entry, showable
from sayso.model.rendering import brief, quote_if_needed
from sayso.model.request import Call, Decision, Execution, Request, changed
from sayso.model.reviewer import Identity
from sayso.model.text import escape, later, say
from sayso.view import full_text
from sayso.view.summary import channel_name, columns, padded

_PLAIN = ("key", "effect", "title", "summary", "prompt", "description", "risk", "rule", "context")


def _at(moment: datetime | None) -> str | None:
    return None if moment is None else written(moment)


def _who(identity: Identity | None) -> str | None:
    return None if identity is None else identity.qualified


def grant_document(grant: Grant) -> dict[str, Any]:
    """Return a grant as JSON values; conditions on fields have the form that people see."""
    return {
        "id": grant.id,
        "tool": grant.tool,
        "fields": grant.lines(),
        "run": grant.run,
        "requester": _who(grant.requester),
        "count": grant.count,
        "left": grant.left,
        "created_at": _at(grant.created_at),
        "until": _at(grant.until),
        "by": [one.by.qualified for one in grant.grantors],
        "request": grant.request_id,
        "comment": grant.comment,
        "ended": grant.ended,
        "ended_by": _who(grant.ended_by),
        "ended_at": _at(grant.ended_at),
    }


def budget_document(use: BudgetUse) -> dict[str, str | None]:
    """Return the use of a budget as JSON values."""
    request, per = use.request, use.budget.per
    return {
        "budget": str(use.budget),
        "used": None if use.used is None else f"{use.used:f}",
        "rule": use.rule,
        "tool": None if request is None else request.call.name,
        "agent": None if request is None or per != "agent" else request.requester.qualified,
        "run": None if request is None or per != "run" else request.run_id,
    }


def request_document(request: Request, *, program_gone: bool | None = None) -> dict[str, Any]:
    """Return a request as JSON values.

    Args:
        request: The request.
        program_gone: Whether no program will fetch the decision (`Review.program_is_gone`); None omits the field.
    """
    return {
        "id": request.id,
        "kind": request.kind,
        "state": str(request.state),
        "run": request.run_id,
        **({} if program_gone is None else {"program_gone": program_gone}),
        "fingerprint": request.current_fingerprint,
        **_subject(request),
        **{name: getattr(request, name) for name in _PLAIN},
        "unverified": full_text.unverified(request),
        "warnings": full_text.cautions(request),
        "requester": _who(request.requester),
        "on_behalf_of": _who(request.on_behalf_of),
        "quorum": {
            "count": request.quorum.count, "roles": sorted(request.quorum.roles), "missing": request.missing_votes,
        },
        "retries": request.retries,
        "idempotent": request.idempotent,
        "escalation": None if request.escalation is None else {
            "at": _at(request.created_at + request.escalation.after), "roles": sorted(request.escalation.roles),
            "people": [person.qualified for person in request.escalation.people],
            "escalated_at": _at(request.escalated_at),
        },
        "created_at": _at(request.created_at),
        "expires_at": _at(request.expires_at),
        "approval_expires_at": _at(request.approval_expires_at),
        "returned": request.returned,
        "claimed_by": _who(request.claimed_by),
        "claimed_at": _at(request.claimed_at),
        "votes": [_decision(vote) for vote in request.votes],
        "decision": None if request.decision is None else _decision(request.decision),
        "execution": None if request.execution is None else _execution(request.execution),
    }  # fmt: skip


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
    plain = {name: getattr(decision, name) for name in ("channel", "comment", "edited", "again")}
    return {"verb": decision.verb, "by": decision.by.qualified, "at": _at(decision.at), **plain}


def _execution(execution: Execution) -> dict[str, Any]:
    result = execution.result
    return {
        "attempt": execution.attempt,
        "starts": execution.starts,
        "unresolved": execution.unresolved,
        "started_at": _at(execution.started_at),
        "finished_at": _at(execution.finished_at),
        "result": None if result is None else canonical.display(canonical.load(result)["result"]),
        "error": execution.error,
        "resolved_by": _who(execution.resolved_by),
    }


_ROOM = 300
_EVENT_ROOM = 10, 24  # usual events fit; a longer one widens the column up to the maximum, and then overflows it
_OWN_CHANNELS = frozenset({"clock", "program", "sweep"})
# Fields that other columns already show, or that are only for machines.
_SILENT = frozenset({
    "asked", "at", "attempt", "before", "fingerprint", "heads", "key", "kind", "mentions", "row_digest", "shown",
    "signature", "worker",
})  # fmt: skip
_WORDS = {
    "comment": "", "edited": later("with changes"), "missing": later("more approvals needed:"),
    "until": later("until"), "what": later("the"), "reason": "", "on_behalf_of": later("on behalf of"),
    "held_until": later("can be undone until"), "tool": later("tool:"),
}  # fmt: skip
_EVENTS = frozenset({
    later("asked"), later("voted"), later("assigned"), later("claimed"), later("escalated"), later("released"),
    later("returned"), later("undone"), later("approved"), later("rejected"), later("feedback"), later("answered"),
    later("cancelled"), later("withdrawn"), later("expired"), later("extended"), later("started"), later("suspended"),
    later("done"), later("failed"), later("unknown"), later("resolved"), later("cleared"), later("purged"),
    later("commented"), later("allowed"), later("denied"), later("late"), later("checkpoint"), later("granted"),
    later("grant_revoked"), later("grant_used"), later("grant_expired"), later("budget_taken"),
    later("budget_given_back"), later("stopped"), later("went_on"), later("delegated"), later("delegation_ended"),
    later("token_made"), later("token_revoked"),
})  # fmt: skip


def moment(at: datetime) -> str:
    """Format a time in UTC, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def event_rows(entries: Iterable[Entry]) -> list[str]:
    """Render rows of the journal: time, event, actor and details; event and actor are aligned in columns."""
    shown = map(showable, entries)
    rows = [(entry, say(entry.event) if entry.event in _EVENTS else quote_if_needed(entry.event)) for entry in shown]
    usual, most = _EVENT_ROOM
    pad = max([usual, *(size for _, event in rows if (size := columns(event)) <= most)])
    texts: list[str] = []
    for entry, event in rows:
        # The program's own steps use these channels only, so its issuer adds no information.
        issuer = "program:" if entry.channel in _OWN_CHANNELS else "local:"
        who = f"{quote_if_needed(entry.by.removeprefix(issuer))} ({channel_name(entry.channel)})"
        try:
            when = moment(instant(entry.at))
        except (OverflowError, TypeError, ValueError):  # an altered row
            when = escape(str(entry.at))
        try:
            detail = json.loads(entry.detail)
        except (TypeError, ValueError, RecursionError):
            detail = entry.detail
        parts = [brief(str(detail), _ROOM)]
        if isinstance(detail, dict):
            named = cast("dict[str, Any]", detail).items()
            parts = [_part(name, value) for name, value in named if name not in _SILENT]
        texts.append("  ".join([when, padded(event, pad), who, *parts]))
    return texts


def _part(name: str, value: Any) -> str:
    label = say(_WORDS[name]) if _WORDS.get(name) else _WORDS.get(name, f"{quote_if_needed(name)}:")
    if value is True:
        return label if name in _WORDS else label + " " + say("yes")
    if name == "held_until":
        with suppress(TypeError, ValueError):  # an altered row
            return f"{label} {moment(datetime.fromisoformat(value).astimezone(UTC))}"
    if name in {"until", "on_behalf_of", "tool", "what"} and isinstance(value, str):
        return f"{label} {quote_if_needed(value)}"
    return f"{label} {brief(value, _ROOM)}".strip()
