"""12. Ids are random, and knowing one grants no rights."""

from __future__ import annotations

import pytest

import sayso
from sayso import errors
from sayso.model.lifecycle import Outcome
from tests.promises.world import World
from tests.support.acting import concurrently, held

RUN = "order-4721"


def test_12_ids_are_random_and_knowing_one_gives_no_right(world: World) -> None:
    ran: list[str] = []
    pay = sayso.gate(wait="raise", name="pay")(ran.append)
    ids: list[str] = []
    for _ in range(64):
        ids.append(held(pay, "alice").confirmation_id)
        sayso.clear_confirmation(ids[-1])
    bits = [int(one.removeprefix("rq_"), 16) for one in ids]
    assert len(set(ids)) == 64
    assert all(len(one) >= len("rq_") + 32 for one in ids)
    for place in range(128):  # each of 128 bits is drawn: none of them stood still
        assert len({number >> place & 1 for number in bits}) == 2

    with sayso.run(RUN, on_behalf_of="carol"):
        known = held(pay, "alice").confirmation_id
        with pytest.raises(errors.OwnRequestError):
            sayso.Review().approve(known, by="carol")
    with pytest.raises(errors.StartRefusedError):
        world.store.start(known, "token")
    sayso.Review().approve(known, by="ada")
    token = "guessed"
    with pytest.raises(errors.StartRefusedError):
        world.store.finish(known, token, Outcome("done"))
    elsewhere = concurrently(1, lambda: pay("alice"))  # who knows the id, and has not its run
    assert type(elsewhere[0]) is sayso.ConfirmationRequired
    with sayso.run("order-4722"):
        assert held(pay, "alice").confirmation_id != known
        sayso.respond_to_confirmation("rq_" + "0" * 32, approved=True)
        held(pay, "alice")
    with sayso.run(RUN):
        held(pay, "bob")  # in its run, but another call
        assert ran == []
        pay("alice")
    assert ran == ["alice"]
