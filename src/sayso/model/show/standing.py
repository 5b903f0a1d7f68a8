"""Where a request stands: who decided what and through which channel, how the call went, and what an edit changed.

Invariant: what is masked stays masked, and a change of a masked value is still named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from sayso.model import canonical
from sayso.model.call import Call
from sayso.model.canonical.tags import MASK
from sayso.model.decision import Decision
from sayso.model.duration import ago
from sayso.model.redaction import Redaction
from sayso.model.request import Execution, Request, State
from sayso.model.show import Change, changes, escape
from sayso.model.show.label import name_of, time_left, token
from sayso.model.show.literal import brief

__all__ = ["changed", "decided", "outcome_rows", "said_by", "stands"]

_COMMENT_ROOM = 300
_RESULT_ROOM = 1_000
_CHANGED = f"{MASK} (changed)"


def said_by(decision: Decision, now: datetime) -> str:
    """Return who said something, through which channel and how long ago."""
    return f"{name_of(decision.by)} ({token(decision.channel)}, {ago(decision.at, now)})"


def decided(request: Request, now: datetime) -> str:
    """Return who decided what, when and through which channel; or that nobody did."""
    decision = request.decision
    if request.state is State.EXPIRED:
        end = request.expires_at if request.approval_expires_at is None else request.approval_expires_at
        what = "nobody decided" if decision is None else f"approved by {said_by(decision, now)} and not used in time"
        return f"expired {ago(end, now)}; {what}"
    if decision is None:
        return str(request.state)
    match decision.verb:
        case "approve":
            verb = "approved" if request.edited is None else "approved with changes"
        case "feedback":
            verb = "sent back with feedback"
        case "answer":
            verb = f"answered {_answer(decision)}"
        case "reject" | "cancel":
            verb = str(request.state)
    words = "" if decision.comment is None else f": {brief(decision.comment, _COMMENT_ROOM)}"
    return f"{verb} by {said_by(decision, now)}{words}"


def stands(request: Request, now: datetime) -> str:
    """Return where a request stands, in one line."""
    if request.state is State.PENDING:
        missing = f", {_more(request)}" if request.votes else ""
        return f"pending, expires {time_left(request.expires_at, now)}{missing}"
    is_granted = (
        request.state is not State.EXPIRED and request.decision is not None and request.decision.verb == "approve"
    )
    return decided(request, now) + (f"; {_progress(request, now)}" if is_granted else "")


def _answer(decision: Decision) -> str:
    return brief(canonical.load(decision.answer or "{}").get("answer"), _COMMENT_ROOM)


def _more(request: Request) -> str:
    count = request.missing_votes
    return f"{count} more reviewer{'' if count == 1 else 's'} must approve"


def _progress(request: Request, now: datetime) -> str:
    execution = request.execution
    end = request.approval_expires_at
    match request.state:
        case State.APPROVED:
            what = "not started yet" if execution is None else _started_before(execution)
            return what if end is None else f"{what}, the approval ends {time_left(end, now)}"
        case State.RUNNING if execution is not None:
            return (
                f"running, started {ago(execution.started_at, now)} (attempt {execution.attempt}{_starts(execution)})"
            )
        case State.UNKNOWN if execution is not None:
            return f"started {ago(execution.started_at, now)}, OUTCOME UNKNOWN"
        case _:
            when = "" if execution is None or execution.finished_at is None else f" {ago(execution.finished_at, now)}"
            return f"{request.state}{when}"


def _started_before(execution: Execution) -> str:
    if execution.attempt == 0:
        return f"started {_times(execution.stopped)}, and stopped to ask something else"
    return f"attempt {execution.attempt} failed{_starts(execution)}, it may be tried again"


def _starts(execution: Execution) -> str:
    """Return how many starts there were, where attempts alone do not say it."""
    return f", started {_times(execution.starts)}" if execution.stopped else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def outcome_rows(request: Request) -> Iterator[str]:
    """Yield what the call returned or how it failed, and who said so where the program could not."""
    execution = request.execution
    if execution is None:
        return
    if execution.result is not None:
        yield f"  returned {brief(canonical.load(execution.result).get('result'), _RESULT_ROOM)}"
    if execution.error is not None:
        yield f"  error {brief(execution.error, _RESULT_ROOM)}"
    if execution.resolved_by is not None:
        yield f"  resolved by {name_of(execution.resolved_by)}"


def changed(before: Call, after: Call, redact: Collection[str] = ()) -> list[Change]:
    """Return what an edit changes, as it may be shown: a masked value that changed is named and stays masked.

    Args:
        before: The call as it stood.
        after: The call as it stands.
        redact: Names that the gate masks beside the usual ones (`Request.redact`).
    """
    found: list[Change] = []
    old, new = canonical.load(before.form), canonical.load(after.form)
    seen, will = before.shown, after.shown
    is_secret = Redaction(redact).is_secret
    for name in {**old, **new}:
        real = changes(_only(old, name), _only(new, name), is_secret=is_secret)
        if not real:
            continue  # also where a redactor draws an unchanged value in another way
        visible = changes(_only(seen, name), _only(will, name))
        paths = {change.path for change in visible}
        visible += [change for change in real if _is_masked(change) and change.path not in paths]
        found += visible or [Change(escape(name), MASK, _CHANGED)]
    return found


def _is_masked(change: Change) -> bool:
    return {change.before, change.after} <= {None, MASK, _CHANGED}


def _only(tree: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: tree[name]} if name in tree else {}
