"""What a reviewer's list has: the search with its filters, and the pages of the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sayso.model.request import LIVE, Request, State
from sayso.model.text import closest
from sayso.stores.base import Filter, Page, ReviewStore
from sayso.stores.review import page_where, requests_in


@dataclass(frozen=True)
class Search:
    """A reviewer's search for requests.

    Attributes:
        wanted: The filter for the store.
        agent: Only requests asked under this name or `issuer:name`, ignoring case and look-alike letters.
        asked_by: Only requests asked at this instant or before.
    """

    wanted: Filter
    agent: str | None = None
    asked_by: datetime | None = None

    def page(self, store: ReviewStore, *, cursor: str | None, limit: int, newest: bool) -> Page:
        """Return a page; raises `ValueError` if the cursor is not from this list."""
        read = partial(store.list, self.wanted, newest=newest)
        if self._is_indexed:
            return read(cursor=cursor, limit=limit)
        return page_where(read, self._passes, cursor=cursor, limit=limit)[0]

    def count(self, store: ReviewStore) -> int:
        """Return how many requests match."""
        if self._is_indexed:
            return store.count(self.wanted)
        return sum(map(self._passes, requests_in(store, self.wanted)))

    @property
    def _is_indexed(self) -> bool:
        return self.agent is None and self.asked_by is None

    def _passes(self, request: Request) -> bool:
        if self.asked_by is not None and request.created_at > self.asked_by:
            return False
        return self.agent is None or request.requester.goes_by(self.agent)


@dataclass(frozen=True)
class RequestPage(Page):
    """A page of a list. A `for` loop over it iterates the whole list and fetches further pages as needed.

    If the list was requested with `limit=`, the loop ends with this page. A page is true if it has a request. It has no
    length and no index, because both could mean the page or the list: `len(page.requests)` and `page.requests[0]` are
    the page's, `Review.count(...)` counts the list.

    Attributes:
        requests: The requests of this page.
        cursor: Where the next page begins; None at the end.
    """

    following: Callable[[str], RequestPage] | None = field(default=None, repr=False, compare=False)

    def __iter__(self) -> Iterator[Request]:
        yield from self.requests
        page = self
        while page.cursor is not None and page.following is not None:
            page = page.following(page.cursor)
            yield from page.requests

    def __bool__(self) -> bool:
        return bool(self.requests)

    if not TYPE_CHECKING:  # type checkers know that there is neither

        def __len__(self) -> NoReturn:
            raise TypeError(
                "a page has no length; use len(page.requests) for this page, Review.count(...) for the whole list"
            )

        def __getitem__(self, index: Any) -> NoReturn:
            raise TypeError(
                f"a page has no index; use page.requests[{index!r}] for this page, list(page) for the whole list"
            )


def states_of(state: State | str | Collection[State | str] | None) -> frozenset[State]:
    """Return the states that a list should have; raises `ValueError` for an unknown one."""
    if state is None:
        return LIVE
    if isinstance(state, str):
        return frozenset() if state == "all" else frozenset({_state(state)})
    return frozenset(map(_state, state))


def _state(given: State | str) -> State:
    try:
        return State(given)
    except ValueError:
        near = closest(str(given), State)
        hint = f"known are {', '.join(State)}, and all" if near is None else f"did you mean '{near}'?"
        raise ValueError(f"unknown state {given!r}; {hint}") from None
