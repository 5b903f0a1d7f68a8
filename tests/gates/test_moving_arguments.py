"""An async rule is asked about the call that runs: what another task changes meanwhile is not let through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.stores.base import Filter, Store


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


def test_a_sync_rule_is_not_watched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from sayso.model import canonical

    def never(arguments: object) -> None:
        raise AssertionError("encoded for a rule that cannot be interrupted")

    @sayso.gate(when=lambda to: len(to) > 1)
    def send(to: list[str]) -> int:
        return len(to)

    monkeypatch.setattr(canonical, "encode", never)
    assert send(["bob"]) == 1
