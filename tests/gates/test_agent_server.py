"""Many conversations at once, as a server of agents has them: half of them are cancelled, and approvals come late.

Many conversations make an equal call. The invariant: no call runs that its own conversation did not wait for, and each
that waits and is approved runs exactly once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from queue import SimpleQueue

import pytest

import sayso
from sayso import errors
from sayso.gates import dialog, stderr, wait
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store

CONVERSATIONS, AMOUNTS, PATIENCE = 200, 5, 60
HALF = CONVERSATIONS // 2

conversation: ContextVar[int] = ContextVar("conversation")


class Server:
    """The tools of the agents, who waits for a person, and what ran for whom."""

    def __init__(self) -> None:
        self.ran: Counter[int] = Counter()
        self.waiting: SimpleQueue[tuple[int, str]] = SimpleQueue()
        self.pool = ThreadPoolExecutor(8)
        self._lock = threading.Lock()

        @sayso.gate
        def refund(amount: int) -> int:
            return self._done(amount)

        @sayso.gate
        async def arefund(amount: int) -> int:
            return self._done(amount)

        self.refund, self.arefund = refund, arefund

    def _done(self, amount: int) -> int:
        with self._lock:
            self.ran[conversation.get()] += 1
        return amount

    def announce(self, _: Store, request: Request) -> None:
        """Note who waits, in the thread or task that does."""
        self.waiting.put((conversation.get(), request.id))

    def job(self, number: int) -> int:
        """What a thread does for one conversation, and then for another."""
        token = conversation.set(number)
        try:
            return self.refund(number % AMOUNTS)
        finally:
            conversation.reset(token)

    # How a conversation makes its call; each returns the amount.

    async def in_task(self, number: int) -> int:
        return await self.arefund(number % AMOUNTS)

    async def in_thread_of_its_task(self, number: int) -> int:
        return await asyncio.to_thread(self.refund, number % AMOUNTS)

    async def in_pool(self, number: int) -> int:
        return await asyncio.get_running_loop().run_in_executor(self.pool, self.job, number)

    async def in_pool_by_name(self, number: int) -> int:
        def job() -> int:
            with sayso.run(f"conversation-{number}"):
                return self.job(number)

        return await asyncio.get_running_loop().run_in_executor(self.pool, job)

    async def in_named_task(self, number: int) -> int:
        with sayso.run(f"conversation-{number}"):
            return await self.in_task(number)


@pytest.fixture
def server(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: False)
    monkeypatch.setattr(stderr, "announce", server.announce)
    monkeypatch.setattr(wait, "_LOOK_AGAIN", 3600.0)
    monkeypatch.setattr(Store, "look_again", 3600.0)
    return server


def review(decides: SimpleQueue[str | None]) -> None:
    """Approve one request after another, also those that nobody waits for any more."""
    ada = sayso.Review(reviewer="ada")
    while (request_id := decides.get(timeout=PATIENCE)) is not None:
        with suppress(errors.AlreadyDecidedError):
            ada.approve(request_id)


async def served(server: Server, call: Callable[[int], Awaitable[int]]) -> list[int | BaseException]:
    """Hold all conversations; as soon as one waits, cancel it if its number is odd, and then approve its request."""

    async def talk(number: int) -> int:
        conversation.set(number)
        return await call(number)

    decides: SimpleQueue[str | None] = SimpleQueue()
    reviewer = threading.Thread(target=review, args=[decides])
    reviewer.start()
    talks = [asyncio.create_task(talk(number)) for number in range(CONVERSATIONS)]
    with ThreadPoolExecutor(1) as listener:
        for _ in talks:
            waits = asyncio.get_running_loop().run_in_executor(listener, server.waiting.get, True, PATIENCE)
            number, request_id = await waits
            if number % 2:
                talks[number].cancel()
                await asyncio.wait([talks[number]])
            decides.put(request_id)
    ends = await asyncio.gather(*talks, return_exceptions=True)
    await asyncio.to_thread(server.pool.shutdown)
    decides.put(None)
    await asyncio.to_thread(reviewer.join, PATIENCE)
    return ends


@pytest.mark.parametrize(
    ("call", "left"),
    [
        (Server.in_task, State.CANCELLED),
        (Server.in_thread_of_its_task, State.CANCELLED),
        (Server.in_pool, State.CANCELLED),
        (Server.in_named_task, State.APPROVED),
        (Server.in_pool_by_name, State.APPROVED),
    ],
    ids=["tasks", "threads of tasks", "pool of threads", "named tasks", "named in a pool"],
)
def test_no_call_runs_that_its_conversation_did_not_wait_for(
    server: Server, file_store: Store, call: Callable[[Server, int], Awaitable[int]], left: State
) -> None:
    ends = asyncio.run(served(server, lambda number: call(server, number)))
    assert server.ran == dict.fromkeys(range(0, CONVERSATIONS, 2), 1)
    assert [type(end) for end in ends] == [int, asyncio.CancelledError] * HALF
    assert ends[::2] == [number % AMOUNTS for number in range(0, CONVERSATIONS, 2)]
    states = Counter(request.state for request in file_store.list(Filter(), limit=1_000).requests)
    # Approved too late in a named run: nothing of this process starts it, and the next process of the run finds it.
    assert states == {State.DONE: HALF, left: HALF}
