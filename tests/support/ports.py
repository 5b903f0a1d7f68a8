"""Ports for programs that a test starts and that cannot listen on a port of the system's choice."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import suppress

__all__ = ["free_port"]

_numbers = itertools.count(os.getpid() % 200 * 100)  # so that processes of tests do not look at the same ports


def free_port() -> int:
    """Return a port that nobody gets by chance before the program listens.

    It is below those that a system gives to connections and to who asks for port 0.
    """
    for number in _numbers:
        port = 10_000 + number % 20_000
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError
