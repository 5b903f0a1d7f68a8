"""Sign-in by a trusted proxy, which names the user in a header of every request.

Anybody can send such a header, so it counts only if the connection comes from one of the proxy's own addresses. A
request from another address, or whose header is not exactly one plain name, is not signed in.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from starlette.requests import Request as Http

from sayso import errors
from sayso.model.escaping import escape
from sayso.model.reviewer import Reviewer
from sayso.server.api.problems import FaultLog

PROXY = "proxy"  # the issuer of people whom a proxy has signed in

_LONGEST_SENDER = 100  # characters of what a proxy writes in place of an address

_log = logging.getLogger("sayso.server")


def networks(texts: Sequence[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the networks that texts such as `10.0.0.0/8` and `::1` name; raises `ConfigError` where one names none."""
    try:
        found = tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise errors.ConfigError(f"a trusted proxy is an address or a network like 10.0.0.0/8; {error}") from error
    if any(network.prefixlen == 0 for network in found):
        raise errors.ConfigError("a trusted proxy cannot be everywhere: anybody could name themselves in the header")
    return found


@dataclass(frozen=True)
class Proxy:
    """A proxy that is trusted.

    Attributes:
        peers: Where it is.
        header: Which header names the person; None where it signs nobody in and only passes requests on.
        roles_header: Which header lists the person's roles, with commas between them.
        is_direct: Whether the server below never takes a connection's address from a header, as `sayso serve`. Where it
            might, a request whose `X-Forwarded-For` names the address itself is not the proxy's.
    """

    peers: tuple[IPv4Network | IPv6Network, ...]
    header: str | None = None
    roles_header: str | None = None
    is_direct: bool = False
    _log: FaultLog = field(default_factory=FaultLog, init=False, repr=False, compare=False)

    def is_peer(self, http: Http) -> bool:
        """Say whether a request comes from the proxy."""
        peer = None if http.client is None else _address(_host(http.client.host))
        if peer is None or not any(peer in network for network in self.peers):
            return False
        # By its defaults uvicorn lets any program on 127.0.0.1 say from where it connects.
        listed = ",".join(http.headers.getlist("x-forwarded-for")).split(",")
        if self.is_direct or peer not in {_address(_host(text.strip())) for text in listed}:
            return True
        _log.warning(
            "a request is not taken for the proxy's: X-Forwarded-For names %s, and the server may have its address from"
            " there; start it with proxy_headers=False",
            peer,
        )
        return False

    def who(self, http: Http) -> Reviewer | None:
        """Return whom the proxy names; None where the request is not the proxy's, or names nobody properly."""
        if self.header is None:
            return None
        names = http.headers.getlist(self.header)
        if not self.is_peer(http):
            if names:
                peer = http.client.host if http.client else "a socket"
                self._refused(f"{escape(self.header)} from {escape(peer)}: trusted_proxies does not list that address")
            return None
        if not "".join(names).strip():
            return self._refused(f"the proxy's {escape(self.header)} is {'empty' if names else 'missing'}")
        roles = http.headers.getlist(self.roles_header) if self.roles_header else []
        if len(names) > 1 or len(roles) > 1:  # the proxy has let through what its client wrote
            return self._refused("it has a header of the person or of the roles twice")
        if "," in names[0]:  # as some proxies join what their client wrote to what they set
            return self._refused("the header of the person has a comma, and may name two")
        try:
            listed = [word.strip() for text in roles for word in _plain(text).split(",") if word.strip()]
            return Reviewer(_plain(names[0]), roles=listed, issuer=PROXY)
        except ValueError as error:
            return self._refused(str(error))

    def _refused(self, why: str) -> None:
        self._log.warn(f"a request of the proxy signs nobody in: {why}")

    def origin_of(self, http: Http) -> str:
        """Return where a request came from (`sender_of`), as the proxy tells it, else by the connection."""
        forwarded = http.headers.getlist("x-forwarded-for") if self.is_peer(http) else []
        last = forwarded[-1].rpartition(",")[2].strip() if forwarded else ""
        return sender_of(last or (http.client.host if http.client else ""))


def sender_of(text: str) -> str:
    """Return whom an address stands for, for limits: of IPv6 the network of 64 bits, all of which one machine has.

    Some proxies write a port behind it, which is another one for each connection.
    """
    host = _host(text)
    address = _address(host)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, 64), strict=False))
    return str(address or host[:_LONGEST_SENDER])


def _host(text: str) -> str:
    """Return an address without its port and zone."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return text.partition("%")[0]


def _plain(value: str) -> str:
    return value.encode("latin-1").decode("utf-8")  # a server hands bytes over as Latin-1, whatever they are


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None  # a socket of this machine has no address
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
