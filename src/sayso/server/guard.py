"""What stands before every page: the Host check, and the headers that every answer carries, also one about a fault.

A page of another site can make a browser send requests here under a name of its own (DNS rebinding); the Host header
tells. Who is asking is `sayso.server.visit`. The invariant: no answer leaves without these headers.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "LOOPBACK", "Guard", "hostname"]

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


class Guard:
    """ASGI middleware.

    Args:
        app: What it guards.
        hosts: The names under which this server may be asked.
    """

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
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                # A file of ours has a tag by which a browser asks whether it is still the same; a page is never kept.
                headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")
            await send(message)

        given = Headers(scope=scope).getlist("host")
        if len(given) == 1 and hostname(given[0]) in self._hosts:
            await self._app(scope, receive, send_guarded)
            return
        refusal = PlainTextResponse("this server is not known by that name\n", status_code=421)
        await refusal(scope, receive, send_guarded)
