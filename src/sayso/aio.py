"""The person's door for async programs: the verbs of `sayso.reviews.Review`, awaited.

Each runs the very same verb in a small pool of threads where the store blocks; nothing is written twice.
`sayso.gate` handles async functions by itself; `ask` here is the async twin of `sayso.ask`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sayso import reviews
from sayso.drive import offload
from sayso.model.reviewer import Reviewer
from sayso.stores.base import Store
from sayso.waiting.ask import aask as ask

__all__ = ["Review", "ask"]

P = ParamSpec("P")
R = TypeVar("R")


def _awaited(
    verb: Callable[Concatenate[reviews.Review, P], R],
) -> Callable[Concatenate[Review, P], Coroutine[Any, Any, R]]:
    @wraps(verb)
    async def awaited(self: Review, *args: P.args, **kwargs: P.kwargs) -> R:
        call = partial(verb, self.review, *args, **kwargs)
        return await offload(call) if self.review.store.blocks else call()

    return awaited


class Review:
    """The verbs of a reviewer on one store, as coroutines; see `sayso.Review` for each of them."""

    def __init__(
        self, store: Store | str | None = None, *, reviewer: Reviewer | str | None = None, channel: str = "python",
        sweeps: bool = True,
    ) -> None:  # fmt: skip
        self.review = reviews.Review(store, reviewer=reviewer, channel=channel, sweeps=sweeps)

    list = _awaited(reviews.Review.list)
    get = _awaited(reviews.Review.get)
    find = _awaited(reviews.Review.find)
    program_is_gone = _awaited(reviews.Review.program_is_gone)
    approve = _awaited(reviews.Review.approve)
    reject = _awaited(reviews.Review.reject)
    feedback = _awaited(reviews.Review.feedback)
    answer = _awaited(reviews.Review.answer)
    cancel = _awaited(reviews.Review.cancel)
    claim = _awaited(reviews.Review.claim)
    release = _awaited(reviews.Review.release)
    extend = _awaited(reviews.Review.extend)
    resolve = _awaited(reviews.Review.resolve)
