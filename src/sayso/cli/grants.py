"""The commands about what starts without another decision: `grants`, `stop` and `go`."""

from __future__ import annotations

import click

from sayso import clock
from sayso.cli.context import CliContext, deciding, json_option, message_option
from sayso.model.escaping import escape
from sayso.model.grant import BudgetUse, Grant
from sayso.view.document import budget_document, grant_document, moment
from sayso.view.summary import name_of, time_left


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
    """List the grants that count, and what is used of budgets."""
    found, budgets = cli.reader.grants(ended=ended), list(cli.store.budgets())
    rows = [row for grant in found for row in grant_rows(grant)] or ["no grants"]
    if budgets:
        rows += ["", "budgets of policies, and what is used of them now:", *map(_budget_row, budgets)]
    documents = list(map(budget_document, budgets))
    return cli.answer({"grants": [grant_document(grant) for grant in found], "budgets": documents}, rows)


def _budget_row(use: BudgetUse) -> str:
    request, whose = use.request, "nobody any more"
    if request is not None:
        per = {"agent": f" for {name_of(request.requester)}", "run": f" in run {escape(request.run_id)}"}
        whose = escape(use.rule or request.call.name) + per.get(use.budget.per or "", "")
    used = "cannot be read, so nothing passes" if use.used is None else f"{use.used:f} used"
    return escape(f"{use.budget}: ") + f"{used}; {whose}"


@deciding(
    click.argument("grant_id", metavar="GRANT"), message_option("Why, for the journal."), group=grants, name="revoke"
)
def _revoke(cli: CliContext, grant_id: str, message: str | None) -> int:
    """End a grant, for what has not started as well."""
    grant = cli.review.revoke(grant_id, reason=message)
    return cli.answer(grant_document(grant), grant_rows(grant))


@deciding(click.argument("grant_id", metavar="GRANT"), group=grants, name="agree")
def _agree(cli: CliContext, grant_id: str) -> int:
    """Agree to a grant of another reviewer."""
    grant = cli.review.agree(grant_id)
    return cli.answer(grant_document(grant), grant_rows(grant))


@deciding(
    click.option("--reason", "-m", "reason", metavar="TEXT", help="Why; programs are told, and the journal keeps it.")
)
def stop(cli: CliContext, reason: str | None) -> int:
    """Block every start, approved ones too, until `sayso go`. No approval is spent; what runs goes on."""
    found = cli.review.stop(reason=reason)
    why = "" if found.reason is None else f": {escape(found.reason)}"
    return cli.answer(
        {"stopped": True, "by": found.by.qualified, "at": moment(found.at), "reason": found.reason},
        [f"every start is stopped by {name_of(found.by)}{why}", "`sayso go` lets calls start again"],
    )


@deciding(click.option("--reason", "-m", "reason", metavar="TEXT", help="Why; the journal keeps it."))
def go(cli: CliContext, reason: str | None) -> int:
    """Let calls start again."""
    was_stopped = cli.review.go(reason=reason)
    row = "calls start again" if was_stopped else "nothing was stopped; nothing changed"
    return cli.answer({"stopped": False, "was_stopped": was_stopped}, [row])
