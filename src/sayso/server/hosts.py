"""The Host check, the security headers of every response, and the host name of a local inbox.

A page of another site can make a browser send requests here under a name of its own (DNS rebinding); the Host header
shows it. On this machine the inbox has a name of its own, `NAME.localhost`, because a browser sends the cookies of
127.0.0.1 to every program that listens there, other people's included. A browser that opens `127.0.0.1` is redirected
to that name where the system says that the same user asks; programs, which send tokens and no cookies, are answered
under both. No response leaves without the headers, and no page is shown under a name that other programs share.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request as Http
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sayso.server.auth.signing import TokenSigner
from sayso.stores.base import Store

__all__ = ["HEADERS", "LOOPBACK", "Guard", "LocalhostRedirect", "hostname", "local_hostname"]

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'; object-src 'none';"
        " img-src 'self' data:"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # With `no-referrer` a browser would send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def hostname(host: str) -> str | None:
    """Return the name in a Host header, without the port; None where it is none."""
    if not host or any(mark in host for mark in "/\\@?# \t"):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    return parts.hostname


@lru_cache(maxsize=256)
def _hostname(host: bytes) -> str | None:
    return hostname(host.decode("latin-1"))


_RAW = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_NAMES = frozenset(name for name, _ in _RAW)


class Guard:
    """ASGI middleware that answers under the names of `hosts` only, and puts the headers on."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.casefold() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [one for one in message.get("headers", ()) if one[0] not in _NAMES]
                names = {name for name, _ in headers}
                if b"cache-control" not in names:
                    # A file of ours has a tag by which a browser asks whether it is still the same; a page is never
                    # kept.
                    headers.append((b"cache-control", b"no-cache" if b"etag" in names else b"no-store"))
                message = {**message, "headers": headers + _RAW}
            await send(message)

        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) == 1 and _hostname(given[0]) in self._hosts:
            await self._app(scope, receive, send_guarded)
            return
        refusal = PlainTextResponse("this server is not known by that name\n", status_code=421)
        await refusal(scope, receive, send_guarded)


_FOR_PROGRAMS = ("/api/", "/hooks/", "/healthz", "/metrics")
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_STATE, _OWNER = 3, 7  # the columns of a connection's state and of its user
_ESTABLISHED = "01"
_MISDIRECTED = (
    "this inbox has an address of its own, NAME.localhost, because a browser sends the cookies of 127.0.0.1 to every"
    " program there; its terminal shows it\n"
)


def local_hostname(store: Store) -> str:
    """Return the name under which the inbox of a store is opened on this machine; who has no secret cannot guess it.

    Raises:
        ConfigError: The server's secret cannot be used.
    """
    return f"sayso-{TokenSigner(store).label('name of the inbox')}.localhost"


class LocalhostRedirect:
    """ASGI middleware that leads pages from this machine's shared names to the inbox's own."""

    def __init__(
        self, app: ASGIApp, url: str, *, on_stranger: Callable[[], None] | None = None,
        is_neighbour: Callable[[Scope], bool] | None = None,
    ) -> None:  # fmt: skip
        self._app, self._url, self._on_stranger = app, url, on_stranger
        self._is_neighbour = _is_of_same_user if is_neighbour is None else is_neighbour

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or lead it on."""
        if scope["type"] != "http" or not self._is_astray(scope):
            await self._app(scope, receive, send)
            return
        answer = self._led(scope)
        answer.headers.update({**HEADERS, "cache-control": "no-store"})
        await answer(scope, receive, send)

    def _is_astray(self, scope: Scope) -> bool:
        given = Headers(scope=scope).getlist("host")
        is_shared = len(given) == 1 and hostname(given[0]) in LOOPBACK
        return is_shared and not scope["path"].startswith(_FOR_PROGRAMS)

    def _led(self, scope: Scope) -> Response:
        if scope["method"] in {"GET", "HEAD"} and self._is_neighbour(scope):
            url = Http(scope).url
            return RedirectResponse(f"{self._url}{url.path}{'?' if url.query else ''}{url.query}", status_code=307)
        if self._on_stranger is not None:
            self._on_stranger()
        return PlainTextResponse(_MISDIRECTED, status_code=421)


def _is_of_same_user(scope: Scope) -> bool:
    """Say whether the other end of a connection is a process of this user; where that cannot be known, it is not.

    Else another user of this machine would only have to ask for the name.
    """
    client, server = scope.get("client"), scope.get("server")
    if not client or not server or not hasattr(os, "geteuid"):
        return False
    try:
        ends = _end(*client[:2]), _end(*server[:2])
    except ValueError:  # no address of the internet
        return False
    if not all(address.is_loopback for address, _ in ends):
        return False
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text("ascii").splitlines()[1:]:
                columns = line.split()
                if columns[_STATE] == _ESTABLISHED and (_read_end(columns[1]), _read_end(columns[2])) == ends:
                    return int(columns[_OWNER]) == os.geteuid()
    return False


def _end(host: str, port: int) -> tuple[IPv4Address | IPv6Address, int]:
    return ip_address(host), port


def _read_end(end: str) -> tuple[IPv4Address | IPv6Address, int]:
    """Read an end of the system's table: an address in hexadecimal words of the machine's byte order, and a port."""
    text, _, port = end.rpartition(":")
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return _end(socket.inet_ntop(family, b"".join(words)), int(port, 16))
