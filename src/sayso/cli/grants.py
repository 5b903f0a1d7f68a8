"""The commands about what starts without another decision: `grants`, `stop` and `go`."""

from __future__ import annotations

import click

from sayso import clock
from sayso.cli.context import CliContext, json_option, message_option, reviewer_options
from sayso.cli.output import out, print_json
from sayso.model.escaping import escape
from sayso.model.grant import Grant
from sayso.view.document import grant_document, moment
from sayso.view.summary import name_of, time_left

__all__ = ["go", "grant_rows", "grants", "stop"]


def grant_rows(grant: Grant) -> list[str]:
    """Return a grant as lines for a terminal."""
    people = ", ".join(name_of(one.by) for one in grant.grantors)
    if grant.ended is None:
        state = f"{grant.left} of {grant.count} left, ends {time_left(grant.until, clock.now())}"
    else:
        state = grant.ended if grant.ended_by is None else f"{grant.ended} by {name_of(grant.ended_by)}"
    where = "" if grant.run is None else f" in run {escape(grant.run)}"
    head = f"{grant.id[:11]} {escape(grant.name)} for {name_of(grant.requester)}{where}: {state}; by {people}"
    return [head, *(f"  {line}" for line in grant.lines())]


def _show(cli: CliContext, grant: Grant) -> int:
    if cli.as_json:
        print_json(grant_document(grant))
    else:
        out(*grant_rows(grant))
    return 0


@click.group(invoke_without_command=True)
@click.pass_context
def grants(ctx: click.Context) -> None:
    """List or revoke what lets the next calls like an approved one start."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(_ls, ended=False)


@grants.command("ls")
@click.option("--all", "ended", is_flag=True, help="Also those that have ended.")
@json_option
@click.pass_obj
def _ls(cli: CliContext, *, ended: bool) -> int:
    """List the grants that count, newest first."""
    found = cli.reader.grants(ended=ended)
    if cli.as_json:
        print_json([grant_document(grant) for grant in found])
    else:
        out(*(row for grant in found for row in grant_rows(grant)), *([] if found else ["no grants"]))
    return 0


@grants.command("revoke")
@click.argument("grant_id", metavar="GRANT")
@message_option("Why, for the journal.")
@reviewer_options
@json_option
@click.pass_obj
def _revoke(cli: CliContext, grant_id: str, message: str | None) -> int:
    """End a grant, for what has not started as well."""
    return _show(cli, cli.review.revoke(grant_id, reason=message))


@grants.command("agree")
@click.argument("grant_id", metavar="GRANT")
@reviewer_options
@json_option
@click.pass_obj
def _agree(cli: CliContext, grant_id: str) -> int:
    """Agree to a grant of another reviewer."""
    return _show(cli, cli.review.agree(grant_id))


@click.command()
@click.option("--reason", "-m", "reason", metavar="TEXT", help="Why; programs are told, and the journal keeps it.")
@reviewer_options
@json_option
@click.pass_obj
def stop(cli: CliContext, reason: str | None) -> int:
    """Block every start, approved ones too, until `sayso go`. No approval is spent; what runs goes on."""
    found = cli.review.stop(reason=reason)
    if cli.as_json:
        print_json({"stopped": True, "by": found.by.qualified, "at": moment(found.at), "reason": found.reason})
    else:
        why = "" if found.reason is None else f": {escape(found.reason)}"
        out(f"every start is stopped by {name_of(found.by)}{why}", "`sayso go` lets calls start again")
    return 0


@click.command()
@click.option("--reason", "-m", "reason", metavar="TEXT", help="Why; the journal keeps it.")
@reviewer_options
@json_option
@click.pass_obj
def go(cli: CliContext, reason: str | None) -> int:
    """Let calls start again."""
    was_stopped = cli.review.go(reason=reason)
    if cli.as_json:
        print_json({"stopped": False, "was_stopped": was_stopped})
    else:
        out("calls start again" if was_stopped else "nothing was stopped; nothing changed")
    return 0
