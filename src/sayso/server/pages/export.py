"""The history as a file: the decisions that match the filters, as a table (CSV) or as JSON lines.

Both formats say the same of a request, and mask what a page masks. The file is sent while it is read, so a long history
takes no more memory than a short one. No cell of a table can be taken for a formula by the program that opens it.
"""

from __future__ import annotations

import json
from itertools import chain, islice
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from sayso import clock
from sayso.model.canonical import display
from sayso.model.escaping import csv_row
from sayso.model.request import Request
from sayso.model.words import ENGLISH, say, speaking
from sayso.server.context import RequestContext
from sayso.server.pages.listing import DECIDED, all_of
from sayso.view import card

COLUMNS = (
    "id", "kind", "run", "tool", "call", "arguments", "risk", "requester", "on_behalf_of", "asked_at", "state",
    "decision", "changed", "decided_by", "channel", "decided_at", "seconds_to_decide", "answer", "comment",
    "approved_by",
)  # fmt: skip
_MEDIA = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
_MOST = 100_000
_BATCH = 500
_ROOM = 500


def export(context: RequestContext) -> Response:
    """Send what the history shows with these filters, newest first, as a file."""
    kind: str = context.http.path_params["kind"]
    if kind not in _MEDIA:
        raise HTTPException(404, say("history is there as csv and as jsonl"))
    rows = map(_row, islice(all_of(context, DECIDED, newest=True), _MOST))
    # As ASCII: characters that cannot be seen, or turn the text around, stand there as JSON writes them.
    cells = ([_cell(value) for value in row] for row in rows)
    lines = (
        (json.dumps(dict(zip(COLUMNS, row, strict=True)), allow_nan=False) + "\n" for row in rows)
        if kind == "jsonl"
        else map(csv_row, chain([COLUMNS], cells))
    )
    headers = {"content-disposition": f'attachment; filename="history.{kind}"'}
    batches = iter(lambda: "".join(islice(lines, _BATCH)), "")
    return StreamingResponse(batches, media_type=_MEDIA[kind], headers=headers)


def _row(request: Request) -> list[Any]:
    """Return what a file says of a request, as JSON values, in the order of `COLUMNS`."""
    decision, is_call = request.decision, request.kind == "call"
    with speaking(ENGLISH):  # programs read the file
        headline = card.headline(request, _ROOM)
    asked = [
        request.id, request.kind, request.run_id, request.call.tool if is_call else None,
        headline,
        {name: display(tree) for name, tree in request.effective.shown.items()} if is_call else None, request.risk,
        request.requester.qualified, [who.qualified for who in request.acts_for], clock.written(request.created_at),
        str(request.state),
    ]  # fmt: skip
    if decision is None:
        return [*asked, *[None] * (len(COLUMNS) - len(asked))]
    return [
        *asked, decision.verb, is_call and request.edited is not None, decision.by.qualified, decision.channel,
        clock.written(decision.at), round((decision.at - request.created_at).total_seconds(), 3), request.answer,
        decision.comment, [vote.by.qualified for vote in request.votes],
    ]  # fmt: skip


def _cell(value: Any) -> Any:
    match value:
        case bool():
            return "yes" if value else "no"
        case dict() | list():
            return json.dumps(value, ensure_ascii=False) if value else ""
        case _:
            return value
