"""One POST to one address that a setting names: where it may go, and no more read than sent for."""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from sayso import errors

__all__ = ["AddressRefusedError", "Destination", "Resolve", "post"]

Resolve = Callable[[str, int], Collection[str]]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PORTS = frozenset({443, 8443})
_LONGEST_URL, _LONGEST_HOST = 2_000, 253
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # what the last label of an address in an odd spelling looks like
_VISIBLE = re.compile(r"[!-~]+")

# Written out, for what counts as global differs between versions of Python.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "168.63.129.16/32",  # a public address that in one cloud is the host beside the machine
        "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
    )
)  # fmt: skip
_GLOBAL_6 = ipaddress.ip_network("2000::/3")
# With these an operator's own network is meant; link-local and metadata addresses are nobody's receivers.
_PRIVATE = tuple(
    ipaddress.ip_network(network)
    for network in (
        "10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7",
    )
)  # fmt: skip
_NEVER = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254")))


class AddressRefusedError(errors.SaysoError):
    """A name leads where no message may go; there was no connection.

    Attributes:
        host: The name.
        address: What it resolved to, where that is why.
    """

    def __init__(self, host: str, address: str | None, why: str) -> None:
        super().__init__(f"nothing was sent to {host!a}: {why}")
        self.host = host
        self.address = address


@dataclass(frozen=True)
class Destination:
    """Where messages of a channel go.

    Attributes:
        is_tls: Whether by https.
        host: As named in the Host header and to TLS.
        port: At which port.
        path: What is asked for there, with the query. May hold a secret, so it is in no message and no `repr`.
        allow_private: Whether the operator's own network, and plain http, may be meant.
    """

    is_tls: bool
    host: str
    port: int
    path: str
    allow_private: bool

    def __repr__(self) -> str:
        return f"Destination({self.origin!r})"

    @property
    def origin(self) -> str:
        """What may be shown of it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"

    @classmethod
    def parse(cls, url: str, *, allow_private: bool = False, ports: Collection[int] = ()) -> Destination:
        """Return where a URL leads.

        Args:
            url: `https://host/path`, in its plain spelling.
            allow_private: Take private and loopback addresses, `http`, names without a dot, and any port.
            ports: Further ports, beside 443 and 8443.

        Raises:
            ConfigError: It is spelt in a way that two programs may read as two places, or leads where no message may
                go. The fault says nothing of the path, which may hold a secret.
        """
        if len(url) > _LONGEST_URL or _VISIBLE.fullmatch(url) is None or "\\" in url:
            raise _fault("is too long, or has spaces, backslashes or characters beyond ASCII (write names as xn--…)")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _fault("cannot be read") from None
        if parts.scheme != "https" and not (parts.scheme == "http" and allow_private):
            raise _fault("does not begin with https:// (http:// needs allow_private = true)")
        if "@" in parts.netloc or "#" in url or parts.netloc.endswith(":") or ("[" in parts.netloc) != (":" in host):
            raise _fault("names a user or a fragment, or has brackets or colons that mean nothing")
        default = 443 if parts.scheme == "https" else 80
        port = default if port is None else port
        if port == 0 or not (allow_private or port in _PORTS or port in ports):
            raise _fault(f"names port {port}; 443 and 8443 are taken, or what `ports = [...]` names")
        where = cls(parts.scheme == "https", host, port, _path(parts.path, parts.query), allow_private)
        where._check_host()
        return where

    def _check_host(self) -> None:
        literal = _literal(self.host)
        if literal is not None:
            if not _is_allowed(literal, allow_private=self.allow_private):
                raise _fault(_why(self.host))
            return
        if len(self.host) > _LONGEST_HOST or _HOST.fullmatch(self.host) is None:
            raise _fault("has a host that is no plain name")
        last = self.host.rpartition(".")[2]
        if _NUMBER.fullmatch(last) is not None:
            raise _fault("has an address in an odd spelling; write it as four decimal numbers")
        if "." not in self.host and not self.allow_private:
            raise _fault("has a host without a dot, which is a name of the own network")

    def resolve(self, resolve: Resolve | None = None) -> tuple[str, ...]:
        """Return the addresses to connect to; the name is asked for once.

        Raises:
            AddressRefusedError: One of them is no address for messages, so none of them is used.
            OSError: The name is not known now.
        """
        literal = _literal(self.host)
        found = [str(literal)] if literal else list(dict.fromkeys((resolve or _by_system)(self.host, self.port)))
        if not found:
            raise AddressRefusedError(self.host, None, "its name has no address")
        for address in found:
            known = _literal(address)
            if known is None or not _is_allowed(known, allow_private=self.allow_private):
                raise AddressRefusedError(self.host, address, _why(address))
        return tuple(found)


def _fault(what: str) -> errors.ConfigError:
    return errors.ConfigError(f"the url of a channel {what}; nothing is sent there")


def _why(address: str) -> str:
    return f"{address} is a private, local or reserved address (allow_private = true takes private ones)"


def _path(path: str, query: str) -> str:
    return f"{path or '/'}?{query}" if query else path or "/"


def _literal(host: str) -> _Address | None:
    """Return the address that a host is; None where it is a name. Python reads the plain spellings alone."""
    if "%" in host:
        return None
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_allowed(address: _Address, *, allow_private: bool) -> bool:
    if address in _NEVER:
        return False
    if allow_private and any(address in network for network in _PRIVATE):
        return True
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_6:
        return False  # with it those that stand for an IPv4 address: mapped, compatible, NAT64
    return not any(address in network for network in _NOT_PUBLIC)


def _by_system(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


SECONDS = 10.0


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
