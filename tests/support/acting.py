"""Short functions for what programs and people do in tests.

`held` and `aheld` make a call that must wait, `approved` lets a person approve one, `flaky` makes one with scripted
outcomes, and `program` and `forked` run another process. Invariant: each of them fails if the call was not held.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from tests.support import warm

__all__ = [
    "AHELD", "HELD", "Disk", "Pay", "aflaky", "aheld", "approved", "assert_spent", "concurrently", "flaky", "forked",
    "held", "payer", "program", "running", "state_of", "unknown", "waiting_in",
]  # fmt: skip


# Programs that hold a tool's call in the configured store, and withdraw it when they stop waiting.
HELD = """
import sayso
with sayso.hold("refund", {"order_id": "A-4721"}, run="thread-1", key="call_1", withdraw_on_exit=True) as held:
    held.wait()
    print(held.once(lambda _: "refunded"))
"""
AHELD = """
import asyncio, sayso.aio
async def refund(_):
    return "refunded"

async def main():
    call = await sayso.aio.hold("refund", {"order_id": "A-4721"}, run="thread-1", key="call_1", withdraw_on_exit=True)
    async with call as held:
        await held.wait()
        print(await held.once(refund))

asyncio.run(main())
"""


class Disk:
    """Collects the effects of a test's calls, so that they can be counted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, path: str = "/tmp/scratch") -> str:
        self.deleted.append(path)
        return f"Deleted {path}"


def held(function: Callable[..., Any], *args: Any, **kwargs: Any) -> sayso.ConfirmationRequired:
    """Make a call that must wait, and return what it raised."""
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        function(*args, **kwargs)
    return caught.value


async def aheld(function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> sayso.ConfirmationRequired:
    """Make an async call that must wait, and return what it raised."""
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        await function(*args, **kwargs)
    return caught.value


def approved(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Make a call that must wait, let a person approve it, and return the id of its request."""
    request_id = held(function, *args, **kwargs).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    return request_id


def program(text: str, *args: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program in another process."""
    return _started([sys.executable, "-c", text, *args], environment)


def forked(text: str, *args: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program in another process, in a tenth of the time (see `warm`).

    It is for programs that get no signal from outside, which would reach the process in front of the program only.
    """
    return _started([sys.executable, "-I", "-S", str(warm.CLIENT), warm.address(), "-c", text, *args], environment)


def _started(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def running(process: subprocess.Popen[str]) -> str:
    """Wait for a program to succeed, and return its output."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


def concurrently(count: int, work: Callable[[], Any]) -> list[Any]:
    """Call a function in several threads at the same moment; return what each call returned or raised."""
    ready = threading.Barrier(count)
    results: list[Any] = []

    def one() -> None:
        ready.wait(30)
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001  the test checks it
            results.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == count
    return results


def waiting_in(store: Store, count: int = 1, **wanted: Any) -> list[Request]:
    """Wait until `count` requests are pending in a store, and return them."""
    changed, states = threading.Event(), frozenset({State.PENDING})
    unwatch = store.watch_all(changed.set)
    try:
        while True:
            changed.clear()
            found = store.list(Filter(states=states, **wanted), limit=1_000).requests
            if len(found) >= count:
                return list(found)
            assert changed.wait(30), found
    finally:
        unwatch()


def state_of(request_id: str) -> State:
    """Return the state of a request in the configured store."""
    return sayso.Review().get(request_id).state


def flaky(ran: list[int], ends: list[Any], **options: Any) -> Callable[[int], Any]:
    """Return a gated call that takes its outcomes from `ends`, in order, and counts its effects."""

    @sayso.gate(wait="raise", **options)
    def act(amount: int) -> Any:
        ran.append(amount)
        end = ends.pop(0) if ends else "done"
        if isinstance(end, BaseException):
            raise end
        return end

    return act


def aflaky(ran: list[int], ends: list[Any], **options: Any) -> Callable[[int], Any]:
    """Return the async version of `flaky`."""

    @sayso.gate(wait="raise", **options)
    async def act(amount: int) -> Any:
        ran.append(amount)
        await asyncio.sleep(0)
        end = ends.pop(0) if ends else "done"
        if isinstance(end, BaseException):
            raise end
        return end

    return act


def unknown(act: Callable[[int], Any]) -> str:
    """Make a call whose outcome is unknown, and return the id of its request."""
    request_id = approved(act, 1)
    with pytest.raises(KeyboardInterrupt):
        act(1)
    assert state_of(request_id) is State.UNKNOWN
    return request_id


Pay = Callable[..., str]
"""A gated call that takes an amount and a recipient."""


def payer(**options: Any) -> Pay:
    """Return a gated call with these options that returns what it paid."""

    @sayso.gate(wait="raise", **options)
    def pay(amount: int, to: str = "alice") -> str:
        return f"paid {amount} to {to}"

    return pay


def assert_spent(act: Callable[[int], Any], request_id: str, state: State) -> None:
    """Make the same call again: after a failure it is asked again, and after an unknown outcome nothing happens."""
    if state is State.FAILED:
        assert held(act, 1).confirmation_id != request_id
        return
    for _ in range(2):
        with pytest.raises(errors.OutcomeUnknownError, match=request_id) as caught:
            act(1)
        assert caught.value.request_id == request_id
