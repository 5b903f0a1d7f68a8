"""1. What runs is what was shown and approved: arguments are bound and stored with types when the call is asked."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import sayso
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
