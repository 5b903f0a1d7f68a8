"""The commands of reviewers among each other, which decide nothing: `comment`, `assign`, `snooze` and `away`."""

from __future__ import annotations

from functools import partial

import click

from sayso import clock
from sayso.cli.context import CliContext
from sayso.cli.decisions import deciding, for_each
from sayso.cli.output import complain
from sayso.model.request import Request
from sayso.model.reviewer import LOCAL, Identity, Reviewer
from sayso.model.teamwork import LONGEST
from sayso.view.document import moment
from sayso.view.summary import absence, name_of, short, token


@deciding(
    click.argument("request_id", metavar="ID"),
    click.argument("text", metavar="TEXT"),
)
def comment(cli: CliContext, request_id: str, text: str) -> int:
    """Say something about a request to its other reviewers; the program is not told. @NAME mentions somebody."""
    if not 0 < len(text.strip()) <= LONGEST:
        raise click.UsageError(f"a comment has 1 to {LONGEST:,} characters; nothing was written")
    return for_each(
        cli, [request_id], lambda found: cli.review.comment(found, text), lambda one: [f"{short(one.id)} commented"]
    )


def person_of(name: str) -> Identity:
    """Return whom NAME or ISSUER:NAME means; raises `BadParameter`."""
    issuer, colon, subject = name.partition(":")
    try:
        return Identity(issuer, subject) if colon else Identity(LOCAL, name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error


def _with_roles(cli: CliContext, who: Identity) -> Reviewer | Identity:
    """Return somebody with the roles of their sessions and tokens; without the extra `web` they are not known."""
    try:
        from sayso.server.auth.people import with_roles
    except ModuleNotFoundError:
        return who
    return with_roles(cli.store, who) or who


def _doubt_about(cli: CliContext, who: Identity) -> str | None:
    """Return a warning where nothing speaks of somebody; without the extra `web` nobody is known."""
    try:
        from sayso.server.auth.people import doubt_about
    except ModuleNotFoundError:
        return None
    return doubt_about(cli.store, who)


@deciding(
    click.argument("request_id", metavar="ID"),
    click.argument("name", metavar="NAME"),
    click.option("--force", is_flag=True, help="Take it from somebody else who has it; the journal records it."),
)
def assign(cli: CliContext, request_id: str, name: str, force: bool) -> int:
    """Let another reviewer take a request on, as if they had claimed it: NAME, or ISSUER:NAME."""
    person = person_of(name)
    to = _with_roles(cli, person)
    action = partial(cli.review.assign, to=to, force=force)

    def rows(request: Request) -> list[str]:
        if to is person and request.wanted_roles:
            wanted = " or ".join(map(token, sorted(request.wanted_roles)))
            complain(
                f"warning: it needs the role {wanted}, and nobody knows theirs; they may be refused when they decide"
            )
        return [f"{short(request.id)} assigned to {name_of(person)}"]

    return for_each(cli, [request_id], action, rows)


@deciding(
    click.argument("request_id", metavar="ID"),
    click.argument("until", metavar="[UNTIL]", required=False),
    click.option("--back", is_flag=True, help="It is back in your inbox."),
)
def snooze(cli: CliContext, request_id: str, until: str | None, back: bool) -> int:
    """Keep a request out of your own inbox UNTIL a time before its end: 1h, or '2026-11-27 09:00' (UTC)."""
    if (until is None) is not back:
        raise click.UsageError("give UNTIL, or --back; nothing was changed")

    def rows(request: Request) -> list[str]:
        ends = cli.review.snoozed().get(request.id)
        stays = "is in your inbox" if ends is None else f"is out of your inbox until {moment(ends)}; its end stays"
        return [f"{short(request.id)} {stays}"]

    return for_each(cli, [request_id], lambda found: cli.review.snooze(found, until), rows)


@deciding(
    click.argument("until", metavar="[UNTIL]", required=False),
    click.option("--to", metavar="NAME", help="Who stands in: NAME, or ISSUER:NAME."),
    click.option("--back", is_flag=True, help="You are back, before the time."),
)
def away(cli: CliContext, until: str | None, to: str | None, back: bool) -> int:
    """Say that you are away UNTIL a time, 3d or '2026-11-27 09:00' (UTC), and who stands in; alone: list who is away.

    Who stands in finds what is assigned to you or mentions you, and decides it in their own name, as far as they may.
    """
    if (until is None) is not (to is None) or (back and until is not None):
        raise click.UsageError("give UNTIL together with --to, or --back alone; nothing was changed")
    review = cli.review
    if back:
        review.end_delegation()
    elif until is not None and to is not None:
        try:
            made = review.delegate(person_of(to), until)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        doubt = _doubt_about(cli, made.to)
        if doubt is not None:
            complain(f"warning: {doubt}")
    found = review.delegations()
    documents = [
        {"by": one.by.qualified, "to": one.to.qualified, "since": clock.written(one.since),
         "until": clock.written(one.until)}
        for one in found
    ]  # fmt: skip
    return cli.answer(
        documents, [f"{name_of(one.by)} is {absence(one.by, [one])}" for one in found] or ["nobody is away"]
    )
