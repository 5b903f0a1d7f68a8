"""`log`, `receipt` and `purge`: print, verify, export and prove the journal, and remove old payloads.

Invariant: what is not printed is counted, and what cannot be known from the store alone is said each time.
"""

from __future__ import annotations

import heapq
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

import click

from sayso import audit, clock, config, errors
from sayso.audit.anchor import AnchorFile, anchor_text, read_anchor_file
from sayso.audit.checkpoint import CHAIN, Checkpoint, History, checkpoint, history
from sayso.audit.export import FORMATS, Format, exported
from sayso.audit.purge import Purged
from sayso.audit.purge import purge as let_go
from sayso.audit.receipt import Proven, receipt_text, verify_receipt_file
from sayso.audit.signing import Signer, checked_key, signer_at
from sayso.cli.context import Desk, Number, as_json, reviewer
from sayso.cli.decisions import entry_document
from sayso.cli.output import WRONG, complain, document, is_reader_gone, out, paint
from sayso.errors import EvidenceError
from sayso.model import canonical, duration
from sayso.model.text import escape
from sayso.view import line
from sayso.view.arguments import brief
from sayso.view.document import event_rows
from sayso.view.summary import RUN_ROOM, SHORT, short, token

__all__ = [
    "checkpoint_values",
    "counted",
    "export",
    "instant",
    "log",
    "make_anchor",
    "make_checkpoint",
    "purge",
    "receipt",
    "signed",
    "signer",
    "told",
    "trusted",
    "write",
    "written_to",
]


def instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Return what an option says of time: a day, an instant (in UTC where it has no zone), or a span ago (`90d`)."""
    if value is None:
        return None
    try:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return clock.now() - duration.parse(value)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (OverflowError, errors.ConfigError) as error:
        said = f"{value!r} is no day, no instant and no span, as 2026-01-31 and 90d are"
        raise click.BadParameter(said, ctx, param) from error


def counted(count: int, what: str) -> str:
    """Return a number of things, as people say it."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def signer() -> Signer | None:
    """Return who signs here; raises `ConfigError` where a key is configured and cannot be used."""
    path = config.signing_key()
    return None if path is None else signer_at(path)


def trusted(key: str | None) -> str | None:
    """Return the public key that `--key` gave, itself or in a file."""
    if key is None:
        return None
    try:
        return checked_key(key)
    except errors.ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--key") from error


def signed(key: str | None) -> str:
    """Say by whom something is signed."""
    return "NOT SIGNED" if key is None else f"signed by {key}"


def checkpoint_values(made: Checkpoint | None) -> dict[str, Any] | None:
    """Return what a checkpoint says, as programs are told it."""
    return None if made is None else made._asdict() | {"at": clock.written(clock.instant(made.at))}


def told(made: Checkpoint) -> str:
    """Return what a checkpoint says, for people: from when it is, over how much, and who signed it."""
    return (
        f"of {clock.instant(made.at):%Y-%m-%d %H:%M:%S}Z over {counted(made.rows, 'row')}"
        f" in {counted(made.chains, 'chain')}, {signed(made.key)}"
    )


@contextmanager
def written_to(path: Path, *, may_replace: bool = True) -> Generator[IO[str]]:
    """Let a file be written, for its owner alone; it stands there whole, or not at all.

    What is there and is no file, as `/dev/null` or a pipe, is written to as it is, and not replaced.

    Raises:
        ConfigError: It cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    part = path.with_name(f"{path.name}.part")
    try:
        if not may_replace and path.exists():
            raise errors.ConfigError(f"{path} is there already, and is not written over; nothing was written")
        with suppress(FileNotFoundError):
            part.unlink()
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise errors.ConfigError(f"{path} cannot be written ({error.strerror}); nothing was written") from error
    finally:
        with suppress(OSError):
            part.unlink()


_MOST = 50
_ALONE = "That the end of a chain was cut off together with its requests cannot be known from the store alone."
_CHECKED = (
    "That the newest checkpoints were cut off, with all that came after the one before them, cannot be known from the"
    " store alone, nor that all of it was and it began anew: an anchor that is kept elsewhere shows both."
)
_ANCHORED = "That what came after {witness} was cut off together with its requests cannot be known."
_UNSIGNED = "The newest of it is not signed: whoever can write the store could have written all of it anew."
_ANY_KEY = "Whoever can write the store can sign with a key of their own: --key PUBLIC says which one to believe."


def _verify_journal(desk: Desk, run_id: str | None, anchor: Path | None, key: str | None, *, as_json: bool) -> int:
    """Verify the journal, hold it to its checkpoints and to an anchor, and print what was found."""
    store, by = desk.store, trusted(key)
    mine = signer() if by is None else None
    held_to = None if anchor is None else read_anchor_file(anchor.expanduser(), trusted=by)
    if held_to is not None:
        held_to.must_be_of(store)
    past = history(store, trusted=by if mine is None else mine.key)
    known = [*past.known, *(() if held_to is None else held_to.known)]
    found = audit.verify(store, run_id=run_id, known=known)
    if run_id is not None and not found.rows and not found.broken:  # one that is known and gone is broken
        desk.must_know(run_id)
    broken = [*found.broken, *(audit.Break(CHAIN, past.last, reason) for reason in past.broken)]
    if by is not None and past.newest is None:
        broken.append(audit.Break(CHAIN, 0, f"there is no checkpoint, and {by} must have signed one"))
    if as_json:
        document(_document(found, broken, past, held_to))
    else:
        out(*_rows(found, broken, past, held_to), *_limits(past, held_to, is_held=by is not None or mine is not None))
    return WRONG if broken else 0


def _document(
    found: audit.Verified, broken: list[audit.Break], past: History, anchor: AnchorFile | None
) -> dict[str, Any]:
    return {
        "rows": found.rows, "chains": found.chains, "requests": found.requests, "unopened": found.unopened,
        "broken": [{"run": one.run_id, "seq": one.seq, "reason": one.reason} for one in broken],
        "checkpoints": past.number,
        "newest": checkpoint_values(past.newest),
        "anchor": checkpoint_values(None if anchor is None else anchor.checkpoint),
    }  # fmt: skip


def _rows(found: audit.Verified, broken: list[audit.Break], past: History, anchor: AnchorFile | None) -> list[str]:
    rows = [f"{counted(found.rows, 'row')} in {counted(found.chains, 'chain')}, {counted(found.requests, 'request')}"]
    if past.newest is not None:
        rows.append(f"{counted(past.number, 'checkpoint')}, the newest {told(past.newest)}")
    if anchor is not None:
        rows.append(f"held to {anchor.witness}, {signed(anchor.key)}")
    word = paint("BROKEN", "red")
    rows += [f"{word}  run {token(one.run_id)}: {escape(one.reason)}" for one in broken[:_MOST]]
    if len(broken) > _MOST:
        rows.append(f"({len(broken) - _MOST:,} more not shown; --json has all)")
    rows.append(
        "whole: every row follows from the one before, and every request stands as its rows say"
        if not broken
        else f"broken: {counted(len({one.run_id for one in broken}), 'chain')}"
    )
    if found.unopened:
        rows.append(
            f"{counted(found.unopened, 'request')} sealed: what was asked was not compared; set SAYSO_KEY for that"
        )
    return rows


def _limits(past: History, anchor: AnchorFile | None, *, is_held: bool) -> list[str]:
    """Say what cannot be known; `is_held` says whether a key is believed that did not come from the store."""
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


def make_checkpoint(desk: Desk, *, as_json: bool) -> int:
    """Write a checkpoint where something happened since the last one, and print it."""
    store = desk.store
    before = history(store)
    after = checkpoint(store, signer(), since=before)
    is_new = after.number > before.number
    if as_json:
        document({"is_new": is_new, "checkpoints": after.number, "newest": checkpoint_values(after.newest)})
    elif after.newest is None:
        out("nothing stands in the journal yet, so there is no checkpoint")
    else:
        out(f"{'' if is_new else 'nothing happened since '}checkpoint {after.newest.seq} {told(after.newest)}")
    return 0


def make_anchor(desk: Desk, path: Path, *, as_json: bool) -> int:
    """Write an anchor of what stands in the store now."""
    who = signer()
    path = path.expanduser()
    with written_to(path, may_replace=False) as file:
        file.write(anchor_text(desk.store, who))
    made = read_anchor_file(path)
    if as_json:
        document({"file": str(path), "key": made.key, "anchor": checkpoint_values(made.checkpoint)})
    else:
        out(
            f"anchor {told(made.checkpoint)}, written to {escape(str(path))}",
            "  keep it where no writer of the store can reach it; `sayso log --verify --anchor FILE` compares",
        )
    return 0


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
        return _verify_journal(desk, run_id, anchor, key, as_json=as_json)
    if anchor is not None:
        return make_anchor(desk, anchor, as_json=as_json)
    if checkpoint:
        return make_checkpoint(desk, as_json=as_json)
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


@receipt.command("verify", short_help="Verify a receipt; needs no store.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--key", metavar="PUBLIC", help="The public key, or a file with it, that must have signed it.")
@as_json
def _verify_receipt(file: Path, key: str | None, as_json: bool) -> int:
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
    out(*_receipt_rows(found, is_trusted=key is not None))
    return 0


def _receipt_rows(found: Proven, *, is_trusted: bool) -> list[str]:
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


_KEPT = "the journal keeps its rows, with names, times, fingerprints and people's words"


@click.command()
@click.option(
    "--before", required=True, metavar="DATE", callback=instant, help="What ended before: 2026-01-31, or 90d."
)
@click.option("--dry-run", is_flag=True, help="Only say how much that is.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--as", "name", metavar="NAME", help="Who you are; else SAYSO_REVIEWER, else user@host.")
@as_json
@click.pass_obj
def purge(desk: Desk, before: datetime, dry_run: bool, is_sure: bool, name: str | None, as_json: bool) -> int:
    """Remove arguments, results and words of requests that ended before DATE, for good; the journal still verifies."""
    if before > clock.now():
        raise click.BadParameter(f"{before:%Y-%m-%d} lies in the future; nothing was removed", param_hint="--before")
    who, store = reviewer(name, ()), desk.store
    if not dry_run and not is_sure:
        store.sweep()  # so that what ran out by then is counted before anybody is asked
        would = let_go(store, before=before, by=who.identity, channel="cli", is_dry=True)
        if not _is_sure(would, before):
            complain("nothing was removed")
            return WRONG
    done = let_go(store, before=before, by=who.identity, channel="cli", is_dry=dry_run)
    if as_json:
        document({**done._asdict(), "before": clock.written(before), "dry_run": dry_run})
    else:
        out(*_purge_rows(done, before, is_dry=dry_run))
    return 0 if done.is_scrubbed else WRONG


def _is_sure(would: Purged, before: datetime) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("say --yes, or --dry-run to see how much would go; nothing was removed")
    if not would.requests and not would.runs:
        return True
    what = f"remove what {counted(would.requests, 'request')} and {counted(would.runs, 'run')} were about"
    try:
        return click.confirm(f"{what}, ended before {before:%Y-%m-%d %H:%M}Z, for good?", err=True)
    except click.Abort:  # Ctrl-C, or no more input
        complain("")
        return False


def _purge_rows(done: Purged, before: datetime, *, is_dry: bool) -> list[str]:
    what = f"{counted(done.requests, 'request')} and {counted(done.runs, 'run')} that ended before"
    rows = [f"{'would purge' if is_dry else 'purged'} {what} {before:%Y-%m-%d %H:%M}Z; {_KEPT}"]
    if done.words:
        keep = "keeps" if done.words == 1 else "keep"
        rows.append(f"{counted(done.words, 'row')} of the journal {keep} people's words about them")
    if done.live:
        rows.append(f"{counted(done.live, 'request')} left alone: something can still happen")
    if done.needed:
        rows.append(f"{counted(done.needed, 'request')} left alone: of runs that have not ended")
    if not done.is_scrubbed:
        complain("others were reading, and the files may still hold what was removed: say the same again")
    return rows
