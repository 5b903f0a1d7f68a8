"""One POST to one address: no proxies of the environment, no redirects, an end in time, and no more read than said.

The name was resolved by `sayso.channels.outbound_address`; the connection goes to what was found there, while Host
header and certificate are of the name. Invariant: a receiver gets one connection and one request, and what it answers
is a number.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress

from sayso.channels.outbound_address import Destination, Resolve

__all__ = ["NotTakenError", "post"]

SECONDS = 10.0


class NotTakenError(OSError):
    """A receiver did not take a message; it is tried again later."""


def post(
    where: Destination, body: bytes, headers: Mapping[str, str], *, resolve: Resolve | None = None,
    ca_file: str | None = None, seconds: float = SECONDS,
) -> int:  # fmt: skip
    """Send a body and return the status of the answer; the answer itself is not read.

    Args:
        where: To whom.
        body: What is sent.
        headers: With which headers, beside those of HTTP itself.
        resolve: Finds addresses, in place of the system.
        ca_file: Certificates that are trusted, in place of the system's.
        seconds: How long all of it may take, names left out.

    Raises:
        AddressRefusedError: The name leads where no message may go.
        OSError: There was no connection, no trust, or no answer in time.
    """
    link = _Pinned(where, where.resolve(resolve), ca_file, time.monotonic() + seconds)
    with closing(link):
        try:
            link.request("POST", where.path, body, {**headers, "connection": "close"})
            with link.getresponse() as answer:
                return answer.status
        except http.client.HTTPException as error:
            raise OSError(f"{where.origin} did not answer as HTTP does ({type(error).__name__})") from None


class _Pinned(http.client.HTTPConnection):
    """A connection to addresses that are known, which is cut off at a deadline."""

    def __init__(self, where: Destination, addresses: Sequence[str], ca_file: str | None, deadline: float) -> None:
        super().__init__(where.host, where.port)
        self._where, self._addresses, self._deadline = where, addresses, deadline
        self._trust = ssl.create_default_context(cafile=ca_file) if where.is_tls else None
        self.default_port = 443 if where.is_tls else 80  # what the Host header leaves out
        self._cutter: socket.socket | None = None
        self._timer: threading.Timer | None = None

    def connect(self) -> None:
        """Connect to the first address that answers."""
        self.sock = plain = self._first()
        # A timeout counts for each piece, and who sends one byte a second would hold the line for a day.
        self._cutter = plain.dup()  # the handshake takes the first one over
        self._timer = threading.Timer(self._left(), _cut, (self._cutter,))
        self._timer.daemon = True
        self._timer.start()
        if self._trust is not None:
            self.sock = self._trust.wrap_socket(plain, server_hostname=self._where.host)

    def _first(self) -> socket.socket:
        *others, last = self._addresses
        for address in others:
            with suppress(OSError):
                return socket.create_connection((address, self._where.port), self._left() / 2)
        return socket.create_connection((last, self._where.port), self._left())

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("there was no answer in time")
        return left

    def close(self) -> None:
        """Close it, and let nobody cut it any more."""
        super().close()
        if self._timer is not None:
            self._timer.cancel()
        if self._cutter is not None:
            self._cutter.close()


def _cut(line: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        line.shutdown(socket.SHUT_RDWR)
