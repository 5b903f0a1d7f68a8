"""6. Everything expires, and nothing expires into an approval."""

from __future__ import annotations

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from tests.conftest import Clock
from tests.promises.world import World
from tests.support.acting import held


def test_6_everything_expires_and_nothing_into_an_approval(world: World, clock: Clock) -> None:
    ran: list[int] = []
    pay = sayso.gate(wait="raise", name="pay")(ran.append)
    pending, approved = (held(pay, n).confirmation_id for n in (1, 2))
    sayso.Review().approve(approved, by="ada")
    clock.tick(hours=24, microseconds=-1)
    assert {sayso.Review().get(one).state for one in (pending, approved)} == {State.PENDING, State.APPROVED}
    clock.tick(microseconds=1)
    with pytest.raises(errors.RequestExpiredError):
        sayso.Review().approve(pending, by="ada")
    with pytest.raises(errors.RequestExpiredError):
        sayso.Review().approve(approved, by="bob")
    with pytest.raises(errors.ApprovalExpiredError):
        world.store.start(approved, "token")
    assert {held(pay, n).confirmation_id for n in (1, 2)} & {pending, approved} == set()
    clock.tick(days=-2)  # a clock that is set back revives nothing
    for one in (pending, approved):
        assert world.store.settle(one).state is State.EXPIRED
    clock.tick(days=40)
    states = {request.state for request in sayso.Review().list(state="all").requests}
    assert (ran, states) == ([], {State.EXPIRED})
