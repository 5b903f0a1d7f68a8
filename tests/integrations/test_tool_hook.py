"""`ToolHook`, which the adapters share, without a framework."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, field_serializer, model_serializer
from pydantic.dataclasses import dataclass as pydantic_dataclass

import sayso
from sayso import aio
from sayso.errors import ConfigError, SaysoError
from sayso.integrations.shown import is_shown
from sayso.integrations.tool_calls import Call, PendingCalls, ToolHook, start_call
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.support.acting import waiting_in

SCHEMA = {
    "type": "object",
    "properties": {"purge": {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "number"}]}},
    "required": ["purge"],
}


@pytest.mark.parametrize(("before", "after"), [(1, True), (False, 0), (1, 1.0)])
def test_change_to_an_equal_value_of_another_type_is_what_runs(memory: Store, before: Any, after: Any) -> None:
    hook, ran = ToolHook(None, {"store": memory}), list[Any]()
    call = Call("clean", {"purge": before}, id="c1", conversation="thread-1", schema=SCHEMA)

    async def execute(approved: dict[str, Any]) -> str:
        ran.append(approved["purge"])
        return "cleaned"

    async def main() -> str:
        task = asyncio.ensure_future(hook.acall(call, execute))
        (request,) = await asyncio.to_thread(waiting_in, memory)
        sayso.Review(memory).approve(request.id, by="ada", changes={"purge": after})
        return (await task).text

    told = asyncio.run(main())
    assert [(type(value), value) for value in ran] == [(type(after), after)]
    assert "changed the arguments before clean ran" in told


@pytest.mark.parametrize("is_async", [True, False])
def test_call_whose_effect_is_taken_is_told_and_keeps_no_later_one_from_the_effect(
    memory: Store, is_async: bool
) -> None:
    hook, ran = ToolHook(None, {"store": memory, "effect": "clean:{purge}"}), list[Any]()
    review, ids = sayso.Review(memory), list[str]()

    async def execute(approved: dict[str, Any]) -> str:
        ran.append(approved)
        return "cleaned"

    async def told(call_id: str) -> str:
        call = Call("clean", {"purge": 1}, id=call_id, conversation="thread-1", schema=SCHEMA)
        waits = hook.acall(call, execute) if is_async else asyncio.to_thread(hook.call, call, ran.append)
        task = asyncio.ensure_future(waits)
        (request,) = await asyncio.to_thread(waiting_in, memory)
        ids.append(request.id)
        review.approve(request.id, by="ada")
        return (await task).text

    first = memory.ask(sample_call("run_1", effect="clean:1"))
    review.approve(first.id, by="ada")
    memory.start(first.id, "t")
    memory.finish(first.id, "t", Outcome("unknown", error="lost"))
    text = asyncio.run(told("c1"))
    assert text.startswith(f"clean was not run: its effect 'clean:1' is taken by {first.id}, which is unknown. This is")
    assert memory.get(ids[0]).state is State.CANCELLED
    review.resolve(first.id, happened=False, by="ada", comment="nothing was cleaned")
    asyncio.run(told("c2"))
    assert memory.get(ids[1]).state is State.DONE
    assert len(ran) == 1


def test_start_whose_effect_is_taken_is_refused_without_advice_for_people_and_withdrawn(memory: Store) -> None:
    review = sayso.Review(memory)
    first = memory.ask(sample_call("run_1", effect="clean:1"))
    review.approve(first.id, by="ada")
    memory.start(first.id, "t")

    async def main() -> str:
        held = await aio.hold("clean", {"purge": 1}, effect="clean:{purge}", store=memory)
        review.approve(str(held.id), by="ada")
        with pytest.raises(SaysoError) as refusal:
            await start_call(held)
        assert held.state == "cancelled"
        return str(refusal.value)

    assert asyncio.run(main()) == f"its effect 'clean:1' is taken by {first.id}, which is running"


@pytest.mark.parametrize("end", ["a" * 5_000, " ", "\x00"], ids=["long", "a space", "a control character"])
def test_a_call_is_made_once_whatever_id_the_model_gave_it(memory: Store, end: str) -> None:
    hook, ran = ToolHook(None, {"store": memory}), list[Any]()

    async def execute(approved: dict[str, Any]) -> str:
        ran.append(approved["purge"])
        return "cleaned"

    async def told(call_id: str) -> str:
        call = Call("clean", {"purge": 1}, id=call_id, conversation="thread-1", schema=SCHEMA)
        return (await hook.acall(call, execute)).text

    async def approved(call_id: str) -> str:
        task = asyncio.ensure_future(told(call_id))
        (request,) = await asyncio.to_thread(waiting_in, memory)
        sayso.Review(memory).approve(request.id, by="ada")
        return await task

    for begin in ("c1", "c2"):
        assert asyncio.run(approved(begin + end)) == "cleaned"
        assert asyncio.run(told(begin + end)) == "cleaned"
    assert ran == [1, 1]


class Line(BaseModel):
    price: int = Field(0, serialization_alias="cost")
    note: str = ""

    @field_serializer("note")
    def short(self, note: str) -> str:
        return note[:3]


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")

    lines: list[Line] = []
    amount: int = Field(10, exclude=True)
    pin: SecretStr = SecretStr("")


class Hidden(BaseModel):
    amount: int

    @model_serializer
    def nothing(self) -> str:
        return "an order"


class Defaults(BaseModel):
    discount: float = 0
    rate: float | None = 0
    weights: list[float] = [0, 1]
    pair: tuple[float, float] = (0, 1)


@dataclass
class Parcel:
    order: Order


@pydantic_dataclass
class Aliased:
    price: Annotated[float, Field(alias="cost")] = 0


SHOWN_WHOLE = {
    "alias and no secret": Order(lines=[Line(price=5, note="abc")], pin=SecretStr("")),
    "further field": Order.model_validate({"colour": "red"}),
    "default": Parcel(Order()),
    "defaults of other types": Defaults(),
    "alias of a dataclass": Aliased(),
    "root": RootModel[list[Line]]([Line(price=5)]),
    "plain": {"a": [1, 2.5, True, None, ("x", Decimal("1.50"), date(2026, 1, 1))], "b": {"c"}},
}
SHOWN_IN_PART = {
    "order.amount": Order(amount=5_000),
    "order.pin": Order(pin=SecretStr("0815")),
    "order.lines.0.note": Order(lines=[Line(note="abcdef")]),
    "order.order.amount": Parcel(Order(amount=5_000)),
    "order.1.amount": [1, Order(amount=5_000)],
    "order.x.amount": {"x": Hidden(amount=5_000)},
    "order.amount again": RootModel[Order](Order(amount=5_000)),
}


@pytest.mark.parametrize("order", SHOWN_WHOLE.values(), ids=SHOWN_WHOLE)
def test_values_that_are_shown_whole_reach_the_tool_as_they_are(memory: Store, order: Any) -> None:
    hook, ran = ToolHook(None, {"store": memory, "when": False}), list[Any]()
    call = Call("pay", {"order": order}, id="c1", conversation="thread-1")
    assert hook.call(call, lambda approved: ran.append(approved["order"])).has_run
    assert ran == [order]
    assert ran[0] is order


@pytest.mark.parametrize(("place", "order"), SHOWN_IN_PART.items(), ids=SHOWN_IN_PART)
def test_value_that_its_model_does_not_show_whole_is_refused(memory: Store, place: str, order: Any) -> None:
    hook, ran = ToolHook(None, {"store": memory, "when": False}), list[Any]()
    call = Call("pay", {"order": order}, id="c1", conversation="thread-1")

    async def execute(approved: dict[str, Any]) -> None:
        ran.append(approved)

    for result in (hook.call(call, ran.append), asyncio.run(hook.acall(call, execute))):
        assert not result.has_run
        assert f"argument '{place.removesuffix(' again')}' is left out or changed" in result.words
    assert ran == []


def test_key_that_changes_while_the_call_waits_is_not_taken_for_the_one_that_was_shown() -> None:
    assert is_shown({"to": {"bob": Decimal(10), 7: None}}, {"to": {"7": None, "bob": "10"}})
    for to in ({"eve": Decimal(10)}, {"bob": Decimal(10), "eve": Decimal(10)}, {}):
        assert not is_shown({"to": to}, {"to": {"bob": "10"}})
    for to in ([], ["bob", "eve"], {"bob"}, "bob"):
        assert is_shown(to, ["bob"]) is (to == {"bob"})
    assert not is_shown({"to": True}, {"to": 1})
    assert not is_shown({"to": 1}, {"to": 2.0})


@pytest.mark.parametrize("line", [{"price": 40}, Line(price=40)], ids=["JSON", "a model"])
def test_arguments_that_change_while_the_call_waits_run_as_they_were_shown(memory: Store, line: Any) -> None:
    hook, ran, lines = ToolHook(None, {"store": memory}), list[Any](), [line]
    call = Call("pay", {"lines": lines}, id="c1", conversation="thread-1")

    async def execute(approved: dict[str, Any]) -> None:
        ran.append(approved)

    async def main() -> None:
        task = asyncio.ensure_future(hook.acall(call, execute))
        (request,) = await asyncio.to_thread(waiting_in, memory)
        lines.append({"price": 99_999})
        sayso.Review(memory).approve(request.id, by="ada")
        await task

    asyncio.run(main())
    (request,) = sayso.Review(memory).list(state="done")
    assert ran == [{"lines": [{"price": 40} if isinstance(line, dict) else {"cost": 40, "note": ""}]}]
    assert ran == [request.call.arguments]


@pytest.mark.parametrize(("own", "added"), [({"to": "bob"}, {"user": "ada"}), ({"to": "bob", "user": "root"}, {})])
def test_argument_that_the_model_gives_in_place_of_the_framework_is_shown(own: Any, added: Any) -> None:
    pending = PendingCalls()
    pending.show([("c1", "send", own)], "I send it.")
    assert pending.take("send", {**own, **added}, {"user"}) == ("c1", "I send it.", own)


def test_name_that_no_tool_matches_is_an_error() -> None:
    hook = ToolHook(["refund", "delete_*"], {})
    with pytest.raises(ConfigError, match=r"no tool 'delete_\*' to hold, only lookup, refund"):
        hook.holds("lookup", ["refund", "lookup"])
    assert not hook.holds("lookup", ["refund", "lookup", "delete_file"])


def test_name_that_a_later_tool_may_match_is_warned_about_once_and_stops_a_similar_call() -> None:
    hook, known = ToolHook(["refnd", "lookup"], {}), ["refund", "lookup", "list"]
    with pytest.warns(RuntimeWarning, match="no known tool matches 'refnd'.* are list, lookup, refund"):
        assert not hook.holds("list", known, or_more=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hook.holds("lookup", known, or_more=True)
        with pytest.raises(ConfigError, match="refund is not among the tools to hold, but 'refnd' is"):
            hook.holds("refund", known, or_more=True)
        assert not hook.holds("refund", [*known, "refnd"], or_more=True)


def test_where_warnings_are_errors_each_call_is_refused_while_a_name_matches_no_tool() -> None:
    hook = ToolHook(["pay"], {})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "no known tool matches")
        for _ in range(2):
            with pytest.raises(RuntimeWarning, match="no known tool matches 'pay'"):
                hook.holds("refund", ["refund"], or_more=True)
        assert not hook.holds("refund", ["refund", "pay"], or_more=True)


def test_tools_are_listed_until_each_name_has_matched_one_and_hidden_ones_are_not_told() -> None:
    hook, hidden, listed = ToolHook(["refund", "delete_*"], {}), ["wipe"], list[None]()

    async def list_names() -> tuple[list[str], list[str], bool]:
        listed.append(None)
        return ["lookup", "refund"], hidden, True

    async def main() -> None:
        with pytest.raises(ConfigError, match=r"no tool 'delete_\*' to hold, only lookup, refund$"):
            await hook.holds_in("lookup", list_names)
        hidden.append("delete_user")
        assert await hook.holds_in("delete_user", list_names)
        assert not await hook.holds_in("lookup", list_names)

    asyncio.run(main())
    assert len(listed) == 2
