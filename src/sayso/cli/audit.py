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
from sayso.audit import checkpoint as checkpoints
from sayso.audit.checkpoint import AnchorFile, Checkpoint, History, checkpoint, history
from sayso.audit.export import FORMATS, Format, entry_document, exported, receipt_text, verify_receipt
from sayso.audit.export import purge as purge_store
from sayso.audit.signing import Signer, parse_key, signer_at
from sayso.cli import context
from sayso.cli.context import WRONG, CliContext, as_date, echo, echo_err, json_option, plural
from sayso.errors import EvidenceError
from sayso.model import canonical
from sayso.model.redaction import mark_secrets
from sayso.model.rendering import brief, quote_if_needed
from sayso.model.text import escape
from sayso.stores.grants import GRANT, chain_of
from sayso.view import line
from sayso.view.as_json import event_rows
from sayso.view.summary import RUN_ROOM, SHORT, short


def signer() -> Signer | None:
    """Return the configured signer, or None; raise `ConfigError` if the configured key cannot be used."""
    path = config.signing_key()
    return None if path is None else signer_at(path)


def _trusted_key(key: str | None) -> str | None:
    if key is None:
        return None
    try:
        return parse_key(key)
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
_ALONE = "Limit: the store alone cannot show that the end of a chain and its requests were deleted together."
_CHECKED = (
    "Limit: the store alone cannot show that the newest checkpoints and all later rows were deleted, or that the whole"
    " store was replaced; an anchor kept elsewhere shows both."
)
_ANCHORED = "Limit: rows written after {witness} may have been deleted together with their requests."
_UNSIGNED = (
    "The newest checkpoint or anchor is not signed: anyone who can write to the store could have rewritten everything."
)
_ANY_KEY = "Anyone who can write to the store can sign with another key: use --key PUBLIC to require yours."


def _verify_journal(cli: CliContext, run_id: str | None, anchor: Path | None, key: str | None) -> int:
    store, by = cli.store, _trusted_key(key)
    mine = signer() if by is None else None
    anchor_file = None if anchor is None else checkpoints.read_anchor(anchor.expanduser(), trusted=by)
    if anchor_file is not None:
        anchor_file.must_be_of(store)
    past = history(store, trusted=by if mine is None else mine.key)
    known = [*past.known, *(() if anchor_file is None else anchor_file.known)]
    found = audit.verify(store, run_id=run_id, known=known)
    if run_id is not None and not found.rows and not found.broken:  # a lost run that is known is in `broken`
        cli.check_run(run_id)
    broken = [*found.broken, *(audit.Break(checkpoints.CHAIN, past.last.seq, reason) for reason in past.broken)]
    if by is not None and past.newest is None:
        broken.append(audit.Break(checkpoints.CHAIN, 0, f"there is no checkpoint, but one signed by {by} is required"))
    content = {
        "rows": found.rows, "chains": found.chains, "requests": found.requests, "unopened": found.unopened,
        "broken": [{"run": one.run_id, "seq": one.seq, "reason": one.reason} for one in broken],
        "checkpoints": past.number, "newest": _checkpoint_values(past.newest),
        "anchor": _checkpoint_values(None if anchor_file is None else anchor_file.checkpoint),
    }  # fmt: skip
    rows = _verification_rows(found, broken, past, anchor_file, is_held=by is not None or mine is not None)
    return cli.answer(content, rows, WRONG if broken else 0)


def _verification_rows(
    found: audit.Verified, broken: list[audit.Break], past: History, anchor: AnchorFile | None, *, is_held: bool
) -> list[str]:
    """Describe what was found and what cannot be proved; `is_held` says whether a key was given from outside."""
    rows = [f"{plural(found.rows, 'row')} in {plural(found.chains, 'chain')}, {plural(found.requests, 'request')}"]
    if past.newest is not None:
        rows.append(f"{plural(past.number, 'checkpoint')}, the newest {checkpoint_text(past.newest)}")
    if anchor is not None:
        rows.append(f"compared with {anchor.witness}, {_signature_text(anchor.key)}")
    word = context.paint("BROKEN", "red")
    rows += [f"{word}  run {quote_if_needed(one.run_id)}: {escape(one.reason)}" for one in broken[:_MOST]]
    if len(broken) > _MOST:
        rows.append(f"({len(broken) - _MOST:,} more not shown; --json has all)")
    rows.append(
        "intact: every row matches the one before it, and every request matches its rows"
        if not broken
        else f"broken: {plural(len({one.run_id for one in broken}), 'chain')}"
    )
    if found.unopened:
        rows.append(
            f"{plural(found.unopened, 'request')} sealed: arguments were not compared; set SAYSO_KEY to compare them"
        )
    if anchor is not None:
        rows.append(_ANCHORED.format(witness=anchor.witness))
    else:
        rows.append(_ALONE if past.newest is None else _CHECKED)
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
    is_new, row = after.number > before.number, "the journal is empty; no checkpoint was written"
    if after.newest is not None:
        what = "checkpoint" if is_new else "nothing has changed since checkpoint"
        row = f"{what} {after.newest.seq} {checkpoint_text(after.newest)}"
    content = {"is_new": is_new, "checkpoints": after.number, "newest": _checkpoint_values(after.newest)}
    return cli.answer(content, [row])


def _make_anchor(cli: CliContext, path: Path) -> int:
    who = signer()
    with context.file_to_write(path, may_replace=False) as file:
        file.write(checkpoints.anchor_text(cli.store, who))
    made = checkpoints.read_anchor(path.expanduser())
    return cli.answer(
        {"file": str(path.expanduser()), "key": made.key, "anchor": _checkpoint_values(made.checkpoint)},
        [
            f"anchor {checkpoint_text(made.checkpoint)}, written to {escape(str(path.expanduser()))}",
            "  keep it where no writer of the store can change it; compare: `sayso log --verify --anchor FILE`",
        ],
    )


@click.group(invoke_without_command=True, subcommand_metavar="[export ...]")
@click.option("--run", "run_id", metavar="ID", help="Only in this run.")
@click.option("--request", "request_id", metavar="ID", help="Only about this request.")
@click.option("--grant", "grant_id", metavar="ID", help="Only about this grant.")
@click.option(
    "--limit", metavar="N", type=context.Number(1), default=200, show_default=True, help="Show only the newest N rows."
)
@click.option("--verify", is_flag=True, help="Verify the chains, and every request against them.")
@click.option("--checkpoint", is_flag=True, help="Write a checkpoint, which covers all chains, into the journal.")
@click.option(
    "--anchor", metavar="FILE", type=click.Path(path_type=Path),
    help="Write a checkpoint to FILE, to be kept elsewhere; with --verify, compare the store with it.",
)  # fmt: skip
@click.option(
    "--key", metavar="PUBLIC", help="With --verify: require signatures by this public key (or a file with it)."
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
            raise click.UsageError("give --grant or --run, not both: a grant has its own chain")
        run_id = chain_of(GRANT, cli.store.find_grant(grant_id).id)
    if key is not None and not verify:
        raise click.UsageError("--key needs --verify")
    if verify and checkpoint:
        raise click.UsageError("give --verify or --checkpoint, not both; run them one after the other")
    if verify:
        if request_id is not None:
            raise click.UsageError("--verify checks whole runs, not one request; leave out --request, or use --run")
        return _verify_journal(cli, run_id, anchor, key)
    if anchor is not None:
        return _make_anchor(cli, anchor)
    if checkpoint:
        return _make_checkpoint(cli)
    return _print_entries(cli, run_id, request_id, limit)


def _print_entries(cli: CliContext, run_id: str | None, request_id: str | None, limit: int) -> int:
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
    shown = [f"({left_out:,} of {rows:,} rows not shown; use --limit {rows})"] if left_out else []
    for entry, row in zip(last, event_rows(last), strict=True):
        of = short(entry.request_id) if entry.request_id else "-"
        shown.append(f"{of:{SHORT}}  {row}  run {quote_if_needed(entry.run_id, RUN_ROOM)}")
    return cli.answer({"entries": [entry_document(entry) for entry in last], "left_out": left_out}, shown)


@log.command("export", short_help="Write the journal for other systems: JSON, CSV, OCSF.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True, help="The format.")
@click.option("--since", metavar="DATE", type=as_date, help="Only rows since this date: 2026-01-31, or 90d.")
@click.option("--until", metavar="DATE", type=as_date, help="Only rows before this date.")
@click.option("--run", "run_id", metavar="ID", help="Only in this run.")
@context.output_option
@click.pass_obj
def _export(
    cli: CliContext, form: str, since: datetime | None, until: datetime | None, run_id: str | None, output: Path | None
) -> int:
    """Write the journal for other systems, a line for each row: JSON, CSV for spreadsheets, OCSF for a SIEM."""
    if run_id is not None:
        cli.check_run(run_id)
    lines = exported(cli.store, cast("Format", form), since=since, until=until, run_id=run_id)
    context.write_lines(lines, output, "line")
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
@context.output_option
@click.pass_obj
def _write(cli: CliContext, request_id: str, output: Path | None) -> int:
    """Write the receipt of a request that has ended."""
    who = signer()
    text = receipt_text(cli.store, cli.reader.find(request_id), who)
    if output is None:
        echo(text.removesuffix("\n"))
        return 0
    with context.file_to_write(output) as file:
        file.write(text)
    echo_err(f"receipt written to {escape(str(output))}, {_signature_text(None if who is None else who.key)}")
    return 0


@receipt.command("verify", short_help="Verify a receipt; needs no store.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--key", metavar="PUBLIC", help="Require a signature by this public key (or a file with it).")
@json_option
@click.pass_obj
def _verify_receipt(cli: CliContext, file: Path, key: str | None) -> int:
    """Verify a receipt without a store; the exit code is 1 if it is not valid."""
    by = _trusted_key(key)
    try:
        found = verify_receipt(file.expanduser(), trusted=by)
    except EvidenceError as fault:
        if not cli.as_json:
            raise
        context.print_json({"ok": False, "reason": str(fault)})
        return WRONG
    body = found.body
    request, decision, outcome = body["request"], body["decision"], body["outcome"]
    rows = [f"receipt of {short(request['id'])}, run {quote_if_needed(request['run'])}"]
    rows.append(f"  asked     {_subject(body, 'shown')}")
    rows.append(f"            by {quote_if_needed(request['requester'])} at {escape(request['asked_at'])}")
    rows += [f"  changed   {_subject(body, 'edited')}"] if body["edited"] else []
    if decision is not None:
        words = "" if decision["comment"] is None else f": {brief(decision['comment'], _ROOM)}"
        who = f"{quote_if_needed(decision['by'])} ({quote_if_needed(decision['channel'])})"
        rows.append(f"  {quote_if_needed(decision['verb']):9} by {who} at {escape(decision['at'])}{words}")
    rows.append(f"  {quote_if_needed(outcome['state']):9} at {escape(outcome['at'])}")
    rows.append(f"valid, {_signature_text(found.key)}")
    if found.key is None:
        rows.append("  it is undamaged, but anyone could have written it")
    elif key is None:
        rows.append("  the receipt names this key itself: compare it with the key you were given, or use --key")
    return cli.answer({"ok": True, "key": found.key, "receipt": body}, rows)


def _subject(body: dict[str, Any], part: str) -> str:
    text = body[part]["text"]
    if body["request"]["kind"] == "question":
        return f"question {brief(text, _ROOM)}"
    name = str(body["request"]["tool"]).rpartition(":")[2]
    return line(name, cast("dict[str, Any]", mark_secrets(canonical.load(text))), _ROOM)


_JOURNAL_STAYS = "the journal keeps its rows, with names, times, fingerprints and comments"


@click.command()
@click.option("--before", required=True, metavar="DATE", type=as_date, help="A date or an age: 2026-01-31, or 90d.")
@click.option("--dry-run", is_flag=True, help="Only print how much would be removed.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@context.as_option
@json_option
@click.pass_obj
def purge(cli: CliContext, before: datetime, dry_run: bool, is_sure: bool) -> int:
    """Permanently remove the content of requests that ended before a date; the journal still verifies."""
    if before > clock.now():
        raise click.BadParameter(f"{before:%Y-%m-%d} is in the future; nothing was removed", param_hint="--before")
    who, store = cli.reviewer, cli.store
    if not dry_run and not is_sure:
        store.sweep()  # so that the count in the question includes requests that have expired
        would = purge_store(store, before=before, by=who.identity, channel="cli", is_dry=True)
        if not sys.stdin.isatty():
            raise click.UsageError(
                "there is no terminal to ask at: use --yes, or --dry-run to see what would be removed; nothing was"
                " removed"
            )
        what = f"permanently remove the content of {plural(would.requests, 'request')} and {plural(would.runs, 'run')}"
        question = f"{what} that ended before {before:%Y-%m-%d %H:%M}Z?"
        if (would.requests or would.runs) and not context.confirm(question):
            echo_err("nothing was removed")
            return WRONG
    done = purge_store(store, before=before, by=who.identity, channel="cli", is_dry=dry_run)
    what = f"{plural(done.requests, 'request')} and {plural(done.runs, 'run')} that ended before"
    rows = [f"{'would purge' if dry_run else 'purged'} {what} {before:%Y-%m-%d %H:%M}Z; {_JOURNAL_STAYS}"]
    if done.words:
        keep = "keeps" if done.words == 1 else "keep"
        rows.append(f"{plural(done.words, 'row')} of the journal {keep} comments about them")
    if done.live:
        rows.append(f"{plural(done.live, 'request')} kept: still open or running")
    if done.needed:
        rows.append(f"{plural(done.needed, 'request')} kept: the run has not ended")
    if not done.is_scrubbed:
        echo_err(
            "other processes were reading, so the files may still contain removed data: run the same command again"
        )
    content = {**done._asdict(), "before": clock.written(before), "dry_run": dry_run}
    return cli.answer(content, rows, 0 if done.is_scrubbed else WRONG)
