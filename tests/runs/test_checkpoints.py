"""A checkpoint of a run: each step goes into one, nothing is lost where it is not saved, and what waits comes last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sayso.errors import ArgumentError
from sayso.model.run import RunState
from sayso.runs.state import RunHistory, given_arguments
from sayso.stores.base import Store
from tests.support.running import awaited

WAITS: dict[str, Any] = {"waits": "rq_1", "path": "pay", "name": "pay"}


@pytest.fixture
def history(memory: Store) -> RunHistory:
    """A run that has done two things and saved nothing."""
    made = RunHistory.new(memory, "order-1", "clerk", "agent")
    made.put("clerk/turn0", {"reply": 0})
    made.put("clerk/turn0.0", {"status": {"code": "success"}})
    return made


def places(checkpoint: Any) -> list[str]:
    return [step.place for step in checkpoint.update.steps]


def test_each_step_goes_into_one_checkpoint(history: RunHistory) -> None:
    first = history.checkpoint()
    history.put("clerk/turn1", {"reply": 1})
    second = history.checkpoint()
    assert (places(first), places(second)) == (["clerk/turn0", "clerk/turn0.0"], ["clerk/turn1"])


def test_what_was_not_saved_goes_into_the_next_one_in_its_order(history: RunHistory) -> None:
    first = history.checkpoint()
    history.put("clerk/turn1", {"reply": 1})
    first.release()
    assert places(history.checkpoint()) == ["clerk/turn0", "clerk/turn0.0", "clerk/turn1"]


def test_what_was_saved_is_not_saved_again(history: RunHistory) -> None:
    checkpoint = history.checkpoint()
    checkpoint.saved()
    checkpoint.release()
    assert history.is_stored
    assert places(history.checkpoint()) == []


def test_an_argument_that_cannot_be_written_leaves_everything_unsaved(history: RunHistory) -> None:
    history.put("(input)", {"given": given_arguments({"odd": object()})})
    for _ in range(2):
        with pytest.raises(ArgumentError):
            history.checkpoint()


def test_what_waits_is_known_when_it_is_saved_and_not_before(history: RunHistory) -> None:
    checkpoint = history.checkpoint(("clerk/turn0.1", WAITS))
    assert places(checkpoint)[-1] == "clerk/turn0.1"
    assert list(history.waiting()) == []
    checkpoint.saved("rq_1")
    assert [body["waits"] for _, body in history.waiting()] == ["rq_1"]


@pytest.mark.parametrize(("met", "is_released"), [("rq_1", True), ("rq_0", False)])
def test_a_run_stays_leased_where_the_store_met_an_earlier_request(
    history: RunHistory, met: str, is_released: bool
) -> None:
    checkpoint = history.checkpoint(("clerk", WAITS), RunState.PAUSED)
    checkpoint.saved(met)
    assert history.is_released is is_released
    assert [body["waits"] for _, body in history.waiting()] == [met]


@awaited
async def test_what_waits_is_not_asked_before_that_which_led_to_it_is_saved(memory: Store) -> None:
    history = RunHistory.new(memory, "order-1", "clerk", "agent")
    history.put("clerk/turn0", {"reply": 0})
    checkpoint = history.checkpoint()
    asking = asyncio.ensure_future(history.quiet().arun())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    checkpoint.saved()
    await asking
