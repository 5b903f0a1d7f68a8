"""The inbox and the history: filters and cursor from the address, and one page of requests.

The inbox lists what waits first and then what else is open, each oldest first; the history lists what was decided,
newest first. Some filters (who asked, who decided, how) are applied here and not by the store, where those columns may
be sealed. A page costs the same however many requests were decided before: where a filter keeps few, the page ends
after a fixed number of requests was read, and its cursor continues from there. An empty field restricts nothing, and
a field that cannot be read is an error, never an empty list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from starlette.exceptions import HTTPException
from starlette.responses import Response

from sayso import clock
from sayso.model.request import LIVE, Request, State, Verb
from sayso.model.reviewer import Identity
from sayso.server.context import RequestContext
from sayso.server.pages.rendering import render, rows_of
from sayso.stores.base import Page

__all__ = [
    "DECIDED",
    "FIELDS",
    "OPEN",
    "VERBS",
    "HistoryFilter",
    "Listing",
    "all_of",
    "history",
    "history_filter",
    "inbox",
    "listing_of",
]

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


def listing_of(context: RequestContext, lists: tuple[frozenset[State], ...], *, newest: bool = False) -> Listing:
    """Return the page that the address asks for.

    Raises:
        HTTPException: What stands in the address is no filter or cursor.
    """
    try:
        search = _Search(context, newest=newest)
        found, cursor = search.page(search.chosen(lists), context.query("cursor") or "0.")
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    offered = frozenset[State]().union(*lists)
    return Listing(found, cursor, search.asked, [str(state) for state in State if state in offered], search.looked)


def all_of(context: RequestContext, lists: tuple[frozenset[State], ...], *, newest: bool = False) -> Iterator[Request]:
    """Yield everything that matches the filters in the address, page by page.

    Raises:
        HTTPException: What stands in the address is no filter; at once, and not at the first request.
    """
    try:
        search = _Search(context, newest=newest)
        chosen = search.chosen(lists)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    return (request for states in chosen for request in search.every(states))


class _Search:
    """The filters of one address, and what they find."""

    def __init__(self, context: RequestContext, *, newest: bool) -> None:
        self.asked = {name: context.query(name) for name in ("q", "state", "tool", "run", "risk", "mine", *FIELDS)}
        self._filter: HistoryFilter = history_filter(self.asked)
        self._newest = newest
        self._review = context.review
        self._filters: dict[str, Any] = {
            "text": self.asked["q"] or None,
            "name": self.asked["tool"] or None,
            "run_id": self.asked["run"] or None,
            "risk": self.asked["risk"] or None,
            "claimed_by": context.reviewer if self.asked["mine"] else None,
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
        """Yield all requests of a list that match."""
        place: str | None = None
        while True:
            page = self._list(states, place, _CHUNK)
            yield from (request for request in page.requests if self._filter.matches(request))
            place = page.cursor
            if place is None:
                return

    def _take(self, states: frozenset[State], place: str | None) -> str | None:
        """Fill the page from a list; return where the list goes on, or None at its end."""
        while True:
            room = PAGE - len(self._found)
            page = self._list(states, place, room if self._filter.is_empty else _CHUNK)
            passing = [at for at, request in enumerate(page.requests) if self._filter.matches(request)][:room]
            self._found += [page.requests[at] for at in passing]
            self.looked += len(page.requests)
            if len(passing) == room and passing[-1] + 1 < len(page.requests):
                return self._list(states, place, passing[-1] + 1).cursor
            if page.cursor is None or len(self._found) == PAGE or self.looked >= LOOK:
                return page.cursor
            place = page.cursor

    def _list(self, states: frozenset[State], place: str | None, limit: int) -> Page:
        return self._review.list(state=states, cursor=place, limit=limit, newest=self._newest, **self._filters)


def inbox(context: RequestContext) -> Response:
    """Show what waits for a person, oldest first; then what else is open."""
    listing, now = listing_of(context, OPEN), clock.now()
    rows = rows_of(context.review, listing.requests, now)
    return render(
        context, "inbox.html", rows=rows, listing=listing, next_page=_next_page(context, listing, ""),
        offered=listing.offered(), verbs=VERBS,
        stream=context.path("events", since=now.isoformat(), rows=",".join(row.id for row in rows if row.expires)),
    )  # fmt: skip


def history(context: RequestContext) -> Response:
    """Show what was decided, newest first."""
    listing = listing_of(context, DECIDED, newest=True)
    return render(
        context, "history.html", rows=rows_of(context.review, listing.requests, clock.now()), listing=listing,
        next_page=_next_page(context, listing, "history"), offered=listing.offered(), verbs=VERBS,
        exports=[(kind, context.path(f"history.{kind}", **listing.asked)) for kind in ("csv", "jsonl")],
    )  # fmt: skip


def _next_page(context: RequestContext, listing: Listing, page: str) -> str | None:
    if listing.cursor is None:
        return None
    steps = [page] if page else []
    return context.path(*steps, cursor=listing.cursor, **listing.asked)


VERBS: tuple[str, ...] = get_args(Verb)
FIELDS = ("agent", "by", "verb", "channel", "from", "to")


@dataclass(frozen=True)
class HistoryFilter:
    """What a request must match.

    Attributes:
        agent: A part of the name of who asked.
        by: A part of the name of somebody who decided or voted.
        verb: What was decided.
        channel: Through which channel.
        since, until: When that was; the second is not in it.
    """

    agent: str = ""
    by: str = ""
    verb: str = ""
    channel: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it matches everything."""
        return self == HistoryFilter()

    def matches(self, request: Request) -> bool:
        """Say whether a request matches."""
        if self.agent and not _is_named(request.requester, self.agent):
            return False
        if self.by and not any(_is_named(who, self.by) for who in _deciders(request)):
            return False
        decision = request.decision
        if self.verb and (decision is None or decision.verb != self.verb):
            return False
        if self.channel and (decision is None or decision.channel.casefold() != self.channel.casefold()):
            return False
        at = _decided_at(request)
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


def history_filter(asked: Mapping[str, str]) -> HistoryFilter:
    """Return the filter that the fields of an address ask for.

    Raises:
        ValueError: A field cannot be read.
    """
    given = {name: asked.get(name, "") for name in FIELDS}
    if given["verb"] and given["verb"] not in VERBS:
        raise ValueError(f"{given['verb']!r} is no decision; there are {', '.join(VERBS)}")
    until = _day(given["to"])
    return HistoryFilter(
        given["agent"], given["by"], given["verb"], given["channel"], _day(given["from"]),
        None if until is None else until + timedelta(days=1),
    )  # fmt: skip


def _day(text: str) -> datetime | None:
    if not text:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        day = None
    if day is None or not 1970 <= day.year <= 9000:
        raise ValueError(f"{text!r} is no day; write it as 2026-01-31")
    return day


def _is_named(who: Identity, part: str) -> bool:
    return part.casefold() in who.qualified.casefold()


def _deciders(request: Request) -> list[Identity]:
    found = [vote.by for vote in request.votes]
    return found if request.decision is None else [*found, request.decision.by]


def _decided_at(request: Request) -> datetime:
    """Return when a request stopped waiting; for one that nobody decided, when it ends."""
    return request.expires_at if request.decision is None else request.decision.at
