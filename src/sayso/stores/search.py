"""Lists for people: a store's filter, what no store indexes, and a page that leads on to the next ones.

The agent's name may be sealed in the store, so it and the age are compared here, request by request. Invariant: a page
is shorter than was asked for only where the list ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from sayso.model.request import Request
from sayso.stores.base import Filter, Page, Store

__all__ = ["RequestPage", "Search"]

_CHUNK = 200


@dataclass(frozen=True)
class RequestPage(Page):
    """A page of a list. A `for` loop over it goes through the whole list and fetches further pages as it goes.

    Where the list was asked for with `limit=`, the loop ends with this page. A page is true if it holds a request.
    It has no length and no index, because both could mean the page or the list: `len(page.requests)` and
    `page.requests[0]` are the page's, `Review.count(...)` counts the list.

    Attributes:
        requests: Those of this page.
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

    if not TYPE_CHECKING:  # type checkers say by themselves that there is neither

        def __len__(self) -> NoReturn:
            raise TypeError("a page has no length: len(page.requests) is this page's, Review.count(...) the list's")

        def __getitem__(self, index: Any) -> NoReturn:
            raise TypeError(f"a page has no index: page.requests[{index!r}] is this page's, list(page) the whole list")


@dataclass(frozen=True)
class Search:
    """Which requests a reviewer wants to see.

    Attributes:
        wanted: What the store looks for.
        agent: Only what was asked under this name, or `issuer:name`; case and look-alike letters do not count.
        asked_by: Only what was asked at this instant or before.
    """

    wanted: Filter
    agent: str | None = None
    asked_by: datetime | None = None

    def page(self, store: Store, *, cursor: str | None, limit: int, newest: bool) -> Page:
        """Return a page; raises `ValueError` where the cursor is none of this list."""
        if self._is_indexed:
            return store.list(self.wanted, cursor=cursor, limit=limit, newest=newest)
        found: list[Request] = []
        chunk = _CHUNK
        while True:
            page = store.list(self.wanted, cursor=cursor, limit=chunk or limit - len(found), newest=newest)
            passing = [place for place, request in enumerate(page.requests) if self._passes(request)]
            passing = passing[: limit - len(found)]
            ends = page
            if len(found) + len(passing) == limit and passing[-1] + 1 < len(page.requests):
                # The cursor right behind the last one, which only a page that ends with it has.
                ends = store.list(self.wanted, cursor=cursor, limit=passing[-1] + 1, newest=newest)
                if not ends.requests or ends.requests[-1].id != page.requests[passing[-1]].id:
                    chunk = 0  # somebody decided in between: read no more than there is room for, and need no such page
                    continue
            found += [page.requests[place] for place in passing]
            cursor = ends.cursor
            if cursor is None or len(found) == limit:
                return Page(tuple(found), cursor)

    def count(self, store: Store) -> int:
        """Return how many there are."""
        if self._is_indexed:
            return store.count(self.wanted)
        number, cursor = 0, None
        while True:
            page = store.list(self.wanted, cursor=cursor, limit=_CHUNK)
            number += sum(map(self._passes, page.requests))
            cursor = page.cursor
            if cursor is None:
                return number

    @property
    def _is_indexed(self) -> bool:
        return self.agent is None and self.asked_by is None

    def _passes(self, request: Request) -> bool:
        if self.asked_by is not None and request.created_at > self.asked_by:
            return False
        return self.agent is None or request.requester.goes_by(self.agent)
