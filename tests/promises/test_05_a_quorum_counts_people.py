"""5. A quorum counts distinct people."""

from __future__ import annotations

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from tests.promises.world import World
from tests.support.acting import held
from tests.support.commands import sayso as command


def test_5_a_quorum_counts_distinct_people(world: World) -> None:
    ran: list[int] = []
    pay = sayso.gate(wait="raise", name="pay", quorum=3)(ran.append)
    request_id = held(pay, 10).confirmation_id
    one_person = ("ada", "Ada", "ADA", "\uff41da", "\u24d0da")
    sayso.Review(channel="web").approve(request_id, by=one_person[0])
    for name in one_person:
        for channel in ("chat", "terminal"):
            with pytest.raises(errors.AlreadyVotedError):
                sayso.Review(channel=channel).approve(request_id, by=name)
    assert command("approve", request_id, "--as", "ADA").code != 0
    sayso.Review().approve(request_id, by="bob")
    held(pay, 10)
    assert ran == []
    sayso.Review().approve(request_id, by="bob", changes={"object": 7})  # what ada agreed to is not this
    assert sayso.Review().approve(request_id, by="ada").missing_votes == 1
    held(pay, 10)
    assert sayso.Review().approve(request_id, by="carol").state is State.APPROVED
    pay(10)
    assert ran == [7]
