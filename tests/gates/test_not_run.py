"""What keeps an approved call from running, at the last moment: a store that fails, an end that is reached, a cancel.

The invariant: where the start is not surely this caller's own, the function is not called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.support.acting import aflaky, approved, flaky, held, state_of


def failing(monkeypatch: pytest.MonkeyPatch, store: Store, verb: str, *, after: bool = False) -> None:
    """Let a verb of the store fail, before or after it has done its work."""
    real = getattr(store, verb)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if after:
            real(*args, **kwargs)
        raise errors.StoreFullError("no room left")

    monkeypatch.setattr(store, verb, fail)


def test_outcome_that_cannot_be_recorded_is_told_with_the_result(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    act = flaky(ran, ["paid"])
    request_id = approved(act, 1)
    failing(monkeypatch, store, "finish")
    with pytest.raises(errors.OutcomeNotRecordedError, match="no room left") as caught:
        act(1)
    assert (caught.value.request_id, caught.value.result) == (request_id, "paid")
    monkeypatch.undo()
    assert store.get(request_id).state is State.RUNNING
    with pytest.raises(errors.AlreadyStartedError):
        act(1)
    assert ran == [1]


def test_error_of_a_call_is_raised_with_a_note_when_it_cannot_be_recorded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = flaky([], [ValueError("mine")])
    request_id = approved(act, 1)
    failing(monkeypatch, store, "finish")
    with pytest.raises(ValueError, match="mine") as caught:
        act(1)
    assert any(request_id in note and "no room left" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("verb", ["find", "ask"])
def test_call_that_cannot_be_asked_does_not_run(store: Store, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    ran: list[int] = []
    failing(monkeypatch, store, verb)
    monkeypatch.setattr(store, "asks_first", lambda _: verb == "ask")
    with pytest.raises(errors.StoreFullError):
        flaky(ran, [])(1)
    with pytest.raises(errors.StoreFullError):
        asyncio.run(aflaky(ran, [])(1))
    assert ran == []


@pytest.mark.parametrize("after", [False, True])
def test_call_whose_start_cannot_be_recorded_does_not_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    ran: list[int] = []
    act = flaky(ran, [])
    request_id = approved(act, 1)
    failing(monkeypatch, store, "start", after=after)
    with pytest.raises(errors.StoreFullError):
        act(1)
    monkeypatch.undo()
    assert ran == []
    # Where the start was recorded after all, the record says that nothing ran.
    assert store.get(request_id).state is (State.FAILED if after else State.APPROVED)


def test_denial_that_cannot_be_recorded_is_still_no_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    failing(monkeypatch, store, "note")
    with pytest.raises(errors.StoreFullError):
        flaky(ran, [], when=lambda: sayso.deny("no"))(1)
    assert ran == []


@pytest.mark.parametrize("address", ["sqlite:////proc/nowhere/sayso.db", "sqlite:///."])
def test_store_that_cannot_be_opened_runs_nothing(address: str) -> None:
    ran: list[int] = []
    with pytest.raises(errors.StoreError):
        flaky(ran, [], store=address)(1)
    assert ran == []


# -- too late --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("milliseconds", "runs"), [(-1, True), (0, False), (1, False)])
def test_approval_ends_at_its_very_instant(store: Store, clock: Clock, milliseconds: int, runs: bool) -> None:
    ran: list[int] = []
    act = flaky(ran, [], approval_expires="1h")
    request_id = approved(act, 1)
    clock.tick(hours=1, milliseconds=milliseconds)
    if runs:
        assert act(1) == "done"
    else:
        assert held(act, 1).confirmation_id != request_id
        assert store.get(request_id).state is State.EXPIRED
    assert len(ran) == runs


def before_start(monkeypatch: pytest.MonkeyPatch, store: Store, happens: Callable[[], Any]) -> None:
    """Let something happen between the check that found an approval and the start."""
    start = store.start

    def late(*args: Any, **options: Any) -> Request:
        happens()
        return start(*args, **options)

    monkeypatch.setattr(store, "start", late)


def test_approval_that_ends_between_check_and_start_runs_nothing(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    act = flaky(ran, [], approval_expires="1h")
    request_id = approved(act, 1)
    before_start(monkeypatch, store, lambda: clock.tick(hours=1))
    assert held(act, 1).confirmation_id != request_id
    assert store.get(request_id).state is State.EXPIRED
    assert ran == []


def test_cancellation_between_check_and_start_runs_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    act = flaky(ran, [])
    request_id = approved(act, 1)
    before_start(monkeypatch, store, lambda: sayso.Review().cancel(request_id, "stop", by="ada"))
    with pytest.raises(sayso.ConfirmationCancelled, match="stop"):
        act(1)
    assert ran == []


def test_start_by_somebody_else_between_check_and_start_runs_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    act = flaky(ran, [])
    request_id = approved(act, 1)
    start = store.start
    before_start(monkeypatch, store, lambda: start(request_id, "somebody else's"))
    with pytest.raises(errors.AlreadyStartedError, match="not started again") as caught:
        act(1)
    assert (caught.value.request_id, caught.value.state) == (request_id, "running")
    assert ran == []


def test_a_call_that_has_stopped_half_way_since_it_was_read_is_read_again_and_started(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    act = flaky(ran, [], suspends=LookupError)
    request_id, start = approved(act, 1), store.start

    def stops_half_way_first() -> None:
        during.undo()
        start(request_id, "somebody else's")
        store.finish(request_id, "somebody else's", Outcome("suspended"))

    with monkeypatch.context() as during:
        before_start(during, store, stops_half_way_first)
        assert act(1) == "done"
    assert (ran, state_of(request_id)) == ([1], State.DONE)


def test_clock_that_goes_back_revives_nothing(store: Store, clock: Clock) -> None:
    ran: list[int] = []
    act = flaky(ran, [], approval_expires="1h")
    request_id = approved(act, 1)
    clock.tick(hours=1)
    assert state_of(request_id) is State.EXPIRED
    clock.tick(hours=-1)
    assert held(act, 1).confirmation_id != request_id
    assert state_of(request_id) is State.EXPIRED
    assert ran == []
    assert store.count(Filter(states=frozenset({State.PENDING}))) == 1


def test_a_pending_call_names_the_ways_to_decide_it() -> None:
    """Its own machine may have no `sayso approve` that decides: the store is a server, or that of another folder."""
    ran: list[int] = []
    with sayso.run("r-1"), pytest.raises(sayso.ConfirmationRequired) as raised:
        flaky(ran, [])(1)
    (note,) = raised.value.__notes__
    assert f"`sayso approve {raised.value.id[:11]}` where its store is, or in the inbox" in note
    assert "nothing was run" in note
