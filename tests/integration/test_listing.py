"""Finding what waits: lists with filters and a cursor, and ids that may be shortened.

The invariant: a list read page by page holds each request once, whatever happens meanwhile.
"""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.stores.base import Page, Store
from tests.conftest import Clock
from tests.ids import stable
from tests.integration.acting import Pay, held, payer


def ids(page: Page) -> list[str]:
    return [request.id for request in page.requests]


@pytest.fixture
def several(store: Store, review: sayso.Review) -> dict[str, str]:
    """Requests of every kind that a list can be asked for, by a name for each."""

    @sayso.gate(wait="raise", risk="high", prompt="Wipe Everything?")
    def wipe(path: str) -> None: ...

    pay = payer()
    found: dict[str, str] = {}
    with sayso.run("order-1"):
        found["pending"] = held(pay, 1).confirmation_id
        found["approved"] = held(pay, 2).confirmation_id
        found["rejected"] = held(pay, 3).confirmation_id
    with sayso.run("order-2"):
        found["wipe"] = held(wipe, "needle-in-an-argument").confirmation_id
        found["question"] = held(sayso.ask, "Which Größe?", wait="raise").confirmation_id
    review.approve(found["approved"])
    review.reject(found["rejected"])
    review.claim(found["wipe"], by="Bob")
    return found


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["pending", "approved", "wipe", "question"]),
    ({"state": "all"}, ["pending", "approved", "rejected", "wipe", "question"]),
    ({"state": "pending"}, ["pending", "wipe", "question"]),
    ({"state": State.REJECTED}, ["rejected"]),
    ({"state": ["approved", "rejected"]}, ["approved", "rejected"]),
    ({"state": {State.DONE}}, []),
    ({"run_id": "order-1"}, ["pending", "approved"]),
    ({"run_id": "order"}, []),
    ({"name": "wipe"}, ["wipe"]),
    ({"name": "tests.integration.acting:payer.<locals>.pay"}, ["pending", "approved"]),
    ({"name": "pa"}, []),
    ({"risk": "high"}, ["wipe"]),
    ({"kind": "question"}, ["question"]),
    ({"kind": "call", "state": "pending"}, ["pending", "wipe"]),
    ({"claimed_by": "bob"}, ["wipe"]),
    ({"claimed_by": Reviewer("BOB")}, ["wipe"]),
    ({"claimed_by": Reviewer("bob", issuer="github")}, []),
    ({"claimed_by": "ada"}, []),
    ({"text": "ORDER-2"}, ["wipe", "question"]),
    ({"text": "wipe everything"}, ["wipe"]),
    ({"text": "grösse"}, ["question"]),
    ({"text": "GRÖSSE", "kind": "question"}, ["question"]),
    ({"text": "größe"}, ["question"]),
    ({"text": "needle"}, []),
    ({"text": "%"}, []),
    ({"text": "nobody"}, []),
    ({"newest": True}, ["question", "wipe", "approved", "pending"]),
    ({"limit": 2}, ["pending", "approved"]),
    ({"limit": 2, "newest": True}, ["question", "wipe"]),
    ({"text": "order-1", "state": "all", "newest": True, "limit": 1}, ["rejected"]),
]


@pytest.mark.parametrize(("wanted", "names"), FILTERS, ids=stable)
def test_list_gives_what_it_is_asked_for(
    review: sayso.Review, several: dict[str, str], wanted: dict[str, Any], names: list[str]
) -> None:
    assert ids(review.list(**wanted)) == [several[name] for name in names]


def test_list_finds_a_request_by_its_id_as_text(review: sayso.Review, several: dict[str, str]) -> None:
    assert ids(review.list(text=several["wipe"][3:].upper())) == [several["wipe"]]


@pytest.mark.parametrize(
    "wanted",
    [{"state": "open"}, {"state": ["pending", "x"]}, {"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"cursor": "-1"}],
)
def test_list_refuses_what_there_is_not(review: sayso.Review, wanted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"open|x|limit|-1"):
        review.list(**wanted)


@pytest.mark.parametrize("newest", [False, True])
def test_cursor_stays_good_while_requests_come_and_are_decided(review: sayso.Review, pay: Pay, newest: bool) -> None:
    before = [held(pay, amount).confirmation_id for amount in range(10)]
    wanted = before[::-1] if newest else before
    seen: list[str] = []
    cursor = None
    for turn in range(4):
        page = review.list(state="all", limit=3, cursor=cursor, newest=newest)
        seen += ids(page)
        cursor = page.cursor
        held(pay, 100 + turn)
        review.approve(wanted[turn])
        review.reject(wanted[-1 - turn])
    assert [request_id for request_id in seen if request_id in before] == wanted
    assert len(seen) == len(set(seen))
    assert (cursor is None) is newest


def test_last_page_has_no_cursor(review: sayso.Review, pay: Pay) -> None:
    for amount in range(4):
        held(pay, amount)
    first = review.list(limit=2)
    assert first.cursor is not None
    second = review.list(limit=2, cursor=first.cursor)
    assert (len(second.requests), second.cursor) == (2, None)
    assert review.list(limit=4).cursor is None


def test_list_writes_down_what_has_expired(review: sayso.Review, pay: Pay, clock: Clock, store: Store) -> None:
    request_id = held(pay, 1).confirmation_id
    clock.tick(hours=24)
    assert review.list().requests == ()
    assert store.get(request_id).state is State.EXPIRED
    assert store.journal(request_id=request_id)[-1].event == "expired"


def test_id_may_be_shortened_while_it_fits_no_other(review: sayso.Review, pay: Pay) -> None:
    found = [held(pay, amount).confirmation_id for amount in range(40)]
    for request_id in found[:5]:
        assert review.get(request_id).id == review.get(request_id.removeprefix("rq_")).id == request_id
        shortest = next(
            request_id[:size]
            for size in range(4, 30)
            if sum(other.startswith(request_id[:size]) for other in found) == 1
        )
        assert review.get(shortest).id == review.get(shortest.removeprefix("rq_")).id == request_id
        assert review.find(shortest) == request_id


def test_beginning_that_fits_several_is_refused_with_them(review: sayso.Review, pay: Pay) -> None:
    found = [held(pay, amount).confirmation_id for amount in range(40)]
    letter = max({request_id[3] for request_id in found}, key=lambda letter: sum(i[3] == letter for i in found))
    with pytest.raises(errors.AmbiguousIdError, match="give more of the id") as caught:
        review.get(letter)
    assert caught.value.prefix == letter
    assert set(caught.value.matches) <= {request_id for request_id in found if request_id[3] == letter}
    assert 2 <= len(caught.value.matches) <= 10
    with pytest.raises(errors.AmbiguousIdError):
        review.approve(f"rq_{letter}")


@pytest.mark.parametrize("nothing", ["", "rq_", "rq_zzzzzzzzzz", "nobody", "%", "rq_%", "\udcff", "rq_\U0010ffff"])
def test_id_that_there_is_not_is_refused(review: sayso.Review, pay: Pay, nothing: str) -> None:
    held(pay, 1)
    for verb in (review.get, review.approve, review.reject, review.claim):
        with pytest.raises(errors.RequestNotFoundError, match="sayso ls") as caught:
            verb(nothing)
        assert caught.value.request_id == nothing
