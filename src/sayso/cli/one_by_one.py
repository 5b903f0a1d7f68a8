"""`next`: what waits, one after another, in a conversation on the terminal.

The conversation is the one that a blocking gate has (`sayso.terminal`); here it can also skip and quit.
"""

from __future__ import annotations

import click

from sayso import clock
from sayso.cli.desk import Desk, decides
from sayso.cli.say import out
from sayso.model.lifecycle import is_due
from sayso.model.request import Request, State
from sayso.reviews import Review
from sayso.terminal import Dialog, Screen, Settled, TerminalClosed, is_there
from sayso.view.card import decided
from sayso.view.summary import short

__all__ = ["next"]

_LEAVE = {"s": "skip", "q": "quit"}


@click.command()
@decides
@click.pass_obj
def next(desk: Desk, name: str | None, roles: tuple[str, ...]) -> int:  # noqa: A001  the command's own name
    """Decide what waits, one after another, oldest first: approve, edit, reject, feedback, skip, quit."""
    if not is_there():
        raise click.UsageError("next talks with a person and needs a terminal; use ls, show, approve and reject here")
    review, skipped = desk.review(name, roles), 0
    cursor: str | None = None
    while True:
        page = review.list(state=State.PENDING, cursor=cursor, limit=1)
        if not page.requests:
            break
        after, letter = _talk(review, page.requests[0])
        if letter == "q":
            return 0
        if after.state is State.PENDING:
            skipped += 1
        if page.cursor is None:
            break
        cursor = page.cursor
    out("nothing more waits" if not skipped else f"nothing more waits; {skipped:,} skipped")
    return 0


def _talk(review: Review, request: Request) -> tuple[Request, str]:
    def is_over() -> bool:
        now = review.store.get(request.id)
        return now.state is not State.PENDING or is_due(now, clock.now())

    try:
        after, letter = Dialog(Screen(is_over), review, request, _LEAVE).run()
    except Settled:
        after, letter = review.get(request.id), ""
    except TerminalClosed:
        return review.get(request.id), "q"
    if not letter:
        out(f"{short(after.id)} {decided(after, clock.now())}")
    return after, letter
