"""Decisions as rows of a table: flat dicts with the same columns, which pandas and polars read as they are.

Texts that are missing are empty and numbers are always there, so that a column has one type from its first row to its
last. The invariant: every row has exactly `COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sayso import clock
from sayso.learning.field import changed
from sayso.learning.lesson import (
    decided,
    decision_of,
    label_of,
    proposed_and_approved,
    reason_of,
    seconds_of,
)
from sayso.model.canonical import display
from sayso.model.canonical.tags import dumps
from sayso.model.request import Call, Request
from sayso.mplp.sample import answer_of
from sayso.stores.base import Store

__all__ = ["COLUMNS", "rows", "table"]

COLUMNS = (
    "id", "kind", "run", "tool", "risk", "requester", "asked_at", "decided_at", "seconds", "state", "verb", "label",
    "is_edited", "edited", "reviewer", "channel", "votes", "reason", "question", "proposed", "approved", "answer",
)  # fmt: skip


def table(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> list[dict[str, Any]]:
    """Return `rows` as a list, for `pandas.DataFrame(...)` and `polars.DataFrame(...)`."""
    return list(rows(store, since=since, until=until, tool=tool))


def rows(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield one flat row for each decision of a person, the newest request first.

    Args:
        store: Where the requests are.
        since: Only what was asked then or later.
        until: Only what was asked before.
        tool: Only of this function, by its name or `module:name`.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        yield _row(request)


def _row(request: Request) -> dict[str, Any]:
    decision = decision_of(request)
    return {
        "id": request.id,
        "kind": request.kind,
        "run": request.run_id,
        "tool": "",
        "risk": request.risk or "",
        "requester": request.requester.qualified,
        "asked_at": clock.written(request.created_at),
        "decided_at": clock.written(decision.at),
        "seconds": seconds_of(request, decision),
        "state": str(request.state),
        "verb": decision.verb,
        "label": label_of(request),
        "is_edited": request.edited is not None,
        "edited": "",
        "reviewer": decision.by.qualified,
        "channel": decision.channel,
        "votes": max(1, len(request.votes)),
        "reason": reason_of(request),
        "question": "",
        "proposed": "",
        "approved": "",
        "answer": "",
        **(_of_call(request) if isinstance(request.subject, Call) else _of_question(request)),
    }


def _of_call(request: Request) -> dict[str, Any]:
    before, after = proposed_and_approved(request)
    proposed = dumps(display(dict(before)))
    is_yes = decision_of(request).verb == "approve"
    return {
        "tool": request.call.tool,
        "edited": " ".join(changed(before, after)),
        "proposed": proposed,
        "approved": "" if not is_yes else proposed if request.edited is None else dumps(display(dict(after))),
    }


def _of_question(request: Request) -> dict[str, Any]:
    answer = answer_of(request)
    return {"question": request.question.text, "answer": "" if answer is None else dumps(answer)}
