"""`approve`: say yes to calls as they stand, with some arguments set, or edited in a text editor.

Invariant: an approval carries the fingerprint of the call that this command read, so that a call which changed in
between is refused; a call too long for one view is approved only by somebody who gives the fingerprint at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from sayso import errors
from sayso.cli.bulk import check_given, decide_all
from sayso.cli.deeds import each, row
from sayso.cli.desk import Desk, as_json, decides
from sayso.cli.filters import Chosen, filters
from sayso.model.edit import edited_call, schema_of
from sayso.model.request import Call, Request, State
from sayso.model.schema import SchemaError
from sayso.reviews import Review
from sayso.terminal import PROGRAM_GONE
from sayso.view import card
from sayso.view.card import changed
from sayso.view.summary import short

__all__ = ["NotSeenError", "approve"]

_SHORTEST_SEEN = 8


class NotSeenError(errors.DecisionRefusedError):
    """The call is too long for one view, and nothing says that the whole was looked at."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            request_id,
            f"request {request_id} is too long for one view; nothing was decided. Read it with `sayso show --full"
            f" {request_id}` and give the fingerprint that stands at its end: --seen FINGERPRINT",
        )


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@filters
@click.option("--yes", "is_sure", is_flag=True, help="With filters: do not ask.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change an argument; repeatable.")
@click.option("--edit", is_flag=True, help="Change the arguments in $EDITOR.")
@click.option(
    "-m", "--message", "--comment", "message", metavar="TEXT", help="A note; the program and its model are told."
)
@click.option(
    "--again", is_flag=True, help="Let the call start although its effect is taken; -m says why that is right."
)
@click.option("--seen", metavar="FINGERPRINT", help="What you looked at; refused if it has changed since.")
@decides
@as_json
@click.pass_obj
def approve(
    desk: Desk, ids: tuple[str, ...], chosen: Chosen, is_sure: bool, settings: tuple[str, ...], edit: bool,
    message: str | None, again: bool, seen: str | None, name: str | None, roles: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Approve calls, as they stand or with changes. A value is read by its argument's type: --set amount=80.

    With filters in place of ids: list what waits and fits, ask once, and approve each as it was listed.
    """
    check_given(ids, chosen, "approve", is_sure=is_sure)
    if len(ids) != 1 and (settings or edit or again or seen is not None):
        raise click.UsageError("--set, --edit, --again and --seen are about one request; give one ID")
    if settings and edit:
        raise click.UsageError("give --set or --edit, not both")
    review = desk.review(name, roles)
    if not ids:

        def decide(shown: Request) -> Request:
            return review.approve(shown.id, comment=message, seen=shown.current_fingerprint)

        return decide_all(desk, review, chosen, "approve", decide, name=name, is_sure=is_sure, as_json=as_json)
    before: dict[str, Call] = {}

    def deed(request_id: str) -> Request:
        request = review.get(request_id)
        if request.kind == "call":
            before[request.id] = request.effective
        return _approve(review, request, settings, edit=edit, comment=message, again=again, seen=seen)

    return each(ids, deed, as_json=as_json, rows=partial(_rows, review, before))


def _approve(
    review: Review, request: Request, settings: tuple[str, ...], *, edit: bool, comment: str | None, again: bool,
    seen: str | None,
) -> Request:  # fmt: skip
    decide = partial(review.approve, request.id, comment=comment, again=again, seen=_fingerprint(request, seen))
    if request.state is not State.PENDING or request.kind != "call":
        return decide()  # the door says why not
    if edit:
        from sayso.cli.editor import edited

        return decide(arguments=edited(request))
    if seen is None and not card.is_whole(request):
        raise NotSeenError(request.id)
    if not settings:
        return decide()
    values = _values(request, settings)
    if edited_call(request, values).digest == request.effective.digest:
        raise errors.InvalidChangesError(
            request.id, ["--set changes nothing; leave it away to approve the call as it stands"]
        )
    return decide(changes=values)


def _fingerprint(request: Request, seen: str | None) -> str:
    """Return the whole fingerprint for the beginning of one that somebody copied."""
    current = request.current_fingerprint
    return current if seen is None or (len(seen) >= _SHORTEST_SEEN and current.startswith(seen)) else seen


def _values(request: Request, settings: tuple[str, ...]) -> Mapping[str, Any]:
    schema, values, problems = schema_of(request), dict[str, Any](), list[str]()
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
        if name in values:
            raise click.UsageError(f"--set gives {name!r} twice")
        try:
            values[name] = schema.parse(name, text)
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise errors.InvalidChangesError(request.id, problems)
    return values


def _rows(review: Review, before: Mapping[str, Call], request: Request) -> list[str]:
    end = [PROGRAM_GONE] if review.program_is_gone(request) else []
    if request.state is not State.APPROVED:
        return [row(request), *end]  # one vote of several
    found = [change.line() for change in changed(before[request.id], request.effective, request.redact)]
    said = f"{short(request.id)} approved"
    rows = (
        [said, *(f"  {line}" for line in found)]
        if len(found) > 1
        else [f"{said}   {(found or [card.headline(request)])[0]}"]
    )
    return [*rows, *(end or ["waiting for the program to run it"])]
