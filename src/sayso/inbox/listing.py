"""A list of requests as a browser asks for it: filters and cursor out of the address, and the page of it.

The inbox lists what waits first and then what else is open, each oldest first; history lists what was decided, newest
first. The invariant: a page costs the same however many requests were decided before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from sayso.inbox.visit import Visit
from sayso.model.request import LIVE, Request, State

__all__ = ["DECIDED", "OPEN", "Listing", "listing_of"]

PAGE = 50
OPEN: tuple[frozenset[State], ...] = (frozenset({State.PENDING}), LIVE - {State.PENDING})
DECIDED: tuple[frozenset[State], ...] = (frozenset(State) - {State.PENDING},)


@dataclass(frozen=True)
class Listing:
    """A page of a list.

    Attributes:
        requests: What is on it.
        cursor: What to ask for to get the next page; None at the end.
        asked: The filters, as they stand in the address; empty ones too.
        states: What can be chosen as a state.
    """

    requests: list[Request]
    cursor: str | None
    asked: dict[str, str]
    states: list[str]

    @property
    def is_filtered(self) -> bool:
        """Whether any filter is set."""
        return any(self.asked.values())


def listing_of(visit: Visit, lists: tuple[frozenset[State], ...], *, newest: bool = False) -> Listing:
    """Return the page that the address asks for.

    Raises:
        HTTPException: What stands in the address is no filter or cursor.
    """
    asked = {name: visit.asked(name) for name in ("q", "state", "tool", "run", "risk", "mine")}
    offered = frozenset[State]().union(*lists)
    try:
        chosen = (frozenset({State(asked["state"])}),) if asked["state"] else lists
        found, cursor = _pages(visit, chosen, asked, newest=newest)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    return Listing(found, cursor, asked, [str(state) for state in State if state in offered])


def _pages(
    visit: Visit, lists: Collection[frozenset[State]], asked: dict[str, str], *, newest: bool
) -> tuple[list[Request], str | None]:
    """Return one page out of several lists, one after another; the cursor says in which list it goes on, and where."""
    number, dot, place = (visit.asked("cursor") or "0.").partition(".")
    if not dot or not number.isascii() or not number.isdigit() or int(number) >= len(lists):
        raise ValueError("this is not a cursor of this list; begin again without one")
    found: list[Request] = []
    for at, states in list(enumerate(lists))[int(number) :]:
        if len(found) == PAGE:
            return found, f"{at}."
        page = visit.review.list(
            state=states, cursor=place or None, limit=PAGE - len(found), newest=newest, **_filters(visit, asked)
        )
        found += page.requests
        if page.cursor is not None:
            return found, f"{at}.{page.cursor}"
        place = ""
    return found, None


def _filters(visit: Visit, asked: dict[str, str]) -> dict[str, Any]:
    return {
        "text": asked["q"] or None,
        "name": asked["tool"] or None,
        "run_id": asked["run"] or None,
        "risk": asked["risk"] or None,
        "claimed_by": visit.reviewer if asked["mine"] else None,
    }
