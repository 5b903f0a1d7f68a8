"""The address on which `sayso serve` listens, and the URL by which people reach it.

An inbox is open if somebody on another machine can reach it: it listens on a non-loopback address, or has a non-local
base address. Invariant: an open inbox is refused until there is a way to sign in, and plain http to it is refused
unless it is explicitly allowed.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from sayso import errors

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_BOTH = ("127.0.0.1", "::1")  # where a browser looks for NAME.localhost
_TRIES = 20
_WAYS = "--login-links (links that `sayso login` prints), --proxy-header with --trusted-proxy, or [oidc] in sayso.toml"


@dataclass(frozen=True)
class Place:
    """Where a server is.

    Attributes:
        address: The IP address to listen on.
        port: The port; 0 takes a free one.
        base_url: How people reach it; None for the address and port themselves.
        certificate, key: Files for TLS; None where it is plain http.
    """

    address: str
    port: int
    base_url: str | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_open(self) -> bool:
        """Say whether somebody on another machine could reach it."""
        is_here = ipaddress.ip_address(self.address).is_loopback
        return not is_here or (self.base_url is not None and urlsplit(self.base_url).hostname not in _LOOPBACK_NAMES)

    @property
    def can_be_named(self) -> bool:
        """Say whether browsers of this machine would find it by a name of its own, `NAME.localhost`."""
        return self.base_url is None and self.certificate is None and self.address in _BOTH

    def url(self, port: int, name: str | None = None) -> str:
        """Return the address for people, where this port was taken; with the name that it has on this machine."""
        if self.base_url is not None:
            return self.base_url
        if name is not None:
            return f"http://{name}:{port}"
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"

    def check(self, *, is_known: bool, is_insecure: bool) -> None:
        """Refuse a place where nobody would know who decides, or where anybody on the way could decide.

        Args:
            is_known: Whether there is a way to know people.
            is_insecure: Whether plain http was asked for by its name.

        Raises:
            ConfigError: The place is refused; nothing listens.
        """
        if self.certificate is not None and self.base_url is not None and not self.base_url.startswith("https:"):
            raise errors.ConfigError(f"with --tls-cert people reach it by https://, and not {self.base_url}")
        if not self.is_open:
            return
        where = self.address if self.base_url is None else f"{self.address} as {self.base_url}"
        if not is_known:
            raise errors.ConfigError(
                f"`sayso serve` does not listen on {where}: others could reach it there, and it could not know who"
                f" decides. Add a way to know people: {_WAYS}. To reach it from elsewhere without one, forward a port"
                " (`ssh -L 8600:127.0.0.1:8600 HOST`), or mount sayso.server.create_app(who=…) in a program that knows"
                " its people"
            )
        if self.base_url is None:
            raise errors.ConfigError(
                f"`sayso serve` does not listen on {where} without --base-url: the address by which people reach it,"
                " like https://approvals.example.com, and the only name that it answers to"
            )
        if not self.base_url.startswith("https:") and not is_insecure:
            raise errors.ConfigError(
                f"`sayso serve` does not serve {where} by plain http: who listens on the way could decide in anybody's"
                " name. Let a proxy speak https to people and give that address as --base-url, or use --tls-cert and"
                " --tls-key; --insecure-http does it all the same"
            )


def place_of(
    host: str, port: int, base_url: str | None, *, certificate: Path | None = None, key: Path | None = None
) -> Place:
    """Return where a server is to be.

    Raises:
        ConfigError: One of these is no such thing.
    """
    if certificate is None and key is not None:
        raise errors.ConfigError("--tls-key goes with --tls-cert; nothing listens")
    return Place(_address(host), port, None if base_url is None else _base(base_url), certificate, key)


def _address(host: str) -> str:
    if host.casefold() == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        raise errors.ConfigError(
            f"`sayso serve` listens on an IP address or localhost, and {host!r} is none; the name by which people reach"
            " it is --base-url's"
        ) from None


def _base(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_whole = parts.port != 0  # reading it raises where it is no number
    except ValueError:
        is_whole = False
        parts = urlsplit("")
    origin = f"{parts.scheme}://{parts.netloc}"
    if not is_whole or parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise errors.ConfigError(f"--base-url {text!r} is no address; give one like https://approvals.example.com")
    if text.removesuffix("/") != origin:
        raise errors.ConfigError(
            f"--base-url {text!r} has more than a host: give the inbox a name of its own, like {origin}"
        )
    return origin


def listening_by_name(place: Place) -> list[socket.socket]:
    """Return sockets that listen wherever a browser may look for `NAME.localhost`, on one port.

    Another user's program on the one that is left free would be given the login link.

    Raises:
        ConfigError: The system does not allow it, or something listens on one of them already.
    """
    (other,) = set(_BOTH) - {place.address}
    for _ in range(_TRIES):
        first = listening(place)
        port: int = first.getsockname()[1]
        try:
            return [first, listening(replace(place, address=other, port=port))]
        except errors.ConfigError as fault:
            if not isinstance(fault.__cause__, OSError) or fault.__cause__.errno != errno.EADDRINUSE:
                return [first]  # this machine has one of them only
            first.close()
            if place.port:
                break
    raise errors.ConfigError(
        f"something else listens on {other}, port {place.port}, where a browser could go instead; nothing is served:"
        " --port takes another one, and --plain-address serves this machine's plain address"
    )


def listening(place: Place) -> socket.socket:
    """Return a socket that listens there.

    Raises:
        ConfigError: The system does not allow it, or something listens there already.
    """
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    try:
        listener = socket.create_server((place.address, place.port), family=family, backlog=512)
    except OSError as error:
        raise errors.ConfigError(
            f"cannot listen on {place.address}, port {place.port}: {error.strerror}; --port takes another one"
        ) from error
    # Inherited by what it accepts: else the second part of each answer waits 40 ms for word that the first came.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
