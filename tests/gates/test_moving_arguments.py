"""A rule judges the call that runs, and people see it: what changes while sayso waits for something is not let through.

Something else changes the arguments while an async rule is awaited, or while the store looks up a key or writes a log
entry.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, UserDict, deque
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

import sayso
from sayso import errors, policy
from sayso.stores.base import Filter, Store
from tests.support.acting import aheld, held


class Client:
    """What has no canonical form."""


async def through(answer: bool, change: Callable[[list[Any]], object], *more: Any) -> list[Any]:
    """Make a call whose list another task changes while the rule is awaited; return what ran."""
    ran: list[Any] = []
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def when() -> bool:
        asked.set()
        await go_on.wait()
        return answer

    @sayso.gate(when=when, wait="raise")
    async def send(to: list[Any], more: Any = None) -> str:
        ran.append(list(to))
        return "sent"

    async def meddle() -> None:
        await asked.wait()
        change(to)
        go_on.set()

    to: list[Any] = ["bob"]
    await asyncio.gather(send(to, *more), meddle())
    return ran


def no_change(to: list[Any]) -> None:
    """Leave the list alone."""


@pytest.mark.parametrize("answer", [True, False], ids=["hold", "allow"])
@pytest.mark.parametrize("more", [(), (Client(),)], ids=["encodable", "beside a client"])
def test_call_that_changed_while_an_async_rule_decided_does_not_run(
    store: Store, answer: bool, more: tuple[Any, ...]
) -> None:
    with pytest.raises(errors.PolicyError, match="the arguments changed while the rule decided"):
        asyncio.run(through(answer, lambda to: to.append("eve"), *more))
    assert store.count(Filter()) == 0


@pytest.mark.parametrize("more", [(), (Client(),)], ids=["encodable", "beside a client"])
def test_call_that_an_async_rule_lets_through_runs_where_nothing_changed(store: Store, more: tuple[Any, ...]) -> None:
    assert asyncio.run(through(False, no_change, *more)) == [["bob"]]


def test_call_that_an_async_rule_holds_waits_where_nothing_changed(store: Store) -> None:
    with pytest.raises(sayso.ConfirmationRequired):
        asyncio.run(through(True, no_change))


def test_what_an_awaitable_of_a_plain_rule_decides_is_watched_too(store: Store) -> None:
    ran: list[Any] = []
    to = ["bob"]

    def when(to: list[str]) -> Awaitable[bool]:
        async def decide() -> bool:
            await asyncio.sleep(0)
            to.append("eve")
            return False

        return decide()

    @sayso.gate(when=when, wait="raise")
    async def send(to: list[str]) -> None:
        ran.append(to)

    with pytest.raises(errors.PolicyError, match="changed while"):
        asyncio.run(send(to))
    assert ran == []


class Quote(pydantic.BaseModel):
    """A model with a value that is not a field."""

    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    client: Client
    _amount: int = pydantic.PrivateAttr(default=10)


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: SimpleNamespace(amount=10), lambda order: vars(order).update(amount=1_000_000)),
        (lambda: UserDict(amount=10), lambda order: order.update(amount=1_000_000)),
        (lambda: OrderedDict(amount=10), lambda order: order.update(amount=1_000_000)),
        (lambda: deque([10]), lambda order: order.append(1_000_000)),
        (lambda: bytearray(b"10"), lambda order: order.extend(b"00000")),
        (lambda: Quote(client=Client()), lambda order: setattr(order, "_amount", 1_000_000)),
    ],
    ids=["namespace", "UserDict", "OrderedDict", "deque", "bytearray", "model"],
)
def test_a_container_without_a_canonical_form_is_watched_too(
    store: Store, make: Callable[[], Any], change: Callable[[Any], object]
) -> None:
    ran, order = list[Any](), make()

    async def when() -> bool:
        await asyncio.sleep(0)
        change(order)
        return False

    @sayso.gate(when=when, wait="raise")
    async def pay(order: Any) -> None:
        ran.append(order)

    with pytest.raises(errors.PolicyError, match="the arguments changed while the rule decided"):
        asyncio.run(pay(order))
    assert ran == []


def test_a_long_list_without_a_canonical_form_that_did_not_change_is_let_through(store: Store) -> None:
    async def when() -> bool:
        await asyncio.sleep(0)
        return False

    @sayso.gate(when=when, wait="raise")
    async def send(rows: list[Client]) -> int:
        return len(rows)

    assert asyncio.run(send([Client()] * 1_000)) == 1_000


class OnlyLarge:
    """A rule that is an object, looks at the amount after a while, and answers after another while."""

    def __init__(self) -> None:
        self.asked, self.look, self.has_looked, self.answer = (asyncio.Event() for _ in range(4))

    async def __call__(self, order: dict[str, int]) -> bool:
        self.asked.set()
        await self.look.wait()
        is_large = order["amount"] > 100
        self.has_looked.set()
        await self.answer.wait()
        return is_large


@pytest.mark.parametrize("more", [(), (Client(),)], ids=["encodable", "beside a client"])
def test_a_change_that_is_undone_before_an_async_rule_answers_is_not_seen_by_it(
    store: Store, more: tuple[Any, ...]
) -> None:
    ran, rule = list[int](), OnlyLarge()

    @sayso.gate(when=rule, wait="raise")
    async def pay(order: dict[str, int], more: Any = None) -> None:
        ran.append(order["amount"])

    async def main() -> None:
        order = {"amount": 1_000_000}
        task = asyncio.create_task(pay(order, *more))
        await rule.asked.wait()
        order["amount"] = 10
        rule.look.set()
        await rule.has_looked.wait()
        order["amount"] = 1_000_000
        rule.answer.set()
        await task

    # It is held; a client cannot be shown to anybody.
    with pytest.raises(errors.ArgumentError if more else sayso.ConfirmationRequired):
        asyncio.run(main())
    assert ran == []


def test_a_sync_rule_is_not_watched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from sayso.model import canonical

    def never(arguments: object) -> None:
        raise AssertionError("encoded for a rule that cannot be interrupted")

    @sayso.gate(when=lambda to: len(to) > 1)
    def send(to: list[str]) -> int:
        return len(to)

    @sayso.gate(when=lambda to: len(to) > 1)
    async def asend(to: list[str]) -> int:
        return len(to)

    monkeypatch.setattr(canonical, "encode", never)
    assert send(["bob"]) == 1
    assert asyncio.run(asend(["bob"])) == 1


# -- the store's own calls --------------------------------------------------------------------------------------------


def changes_during(monkeypatch: pytest.MonkeyPatch, store: Store, verb: str, order: dict[str, Any]) -> None:
    """Change the order each time that the store does something, as another task or thread may."""
    real = getattr(store, verb)

    def changed(*args: Any, **kwargs: Any) -> Any:
        order["amount"] += 1_000_000
        return real(*args, **kwargs)

    monkeypatch.setattr(store, verb, changed)


def over_100(order: dict[str, Any]) -> bool:
    return bool(order["amount"] > 100)


async def over_100_after_a_while(order: dict[str, Any]) -> bool:
    await asyncio.sleep(0)
    return over_100(order)


def logged(order: dict[str, Any]) -> policy.Verdict:
    return policy.hold() if over_100(order) else policy.allow(log=True)


async def key_later(order: dict[str, Any]) -> str:
    await asyncio.sleep(0)
    return str(order["id"])


WATCHED: dict[str, tuple[str, dict[str, Any]]] = {
    "a key": ("find_key", {"when": over_100, "key": "{order[id]}"}),
    "an async key": ("find_key", {"when": over_100, "key": key_later}),
    "an async rule and a key": ("find_key", {"when": over_100_after_a_while, "key": "{order[id]}"}),
    "a log entry": ("note", {"when": logged}),
}


def paying(ran: list[int], options: dict[str, Any], *, is_async: bool) -> Callable[[dict[str, Any]], object]:
    if is_async:

        @sayso.gate(wait="raise", **options)
        async def apay(order: dict[str, Any]) -> None:
            ran.append(order["amount"])

        return lambda order: asyncio.run(apay(order))

    @sayso.gate(wait="raise", **options)
    def pay(order: dict[str, Any]) -> None:
        ran.append(order["amount"])

    return pay


@pytest.mark.parametrize("name", WATCHED)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_call_that_changed_after_its_rule_had_let_it_through_does_not_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str, is_async: bool
) -> None:
    verb, options = WATCHED[name]
    if not is_async and "async" in name:
        return
    ran: list[int] = []
    pay, order = paying(ran, options, is_async=is_async), {"id": "A", "amount": 5}
    with sayso.run("order-A"), monkeypatch.context() as patch:
        changes_during(patch, store, verb, order)
        with pytest.raises(errors.PolicyError, match="the arguments changed after the rule had decided"):
            pay(order)
    assert ran == []
    assert store.count(Filter()) == 0
    with sayso.run("order-A"):
        pay({"id": "A", "amount": 6})
        pay({"id": "B", "amount": 7, "client": Client(), "tags": {"x"}, "more": [1.5, None]})
    assert ran == [6, 7], "what does not change runs"


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a value": lambda order: order.update(amount=1_000_000),
    "a type": lambda order: order.update(amount=5.0),
    "a new key": lambda order: order.update(again=True),
    "a value inside": lambda order: order["lines"][0].update(price=2),
    "a list": lambda order: order["lines"].append(1),
    "a set": lambda order: order["tags"].add("b"),
    "an object": lambda order: order.update(client=None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_beside_what_has_no_canonical_form_is_found(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    order: dict[str, Any] = {"id": "A", "amount": 5, "lines": [{"price": 1}], "tags": {"a"}, "client": Client()}
    order["self"] = order
    ran: list[int] = []
    pay, real = paying(ran, {"when": over_100, "key": "{order[id]}"}, is_async=False), store.find_key

    def changed(*args: Any) -> Any:
        CHANGES[name](order)
        return real(*args)

    monkeypatch.setattr(store, "find_key", changed)
    with sayso.run("order-A"), pytest.raises(errors.PolicyError, match="changed after"):
        pay(order)
    assert ran == []


@pytest.mark.parametrize("key", [None, "{order[id]}", key_later], ids=["no key", "key", "async key"])
def test_texts_effect_and_key_are_those_of_the_recorded_arguments(
    store: Store, monkeypatch: pytest.MonkeyPatch, key: Any
) -> None:
    order: dict[str, Any] = {"id": "A", "amount": 5}

    async def slow_prompt(order: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        return f"Pay {order['amount']}?"

    @sayso.gate(
        wait="raise", key=key, title="Payment of {order[amount]}", summary="Pay {order[amount]} EUR",
        prompt=slow_prompt, effect="pay:{order[id]}:{order[amount]}",
    )  # fmt: skip
    async def pay(order: dict[str, Any]) -> int:
        return int(order["amount"])

    async def ask() -> str:
        async def change() -> None:
            order.update(id="B", amount=1_000_000)

        changing = asyncio.create_task(change())
        with pytest.raises(sayso.ConfirmationRequired) as waits:
            await pay(order)
        await changing
        return waits.value.id

    changes_during(monkeypatch, store, "find" if key is None else "find_key", order)
    with sayso.run("order-A"):
        request = store.get(asyncio.run(ask()))
    assert request.call.arguments == {"order": {"id": "A", "amount": 5}}
    assert (request.title, request.summary, request.prompt) == ("Payment of 5", "Pay 5 EUR", "Pay 5?")
    assert request.effect == "pay:A:5"
    assert request.key == (None if key is None else "A")


def test_a_hook_that_changes_its_arguments_changes_no_other_text_and_not_the_call(store: Store) -> None:
    def changing(order: dict[str, Any]) -> str:
        order["amount"] -= 1
        return f"Pay {order['amount']}"

    @sayso.gate(wait="raise", key=changing, prompt=changing, effect=changing, title=changing, summary=changing)
    def pay(order: dict[str, Any]) -> int:
        return int(order["amount"])

    with sayso.run("order-A"):
        request = store.get(held(pay, {"amount": 5}).id)
        assert {request.key, request.prompt, request.effect, request.title, request.summary} == {"Pay 4"}
        sayso.Review(reviewer="ada").approve(request.id)
        assert pay({"amount": 5}) == 5


def test_a_captured_value_that_changes_while_the_effect_is_computed_is_not_used(store: Store) -> None:
    account, ran = "A", list[str]()

    async def effect(amount: int) -> str:
        nonlocal account
        await asyncio.sleep(0)
        if sayso.Review().list(state="running").requests:  # the start is recorded
            account = "B"
        return f"pay:{amount}"

    @sayso.gate(wait="raise", effect=effect)
    async def pay(amount: int) -> None:
        ran.append(account)

    with sayso.run("order-A"):
        request_id = asyncio.run(aheld(pay, 5)).id
        sayso.Review(reviewer="ada").approve(request_id)
        with pytest.raises(errors.AlteredRequestError):
            asyncio.run(pay(5))
    assert ran == []
    assert not sayso.Review().list(state="running").requests
