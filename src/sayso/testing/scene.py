"""The fixture of a store's tests: one store, a fixed clock, and short methods for actions of people and programs.

The tests are in `sayso.testing.contract`. Invariant: everything goes through the store's own verbs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, TypeVar

from sayso.errors import SaysoError
from sayso.model.ids import new_token
from sayso.model.journal import Entry
from sayso.model.lifecycle import Outcome
from sayso.model.request import Call, Decision, Request, State, Verb
from sayso.model.reviewer import LOCAL, Identity
from sayso.stores.base import Filter, Store
from sayso.testing.doubles import Clock, frozen_clock, sample_call, sample_question

E = TypeVar("E", bound=BaseException)
ADA, BOB = Identity(LOCAL, "ada"), Identity(LOCAL, "bob")


def refusal(kind: type[E], verb: Callable[[], object]) -> E:
    """Return the error of this kind that a verb raises; raise `AssertionError` if it does not raise one."""
    try:
        value = verb()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__} to be raised, but {value!r} was returned")


def outcomes_of(works: Sequence[Callable[[], object]]) -> list[object]:
    """Run all functions at once, each in a thread; return their results or exceptions in order."""
    results: list[object] = [None] * len(works)
    together = threading.Barrier(len(works))

    def work(place: int) -> None:
        together.wait()
        try:
            results[place] = works[place]()
        except SaysoError as error:
            results[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Scene:
    """One test's store and clock. pytest calls `setup_method` before and `teardown_method` after each test.

    Attributes:
        searches_words: Whether `Filter.text` also searches prompts and questions; a store that encrypts them may not.
    """

    searches_words: bool = True

    def make_store(self) -> Store:
        """Create an empty store; called on a test's first use of `store`."""
        raise NotImplementedError("the subclass must make the store under test")

    def elsewhere(self, store: Store) -> Store:
        """Open the same store through another object, as another process would; the default returns `store`."""
        return store

    def setup_method(self) -> None:
        """Freeze the clock."""
        self._store: Store | None = None
        self._making = threading.Lock()  # several threads may use `store` for the first time at once
        self._frozen: AbstractContextManager[Clock] = frozen_clock()
        self.clock = self._frozen.__enter__()

    def teardown_method(self) -> None:
        """Close the store, and unfreeze the clock."""
        if self._store is not None:
            self._store.close()
        self._frozen.__exit__(None, None, None)

    @property
    def store(self) -> Store:
        """The store under test."""
        with self._making:
            if self._store is None:
                self._store = self.make_store()
            return self._store

    def recorded(self, request: Request) -> Request:
        """Return a request as the store records it: unchanged by default; a server sets the requester."""
        return request

    # -- what people do ----------------------------------------------------------------------------------------

    def ask(self, run_id: str | None = None, **fields: Any) -> Request:
        """Record a new request for a call."""
        return self.store.ask(sample_call(run_id, **fields))

    def decide(
        self, verb: Verb, request: Request, by: Identity = ADA, *, roles: Collection[str] = (),
        edited: Call | None = None, answer: str | None = None, seen: str | None = None, store: Store | None = None,
        held_for: timedelta | None = None,
    ) -> Request:  # fmt: skip
        """Decide a request as it was last seen."""
        looked_at = request.current_fingerprint
        decided = looked_at if edited is None else request.fingerprint_of(edited.digest)
        decision = Decision(
            verb, by, self.clock(), "test", "said so", decided, edited is not None, answer, held_for=held_for
        )
        where = self.store if store is None else store
        return where.decide(request.id, decision, roles=roles, seen=seen or looked_at, edited=edited)

    def approved(self, **fields: Any) -> Request:
        """Record a request and approve it."""
        return self.decide("approve", self.ask(**fields))

    def started(self, token: str | None = None, **fields: Any) -> Request:
        """Record a request, approve and start it."""
        return self.store.start(self.approved(**fields).id, token or new_token())

    def unknown(self, token: str | None = None, **fields: Any) -> Request:
        """Record a request, approve and start it, and leave its outcome unknown."""
        token = token or new_token()
        return self.store.finish(self.started(token, **fields).id, token, Outcome("unknown"))

    def in_state(self, state: State, request: Request | None = None) -> Request:
        """Bring a pending request, by default a new one, into this state with the store's verbs."""
        if state is State.ANSWERED:
            return self.decide("answer", request or self.question(), answer='{"answer":"main"}')
        request = request or self.ask(
            expires_at=self.clock() + timedelta(seconds=1 if state is State.EXPIRED else 86_400)
        )
        verbs: dict[State, Verb] = {State.REJECTED: "reject", State.FEEDBACK: "feedback", State.CANCELLED: "cancel"}
        if state is State.PENDING:
            return request
        if state is State.EXPIRED:
            self.clock.at = request.expires_at
            return self.store.settle(request.id)
        after = self.decide(verbs.get(state, "approve"), request)
        if state is State.APPROVED or state in verbs:
            return after
        running = self.store.start(request.id, "t")
        ends = {State.DONE: Outcome("done"), State.FAILED: Outcome("failed"), State.UNKNOWN: Outcome("unknown")}
        return running if state is State.RUNNING else self.store.finish(request.id, "t", ends[state])

    def question(self, **fields: Any) -> Request:
        """Record a new question."""
        return self.store.ask(sample_question(**fields))

    def events(self, request: Request) -> list[str]:
        """Return the events that the journal records for a request."""
        return [entry.event for entry in self.store.journal(request_id=request.id)]

    def everything(self) -> tuple[list[Request], list[Entry]]:
        """Return all requests and journal rows, to compare them before and after."""
        return list(self.store.list(Filter(), limit=1000).requests), list(self.store.journal())
