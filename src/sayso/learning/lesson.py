"""Which requests were decided by a person, and what may be said of them outside.

The invariant: what a program took back was decided by nobody, and a reviewer's words that quote a secret of the call
leave without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sayso.model import redaction
from sayso.model.request import Decision, Request, State
from sayso.mplp.quote import secrets_of
from sayso.stores.base import Filter, Store

__all__ = ["decided", "decision_of", "is_lesson", "label_of", "proposed_and_approved", "reason_of", "seconds_of"]

_DECIDED = frozenset(State) - {State.PENDING}
_PAGE = 500
_ZERO = timedelta(0)
_NOES = frozenset({State.REJECTED, State.FEEDBACK})


def decided(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[Request]:
    """Yield the requests that a person has decided, the one that was asked last first; what was purged is left out.

    Args:
        store: Where they are.
        since: Only those that were asked then or later.
        until: Only those that were asked before.
        tool: Only of this function, by its name or `module:name`.
    """
    wanted, cursor = Filter(states=_DECIDED, name=tool), None
    while True:
        page = store.list(wanted, cursor=cursor, limit=_PAGE, newest=True)
        recent = [request for request in page.requests if since is None or request.created_at >= since]
        for request in recent:
            if is_lesson(request) and (until is None or request.created_at < until):
                yield request
        cursor = page.cursor
        # Clocks of two programs differ, so only a whole page of older ones is the end.
        if cursor is None or not recent:
            return


def is_lesson(request: Request) -> bool:
    """Say whether a person has decided a request, and it was not purged."""
    return request.decision is not None and not request.decision.is_withdrawal and request.purged_at is None


def decision_of(request: Request) -> Decision:
    """Return the decision that ended the wait; raises `ValueError` where there is none."""
    if request.decision is None:
        raise ValueError(f"request {request.id} was not decided; there is nothing to learn from it")
    return request.decision


def label_of(request: Request) -> str:
    """Return the label that the protocol's learning samples have: `approved`, `rejected` or `not_reviewed`."""
    if request.state is State.CANCELLED or request.decision is None:
        return "not_reviewed"
    is_no = request.state in _NOES or (request.state is State.ANSWERED and request.answer is False)
    return "rejected" if is_no else "approved"


def seconds_of(request: Request, decision: Decision) -> float:
    """Return how long after it was asked a request was decided; clocks of two machines may say less than nothing."""
    return max(decision.at - request.created_at, _ZERO).total_seconds()


def reason_of(request: Request) -> str:
    """Return what the reviewer said, without secrets of the call; empty where nothing was said."""
    words = decision_of(request).comment
    return "" if words is None else redaction.fit(words.strip(), secrets_of(request))


def proposed_and_approved(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a call as they were proposed and as they were left, as masked trees."""
    before = request.call.shown
    return before, before if request.edited is None else request.edited.shown
