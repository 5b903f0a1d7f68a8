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


def test_1_a_yes_to_what_was_shown_does_not_count_for_what_another_reviewer_made_of_it(world: World) -> None:
    ran: list[int] = []
    sayso.configure(reviewer="bob")
    pay = sayso.confirm_first(quorum=2, name="pay")(ran.append)

    class Payer(sayso.Module):
        def forward(self, amount: int) -> sayso.Prediction:
            return sayso.Prediction(paid=pay(amount))

    def changed(shown: sayso.ConfirmationRequired) -> sayso.ConfirmationRequired:
        assert sayso.Review().approve(shown.id, by="ada", changes={"object": 1_000}).missing_votes == 1
        return shown

    stale = changed(held(pay, 10))
    for data in (None, {"object": 10}):
        with pytest.raises(errors.StaleViewError):
            sayso.respond_to_confirmation(stale.id, data=data)
    # A program may save less.
    unaware = {name: part for name, part in stale.to_dict().items() if name != "fingerprint"}
    for saved in (stale.to_dict(), unaware):
        with pytest.raises(errors.StaleViewError):
            Payer()(10, resume_state=saved, user_response="yes")
    assert ran == []

    shown = held(pay, 10)
    assert (shown.question, shown.fingerprint) == (
        "Confirm execution of pay(object=1000)?", world.store.get(shown.id).current_fingerprint,
    )  # fmt: skip
    assert shown.tool_call == {"name": "pay", "args": {"object": 1_000}, "call_id": None}
    Payer()(10, resume_state=shown.to_dict(), user_response="yes")
    stale = changed(held(pay, 30))
    with pytest.raises(sayso.ConfirmationRejected):
        Payer()(30, resume_state=stale, user_response="no")  # which is a no to the changed call, too
    changed(held(pay, 20))
    shown = held(pay, 20)
    sayso.respond_to_confirmation(shown.id, seen=shown.fingerprint)
    pay(20)
    assert ran == [1_000, 1_000]


def test_1_nor_does_a_yes_that_is_passed_to_a_run(world: World) -> None:
    ran: list[int] = []
    sayso.configure(reviewer="bob")

    def charge(amount: int) -> None:
        ran.append(amount)

    tool = sayso.Tool(charge, requires_approval=True, quorum=2)
    paused = tool(amount=10).run()
    (event,) = paused.pending_approvals
    sayso.Review().approve(event.id, by="ada", changes={"amount": 1_000})
    for yes in (True, {"approved": True}, {"approved": True, "seen": event.fingerprint}):
        with pytest.warns(UserWarning, match="changed since you looked"):
            after = tool(parent_id=paused.run_id, resume={event.id: yes}).run()
        assert after.status.reason == "approval_required"
    assert ran == []
    (event,) = after.pending_approvals
    assert (event.input, event.fingerprint) == ({"amount": 1_000}, world.store.get(event.id).current_fingerprint)
    tool(parent_id=paused.run_id, resume={event.id: {"approved": True, "seen": event.fingerprint}}).run()
    assert ran == [1_000]
