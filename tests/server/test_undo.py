"""Undo on the pages: an approval that a person takes back before its call could start.

The invariant: what the page offers to undo has not started, and what has started is not offered.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.server import create_app
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import held, payer
from tests.support.browsing import BASE, Browser, browser, fields_of, text_of


@pytest.fixture
def ada(store: Store) -> Browser:
    return browser(create_app(store, undo="5s"), "ada")


def undo(person: Browser, request_id: str, page: str) -> Any:
    """Press the button of a page that offers to undo the decision on a request."""
    form = page.partition(f'action="/r/{request_id}/undo"')[2].partition("</form>")[0]
    return person.submit(f"/r/{request_id}/undo", **fields_of(form))


def several(person: Browser, csrf: str, verb: str, items: list[str]) -> Any:
    return person.post("/bulk", data={"csrf": csrf, "verb": verb, "item": items}, headers={"origin": BASE})


def test_an_approval_is_undone_from_the_page_that_follows_it(store: Store, ada: Browser, clock: Clock) -> None:
    pay = payer()
    first, second = held(pay, 1).confirmation_id, held(pay, 2).confirmation_id
    page = ada.decide(first, "approve", then=second)
    assert f'action="/r/{first}/undo"' in page.text
    form = page.text.partition("data-undo=")[2].partition("</form>")[0]
    assert "not started yet" in form  # it goes with the button, as soon as it may be wrong
    assert "not started" not in text_of(page.text.replace(form, ""))
    with pytest.raises(errors.ApprovalHeldError):
        store.start(first, "t")
    back = undo(ada, first, page.text)
    assert back.status_code == 200
    assert store.get(first).state is State.PENDING
    assert "ada undid the approval; it is pending again." in text_of(back.text)
    clock.at += timedelta(seconds=6)
    with pytest.raises(errors.NotApprovedError):
        store.start(first, "t")


def test_the_button_says_how_long_and_afterwards_the_call_is_cancelled_unless_it_started(
    store: Store, ada: Browser, clock: Clock
) -> None:
    pay = payer()
    first, second, third = (held(pay, amount).confirmation_id for amount in (1, 2, 3))
    page = ada.decide(first, "approve", then=third).text
    assert "Undo within 5 s" in text_of(page)
    assert f'href="/r/{first}#cancel"' in page
    ada.decide(second, "approve")
    clock.at += timedelta(seconds=6)
    assert "/undo" not in ada.get(f"/r/{third}?done={first}").text
    assert f'href="/r/{first}#cancel"' in ada.get(f"/r/{third}?done={first}").text
    for one in (first, second):
        assert "Cancel the run before the call starts" in text_of(ada.get(f"/r/{one}").text)
    fields = fields_of(ada.get(f"/r/{second}").text)
    assert ada.decide(first, "cancel", note="wrong customer").status_code == 200
    assert store.get(first).state is State.CANCELLED
    with pytest.raises(errors.NotApprovedError):
        store.start(first, "t")
    store.start(second, "t")
    assert "Cancel the run" not in ada.get(f"/r/{second}").text
    late = ada.submit(f"/r/{second}/cancel", csrf=fields["csrf"], seen=fields["seen"])
    assert late.status_code == 409
    assert store.get(second).state is State.RUNNING
    assert "#cancel" not in ada.get(f"/r/{third}?done={second}").text


def test_a_vote_that_can_be_undone_leaves_the_end_of_its_request_apart(ada: Browser, clock: Clock) -> None:
    @sayso.gate(wait="raise", quorum=2)
    def wire(amount: int) -> None: ...

    page = ada.decide(held(wire, 1).confirmation_id, "approve").text
    assert "data-undo" in page
    assert re.search(r"asked just now · expires in", text_of(page))


def test_a_vote_is_undone_although_somebody_else_has_voted_since(store: Store, ada: Browser) -> None:
    @sayso.gate(wait="raise", quorum=2)
    def wire(amount: int) -> None: ...

    request_id = held(wire, 1).confirmation_id
    ada.decide(request_id, "approve")
    sayso.Review().approve(request_id, by="bob")
    assert store.get(request_id).state is State.APPROVED
    with pytest.raises(errors.ApprovalHeldError):
        store.start(request_id, "t")
    undo(ada, request_id, ada.get(f"/r/{request_id}").text)
    found = store.get(request_id)
    assert (found.state, [vote.by.subject for vote in found.votes]) == (State.PENDING, ["bob"])


def test_what_is_pressed_too_late_is_refused_and_starts(store: Store, ada: Browser, clock: Clock) -> None:
    request_id = held(payer(), 1).confirmation_id
    page = ada.decide(request_id, "approve")
    clock.at += timedelta(seconds=5)
    late = undo(ada, request_id, page.text)
    assert late.status_code == 409
    assert "It can no longer be undone" in text_of(late.text)
    assert "/undo" not in ada.get(f"/r/{request_id}").text
    assert store.start(request_id, "t").state is State.RUNNING


def test_nobody_is_offered_to_undo_what_another_approved(store: Store, ada: Browser) -> None:
    request_id = held(payer(), 1).confirmation_id
    assert "/undo" in ada.decide(request_id, "approve").text
    bob = browser(create_app(store, undo="5s"), "bob")
    assert "/undo" not in bob.get(f"/r/{request_id}").text


def test_several_are_undone_at_once(store: Store, ada: Browser) -> None:
    pay = payer()
    ids = [held(pay, amount).confirmation_id for amount in (1, 2, 3)]
    items = [f"{one}:{store.get(one).fingerprint}" for one in ids]
    csrf = fields_of(ada.get("/grants").text)["csrf"]
    done = several(ada, csrf, "approve", items)
    assert "Undo all" in text_of(done.text)
    undone = several(ada, csrf, "undo", items)
    assert "3 of 3 undone" in text_of(undone.text)
    assert {store.get(one).state for one in ids} == {State.PENDING}


def test_a_decision_by_the_api_of_python_starts_at_once(store: Store) -> None:
    request_id = held(payer(), 1).confirmation_id
    sayso.Review(store, by="ada").approve(request_id)
    assert store.start(request_id, "t").state is State.RUNNING


@pytest.mark.parametrize(("undo", "waits"), [("0", None), ("2s", timedelta(seconds=2)), ("60s", timedelta(seconds=60))])
def test_how_long_is_a_setting(store: Store, undo: str, waits: timedelta | None) -> None:
    assert create_app(store, undo=undo).state.settings.undo_within == waits


def test_a_setting_that_would_hold_programs_up_for_long_is_refused(store: Store) -> None:
    with pytest.raises(errors.ConfigError, match="at most 60s"):
        create_app(store, undo="2m")


def test_what_was_just_decided_is_said_once(ada: Browser) -> None:
    page = ada.decide(held(payer(), 1).confirmation_id, "approve").text
    assert text_of(page.partition("<main")[2].partition("<aside")[0]).count("approved by ada") == 1
