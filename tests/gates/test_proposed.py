"""A call that its own types do not take is refused when it is asked; one that they take can be edited."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest

import sayso
from sayso import errors
from sayso.stores.base import Filter, Store
from tests.support.acting import held


@sayso.gate(wait="raise")
def book(seats: int, price: float = 1.0, day: Literal["mon", "tue"] = "mon", note: str = None) -> str:  # noqa: RUF013  programs do write it so
    """Book some seats."""
    return f"{seats} {price} {day} {note}"


@sayso.gate(wait="raise")
def label(*lines: str, **fields: int) -> tuple[Any, ...]:
    """Print a label."""
    return lines, fields


MISFITS = [
    (book, ("two",), {}, "seats"),
    (book, (2.5,), {}, "seats"),
    (book, (2,), {"price": "dear"}, "price"),
    (book, (2,), {"day": "sun"}, "day"),
    (book, (2,), {"note": 3}, "note"),
    (label, ("a", 1), {}, "lines"),
    (label, ("a",), {"size": "big"}, "fields"),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "name"), MISFITS)
def test_argument_that_does_not_fit_its_own_type_is_refused_before_it_is_held(
    store: Store, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> None:
    with pytest.raises(errors.ArgumentError, match="does not fit") as caught:
        function(*args, **kwargs)
    assert caught.value.argument.startswith(name)
    assert store.count(Filter()) == 0


FITS = [
    (book, (2,), {}),
    (book, (2,), {"price": 3}),
    (book, (2,), {"price": Decimal("2.5")}),
    (book, ("2",), {}),
    (book, (True,), {}),
    (book, (2,), {"note": None}),
    (label, ("a",), {"size": 1}),
]


@pytest.mark.parametrize(("function", "args", "kwargs"), FITS)
def test_call_that_fits_its_types_as_an_edit_would_can_be_edited(
    store: Store, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with sayso.run("order-1"):
        request_id = held(function, *args, **kwargs).confirmation_id
        change: dict[str, Any] = {"day": "tue"} if function is book else {"lines": ["b"]}
        sayso.Review().approve(request_id, by="ada", changes=change)
        assert ("tue" if function is book else "b") in str(function(*args, **kwargs))


def test_call_beside_a_default_that_does_not_fit_can_be_edited_where_the_code_is_not(file_store: Store) -> None:
    request_id = held(book, 2).confirmation_id
    there = f"""
import sayso
review = sayso.Review({file_store.url!r}, reviewer="ada")
review.approve({request_id!r}, changes={{"seats": 3}})
"""
    subprocess.run([sys.executable, "-c", there], check=True, timeout=60, cwd=Path(__file__).parent)
    assert book(2) == "3 1.0 mon None"


def test_call_that_nobody_is_asked_about_runs_without_pydantic() -> None:
    there = """
import sys
import sayso
sayso.configure(store="memory:")

@sayso.gate(wait="raise", when=lambda amount: amount > 100)
def pay(amount: int, to: str | None = None, tags: list[str] = [], anything=()) -> str:
    return "ran"

print(pay(5, "bob", ["x"], object), "pydantic" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", there], check=True, timeout=60, capture_output=True, text=True)
    assert ran.stdout.split() == ["ran", "False"]
