"""Which requests a reviewer wants to see: what a store looks for, and the filters that no store indexes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sayso.model.request import Request
from sayso.stores.base import Filter, Page, ReviewStore

_CHUNK = 200


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

    def page(self, store: ReviewStore, *, cursor: str | None, limit: int, newest: bool) -> Page:
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

    def count(self, store: ReviewStore) -> int:
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
