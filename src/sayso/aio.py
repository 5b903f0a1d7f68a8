"""The async API for reviewers: the verbs of `sayso.reviews.Review` as coroutines, and async `ask` and `hold`.

The verbs share their code with the sync API. A verb runs in a small thread pool if its store blocks. `sayso.gate`
supports async functions by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from datetime import timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, Unpack

from sayso import reviews
from sayso.effects import Attempt, UserCall, adrive, in_thread, offload, shielded
from sayso.gates import scope
from sayso.gates.ask import aask as ask
from sayso.gates.gate import HoldOptions, holding
from sayso.gates.held import HeldBase, as_error
from sayso.model.request import Request
from sayso.model.reviewer import Reviewer
from sayso.reviews import RequestPage
from sayso.stores.base import Page, Store

__all__ = ["AsyncPage", "Held", "Listing", "Review", "ask", "hold"]

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

    if not TYPE_CHECKING:  # a plain loop would block the event loop at the next page

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "use `async for request in review.list(...)`, or loop over page.requests for this page only"
            )


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

    def __init__(
        self, store: Store | str | None = None, *, by: Reviewer | str | None = None,
        reviewer: Reviewer | str | None = None, channel: str = "python", sweeps: bool = True,
        undo_within: timedelta | str | None = None,
    ) -> None:  # fmt: skip
        self.review = reviews.Review(
            store, by=by, reviewer=reviewer, channel=channel, sweeps=sweeps, undo_within=undo_within
        )

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
    undo = _awaited(reviews.Review.undo)
    comment = _awaited(reviews.Review.comment)
    comments = _awaited(reviews.Review.comments)
    mentions = _awaited(reviews.Review.mentions)
    delegate = _awaited(reviews.Review.delegate)
    end_delegation = _awaited(reviews.Review.end_delegation)
    delegations = _awaited(reviews.Review.delegations)
    snooze = _awaited(reviews.Review.snooze)
    snoozed = _awaited(reviews.Review.snoozed)
    claim = _awaited(reviews.Review.claim)
    assign = _awaited(reviews.Review.assign)
    release = _awaited(reviews.Review.release)
    extend = _awaited(reviews.Review.extend)
    resolve = _awaited(reviews.Review.resolve)
    grant = _awaited(reviews.Review.grant)
    preview_grant = _awaited(reviews.Review.preview_grant)
    grants = _awaited(reviews.Review.grants)
    agree = _awaited(reviews.Review.agree)
    revoke = _awaited(reviews.Review.revoke)
    stop = _awaited(reviews.Review.stop)
    go = _awaited(reviews.Review.go)
    stopped = _awaited(reviews.Review.stopped)


class Held(HeldBase):
    """The async twin of `sayso.gates.held.Held`, which describes each verb."""

    async def refresh(self) -> Request | None:
        """Read the request again and return it."""
        return await adrive(self._refreshing())

    async def wait(self, timeout: timedelta | str | float | None = None) -> Self:  # noqa: ASYNC109  as its sync twin
        """Wait until the call is decided, and return this."""
        await adrive(self._waiting(timeout))
        return self

    async def once(self, function: Callable[[dict[str, Any]], Any]) -> Any:
        """Run `function(arguments)` once; an async one is awaited, a sync one runs in a thread."""

        async def call_in_thread(arguments: dict[str, Any]) -> Any:
            value = (await in_thread(UserCall(scope.in_this_run(function), (arguments,), {}))).unwrap()
            return await value if inspect.isawaitable(value) else value

        call = function if inspect.iscoroutinefunction(function) else call_in_thread
        return (await adrive(self._once(call))).unwrap()

    async def start(self, *, by: str | None = None) -> dict[str, Any]:
        """Take the single right to run the call, for process `by` if given, and return the arguments."""
        return await adrive(self._starting(by))

    async def finish(self, result: Any = None) -> None:
        """Record that the call was done, and its result."""
        await adrive(self._ending(Attempt(result, None)))

    async def fail(self, error: Exception | str) -> None:
        """Record that the call failed and certainly had no effect."""
        await adrive(self._ending(Attempt(None, as_error(error))))

    async def unknown(self, error: BaseException | str) -> None:
        """Record that it is unknown whether the call had its effect."""
        await adrive(self._ending(Attempt(None, as_error(error), is_ambiguous=True)))

    async def withdraw(self, reason: str | None = None) -> None:
        """Withdraw the request if it is pending, or approved and not started."""
        await adrive(self._withdrawing(reason))

    async def send_back(self, *problems: str) -> None:
        """Return an approved edit to its reviewers because the tool rejects their changes."""
        await adrive(self._sending_back(problems))

    async def result(self, timeout: timedelta | str | float | None = None) -> Any:  # noqa: ASYNC109  as its sync twin
        """Return the result of the call, whichever process ran it."""
        return await adrive(self._resulting(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._withdraws:
            await shielded(adrive(self._leaving(error)))


async def hold(tool: str, arguments: Mapping[str, Any], **options: Unpack[HoldOptions]) -> Held:
    """Hold a call that is not a Python function, without blocking the event loop; see `sayso.hold`."""
    return await adrive(holding(Held, tool, arguments, **options))
