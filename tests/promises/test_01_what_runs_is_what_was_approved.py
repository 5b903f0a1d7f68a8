"""1. What runs is what was shown and approved: arguments are bound and stored with types when the call is asked."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

import sayso
from sayso import errors
from tests.promises.world import World
from tests.support.acting import held
from tests.support.commands import sayso as command


def test_1_what_runs_is_what_was_shown_and_approved(world: World) -> None:
    ran: list[Any] = []

    @sayso.gate(wait="raise")
    def send(to: list[str], amount: Decimal) -> None:
        ran.append((to, amount))

    people = ["alice"]
    first = held(send, people, Decimal("1.50")).confirmation_id
    assert sayso.Review().approve(first, by="ada").call.arguments == {"to": ["alice"], "amount": "1.50"}
    people.append("mallory")
    held(send, people, Decimal("1.50"))  # another call, which nobody has approved
    held(send, ["alice"], Decimal("1.5"))
    assert ran == []
    send(["alice"], Decimal("1.50"))
    assert ran == [(["alice"], Decimal("1.50"))]

    edited = world.pays()
    assert world.pays() == edited
    assert command("approve", edited, "--as", "ada", "--set", "amount=7.25").code == 0
    assert world.pays() == "paid"  # asks for 10.00 and gets what was approved
    assert world.ran() == ["Decimal('7.25') ['alice', 'bob'] 'rent'"]

    altered = world.pays()
    sayso.Review().approve(altered, by="ada")
    form = world.store.get(altered).call.form
    world.by_hand("UPDATE request SET form = ? WHERE id = ?", form.replace("alice", "mallory"), altered)
    assert [world.pays(), world.pays()] == ["AlteredRequestError"] * 2  # as often as it is asked
    assert world.store.get(altered).execution is None
    assert len(world.ran()) == 1


def test_1_what_another_task_changes_meanwhile_is_neither_run_nor_shown(world: World) -> None:
    ran: list[int] = []

    @sayso.gate(
        when=lambda order: order["amount"] > 100, key="{order[id]}", summary="Pay {order[amount]}", wait="raise"
    )
    async def pay(order: dict[str, Any]) -> None:
        ran.append(order["amount"])

    async def pays(amount: int, then: int) -> Any:
        """Pay for an order that changes as soon as sayso awaits its store."""
        order = {"id": f"A-{amount}", "amount": amount}

        async def change() -> None:
            order["amount"] = then

        changing = asyncio.create_task(change())
        with pytest.raises((errors.PolicyError, sayso.ConfirmationRequired)) as caught:
            await pay(order)
        await changing
        return caught.value

    with sayso.run("order-4721"):
        allowed, held = asyncio.run(pays(5, 1_000_000)), asyncio.run(pays(1_000_000, 5))
    assert isinstance(allowed, errors.PolicyError)
    assert ran == []
    request = world.store.get(held.id)
    assert (request.summary, request.call.arguments["order"]["amount"]) == ("Pay 1000000", 1_000_000)
