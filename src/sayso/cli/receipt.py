"""`receipt`: write what proves one call to somebody who has no store, and verify such a file, with no store at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sayso.audit.receipt import Proven, receipt_text, verify_receipt_file
from sayso.cli.desk import Desk, as_json
from sayso.cli.evidence import checkpoint_values, counted, signed, signer, trusted, written_to
from sayso.cli.say import WRONG, complain, document, out
from sayso.errors import EvidenceError
from sayso.model import canonical
from sayso.model.text import escape
from sayso.view import line
from sayso.view.arguments import brief
from sayso.view.summary import short, token

__all__ = ["receipt", "verify", "write"]

_ROOM = 300


class _Receipt(click.Group):
    """Takes what is no word of its own for the id of a request."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            raise click.UsageError("Missing argument 'ID'.", ctx)
        is_id = args[0] not in {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, ["write", *args] if is_id else args)


@click.group(cls=_Receipt, subcommand_metavar="ID [-o FILE] | verify FILE")
def receipt() -> None:
    """Write the receipt of a request that has ended, to stdout or to FILE (-o, --output), or verify one."""


@receipt.command(hidden=True)
@click.argument("request_id", metavar="ID")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write it there.")
@click.pass_obj
def write(desk: Desk, request_id: str, output: Path | None) -> int:
    """Write the receipt of a request that has ended."""
    who = signer()
    text = receipt_text(desk.store, desk.look.find(request_id), who)
    if output is None:
        out(text.removesuffix("\n"))
        return 0
    with written_to(output.expanduser()) as file:
        file.write(text)
    complain(f"receipt written to {escape(str(output))}, {signed(None if who is None else who.key)}")
    return 0


@receipt.command(short_help="Verify a receipt; needs no store.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--key", metavar="PUBLIC", help="The public key, or a file with it, that must have signed it.")
@as_json
def verify(file: Path, key: str | None, as_json: bool) -> int:
    """Verify a receipt without any store; ends with 1 where it does not hold."""
    by = trusted(key)
    try:
        found = verify_receipt_file(file.expanduser(), trusted=by)
    except EvidenceError as fault:
        if not as_json:
            raise
        document({"ok": False, "reason": str(fault)})
        return WRONG
    if as_json:
        made = checkpoint_values(found.checkpoint)
        document({"ok": True, "key": found.key, "checkpoint": made, "receipt": found.body})
        return 0
    out(*_rows(found, is_trusted=key is not None))
    return 0


def _rows(found: Proven, *, is_trusted: bool) -> list[str]:
    body = found.body
    request, decision, outcome = body["request"], body["decision"], body["outcome"]
    rows = [f"receipt of {short(request['id'])}, run {token(request['run'])}", f"  asked     {_drawn(body, 'shown')}"]
    rows.append(f"            by {token(request['requester'])} at {escape(request['asked_at'])}")
    rows += [f"  changed   {_drawn(body, 'edited')}"] if body["edited"] else []
    if decision is not None:
        words = "" if decision["comment"] is None else f": {brief(decision['comment'], _ROOM)}"
        who = f"{token(decision['by'])} ({token(decision['channel'])})"
        rows.append(f"  {token(decision['verb']):9} by {who} at {escape(decision['at'])}{words}")
    rows.append(f"  {token(outcome['state']):9} at {escape(outcome['at'])}")
    rows.append(f"holds, {signed(found.key)}")
    if found.key is None:
        rows.append("  so it is not damaged, and who wrote it is anybody's guess")
    elif not is_trusted:
        rows.append("  a key of its own choice: compare it with the one that you were given, or say --key")
    made = found.checkpoint
    known = "no checkpoint knows its rows yet"
    if made is not None:
        over = f"{counted(made.rows, 'row')} in {counted(made.chains, 'chain')}"
        known = f"known to {made.witness}, over {over}, {signed(made.key)}"
    return [*rows, known]


def _drawn(body: dict[str, Any], part: str) -> str:
    text = body[part]["text"]
    if body["request"]["kind"] == "question":
        return f"question {brief(text, _ROOM)}"
    name = str(body["request"]["tool"]).rpartition(":")[2]
    return line(name, canonical.load(text), _ROOM)
