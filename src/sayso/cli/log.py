"""`log`: the journal, newest rows last; `log export` writes it for other systems. `sayso.cli.proof` verifies it.

Invariant: what is not printed is counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import cast

import click

from sayso import audit
from sayso.audit.export import FORMATS, Format, exported
from sayso.cli import proof
from sayso.cli.desk import Desk, as_json
from sayso.cli.evidence import counted, instant, written_to
from sayso.cli.number import Number
from sayso.cli.plain import entry_document
from sayso.cli.say import complain, document, is_reader_gone, out
from sayso.model.text import escape
from sayso.view.document import event_rows
from sayso.view.summary import RUN_ROOM, SHORT, short, token

__all__ = ["export", "log"]


@click.group(invoke_without_command=True, subcommand_metavar="[export ...]")
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@click.option("--request", "request_id", metavar="ID", help="Only of this request.")
@click.option("--limit", metavar="N", type=Number(1), default=200, show_default=True, help="The last so many rows.")
@click.option("--verify", is_flag=True, help="Check the chains, and that every request agrees with them.")
@click.option("--checkpoint", is_flag=True, help="Put a root over all chains into the journal.")
@click.option(
    "--anchor", metavar="FILE", type=click.Path(path_type=Path),
    help="Write a checkpoint to FILE, to be kept elsewhere; with --verify, hold the store to the one in FILE.",
)  # fmt: skip
@click.option(
    "--key", metavar="PUBLIC", help="With --verify: the public key, or a file with it, that must have signed."
)
@as_json
@click.pass_context
def log(
    ctx: click.Context, run_id: str | None, request_id: str | None, limit: int, verify: bool, checkpoint: bool,
    anchor: Path | None, key: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Print the journal: everything that happened to requests, by whom and through which channel."""
    if ctx.invoked_subcommand is not None:
        return 0
    desk: Desk = ctx.obj
    if key is not None and not verify:
        raise click.UsageError("--key goes with --verify")
    if verify and checkpoint:
        raise click.UsageError("--verify looks and --checkpoint writes: say one, and then the other")
    if verify:
        if request_id is not None:
            raise click.UsageError("a chain is a run's; verify all of them, or one by --run")
        return proof.verify(desk, run_id, anchor, key, as_json=as_json)
    if anchor is not None:
        return proof.make_anchor(desk, anchor, as_json=as_json)
    if checkpoint:
        return proof.make_checkpoint(desk, as_json=as_json)
    return _printed(desk, run_id, request_id, limit, as_json=as_json)


def _printed(desk: Desk, run_id: str | None, request_id: str | None, limit: int, *, as_json: bool) -> int:
    if run_id is not None:
        desk.must_know(run_id)
    found = None if request_id is None else desk.look.find(request_id)
    rows = 0

    def place(entry: audit.Entry) -> tuple[int, str, int]:
        return entry.at, entry.run_id, entry.seq

    def every() -> Iterator[audit.Entry]:
        nonlocal rows
        for entry in audit.entries(desk.store, run_id=run_id, request_id=found):
            rows += 1
            yield entry

    last = sorted(heapq.nlargest(limit, every(), key=place), key=place)
    if as_json:
        document({"entries": [entry_document(entry) for entry in last], "left_out": rows - len(last)})
        return 0
    if rows > len(last):
        out(f"({rows - len(last):,} of {rows:,} rows before these not shown; --limit {rows})")
    for entry, row in zip(last, event_rows(last), strict=True):
        of = short(entry.request_id) if entry.request_id else "-"
        out(f"{of:{SHORT}}  {row}  run {token(entry.run_id, RUN_ROOM)}")
    return 0


@log.command(short_help="Write the journal for other systems: JSON, CSV, OCSF.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True, help="In which form.")
@click.option("--since", metavar="DATE", callback=instant, help="Only rows of then or later: 2026-01-31, or 90d.")
@click.option("--until", metavar="DATE", callback=instant, help="Only rows before then.")
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write it there.")
@click.pass_obj
def export(
    desk: Desk, form: str, since: datetime | None, until: datetime | None, run_id: str | None, output: Path | None
) -> int:
    """Write the journal for other systems, a line for each row: JSON, CSV for spreadsheets, OCSF for a SIEM."""
    if run_id is not None:
        desk.must_know(run_id)
    lines = exported(desk.store, cast("Format", form), since=since, until=until, run_id=run_id)
    if output is None:
        for line in lines:
            out(line.removesuffix("\n").removesuffix("\r"))
            if is_reader_gone():
                break
        return 0
    count = 0
    with written_to(output.expanduser()) as file:
        for line in lines:
            file.write(line)
            count += 1
    complain(f"{counted(count, 'line')} written to {escape(str(output))}")
    return 0
