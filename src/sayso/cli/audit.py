"""`log`, `receipt` and `purge`: print, verify, export and prove the journal, and remove old payloads.

Invariant: the output counts the rows that it omits, and always states what the store alone cannot prove.
"""

from __future__ import annotations

import heapq
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import click

from sayso import audit, clock, config, errors
from sayso.audit.checkpoint import (
    CHAIN,
    AnchorFile,
    Checkpoint,
    History,
    anchor_text,
    checkpoint,
    history,
    read_anchor_file,
)
from sayso.audit.export import FORMATS, Format, Purged, entry_document, exported
from sayso.audit.export import purge as let_go
from sayso.audit.receipt import receipt_text, verify_receipt_file
from sayso.audit.signing import SignedDocument, Signer, checked_key, signer_at
from sayso.cli.context import (
    WRONG,
    CliContext,
    Number,
    as_date,
    as_option,
    complain,
    confirmed,
    file_to_write,
    json_option,
    out,
    output_option,
    paint,
    plural,
    print_json,
    write_lines,
)
from sayso.errors import EvidenceError
from sayso.model import canonical
from sayso.model.escaping import escape
from sayso.model.redaction import mark_secrets
from sayso.model.rendering import brief
from sayso.stores.grants import GRANT, chain_of
from sayso.view import line
from sayso.view.document import event_rows
from sayso.view.summary import RUN_ROOM, SHORT, short, token


def signer() -> Signer | None:
    """Return the configured signer, or None; raise `ConfigError` if the configured key cannot be used."""
    path = config.signing_key()
    return None if path is None else signer_at(path)


def _trusted_key(key: str | None) -> str | None:
    if key is None:
        return None
    try:
        return checked_key(key)
    except errors.ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--key") from error


def _signature_text(key: str | None) -> str:
    return "NOT SIGNED" if key is None else f"signed by {key}"


def _checkpoint_values(made: Checkpoint | None) -> dict[str, Any] | None:
    return None if made is None else made._asdict() | {"at": clock.written(clock.instant(made.at))}


def checkpoint_text(made: Checkpoint) -> str:
    """Describe a checkpoint for people: its time, what it covers, and who signed it."""
    return (
        f"of {clock.instant(made.at):%Y-%m-%d %H:%M:%S}Z over {plural(made.rows, 'row')}"
        f" in {plural(made.chains, 'chain')}, {_signature_text(made.key)}"
    )


_MOST = 50
_ALONE = "That the end of a chain was cut off together with its requests cannot be known from the store alone."
_CHECKED = (
    "That the newest checkpoints were cut off, with all that came after the one before them, cannot be known from the"
    " store alone, nor that all of it was and it began anew: an anchor that is kept elsewhere shows both."
)
_ANCHORED = "That what came after {witness} was cut off together with its requests cannot be known."
_UNSIGNED = "The newest of it is not signed: whoever can write the store could have written all of it anew."
_ANY_KEY = "Whoever can write the store can sign with a key of their own: --key PUBLIC says which one to believe."


def _verify_journal(cli: CliContext, run_id: str | None, anchor: Path | None, key: str | None) -> int:
    store, by = cli.store, _trusted_key(key)
    mine = signer() if by is None else None
    held_to = None if anchor is None else read_anchor_file(anchor.expanduser(), trusted=by)
    if held_to is not None:
        held_to.must_be_of(store)
    past = history(store, trusted=by if mine is None else mine.key)
    known = [*past.known, *(() if held_to is None else held_to.known)]
    found = audit.verify(store, run_id=run_id, known=known)
    if run_id is not None and not found.rows and not found.broken:  # a lost run that is known is in `broken`
        cli.check_run(run_id)
    broken = [*found.broken, *(audit.Break(CHAIN, past.last.seq, reason) for reason in past.broken)]
    if by is not None and past.newest is None:
        broken.append(audit.Break(CHAIN, 0, f"there is no checkpoint, and {by} must have signed one"))
    content = {
        "rows": found.rows, "chains": found.chains, "requests": found.requests, "unopened": found.unopened,
        "broken": [{"run": one.run_id, "seq": one.seq, "reason": one.reason} for one in broken],
        "checkpoints": past.number, "newest": _checkpoint_values(past.newest),
        "anchor": _checkpoint_values(None if held_to is None else held_to.checkpoint),
    }  # fmt: skip
    limits = _limits(past, held_to, is_held=by is not None or mine is not None)
    return cli.answer(content, [*_rows(found, broken, past, held_to), *limits], WRONG if broken else 0)


def _rows(found: audit.Verified, broken: list[audit.Break], past: History, anchor: AnchorFile | None) -> list[str]:
    rows = [f"{plural(found.rows, 'row')} in {plural(found.chains, 'chain')}, {plural(found.requests, 'request')}"]
    if past.newest is not None:
        rows.append(f"{plural(past.number, 'checkpoint')}, the newest {checkpoint_text(past.newest)}")
    if anchor is not None:
        rows.append(f"held to {anchor.witness}, {_signature_text(anchor.key)}")
    word = paint("BROKEN", "red")
    rows += [f"{word}  run {token(one.run_id)}: {escape(one.reason)}" for one in broken[:_MOST]]
    if len(broken) > _MOST:
        rows.append(f"({len(broken) - _MOST:,} more not shown; --json has all)")
    rows.append(
        "whole: every row follows from the one before, and every request matches its rows"
        if not broken
        else f"broken: {plural(len({one.run_id for one in broken}), 'chain')}"
    )
    if found.unopened:
        rows.append(
            f"{plural(found.unopened, 'request')} sealed: what was asked was not compared; set SAYSO_KEY for that"
        )
    return rows


def _limits(past: History, anchor: AnchorFile | None, *, is_held: bool) -> list[str]:
    """Describe what cannot be proved; `is_held` says whether a trusted key was given from outside the store."""
    if anchor is not None:
        rows = [_ANCHORED.format(witness=anchor.witness)]
    else:
        rows = [_ALONE if past.newest is None else _CHECKED]
    if len(past.keys) > 1:
        rows.append(f"Checkpoints are signed with {len(past.keys)} keys, in this order: {', '.join(past.keys)}.")
    signed_with = [past.newest.key] if past.newest is not None else []
    signed_with += [anchor.key] if anchor is not None else []
    if signed_with and not any(signed_with):
        rows.append(_UNSIGNED)
    elif signed_with and not is_held:
        rows.append(_ANY_KEY)
    return rows


def _make_checkpoint(cli: CliContext) -> int:
    store = cli.store
    before = history(store)
    after = checkpoint(store, signer(), since=before)
    is_new, row = after.number > before.number, "the journal is empty, so there is no checkpoint"
    if after.newest is not None:
        what = "checkpoint" if is_new else "nothing happened since checkpoint"
        row = f"{what} {after.newest.seq} {checkpoint_text(after.newest)}"
    content = {"is_new": is_new, "checkpoints": after.number, "newest": _checkpoint_values(after.newest)}
    return cli.answer(content, [row])


def _make_anchor(cli: CliContext, path: Path) -> int:
    who = signer()
    with file_to_write(path, may_replace=False) as file:
        file.write(anchor_text(cli.store, who))
    made = read_anchor_file(path.expanduser())
    return cli.answer(
        {"file": str(path.expanduser()), "key": made.key, "anchor": _checkpoint_values(made.checkpoint)},
        [
            f"anchor {checkpoint_text(made.checkpoint)}, written to {escape(str(path.expanduser()))}",
            "  keep it where no writer of the store can reach it; `sayso log --verify --anchor FILE` compares",
        ],
    )


@click.group(invoke_without_command=True, subcommand_metavar="[export ...]")
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@click.option("--request", "request_id", metavar="ID", help="Only of this request.")
@click.option("--grant", "grant_id", metavar="ID", help="Only of this grant.")
@click.option("--limit", metavar="N", type=Number(1), default=200, show_default=True, help="The last so many rows.")
@click.option("--verify", is_flag=True, help="Check the chains, and that every request agrees with them.")
@click.option("--checkpoint", is_flag=True, help="Put the newest links of all chains into the journal.")
@click.option(
    "--anchor", metavar="FILE", type=click.Path(path_type=Path),
    help="Write a checkpoint to FILE, to be kept elsewhere; with --verify, hold the store to the one in FILE.",
)  # fmt: skip
@click.option(
    "--key", metavar="PUBLIC", help="With --verify: the public key, or a file with it, that must have signed."
)
@json_option
@click.pass_context
def log(
    ctx: click.Context, run_id: str | None, request_id: str | None, grant_id: str | None, limit: int, verify: bool,
    checkpoint: bool, anchor: Path | None, key: str | None,
) -> int:  # fmt: skip
    """Print the journal: everything that happened to requests, by whom and through which channel."""
    if ctx.invoked_subcommand is not None:
        return 0
    cli: CliContext = ctx.obj
    if grant_id is not None:
        if run_id is not None:
            raise click.UsageError("a grant has a chain of its own: say --grant or --run")
        run_id = chain_of(GRANT, cli.store.find_grant(grant_id).id)
    if key is not None and not verify:
        raise click.UsageError("--key goes with --verify")
    if verify and checkpoint:
        raise click.UsageError("--verify looks and --checkpoint writes: say one, and then the other")
    if verify:
        if request_id is not None:
            raise click.UsageError("a chain is a run's; verify all of them, or one by --run")
        return _verify_journal(cli, run_id, anchor, key)
    if anchor is not None:
        return _make_anchor(cli, anchor)
    if checkpoint:
        return _make_checkpoint(cli)
    return _printed(cli, run_id, request_id, limit)


def _printed(cli: CliContext, run_id: str | None, request_id: str | None, limit: int) -> int:
    if run_id is not None:
        cli.check_run(run_id)
    found = None if request_id is None else cli.reader.find(request_id)
    rows = 0

    def place(entry: audit.Entry) -> tuple[int, str, int]:
        nonlocal rows
        rows += 1  # called once for each row
        return entry.at, entry.run_id, entry.seq

    last = heapq.nlargest(limit, audit.entries(cli.store, run_id=run_id, request_id=found), key=place)[::-1]
    left_out = rows - len(last)
    shown = [f"({left_out:,} of {rows:,} rows before these not shown; --limit {rows})"] if left_out else []
    for entry, row in zip(last, event_rows(last), strict=True):
        of = short(entry.request_id) if entry.request_id else "-"
        shown.append(f"{of:{SHORT}}  {row}  run {token(entry.run_id, RUN_ROOM)}")
    return cli.answer({"entries": [entry_document(entry) for entry in last], "left_out": left_out}, shown)


@log.command("export", short_help="Write the journal for other systems: JSON, CSV, OCSF.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True, help="In which form.")
@click.option("--since", metavar="DATE", type=as_date, help="Only rows of then or later: 2026-01-31, or 90d.")
@click.option("--until", metavar="DATE", type=as_date, help="Only rows before then.")
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@output_option
@click.pass_obj
def _export(
    cli: CliContext, form: str, since: datetime | None, until: datetime | None, run_id: str | None, output: Path | None
) -> int:
    """Write the journal for other systems, a line for each row: JSON, CSV for spreadsheets, OCSF for a SIEM."""
    if run_id is not None:
        cli.check_run(run_id)
    lines = exported(cli.store, cast("Format", form), since=since, until=until, run_id=run_id)
    write_lines(lines, output, "line")
    return 0


_ROOM = 300


class _Receipt(click.Group):
    """Treats every argument that is not a subcommand as the id of a request."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            raise click.UsageError("Missing argument 'ID'.", ctx)
        is_id = args[0] not in {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, ["write", *args] if is_id else args)


@click.group(cls=_Receipt, subcommand_metavar="ID [-o FILE] | verify FILE")
def receipt() -> None:
    """Write the receipt of a request that has ended, to stdout or to FILE (-o, --output), or verify one."""


@receipt.command("write", hidden=True)
@click.argument("request_id", metavar="ID")
@output_option
@click.pass_obj
def _write(cli: CliContext, request_id: str, output: Path | None) -> int:
    """Write the receipt of a request that has ended."""
    who = signer()
    text = receipt_text(cli.store, cli.reader.find(request_id), who)
    if output is None:
        out(text.removesuffix("\n"))
        return 0
    with file_to_write(output) as file:
        file.write(text)
    complain(f"receipt written to {escape(str(output))}, {_signature_text(None if who is None else who.key)}")
    return 0


@receipt.command("verify", short_help="Verify a receipt; needs no store.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--key", metavar="PUBLIC", help="The public key, or a file with it, that must have signed it.")
@json_option
@click.pass_obj
def _verify_receipt(cli: CliContext, file: Path, key: str | None) -> int:
    """Verify a receipt without a store; the exit code is 1 if it is not valid."""
    by = _trusted_key(key)
    try:
        found = verify_receipt_file(file.expanduser(), trusted=by)
    except EvidenceError as fault:
        if not cli.as_json:
            raise
        print_json({"ok": False, "reason": str(fault)})
        return WRONG
    return cli.answer(
        {"ok": True, "key": found.key, "receipt": found.body}, _receipt_rows(found, is_trusted=key is not None)
    )


def _receipt_rows(found: SignedDocument, *, is_trusted: bool) -> list[str]:
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
    rows.append(f"holds, {_signature_text(found.key)}")
    if found.key is None:
        rows.append("  so it is not damaged, and who wrote it is anybody's guess")
    elif not is_trusted:
        rows.append("  a key of its own choice: compare it with the one that you were given, or say --key")
    return rows


def _drawn(body: dict[str, Any], part: str) -> str:
    text = body[part]["text"]
    if body["request"]["kind"] == "question":
        return f"question {brief(text, _ROOM)}"
    name = str(body["request"]["tool"]).rpartition(":")[2]
    return line(name, cast("dict[str, Any]", mark_secrets(canonical.load(text))), _ROOM)


_JOURNAL_STAYS = "the journal keeps its rows, with names, times, fingerprints and people's words"


@click.command()
@click.option("--before", required=True, metavar="DATE", type=as_date, help="What ended before: 2026-01-31, or 90d.")
@click.option("--dry-run", is_flag=True, help="Only say how much that is.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@as_option
@json_option
@click.pass_obj
def purge(cli: CliContext, before: datetime, dry_run: bool, is_sure: bool) -> int:
    """Remove arguments, results and texts of requests that ended before DATE, for good; the journal still verifies."""
    if before > clock.now():
        raise click.BadParameter(f"{before:%Y-%m-%d} lies in the future; nothing was removed", param_hint="--before")
    who, store = cli.reviewer, cli.store
    if not dry_run and not is_sure:
        store.sweep()  # so that the count in the question includes requests that have expired
        would = let_go(store, before=before, by=who.identity, channel="cli", is_dry=True)
        if not sys.stdin.isatty():
            raise click.UsageError("say --yes, or --dry-run to see how much would go; nothing was removed")
        what = f"remove what {plural(would.requests, 'request')} and {plural(would.runs, 'run')} were about"
        question = f"{what}, ended before {before:%Y-%m-%d %H:%M}Z, for good?"
        if (would.requests or would.runs) and not confirmed(question):
            complain("nothing was removed")
            return WRONG
    done = let_go(store, before=before, by=who.identity, channel="cli", is_dry=dry_run)
    return cli.answer(
        {**done._asdict(), "before": clock.written(before), "dry_run": dry_run},
        _purge_rows(done, before, is_dry=dry_run), 0 if done.is_scrubbed else WRONG,
    )  # fmt: skip


def _purge_rows(done: Purged, before: datetime, *, is_dry: bool) -> list[str]:
    what = f"{plural(done.requests, 'request')} and {plural(done.runs, 'run')} that ended before"
    rows = [f"{'would purge' if is_dry else 'purged'} {what} {before:%Y-%m-%d %H:%M}Z; {_JOURNAL_STAYS}"]
    if done.words:
        keep = "keeps" if done.words == 1 else "keep"
        rows.append(f"{plural(done.words, 'row')} of the journal {keep} people's words about them")
    if done.live:
        rows.append(f"{plural(done.live, 'request')} left alone: something can still happen")
    if done.needed:
        rows.append(f"{plural(done.needed, 'request')} left alone: of runs that have not ended")
    if not done.is_scrubbed:
        complain("others were reading, and the files may still hold what was removed: say the same again")
    return rows
