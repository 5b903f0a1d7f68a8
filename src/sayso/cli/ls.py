"""`ls`: what waits for a person and what wants attention, page by page; how it looks is `sayso.cli.table`.

Invariant: a page costs the same however many requests were decided before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from sayso.cli.desk import Desk, NoRunError, NoStoreYetError, as_json
from sayso.cli.filters import Chosen, filters
from sayso.cli.number import Number
from sayso.cli.plain import request_document
from sayso.cli.say import complain, document, is_reader_gone, out
from sayso.cli.table import table
from sayso.model.request import LIVE, Request, State
from sayso.model.text import escape
from sayso.reviews import Review

__all__ = ["ls"]

_PENDING = frozenset({State.PENDING})
_ALL = frozenset[State]()
_PACE = 0.5
_PAGE = 50


@dataclass(frozen=True)
class _Wish:
    """What is to be listed: one list after another, each of some states (none means all)."""

    lists: list[frozenset[State]]
    filters: dict[str, Any]
    limit: int
    newest: bool

    def page(self, review: Review, cursor: str | None) -> tuple[list[Request], str | None]:
        number, place = _read(cursor)
        found: list[Request] = []
        for at in range(number, len(self.lists)):
            if len(found) == self.limit:
                return found, f"{at}."
            page = review.list(
                state=self.lists[at] or "all", cursor=place, limit=self.limit - len(found), newest=self.newest,
                **self.filters,
            )  # fmt: skip
            found += page.requests
            if page.cursor is not None:
                return found, f"{at}.{page.cursor}"
            place = None
        return found, None

    def all(self, review: Review) -> Iterator[Request]:
        """Yield all of it, whatever the limit is."""
        for states in self.lists:
            yield from review.list(state=states or "all", newest=self.newest, **self.filters)


def _read(cursor: str | None) -> tuple[int, str | None]:
    number, dot, place = (cursor or "0.").partition(".")
    if not dot or number not in {"0", "1"}:
        raise ValueError(f"{cursor!r} is not a cursor of this list; begin again without one")
    return int(number), place or None


@click.command()
@filters
@click.option(
    "--state", "states", type=click.Choice([*map(str, State)]), multiple=True, metavar="STATE",
    help=f"Only in this state; repeatable. One of {', '.join(State)}.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also what is decided and done.")
@click.option("-q", "--quiet", is_flag=True, help="Print whole ids and nothing else, of all pages.")
@click.option("--limit", metavar="N", type=Number(1, 1000), help="At most so many; 50, or with --quiet all.")
@click.option("--cursor", metavar="CURSOR", help="Go on after a page.")
@click.option("--newest", is_flag=True, help="Newest first.")
@click.option("--watch", is_flag=True, help="Print again whenever something changes; Ctrl-C ends it.")
@click.option("--as", "--by", "name", metavar="NAME", help="Who --mine is; else SAYSO_REVIEWER, else user@host.")
@as_json
@click.pass_obj
def ls(
    desk: Desk, chosen: Chosen, states: tuple[str, ...], everything: bool, quiet: bool, limit: int | None,
    cursor: str | None, newest: bool, watch: bool, name: str | None, as_json: bool,
) -> int:  # fmt: skip
    """List what waits for a person: pending first, oldest first; then what is approved, running or unknown."""
    if quiet and (watch or as_json):
        raise click.UsageError(f"--quiet prints ids alone; leave {'--watch' if watch else '--json'} away")
    wanted = frozenset(State(state) for state in states)
    lists = [_ALL] if everything else [wanted] if wanted else [_PENDING, LIVE - _PENDING]
    wish = _Wish(lists, chosen.as_keywords(name), limit or _PAGE, newest)
    if watch:
        return _watch(desk, wish, cursor)
    try:
        is_all = quiet and limit is None and cursor is None
        found, after = (list(wish.all(desk.look)), None) if is_all else wish.page(desk.look, cursor)
        if not found and chosen.run is not None:
            desk.must_know(chosen.run)
    except (NoRunError, NoStoreYetError) as fault:  # it may come later; whoever looks by program has nothing to mend
        complain(escape(str(fault)))
        found, after = [], None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cursor") from error
    if quiet:
        out(*(request.id for request in found))
        complain(*([f"{len(found):,} shown; go on with --cursor {after}"] if after is not None else []))
    elif as_json:
        document({
            "requests": [request_document(one, program_gone=desk.look.program_is_gone(one)) for one in found],
            "cursor": after,
        })  # fmt: skip
    else:
        out(*_rows(desk, wish, found, after))
    return 0


def _rows(desk: Desk, wish: _Wish, found: list[Request], after: str | None) -> list[str]:
    if not found:
        return ["nothing waits" if len(wish.lists) > 1 else "there is none"]
    review = desk.look
    left = {request.id for request in found if review.program_is_gone(request)}
    if len(wish.lists) == 1:
        return table(found, cursor=after, left=left)
    oldest, _ = replace(wish, lists=[_PENDING], limit=1, newest=False).page(review, None)
    pending, unknown = (review.count(state=state, **wish.filters) for state in (State.PENDING, State.UNKNOWN))
    first = oldest[0] if oldest else None
    return table(found, pending=pending, oldest=first, unknown=unknown, cursor=after, left=left)


def _watch(desk: Desk, wish: _Wish, cursor: str | None) -> int:
    last: list[Any] | None = None
    try:
        while not is_reader_gone():
            try:
                found, after = wish.page(desk.look, cursor)
            except NoStoreYetError:  # the program that makes it may come later
                found, after = [], None
            seen = [
                (one.id, one.state, one.votes, one.claimed_by, one.current_fingerprint, one.expires_at) for one in found
            ]
            if seen != last:
                click.clear()
                out(*_rows(desk, wish, found, after), "")
                last = seen
            time.sleep(_PACE)
    except KeyboardInterrupt:
        pass
    return 0
