"""Methods behind a gate: of an object, with a name that says which one; never of a class, which hides the object.

The invariant: two objects with the same method are never taken for one another.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from tests.support.acting import held, program


@pytest.fixture(autouse=True)
def in_memory() -> None:
    sayso.configure(store="memory:")


class Bank:
    def __init__(self, country: str) -> None:
        self.country = country
        self.sent: list[int] = []

    def refund(self, amount: int) -> str:
        """Pay money back."""
        self.sent.append(amount)
        return f"{self.country} sent {amount}"

    async def later(self, amount: int) -> str:
        return self.refund(amount)

    @classmethod
    def close(cls, amount: int) -> str:
        return f"closed {cls.__name__} with {amount}"

    @staticmethod
    def fee(amount: int) -> str:
        return f"fee of {amount}"


def approved_then(call: Callable[..., Any], *args: Any) -> Any:
    sayso.Review().approve(held(call, *args).confirmation_id, by="ada")
    made = call(*args)
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


WAYS: dict[str, Callable[..., Callable[..., Any]]] = {
    "gate": lambda method, **options: sayso.gate(method, wait="raise", **options),
    "decorating gate": lambda method, **options: sayso.gate(wait="raise", **options)(method),
    "confirm_first": sayso.confirm_first,
    "Tool": lambda method, **options: sayso.Tool(method, requires_approval=True, **options).call,
    "tool": lambda method, **options: sayso.tool(requires_approval=True, **options)(method).call,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_bound_method_with_a_name_is_held_and_runs_on_its_object(way: str) -> None:
    bank, other = Bank("eu"), Bank("us")
    call, there = WAYS[way](bank.refund, name="eu-refund"), WAYS[way](other.refund, name="us-refund")
    signal = held(call, 5)
    assert signal.tool_call is not None
    assert (signal.tool_call.name, signal.tool_call.args) == ("eu-refund", {"amount": 5})
    sayso.Review().approve(signal.confirmation_id, by="ada")
    held(there, 5)
    assert call(5) == "eu sent 5"
    assert (bank.sent, other.sent) == ([5], [])


def test_an_async_method_and_a_class_method_are_held_as_well() -> None:
    bank = Bank("eu")
    later = sayso.gate(bank.later, name="eu-later", wait="raise")

    async def twice() -> str:
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            await later(5)
        sayso.Review().approve(caught.value.confirmation_id, by="ada")
        return await later(5)

    assert asyncio.run(twice()) == "eu sent 5"
    close = sayso.gate(Bank.close, name="close-bank", wait="raise")
    assert approved_then(close, 5) == "closed Bank with 5"


@pytest.mark.parametrize("way", ["gate", "decorating gate", "confirm_first"])
def test_a_bound_method_without_a_name_is_refused_with_the_way_out(way: str) -> None:
    with pytest.raises(TypeError, match=r"sayso\.gate\(obj\.refund, name='…'\) or sayso\.Tool\(obj\.refund") as refused:
        WAYS[way](Bank("eu").refund)
    assert_short(refused.value)


def test_a_tool_of_a_bound_method_is_called_like_it_and_keeps_two_objects_apart() -> None:
    ours, theirs = Bank("eu"), Bank("us")
    tool = sayso.Tool(ours.refund, requires_approval=True)
    assert (tool.name, tool.description) == ("refund", "Pay money back.")
    sayso.Review().approve(held(tool.call, 5).confirmation_id, by="ada")
    with pytest.raises(errors.ConfigError, match=r"give each its own name=\. The call was not run"):
        sayso.Tool(theirs.refund, requires_approval=True).call(5)
    assert tool.call(5) == "eu sent 5"
    assert (ours.sent, theirs.sent) == ([5], [])
    paused = tool(amount=7).run()
    (waiting,) = paused.metadata["pending_approvals"]
    decided = tool(parent_id=paused.run_id, approval_decisions={waiting["approval_id"]: True}).run()
    assert decided.output == "eu sent 7"


# -- in the body of a class ------------------------------------------------------------------------------------------


def assert_short(error: BaseException) -> None:
    """Hold an error to one line and to a traceback without frames of the package."""
    assert "\n" not in str(error)
    package = str(Path(sayso.__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    assert frames
    assert not [frame for frame in frames if frame.filename.startswith(package)]
    assert error.__cause__ is None
    assert error.__context__ is None


BARE: dict[str, Callable[..., Any]] = {
    "gate": sayso.gate,
    "gate()": sayso.gate(),
    "confirm_first": sayso.confirm_first,
    "confirm_first()": sayso.confirm_first(),
    "tool": sayso.tool,
    "tool()": sayso.tool(),
    "Tool": sayso.Tool,
}


@pytest.mark.parametrize("way", BARE)
def test_a_method_in_a_class_is_refused_where_it_is_decorated(way: str) -> None:
    with pytest.raises(TypeError) as refused:

        class Shop:
            @BARE[way]
            def refund(self) -> None:
                raise AssertionError

    assert "Shop.refund is a method" in str(refused.value)
    assert "sayso.gate(obj.refund, name='…') or sayso.Tool(obj.refund, name='…')" in str(refused.value)
    assert "Nothing was gated" in str(refused.value)
    assert_short(refused.value)


@pytest.mark.parametrize("way", BARE)
def test_a_class_method_in_a_class_is_refused_in_both_orders(way: str) -> None:
    def above() -> None:
        class Shop:
            @BARE[way]
            @classmethod
            def close(cls) -> None:
                raise AssertionError

    def below() -> None:
        class Shop:
            @classmethod
            @BARE[way]
            def close(cls) -> None:
                raise AssertionError

    for order in (above, below):
        with pytest.raises(TypeError, match=r"Shop\.close is a method") as refused:
            order()
        assert_short(refused.value)


@pytest.mark.parametrize("way", ["gate", "confirm_first"])
def test_a_static_method_is_held_in_both_orders(way: str) -> None:
    decorator = {"gate": sayso.gate(wait="raise"), "confirm_first": sayso.confirm_first}[way]

    class Shop:
        @staticmethod
        @decorator
        def below(amount: int) -> str:
            return f"below {amount}"

        @decorator
        @staticmethod
        def above(amount: int) -> str:
            return f"above {amount}"

        @decorator
        @staticmethod
        async def later(amount: int) -> str:
            return f"later {amount}"

    for shop in (Shop, Shop()):
        assert approved_then(shop.below, 5) == "below 5"
        assert approved_then(shop.above, 5) == "above 5"

    async def twice() -> str:
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            await Shop.later(5)
        sayso.Review().approve(caught.value.confirmation_id, by="ada")
        return await Shop.later(5)

    assert asyncio.run(twice()) == "later 5"
    assert approved_then(sayso.gate(Bank.fee, wait="raise"), 5) == "fee of 5"


def test_a_static_method_is_a_tool_in_both_orders() -> None:
    class Shop:
        @staticmethod
        @sayso.tool
        def below(amount: int) -> str:
            return f"below {amount}"

        @sayso.tool
        @staticmethod
        async def above(amount: int) -> str:
            return f"above {amount}"

    assert Shop.below.call(5) == "below 5"
    assert asyncio.run(Shop().above.acall(5)) == "above 5"


@pytest.mark.parametrize("thing", ["pay", None.__class__, 5, property(repr)], ids=["text", "type", "5", "property"])
def test_what_is_no_function_is_refused_by_what_it_is(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a function, not|is a class") as refused:
        sayso.gate()(thing)
    assert_short(refused.value)


def test_what_a_person_reads_who_decorates_a_method_is_short() -> None:
    text = "import sayso\nclass Shop:\n    @sayso.gate\n    def refund(self, amount: int) -> None: ...\n"
    process = program(text)
    _, shown = process.communicate(timeout=60)
    rows = [row for row in shown.splitlines() if not set(row) <= set(" ^~")]
    assert process.returncode == 1
    assert [row for row in rows if row.startswith("  File")] == [row for row in rows if "<string>" in row]
    assert rows[-1].startswith("TypeError: Shop.refund is a method")
    assert len(rows) <= 4 + (sys.version_info >= (3, 13)) * 4
