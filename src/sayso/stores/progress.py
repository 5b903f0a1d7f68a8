"""What becomes of a request, as columns: all of them when it is asked, later those that a transition changed.

A transition makes a new request that shares with the old one, as the same objects, all that it left alone. So what
changed is told by identity, and only that is encoded, sealed and written: an index's column that is written again
rewrites the index, even with the same value.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sayso.clock import microseconds
from sayso.model.call import Call
from sayso.model.canonical.compact import dumps
from sayso.model.decision import Decision
from sayso.model.request import LIVE, Execution, Request, State
from sayso.stores.seal import Seal

__all__ = ["changed_values", "progress_values"]

_WORDS = {state: state.value for state in State}  # plain texts: SQLite's driver looks long at what is only like one


def progress_values(request: Request, seal: Seal, link: str) -> tuple[Any, ...]:
    """Return the values of `PROGRESS_COLUMNS`; `link` is that of the journal's row for the change."""
    end, claimed_by, execution = _end(request), request.claimed_by, request.execution
    return (
        1 if request.holds else None,
        _WORDS[request.state],
        1 if request.state in LIVE else None,
        None if end is None else microseconds(end),
        None if claimed_by is None else claimed_by.folded,
        *_edited(request.id, request.edited, seal),
        seal.close(_progress(request), request.id, "progress"),
        None if execution is None else seal.close(_execution(execution), request.id, "execution"),
        link,
    )


def changed_values(before: Request, after: Request, seal: Seal) -> dict[str, Any]:
    """Return what a transition changed of `PROGRESS_COLUMNS`, by name; without the link."""
    changed: dict[str, Any] = {}
    if after.holds is not before.holds:
        changed["holds"] = 1 if after.holds else None
    if after.state is not before.state:
        changed["state"] = _WORDS[after.state]
        if after.state not in LIVE:
            changed["live"] = None
    end = _end(after)
    if end is not _end(before):
        changed["ends_at"] = None if end is None else microseconds(end)
    if after.claimed_by is not before.claimed_by:
        changed["claimed_by"] = None if after.claimed_by is None else after.claimed_by.folded
    if after.edited is not before.edited:
        names = ("edited_form", "edited_masked", "edited_digest")
        changed.update(zip(names, _edited(after.id, after.edited, seal), strict=True))
    if _has_moved(before, after):
        changed["progress"] = seal.close(_progress(after), after.id, "progress")
    if after.execution is not before.execution:
        execution = after.execution
        changed["execution"] = None if execution is None else seal.close(_execution(execution), after.id, "execution")
    return changed


def _end(request: Request) -> datetime | None:
    """Return when what the request waits for now is too late."""
    if request.state is State.PENDING:
        return request.expires_at
    return request.approval_expires_at if request.state is State.APPROVED else None


def _has_moved(before: Request, after: Request) -> bool:
    return (
        after.decision is not before.decision
        or after.votes is not before.votes
        or after.expires_at is not before.expires_at
        or after.approval_expires_at is not before.approval_expires_at
        or after.claimed_by is not before.claimed_by
        or after.escalated_at is not before.escalated_at
    )


def _edited(request_id: str, edited: Call | None, seal: Seal) -> tuple[str | None, str | None, str | None]:
    if edited is None:
        return None, None, None
    masked = None if edited.masked is None else seal.close(edited.masked, request_id, "edited_masked")
    return seal.close(edited.form, request_id, "edited_form"), masked, edited.digest


def _progress(request: Request) -> str:
    fields: dict[str, Any] = {"ends": microseconds(request.expires_at)}
    if request.votes and request.votes[-1] is not request.decision:
        fields["votes"] = [_packed(vote) for vote in request.votes]
    elif request.votes:
        fields["earlier"] = [_packed(vote) for vote in request.votes[:-1]]
    if request.decision is not None:
        fields["decision"] = _packed(request.decision)
    if request.claimed_by is not None and request.claimed_at is not None:
        claimed_by = request.claimed_by
        fields["claimed"] = claimed_by.issuer, claimed_by.subject, microseconds(request.claimed_at)
    if request.escalated_at is not None:
        fields["escalated"] = microseconds(request.escalated_at)
    if request.approval_expires_at is not None:
        fields["approval_ends"] = microseconds(request.approval_expires_at)
    return dumps(fields)


def _packed(decision: Decision) -> tuple[Any, ...]:
    return (
        decision.verb, decision.by.issuer, decision.by.subject, microseconds(decision.at), decision.channel,
        decision.comment, decision.fingerprint, decision.edited, decision.answer,
    )  # fmt: skip


def _execution(execution: Execution) -> str:
    ended, by = execution.finished_at, execution.resolved_by
    return dumps((
        execution.token, execution.worker, execution.attempt, microseconds(execution.started_at),
        None if ended is None else microseconds(ended), execution.result, execution.error,
        None if by is None else (by.issuer, by.subject), *([execution.stopped] if execution.stopped else ()),
    ))  # fmt: skip
