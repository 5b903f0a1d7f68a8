"""`claim`, `release`, `extend` and `resolve`: looking after requests without deciding them."""

from __future__ import annotations

from datetime import timedelta

import click

from sayso import clock
from sayso.cli.deeds import each
from sayso.cli.desk import Desk, as_json, decides
from sayso.cli.filters import read_span
from sayso.model.request import Request
from sayso.view.summary import name_of, short, time_left

__all__ = ["claim", "extend", "release", "resolve"]


@click.command()
@click.argument("request_id", metavar="ID")
@decides
@as_json
@click.pass_obj
def claim(desk: Desk, request_id: str, name: str | None, roles: tuple[str, ...], as_json: bool) -> int:
    """Take a request on: until it is released nobody else can decide it."""
    review = desk.review(name, roles)
    return each([request_id], review.claim, as_json=as_json, rows=_claimed)


def _claimed(request: Request) -> list[str]:
    who = "" if request.claimed_by is None else f" by {name_of(request.claimed_by)}"
    return [f"{short(request.id)} claimed{who}; nobody else can decide it until it is released"]


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--force", is_flag=True, help="Free what somebody else claimed; the journal says so.")
@decides
@as_json
@click.pass_obj
def release(desk: Desk, request_id: str, force: bool, name: str | None, roles: tuple[str, ...], as_json: bool) -> int:
    """Give a claimed request back."""
    review = desk.review(name, roles)
    return each(
        [request_id],
        lambda found: review.release(found, force=force),
        as_json=as_json,
        rows=lambda request: [f"{short(request.id)} released; anybody can decide it"],
    )


@click.command()
@click.argument("request_id", metavar="ID")
@click.argument("span", metavar="SPAN", callback=read_span)
@decides
@as_json
@click.pass_obj
def extend(
    desk: Desk, request_id: str, span: timedelta, name: str | None, roles: tuple[str, ...], as_json: bool
) -> int:
    """Let a pending request, or an approval that was not used yet, end SPAN from now: 90s, 24h, 7d."""
    review = desk.review(name, roles)
    return each([request_id], lambda found: review.extend(found, span), as_json=as_json, rows=_extended)


def _extended(request: Request) -> list[str]:
    if request.approval_expires_at is not None:
        return [f"{short(request.id)} the approval ends {time_left(request.approval_expires_at, clock.now())}"]
    return [f"{short(request.id)} expires {time_left(request.expires_at, clock.now())}"]


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--happened", is_flag=True, help="The call had its effect.")
@click.option("--did-not", "did_not", is_flag=True, help="It had none.")
@click.option("--force", is_flag=True, help="Also while it is recorded as running: its worker is surely gone.")
@click.option("-m", "--message", "--comment", "message", metavar="TEXT", help="How that was found out.")
@decides
@as_json
@click.pass_obj
def resolve(
    desk: Desk, request_id: str, happened: bool, did_not: bool, force: bool, message: str | None, name: str | None,
    roles: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Say whether a call had its effect that was started and whose outcome is unknown."""
    if happened is did_not:
        raise click.UsageError("say which: --happened or --did-not")
    review = desk.review(name, roles)
    return each(
        [request_id],
        lambda found: review.resolve(found, happened=happened, comment=message, force=force),
        as_json=as_json,
        rows=lambda request: [_resolved(request, happened=happened)],
    )


def _resolved(request: Request, *, happened: bool) -> str:
    said = "it happened" if happened else "it did not happen"
    then = "; the program may try again" if request.state == "approved" else ""
    return f"{short(request.id)} {request.state}: {said}{then}"
