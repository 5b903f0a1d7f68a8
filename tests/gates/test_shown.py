"""What people were shown of a call is what runs: a row whose masked view was rewritten by hand does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model import redaction
from sayso.model.request import State
from sayso.stores.base import Store
from tests.support.acting import held, state_of
from tests.support.altering import rewrite


def sender(ran: list[Any], **options: Any) -> Callable[..., Any]:
    """A gated call with a secret in it."""

    @sayso.gate(wait="raise", **options)
    def send(to: str, amount: int, password: str) -> str:
        ran.append((to, amount, password))
        return "sent"

    return send


def other_amount(arguments: dict[str, Any]) -> dict[str, Any]:
    """A redactor that shows no amount, and something that stands nowhere in the call."""
    return {"to": arguments["to"], "range": "small" if arguments["amount"] < 100 else "large"}


FALSE_VIEWS = [
    '{"to":"bob","amount":5,"password":"***"}',  # another value
    '{"to":"eve","amount":5.0,"password":"***"}',  # another type
    '{"to":"eve","password":"***"}',  # something left out
    '{"to":"eve","amount":5,"password":"***","note":"x"}',  # something added
    "[1]",
    "{",
]


@pytest.mark.parametrize("view", FALSE_VIEWS)
def test_call_that_was_shown_as_another_one_does_not_run(file_store: Store, view: str) -> None:
    ran: list[Any] = []
    send = sender(ran)
    request_id = held(send, "eve", 5, "hunter2").confirmation_id
    sayso.Review().approve(request_id, by="ada")
    rewrite(file_store.url, request_id, masked=view)
    with pytest.raises(errors.AlteredRequestError, match="shown of the call is not what would run"):
        send("eve", 5, "hunter2")
    assert (ran, state_of(request_id)) == ([], State.FAILED)
    assert "shown" in str(file_store.get(request_id).execution)


@pytest.mark.parametrize("column", ["name", "tool"])
def test_call_that_was_shown_under_another_name_does_not_run(file_store: Store, column: str) -> None:
    ran: list[Any] = []
    send = sender(ran)
    request_id = held(send, "eve", 5, "hunter2").confirmation_id
    sayso.Review().approve(request_id, by="ada")
    rewrite(file_store.url, request_id, **{column: "read"})
    with pytest.raises(errors.AlteredRequestError):
        send("eve", 5, "hunter2")
    assert ran == []


def test_edit_that_was_shown_as_another_one_does_not_run(file_store: Store) -> None:
    ran: list[Any] = []
    send = sender(ran)
    request_id = held(send, "eve", 5, "hunter2").confirmation_id
    sayso.Review().approve(request_id, by="ada", changes={"amount": 6})
    edited = file_store.get(request_id).effective
    shown = '{"to":"eve","amount":1,"password":"***"}'
    rewrite(file_store.url, request_id, edited=[edited.form, shown, edited.digest])
    with pytest.raises(errors.AlteredRequestError, match="shown"):
        send("eve", 5, "hunter2")
    assert ran == []


def test_view_that_a_redactor_made_is_compared_with_what_it_makes_now(file_store: Store) -> None:
    ran: list[Any] = []
    send = sender(ran, redactor=other_amount)
    first = held(send, "eve", 500, "hunter2").confirmation_id
    sayso.Review().approve(first, by="ada")
    assert send("eve", 500, "hunter2") == "sent"
    second = held(send, "eve", 500, "hunter2").confirmation_id
    sayso.Review().approve(second, by="ada")
    rewrite(file_store.url, second, masked='{"to":"eve","range":"small"}')
    with pytest.raises(errors.AlteredRequestError, match="shown"):
        send("eve", 500, "hunter2")
    assert len(ran) == 1


def test_edit_of_what_a_redactor_hid_runs(file_store: Store) -> None:
    ran: list[Any] = []
    send = sender(ran, redactor=other_amount)
    request_id = held(send, "eve", 500, "hunter2").confirmation_id
    sayso.Review().approve(request_id, by="ada", changes={"to": "bob"})
    assert send("eve", 500, "hunter2") == "sent"
    assert ran == [("bob", 500, "hunter2")]


def test_view_of_a_redactor_that_failed_hid_everything_and_runs(file_store: Store) -> None:
    ran: list[Any] = []
    answers = iter([ValueError("not today")])

    def moody(arguments: dict[str, Any]) -> dict[str, Any]:
        for error in answers:
            raise error
        return {"to": arguments["to"]}

    send = sender(ran, redactor=moody)
    request_id = held(send, "eve", 5, "hunter2").confirmation_id
    sayso.Review().approve(request_id, by="ada")
    assert send("eve", 5, "hunter2") == "sent"


@pytest.mark.parametrize(
    ("shown", "real", "is_so"),
    [
        ({"a": [1, "***"]}, {"a": [1, 2]}, True),
        ("***", {"a": 1}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"$tuple": [1]}, [1], False),
        ({"$dataclass": ["m:A", {"x": "***"}]}, {"$dataclass": ["m:A", {"x": 1}]}, True),
        ({"$dataclass": ["m:B", {"x": 1}]}, {"$dataclass": ["m:A", {"x": 1}]}, False),
        ({}, {"a": 1}, False),
        (None, 0, False),
    ],
)
def test_view_agrees_where_all_that_is_not_masked_is_the_same(shown: Any, real: Any, is_so: bool) -> None:
    assert redaction.agrees(shown, real) is is_so
