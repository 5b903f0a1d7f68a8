"""How often one approval starts, where the program that says how a start ended is not trusted.

A call that stops to ask a person something else gives its start back (`suspended`), and asks. The server gives the
start out again when a person has answered something in the same run since. A call that may be repeated has its share
of starts. The invariant: with a token of the kind `ask`, each start beyond those that were shown at the approval is
paid for by one more answer of a person.
"""

from __future__ import annotations

from datetime import datetime

from sayso import clock, errors
from sayso.model.duration import ago
from sayso.model.request import Execution, Request
from sayso.server.api.ownership import Ownership
from sayso.stores.base import Filter

__all__ = ["MOST_RETRIES", "must_be_answered", "must_have_starts"]

MOST_RETRIES = 5
"""A program's call is retried no more often on a server; an idempotent one is started no more often than that again."""

_LOOKED_AT = 1_000  # requests of one run, the last ones first


def must_be_answered(own: Ownership, request: Request) -> None:
    """Raise `AlreadyStartedError` for a call that stopped to ask, while no person has answered since it was started."""
    execution = request.execution
    if execution is None or not execution.stopped or execution.error is not None:  # an error is of a later start
        return
    asked = own.page(Filter(run_id=request.run_id), None, _LOOKED_AT, newest=True).requests
    if not any(_is_answered(own, one, execution.started_at) for one in asked):
        raise _already(request, execution)


def must_have_starts(request: Request) -> None:
    """Raise `AlreadyStartedError` for an idempotent call that has had its share of starts."""
    execution = request.execution
    if execution is not None and execution.attempt > MOST_RETRIES:
        raise _already(request, execution)


def _already(request: Request, execution: Execution) -> errors.AlreadyStartedError:
    at = execution.started_at
    return errors.AlreadyStartedError(request.id, state=request.state, at=at, age=ago(at, clock.now()))


def _is_answered(own: Ownership, request: Request, since: datetime) -> bool:
    """Say whether a person decided a request, or said how its call ended, since an instant; the program is nobody."""
    decision, execution = request.decision, request.execution
    if decision is not None and decision.by != own.me and decision.at >= since:
        return True
    if execution is None or execution.resolved_by in {None, own.me} or execution.finished_at is None:
        return False
    return execution.finished_at >= since
