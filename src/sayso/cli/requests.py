"""`ls`, `show` and `confirm`: list the requests of a store, show one in full, and exchange them as Confirm documents.

Invariant: the cost of a page does not depend on the number of requests decided before. The output states how much a
view omits, and shows a call's fingerprint only after the whole call.

`confirm` exports requests as documents of the Confirm protocol, imports such documents, and validates them. Invariant:
a decision is never imported, because what a document states about itself was not decided here.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sayso import audit, clock, config, errors
from sayso.audit.export import entry_document
from sayso.cli import context
from sayso.cli.context import CliContext, NoStoreYetError, Number, echo, echo_err, json_option, print_json, stop_row
from sayso.gates.stderr import command
from sayso.model.edit import schema_of
from sayso.model.request import LIVE, Request, State, changed
from sayso.model.text import escape
from sayso.stores.review import page_in_sequence
from sayso.terminal import PROGRAM_GONE
from sayso.view import full_text
from sayso.view.as_json import event_rows, request_document
from sayso.view.full_text import kinds_of, outcome_rows, status_line
from sayso.view.summary import short

if TYPE_CHECKING:
    from sayso.mplp import Confirm, LearningSample, Plan


_PENDING = frozenset({State.PENDING})


@click.command()
@context.filter_options
@click.option(
    "--state", "states", type=click.Choice([*map(str, State), "all"]), multiple=True, metavar="STATE",
    help=f"Only requests in this state; repeatable. One of {', '.join(State)}, or all.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also list requests that have ended.")
@click.option("-q", "--quiet", is_flag=True, help="Print only full ids, of all pages.")
@click.option("--limit", metavar="N", type=Number(1, 1000), help="At most N; by default 50, or all with --quiet.")
@click.option("--cursor", metavar="CURSOR", help="Continue after this cursor of the last page.")
@click.option("--newest", is_flag=True, help="Newest first.")
@context.as_option
@json_option
@click.pass_obj
def ls(
    cli: CliContext, states: tuple[str, ...], everything: bool, quiet: bool, limit: int | None,
    cursor: str | None, newest: bool,
) -> int:  # fmt: skip
    """List open requests: pending first, oldest first; then approved, running and unknown ones.

    `program ended` marks requests whose decision no program will fetch, because its run had no name.
    """
    if quiet and cli.as_json:
        raise click.UsageError("give --quiet or --json, not both")
    everything = everything or "all" in states
    wanted = frozenset(State(state) for state in states if state != "all")
    lists = [frozenset[State]()] if everything else [wanted] if wanted else [_PENDING, LIVE - _PENDING]
    filters = cli.list_keywords()
    try:
        is_all = quiet and limit is None and cursor is None
        every = (one for each in lists for one in cli.reader.list(state=each or "all", newest=newest, **filters))
        pages = {
            str(at): partial(cli.reader.list, state=each or "all", newest=newest, **filters)
            for at, each in enumerate(lists)
        }
        page = None if is_all else page_in_sequence(pages, cursor, limit or 50)
        found, after = (list(every), None) if page is None else (list(page.requests), page.cursor)
        if not found and "run" in cli.filters:
            cli.check_run(cli.filters["run"])
    except (
        errors.RunNotFoundError,
        NoStoreYetError,
    ) as fault:  # it may come into being later, so polling for it is no error
        echo_err(escape(str(fault)))
        found, after = [], None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cursor") from error
    if quiet:
        echo(*(request.id for request in found))
        echo_err(*([f"{len(found):,} shown; continue with --cursor {after}"] if after is not None else []))
    elif cli.as_json:
        review = cli.reader if found else None
        print_json({
            "requests": [request_document(one, program_gone=review.program_is_gone(one)) for one in found if review],
            "cursor": after,
        })  # fmt: skip
    elif not found:
        echo("no open requests" if len(lists) > 1 else "no requests")
    else:
        review = cli.reader
        totals: dict[str, Any] = {}
        if len(lists) > 1:
            oldest = review.list(state=State.PENDING, limit=1, **filters).requests
            pending, unknown = (review.count(state=state, **filters) for state in (State.PENDING, State.UNKNOWN))
            totals = {"pending": pending, "unknown": unknown, "oldest": oldest[0] if oldest else None}
        gone = {request.id for request in found if review.program_is_gone(request)}
        stop = review.stopped()
        stopped = [] if stop is None else [f"{stop_row(stop)}; `sayso go` lets them start again"]
        echo(*context.table(found, cursor=after, gone=gone, **totals), *stopped)
    return 0


# -- one request ---------------------------------------------------------------------------------------------------


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--full", is_flag=True, help="Do not shorten anything.")
@json_option
@click.pass_obj
def show(cli: CliContext, request_id: str, full: bool) -> int:
    """Show a request and its outcome. Long values are shortened to their beginning, end and size."""
    review = cli.reader
    request = review.get(request_id)
    entries = list(audit.entries(cli.store, run_id=request.run_id, request_id=request.id))
    is_gone = review.program_is_gone(request)
    if cli.as_json:
        journal = {"journal": [entry_document(entry) for entry in entries]}
        print_json(request_document(request, program_gone=is_gone) | journal)
        return 0
    now, width = clock.now(), shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    state, _, rest = status_line(request, now).partition(" ")
    colour = context.COLOURS.get(request.state)
    rows = [f"{escape(request.id)}   {state if colour is None else context.paint(state, colour)} {rest}".rstrip()]
    rows += [f"  {PROGRAM_GONE}"] if is_gone else []
    same = review.same_effect(request)
    rows += full_text.ask_rows(request, now, width=max(width, full_text.NARROW), full=full, same_effect=same)
    if request.state is State.PENDING:
        takes = [f"    {name}: {kind}" for name, kind in kinds_of(schema_of(request)).items()]
        rows += ["  parameters:", *takes] if takes else []
    if request.kind == "call" and request.edited is not None:
        changes = changed(request.call, request.edited, request.redact)
        rows += ["  changed by reviewers:", *(f"    {change.line()}" for change in changes)]
    echo(*rows, *outcome_rows(request))
    echo("", "what happened", *(f"  {row}" for row in event_rows(entries)), "")
    sayso, name = command(cli.store), short(request.id)
    if full or full_text.is_whole(request):
        echo(f"fingerprint {request.current_fingerprint}")
    else:
        echo(f"shortened; show everything with {sayso} show --full {name}")
    for verb, _, more in (step.partition(" ") for step in _next_steps(request, is_gone=is_gone)):
        echo(f"next: {sayso} {verb} {name} {more}".rstrip())
    return 0


def _next_steps(request: Request, *, is_gone: bool) -> list[str]:
    if is_gone and request.state is State.PENDING:
        return ["cancel -m WHY"]
    match request.state, request.kind:
        case State.PENDING, "call":
            seen = "" if request.edited is None else " --seen FINGERPRINT"
            return [f"approve{seen}", f"approve --set NAME=VALUE{seen}", "reject -m WHY", "feedback -m WORDS"]
        case State.PENDING, _:
            return ["answer VALUE", "reject -m WHY"]
        case State.APPROVED, _:
            return ["cancel -m WHY"]
        case State.UNKNOWN, _:
            starts = 1 if request.execution is None else request.execution.starts
            start = f" --start {starts}" if starts > 1 else ""
            return [f"resolve --happened{start}", f"resolve --did-not{start}"]
        case _:
            return []


_KINDS = ("confirm", "plan", "learning-sample")
_MOST = 100


@click.group()
def confirm() -> None:
    """Export, import and validate documents of the Confirm protocol."""


@confirm.command("export", short_help="Print the Confirm of a request, or its plan.")
@click.argument("wanted", metavar="ID")
@click.option("--plan", is_flag=True, help="Print the plan instead of its Confirm.")
@context.output_option
@click.pass_obj
def _export(cli: CliContext, wanted: str, plan: bool, output: Path | None) -> int:
    """Print the Confirm of a request; ID names the request, the Confirm or its plan."""
    from sayso.mplp.history import find_confirm

    group = find_confirm(cli.store, wanted)
    if plan and group.confirm.target_type != "plan":
        raise click.UsageError(f"the Confirm {wanted!a} has no plan: its target is of type {group.confirm.target_type}")
    content = (group.plan if plan else group.confirm).export()
    if output is None:
        print_json(content)
    else:
        with context.file_to_write(output) as file:
            file.write(json.dumps(content, indent=2) + "\n")
        echo_err(f"written to {escape(str(output))}")
    return 0


@confirm.command("import", short_help="Submit a plan or a Confirm for a decision.")
@click.argument("file", metavar="FILE")
@click.option("--plan", "plan_file", metavar="FILE", help="The plan that a Confirm is about.")
@click.option("--by", "role", metavar="ROLE", help="The role that asks; required if FILE is a plan.")
@click.option("--lenient", is_flag=True, help="Accept other spellings, and print how they were read.")
@json_option
@click.pass_obj
def _import(cli: CliContext, file: str, plan_file: str | None, role: str | None, lenient: bool) -> int:
    """Submit a plan or a Confirm, which opens a request for a person to decide. FILE may be `-`."""
    from sayso.mplp import Confirm, Plan, submit_for_approval, submit_plan_for_approval
    from sayso.mplp.history import find_confirm

    store = config.open_store(cli.address)
    taken = _read_document(file, lenient=lenient)
    if isinstance(taken, Plan):
        if role is None:
            raise click.UsageError("a plan needs --by ROLE: who asks for it")
        opened = submit_plan_for_approval(taken, role, store=store)
    elif not isinstance(taken, Confirm):
        raise click.UsageError("only plans and Confirms can be submitted")
    elif plan_file is None:
        if taken.target_type == "plan":
            raise click.UsageError("this Confirm is about a plan, which the reviewer has to see: add --plan FILE")
        opened = submit_for_approval(taken, store=store)
    else:
        plan = _read_document(plan_file, lenient=lenient)
        if not isinstance(plan, Plan):
            raise click.UsageError("the file of --plan does not contain a plan")
        opened = submit_plan_for_approval(plan, role or taken.requested_by_role, confirm=taken, store=store)
    request = find_confirm(cli.store, opened.confirm_id).last
    return cli.answer(
        {"request": request.id, "confirm_id": opened.confirm_id, "status": opened.status},
        [f"{short(request.id)} {opened.status}   Confirm {opened.confirm_id} about {opened.target_type}"],
    )


@confirm.command("validate", short_help="Check whether documents conform.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--kind", type=click.Choice(_KINDS), help="The expected kind; by default guessed from the content.")
@click.option("--lenient", is_flag=True, help="Accept other spellings, and print how they were read.")
@json_option
@click.pass_obj
def _validate(cli: CliContext, files: tuple[str, ...], kind: str | None, lenient: bool) -> int:
    """Check whether documents conform, and print where they do not; the exit code is 1 if one does not.

    A `*.jsonl` file has one document on each line.
    """
    from sayso.mplp import NotConformantError

    results, rows = list[dict[str, Any]](), list[str]()
    for file in files:
        what: str | None = None
        problems, changes = list[str](), list[str]()
        for where, content in _read_parts(file):
            try:
                taken = _parse(content, kind, lenient=lenient)
            except NotConformantError as error:
                what = what or error.what
                problems += (f"{where}{problem}" for problem in error.problems)
            else:
                what = what or type(taken).__name__
                changes += (f"{where}{change}" for change in taken.changes)
            if len(problems) >= _MOST:
                problems[_MOST:] = ["there may be more; the rest was not checked"]
                break
        if what is None:
            problems.append("/: the file contains no document")
        found: dict[str, Any] = {
            "file": file, "ok": not problems, "kind": what or "document", "problems": problems,
            "changes": [] if problems else changes,
        }  # fmt: skip
        results.append(found)
        rows.append(f"{escape(found['file'])}: {'conforms' if found['ok'] else 'does not conform'} ({found['kind']})")
        rows += [f"  {escape(line)}" for line in (*found["problems"], *found["changes"])]
    return cli.answer(results, rows, 0 if all(found["ok"] for found in results) else context.WRONG)


@confirm.command("schema", short_help="Print a JSON Schema.")
@click.argument("kind", type=click.Choice(_KINDS), default="confirm")
def _schema(kind: str) -> int:
    """Print a JSON Schema: of a Confirm, of a plan, or of a learning sample."""
    from sayso.mplp import schema

    print_json(schema(kind))
    return 0


def _read_document(file: str, *, lenient: bool) -> Confirm | Plan | LearningSample:
    return _parse(b"".join(content for _, content in _read_parts(file)), None, lenient=lenient)


def _read_parts(file: str) -> Iterator[tuple[str, bytes]]:
    """Yield each document in a file, one for each line of a `*.jsonl`, together with its location for messages."""
    from sayso.mplp.schema import LIMIT_BYTES

    try:
        with sys.stdin.buffer if file == "-" else Path(file).expanduser().open("rb") as opened:
            if not file.endswith(".jsonl"):
                yield "", opened.read(LIMIT_BYTES + 1)
                return
            lines = iter(partial(opened.readline, LIMIT_BYTES + 1), b"")
            yield from ((f"line {number}: ", line) for number, line in enumerate(lines, 1) if line.strip())
    except OSError as error:
        raise errors.ConfigError(f"{file!a} cannot be read ({error.strerror}); nothing was done") from error


def _parse(content: bytes, kind: str | None, *, lenient: bool) -> Confirm | Plan | LearningSample:
    from sayso.mplp import Confirm, LearningSample, Plan
    from sayso.mplp.schema import parse_json

    found = parse_json(content)
    if kind is None:
        kind = "plan" if "steps" in found else "learning-sample" if "sample_id" in found else "confirm"
    model = {"confirm": Confirm, "plan": Plan, "learning-sample": LearningSample}[kind]
    return model.parse(found, strict=not lenient)
