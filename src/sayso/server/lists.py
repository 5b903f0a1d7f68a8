"""The pages that list requests: the inbox, with what waits first, and the history of what was decided."""

from __future__ import annotations

from starlette.responses import Response

from sayso import clock
from sayso.server.draw import rows_of
from sayso.server.listing import DECIDED, OPEN, Listing, listing_of
from sayso.server.page import render
from sayso.server.sieve import VERBS
from sayso.server.visit import Visit

__all__ = ["history", "inbox"]


def inbox(visit: Visit) -> Response:
    """Show what waits for a person, oldest first; then what else is open."""
    listing, now = listing_of(visit, OPEN), clock.now()
    rows = rows_of(visit.review, listing.requests, now)
    return render(
        visit, "inbox.html", rows=rows, listing=listing, next_page=_next_page(visit, listing, ""),
        offered=listing.offered(), verbs=VERBS,
        stream=visit.path("events", since=now.isoformat(), rows=",".join(row.id for row in rows if row.expires)),
    )  # fmt: skip


def history(visit: Visit) -> Response:
    """Show what was decided, newest first."""
    listing = listing_of(visit, DECIDED, newest=True)
    return render(
        visit, "history.html", rows=rows_of(visit.review, listing.requests, clock.now()), listing=listing,
        next_page=_next_page(visit, listing, "history"), offered=listing.offered(), verbs=VERBS,
        exports=[(kind, visit.path(f"history.{kind}", **listing.asked)) for kind in ("csv", "jsonl")],
    )  # fmt: skip


def _next_page(visit: Visit, listing: Listing, page: str) -> str | None:
    if listing.cursor is None:
        return None
    steps = [page] if page else []
    return visit.path(*steps, cursor=listing.cursor, **listing.asked)
