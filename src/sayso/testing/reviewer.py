"""A reviewer that follows a script, for tests of gated programs: each step decides the oldest request that waits.

Decisions go through `sayso.Review`, so the script can do nothing that a person could not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self

from sayso.errors import SaysoError
from sayso.model.request import Request, State
from sayso.model.reviewer import Reviewer
from sayso.reviews import Review
from sayso.stores.base import Store

_PACE = 0.002  # seconds between two looks at what waits


class _Step(NamedTuple):
    verb: str
    words: tuple[Any, ...]
    options: dict[str, Any]

    def __str__(self) -> str:
        parts = [*(repr(word) for word in self.words), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"{self.verb}({', '.join(parts)})"


class ScriptedReviewer:
    """Decides what waits in a store, oldest first, one step of the script for each decision.

    For a gate that blocks, use it as a context manager: it decides from a thread of its own, and the end of the block
    checks that every step was used and every request met one. For a gate that raises, call `decide_next`.

        with ScriptedReviewer().approve(changes={"amount": 7}).reject("too much") as reviewer:
            assert pay(10, "alice") == "paid 7 to alice"
            with pytest.raises(sayso.ConfirmationRejected, match="too much"):
                pay(1_000, "bob")
        assert [request.call.arguments["amount"] for request in reviewer.seen] == [10, 1_000]

    Args:
        store: A store or its address; None is the configured one.
        by: Who decides; each step can name somebody else.

    Attributes:
        seen: The requests, as each step found them.
    """

    def __init__(self, store: Store | str | None = None, *, by: Reviewer | str = "reviewer") -> None:
        self.seen: list[Request] = []
        self._review = Review(store, reviewer=by, channel="script")
        self._steps: deque[_Step] = deque()
        self._left: set[str] = set()
        self._problems: list[str] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # -- the script --------------------------------------------------------------------------------------------

    def _then(self, verb: str, *words: Any, **options: Any) -> Self:
        given = {name: value for name, value in options.items() if value is not None}
        self._steps.append(_Step(verb, words, given))
        return self

    def approve(
        self, *, changes: Mapping[str, Any] | None = None, arguments: Mapping[str, Any] | None = None,
        comment: str | None = None, by: Reviewer | str | None = None,
    ) -> Self:  # fmt: skip
        """Then approve; see `Review.approve`. Returns itself, as every step does."""
        return self._then("approve", changes=changes, arguments=arguments, comment=comment, by=by)

    def reject(self, comment: str | None = None, *, by: Reviewer | str | None = None) -> Self:
        """Then reject."""
        return self._then("reject", comment, by=by)

    def feedback(self, comment: str, *, by: Reviewer | str | None = None) -> Self:
        """Then send the call back with words to the program."""
        return self._then("feedback", comment, by=by)

    def answer(self, value: Any, *, by: Reviewer | str | None = None) -> Self:
        """Then answer a question."""
        return self._then("answer", value, by=by)

    def cancel(self, comment: str | None = None, *, by: Reviewer | str | None = None) -> Self:
        """Then cancel the run."""
        return self._then("cancel", comment, by=by)

    def leave(self) -> Self:
        """Then leave a request to wait, for good."""
        return self._then("leave")

    # -- at work -----------------------------------------------------------------------------------------------

    def decide_next(self) -> Request:
        """Decide the oldest request that waits by the next step, and return it.

        Raises:
            AssertionError: Nothing waits, or no step is left.
            SaysoError: The decision was refused.
        """
        request = self._waiting()
        assert request is not None, f"no request waits for the step {self._steps[0] if self._steps else '(none left)'}"
        assert self._steps, f"no step is left for {request.id}"
        return self._decide(request)

    def _waiting(self) -> Request | None:
        return next((one for one in self._review.list(state=State.PENDING) if one.id not in self._left), None)

    def _decide(self, request: Request) -> Request:
        step = self._steps.popleft()
        self.seen.append(request)
        if step.verb == "leave":
            self._left.add(request.id)
            return request
        verb = partial(getattr(self._review, step.verb), request.id, *step.words, **step.options)
        return verb()

    def _work(self) -> None:
        while not self._stop.wait(_PACE):
            request = self._waiting()
            if request is None:
                continue
            if not self._steps:
                self._problems.append(f"{request.id} came, and no step was left for it")
                self._give_up(request)
                continue
            try:
                self._decide(request)
            except Exception as error:  # noqa: BLE001  # reported at the end of the test; a dead thread would let it hang
                self._problems.append(f"{type(error).__name__}: {error}")
                self._give_up(request)

    def _give_up(self, request: Request) -> None:
        """Cancel a request without a step, so that the test fails instead of waiting for ever."""
        self._left.add(request.id)
        anybody = Reviewer("scripted reviewer", roles=request.quorum.roles, issuer="script")
        with suppress(SaysoError):  # somebody else was faster
            if request.claimed_by is not None:
                self._review.release(request.id, by=anybody, force=True)
            self._review.cancel(request.id, "the script has no step for it", by=anybody)

    def __enter__(self) -> Self:
        self._stop.clear()
        self._thread = threading.Thread(target=self._work, name="sayso-scripted-reviewer", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if error is None:
            self.must_be_done()
        elif problems := self._reported():
            error.add_note(f"scripted reviewer: {problems}")  # probably the cause of what the block raised

    def must_be_done(self) -> None:
        """Check that every step was used and every request met one; each problem is reported once.

        Raises:
            AssertionError: One was not.
        """
        problems = self._reported()
        assert not problems, problems

    def _reported(self) -> str:
        problems = [*self._problems, *(f"the step {step} was not needed" for step in self._steps)]
        self._problems.clear()
        self._steps.clear()
        return "; ".join(problems)
