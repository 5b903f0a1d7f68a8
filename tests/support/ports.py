"""Ports for programs under test that cannot listen on a port chosen by the system."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import suppress

__all__ = ["free_port"]

_numbers = itertools.count(os.getpid() % 200 * 100)  # so that test processes do not try the same ports


def free_port() -> int:
    """Return a port that no other program gets by chance before the program listens.

    It is below the range that the system assigns to connections and for port 0.
    """
    for number in _numbers:
        port = 10_000 + number % 20_000
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError
