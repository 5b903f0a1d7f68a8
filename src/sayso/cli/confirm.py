"""`confirm`: exports requests as documents of the Confirm protocol, imports such documents, and validates them.

Invariant: a decision is never imported, because what a document states about itself was not decided here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sayso import config, errors
from sayso.cli.context import WRONG, CliContext, complain, file_to_write, json_option, output_option, print_json
from sayso.model.text import escape
from sayso.view.summary import short

if TYPE_CHECKING:
    from sayso.mplp import Confirm, LearningSample, Plan

_KINDS = ("confirm", "plan", "learning-sample")
_MOST = 100


@click.group()
def confirm() -> None:
    """Export, import and validate documents of the Confirm protocol."""


@confirm.command("export", short_help="Print the Confirm of a request, or its plan.")
@click.argument("wanted", metavar="ID")
@click.option("--plan", is_flag=True, help="Print the plan instead of its Confirm.")
@output_option
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
        with file_to_write(output) as file:
            file.write(json.dumps(content, indent=2) + "\n")
        complain(f"written to {escape(str(output))}")
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
    taken = _taken(file, lenient=lenient)
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
        plan = _taken(plan_file, lenient=lenient)
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
    results = [_judged(file, kind, lenient=lenient) for file in files]
    rows = list[str]()
    for found in results:
        rows.append(f"{escape(found['file'])}: {'conforms' if found['ok'] else 'does not conform'} ({found['kind']})")
        rows += [f"  {escape(line)}" for line in (*found["problems"], *found["changes"])]
    return cli.answer(results, rows, 0 if all(found["ok"] for found in results) else WRONG)


def _judged(file: str, kind: str | None, *, lenient: bool) -> dict[str, Any]:
    """Return whether a file's documents conform, and their kinds; for a `*.jsonl` file with line numbers."""
    from sayso.mplp import NotConformantError

    what: str | None = None
    problems, changes = list[str](), list[str]()
    for where, content in _contents(file):
        try:
            taken = _parsed(content, kind, lenient=lenient)
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
    return {
        "file": file, "ok": not problems, "kind": what or "document", "problems": problems,
        "changes": [] if problems else changes,
    }  # fmt: skip


@confirm.command("schema", short_help="Print a JSON Schema.")
@click.argument("kind", type=click.Choice(_KINDS), default="confirm")
def _schema(kind: str) -> int:
    """Print a JSON Schema: of a Confirm, of a plan, or of a learning sample."""
    from sayso.mplp import schema

    print_json(schema(kind))
    return 0


def _taken(file: str, *, lenient: bool) -> Confirm | Plan | LearningSample:
    return _parsed(b"".join(content for _, content in _contents(file)), None, lenient=lenient)


def _contents(file: str) -> Iterator[tuple[str, bytes]]:
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


def _parsed(content: bytes, kind: str | None, *, lenient: bool) -> Confirm | Plan | LearningSample:
    from sayso.mplp import Confirm, LearningSample, Plan
    from sayso.mplp.schema import parse_json

    found = parse_json(content)
    if kind is None:
        kind = "plan" if "steps" in found else "learning-sample" if "sample_id" in found else "confirm"
    model = {"confirm": Confirm, "plan": Plan, "learning-sample": LearningSample}[kind]
    return model.parse(found, strict=not lenient)
