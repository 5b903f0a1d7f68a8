"""A list of requests as a browser asks for it: filters and cursor out of the address, and the page of it.

The inbox lists what waits first and then what else is open, each oldest first; history lists what was decided, newest
first. The invariant: a page costs the same however many requests were decided before; where a filter keeps few, it
ends after a number that was looked at, and its cursor goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from sayso.model.request import LIVE, Request, State
from sayso.server.sieve import FIELDS, Sieve, sieve_of
from sayso.server.visit import Visit
from sayso.stores.base import Page

__all__ = ["DECIDED", "OPEN", "Listing", "all_of", "listing_of"]

PAGE, LOOK = 50, 2_000
_CHUNK = 200
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
        looked: How many requests were read for it.
    """

    requests: list[Request]
    cursor: str | None
    asked: dict[str, str]
    states: list[str]
    looked: int

    @property
    def is_filtered(self) -> bool:
        """Whether any filter is set."""
        return any(self.asked.values())

    @property
    def is_short(self) -> bool:
        """Whether the page ended before it was full, because so many were looked at."""
        return self.cursor is not None and len(self.requests) < PAGE

    def offered(self) -> dict[str, list[str]]:
        """Return what can be chosen in some fields: what is on the page."""
        decisions = [one.decision for one in self.requests if one.decision is not None]
        return {
            "tools": sorted({one.call.name for one in self.requests if one.kind == "call"}),
            "agents": sorted({one.requester.subject for one in self.requests}),
            "reviewers": sorted({one.by.subject for one in decisions}),
            "channels": sorted({one.channel for one in decisions}),
        }


def listing_of(visit: Visit, lists: tuple[frozenset[State], ...], *, newest: bool = False) -> Listing:
    """Return the page that the address asks for.

    Raises:
        HTTPException: What stands in the address is no filter or cursor.
    """
    try:
        search = _Search(visit, newest=newest)
        found, cursor = search.page(search.chosen(lists), visit.asked("cursor") or "0.")
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    offered = frozenset[State]().union(*lists)
    return Listing(found, cursor, search.asked, [str(state) for state in State if state in offered], search.looked)


def all_of(visit: Visit, lists: tuple[frozenset[State], ...], *, newest: bool = False) -> Iterator[Request]:
    """Yield everything that the filters in the address keep, page by page.

    Raises:
        HTTPException: What stands in the address is no filter; at once, and not at the first request.
    """
    try:
        search = _Search(visit, newest=newest)
        chosen = search.chosen(lists)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    return (request for states in chosen for request in search.every(states))


class _Search:
    """The filters of one address, and what they find."""

    def __init__(self, visit: Visit, *, newest: bool) -> None:
        self.asked = {name: visit.asked(name) for name in ("q", "state", "tool", "run", "risk", "mine", *FIELDS)}
        self._sieve: Sieve = sieve_of(self.asked)
        self._newest = newest
        self._review = visit.review
        self._filters: dict[str, Any] = {
            "text": self.asked["q"] or None,
            "name": self.asked["tool"] or None,
            "run_id": self.asked["run"] or None,
            "risk": self.asked["risk"] or None,
            "claimed_by": visit.reviewer if self.asked["mine"] else None,
        }
        self._found: list[Request] = []
        self.looked = 0

    def chosen(self, lists: tuple[frozenset[State], ...]) -> tuple[frozenset[State], ...]:
        """Return the lists, or the one of the state that was asked for; raises `ValueError` where that is none."""
        return (frozenset({State(self.asked["state"])}),) if self.asked["state"] else lists

    def page(self, lists: tuple[frozenset[State], ...], cursor: str) -> tuple[list[Request], str | None]:
        """Return one page out of several lists, one after another; the cursor says in which it goes on, and where."""
        number, dot, place = cursor.partition(".")
        if not dot or not number.isascii() or not number.isdigit() or int(number) >= len(lists):
            raise ValueError("this is not a cursor of this list; begin again without one")
        for at, states in list(enumerate(lists))[int(number) :]:
            if len(self._found) == PAGE:
                return self._found, f"{at}."
            goes_on = self._take(states, place or None)
            if goes_on is not None:
                return self._found, f"{at}.{goes_on}"
            place = ""
        return self._found, None

    def every(self, states: frozenset[State]) -> Iterator[Request]:
        """Yield all of a list that pass."""
        place: str | None = None
        while True:
            page = self._list(states, place, _CHUNK)
            yield from (request for request in page.requests if self._sieve.lets(request))
            place = page.cursor
            if place is None:
                return

    def _take(self, states: frozenset[State], place: str | None) -> str | None:
        """Fill the page from a list; return where the list goes on, or None at its end."""
        while True:
            room = PAGE - len(self._found)
            page = self._list(states, place, room if self._sieve.lets_all else _CHUNK)
            passing = [at for at, request in enumerate(page.requests) if self._sieve.lets(request)][:room]
            self._found += [page.requests[at] for at in passing]
            self.looked += len(page.requests)
            if len(passing) == room and passing[-1] + 1 < len(page.requests):
                return self._list(states, place, passing[-1] + 1).cursor
            if page.cursor is None or len(self._found) == PAGE or self.looked >= LOOK:
                return page.cursor
            place = page.cursor

    def _list(self, states: frozenset[State], place: str | None, limit: int) -> Page:
        return self._review.list(state=states, cursor=place, limit=limit, newest=self._newest, **self._filters)
