"""`ls` and `show`: list the requests of a store, and show one in full.

Invariant: the cost of a page does not depend on the number of requests decided before. The output states how much a
view omits, and shows a call's fingerprint only after the whole call.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from sayso import audit, clock
from sayso.audit.export import entry_document
from sayso.cli.context import (
    COLOURS,
    CliContext,
    NoRunError,
    NoStoreYetError,
    Number,
    as_option,
    complain,
    filter_options,
    json_option,
    out,
    paint,
    print_json,
    table,
)
from sayso.gates.notices import command
from sayso.model.edit import schema_of
from sayso.model.request import LIVE, Request, State, changed
from sayso.model.text import escape
from sayso.reviews import Review
from sayso.terminal import PROGRAM_GONE
from sayso.view import card
from sayso.view.card import kinds_of, outcome_rows, status_line
from sayso.view.document import event_rows, request_document
from sayso.view.summary import short

_PENDING = frozenset({State.PENDING})
_ALL = frozenset[State]()
_PAGE = 50


@dataclass(frozen=True)
class _Query:
    """What to list: several lists in sequence, each with its states (none means all)."""

    lists: list[frozenset[State]]
    filters: dict[str, Any]
    limit: int
    newest: bool

    def page(self, review: Review, cursor: str | None) -> tuple[list[Request], str | None]:
        """Return a page and the cursor of the next one, which consists of the list's number and the cursor in it."""
        number, dot, place = (cursor or "0.").partition(".")
        if not dot or number not in {"0", "1"}:
            raise ValueError(f"{cursor!r} is not a cursor of this list; begin again without one")
        found: list[Request] = []
        after = place or None
        for at in range(int(number), len(self.lists)):
            if len(found) == self.limit:
                return found, f"{at}."
            page = review.list(
                state=self.lists[at] or "all", cursor=after, limit=self.limit - len(found), newest=self.newest,
                **self.filters,
            )  # fmt: skip
            found += page.requests
            if page.cursor is not None:
                return found, f"{at}.{page.cursor}"
            after = None
        return found, None

    def all(self, review: Review) -> Iterator[Request]:
        """Yield all requests, without a limit."""
        for states in self.lists:
            yield from review.list(state=states or "all", newest=self.newest, **self.filters)


@click.command()
@filter_options
@click.option(
    "--state", "states", type=click.Choice([*map(str, State), "all"]), multiple=True, metavar="STATE",
    help=f"Only requests in this state; repeatable. One of {', '.join(State)}, or all.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also list requests that have ended.")
@click.option("-q", "--quiet", is_flag=True, help="Print only full ids, of all pages.")
@click.option("--limit", metavar="N", type=Number(1, 1000), help="At most N; by default 50, or all with --quiet.")
@click.option("--cursor", metavar="CURSOR", help="Continue after this cursor of the last page.")
@click.option("--newest", is_flag=True, help="Newest first.")
@as_option
@json_option
@click.pass_obj
def ls(
    cli: CliContext, states: tuple[str, ...], everything: bool, quiet: bool, limit: int | None,
    cursor: str | None, newest: bool,
) -> int:  # fmt: skip
    """List open requests: pending first, oldest first; then approved, running and unknown ones.

    `program ended` marks requests whose decision no program will fetch, because its run had no name.
    """
    if quiet and cli.as_json:
        raise click.UsageError("give --quiet or --json, not both")
    everything = everything or "all" in states
    wanted = frozenset(State(state) for state in states if state != "all")
    lists = [_ALL] if everything else [wanted] if wanted else [_PENDING, LIVE - _PENDING]
    query = _Query(lists, cli.list_keywords(), limit or _PAGE, newest)
    try:
        is_all = quiet and limit is None and cursor is None
        found, after = (list(query.all(cli.reader)), None) if is_all else query.page(cli.reader, cursor)
        if not found and "run" in cli.filters:
            cli.check_run(cli.filters["run"])
    except (NoRunError, NoStoreYetError) as fault:  # it may come into being later, so polling for it is no error
        complain(escape(str(fault)))
        found, after = [], None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cursor") from error
    if quiet:
        out(*(request.id for request in found))
        complain(*([f"{len(found):,} shown; continue with --cursor {after}"] if after is not None else []))
    elif cli.as_json:
        review = cli.reader if found else None
        print_json({
            "requests": [request_document(one, program_gone=review.program_is_gone(one)) for one in found if review],
            "cursor": after,
        })  # fmt: skip
    else:
        out(*_rows(cli, query, found, after))
    return 0


def _rows(cli: CliContext, query: _Query, found: list[Request], after: str | None) -> list[str]:
    if not found:
        return ["no open requests" if len(query.lists) > 1 else "no requests"]
    review = cli.reader
    gone = {request.id for request in found if review.program_is_gone(request)}
    if len(query.lists) == 1:
        return table(found, cursor=after, gone=gone)
    oldest, _ = replace(query, lists=[_PENDING], limit=1, newest=False).page(review, None)
    pending, unknown = (review.count(state=state, **query.filters) for state in (State.PENDING, State.UNKNOWN))
    first = oldest[0] if oldest else None
    return table(found, pending=pending, oldest=first, unknown=unknown, cursor=after, gone=gone)


# -- one request ---------------------------------------------------------------------------------------------------


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--full", is_flag=True, help="Do not shorten anything.")
@json_option
@click.pass_obj
def show(cli: CliContext, request_id: str, full: bool) -> int:
    """Show a request and its outcome. Long values are shortened to their beginning, end and size."""
    review = cli.reader
    request = review.get(request_id)
    entries = list(audit.entries(cli.store, run_id=request.run_id, request_id=request.id))
    is_gone = review.program_is_gone(request)
    if cli.as_json:
        journal = {"journal": [entry_document(entry) for entry in entries]}
        print_json(request_document(request, program_gone=is_gone) | journal)
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    out(*_head(request, width, full=full, is_gone=is_gone, same_effect=review.same_effect(request)))
    out("", "what happened", *(f"  {row}" for row in event_rows(entries)), "")
    sayso, name = command(cli.store), short(request.id)
    if full or card.is_whole(request):
        out(f"fingerprint {request.current_fingerprint}")
    else:
        out(f"shortened; show everything with {sayso} show --full {name}")
    for verb, _, more in (step.partition(" ") for step in _next_steps(request, is_gone=is_gone)):
        out(f"next: {sayso} {verb} {name} {more}".rstrip())
    return 0


def _head(request: Request, width: int, *, full: bool, is_gone: bool, same_effect: Sequence[Request]) -> list[str]:
    now = clock.now()
    state, _, rest = status_line(request, now).partition(" ")
    colour = COLOURS.get(request.state)
    rows = [f"{escape(request.id)}   {state if colour is None else paint(state, colour)} {rest}".rstrip()]
    rows += [f"  {PROGRAM_GONE}"] if is_gone else []
    rows += card.ask_rows(request, now, width=max(width, card.NARROW), full=full, same_effect=same_effect)
    if request.state is State.PENDING:
        takes = [f"    {name}: {kind}" for name, kind in kinds_of(schema_of(request)).items()]
        rows += ["  parameters:", *takes] if takes else []
    if request.kind == "call" and request.edited is not None:
        changes = changed(request.call, request.edited, request.redact)
        rows += ["  changed by reviewers:", *(f"    {change.line()}" for change in changes)]
    return [*rows, *outcome_rows(request)]


def _next_steps(request: Request, *, is_gone: bool) -> list[str]:
    if is_gone and request.state is State.PENDING:
        return ["cancel -m WHY"]
    match request.state, request.kind:
        case State.PENDING, "call":
            return ["approve", "approve --set NAME=VALUE", "reject -m WHY", "feedback -m WORDS"]
        case State.PENDING, _:
            return ["answer VALUE", "reject -m WHY"]
        case State.APPROVED, _:
            return ["cancel -m WHY"]
        case State.UNKNOWN, _:
            return ["resolve --happened", "resolve --did-not"]
        case _:
            return []
