"""What an attacker tries who chooses arguments, names and moments, or writes into a row by hand.

Each test is an attack that worked once. The one invariant: it no longer does.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

import sayso
from sayso import errors
from sayso.stores.base import Store
from sayso.view import line
from tests.support.acting import approved, held


class Order(BaseModel):
    """Takes more than its fields, and its field by another name."""

    model_config = ConfigDict(extra="allow")
    amount: float = Field(alias="Amount")


# -- what is shown is what was bound -----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"redactor": dict[str, Any]}], ids=["masked", "redactor"])
def test_a_list_that_changes_while_the_store_is_asked_is_shown_as_it_was_bound(
    file_store: Store, options: dict[str, Any]
) -> None:
    @sayso.gate(wait="raise", **options)
    async def pay(token: str, to: list[str]) -> None: ...

    async def swap() -> str:
        to = ["mallory"]
        call = asyncio.ensure_future(pay("a-token-of-hers", to))
        await asyncio.sleep(0)  # it is bound by now, and the store looks for it in another thread
        to[0] = "alice"
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            await call
        return caught.value.confirmation_id

    call = file_store.get(asyncio.run(swap())).call
    assert '"to":["mallory"]' in call.form
    assert call.arguments["to"] == ["mallory"]


def test_model_with_an_extra_field_of_the_name_of_its_own_is_refused() -> None:
    @sayso.gate(wait="raise")
    def pay(order: Order) -> None: ...

    both = Order.model_validate({"Amount": 1_000_000, "amount": 1})
    assert both.amount == 1_000_000
    with pytest.raises(errors.ArgumentError, match="extra field"):
        pay(both)


def test_name_of_an_extra_field_cannot_pass_for_another_field() -> None:
    tree = {"order": {"$model": ["shop:Order", {"amount": 1}, {"extra": {"a=1, amount": 2, "b)": 3}}]}}
    assert line("pay", tree) == 'pay(order=Order(amount=1, "a=1, amount"=2, "b)"=3))'


def test_keyword_arguments_that_name_another_parameter_are_no_edit(store: Store) -> None:
    ran: list[tuple[int, dict[str, int]]] = []

    @sayso.gate(wait="raise")
    def pay(amount: int, **more: int) -> None:
        ran.append((amount, more))

    request_id = held(pay, 1, tip=2).confirmation_id
    with pytest.raises(errors.InvalidChangesError, match="more: Input has a name that is not allowed"):
        sayso.Review().approve(request_id, by="ada", arguments={"amount": 1, "more": {"amount": 999}})
    assert store.get(request_id).state == "pending"
    assert ran == []


@pytest.mark.usefixtures("store")
def test_keyword_arguments_may_repeat_a_positional_only_name() -> None:
    @sayso.gate(wait="raise")
    def pay(amount: int, /, **more: int) -> tuple[int, dict[str, int]]:
        return amount, more

    approved(pay, 1, amount=2)
    assert pay(1, amount=2) == (1, {"amount": 2})


# -- one word in one row -----------------------------------------------------------------------------------------------


def _edit(store: Store, sql: str) -> None:
    with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(sql)
    connection.close()


def _counted(ran: list[str]) -> Callable[[str], None]:
    @sayso.gate(wait="raise")
    def wipe(path: str) -> None:
        ran.append(path)

    return wipe


@pytest.mark.parametrize("verb", ["reject", "feedback", "cancel"])
def test_a_no_whose_row_is_made_to_say_approved_does_not_run(file_store: Store, verb: str) -> None:
    ran: list[str] = []
    wipe = _counted(ran)
    with sayso.run("order-1"):
        request_id = held(wipe, "/x").confirmation_id
        getattr(sayso.Review(), verb)(request_id, "no", by="ada")
        _edit(file_store, "UPDATE request SET state = 'approved'")
        with pytest.raises(errors.AlteredRequestError):
            wipe("/x")
    assert ran == []


def test_a_spent_approval_whose_row_is_made_to_say_approved_does_not_run(file_store: Store) -> None:
    ran: list[str] = []
    wipe = _counted(ran)
    with sayso.run("order-1"):
        approved(wipe, "/x")
        wipe("/x")
        _edit(file_store, "UPDATE request SET state = 'approved', holds = 1")
        with pytest.raises(errors.StoreCorruptError, match="does not match the journal"):
            wipe("/x")
    assert ran == ["/x"]


# -- names that look the same ------------------------------------------------------------------------------------------
