"""The Host check, the security headers of every response, and the host name of a local inbox.

Another site can make a browser send requests here under the site's own host name (DNS rebinding); the Host check
refuses them. A local inbox has its own name, `NAME.localhost`, because a browser sends the cookies of 127.0.0.1 to
every program that listens there, including other users' programs. Pages are served only under that name. Programs send
tokens and no cookies, so they are answered under the shared names too. Every response has the headers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache, partial
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
    # With `no-referrer` a browser sends `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def hostname(host: str) -> str | None:
    """Return the name in a Host header, without the port; None if the header is invalid."""
    if not host or any(mark in host for mark in "/\\@?# \t"):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    return parts.hostname


@lru_cache(maxsize=256)
def _hostname(host: bytes) -> str | None:
    return hostname(host.decode("latin-1"))


_RAW = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_NAMES = frozenset(name for name, _ in _RAW)


async def _send_guarded(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start":
        headers = [one for one in message.get("headers", ()) if one[0] not in _NAMES]
        names = {name for name, _ in headers}
        if b"cache-control" not in names:
            # A static file has an ETag to revalidate it with; a page must never be cached.
            headers.append((b"cache-control", b"no-cache" if b"etag" in names else b"no-store"))
        message = {**message, "headers": headers + _RAW}
    await send(message)


class Guard:
    """ASGI middleware that refuses a Host that is not in `hosts`, and adds the security headers."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.casefold() for host in hosts)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on, or refuse it with status 421."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)

        send_guarded = partial(_send_guarded, send)
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) == 1 and _hostname(given[0]) in self._hosts:
            return self._app(scope, receive, send_guarded)
        refusal = PlainTextResponse("this server does not answer to that host name\n", status_code=421)
        return refusal(scope, receive, send_guarded)


_FOR_PROGRAMS = ("/api/", "/hooks/", "/healthz", "/metrics")
_MISDIRECTED = (
    "open this inbox at its own address, NAME.localhost, which its terminal shows, because browsers send"
    " the cookies of 127.0.0.1 to every program there\n"
)


def local_hostname(store: Store) -> str:
    """Return the host name of a store's inbox on this machine. It cannot be guessed without the server's secret.

    Raises:
        ConfigError: The server's secret cannot be used.
    """
    return f"sayso-{TokenSigner(store).label('name of the inbox')}.localhost"


class OwnName:
    """ASGI middleware that refuses pages under the shared names of this machine, and still answers programs there."""

    def __init__(self, app: ASGIApp, *, on_stranger: Callable[[], None] | None = None) -> None:
        self._app, self._on_stranger = app, on_stranger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 421 with where to find the inbox."""
        given = Headers(scope=scope).getlist("host") if scope["type"] == "http" else []
        is_shared = len(given) == 1 and hostname(given[0]) in LOOPBACK
        if not is_shared or scope["path"].startswith(_FOR_PROGRAMS):
            await self._app(scope, receive, send)
            return
        if self._on_stranger is not None:
            self._on_stranger()
        headers = {**HEADERS, "cache-control": "no-store"}
        await PlainTextResponse(_MISDIRECTED, status_code=421, headers=headers)(scope, receive, send)
