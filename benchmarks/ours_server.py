"""sayso in the server mode: a server in one process, and in another a program that has its address and a token."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

from .contender import MEMO, make_effect
from .ours import Ours

__all__ = ["Asking", "Serving"]


class Serving(Ours):
    """The server, with a SQLite file of its own, and the person who decides there."""

    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant)
        self._kept = socket.socket()  # so that nobody else takes the port while the server restarts
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._kept.bind(("127.0.0.1", 0))
        self._begin()

    def _begin(self) -> None:
        import uvicorn

        from sayso.server import create_app

        self.listener = socket.create_server(("127.0.0.1", self._kept.getsockname()[1]), reuse_port=True)
        self.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        app = create_app(self.review.store, open_per_token=1_000)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],), daemon=True)
        self.thread.start()

    def restart(self, count: int, away: float) -> int:
        """End the server when so many wait, decide all, and start it again; return that instant (monotonic, ns)."""
        while len(found := self.review.list(state="pending", limit=count).requests) < count:
            time.sleep(0.05)
        self.server.should_exit = True
        self.thread.join()
        for request in found:
            self.review.approve(request.id, by=self.ada)
        time.sleep(away)
        self._begin()
        return time.monotonic_ns()

    def door(self) -> tuple[str, str]:
        """Return the address, and a token for a program."""
        from sayso.server.auth.tokens import Tokens

        token = Tokens(self.review.store).new("ask", "agent")[1]
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}", token

    def decide(self, ticket: str) -> float:
        """Approve, and return how long it took."""
        before = time.perf_counter()
        self.review.approve(ticket, by=self.ada)
        return time.perf_counter() - before

    def decide_next(self, pause: float) -> int:
        """Approve what will wait, after a pause; return the instant before the decision (monotonic, ns)."""
        until = time.monotonic() + 20
        while not (pending := self.review.list(state="pending", limit=1).requests):
            if time.monotonic() > until:
                raise TimeoutError("nothing was asked")
            time.sleep(0.005)
        time.sleep(pause)
        before = time.monotonic_ns()
        self.review.approve(pending[0].id, by=self.ada)
        return before


class Asking(Ours):
    """The program."""

    def meet(self, address: str, token: str) -> None:
        """Use the server from now on."""
        self.sayso.configure(store=address, token=token)
        self.pay = self.sayso.gate(wait="raise")(make_effect(self.effects))

        def stand(amount: int, to: str, memo: str) -> int:
            return time.monotonic_ns()

        self.stand: Any = self.sayso.gate(wait="block")(stand)

    def ask(self, amount: int) -> tuple[str, float]:
        """Ask, and return the id and how long it took."""
        before = time.perf_counter()
        try:
            with self.sayso.run(f"order-{amount}"):
                self.pay(amount, "alice", MEMO)
        except self.sayso.ConfirmationRequired as held:
            return held.confirmation_id, time.perf_counter() - before
        raise RuntimeError("the call was not held")

    def run(self, amount: int) -> float:
        """Make the call again, now that it was approved, and return how long it took."""
        before = time.perf_counter()
        with self.sayso.run(f"order-{amount}"):
            self.pay(amount, "alice", MEMO)
        return time.perf_counter() - before

    def wait(self, amount: int) -> int:
        """Return the instant (monotonic, ns) at which the held call began to run."""
        return self.stand(amount, "alice", MEMO)

    def get(self, ticket: str) -> float:
        """Return how long one look at a request takes."""
        store = self.sayso.Review().store
        before = time.perf_counter()
        store.get(ticket)
        return time.perf_counter() - before

    def crowd(self, count: int) -> list[int]:
        """Let so many tasks wait; return when each went on (monotonic, ns), and raise what one of them raises."""
        import asyncio

        async def stand(amount: int) -> int:
            return time.monotonic_ns()

        held = self.sayso.gate(wait="block")(stand)

        async def one(amount: int) -> int:
            with self.sayso.run(f"order-{amount}"):
                return await held(amount)

        async def all_of_them() -> list[int]:
            return list(await asyncio.gather(*map(one, range(count))))

        return asyncio.run(all_of_them())
