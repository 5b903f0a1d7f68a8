"""The person's door for async programs: the verbs of `sayso.reviews.Review`, awaited.

Each runs the very same verb in a small pool of threads where the store blocks; nothing is written twice.
`sayso.gate` handles async functions by itself; `ask` here is the async twin of `sayso.ask`. A list is awaited for one
page, or walked with `async for`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from sayso import reviews
from sayso.effects import offload
from sayso.model.keywords import checks_keywords
from sayso.model.request import Request
from sayso.model.reviewer import Reviewer
from sayso.questions import aask as ask
from sayso.reviews import RequestPage
from sayso.stores.base import Page, Store

__all__ = ["AsyncPage", "Listing", "Review", "ask"]

P = ParamSpec("P")
R = TypeVar("R")


async def _run(review: Review, work: Callable[[], R]) -> R:
    return await offload(work) if review.review.store.blocks else work()


def _awaited(
    verb: Callable[Concatenate[reviews.Review, P], R],
) -> Callable[Concatenate[Review, P], Coroutine[Any, Any, R]]:
    @wraps(verb)
    async def awaited(self: Review, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _run(self, partial(verb, self.review, *args, **kwargs))

    return awaited


class AsyncPage(Page):
    """One page of a list. To go through the whole list write `async for request in review.list(...)`."""

    if not TYPE_CHECKING:  # a plain loop would hold up the event loop at the next page

        def __iter__(self) -> NoReturn:
            raise TypeError("write `async for request in review.list(...)`, or loop over this page's page.requests")


class Listing:
    """A list of requests that was asked for: `await` it for its page, or go through all of it with `async for`."""

    def __init__(self, review: Review, first: Callable[[], RequestPage]) -> None:
        self._review, self._first = review, first

    def __await__(self) -> Generator[Any, Any, AsyncPage]:
        return self._page().__await__()

    async def _page(self) -> AsyncPage:
        page = await _run(self._review, self._first)
        return AsyncPage(page.requests, page.cursor)

    async def __aiter__(self) -> AsyncIterator[Request]:
        page = await _run(self._review, self._first)
        while True:
            for request in page.requests:
                yield request
            if page.cursor is None or page.following is None:
                return
            page = await _run(self._review, partial(page.following, page.cursor))


def _listed(verb: Callable[Concatenate[reviews.Review, P], RequestPage]) -> Callable[Concatenate[Review, P], Listing]:
    @wraps(verb)
    def listed(self: Review, *args: P.args, **kwargs: P.kwargs) -> Listing:
        return Listing(self, partial(verb, self.review, *args, **kwargs))

    return listed


class Review:
    """The verbs of a reviewer on one store, as coroutines; see `sayso.Review` for each of them.

    `async for request in review.list()` goes through the whole list, `await review.list()` gives one page.
    """

    @checks_keywords()
    def __init__(
        self, store: Store | str | None = None, *, by: Reviewer | str | None = None,
        reviewer: Reviewer | str | None = None, channel: str = "python", sweeps: bool = True,
    ) -> None:  # fmt: skip
        self.review = reviews.Review(store, by=by, reviewer=reviewer, channel=channel, sweeps=sweeps)

    list = _listed(reviews.Review.list)
    count = _awaited(reviews.Review.count)
    get = _awaited(reviews.Review.get)
    find = _awaited(reviews.Review.find)
    program_is_gone = _awaited(reviews.Review.program_is_gone)
    same_effect = _awaited(reviews.Review.same_effect)
    approve = _awaited(reviews.Review.approve)
    reject = _awaited(reviews.Review.reject)
    feedback = _awaited(reviews.Review.feedback)
    answer = _awaited(reviews.Review.answer)
    cancel = _awaited(reviews.Review.cancel)
    claim = _awaited(reviews.Review.claim)
    release = _awaited(reviews.Review.release)
    extend = _awaited(reviews.Review.extend)
    resolve = _awaited(reviews.Review.resolve)
