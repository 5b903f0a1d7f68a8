"""Whoever a program acts for does not decide what it asks, whatever they are called and wherever the call is made."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import sayso
from sayso import errors
from sayso.gates import scope
from sayso.model.reviewer import Identity, Reviewer
from sayso.stores.base import Store
from tests.support.acting import held, payer, waiting_in

BARRED = [
    ("ada", Reviewer("ada")),
    ("ada", Reviewer("ADA", issuer="okta")),
    ("ada", Reviewer("ada@laptop")),
    ("ada", Reviewer("ada@laptop", issuer="okta")),
    ("ada@laptop", Reviewer("ada")),
    ("ada@laptop", Reviewer("Ada@Laptop", issuer="okta")),
    (Identity("okta", "ada"), Reviewer("ada")),
    (Reviewer("ada", issuer="okta"), Reviewer("ada@laptop")),
]
FREE = [
    ("ada", Reviewer("adam")),
    ("ada", Reviewer("adam@laptop")),
    ("ada@laptop", Reviewer("ada@desktop")),
    ("ada@laptop", Reviewer("bob@laptop")),
    ("ada@laptop", Reviewer("laptop")),
]


@pytest.mark.parametrize(("person", "reviewer"), BARRED)
def test_person_is_barred_under_whatever_name_it_may_be(store: Store, person: str, reviewer: Reviewer) -> None:
    with sayso.run("order-1", on_behalf_of=person):
        request_id = held(payer(), 5).confirmation_id
    with pytest.raises(errors.OwnRequestError):
        sayso.Review().approve(request_id, by=reviewer)


@pytest.mark.parametrize(("person", "reviewer"), FREE)
def test_somebody_else_is_not_barred(store: Store, person: str, reviewer: Reviewer) -> None:
    with sayso.run("order-1", on_behalf_of=person):
        request_id = held(payer(), 5).confirmation_id
    assert sayso.Review().approve(request_id, by=reviewer).state == "approved"


def test_person_of_the_run_is_barred_from_what_its_pool_of_threads_asks(store: Store) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        sayso.run("order-1", on_behalf_of="ada"),
        sayso.run("inner", on_behalf_of="bob"),
    ):
        answer = pool.submit(sayso.ask, "Go on?", type=bool)
        (request,) = waiting_in(store)
        assert {person.subject for person in request.acts_for} == {"ada", "bob"}
        for name in ("ada", "bob"):
            with pytest.raises(errors.OwnRequestError):
                sayso.Review().answer(request.id, True, by=name)
        sayso.Review().answer(request.id, True, by="carol")
        assert answer.result(30) is True


def test_person_of_a_run_is_barred_in_a_task_that_began_before_it(store: Store) -> None:
    async def main() -> str:
        go_on = asyncio.Event()

        async def work() -> str:
            await go_on.wait()
            return held(payer(), 5).confirmation_id

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        with sayso.run("order-1", on_behalf_of="ada"):
            go_on.set()
            return await task

    assert [person.subject for person in store.get(asyncio.run(main())).acts_for] == ["ada"]


def test_nobody_is_barred_any_more_when_the_runs_have_ended(store: Store) -> None:
    for _ in range(2):
        with sayso.run("order-1", on_behalf_of="ada"), sayso.run("inner"):
            pass
    with pytest.raises(ZeroDivisionError), sayso.run("order-2", on_behalf_of="bob"):
        1 / 0  # noqa: B018
    assert store.get(held(payer(), 5).confirmation_id).acts_for == ()
    assert scope._acting == {}


def test_run_that_names_nobody_acts_for_nobody_of_another_thread(store: Store) -> None:
    ready, done = threading.Event(), threading.Event()

    def other() -> None:
        with sayso.run("order-1", on_behalf_of="ada"):
            ready.set()
            done.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert ready.wait(30)
        with sayso.run("order-2"):
            assert store.get(held(payer(), 5).confirmation_id).acts_for == ()
        assert [person.subject for person in store.get(held(payer(), 5).confirmation_id).acts_for] == ["ada"]
    finally:
        done.set()
        thread.join()


def test_journal_says_everybody_for_whom_it_was_asked(store: Store) -> None:
    with sayso.run("order-1", on_behalf_of="ada"), sayso.run("payment-1", on_behalf_of="bob"):
        request_id = held(payer(), 5).confirmation_id
    assert '"on_behalf_of":"local:bob, local:ada"' in store.journal(request_id=request_id)[0].detail
