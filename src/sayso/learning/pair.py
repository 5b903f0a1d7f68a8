"""Preference pairs: what was proposed, and what a reviewer made of it before saying yes.

The columns have the names that trainers of preference models read: `prompt`, `chosen`, `rejected`. The invariant: a
pair shows a difference; where only masked values were changed there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sayso import clock
from sayso.learning.lesson import decided, decision_of, proposed_and_approved, reason_of
from sayso.model.canonical import display
from sayso.model.canonical.tags import dumps
from sayso.model.request import Call, Request
from sayso.stores.base import Store

__all__ = ["PAIR_COLUMNS", "pairs"]

PAIR_COLUMNS = ("id", "tool", "prompt", "chosen", "rejected", "reason", "decided_at")


def pairs(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, str]]:
    """Yield a pair for each approval with changes, all values texts by the names of `PAIR_COLUMNS`.

    `chosen` and `rejected` are JSON objects of the arguments, masked; `prompt` is what the program wanted the reviewer
    to read, or what the function says of itself.

    Args:
        store: Where the requests are.
        since: Only what was asked then or later.
        until: Only what was asked before.
        tool: Only of this function, by its name or `module:name`.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        if request.edited is not None and decision_of(request).verb == "approve" and isinstance(request.subject, Call):
            found = _pair(request)
            if found["chosen"] != found["rejected"]:
                yield found


def _pair(request: Request) -> dict[str, str]:
    before, after = proposed_and_approved(request)
    return {
        "id": request.id,
        "tool": request.call.tool,
        "prompt": request.prompt or request.description or request.call.name,
        "chosen": dumps(display(dict(after))),
        "rejected": dumps(display(dict(before))),
        "reason": reason_of(request),
        "decided_at": clock.written(decision_of(request).at),
    }
