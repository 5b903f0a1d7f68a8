"""A NaN is greater than nothing and less than nothing: no rule can judge it, so no rule lets it through."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

import sayso
from sayso import errors
from sayso.model.parameters import nan_in

NAN = float("nan")


class Odd(float):
    def __ne__(self, other: object) -> bool:
        return False


@dataclass
class Line:
    price: Any
    tags: list[Any] = field(default_factory=list[Any])


@dataclass(slots=True)
class Slim:
    price: Any


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")
    lines: list[Any]


PLACES: list[tuple[Any, str]] = [
    (NAN, "x"),
    (Odd("nan"), "x"),
    (Decimal("NaN"), "x"),
    (Decimal("sNaN"), "x"),
    ([1.0, NAN], "x[1]"),
    ((1, (2, NAN)), "x[1][1]"),
    ({"a": {"b": [0, {"c": NAN}]}}, "x.a.b[1].c"),
    ({1: NAN}, "x[1]"),
    (Line(NAN), "x.price"),
    (Line(1, [NAN]), "x.tags[0]"),
    (Slim(NAN), "x.price"),
    (Order(lines=[1, {"price": NAN}]), "x.lines[1].price"),
    (Order(lines=[], more=NAN), "x.more"),  # pyright: ignore[reportCallIssue]
    ([[NAN], NAN], "x[0][0]"),
]


@pytest.mark.parametrize(("value", "where"), PLACES, ids=[where for _, where in PLACES])
def test_a_nan_is_found_at_every_depth(value: Any, where: str) -> None:
    assert nan_in({"first": 1, "x": value}) == where


@pytest.mark.parametrize(
    "value",
    [1, 1.5, float("inf"), -float("inf"), "nan", None, True, b"nan", [], [1.0] * 50, {"nan": 1.0}, Line(1.0), Slim(2.0),
     Decimal("1.5"), Decimal("Infinity"), Order(lines=[1.0]), object(), {1, 2}],
)  # fmt: skip
def test_what_is_no_nan_is_not_taken_for_one(value: Any) -> None:
    assert nan_in({"x": value}) is None


def test_a_circle_ends() -> None:
    circle: list[Any] = [1.0]
    circle.append(circle)
    assert nan_in({"x": circle}) is None
    circle.append({"deep": NAN})
    assert nan_in({"x": circle}) == "x[2].deep"


def test_a_very_deep_value_is_walked_without_recursion() -> None:
    value: list[Any] = [NAN]
    for _ in range(100_000):
        value = [value]
    assert nan_in({"x": value}) == f"x{'[0]' * 19}…"


@pytest.mark.parametrize("value", [NAN, {"amount": NAN}, [1.0, NAN], Line(NAN)])
def test_a_rule_lets_no_nan_through(value: Any) -> None:
    ran: list[Any] = []
    asked: list[Any] = []

    def rule(amount: Any) -> bool:
        asked.append(amount)
        return amount > 100 if isinstance(amount, float) else False

    @sayso.gate(wait="raise", when=rule, store="memory:")
    def pay(amount: Any) -> None:
        ran.append(amount)

    with pytest.raises(errors.PolicyError, match=r"when=rule of pay cannot judge amount.*NaN; the call was not run"):
        pay(value)
    assert (ran, asked) == ([], [])
    pay(1.0)
    assert ran == [1.0]


def test_an_async_rule_lets_no_nan_through() -> None:
    ran: list[Any] = []

    async def rule(amount: float) -> bool:
        return amount > 100

    @sayso.gate(wait="raise", when=rule, store="memory:")
    async def pay(amount: float) -> None:
        ran.append(amount)

    with pytest.raises(errors.PolicyError, match="cannot judge amount"):
        asyncio.run(pay(NAN))
    assert ran == []


def test_what_a_rule_does_not_look_at_may_be_a_nan() -> None:
    @sayso.gate(wait="raise", when=lambda amount: amount > 100, store="memory:")  # pyright: ignore[reportUnknownLambdaType]
    def pay(amount: int, reading: float) -> float:
        return reading

    assert pay(1, NAN) != 1
