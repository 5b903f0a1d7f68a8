"""The history as a file: the decisions that match the filters, as a table (CSV) or as JSON lines.

Both formats say the same of a request, and mask what a page masks. The file is sent while it is read, so a long history
takes no more memory than a short one. No cell of a table can be taken for a formula by the program that opens it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from sayso import clock
from sayso.model.canonical import display
from sayso.model.escaping import cell
from sayso.model.request import Request
from sayso.model.reviewer import Identity
from sayso.server.context import RequestContext
from sayso.server.pages.listing import DECIDED, all_of
from sayso.view import card

__all__ = ["COLUMNS", "export", "record"]

COLUMNS = (
    "id", "kind", "run", "tool", "call", "arguments", "risk", "requester", "on_behalf_of", "asked_at", "state",
    "decision", "changed", "decided_by", "channel", "decided_at", "seconds_to_decide", "answer", "comment",
    "approved_by",
)  # fmt: skip
_MOST = 100_000
_LOT = 500
_ROOM = 500


def export(context: RequestContext) -> Response:
    """Send what the history shows with these filters, newest first, as a file."""
    kind: str = context.http.path_params["kind"]
    if kind not in _KINDS:
        raise HTTPException(404, "history is there as csv and as jsonl")
    media, lines = _KINDS[kind]
    records = (record(request) for request in islice(all_of(context, DECIDED, newest=True), _MOST))
    return StreamingResponse(
        _in_lots(lines(records)),
        media_type=media,
        headers={"content-disposition": f'attachment; filename="history.{kind}"'},
    )


def _in_lots(lines: Iterator[str]) -> Iterator[str]:
    while lot := "".join(islice(lines, _LOT)):
        yield lot


def record(request: Request) -> dict[str, Any]:
    """Return what a file says of a request, as JSON values; by the names of `COLUMNS`."""
    decision, is_call = request.decision, request.kind == "call"
    said = {
        "id": request.id,
        "kind": request.kind,
        "run": request.run_id,
        "tool": request.call.tool if is_call else None,
        "call": card.headline(request, _ROOM),
        "arguments": {name: display(tree) for name, tree in request.effective.shown.items()} if is_call else None,
        "risk": request.risk,
        "requester": request.requester.qualified,
        "on_behalf_of": _names(request.acts_for),
        "asked_at": clock.written(request.created_at),
        "state": str(request.state),
    }
    if decision is None:
        return said | dict.fromkeys(COLUMNS[len(said) :])
    return said | {
        "decision": decision.verb,
        "changed": request.kind == "call" and request.edited is not None,
        "decided_by": decision.by.qualified,
        "channel": decision.channel,
        "decided_at": clock.written(decision.at),
        "seconds_to_decide": round((decision.at - request.created_at).total_seconds(), 3),
        "answer": request.answer,
        "comment": decision.comment,
        "approved_by": _names(tuple(vote.by for vote in request.votes)),
    }


def _names(people: tuple[Identity, ...]) -> list[str]:
    return [who.qualified for who in people]


def _jsonl(records: Iterator[dict[str, Any]]) -> Iterator[str]:
    # As ASCII: characters that cannot be seen, or turn the text around, stand there as JSON writes them.
    for said in records:
        yield json.dumps(said, allow_nan=False) + "\n"


def _csv(records: Iterator[dict[str, Any]]) -> Iterator[str]:
    page = io.StringIO()
    table = csv.writer(page, quoting=csv.QUOTE_ALL)
    table.writerow(COLUMNS)
    for said in records:
        table.writerow([_cell(said[name]) for name in COLUMNS])
        yield page.getvalue()
        page.seek(0)
        page.truncate()
    yield page.getvalue()


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case str():
            return cell(value)
        case int() | float():
            return str(value)  # a number of ours, which may be less than nothing
        case _:
            return cell(json.dumps(value, ensure_ascii=False)) if value else ""


_KINDS: dict[str, tuple[str, Callable[[Iterator[dict[str, Any]]], Iterator[str]]]] = {
    "csv": ("text/csv; charset=utf-8", _csv),
    "jsonl": ("application/jsonl", _jsonl),
}
