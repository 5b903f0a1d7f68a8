"""A TCP proxy that cuts the connection at a statement, before or after the server has processed it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

__all__ = ["Proxy"]


class Proxy:
    """Forwards each connection to a Unix socket, until it is told to cut one.

    Args:
        target: The server's socket.

    Attributes:
        port: Its port on 127.0.0.1.
        cuts: The number of connections that it has cut.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self._word: bytes | None = None
        self._when: Literal["before", "after"] = "before"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, when: Literal["before", "after"], word: str) -> None:
        """Cut the connection at the next message with this word, before the server gets it or after it answers."""
        self._when, self._word = when, word.encode()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._target))
            is_cut = threading.Event()
            threading.Thread(target=self._send, args=(client, server, is_cut), daemon=True).start()
            threading.Thread(target=self._answer, args=(client, server, is_cut), daemon=True).start()

    def _send(self, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
        while data := _received(client):
            word = self._word
            if word is not None and word in data:
                self._word = None
                self.cuts += 1
                if self._when == "before":
                    _shut(client, server)
                    return
                is_cut.set()  # before the answer, which is not passed on
            try:
                server.sendall(data)
            except OSError:  # the other direction has ended and closed it
                break
        if not is_cut.is_set():
            _shut(client, server)

    def _answer(self, client: socket.socket, server: socket.socket, is_cut: threading.Event) -> None:
        while data := _received(server):
            if is_cut.is_set():
                break
            try:
                client.sendall(data)
            except OSError:
                break
        _shut(client, server)


def _received(one: socket.socket) -> bytes:
    try:
        return one.recv(65536)
    except OSError:
        return b""


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
