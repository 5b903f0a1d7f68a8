"""Limits for the connections of `sayso serve`: how many, and how long one may stay idle or leave an answer unread.

uvicorn waits forever for the rest of a header and for a client to read, and a process may open only so many files: a
thousand incomplete requests would lock everybody else out (Slowloris). So there are timeouts for sending a header and
for reading a response. At the limit, a new connection closes the one that has been idle longest, never one whose
request is being answered.
"""

from __future__ import annotations

import asyncio
import gc
from asyncio import constants
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

GONE = "sayso.gone"
"""Key of the ASGI scope for a future that completes when the connection is lost or the server shuts down."""

WHOLE = "sayso.whole"
"""Key of the ASGI scope that is set once the whole body has arrived, so that reading it takes no timeout."""

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


# Headers that are alike in most requests of programs, and not secret.
_ALIKE = frozenset(
    {b"accept", b"accept-encoding", b"connection", b"content-length", b"content-type", b"host", b"user-agent"}
)
_SHORT = 200  # bytes of a header's value


@lru_cache(maxsize=256)
def _one_copy(header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the same object for equal headers: a waiting request keeps its headers, which are half a kilobyte."""
    return header


class _Pipeline(list[Any]):
    """Pipelined requests of a connection, which are rare. An empty deque takes 700 bytes more."""

    def appendleft(self, one: Any) -> None:
        """Add the newest."""
        self.insert(0, one)


def _slim(event: asyncio.Event | None) -> None:
    """Replace the deque of an event that nobody waits for yet. The two of a connection would take 1.5 kB."""
    if event is not None:
        event._waiters = []  # type: ignore[attr-defined]  # noqa: SLF001  without the attribute, this has no effect


class _Limited(HttpToolsProtocol):
    """uvicorn's protocol of one connection, with the limits."""

    # Slots, because an attribute dictionary of more than 30 entries costs 1.2 KB more per connection.
    __slots__ = ("_gone", "_head", "_is_in_head", "_limits", "_reading", "_timer", "_waiting")

    def __init__(self, limits: Limits, waiting: dict[_Limited, None], **given: Any) -> None:
        super().__init__(**given)
        self._limits, self._waiting = limits, waiting
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] | None = None
        self._head, self._is_in_head = 0, True  # bytes of an incomplete header

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _slim(getattr(self.flow, "_is_writable_event", None))
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
        _slim(self.cycle.message_event)
        self._is_in_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if self.headers[-1][0] in _ALIKE and len(value) <= _SHORT:
            self.headers[-1] = _one_copy(self.headers[-1])

    def on_message_complete(self) -> None:
        super().on_message_complete()
        cast("dict[str, Any]", self.scope)[WHOLE] = True

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._head = self._head + len(data) if self._is_in_head else 0
        if self._head > _LONGEST_HEAD:
            self.give_up()
            return
        if self._is_answering:
            self._stop_waiting()  # only on a whole header: a trickle of bytes must not extend the timeout
        if self.transport.is_closing():
            self._must_be_read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._is_read()
        super().connection_lost(exc)
        self._end_waits()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._must_be_read()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():  # a closing transport keeps its timeout until all is read
            self._is_read()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._must_be_read()
        if self._is_answering or self.transport.is_closing():
            return  # the next request was pipelined
        # uvicorn's keep-alive timeout does not suffice: the first byte of a next request stops it.
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
        self._stop_waiting()
        self._waiting[self] = None
        self._timer = self.loop.call_later(seconds, self.give_up)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _must_be_read(self) -> None:
        """Start the timeout for the peer to read what waits to be sent."""
        if self._reading is None:
            left = self.transport.get_write_buffer_size()
            self._reading = self.loop.call_later(self._limits.unread, self._look_whether_read, left)

    def _look_whether_read(self, before: int) -> None:
        self._is_read()
        if before - self.transport.get_write_buffer_size() < _READ:  # reading a trickle must not extend it
            self.give_up()
        else:
            self._must_be_read()

    def _is_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def give_up(self) -> None:
        """Abort the connection: it has no request that is being answered, or does not read the response."""
        self._stop_waiting()
        self._is_read()
        self.transport.abort()


def config(app: Any, limits: Limits, **options: Any) -> Config:
    """Return uvicorn's config for an app within these limits. Also tunes the garbage collector of this process."""
    # Most objects that exist now stay. A full collection over them takes 50 ms or more, during which nothing is served.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # a request makes hundreds of objects, few of them in reference cycles
    # asyncio allows a minute for a TLS handshake, and uvicorn does not pass its argument for that on.
    constants.SSL_HANDSHAKE_TIMEOUT = limits.header
    http: Any = partial(_Limited, limits, dict[_Limited, None]())  # uvicorn calls it like a class
    # Not uvloop: it saves less than 10 % per request, and raises on a write after the close, which asyncio ignores.
    return Config(app, http=http, ws="none", loop="asyncio", backlog=_BACKLOG, **options)
