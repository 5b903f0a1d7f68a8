"""Doing one thing to each of the requests that a command names, and reporting each.

Invariant: a refusal of one does not keep the others from being tried, the exit code is the worst of all, and a slip of
the finger names no request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sayso import clock
from sayso.cli.fault import report
from sayso.cli.plain import fault_document, request_document
from sayso.cli.say import code_of, document, out
from sayso.errors import DecisionRefusedError, SaysoError
from sayso.model.request import Request
from sayso.view.card import stands
from sayso.view.summary import short

__all__ = ["ShortIdError", "each", "row"]

_SHORTEST = 4


class ShortIdError(DecisionRefusedError):
    """So few characters fit a request by chance."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            request_id,
            f"{request_id!r} is too short to decide by; nothing was decided. Give at least {_SHORTEST} characters of"
            " the id after `rq_`",
        )


def each(
    request_ids: Sequence[str], deed: Callable[[str], Request], *, as_json: bool,
    rows: Callable[[Request], Sequence[str]] | None = None,
) -> int:  # fmt: skip
    """Do `deed` to each, print what became of it, and return the exit code.

    Args:
        request_ids: Ids, or beginnings of ids.
        deed: A decision; returns the request after it.
        as_json: Print one JSON array instead of lines.
        rows: What to print of a request, instead of where it stands.
    """
    worst, documents = 0, list[object]()
    for request_id in request_ids:
        try:
            after = deed(_long_enough(request_id))
        except SaysoError as fault:
            worst = max(worst, report(fault))
            documents.append(fault_document(request_id, fault, code_of(fault)))
            continue
        documents.append({"id": after.id, "ok": True, "request": request_document(after)})
        if not as_json:
            out(*(rows(after) if rows is not None else [row(after)]))
    if as_json:
        document(documents)
    return worst


def _long_enough(request_id: str) -> str:
    if 0 < len(request_id.removeprefix("rq_")) < _SHORTEST:
        raise ShortIdError(request_id)
    return request_id


def row(request: Request) -> str:
    """Return the line that reports a request after a command."""
    return f"{short(request.id)} {stands(request, clock.now())}"
