"""What protects the server from others: the Host check, the headers of every response, and limits for clients.

Another site can make a browser send requests here under the site's own host name (DNS rebinding); the Host check
refuses them. A local inbox has its own name, `NAME.localhost`, because a browser sends the cookies of 127.0.0.1 to
every program that listens there, including other users' programs. Pages are served only under that name. Programs send
tokens and no cookies, so they are answered under the shared names too.

Connections: uvicorn waits forever for the rest of a header and for a client to read, and a process may open only so
many files: a thousand incomplete requests would lock everybody else out (Slowloris). So there are timeouts for sending
a header and for reading a response. At the limit, a new connection closes the one that has been idle longest, never one
whose request is being answered.

Rates, per token, session or address, are counted in this process: a moving window (the library `limits`), and slots for
concurrent requests. Both answer 429 with `Retry-After`, so a program slows down and loses no call
(`sayso.stores.http_transport`).
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from asyncio import constants
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from anyio import CapacityLimiter
from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sayso import errors
from sayso.channels.settings import LOOPBACK
from sayso.server.api.problems import Problem
from sayso.server.auth.sessions import TokenSigner
from sayso.stores.base import Store
from sayso.stores.http_messages import LARGEST

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


@lru_cache(maxsize=256)
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


_RAW = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


async def _send_guarded(send: Send, message: Message) -> None:
    if message["type"] == "http.response.start":
        headers = [*message.get("headers", ()), *_RAW]
        names = {name for name, _ in headers}
        if b"cache-control" not in names:
            # A static file has an ETag to revalidate it with; a page must never be cached.
            headers.append((b"cache-control", b"no-cache" if b"etag" in names else b"no-store"))
        message = {**message, "headers": headers}
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
        if len(given) == 1 and hostname(given[0].decode("latin-1")) in self._hosts:
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
    return f"sayso-{TokenSigner(store).mac('name of the inbox', '')[:16]}.localhost"


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


GONE = "sayso.gone"
"""Key of the ASGI scope for a future that completes when the connection is lost or the server shuts down."""

_FILES = 65_536  # files to ask for at most; a system may report a limit that it cannot provide
_RESERVED = 384  # files beside connections: those accepted in one go, the store, channels, streams of the log
_BACKLOG = 256  # connections that asyncio accepts in one go, before it serves any of them
_LONGEST_HEAD = 65_536  # bytes; the parser itself has no limit
_READ = 65_536  # bytes that a slow client must read within `Limits.unread`
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n"
    b"Cache-Control: no-store\r\n\r\n"
)


@dataclass(frozen=True)
class Limits:
    """Limits for the connections of one server.

    Attributes:
        most: Concurrent connections.
        header: Seconds for a whole header, from the start of the connection or the end of the previous response.
        rest: Seconds for the rest of a body after the request was answered.
        unread: Seconds for a peer to read everything that waits to be sent, or at least 64 kB of it.
    """

    most: int = 10_000
    header: float = 10.0
    rest: float = 5.0
    unread: float = 30.0

    def within(self, files: int) -> Limits:
        """Return these limits, lowered to fit a process that may open `files` files."""
        return replace(self, most=max(16, min(self.most, files - _RESERVED)))


def raise_file_limit() -> int:
    """Raise this process's limit of open files, to 65,536 at most, and return the limit in force."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS reports no limit but has one
            return soft
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


class _Pipeline(list[Any]):
    """Pipelined requests of a connection, which are rare. An empty deque takes 700 bytes more."""

    def appendleft(self, one: Any) -> None:
        """Add the newest."""
        self.insert(0, one)


def _shrink_event(event: asyncio.Event | None) -> None:
    """Replace the deque of an event that nobody waits for yet. The two of a connection would take 1.5 kB."""
    if event is not None:
        event._waiters = []  # type: ignore[attr-defined]  # noqa: SLF001  without the attribute, this has no effect


class _Limited(HttpToolsProtocol):
    """uvicorn's protocol of one connection, with the limits."""

    # Slots, because an attribute dictionary of more than 30 entries costs 1.2 KB more per connection.
    __slots__ = ("_gone", "_head", "_is_in_head", "_limits", "_reading", "_running", "_timer", "_waiting")

    def __init__(self, limits: Limits, waiting: dict[_Limited, None], **given: Any) -> None:
        super().__init__(**given)
        self._limits, self._waiting = limits, waiting
        self._timer: asyncio.TimerHandle | None = None  # gives it up; never while a request is being answered
        self._reading: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] | None = None
        self._running: Any = None  # uvicorn's cycle of the request that is being answered; `cycle` is the newest one
        self._head, self._is_in_head = 0, True  # bytes of an incomplete header

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _shrink_event(getattr(self.flow, "_is_writable_event", None))
        self.pipeline = _Pipeline()  # type: ignore[assignment]
        if len(self.connections) > self._limits.most:
            longest = next(iter(self._waiting), None)
            if longest is None:
                transport.write(_FULL)
                transport.close()
                return
            longest.give_up()
        self._wait(self._limits.header)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True

    def on_headers_complete(self) -> None:
        self._gone = self._gone or self.loop.create_future()
        cast("dict[str, Any]", self.scope)[GONE] = self._gone
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle
        _shrink_event(self.cycle.message_event)
        self._is_in_head = False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._head = self._head + len(data) if self._is_in_head else 0
        if self._head > _LONGEST_HEAD:
            self.give_up()
            return
        if self._is_answering:
            self._stop_waiting()  # only on a whole header: a trickle of bytes must not extend the timeout
        if self.transport.is_closing():
            self._start_read_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_read_timer()
        super().connection_lost(exc)
        if self._running is not None and self._running is not self.cycle:
            # uvicorn tells only the newest of pipelined requests, and uvloop refuses what another one writes now.
            self._running.disconnected = True
            self._running.message_event.set()
        self._end_waits()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_read_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():  # a closing transport keeps its timeout until all is read
            self._stop_read_timer()

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        if not is_last:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_read_timer()
        elif is_last:  # uvicorn's own timeout does not suffice: the first byte of a next request stops it
            self._wait(self._limits.rest if self.cycle.more_body else self._limits.header)

    def shutdown(self) -> None:
        self._stop_waiting()
        super().shutdown()
        self._end_waits()

    def _end_waits(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _wait(self, seconds: float) -> None:
        """Give the connection up after so many seconds, unless a request is being answered by then."""
        self._stop_waiting()
        self._waiting[self] = None
        self._timer = self.loop.call_later(seconds, self.give_up)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_read_timer(self) -> None:
        """Start the timeout for the peer to read what waits to be sent."""
        if self._reading is None:
            left = self.transport.get_write_buffer_size()
            self._reading = self.loop.call_later(self._limits.unread, self._on_read_timer, left)

    def _on_read_timer(self, before: int) -> None:
        self._stop_read_timer()
        if before - self.transport.get_write_buffer_size() < _READ:  # reading a trickle must not extend it
            self.give_up()
        else:
            self._start_read_timer()

    def _stop_read_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def give_up(self) -> None:
        """Abort the connection: it has no request that is being answered, or does not read the response."""
        self._stop_waiting()
        self._stop_read_timer()
        self.transport.abort()


def config(app: Any, limits: Limits, **options: Any) -> Config:
    """Return uvicorn's config for an app within these limits. Also tunes the garbage collector of this process."""
    # Most objects that exist now stay. A full collection over them takes 50 ms or more, during which nothing is served.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # a request makes hundreds of objects, few of them in reference cycles
    # asyncio allows a minute for a TLS handshake, and uvicorn does not pass its argument for that on.
    constants.SSL_HANDSHAKE_TIMEOUT = limits.header
    http: Any = partial(_Limited, limits, dict[_Limited, None]())  # uvicorn calls it like a class
    loop = "asyncio" if options.get("ssl_certfile") else "auto"  # uvloop has a timeout of its own for a TLS handshake
    return Config(app, http=http, ws="none", loop=loop, backlog=_BACKLOG, **options)


MAX_BODY = LARGEST
_BODY_TIMEOUT = 30.0


async def read_bytes(http: Http, *, longest: int = MAX_BODY, patience: float | None = None) -> bytes:
    """Return the raw body, read within `patience` seconds (default 30); raises `Problem` if it is too long or slow."""
    patience = _BODY_TIMEOUT if patience is None else patience
    length = http.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > longest:
        raise _too_long(longest)  # before reading any of it
    body, has_more = bytearray(), True
    try:
        async with asyncio.timeout(patience):
            while has_more:
                message = await http.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                if len(body) > longest:
                    raise _too_long(longest)
                has_more = message.get("more_body", False)
    except TimeoutError:
        raise Problem("body_too_slow", f"the body did not arrive within {patience:.0f} s; nothing was done") from None
    return bytes(body)


def _too_long(longest: int) -> Problem:
    return Problem("body_too_large", f"a body has at most {longest:,} bytes; nothing was done")


_SOON = 1  # seconds in Retry-After when all slots are taken
_MOST_KNOWN = 10_000  # clients to count before those without recent requests are dropped
_QUEUE_TIMEOUT = 5.0  # seconds for which a long poll waits for a slot


class Rate:
    """A rate limit per client; raises `ConfigError` if the limit cannot be parsed.

    Args:
        limit: Such as `600/minute`; None for no limit.
    """

    def __init__(self, limit: str | None) -> None:
        try:
            self._limit = None if limit is None else parse(limit)
        except ValueError as error:
            raise errors.ConfigError(f"rate {limit!r} is not a rate limit; write one like 600/minute") from error
        self._storage = MemoryStorage()
        self._windows = MovingWindowRateLimiter(self._storage)
        self._room = _MOST_KNOWN

    def count(self, who: str) -> None:
        """Count a request of a client; raises `Problem` if it exceeds the limit."""
        if len(self._storage.events) >= self._room:
            self._forget()
        if self._limit is not None and not self._windows.hit(self._limit, who):
            raise self._too_many(self._limit, who)

    def must_have_room(self, who: str) -> None:
        """Raise `Problem` if a client's next request would exceed the limit. Counts nothing."""
        if self._limit is not None and not self._windows.test(self._limit, who):
            raise self._too_many(self._limit, who)

    def _forget(self) -> None:
        """Drop clients without recent requests, for which the library keeps an empty list each."""
        known = self._storage
        for who in list(known.events):
            with known.locks[who]:  # or a concurrent request of the client would lose its entry with the list
                if not known.events.get(who):
                    known.clear(who)
        self._room = max(_MOST_KNOWN, 2 * len(known.events))  # so that in a flood not every request does this

    def _too_many(self, limit: RateLimitItem, who: str) -> Problem:
        free_at = self._windows.get_window_stats(limit, who).reset_time
        wait = max(1, math.ceil(free_at - time.time()))  # noqa: TID251  the library counts by the machine's own clock
        return Problem(
            "rate_limited", f"more than {limit}; nothing was done, try again in {wait} s",
            headers={"retry-after": str(wait)},
        )  # fmt: skip


class InFlight:
    """Limits the concurrent requests of each token. Use it in the event loop only. Raises `ConfigError`.

    Attributes:
        threads: The threads for all API requests: twice as many as one token's slots, so that a token that uses all of
            its slots leaves threads for others. Pages use other threads.

    Args:
        most: Concurrent requests of one token.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise errors.ConfigError(f"in_flight must be 1 or more, not {most}")
        self.threads = CapacityLimiter(2 * most)
        self._most = most
        self._free = WeakValueDictionary[str, asyncio.Semaphore]()  # drops tokens without any `Slot`

    def slot(self, who: str) -> Slot:
        """Return a slot for one request of a token, not taken yet."""
        free = self._free.get(who)
        if free is None:
            free = self._free[who] = asyncio.Semaphore(self._most)
        return Slot(free, self._most)


class Slot:
    """The slot of one request among the concurrent ones of its token."""

    def __init__(self, free: asyncio.Semaphore, most: int) -> None:
        self._free, self._most, self._is_held = free, most, False

    async def take(self, *, queues: bool) -> None:
        """Take the slot. Raises `Problem` if all are taken; with `queues`, only after waiting five seconds."""
        if not self._free.locked():
            await self._free.acquire()  # without a timer, which would cost more than the rest
            self._is_held = True
        elif queues:
            with suppress(TimeoutError):
                async with asyncio.timeout(_QUEUE_TIMEOUT):
                    await self._free.acquire()
                self._is_held = True
        if not self._is_held:
            raise Problem(
                "rate_limited",
                f"{self._most} requests of this token are in progress; nothing was done, try again later",
                headers={"retry-after": str(_SOON)},
            )

    def release(self) -> None:
        """Release the slot if it is held, because the request sleeps or is done."""
        if self._is_held:
            self._is_held = False
            self._free.release()
