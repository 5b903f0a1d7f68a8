"""`ls` and `show`: the requests of a store, as a list and one in full."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from sayso import audit, clock
from sayso.cli.context import Chosen, Desk, NoRunError, NoStoreYetError, Number, as_json, filters
from sayso.cli.decisions import entry_document, request_document
from sayso.cli.output import complain, document, is_reader_gone, out, paint, table
from sayso.model.request import LIVE, Request, State
from sayso.model.text import escape
from sayso.reviews import Review, schema_of
from sayso.terminal import PROGRAM_GONE, command
from sayso.view import card
from sayso.view.card import changed, outcome_rows, stands
from sayso.view.document import event_rows
from sayso.view.hint import kinds_of
from sayso.view.summary import short

__all__ = ["ls", "show"]

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


_COLOURS = {State.UNKNOWN: "red", State.PENDING: "yellow"}


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--full", is_flag=True, help="Leave nothing out, however long it is.")
@as_json
@click.pass_obj
def show(desk: Desk, request_id: str, full: bool, as_json: bool) -> int:
    """Show a request in full, and what became of it."""
    request = desk.look.get(request_id)
    timeline = list(audit.entries(desk.store, run_id=request.run_id, request_id=request.id))
    is_left = desk.look.program_is_gone(request)
    if as_json:
        document(
            request_document(request, program_gone=is_left) | {"journal": [entry_document(entry) for entry in timeline]}
        )
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    out(*_head(request, width, full=full, is_left=is_left, same_effect=desk.look.same_effect(request)))
    out("", "what happened", *(f"  {row}" for row in event_rows(timeline)))
    out("", *_end(request, command(desk.store), full=full, is_left=is_left))
    return 0


def _head(request: Request, width: int, *, full: bool, is_left: bool, same_effect: Sequence[Request]) -> list[str]:
    now = clock.now()
    state, _, rest = stands(request, now).partition(" ")
    colour = _COLOURS.get(request.state)
    rows = [f"{escape(request.id)}   {state if colour is None else paint(state, colour)} {rest}".rstrip()]
    rows += [f"  {PROGRAM_GONE}"] if is_left else []
    rows += card.ask_rows(request, now, width=max(width, card.NARROW), full=full, same_effect=same_effect)
    if request.state is State.PENDING:
        takes = [f"    {name}: {kind}" for name, kind in kinds_of(schema_of(request)).items()]
        rows += ["  takes:", *takes] if takes else []
    if request.kind == "call" and request.edited is not None:
        changes = changed(request.call, request.edited, request.redact)
        rows += ["  changed by reviewers, from what was asked:", *(f"    {change.line()}" for change in changes)]
    return [*rows, *outcome_rows(request)]


def _end(request: Request, sayso: str, *, full: bool, is_left: bool) -> list[str]:
    rows: list[str] = []
    if full or card.is_whole(request):
        rows.append(f"fingerprint {request.current_fingerprint}")
    else:
        rows.append(f"not all is shown: {sayso} show --full {short(request.id)}")
    return [*rows, *(f"next: {step}" for step in _next(request, f"{sayso} %s {short(request.id)}", is_left=is_left))]


def _next(request: Request, line: str, *, is_left: bool) -> list[str]:
    def typed(verb: str, more: str = "") -> str:
        return (line % verb) + more

    if is_left and request.state is State.PENDING:
        return [typed("cancel", " -m WHY")]
    match request.state, request.kind:
        case State.PENDING, "call":
            return [
                typed("approve"),
                typed("approve", " --set NAME=VALUE"),
                typed("reject", " -m WHY"),
                typed("feedback", " -m WORDS"),
            ]
        case State.PENDING, _:
            return [typed("answer", " VALUE"), typed("reject", " -m WHY")]
        case State.APPROVED, _:
            return [typed("cancel", " -m WHY")]
        case State.UNKNOWN, _:
            return [typed("resolve", " --happened"), typed("resolve", " --did-not")]
        case _:
            return []
