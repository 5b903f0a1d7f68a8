"""The Host check, the security headers of every response, and the host name of a local inbox.

A page of another site can make a browser send requests here under a name of its own (DNS rebinding); the Host header
shows it. On this machine the inbox has a name of its own, `NAME.localhost`, because a browser sends the cookies of
127.0.0.1 to every program that listens there, other people's included. No page is shown under a name that other
programs share; programs, which send tokens and no cookies, are answered under both. No response leaves without the
headers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sayso.server.auth.sessions import TokenSigner
from sayso.stores.base import Store

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

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)

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
            return self._app(scope, receive, send_guarded)
        refusal = PlainTextResponse("this server is not known by that name\n", status_code=421)
        return refusal(scope, receive, send_guarded)


_FOR_PROGRAMS = ("/api/", "/hooks/", "/healthz", "/metrics")
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


class OwnName:
    """ASGI middleware that shows no page under this machine's shared names; programs are answered under them."""

    def __init__(self, app: ASGIApp, *, on_stranger: Callable[[], None] | None = None) -> None:
        self._app, self._on_stranger = app, on_stranger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say where the inbox is."""
        given = Headers(scope=scope).getlist("host") if scope["type"] == "http" else []
        is_shared = len(given) == 1 and hostname(given[0]) in LOOPBACK
        if not is_shared or scope["path"].startswith(_FOR_PROGRAMS):
            await self._app(scope, receive, send)
            return
        if self._on_stranger is not None:
            self._on_stranger()
        headers = {**HEADERS, "cache-control": "no-store"}
        await PlainTextResponse(_MISDIRECTED, status_code=421, headers=headers)(scope, receive, send)
