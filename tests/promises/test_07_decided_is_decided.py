"""7. A decision is final: a second one is refused, and the error says who decided, when and through which channel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import sayso
from sayso import errors
from sayso.model.request import FINAL, Request, State
from tests.promises.world import World
from tests.support.acting import held
from tests.support.commands import sayso as command


def transfer(to: str) -> str:
    return to


def test_7_decided_is_decided(world: World) -> None:
    ways: dict[str, Callable[[sayso.Review, str], Request]] = {
        "approve": lambda review, one: review.approve(one),
        "edit": lambda review, one: review.approve(one, changes={"to": "eve"}),
        "reject": lambda review, one: review.reject(one, "no"),
        "feedback": lambda review, one: review.feedback(one, "less"),
        "cancel": lambda review, one: review.cancel(one),
    }
    pay = sayso.gate(wait="raise")(transfer)
    for first, decide in ways.items():
        request_id = held(pay, first).confirmation_id
        decided = decide(sayso.Review(reviewer="ada", channel="chat"), request_id)
        for second, decide_again in ways.items():
            if (first, second) in {("approve", "cancel"), ("edit", "cancel")}:
                continue  # an approval may be taken back until its call has started
            with pytest.raises(errors.AlreadyDecidedError) as refused:
                decide_again(sayso.Review(reviewer="bob", channel="web"), request_id)
            assert (refused.value.by, refused.value.channel) == ("ada", "chat")
            assert decided.decision is not None
            assert refused.value.at == decided.decision.at
        late = command("reject", request_id, "--as", "bob", "-m", "too late")
        assert (late.code, "ada" in late.err) == (3, True)
        assert world.store.get(request_id) == decided
        assert decided.state is State.APPROVED or decided.state in FINAL
