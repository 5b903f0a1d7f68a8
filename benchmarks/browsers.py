"""A running inbox and the browsers in front of it, without the browsers: one connection for each open page.

They speak HTTP themselves, so that what is measured is the server and not a client library.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from .worker import AbsentError, WorkerFailedError

__all__ = ["Inbox", "Pages", "Streams", "serving"]

# What the installed script does, so that a source tree can be measured too.
COMMAND = "from sayso.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
EVENT = re.compile(rb"id: (\S+)")
PENDING = re.compile(rb'data-pending="(\d+)"')


@dataclass
class Inbox:
    """A server, and the session of somebody who has signed in.

    Attributes:
        name: The host name that it printed; its pages have no other.
        port: Where it listens on 127.0.0.1.
    """

    process: subprocess.Popen[str]
    name: str
    port: int
    cookie: str = ""

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    @property
    def host(self) -> str:
        return f"{self.name}:{self.port}"

    def sign_in(self, token: str) -> None:
        """Use up a login link."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        form = {"content-type": "application/x-www-form-urlencoded", "origin": self.origin, "host": self.host}
        connection.request("POST", "/login", f"token={quote(token)}", form)
        answer = connection.getresponse()
        answer.read()
        self.cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        connection.close()
        if not self.cookie:
            raise WorkerFailedError(f"nobody could sign in: {answer.status}")

    def time_pages(self, path: str, count: int) -> list[float]:
        """Return the seconds from asking for a page to its last byte, so many times, over one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        taken: list[float] = []
        for _ in range(count):
            before = time.perf_counter()
            connection.request("GET", path, headers={"cookie": self.cookie, "host": self.host})
            answer = connection.getresponse()
            body = answer.read()
            taken.append(time.perf_counter() - before)
            if answer.status != 200 or b"<main" not in body:
                raise WorkerFailedError(f"{path} answered {answer.status}")
        connection.close()
        return taken

    def approve(self, request_id: str) -> float:
        """Approve a request as its page is shown; return when that was sent."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        head = {"cookie": self.cookie, "host": self.host}
        connection.request("GET", f"/api/v1/requests/{request_id}", headers=head)
        seen = json.loads(connection.getresponse().read())["fingerprint"]
        connection.request("GET", f"/r/{request_id}", headers=head)
        csrf = re.search(rb'name="csrf" value="([^"]+)"', connection.getresponse().read())
        if csrf is None:
            raise WorkerFailedError("the page of a request has no form")
        head |= {"origin": self.origin, "content-type": "application/json", "x-csrf-token": csrf[1].decode()}
        before = time.perf_counter()
        connection.request("POST", f"/api/v1/requests/{request_id}/approve", json.dumps({"seen": seen}), head)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status != 200:
            raise WorkerFailedError(f"an approval was answered {answer.status}")
        return before

    def memory(self) -> int:
        """Return the resident bytes of the server; 0 where the system does not say."""
        try:
            found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        except OSError:
            found = None
        return 0 if found is None else int(found[1]) * 1024

    def busy(self) -> float:
        """Return the seconds of processor time that the server has used."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def seconds_to_end(self) -> float:
        """Return how long the server takes to end after SIGTERM."""
        before = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        return time.perf_counter() - before


@contextmanager
def serving(store: str) -> Iterator[Inbox]:
    """Start `sayso serve` on a store, and sign in."""
    command = [sys.executable, "-c", COMMAND, "--store", store, "serve", "--port", "0", "--as", "ada"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            said = (re.search(r"http://([^/]*):(\d+)/login\?token=(\S+)", line) for line in process.stdout)
            link = next((found for found in said if found), None)
            if link is None:
                words = process.stderr.read().strip()
                raise AbsentError("extra web") if "extra `web`" in words else WorkerFailedError(words[-200:])
            inbox = Inbox(process, link[1], int(link[2]))
            inbox.sign_in(link[3])
            yield inbox
        finally:
            process.kill()


@dataclass
class Connections:
    """Connections on which the server goes on talking; what it says is read line by line."""

    inbox: Inbox
    _readers: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])
    _writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self, path: str) -> None:
        """Open one more."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.inbox.port)
        head = f"GET {path} HTTP/1.1\r\nhost: {self.inbox.host}\r\ncookie: {self.inbox.cookie}\r\n\r\n"
        writer.write(head.encode())
        self._readers.append(asyncio.create_task(self._read(len(self._writers), reader)))
        self._writers.append(writer)

    async def close(self) -> None:
        """Close all."""
        for task in self._readers:
            task.cancel()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def heard(self, number: int, line: bytes) -> bool:
        """Take a line of a connection, and say whether it was news."""
        raise NotImplementedError

    async def _read(self, number: int, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if self.heard(number, line):
                self._news.set()

    async def _until(self, is_so: Callable[[], bool], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not is_so():
                self._news.clear()
                await self._news.wait()


@dataclass
class Streams(Connections):
    """Streams of events: the ids that each has heard, in order."""

    ids: list[list[bytes]] = field(default_factory=list[list[bytes]])

    async def open(self, count: int, path: str) -> None:
        """Open so many, and wait until each has begun."""
        for _ in range(count):
            self.ids.append([])
            await self.connect(path)
        await self._until(lambda: all(self.ids))

    async def until(self, count: int, seconds: float = 60) -> float:
        """Wait until every stream has heard of so many events since its beginning; return when."""
        await self._until(lambda: all(len(ids) > count for ids in self.ids), seconds)
        return time.perf_counter()

    def heard(self, number: int, line: bytes) -> bool:
        found = EVENT.match(line)
        if found is not None:
            self.ids[number].append(found[1])
        return found is not None


@dataclass
class Pages(Connections):
    """Open pages: what each was told last, when, and how often.

    Attributes:
        shown: How many requests wait, as each page was told last.
        told: How many times each page was told anything.
        backwards: How many times a page was told of fewer than before.
    """

    shown: list[int] = field(default_factory=list[int])
    told: list[int] = field(default_factory=list[int])
    backwards: int = 0
    _at: list[float] = field(default_factory=list[float])

    async def open(self, count: int, path: str) -> None:
        """Open so many pages, and wait until each was told how many wait."""
        for _ in range(count):
            self.shown.append(-1)
            self.told.append(0)
            self._at.append(0.0)
            await self.connect(path)
        await self._until(lambda: min(self.shown) >= 0)

    async def until(self, pending: int, seconds: float = 60) -> float:
        """Wait until every page says that so many wait; return when the last one was told."""
        await self._until(lambda: all(one == pending for one in self.shown), seconds)
        return max(self._at)

    def heard(self, number: int, line: bytes) -> bool:
        found = PENDING.search(line)
        if found is None:
            return False
        pending = int(found[1])
        self.backwards += pending < self.shown[number]
        self.shown[number], self._at[number] = pending, time.perf_counter()
        self.told[number] += 1
        return True
