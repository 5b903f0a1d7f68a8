"""Finding what waits: lists with filters and a cursor, and ids that may be shortened.

The invariant: a list read page by page holds each request once, whatever happens meanwhile.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import sayso
from sayso import aio, errors
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.stores.base import Filter, Page, Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import Pay, held, payer
from tests.support.ids import stable


def ids(page: Page) -> list[str]:
    return [request.id for request in page.requests]


@pytest.fixture
def several(
    store: Store, review: sayso.Review, clock: Clock
) -> dict[str, str]:  # fmt: skip
    """Requests of every kind that a list can be asked for, by a name for each."""

    @sayso.gate(wait="raise", risk="high", prompt="Wipe Everything?")
    def wipe(path: str) -> None: ...

    pay = payer()
    found: dict[str, str] = {}
    sayso.configure(program="billing")
    with sayso.run("order-1"):
        found["pending"] = held(pay, 1).confirmation_id
        found["approved"] = held(pay, 2).confirmation_id
        found["rejected"] = held(pay, 3).confirmation_id
    clock.tick(hours=1)
    sayso.configure(program="ops")
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
    ({"run": "order-1"}, ["pending", "approved"]),
    ({"tool": "wipe"}, ["wipe"]),
    ({"tool": "tests.support.acting:payer.<locals>.pay"}, ["pending", "approved"]),
    ({"agent": "BILLING"}, ["pending", "approved"]),
    ({"agent": "program:billing", "state": "all"}, ["pending", "approved", "rejected"]),
    ({"agent": "bill"}, []),
    ({"agent": "ops", "kind": "call", "newest": True}, ["wipe"]),
    ({"older_than": "1h"}, ["pending", "approved"]),
    ({"older_than": timedelta(hours=1), "state": "all", "limit": 1}, ["pending"]),
    ({"older_than": "2h"}, []),
    ({"run": "order"}, []),
    ({"tool": "pa"}, []),
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
    ({"text": "NEEDLE-in"}, ["wipe"]),
    ({"text": "BILLI"}, ["pending", "approved"]),
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


def test_an_amount_is_found_as_pages_write_it(store: Store) -> None:
    for amount in (12500.5, Decimal("12500.50"), 12500, 950.25, "12,500.50 as agreed", "1250"):
        store.ask(sample_call(None, {"amount": amount}))
    for words, count in (
        ("12,500.50", 3), ("12.500,50", 2), ("12500.50", 1), ("12,500.00", 3), ("950,25", 1), ("950.25", 1),
        ('"12,500.50 as"', 1), ("1,250", 0), ("12,500.5 agreed", 1), ("1.250,00", 4),
    ):  # fmt: skip
        found = store.list(Filter(text=words)).requests
        assert (len(found), store.count(Filter(text=words))) == (count, count), words


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


def test_a_loop_over_a_list_goes_through_all_of_its_pages(review: sayso.Review, pay: Pay) -> None:
    found = [held(pay, amount).confirmation_id for amount in range(120)]
    page = review.list()
    assert ids(page) == found[:50]
    assert page.cursor is not None
    assert [request.id for request in page] == found
    assert [request.id for request in page] == found, "a second loop begins anew"
    assert [request.id for request in review.list(cursor=page.cursor)] == found[50:]
    assert [request.id for request in review.list(newest=True)] == found[::-1]
    for request in review.list(tool="pay"):
        review.approve(request.id)
    assert [request.state for request in review.list()] == [State.APPROVED] * 120


def test_a_loop_over_a_list_reads_no_page_before_it_gets_there(review: sayso.Review, pay: Pay) -> None:
    for amount in range(51):
        held(pay, amount)
    requests = iter(review.list())
    for _ in range(50):
        next(requests)
    late = held(pay, 51).confirmation_id
    assert [request.id for request in requests][-1] == late


def test_a_limit_is_the_most_that_a_loop_gives(review: sayso.Review, pay: Pay) -> None:
    found = [held(pay, amount).confirmation_id for amount in range(4)]
    assert [request.id for request in review.list(limit=3)] == found[:3]


def test_a_page_is_true_if_it_holds_a_request_and_has_neither_length_nor_index(review: sayso.Review, pay: Pay) -> None:
    assert not review.list()
    assert list(review.list()) == []
    first = held(pay, 1).confirmation_id
    page: Any = review.list()
    assert page
    assert page.requests[0] in page
    assert page.requests[0].id == first
    with pytest.raises(TypeError, match=r"len\(page\.requests\).*Review\.count"):
        len(page)
    with pytest.raises(TypeError, match=r"page\.requests\[-1\].*list\(page\)"):
        page[-1]


def test_a_filter_that_no_store_indexes_fills_its_pages_and_skips_nothing(
    review: sayso.Review, store: Store, pay: Pay, clock: Clock
) -> None:  # fmt: skip
    found = [held(pay, amount).confirmation_id for amount in range(30)]
    clock.tick(hours=1)
    for amount in range(500):
        held(pay, 1000 + amount)
    asked = Counting(store)
    review.store = asked
    page = review.list(older_than="1h", limit=20)
    assert ids(page) == found[:20]
    assert asked.lists == 2
    assert ids(review.list(older_than="1h", limit=20, cursor=page.cursor)) == found[20:]
    assert ids(review.list(older_than="1h", limit=20, newest=True)) == found[:9:-1]
    assert [request.id for request in review.list(older_than="1h")] == found
    assert review.count(older_than="1h") == 30
    assert review.count() == 530


def test_what_is_decided_while_a_page_is_made_hides_nothing_else(
    review: sayso.Review, store: Store, pay: Pay, clock: Clock
) -> None:  # fmt: skip
    found = [held(pay, amount).confirmation_id for amount in range(10)]
    clock.tick(hours=1)
    other = sayso.Review(store, by="bob")
    review.store = Counting(store, after={1: lambda: other.reject(found[0])})
    page = review.list(state="pending", older_than="1h", limit=3)
    rest = sayso.Review(store).list(state="pending", older_than="1h", cursor=page.cursor)
    assert sorted({*ids(page), *ids(rest)} - {found[0]}) == sorted(found[1:])
    assert len([*ids(page), *ids(rest)]) == len({*ids(page), *ids(rest)})


class Counting:
    """A store that counts its lists, and lets something happen after one of them."""

    def __init__(self, store: Store, after: dict[int, Any] | None = None) -> None:
        self._store, self._after, self.lists = store, after or {}, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, *args: Any, **kwargs: Any) -> Page:
        page = self._store.list(*args, **kwargs)
        self.lists += 1
        self._after.get(self.lists, lambda: None)()
        return page


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"tol": "pay"}, "unexpected keyword argument 'tol'"),
        ({"run_id": "a"}, "unexpected keyword argument 'run_id'"),
        ({"name": "b"}, "unexpected keyword argument 'name'"),
    ],
    ids=repr,
)
def test_a_filter_that_there_is_not_is_refused_by_name(memory: Store, wanted: dict[str, Any], says: str) -> None:
    review: Any = sayso.Review()
    with pytest.raises(TypeError, match=says):
        review.list(**wanted)
    with pytest.raises(TypeError, match=says):
        asyncio.run(_awaited(lambda: aio.Review().list(**wanted)))


async def _awaited(make: Any) -> Any:
    return await make()


@pytest.mark.parametrize("word", ["as_", "reviewer", "user", "bye"])
def test_who_decides_is_called_by_everywhere(memory: Store, pay: Pay, word: str) -> None:
    request_id = held(payer(), 1).confirmation_id
    make: Any = sayso.Review
    review = make(by="ada")
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{word}'"):
        review.approve(request_id, **{word: "bob"})
    assert review.get(request_id).state is State.PENDING
    assert review.approve(request_id).decision.by == Reviewer("ada").identity
    with pytest.raises(TypeError, match="reviewer= is the old name of by="):
        sayso.Review(by="ada", reviewer="ada")
    with pytest.raises(TypeError, match="unexpected keyword argument 'revewer'"):
        make(revewer="ada")


def test_async_programs_await_a_page_or_walk_the_list(review: sayso.Review, store: Store, pay: Pay) -> None:
    found = [held(pay, amount).confirmation_id for amount in range(60)]

    async def look() -> None:
        reviews = aio.Review(store)
        page = await reviews.list()
        assert [request.id for request in page.requests] == found[:50]
        assert page.cursor is not None
        assert [request.id async for request in reviews.list()] == found
        assert [request.id async for request in reviews.list(limit=2)] == found[:2]
        assert await reviews.count() == 60
        with pytest.raises(TypeError, match="async for"):
            list(page)

    asyncio.run(look())


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
