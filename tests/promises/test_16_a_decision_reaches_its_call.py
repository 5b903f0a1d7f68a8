"""16. A decision reaches only the call that asked for it; a call that nobody waits for any more does not start."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

import sayso
from sayso import errors
from sayso.gates import dialog
from sayso.model.request import State
from sayso.stores.base import Filter
from tests.promises.world import World
from tests.support.acting import waiting_in

PATIENCE = 30


def test_16_a_decision_reaches_only_the_call_that_asked_for_it_and_still_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: False)
    review = sayso.Review(reviewer="ada")
    ran: list[str] = []
    looks: list[str] = []
    is_decided, may_start = threading.Event(), threading.Event()

    def rule(to: str) -> bool:
        """Stand between decision and start, where the rule is asked again."""
        looks.append(to)
        if looks.count("carol") == 2:
            is_decided.set()
            assert may_start.wait(PATIENCE)
        return True

    @sayso.gate(when=rule)
    def pay(to: str) -> None:
        ran.append(to)

    def pay_three_times() -> None:
        for _ in range(3):
            with suppress(sayso.ConfirmationRejected):
                pay("bob")

    # Equal calls of one thread, which cannot be told from calls of different people: each is decided by itself.
    thread = threading.Thread(target=pay_three_times)
    thread.start()
    for decide in (review.reject, review.approve, review.reject):
        (request,) = waiting_in(world.store)
        decide(request.id)
    thread.join(PATIENCE)
    assert (world.store.count(Filter()), ran) == (3, ["bob"])

    async def left_while_it_waits() -> str:
        task = asyncio.create_task(asyncio.to_thread(pay, "eve"))
        (request,) = await asyncio.to_thread(waiting_in, world.store)
        task.cancel()
        await asyncio.wait([task])
        return request.id

    async def left_after_the_decision() -> str:
        task = asyncio.create_task(asyncio.to_thread(pay, "carol"))
        (request,) = await asyncio.to_thread(waiting_in, world.store)
        review.approve(request.id)
        assert await asyncio.to_thread(is_decided.wait, PATIENCE)
        task.cancel()
        await asyncio.wait([task])
        may_start.set()
        return request.id

    for leaving in (left_while_it_waits, left_after_the_decision):
        request_id = asyncio.run(leaving())  # it ends when all of its threads have
        assert world.store.get(request_id).state is State.CANCELLED
        with pytest.raises(errors.AlreadyDecidedError):
            review.approve(request_id)
    assert ran == ["bob"]
