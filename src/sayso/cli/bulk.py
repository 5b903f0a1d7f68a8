"""Decide many requests at once, chosen by filters: `approve` and `reject` without an id.

It lists what the filters find, asks once, and then decides each by its own id. Invariant: a request that came after the
list was shown, or changed since, is not decided; and without a person at the terminal nothing is, unless `--yes` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import click

from sayso.cli.deeds import each, row
from sayso.cli.desk import Desk
from sayso.cli.filters import Chosen
from sayso.cli.say import WRONG, complain, out
from sayso.cli.table import table
from sayso.model.request import Request, State
from sayso.reviews import Review
from sayso.terminal import is_there
from sayso.view import card
from sayso.view.summary import short

__all__ = ["check_given", "decide_all"]

_WIDTH, _LINE = 96, 60
_ENDLESS = 1_000_000

Verb = Literal["approve", "reject"]


def check_given(ids: Sequence[str], chosen: Chosen, verb: Verb, *, is_sure: bool) -> None:
    """Raise `UsageError` unless requests are named either by their ids or by filters."""
    nothing = "nothing was decided"
    if ids and chosen:
        raise click.UsageError(f"give ids or filters, not both; {nothing}")
    if not ids and not chosen:
        raise click.UsageError(
            f"say which: sayso {verb} ID..., or a filter such as --run NAME, --tool NAME or --older-than 1h; {nothing}"
        )
    if ids and is_sure:
        raise click.UsageError(f"--yes goes with filters; an id is decided without a question; {nothing}")


def decide_all(
    desk: Desk, review: Review, chosen: Chosen, verb: Verb, decide: Callable[[Request], Request], *, name: str | None,
    is_sure: bool, as_json: bool,
) -> int:  # fmt: skip
    """List what waits and fits, ask, and decide each; return the exit code.

    Args:
        desk: Where.
        review: The person's door, in the name of who decides.
        chosen: What to look for.
        verb: What is going to be done.
        decide: Does it to one request as it was listed; refuses what changed since.
        name: What `--as` said.
        is_sure: Whether `--yes` was given.
        as_json: Print one JSON array instead of lines.
    """
    if not is_sure and (as_json or not is_there()):
        why = "--json asks nobody" if as_json else "there is no terminal to ask at"
        raise click.UsageError(f"{why}: look with `sayso ls` and the same filters, then say --yes; nothing was decided")
    found = list(review.list(state=State.PENDING, **chosen.as_keywords(name)))
    if not found and chosen.run is not None:
        desk.must_know(chosen.run)
    fit = [request for request in found if _why_not(request, verb) is None]
    for request in found:
        why_not = _why_not(request, verb)
        if why_not is not None:
            complain(f"left out: {short(request.id)} {why_not}")
    if not fit:
        complain("nothing that waits fits; nothing was decided")
        return WRONG if found else 0
    if not is_sure and not _is_wanted(review, fit, verb):
        complain("nothing was decided")
        return WRONG
    return max(_decided(fit, decide, verb, as_json=as_json), WRONG if len(fit) < len(found) else 0)


def _why_not(request: Request, verb: Verb) -> str | None:
    """Return why a request cannot be decided together with others; None where it can."""
    if verb == "reject":
        return None
    if request.kind == "question":
        return "is a question: `sayso answer` takes an answer of its own"
    if not card.is_whole(request):
        return "is too long for one view: read it with `sayso show --full` and approve it with --seen"
    return None


def _is_wanted(review: Review, requests: Sequence[Request], verb: Verb) -> bool:
    """Show all of them, and ask; everything but a yes is a no."""
    left = {request.id for request in requests if review.program_is_gone(request)}
    more = list(_in_full(requests)) if verb == "approve" else list[str]()
    for line in [*table(requests, cursor=None, left=left), *more]:
        click.echo(line, err=True)  # where the question stands, also if stdout goes elsewhere
    count = "this one" if len(requests) == 1 else f"these {len(requests):,}"
    try:
        return click.confirm(f"{verb} {count}?", err=True, prompt_suffix=" ")
    except click.Abort:  # Ctrl-C, or no more input
        complain("")
        return False


def _in_full(requests: Sequence[Request]) -> Iterator[str]:
    """Yield the calls that a row of the table may have shortened."""
    for request in requests:
        if card.headline(request, _LINE) != card.headline(request, _ENDLESS):
            yield short(request.id)
            yield from card.subject_rows(request, width=_WIDTH, full=True)


def _decided(
    requests: Sequence[Request], decide: Callable[[Request], Request], verb: Verb, *, as_json: bool
) -> int:  # fmt: skip
    shown, after = {request.id: request for request in requests}, list[Request]()

    def deed(request_id: str) -> Request:
        after.append(decide(shown[request_id]))
        return after[-1]

    code = each(list(shown), deed, as_json=as_json, rows=lambda request: [row(request)])
    open_still = sum(request.state is State.PENDING for request in after)
    told = [f"{len(after) - open_still:,} {'approved' if verb == 'approve' else 'rejected'}"]
    if open_still:
        told.append(f"{open_still:,} approved by you and waiting for others")
    if len(after) < len(shown):
        told.append(f"{len(shown) - len(after):,} not decided, see above")
    if not as_json:
        out("; ".join(told))
    return code
