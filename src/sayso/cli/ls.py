"""`ls`: what waits, and what wants attention, as a table.

Invariant: a page costs the same however many requests were decided before, and what does not fit into a column is
marked as shortened.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from sayso import clock
from sayso.cli.desk import Desk, NoStoreYetError, as_json, decides
from sayso.cli.plain import request_document
from sayso.cli.say import complain, document, is_reader_gone, out, paint
from sayso.model import card
from sayso.model.duration import text as span
from sayso.model.literal import word
from sayso.model.request import LIVE, Request, State
from sayso.model.reviewer import Identity
from sayso.reviews import Review
from sayso.stores.base import Filter
from sayso.waiting.terminal import command

__all__ = ["ls"]

_PENDING = frozenset({State.PENDING})
_PACE = 0.5
_CALL_ROOM, _FROM_ROOM, _RISK_ROOM = 60, 40, 12


@dataclass(frozen=True)
class _Listing:
    """One page and how it goes on."""

    requests: tuple[Request, ...]
    cursor: str | None


@click.command()
@click.option("--mine", is_flag=True, help="Only what you have claimed.")
@click.option("--tool", metavar="NAME", help="Only calls of this function, by name or module:name.")
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@click.option("--risk", metavar="WORD", help="Only with this risk.")
@click.option("--state", "states", type=click.Choice([*State]), multiple=True, help="Only in this state; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Also what is decided and done.")
@click.option("--search", metavar="TEXT", help="Only with this in id, run, function, prompt or question.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--cursor", metavar="CURSOR", help="Go on after a page.")
@click.option("--newest", is_flag=True, help="Newest first.")
@click.option("--watch", is_flag=True, help="Print again whenever something changes; Ctrl-C ends it.")
@decides
@as_json
@click.pass_obj
def ls(
    desk: Desk, mine: bool, tool: str | None, run_id: str | None, risk: str | None, states: tuple[State, ...],
    everything: bool, search: str | None, limit: int, cursor: str | None, newest: bool, watch: bool, name: str | None,
    roles: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """List what waits for a person: pending first, oldest first; then what is approved, running or unknown."""
    try:
        review = desk.review(name, roles)
    except NoStoreYetError as fault:
        if as_json:
            document({"requests": [], "cursor": None})
        complain(str(fault))
        return 0
    wanted = Filter(
        run_id=run_id, name=tool, risk=risk, text=search, claimed_by=_me(review, name) if mine else None
    )
    phases = [frozenset[State]()] if everything else [frozenset(map(State, states))] if states else [_PENDING, LIVE - _PENDING]
    list_ = _Lister(review, wanted, phases, limit=limit, newest=newest)
    if watch:
        return _watch(list_)
    page = list_.page(cursor)
    if as_json:
        document({"requests": [request_document(request) for request in page.requests], "cursor": page.cursor})
    else:
        out(*list_.table(page))
    return 0
