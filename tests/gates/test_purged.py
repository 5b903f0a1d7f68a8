"""What programs and people meet where something was purged: a no still holds, and nothing is done a second time."""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from sayso import audit
from sayso.audit.export import purge
from sayso.model.reviewer import LOCAL, Identity
from sayso.runs.load import load_run
from sayso.server import create_app
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import held
from tests.support.browsing import browser, text_of
from tests.support.running import agent_of, paying, reason, started, yes

ADA = Identity(LOCAL, "ada")


def purged(store: Store, clock: Clock) -> int:
    """Purge everything that has ended by now."""
    clock.tick(days=2)
    return purge(store, before=clock(), by=ADA, channel="test").requests


def test_a_no_still_holds_and_nobody_is_asked_again(each_store: Store, clock: Clock, ran: list[Any]) -> None:
    @sayso.gate(wait="raise")
    def pay(amount: int) -> None:
        ran.append(amount)

    with sayso.run("order-4721"):
        request_id = held(pay, 80).confirmation_id
        sayso.Review().reject(request_id, "too much")
        with pytest.raises(sayso.ConfirmationRejected, match="too much"):
            pay(80)
        assert purged(each_store, clock) == 1
        with pytest.raises(sayso.ConfirmationRejected) as told:
            pay(80)
    assert "too much" not in str(told.value)
    assert (ran, each_store.get(request_id).state) == ([], "rejected")


def test_a_spent_approval_stays_spent(each_store: Store, clock: Clock, ran: list[Any]) -> None:
    @sayso.gate(wait="raise")
    def pay(amount: int) -> None:
        ran.append(amount)

    with sayso.run("order-4721"):
        first = held(pay, 80).confirmation_id
        sayso.Review().approve(first)
        pay(80)
        purged(each_store, clock)
        assert held(pay, 80).confirmation_id != first
    assert ran == [80]


def test_a_run_that_ended_and_was_purged_is_not_begun_again(each_store: Store, clock: Clock, ran: list[Any]) -> None:
    pay = paying(ran)
    agent = agent_of([pay], [("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    done = agent(parent_id=paused.run_id, approval_decisions=yes(paused)).run()
    assert (reason(done)[0], len(ran)) == ("success", 1)
    assert purged(each_store, clock) == 1
    for again in (
        agent_of([pay], [("pay", {"amount": 1})])(parent_id=paused.run_id).run(),
        agent_of([pay], [("pay", {"amount": 1})])(prompt="go", run_id=paused.run_id).run(),
    ):
        assert reason(again)[0] == "error"
        assert again.error is not None
        assert again.error["type"] == "RunPurgedError"
        assert "it is not run again" in again.error["message"]
    assert len(ran) == 1
    loaded = load_run(paused.run_id)
    assert (loaded.record.state, loaded.spans, loaded.pending_approvals()) == ("ended", (), [])
    assert audit.verify(each_store).broken == ()


def test_a_run_that_waits_keeps_what_it_needs(each_store: Store, clock: Clock, ran: list[Any]) -> None:
    pay = paying(ran)
    agent = agent_of([pay], [("pay", {"amount": 1})], [("pay", {"amount": 2})])
    first = started(agent, prompt="go")
    second = agent(parent_id=first.run_id, approval_decisions=yes(first)).run()
    assert purged(each_store, clock) == 0
    assert len(each_store.get_run(second.run_id).steps) > 2


def test_the_inbox_shows_what_is_left(each_store: Store, clock: Clock) -> None:
    @sayso.gate(wait="raise", prompt="CANARY prompt")
    def pay(to: str) -> str:
        return "CANARY result"

    with sayso.run("order-4721"):
        request_id = held(pay, "CANARY argument").confirmation_id
        sayso.Review().approve(request_id)
        pay("CANARY argument")
    app = create_app(each_store)
    with browser(app) as ada:
        assert "CANARY" in ada.get(f"/r/{request_id}").text
    purged(each_store, clock)
    with browser(app) as ada:
        for path in (f"/r/{request_id}", "/history", "/?all=1", "/runs/order-4721"):
            page = ada.get(path)
            assert page.status_code == 200, path
            assert "CANARY" not in page.text
        assert "removed on" in text_of(ada.get(f"/r/{request_id}").text)
