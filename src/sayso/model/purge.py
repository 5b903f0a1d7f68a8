"""Letting go of what a request was about, when its time has come and nothing can happen to it any more.

What goes: arguments, questions, answers, results, errors, people's comments, and the program's words. What stays: who
asked and decided what, when and how it ended, names, fingerprints and digests, and the journal's rows to the letter.
Invariant: a request to which anything can still happen loses nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sayso import clock, errors
from sayso.model.call import Call
from sayso.model.canonical.compact import dumps
from sayso.model.decision import Decision
from sayso.model.lifecycle import Transition
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity

__all__ = ["ended_at", "purged"]

_GONE = "<purged>"


def ended_at(request: Request) -> datetime:
    """Return when the last thing happened to a final request that its record has an instant for."""
    instants = [request.created_at, *(vote.at for vote in request.votes)]
    if request.state is State.EXPIRED:
        instants.append(request.approval_expires_at or request.expires_at)
    if request.decision is not None:
        instants.append(request.decision.at)
    if request.execution is not None:
        instants.append(request.execution.finished_at or request.execution.started_at)
    return max(instants)


def purged(request: Request, by: Identity, *, before: datetime, channel: str, now: datetime) -> Transition | None:
    """Return the transition that removes what a request was about; None where that was done before.

    Args:
        request: The request as it stands.
        by: Who removes it.
        before: Only what ended before this instant goes.
        channel: Through which channel.
        now: The store's instant.

    Raises:
        PurgeRefusedError: Something can still happen to it, or it ended later.
    """
    if not request.is_final:
        raise errors.PurgeRefusedError(request.id, f"is {request.state}, and something can still happen to it")
    if ended_at(request) >= before:
        raise errors.PurgeRefusedError(
            request.id, f"ended on {ended_at(request):%Y-%m-%d %H:%M:%S}Z, which is not before"
        )
    if request.purged_at is not None:
        return None
    form, decision, execution = dumps({_GONE: f"{now:%Y-%m-%d}"}), request.decision, request.execution
    subject, muted = request.subject, None if decision is None else _mute(decision)
    gone = replace(
        request,
        subject=_bare(subject, form) if isinstance(subject, Call) else replace(subject, text=_GONE),
        edited=None if request.edited is None else _bare(request.edited, form),
        prompt=None, description=None, rule=None, context=None, decision=muted,
        votes=tuple((muted or vote) if vote is decision else _mute(vote) for vote in request.votes),
        execution=None if execution is None else replace(execution, result=None, error=None),
        purged_at=now,
    )  # fmt: skip
    return Transition(gone, "purged", by, channel, {"before": clock.written(before)})


def _bare(call: Call, form: str) -> Call:
    return replace(call, form=form, masked=None)


def _mute(decision: Decision) -> Decision:
    return replace(decision, comment=None, answer=None)
