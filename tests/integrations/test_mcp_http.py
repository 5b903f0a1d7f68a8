"""The MCP gateway before a server over streamable HTTP that ends, hangs or changes, and its clients on both transports.

The server and the clients are those of the official Python SDK, each in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

import sayso
from sayso.integrations.mcp_gateway import streamable_http
from sayso.integrations.mcp_gateway.gateway import Gateway, Settings
from sayso.integrations.mcp_gateway.streamable_http import HttpUpstream
from sayso.model.request import State
from sayso.stores.base import Filter
from tests.integrations.adapters.installed import framework
from tests.integrations.mcp_peers import Server
from tests.support.ports import free_port

mcp = framework("mcp", "mcp_gateway")
http = framework("mcp.client.streamable_http", "mcp_gateway")
stdio = framework("mcp.client.stdio", "mcp_gateway")

pytestmark = pytest.mark.slow
PATIENCE = 200.0
each_transport = pytest.mark.parametrize("front", ["stdio", "http"])
SERVER = """
import asyncio, pathlib, sys
from mcp.server.mcpserver import MCPServer
port, log, shape = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
app = MCPServer("s")

def note(word):
    with log.open("a") as file:
        file.write(word + "\\n")

if shape == "new":
    @app.tool()
    def pay(amount: int, account: str = "main") -> str:
        note(f"paid {amount} {account}")
        return f"paid {amount}"
else:
    @app.tool()
    def pay(amount: int) -> str:
        note(f"paid {amount}")
        return f"paid {amount}"

@app.tool()
async def hang(amount: int) -> str:
    note(f"hung {amount}")
    await asyncio.Event().wait()

@app.tool()
def live() -> str:
    return "alive"

app.run(transport="streamable-http", port=port)
"""


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, PATIENCE)

    asyncio.run(bounded())


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    url = f"sqlite:///{tmp_path / 'sayso.db'}"
    with sayso.config.use(store=url):
        yield url


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)


class Process:
    """A program that serves on a port, and is killed and started again."""

    def __init__(self, number: int, *words: str) -> None:
        self.number, self.words = number, list(words)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.number}/mcp"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self.words)
        await until(self._answers)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.number)) == 0

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()


class Scene:
    """A server, the gateway before it, and a client."""

    def __init__(self, folder: Path, address: str, front: str, *options: str) -> None:
        self._log, self._file, self._front = folder / "log", folder / "server.py", front
        self._file.write_text(SERVER)
        self._log.touch()
        self.server = Process(free_port())
        self._shape("old")
        self.number = free_port()
        self.command = [sys.executable, "-m", "sayso", "--store", address, "mcp-gateway", "--name", "s", *options]
        self.command += ["--allow", "live", "--url", self.server.url]
        self.gateway = Process(self.number, *self.command, "--listen", f"127.0.0.1:{self.number}")

    def _shape(self, shape: str) -> None:
        self.server.words = [sys.executable, str(self._file), str(self.server.number), str(self._log), shape]

    @property
    def log(self) -> list[str]:
        return self._log.read_text().split("\n")[:-1]

    async def restart(self, shape: str = "old") -> None:
        await self.server.kill()
        self._shape(shape)
        await self.server.start()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            if self._front == "http":
                streams = await stack.enter_async_context(http.streamable_http_client(self.gateway.url))
            else:
                parameters = mcp.StdioServerParameters(
                    command=self.command[0], args=self.command[1:], env=dict(os.environ)
                )
                streams = await stack.enter_async_context(stdio.stdio_client(parameters))
            client = await stack.enter_async_context(mcp.ClientSession(streams[0], streams[1]))
            await client.initialize()
            yield client

    async def __aenter__(self) -> Self:
        await self.server.start()
        if self._front == "http":
            await self.gateway.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.kill()
        await self.server.kill()


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


async def waiting(count: int = 1) -> list[sayso.Request]:
    await until(lambda: len(list(sayso.Review().list())) == count)
    return list(sayso.Review().list())


async def lives(client: Any) -> None:
    """Call the free tool; the request that finds the server's session gone is to be made again."""
    with suppress(mcp.MCPError):
        assert text(await client.call_tool("live", {})) == "alive"
        return
    assert text(await client.call_tool("live", {})) == "alive"


@each_transport
def test_calls_that_wait_outlive_a_restart_of_the_server_and_run_once_each(
    front: str, tmp_path: Path, address: str
) -> None:
    async def work() -> None:
        async with Scene(tmp_path, address, front, "--wait", "block") as scene, scene.client() as client:
            calls = [asyncio.ensure_future(client.call_tool("pay", {"amount": n})) for n in range(5)]
            found = await waiting(5)
            await scene.restart()
            for request in found:
                sayso.Review().approve(request.id, by="ada")
            results = await asyncio.gather(*calls)
            assert [text(result) for result in results] == [f"paid {n}" for n in range(5)]
            assert sorted(scene.log) == [f"paid {n}" for n in range(5)]
            assert text(await client.call_tool("live", {})) == "alive"

    run(work())


@each_transport
def test_a_server_that_ends_during_a_call_leaves_it_unknown_and_serves_again_after_its_restart(
    front: str, tmp_path: Path, address: str
) -> None:
    async def work() -> None:
        async with Scene(tmp_path, address, front, "--wait", "block") as scene, scene.client() as client:
            call = asyncio.ensure_future(client.call_tool("hang", {"amount": 1}))
            [request] = await waiting()
            sayso.Review().approve(request.id, by="ada")
            await until(lambda: bool(scene.log))
            await scene.restart()
            assert "nobody knows whether it took effect" in text(await call)
            assert "nobody knows whether it took effect" in text(await client.call_tool("hang", {"amount": 1}))
            assert sayso.Review().get(request.id).state is State.UNKNOWN
            assert scene.log == ["hung 1"]
            await lives(client)

    run(work())


@each_transport
def test_a_server_that_hangs_leaves_the_call_unknown_after_the_timeout(
    front: str, tmp_path: Path, address: str
) -> None:
    async def work() -> None:
        async with Scene(tmp_path, address, front, "--timeout", "1") as scene, scene.client() as client:
            await client.call_tool("hang", {"amount": 1})
            [request] = await waiting()
            sayso.Review().approve(request.id, by="ada")
            assert "nobody knows whether it took effect" in text(await client.call_tool("hang", {"amount": 1}))
            assert sayso.Review().get(request.id).state is State.UNKNOWN
            assert text(await client.call_tool("live", {})) == "alive"

    run(work())


@each_transport
def test_an_approval_of_a_tool_that_came_back_changed_does_not_run(front: str, tmp_path: Path, address: str) -> None:
    async def work() -> None:
        async with Scene(tmp_path, address, front) as scene, scene.client() as client:
            await client.call_tool("pay", {"amount": 1})
            [request] = await waiting()
            sayso.Review().approve(request.id, by="ada")
            await scene.restart("new")
            assert "the server has changed the tool (new: account;" in text(
                await client.call_tool("pay", {"amount": 1})
            )
            assert sayso.Review().get(request.id).state is State.CANCELLED
            await client.call_tool("pay", {"amount": 1})
            [second] = await waiting()
            assert str(second.context["this call"]["tool changed"]).startswith("new: account")
            assert scene.log == []

    run(work())


@each_transport
def test_nothing_of_a_client_that_went_away_starts_later(front: str, tmp_path: Path, address: str) -> None:
    async def work() -> None:
        async with Scene(tmp_path, address, front, "--wait", "block") as scene:
            async with scene.client() as client:
                calls = [asyncio.ensure_future(client.call_tool("pay", {"amount": n})) for n in range(3)]
                found = await waiting(3)
                for call in calls:
                    call.cancel()
            await waiting(0)
            for request in found:
                assert sayso.Review().get(request.id).state is State.CANCELLED
                with pytest.raises(sayso.errors.AlreadyDecidedError):
                    sayso.Review().approve(request.id, by="ada")
            async with scene.client() as client:
                assert text(await client.call_tool("live", {})) == "alive"
            assert scene.log == []

    run(work())


@each_transport
def test_where_the_server_is_away_nothing_is_lost_and_an_approved_call_runs_when_it_is_back(
    front: str, tmp_path: Path, address: str
) -> None:
    async def work() -> None:
        async with Scene(tmp_path, address, front) as scene, scene.client() as client:
            await client.call_tool("pay", {"amount": 1})
            [request] = await waiting()
            sayso.Review().approve(request.id, by="ada")
            await scene.server.kill()
            away = text(await client.call_tool("pay", {"amount": 1}))
            assert "cannot be reached" in away or "was not run" in away
            assert sayso.Review().get(request.id).state is State.APPROVED
            await scene.server.start()
            assert text(await client.call_tool("pay", {"amount": 1})) == "paid 1"
            assert scene.log == ["paid 1"]

    run(work())


INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}  # fmt: skip


def post(client: httpx2.Client, url: str, body: bytes, **headers: str) -> tuple[int, str, str | None]:
    """Post to the gateway as no SDK does; return the status, what was answered, and the id of the session."""
    given = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    answer = client.post(url, content=body, headers=given, timeout=PATIENCE)
    return answer.status_code, answer.text, answer.headers.get("mcp-session-id")


def test_what_no_client_sends_takes_no_session_and_no_memory(tmp_path: Path, address: str) -> None:
    async def work() -> None:
        async with Scene(tmp_path, address, "http") as scene:
            with httpx2.Client() as client:
                await refused_and_served(partial(post, client, scene.gateway.url))

    async def refused_and_served(ask: Callable[..., tuple[int, str, str | None]]) -> None:
        initialize = json.dumps(INITIALIZE).encode()
        strange: list[tuple[bytes, dict[str, str], int]] = [
            (b"x", {"content_type": "text/plain", "origin": "https://evil.example"}, 400),
            (initialize, {"origin": "https://evil.example"}, 403), (initialize, {"host": "evil.example"}, 421),
            (b"[" * 100_000, {}, 400), (b"{}", {}, 400), (initialize, {"accept": "text/html"}, 406),
            (b" " * 17_000_000 + initialize, {}, 413),
        ]  # fmt: skip
        for body, headers, status in strange:
            assert (await asyncio.to_thread(ask, body, **headers))[0] == status
        for _ in range(300):  # more than there are sessions, as any page in a browser could
            await asyncio.to_thread(ask, *strange[0][:1], **strange[0][1])
        status, _, session = await asyncio.to_thread(ask, initialize)
        assert status == 200
        assert session is not None
        nan = json.dumps({**INITIALIZE, "method": "ping", "params": {"x": float("nan")}}).encode()
        ping = json.dumps({**INITIALIZE, "method": "ping", "params": {}}).encode()
        of_session = {"mcp_session_id": session, "mcp_protocol_version": "2025-11-25"}
        assert "this is not JSON" in (await asyncio.to_thread(ask, nan, **of_session))[1]
        assert '"result":{}' in (await asyncio.to_thread(ask, ping, **of_session))[1]

    run(work())


def test_a_new_client_takes_the_place_of_the_session_that_is_idle_for_longest(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable_http, "_MOST_SESSIONS", 3)
    app = streamable_http._Sessions(partial(Gateway, Settings("fs", wait="ticket"), Server))

    async def work() -> None:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as client:

            async def ask(method: str, session: str | None = None, **params: Any) -> tuple[int, str | None]:
                of_session = (
                    {} if session is None else {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
                )
                accept = {"accept": "application/json, text/event-stream"}
                body = {**INITIALIZE, "method": method, "params": params or INITIALIZE["params"]}
                answer = await client.post("/mcp", json=body, headers={**accept, **of_session})
                return answer.status_code, answer.headers.get("mcp-session-id")

            opened = [(await ask("initialize"))[1] for _ in range(3)]
            waits = {"name": "write", "arguments": {"path": "/etc/motd"}}
            await ask("tools/call", opened[0], **waits)  # its client was sent away, and a person is asked
            await ask("ping", opened[1])
            status, newest = await ask("initialize")
            assert status == 200
            assert [(await ask("ping", one))[0] for one in (*opened, newest)] == [200, 200, 404, 200]
            for one in (opened[1], newest):
                await ask("tools/call", one, **waits)
            assert (await ask("initialize"))[0] == 503  # each has a call that waits
            store = sayso.config.open_store(None)
            assert len(store.list(Filter(states=frozenset({State.PENDING}))).requests) == 3
            await app.close()

    run(work())


class Liar(BaseHTTPRequestHandler):
    """A server over HTTP whose list is none."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        found = {"tools": None} if message["method"] == "tools/list" else INITIALIZE["params"]
        self.send_response(200 if "id" in message else 202)
        answer = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": {**found, "serverInfo": {}}}).encode()
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_server_whose_list_is_none_is_still_heard(address: str) -> None:
    lines: list[dict[str, Any]] = []

    async def take(line: bytes, _related: Any) -> None:
        lines.append(json.loads(line))

    async def work() -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
            gateway = Gateway(Settings("s"), lambda: HttpUpstream(url, {}), take)
            for number, method in enumerate(("initialize", "tools/list", "ping"), 1):
                message = {**INITIALIZE, "id": number, "method": method}
                await gateway.from_client(json.dumps(message).encode())
                await until(lambda number=number: any(one.get("id") == number for one in lines))
            await gateway.close()
            server.shutdown()

    run(work())


def test_a_message_just_after_the_end_of_a_connection_goes_over_a_new_one(address: str) -> None:
    lines: list[dict[str, Any]] = []

    async def take(line: bytes, _related: Any) -> None:
        lines.append(json.loads(line))

    async def work() -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
            gateway = Gateway(Settings("s"), lambda: HttpUpstream(url, {}), take)
            for number in (1, 2):
                await gateway.from_client(json.dumps({**INITIALIZE, "id": number, "method": "ping"}).encode())
                await until(lambda number=number: any(one.get("id") == number for one in lines))
                first = gateway._proxy._up
                first._ended.set()  # as if the server no longer knew the session
            assert ["result" in one for one in lines] == [True, True]
            await gateway.close()
            server.shutdown()

    run(work())


def test_what_cannot_be_opened_is_refused_and_takes_no_session(address: str) -> None:
    async def nothing(*_: Any) -> None:
        return

    def broken(_send: Any) -> Any:
        raise RuntimeError("no store")

    async def work() -> None:
        with pytest.raises(ConnectionRefusedError, match="ascii"):
            await HttpUpstream("http://127.0.0.1:1/mcp", {"Authorization": "Bearer \u00fc"}).start(nothing, nothing)
        app = streamable_http._Sessions(broken)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:1") as client:
            with pytest.raises(ExceptionGroup):
                await client.post("/mcp", json=INITIALIZE)
        assert (app._transports, app._posts, app._tasks) == ({}, {}, {})

    run(work())
