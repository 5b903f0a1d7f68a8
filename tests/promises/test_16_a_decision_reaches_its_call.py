"""16. A decision reaches only the call that asked for it; a call that nobody waits for any more does not start."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import sayso
from sayso import errors
from tests.integration.acting import waiting_in
from tests.promises.world import World


def test_16_a_decision_reaches_only_the_call_that_asked_for_it_and_still_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.terminal.is_there", lambda: False)
    ran: list[str] = []
    pay = sayso.gate(name="pay")(ran.append)
    review = sayso.Review(reviewer="ada")

    def conversation() -> None:
        with sayso.run():
            pay("alice")

    async def main() -> None:
        left = asyncio.create_task(asyncio.to_thread(conversation))
        (first,) = await asyncio.to_thread(waiting_in, world.store)
        left.cancel()  # nobody waits for what its thread does
        await asyncio.wait([left])
        following = asyncio.create_task(asyncio.to_thread(conversation))
        await asyncio.to_thread(waiting_in, world.store)
        with suppress(errors.AlreadyDecidedError):
            review.approve(first.id)
        (second,) = await asyncio.to_thread(waiting_in, world.store)
        assert (second.id != first.id, ran) == (True, [])
        review.reject(second.id)
        with pytest.raises(sayso.ConfirmationRejected):
            await following

    asyncio.run(main())  # it ends when all of its threads have
    assert ran == []
    with ThreadPoolExecutor(1) as pool:  # the thread that serves the next one, too
        for _ in range(2):
            call = pool.submit(pay, "bob")
            (request,) = waiting_in(world.store)
            review.approve(request.id)
            call.result(30)
    assert ran == ["bob", "bob"]
