"""A simulated network between the real client of a server and the real ASGI program of one.

`Connection` stands for `http.client.HTTPConnection` in the transport; a server is a process that answers one message
after the other. A message, or its answer, may be lost, come twice or come late, and a server may die over it.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from unittest import mock

from sayso.server import create_app
from sayso.server.api import endpoint
from sayso.server.auth.tokens import Tokens
from sayso.server.protection import InFlight
from sayso.server.writer import Writer
from sayso.stores import http, http_transport
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from tests.simulation.kernel import Process, World

__all__ = ["ADDRESS", "Loop", "Network", "serving", "wired"]

T = TypeVar("T")
ADDRESS = "http://127.0.0.1:8000"


class Packet:
    """A message on its way, and its answer when there is one."""

    def __init__(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.path, self.body, self.headers = path, body, headers
        self.server: Process | None = None
        self.status, self.answer, self.answer_headers = 0, b"", dict[str, str]()
        self.is_answered = self.is_lost = False

    @property
    def is_over(self) -> bool:
        """Whether the one who asked hears something: an answer, or that the connection broke."""
        return (self.is_answered and not self.is_lost) or (self.server is not None and self.server.is_dead)


class Network:
    """All messages under way.

    Args:
        world: The schedule.
        trouble: How often something happens to a message.
    """

    def __init__(self, world: World, trouble: float) -> None:
        self._world, self._trouble = world, trouble
        self._queue: list[tuple[float, int, Packet]] = []
        self._count = 0
        self.servers: list[Process] = []
        self.is_cut_until = 0.0

    @property
    def is_up(self) -> bool:
        """Whether a connection can be made."""
        is_cut = self._world.now < self.is_cut_until and not self._world.is_calm
        return not is_cut and any(not (server.is_dead or server.has_ended) for server in self.servers)

    def send(self, packet: Packet) -> None:
        """Put a message on its way, or lose it."""
        chance = 1.0 if self._world.is_calm else self._world.rng.random() / max(self._trouble, 1e-9)
        if self._world.now < self.is_cut_until or chance < 0.25:
            self._world.reports.append("lost")
            return
        packet.is_lost = 0.25 <= chance < 0.5
        if packet.is_lost:
            self._world.reports.append("answer lost")
        late = self._world.rng.random() * 90 if 0.75 <= chance < 1 else 0.0
        self._put(packet, late)
        if 0.5 <= chance < 0.75:
            self._world.reports.append("doubled")
            self._put(Packet(packet.path, packet.body, packet.headers), self._world.rng.random() * 60)

    def _put(self, packet: Packet, late: float) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self._world.now + late, self._count, packet))

    def has_mail(self) -> bool:
        """Whether a message has arrived."""
        return bool(self._queue) and self._queue[0][0] <= self._world.now

    def next_at(self) -> float:
        """Return in how many seconds the next one arrives."""
        return self._queue[0][0] - self._world.now if self._queue else 1e9

    def take(self) -> Packet | None:
        """Return a message that has arrived."""
        return heapq.heappop(self._queue)[2] if self.has_mail() else None


class Connection:
    """What stands for `HTTPConnection`."""

    network: Network
    world: World

    def __init__(self, host: str, timeout: float = 30.0) -> None:
        del host
        self._timeout = timeout
        self.sock: Any = None
        self._packet: Packet | None = None

    def connect(self) -> None:
        """Reach a server."""
        self.world.pause("connect")
        if not self.network.is_up:
            raise ConnectionRefusedError("no server is there")
        self.sock = SimpleNamespace(settimeout=self._set_timeout)

    def _set_timeout(self, seconds: float) -> None:
        self._timeout = seconds

    def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a message."""
        del method
        self.world.pause("send")
        self._packet = Packet(path, body, headers)
        self.network.send(self._packet)

    def getresponse(self) -> Any:
        """Wait for the answer."""
        packet = self._packet
        assert packet is not None
        self.world.until(lambda: packet.is_over, self._timeout)
        self.world.pause("heard")
        if not packet.is_answered or packet.is_lost:
            raise ConnectionResetError("broken") if packet.is_over else TimeoutError("no answer")
        return SimpleNamespace(
            status=packet.status, read=lambda: packet.answer, getheader=packet.answer_headers.get
        )  # fmt: skip

    def close(self) -> None:
        """Hang up."""
        self.sock = None


class Loop(asyncio.BaseEventLoop):
    """An event loop of one process, on the clock of the world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._selector = SimpleNamespace(select=self._select)

    def _select(self, timeout: float | None) -> list[Any]:
        if timeout != 0:
            self._world.sleep(60.0 if timeout is None else timeout)
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def time(self) -> float:
        """Return the time of the world."""
        return self._world.now

    def call_exception_handler(self, context: Any) -> None:
        """Say nothing of what a killed process leaves behind."""

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        try:
            return self.run_until_complete(work)
        finally:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # the process died before the first step


class _Behind:
    """The store behind an application that is made once: which process has it changes."""

    target: Store = MemoryStore()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


Store.register(_Behind)
_free: list[tuple[Any, _Behind]] = []


async def _do(self: Writer, work: Callable[[Store], T]) -> T:
    (found,) = self._store.together([work])  # pyright: ignore[reportPrivateUsage]
    if isinstance(found, BaseException):
        raise found
    return found


async def _run_sync(work: Callable[[], T], *, limiter: object = None) -> T:
    del limiter
    return work()


@contextmanager
def wired() -> Iterator[None]:
    """Let clients reach simulated servers, and servers do in place what they do in threads."""
    with ExitStack() as undo:
        for target, name, new in (
            (http_transport, "HTTPConnection", Connection),
            (http.Listener, "listen", lambda *_: None),
            (Writer, "do", _do),
            (endpoint, "to_thread", SimpleNamespace(run_sync=_run_sync)),
        ):
            undo.enter_context(mock.patch.object(target, name, new))
        yield


def serving(network: Network, world: World, opened: Callable[[], Store]) -> Callable[[Process], None]:
    """Return a server as the program of a process."""

    def body(process: Process) -> None:
        chance = world.rng.getstate()  # whether an application is made anew must not change the schedule
        app, behind = _free.pop() if _free else _made()
        world.rng.setstate(chance)
        behind.target = opened()
        app.state.tokens, app.state.in_flight = Tokens(cast("Store", behind)), InFlight(64)
        app.state.writer = Writer(cast("Store", behind))
        loop = Loop(world)
        network.servers.append(process)
        try:
            while True:
                world.until(network.has_mail, network.next_at())
                packet = network.take()
                if packet is not None:
                    packet.server = process
                    loop.finish(_answer(app, packet))
                    packet.is_answered = True
                    packet.server = None
        finally:
            loop.close()
            _free.append((app, behind))

    return body


def _made() -> tuple[Any, _Behind]:
    behind = _Behind()
    return create_app(cast("Store", behind), hooks={}), behind


async def _answer(app: Any, packet: Packet) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in packet.headers.items()]
    headers += [(b"host", b"127.0.0.1:8000"), (b"content-length", str(len(packet.body)).encode())]
    scope = {
        "type": "http", "method": "POST", "path": packet.path, "raw_path": packet.path.encode(), "query_string": b"",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "scheme": "http",
        "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    messages = [{"type": "http.request", "body": packet.body, "more_body": False}]

    async def receive() -> Any:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            packet.status = message["status"]
            packet.answer_headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            packet.answer += message.get("body", b"")

    await app(scope, receive, send)
