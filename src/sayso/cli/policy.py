"""What applies without a person's decision on each call: `policy`, `grants`, and the stop (`stop`, `go`).

`policy` checks a policy file, explains its verdict on a call, tests its examples, and replays it. Invariant: it decides
no request and changes no file; an error in the file ends every command with code 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

import click

from sayso import clock, config, errors
from sayso.cli import context
from sayso.cli.context import WRONG, CliContext, as_date, decision, json_option, message_option, plural, stop_row
from sayso.model import canonical
from sayso.model.grant import Budget, BudgetUse, Grant
from sayso.model.reviewer import PROGRAM, Identity, name_of
from sayso.model.schema import Schema
from sayso.model.text import escape
from sayso.policy import Answer, Policy
from sayso.policy.policy import replay as replayed
from sayso.policy.rules import names_of, short_name
from sayso.stores.base import Filter
from sayso.stores.review import requests_in
from sayso.view.as_json import budget_document, grant_document, moment
from sayso.view.summary import short, time_left

_DAYS_REPLAYED = 30
_NEWEST = 2_000  # requests that are searched for the schemas of tools
_IDS = 5

_file_option = click.option("--policy", "file", metavar="FILE", help="The policy file; by default the one in effect.")


@click.group()
def policy() -> None:
    """Check, explain, test and replay the rules of a policy file."""


@policy.command(short_help="Check a policy file against the tools in the store.")
@click.argument("file", required=False)
@json_option
@click.pass_obj
def check(cli: CliContext, file: str | None) -> int:
    """Print all mistakes in a policy file, by default the one in effect.

    Conditions are checked against the schemas of the tools for which the store has requests.
    """
    rules, (tools, asked_by) = Policy.of_file(file), _tools(cli)
    problems = rules.problems(tools, asked_by=asked_by)
    named = set[str]() if problems else {name for rule in rules.rules for name in rule.verdict.channels}
    unknown = sorted(named - config.channel_tables().keys()) if named else []
    notes = [f"{one.line}: note: {one.message}" for one in rules.notes(tools, asked_by=asked_by)]
    notes += [] if problems else _notes_on_patterns(rules, tools)
    rows = [f":{one.line}:{one.column}: {one.message}" for one in problems]
    rows += [f": sayso.toml has no channel named {name!a}" for name in unknown]
    rows += [f":{one}" for one in notes]
    if not problems and not unknown:
        rows.append(f": {plural(len(rules.rules), 'rule')}, checked with {plural(len(tools), 'tool')}")
    return cli.answer(
        {"file": rules.label, "problems": [one._asdict() for one in problems], "channels": unknown, "notes": notes},
        [escape(rules.label + row) for row in rows], WRONG if problems or unknown else 0,
    )  # fmt: skip


def _notes_on_patterns(rules: Policy, tools: Iterable[str]) -> Iterator[str]:
    """Yield notes on patterns that match no known tool, or that allow calls by names which others can choose."""
    known = {name for tool in tools for name in (tool, *names_of(tool, short_name(tool)))}
    for rule in rules.rules:
        for pattern in rule.tools:
            if rule.verdict.kind == "allow" and pattern.startswith("*"):
                yield (
                    f"{rule.line}: note: {pattern!r} also matches tools that another server may name so; begin it with"
                    " the name of a server or a module"
                )
            near = [] if pattern in known or "*" in pattern else get_close_matches(pattern, known, 1, 0.7)
            if near:
                yield f"{rule.line}: note: no tool in this store matches {pattern!r}; did you mean {near[0]}?"


@policy.command(short_help="Show which rule decides a call, and why.")
@click.argument("tool")
@click.argument("arguments", default="{}")
@click.option("--run", metavar="NAME", help="The run in which the call is made.")
@click.option("--agent", metavar="NAME", help="The program that makes the call.")
@_file_option
@json_option
@click.pass_obj
def explain(
    cli: CliContext, tool: str, arguments: str, run: str | None, agent: str | None, file: str | None
) -> int:  # fmt: skip
    """Show which rule decides a call, and the results of the rules before it: `explain refund '{"amount": 40}'`.

    If the rule has a budget, print how much of it is used now and whether the call fits; nothing is reserved.
    """
    try:
        given: dict[str, Any] = json.loads(arguments)
    except ValueError as error:
        example = """write '{"amount": 40}'"""
        raise click.BadParameter(f"not valid JSON: {error}; {example}", param_hint="ARGUMENTS") from None
    if not isinstance(given, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  JSON may be any value
        raise click.BadParameter(
            """the arguments must be a JSON object; write '{"amount": 40}'""", param_hint="ARGUMENTS"
        )
    tools, asked_by = _tools(cli)
    answer, misfit = _answer(_load_policy(file), tool, given, tools, run, agent)
    verdict = answer.verdict
    steps = [
        {"rule": one.rule.name, "line": one.rule.line, "result": one.result, "note": one.note} for one in answer.steps
    ]
    verdict_document, room = None, list[_Room]()
    if verdict is not None:
        room = [_budget_room(cli, budget, tool, given, run, agent) for budget in verdict.budgets]
        verdict_document = {
            "kind": verdict.kind, "rule": verdict.rule, "reason": verdict.reason,
            "budgets": [one._asdict() for one in room],
            "quorum": None if verdict.quorum is None else verdict.quorum.count,
            "roles": [] if verdict.quorum is None else sorted(verdict.quorum.roles),
        }  # fmt: skip
    note = None
    if misfit is not None:
        of = f"{misfit[0]} (asked by {asked_by[misfit[0]]})"
        note = (
            f"the arguments were not checked with the schema of {of}, because this policy does not match it:"
            f" {misfit[1]}"
        )
    rows = [*([] if note is None else [escape(f"note: {note}")]), *_explanation(answer, room)]
    return cli.answer(
        {"verdict": verdict_document, "steps": steps, "note": note}, rows, WRONG if verdict is None else 0
    )


def _answer(
    rules: Policy, tool: str, given: dict[str, Any], tools: dict[str, Schema], run: str | None, agent: str | None
) -> tuple[Answer, tuple[str, errors.PolicyError] | None]:
    """Evaluate a policy for a call; also return the tool whose schema, perhaps another project's, does not fit it."""
    misfit = None
    for name, schema in tools.items() if tool not in tools else [(tool, tools[tool])]:
        if name == tool or tool in names_of(name, short_name(name)):
            try:
                return rules.explain(tool, given, schema=schema, run=run, agent=agent), None
            except errors.PolicyError as error:
                if name == tool:
                    raise
                misfit = name, error
    return rules.explain(tool, given, run=run, agent=agent), misfit


class _Room(NamedTuple):
    """Whether a call fits into a budget now; `has_room` is None if that was not checked."""

    budget: str
    used: float | None
    has_room: bool | None
    note: str


def _budget_room(
    cli: CliContext, budget: Budget, tool: str, given: dict[str, Any], run: str | None, agent: str | None
) -> _Room:  # fmt: skip
    """Check whether a call fits into a budget, as its start does, without reserving anything."""
    text = str(budget)
    if budget.per is not None and {"agent": agent, "run": run}[budget.per] is None:
        return _Room(text, None, None, f"usage not checked; add --{budget.per}")
    amount = budget.amount_in(canonical.load(canonical.encode(given).text))
    if amount is None:
        return _Room(text, None, False, f"args.{budget.path} is not a number from 0, so the call would be held")
    try:
        account = budget.account_of(tool, None if agent is None else Identity(PROGRAM, agent), run)
        used = cli.store.budget_used(budget, account)
    except context.NoStoreYetError:
        used = Decimal(0)
    except (errors.StoreError, errors.ConfigError):
        return _Room(text, None, None, "usage not checked, because this store cannot be read")
    if used is None:
        return _Room(text, None, False, "its record does not match the journal, so the call would be held")
    has_room, what = used + amount <= budget.limit, "it" if budget.path is None else f"{amount:f}"
    note = f"{used:f} used: {what} {'fits' if has_room else 'does not fit, so the call would be held'}"
    return _Room(text, float(used), has_room, note)


def _explanation(answer: Answer, room: list[_Room]) -> Iterator[str]:
    for rule, result, note, _ in answer.steps:
        text = {"other tool": "is for other tools", "undecided": f"could not be evaluated: {note}"}.get(result, "")
        text = text or (
            f"{rule.when.strip()} is {result}" if rule.when is not None else "applies to every call of the tool"
        )
        yield escape(f"line {rule.line}, {rule.name}: {' '.join(text.split())}")
    verdict = answer.verdict
    if verdict is None:
        yield "the call does not run"
        return
    limits = " and ".join(f"the budget {one.budget} ({one.note})" for one in room)
    within = f", within {limits}" if limits else ""
    yield escape(f"{verdict.kind}: {verdict.rule}" + (f": {verdict.reason}" if verdict.reason else "") + within)
    if room and verdict.quorum is not None:
        roles = f" with one of the roles {', '.join(sorted(verdict.quorum.roles))}" if verdict.quorum.roles else ""
        yield escape(f"if the budget is exceeded, {verdict.quorum.count} must approve it{roles}")


@policy.command(short_help="Test the examples in a policy file.")
@click.argument("file", required=False)
@json_option
@click.pass_obj
def test(cli: CliContext, file: str | None) -> int:
    """Evaluate the policy for the examples of its rules, and compare the verdicts with the expected ones.

    A file without examples is an error, because nothing was tested.
    """
    rules = _load_policy(file)
    rows: list[dict[str, Any]] = []
    for rule in rules.rules:
        for one in rule.examples:
            answer = rules.explain(one.tool, one.arguments, run=one.run, agent=one.agent, now=one.now)
            kind = "error" if answer.verdict is None else answer.verdict.kind
            note = answer.steps[-1].note if answer.verdict is None else answer.verdict.rule
            rows.append({"line": one.line, "tool": one.tool, "expect": one.expect, "verdict": kind, "by": note})
    wrong = [row for row in rows if row["expect"] != row["verdict"]]
    text = "{line}: {tool}: expected {expect}, got {verdict} ({by})"
    shown = [escape(f"{rules.label}:{text.format(**row)}") for row in wrong]
    shown.append(
        f"{plural(len(rows), 'example')}, {len(wrong)} wrong"
        if rows
        else "the file has no examples; nothing was tested"
    )
    return cli.answer({"examples": rows, "wrong": len(wrong)}, shown, WRONG if wrong or not rows else 0)


@policy.command(short_help="Show what a policy would have decided on past requests.")
@click.option("--since", metavar="DATE", type=as_date, help="Only requests made since this date.  [default: 30d]")
@_file_option
@json_option
@click.pass_obj
def replay(cli: CliContext, since: datetime | None, file: str | None) -> int:
    """Evaluate a policy for every past request of the store, and count what would have been decided differently.

    With `--policy NEW`, compare it with the policy in effect; otherwise with what happened: each request was held,
    unless a budget allowed it. The amount used of a budget is ignored.
    """
    begin = clock.now() - timedelta(days=_DAYS_REPLAYED) if since is None else since
    new, before = _load_policy(file), _load_policy(None) if file is not None else None
    found = replayed(requests_in(cli.store, Filter(), since=begin), new, before)
    verdicts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.verdicts.items()))
    rows = [f"{plural(found.asked, 'past call')}: {verdicts or 'nothing to decide'}"]
    for (was, now), ids in sorted(found.changes.items()):
        more = f" and {len(ids) - _IDS:,} more" if len(ids) > _IDS else ""
        rows.append(f"{was} -> {now}: {len(ids):,} ({', '.join(map(short, ids[:_IDS]))}{more})")
    for name, count in sorted(found.masked.items()):
        rows.append(escape(f"uncertain, because {name} is masked: {count:,}"))
    if found.left_out:
        rows.append(f"left out, because they are questions or were purged: {found.left_out:,}")
    return cli.answer({"since": clock.written(begin), **found.as_json()}, rows)


# -- shared by the commands ----------------------------------------------------------------------------------------


def _load_policy(file: str | None) -> Policy:
    """Parse the rules of a file; errors do not mention calls, because none was made."""
    try:
        return Policy.load(file)
    except errors.PolicyError as error:
        raise errors.ConfigError(f"{error.rule} {error.reason}") from None


def _tools(cli: CliContext) -> tuple[dict[str, Schema], dict[str, str]]:
    """Return, by name, the newest schema of each tool for which the store has requests, and who asked for the tool."""
    found, asked_by = dict[str, Schema](), dict[str, str]()
    try:
        for request in islice(requests_in(cli.store, Filter(kind="call"), newest=True), _NEWEST):
            if request.call.tool not in found:
                found[request.call.tool] = Schema.from_text(request.call.schema)
                asked_by[request.call.tool] = request.requester.subject
    except (context.NoStoreYetError, errors.ConfigError):
        return {}, {}
    return found, asked_by


def grant_rows(grant: Grant) -> list[str]:
    """Render a grant as lines for a terminal."""
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
    """List or revoke grants, which approve similar calls in advance."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(_ls, ended=False)


@grants.command("ls")
@click.option("--all", "ended", is_flag=True, help="Also list grants that have ended.")
@json_option
@click.pass_obj
def _ls(cli: CliContext, *, ended: bool) -> int:
    """List the grants in effect, and the use of budgets."""
    found, budgets = cli.reader.grants(ended=ended), list(cli.store.budgets())
    rows = [row for grant in found for row in grant_rows(grant)] or ["no grants"]
    if budgets:
        rows += ["", "budgets of policies, and how much of them is used:", *map(_budget_row, budgets)]
    documents = list(map(budget_document, budgets))
    return cli.answer({"grants": [grant_document(grant) for grant in found], "budgets": documents}, rows)


def _budget_row(use: BudgetUse) -> str:
    request, owner = use.request, "no longer used"
    if request is not None:
        per = {"agent": f" for {name_of(request.requester)}", "run": f" in run {escape(request.run_id)}"}
        owner = escape(use.rule or request.call.name) + per.get(use.budget.per or "", "")
    used = "cannot be read, so no call passes" if use.used is None else f"{use.used:f} used"
    return escape(f"{use.budget}: ") + f"{used}; {owner}"


@decision(click.argument("grant_id", metavar="GRANT"), message_option("The reason."), group=grants, name="revoke")
def _revoke(cli: CliContext, grant_id: str, message: str | None) -> int:
    """Revoke a grant, also for approved calls that have not started."""
    grant = cli.review.revoke(grant_id, reason=message)
    return cli.answer(grant_document(grant), grant_rows(grant))


@decision(click.argument("grant_id", metavar="GRANT"), group=grants, name="agree")
def _agree(cli: CliContext, grant_id: str) -> int:
    """Agree to another reviewer's grant."""
    grant = cli.review.agree(grant_id)
    return cli.answer(grant_document(grant), grant_rows(grant))


@decision(
    click.option("--reason", "-m", "reason", metavar="TEXT", help="The reason, for the programs and the journal.")
)
def stop(cli: CliContext, reason: str | None) -> int:
    """Block all calls from starting, even approved ones, until `sayso go`. Approvals stay; running calls continue."""
    found = cli.review.stop(reason=reason)
    return cli.answer(
        {"stopped": True, "by": found.by.qualified, "at": moment(found.at), "reason": found.reason},
        [stop_row(found), "run `sayso go` to let calls start again"],
    )


@decision(click.option("--reason", "-m", "reason", metavar="TEXT", help="The reason."))
def go(cli: CliContext, reason: str | None) -> int:
    """Let calls start again after `sayso stop`."""
    was_stopped = cli.review.go(reason=reason)
    row = "calls can start again" if was_stopped else "calls were not stopped; nothing changed"
    return cli.answer({"stopped": False, "was_stopped": was_stopped}, [row])
