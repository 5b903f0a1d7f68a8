"""`python -m benchmarks.scale`: many agents on one server, whole cycles over HTTP, an old server beside the new one.

An agent asks, waits, starts and finishes, each over a kept connection of its own; reviewers approve over theirs. The
server, with a SQLite file of its own that syncs each commit, is one process, and all clients are another one on the
same cores. `--beside REV` serves the code of another commit as well, in turns, so that both meet the same machine.
`--peers` puts the same load on awaithumans, DBOS and Temporal (see `benchmarks.peers.crowds`), each in an environment
of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sayso.server.protection import raise_file_limit
from tests.integrations.adapters.environments import environment

from .machine import describe, load_after
from .peers.crowds import PACKAGES, PEERS
from .table import Table, as_markdown, as_text, brief, fill

__all__ = ["main"]

_SERVER = Path(__file__).with_name("ours_scale.py")
_REVIEWERS, _WARM_UP = 8, 1.0


class Server:
    """A server in a process of its own, with the code of a checkout."""

    def __init__(self, checkout: Path, folder: Path, port: int = 0) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        command = [sys.executable, str(_SERVER), str(folder), str(port)]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=folder)
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.port, self.ask_token, self.review_token, self.sample = said

    def cpu(self) -> float:
        """Return the processor time of all its threads so far, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Return its resident memory in MB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the system does not tell the memory of a process")

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


class Connection(asyncio.Protocol):
    """One kept connection that sends one request at a time; nothing that would cost the cores much."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer, self._answer = b"", None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, length = head.lower().partition(b"\r\ncontent-length:")
        if len(rest) >= int(length.partition(b"\r\n")[0]):
            answer, self._answer, self._buffer = self._answer, None, b""
            if answer is not None and not answer.done():  # it may have been cancelled at the end of the run
                answer.set_result((int(head[9:12]), rest))

    def post(self, path: str, token: str, content: Any) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request, and return what will be its status and its content."""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = asyncio.get_running_loop().create_future()
        body = json.dumps(content, separators=(",", ":")).encode()
        self.transport.write(
            f"POST /api/v1{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return self._answer


class Load:
    """So many agents and eight reviewers on one server.

    Args:
        server: Which.
        agents: How many.
        rate: Cycles a second that all of them begin together; 0 for as many as go.
    """

    def __init__(self, server: Server, agents: int, rate: float) -> None:
        self._server, self._agents, self._rate = server, agents, rate
        self._to_review: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._decided_at = dict[str, float]()
        self.seconds = defaultdict[str, list[float]](list)
        self.cycles, self._is_over = 0, False

    async def _connection(self) -> Connection:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, "127.0.0.1", self._server.port))[1]

    async def _sent(self, name: str, connection: Connection, path: str, token: str, content: Any) -> Any:
        before = time.perf_counter()
        status, found = await connection.post(path, token, content)
        self.seconds[name].append(time.perf_counter() - before)
        if status != 200:
            raise RuntimeError(f"{path} was answered {status}: {found[:300]!r}")
        return json.loads(found)

    async def agent(self) -> None:
        """Go through cycles until time is over."""
        from sayso.model.ids import fingerprint

        connection, token = await self._connection(), self._server.ask_token
        program = "/program"
        while not self._is_over:
            if self._rate:
                await asyncio.sleep(random.expovariate(self._rate / self._agents))
            request_id, run = f"rq_{secrets.token_hex(16)}", f"order-{secrets.token_hex(6)}"
            asked = self._server.sample | {"id": request_id, "run_id": run}
            asked["fingerprint"] = fingerprint(run, asked["subject"]["digest"], "")
            found = await self._sent("ask", connection, f"{program}/ask", token, {"request": asked, "update": None})
            self._to_review.put_nowait((request_id, asked["fingerprint"]))
            seen, changed = {request_id: found["etag"]}, dict[str, Any]()
            while not changed:
                _, answer = await connection.post(f"{program}/wait", token, {"seen": seen, "seconds": 25.0})
                changed = json.loads(answer)["changed"]
            self.seconds["wake-up"].append(time.perf_counter() - self._decided_at.pop(request_id))
            started = {"request_id": request_id, "token": secrets.token_hex(16), "worker": "agent"}
            await self._sent("start", connection, f"{program}/start", token, started)
            del started["worker"]
            outcome = ["done", None, None, None, None, False]
            await self._sent("finish", connection, f"{program}/finish", token, {**started, "outcome": outcome})
            self.cycles += 1

    async def reviewer(self) -> None:
        """Approve what was asked, as soon as it was."""
        connection = await self._connection()
        while True:
            request_id, seen = await self._to_review.get()
            self._decided_at[request_id] = time.perf_counter()
            path = f"/requests/{request_id}/approve"
            await self._sent("approve", connection, path, self._server.review_token, {"seen": seen})

    async def run(self, lasts: float) -> Figures:
        """Measure for so many seconds, after one in which nothing counts."""
        tasks = [asyncio.ensure_future(self.reviewer()) for _ in range(_REVIEWERS)]
        agents = [asyncio.ensure_future(self.agent()) for _ in range(self._agents)]
        await self._sleep(_WARM_UP, [*tasks, *agents])
        self.seconds.clear()
        cycles, cpu, own, began = self.cycles, self._server.cpu(), time.process_time(), time.perf_counter()
        await self._sleep(lasts, [*tasks, *agents])
        elapsed, cycles = time.perf_counter() - began, self.cycles - cycles
        found = Figures(
            cycles / elapsed, (self._server.cpu() - cpu) / max(1, cycles), (time.process_time() - own) / max(1, cycles),
            {name: sorted(some) for name, some in self.seconds.items()},
        )  # fmt: skip
        self._is_over = True
        for task in [*agents, *tasks]:
            task.cancel()
        return found

    async def _sleep(self, seconds: float, tasks: Sequence[asyncio.Future[None]]) -> None:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for one in done:
            one.result()


class Crowd:
    """Programs that wait, each over a connection of its own for a request of its own, over a restart of the server.

    Args:
        server: On which they wait.
        count: How many.
    """

    def __init__(self, server: Server, count: int) -> None:
        self._server, self._count = server, count
        self._seen = dict[str, str]()
        self.heard = dict[str, float]()

    async def ask(self) -> None:
        """Ask for all of them, in batches."""
        from sayso.model.ids import fingerprint

        connection = (await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self._server.port))[1]
        while len(self._seen) < self._count:
            operations: list[Any] = []
            for _ in range(min(100, self._count - len(self._seen))):
                request_id, run = f"rq_{secrets.token_hex(16)}", f"order-{secrets.token_hex(6)}"
                asked = self._server.sample | {"id": request_id, "run_id": run}
                asked["fingerprint"] = fingerprint(run, asked["subject"]["digest"], "")
                operations.append({"verb": "ask", "body": {"request": asked}})
            _, found = await connection.post("/program/batch", self._server.ask_token, {"operations": operations})
            self._seen |= {one["body"]["request"]["id"]: one["body"]["etag"] for one in json.loads(found)["answers"]}
        connection.transport.close()

    async def wait(self) -> None:
        """Wait until all have heard, whatever becomes of the server meanwhile."""
        await asyncio.gather(*(self._wait(*one) for one in self._seen.items()))

    async def _wait(self, request_id: str, etag: str) -> None:
        loop, body = asyncio.get_running_loop(), {"seen": {request_id: etag}, "seconds": 25.0}
        while request_id not in self.heard:
            try:
                connection = (await loop.create_connection(Connection, "127.0.0.1", self._server.port))[1]
                while request_id not in self.heard:
                    status, found = await connection.post("/program/wait", self._server.ask_token, body)
                    if status == 200 and json.loads(found)["changed"]:
                        self.heard[request_id] = time.perf_counter()
                connection.transport.close()
            except OSError:
                await asyncio.sleep(random.uniform(0.5, 1.5))  # as the client store does


async def _crowd(folder: Path, checkout: Path, count: int) -> str:
    server = Server(checkout, folder)
    before, crowd = server.memory(), Crowd(server, count)
    try:
        await crowd.ask()
        asked = server.memory()
        waiting = asyncio.ensure_future(crowd.wait())
        await asyncio.sleep(20)
        with_all, cpu = server.memory(), server.cpu()
        await asyncio.sleep(5)
        idle = (server.cpu() - cpu) / 5
        server.end()
        decide = [sys.executable, str(_SERVER), str(folder), "decide"]
        await (
            await asyncio.create_subprocess_exec(*decide, env={**os.environ, "PYTHONPATH": str(checkout / "src")})
        ).wait()
        began, server = time.perf_counter(), Server(checkout, folder, server.port)
        up = time.perf_counter()
        await asyncio.wait_for(waiting, 120)
        last = max(crowd.heard.values())
        return (
            f"{count} wait: server {before:.0f} MB at first, {asked:.0f} MB when all was asked,"
            f" {with_all:.0f} MB with all waiting, {idle * 100:.0f} % of a core; after a restart all heard"
            f" {last - up:.1f} s after it answered, {last - began:.1f} s after its process began"
        )
    finally:
        server.end()


class Figures(NamedTuple):
    """What one run gave: cycles a second, processor seconds a cycle, and sorted times by what was done."""

    rate: float
    server: float
    clients: float
    seconds: dict[str, list[float]]

    def shown(self, name: str) -> str:
        """Return the median and the 99th percentile of a time in milliseconds."""
        found = self.seconds.get(name, [])
        if not found:
            return ""
        return " / ".join(f"{found[min(len(found) - 1, int(len(found) * part))] * 1e3:.1f}" for part in (0.5, 0.99))


_NAMES = ("ask", "approve", "wake-up", "start", "finish")


_HEADS = ("agents", "offered", "who", "cycles/s", "server ms", "clients ms", *(f"{one} ms" for one in _NAMES))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="Many agents on one server.")
    parser.add_argument("--beside", metavar="REV", help="a commit, or the folder of another checkout, served as well")
    parser.add_argument("--peers", action="store_true", help="put the same load on others, too")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each row is measured  [default: 4]")
    parser.add_argument("--rounds", type=int, default=2, help="how often; the best round counts  [default: 2]")
    parser.add_argument("--folder", type=Path, help="where the stores are made; their disk is what is measured")
    parser.add_argument("--waiters", type=int, metavar="N", help="so many that wait, over a restart, and nothing else")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table there, between its markers")
    options = parser.parse_args(arguments)
    here = Path(__file__).parents[1]
    measured: dict[str, Callable[..., Figures]] = {"sayso": partial(_measured, here)}
    with tempfile.TemporaryDirectory(prefix="sayso-scale-", dir=options.folder) as folder:
        if options.beside is not None:
            measured["sayso, before"] = partial(_measured, _checkout(options.beside, here, Path(folder) / "before"))
        if options.peers:
            measured |= {name: partial(_measured_peer, name) for name in PEERS}
        about = describe(Path(folder))
        print("\n".join(about))
        if options.waiters:
            raise_file_limit()
            print(asyncio.run(_crowd(Path(folder), here, options.waiters)))
            print("\n".join(load_after()))
            return 0
        lines: list[tuple[str, ...]] = []
        for agents, rate in ((1, 0), (64, 0), (64, 200)):
            for who, measure in measured.items():
                lines.append(_cells(who, measure, Path(folder), agents, rate, options))
                print(" | ".join(lines[-1]), file=sys.stderr)
    table = Table("scale", _HEADS, lines, frozenset(range(3, len(_HEADS))))
    busy = load_after()
    facts = [
        about[0] + "; the machine was busy" * bool(busy),
        f"the best of {options.rounds} rounds of {options.seconds:g} s; times are p50 / p99",
    ]
    print(as_text(table), *busy, sep="\n")
    loaded = [line for line in lines if line[0] != "1" and (line[2] == "sayso" or line[1] == "200/s")]
    shown = brief(Table("scale", _HEADS, loaded, table.right))
    if options.markdown and not fill(options.markdown, table.name, as_markdown(shown, facts)):
        print(f"{options.markdown} has no place for the table `{table.name}`", file=sys.stderr)
    return 0


def _checkout(named: str, here: Path, folder: Path) -> Path:
    """Return the folder that was named, or one with the package as it was at that commit."""
    if Path(named).is_dir():
        return Path(named).absolute()
    folder.mkdir()
    archive = subprocess.run(["git", "archive", named, "src"], cwd=here, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


def _cells(
    who: str, measure: Callable[..., Figures], folder: Path, agents: int, rate: float, options: argparse.Namespace
) -> tuple[str, ...]:
    what = (str(agents), f"{rate}/s" if rate else "as many as go", who)
    try:
        rounds = [measure(folder, agents, rate, options.seconds) for _ in range(options.rounds)]
    except RuntimeError as error:
        return (*what, str(error), *[""] * (len(_HEADS) - 4))
    best = max(rounds, key=lambda one: one.rate)
    costs = (f"{best.server * 1e3:.2f}", f"{best.clients * 1e3:.2f}")
    return (*what, f"{best.rate:.0f}", *costs, *map(best.shown, _NAMES))


def _measured_peer(name: str, folder: Path, agents: int, rate: float, seconds: float) -> Figures:
    python = environment(f"scale-{name}", PACKAGES[name])
    with tempfile.TemporaryDirectory(dir=folder) as store:
        words = [name, store, str(agents), str(rate), str(seconds)]
        done = subprocess.run(
            [python, "-m", "benchmarks.peers.crowds", *words], cwd=Path(__file__).parents[1],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"failed: {done.stderr.strip().rpartition(chr(10))[2][:120]}")
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def _measured(checkout: Path, folder: Path, agents: int, rate: float, seconds: float) -> Figures:
    with tempfile.TemporaryDirectory(dir=folder) as store:
        server = Server(checkout, Path(store))
        try:
            return asyncio.run(Load(server, agents, rate).run(seconds))
        finally:
            server.end()


if __name__ == "__main__":
    raise SystemExit(main())
