"""Who may decide: distinct people, their roles, never who asked; and claiming, releasing and extending.

The invariant: one person counts once, however the name is written.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.model.reviewer import Identity, Reviewer
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import Pay, held, payer
from tests.support.ids import stable

FOLDED = ["ada", "ADA", "Ada", "\uff41da", "a\uff24a"]
OTHERS = [Reviewer("ada", issuer="github"), Reviewer("ad\u00e1"), Reviewer("bob"), Reviewer("\u0430da")]


@pytest.mark.parametrize("name", FOLDED)
def test_one_person_counts_once_however_the_name_is_written(review: sayso.Review, name: str) -> None:
    request_id = held(payer(quorum=2), 5).confirmation_id
    review.approve(request_id, by="ada")
    with pytest.raises(errors.AlreadyVotedError):
        review.approve(request_id, by=name)
    assert review.get(request_id).missing_votes == 1


@pytest.mark.parametrize("other", OTHERS, ids=stable)
def test_two_people_count_twice(review: sayso.Review, other: Reviewer) -> None:
    request_id = held(payer(quorum=2), 5).confirmation_id
    assert review.approve(request_id, by="ada").state is State.PENDING
    assert review.approve(request_id, by=other).state is State.APPROVED


def test_quorum_needs_its_role_from_each(review: sayso.Review) -> None:
    pay = payer(quorum=2, roles={"finance", "board"})
    request_id = held(pay, 5).confirmation_id
    for nobody in (Reviewer("eve"), Reviewer("eve", roles={"staff", "Finance"})):
        with pytest.raises(errors.MissingRoleError):
            review.approve(request_id, by=nobody)
    first = review.approve(request_id, by=Reviewer("ada", roles={"finance"}))
    assert (first.state, first.missing_votes, first.decision) == (State.PENDING, 1, None)
    held(pay, 5)
    second = review.approve(request_id, by=Reviewer("bob", roles={"board", "staff"}))
    assert (second.state, [vote.by.subject for vote in second.votes]) == (State.APPROVED, ["ada", "bob"])
    assert pay(5) == "paid 5 to alice"


def test_one_no_ends_a_quorum(review: sayso.Review) -> None:
    pay = payer(quorum=3)
    request_id = held(pay, 5).confirmation_id
    review.approve(request_id, by="ada")
    review.approve(request_id, by="bob")
    assert review.reject(request_id, "no", by="cy").state is State.REJECTED
    with pytest.raises(sayso.ConfirmationRejected):
        pay(5)


def test_edit_begins_the_count_anew(review: sayso.Review) -> None:
    pay = payer(quorum=2)
    request_id = held(pay, 5).confirmation_id
    review.approve(request_id, by="ada")
    edited = review.approve(request_id, by="bob", changes={"amount": 4})
    assert (edited.state, [vote.by.subject for vote in edited.votes]) == (State.PENDING, ["bob"])
    assert review.approve(request_id, by="ada").state is State.APPROVED
    assert pay(5) == "paid 4 to alice"


def test_edit_that_changes_nothing_is_a_vote_like_others(review: sayso.Review) -> None:
    pay = payer(quorum=2)
    request_id = held(pay, 5).confirmation_id
    review.approve(request_id, by="ada")
    request = review.approve(request_id, by="bob", changes={"amount": 5})
    assert (request.state, request.edited) == (State.APPROVED, None)


@pytest.mark.parametrize("asker", ["ada", Reviewer("ada", roles={"finance"}), Identity("local", "ada")])
@pytest.mark.parametrize("name", FOLDED)
def test_person_on_whose_behalf_it_is_asked_cannot_decide(review: sayso.Review, asker: Any, name: str) -> None:
    with sayso.run("order-1", on_behalf_of=asker):
        request_id = held(payer(), 5).confirmation_id
    for decide in (review.approve, review.reject, review.claim, review.cancel):
        with pytest.raises(errors.OwnRequestError):
            decide(request_id, by=name)
    assert review.get(request_id).on_behalf_of == Identity("local", "ada")
    assert review.approve(request_id, by="bob").state is State.APPROVED


def test_run_inside_of_another_acts_for_the_same_person(review: sayso.Review) -> None:
    with sayso.run("order-1", on_behalf_of="ada"), sayso.run("payment-1"):
        request_id = held(payer(), 5).confirmation_id
    with pytest.raises(errors.OwnRequestError):
        review.approve(request_id, by="ada")
    with sayso.run("order-1", on_behalf_of="ada"), sayso.run("payment-2", on_behalf_of="bob"):
        request = review.get(held(payer(), 5).confirmation_id)
    assert request.acts_for == (Identity("local", "bob"), Identity("local", "ada"))
    for name in ("ada", "bob"):
        with pytest.raises(errors.OwnRequestError):
            review.approve(request.id, by=name)
    assert review.approve(request.id, by="carol").state is State.APPROVED


def test_program_cannot_decide_what_it_asks(review: sayso.Review, pay: Pay) -> None:
    request = review.get(held(pay, 5).confirmation_id)
    assert request.requester.issuer == "program"
    with pytest.raises(errors.OwnRequestError):
        review.approve(request.id, by=Reviewer(request.requester.subject, issuer="program"))
    assert review.approve(request.id, by=request.requester.subject).state is State.APPROVED


# -- care ------------------------------------------------------------------------------------------------------------


def test_claimed_request_is_decided_by_who_claimed_it(review: sayso.Review, pay: Pay, clock: Clock) -> None:
    request_id = held(pay, 5).confirmation_id
    claimed = review.claim(request_id, by="bob")
    assert (claimed.claimed_by, claimed.claimed_at) == (Identity("local", "bob"), clock.at)
    for attempt in (review.approve, review.reject, review.claim, review.cancel):
        with pytest.raises(errors.ClaimedError):
            attempt(request_id, by="ada")
    with pytest.raises(errors.ClaimedError):
        review.release(request_id, by="ada")
    assert review.claim(request_id, by="Bob").state is State.PENDING
    request = review.approve(request_id, by="BOB")
    assert (request.state, request.claimed_by) == (State.APPROVED, None)


def test_released_request_is_everybodys_again(store: Store, review: sayso.Review, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    review.claim(request_id, by="bob")
    assert review.release(request_id, by="bob").claimed_by is None
    review.claim(request_id, by="bob")
    assert review.release(request_id, by="ada", force=True).claimed_by is None
    assert '"claimed_by":"local:bob"' in store.journal(request_id=request_id)[-1].detail
    assert review.approve(request_id, by="cy").state is State.APPROVED


def test_request_and_approval_may_be_given_more_time(review: sayso.Review, clock: Clock) -> None:
    pay = payer(expires="1h", approval_expires="1h")
    request_id = held(pay, 5).confirmation_id
    clock.tick(minutes=59)
    assert review.extend(request_id, "2h").expires_at == clock.at + timedelta(hours=2)
    clock.tick(minutes=119)
    review.approve(request_id)
    clock.tick(minutes=59)
    assert review.extend(request_id, timedelta(hours=3)).approval_expires_at == clock.at + timedelta(hours=3)
    clock.tick(minutes=179)
    assert pay(5) == "paid 5 to alice"


def test_time_that_is_none_is_not_given(review: sayso.Review, pay: Pay) -> None:
    request = review.get(held(pay, 5).confirmation_id)
    for span in ("0s", "soon", "-1h", timedelta(0), "11000d"):
        with pytest.raises(errors.ConfigError, match="duration"):
            review.extend(request.id, span)
    assert review.get(request.id) == request
