"""4. The requester cannot decide its own request."""

from __future__ import annotations

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from tests.promises.world import World
from tests.support.acting import held
from tests.support.commands import sayso as command

RUN = "order-4721"


def test_4_the_requester_cannot_decide_its_own_request(world: World) -> None:
    @sayso.gate(wait="raise")
    def pay(amount: int) -> None:
        raise AssertionError

    with sayso.run(RUN, on_behalf_of="carol"):
        request = sayso.Review().get(held(pay, 1).confirmation_id)
    itself = sayso.Reviewer(request.requester.subject, issuer=request.requester.issuer)
    for who in ("carol", "CAROL", "\uff43arol", itself):
        review = sayso.Review(reviewer=who, channel="chat")
        for decides in (review.approve, review.reject, review.cancel, review.claim):
            with pytest.raises(errors.OwnRequestError):
                decides(request.id)
        with pytest.raises(errors.OwnRequestError):
            review.approve(request.id, changes={"amount": 2})
    assert command("approve", request.id, "--as", "Carol").code == 1
    assert world.store.get(request.id) == request
    assert [entry.event for entry in world.store.journal(request_id=request.id)] == ["asked"]
    assert sayso.Review().approve(request.id, by="ada").state is State.APPROVED
