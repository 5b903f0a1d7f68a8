"""2. One approval starts its call at most once, across threads, tasks, processes and machines."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import sayso
from sayso.model.request import State
from tests.promises.world import World
from tests.support.acting import running


def test_2_one_approval_starts_its_call_at_most_once(world: World) -> None:
    request_id = world.pays()
    sayso.Review().approve(request_id, by="ada")
    racers = [world.start("threads") for _ in range(4)]
    deadline = time.monotonic() + 30
    while len(list(world.effects.parent.glob("effects.ready.*"))) < len(racers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    world.effects.with_suffix(".go").touch()
    told = [outcome for racer in racers for outcome in running(racer).split()]
    assert len(told) == 20
    assert told.count("paid") == 1
    assert {one for one in told if not one.startswith("rq_")} <= {"paid", "AlreadyStartedError"}
    assert len(world.ran()) == 1
    assert world.store.get(request_id).state is State.DONE

    ran: list[int] = []

    @sayso.gate(wait="raise")
    async def pay(amount: int) -> str:
        ran.append(amount)
        await asyncio.sleep(0)
        return "paid"

    async def tasks() -> list[Any]:
        pause = (await asyncio.gather(pay(10), return_exceptions=True))[0]
        sayso.Review().approve(pause.confirmation_id, by="ada")
        return await asyncio.gather(*(asyncio.create_task(pay(10)) for _ in range(20)), return_exceptions=True)

    with sayso.run("order-1"):
        outcomes = asyncio.run(tasks())
    assert (outcomes.count("paid"), len(outcomes), ran) == (1, 20, [10])
