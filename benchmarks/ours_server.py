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
        import uvicorn

        from sayso.inbox import create_app

        super().__init__(folder, variant)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        app = create_app(self.review.store, rate=None)
        self.server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        threading.Thread(target=self.server.run, args=([self.listener],), daemon=True).start()

    def door(self) -> tuple[str, str]:
        """Return the address, and a token for a program."""
        from sayso.inbox.token import Tokens

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
