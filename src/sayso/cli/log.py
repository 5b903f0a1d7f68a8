"""`log`: the journal, newest rows last; `--verify` walks its chains.

Invariant: what is not printed is counted, and a journal that verifies is not said to be complete: an end that was cut
off together with its requests leaves no trace.
"""

from __future__ import annotations

import heapq

import click

from sayso import audit
from sayso.cli.desk import Desk, as_json
from sayso.cli.plain import entry_document
from sayso.cli.say import WRONG, document, out, paint
from sayso.model.show.escape import escape
from sayso.model.show.journal import event_row
from sayso.model.show.label import SHORT, short, token

__all__ = ["log"]

_LIMITS = "That the end of a chain was cut off together with its requests cannot be known from the store alone."


@click.command()
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@click.option("--request", "request_id", metavar="ID", help="Only of this request.")
@click.option("--limit", type=click.IntRange(min=1), default=200, show_default=True, help="The last so many rows.")
@click.option("--verify", is_flag=True, help="Check the chains, and that every request agrees with them.")
@as_json
@click.pass_obj
def log(desk: Desk, run_id: str | None, request_id: str | None, limit: int, verify: bool, as_json: bool) -> int:
    """Print the journal: everything that happened to requests, by whom and through which channel."""
    if verify:
        if request_id is not None:
            raise click.UsageError("a chain is a run's; verify all of them, or one by --run")
        return _verify(desk, run_id, as_json=as_json)
    found = None if request_id is None else desk.look.find(request_id)
    rows = 0

    def place(entry: audit.Entry) -> tuple[int, str, int]:
        return entry.at, entry.run_id, entry.seq

    def counted() -> audit.Iterator[audit.Entry]:
        nonlocal rows
        for entry in audit.entries(desk.store, run_id=run_id, request_id=found):
            rows += 1
            yield entry

    last = sorted(heapq.nlargest(limit, counted(), key=place), key=place)
    if as_json:
        document({"entries": [entry_document(entry) for entry in last], "left_out": rows - len(last)})
        return 0
    if rows > len(last):
        out(f"({rows - len(last):,} of {rows:,} rows before these not shown; --limit {rows})")
    for entry in last:
        of = short(entry.request_id) if entry.request_id else "-"
        out(f"{of:{SHORT}}  {event_row(entry)}  run {token(entry.run_id, 40)}")
    return 0


def _verify(desk: Desk, run_id: str | None, *, as_json: bool) -> int:
    found = audit.verify(desk.store, run_id=run_id)
    code = WRONG if found.broken else 0
    if as_json:
        broken = [{"run": broken.run_id, "seq": broken.seq, "reason": broken.reason} for broken in found.broken]
        document({
            "rows": found.rows, "chains": found.chains, "requests": found.requests, "unopened": found.unopened,
            "broken": broken,
        })  # fmt: skip
        return code
    rows, chains = _counted(found.rows, "row"), _counted(found.chains, "chain")
    out(f"{rows} in {chains}, {_counted(found.requests, 'request')}")
    for broken in found.broken:
        out(f"{paint('BROKEN', 'red')}  run {token(broken.run_id)}: {escape(broken.reason)}")
    out(
        "whole: every row follows from the one before, and every request stands as its rows say"
        if not found.broken
        else f"broken: {_counted(len(found.broken), 'chain')}"
    )
    if found.unopened:
        out(f"{_counted(found.unopened, 'request')} sealed: what was asked was not compared; set SAYSO_KEY for that")
    out(_LIMITS)
    return code


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
