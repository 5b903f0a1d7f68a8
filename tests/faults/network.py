"""A network between clients and servers that can be bad: connections are cut, what is sent comes late, or twice.

It is a TCP proxy in a thread. Each connection goes to the first of its targets that takes it, so it is a balancer, too.
"""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["Network"]

_STEP = 0.02  # seconds in which a copy of a message may come before or after the message itself


class Network:
    """Forwards what comes to `port` on 127.0.0.1.

    Args:
        targets: Ports on 127.0.0.1, or Unix sockets, in the order in which they are tried.

    Attributes:
        cut: How likely a connection is cut at a message: before it was passed on, after, or at its answer.
        late: For how many seconds a message is held back at most.
        twice: How likely a request over HTTP is sent a second time, on a connection of its own.
        faults: How often any of these has happened.
    """

    def __init__(self, targets: list[int | Path]) -> None:
        self.targets = targets
        self.cut, self.late, self.twice, self.faults = 0.0, 0.0, 0.0, 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop, started = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        async def listen() -> None:
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=512)
            self.port: int = server.sockets[0].getsockname()[1]
            started.set()

        self._loop.run_until_complete(listen())
        self._loop.run_forever()

    def heal(self) -> None:
        """Be a good network again."""
        self.cut = self.late = self.twice = 0.0

    def close(self) -> None:
        """Forward nothing any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for target in self.targets:
            with suppress(OSError):
                if isinstance(target, Path):
                    return await asyncio.open_unix_connection(target)
                return await asyncio.open_connection("127.0.0.1", target)
        return None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await self._open()
        if there is None:
            writer.close()
            return
        await asyncio.gather(self._forward(reader, there[1]), self._forward(there[0], writer))
        for one in (writer, there[1]):
            one.close()

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if self.late:
                    self.faults += 1
                    await asyncio.sleep(random.uniform(0, self.late))
                if self.twice and data.startswith(b"POST ") and random.random() < self.twice:
                    await self._copy(data)
                is_cut = random.random() < self.cut
                if not is_cut or random.random() < 0.5:
                    target.write(data)
                    await target.drain()
                if is_cut:
                    self.faults += 1
                    break
        target.close()

    async def _copy(self, data: bytes) -> None:
        # A body that comes in a second piece is not there yet, so that what is copied may be half a request, too.
        self.faults += 1
        task = asyncio.ensure_future(self._sent(data, random.uniform(0, _STEP)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(random.uniform(0, _STEP))

    async def _sent(self, data: bytes, late: float) -> None:
        await asyncio.sleep(late)
        there = await self._open()
        if there is not None:
            with suppress(OSError, TimeoutError):
                there[1].write(data)
                await asyncio.wait_for(there[0].read(65536), 2)
            there[1].close()
