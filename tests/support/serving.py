"""A real sayso server on a local port, in a thread of the test process.

One server is used for many tests; `app` is its current application. Invariant: it ends, together with its thread and
connections, when the tests that use it have ended.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import uvicorn

from sayso.server import create_app
from sayso.server.auth.tokens import TokenKind, Tokens
from sayso.stores.base import Store

__all__ = ["Serving", "new_token", "reserved_port", "serving"]

_PATIENCE = 30


@contextmanager
def reserved_port() -> Generator[int]:
    """Reserve a port inside the block; connections to it are refused unless one of our servers listens.

    The server must set `reuse_port`.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("127.0.0.1", 0))
        yield int(kept.getsockname()[1])


class Serving:
    """A server.

    Args:
        port: The port to listen on: a reserved one, or 0 for a free one.
        store: The store to serve at first.

    Attributes:
        app: The current ASGI application.
        url: The server's address.
    """

    def __init__(self, port: int = 0, store: Store | None = None) -> None:
        self.app: Any = None
        self.url = ""
        if store is not None:
            self.of(store)
        self._socket = socket.create_server(("127.0.0.1", port), backlog=512, reuse_port=port != 0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as `sayso serve` does
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await self.app(scope, receive, send)

        settings = uvicorn.Config(
            answer, log_config=None, access_log=False, server_header=False, lifespan="off",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()

    def of(self, store: Store, **options: Any) -> str:
        """Serve a store from now on, without a rate limit, and return the address."""
        self.app = create_app(store, **{"rate": None, **options})
        return self.url

    def end(self) -> None:
        """Stop as a deployment would: requests in progress are cut off after a second."""
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive()
        self._socket.close()


@contextmanager
def serving(port: int = 0, store: Store | None = None) -> Generator[Serving]:
    """Run a server inside the block."""
    server = Serving(port, store)
    try:
        yield server
    finally:
        server.end()


def new_token(store: Store, kind: TokenKind = "ask", name: str = "tests", **options: Any) -> str:
    """Create a token and return its text."""
    return Tokens(store).new(kind, name, **options)[1]
