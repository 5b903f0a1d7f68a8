"""Servers of MCP that do what no server should, behind the gateway; real processes where the fault is in one.

The invariant: a session goes on or ends, what a server did wrong is no decision, and no process stays behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.config import open_store
from sayso.integrations.mcp_gateway import connection
from sayso.integrations.mcp_gateway.connection import StdioUpstream
from sayso.model.request import State
from sayso.stores.base import Filter, Store
from tests.integrations.mcp_peers import PATIENCE, WRITE, Client, Server, text

WRONG = """
import json, os, subprocess, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "orphan":
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
        os.abort()
    if message["method"] == "endless":
        print("x" * 200_000, flush=True)
    if message["method"] == "mute":
        os.close(1)
        while True:
            sys.stdin.read(1)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"pid": os.getpid()}}), flush=True)
"""
DEAF = "import time; time.sleep(3600)"


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, PATIENCE)

    asyncio.run(bounded())


@pytest.fixture
def store() -> Store:
    sayso.configure(store="memory:")
    return sayso.config.open_store(None)


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


def is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_whose_answers_cannot_come_any_more_is_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LINE", 100_000)
    monkeypatch.setattr(connection, "PATIENCE", 0.05)

    async def work() -> None:
        client: Any = Client(Server())
        client.gateway._proxy._make = lambda: StdioUpstream([sys.executable, "-c", WRONG])
        for wrong in ("endless", "mute"):
            first = (await client.ask("ping"))["result"]["pid"]
            assert "the server ended" in (await client.ask(wrong))["error"]["message"]
            await until(lambda number=first: not is_alive(number))
            assert (await client.ask("ping"))["result"]["pid"] != first
        await client.gateway.close()

    run(work())


def test_a_server_whose_child_keeps_its_output_open_is_started_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.05)

    async def work() -> None:
        client: Any = Client(Server())
        proxy = client.gateway._proxy
        proxy._make = lambda: StdioUpstream([sys.executable, "-c", WRONG])
        first = (await client.ask("ping"))["result"]["pid"]
        process = proxy._up._process
        _, unanswered = await client.begin("orphan")
        await until(lambda: process.returncode is not None)  # though no end of its output is read
        assert (await client.ask("ping"))["result"]["pid"] != first
        assert "the server ended before it answered" in (await unanswered)["error"]["message"]
        await client.gateway.close()

    run(work())


def test_a_server_that_reads_nothing_keeps_no_client_from_ending_its_session(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-m", "sayso", "--store", "memory:", "mcp-gateway", "--name", "s", "--"]
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 500_000}}).encode() + b"\n"
    gateway = subprocess.Popen([*words, sys.executable, "-c", DEAF], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        gateway.communicate(2 * line, timeout=PATIENCE)  # more than any pipe holds, and the end of the session
    finally:
        gateway.send_signal(signal.SIGKILL)
        gateway.wait(PATIENCE)

    monkeypatch.setattr(connection, "_LINE", 100_000)
    monkeypatch.setattr(connection, "PATIENCE", 0.05)

    async def work() -> None:
        client: Any = Client(Server())
        client.gateway._proxy._make = lambda: StdioUpstream([sys.executable, "-c", DEAF])
        waiting = [await client.begin("ping", {"x": "y" * 200_000}) for _ in range(2)]
        assert "does not read" in (await waiting[1][1])["error"]["message"]
        await client.gateway.close()

    run(work())


TALKATIVE = """
import json, sys
TOOL = {"name": "pay", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    message = json.loads(line)
    result = {"tools": [TOOL]} if message["method"] == "tools/list" else {"text": "x" * 200_000}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
SERVES = """
import asyncio, functools, sys
from sayso.integrations.mcp_gateway import connection
from sayso.integrations.mcp_gateway.gateway import Gateway, Settings
connection.STALLED, connection.PATIENCE = float(sys.argv[3]), 0.5
make = functools.partial(connection.StdioUpstream, [sys.executable, "-c", sys.argv[2]])
asyncio.run(connection.serve_stdio(functools.partial(Gateway, Settings("s", wait="block", store=sys.argv[1]), make)))
"""


@pytest.mark.parametrize("ends", [False, True])
def test_a_client_that_does_not_read_ends_its_session_and_what_waits_is_withdrawn(tmp_path: Path, ends: bool) -> None:
    url = f"sqlite:///{tmp_path / 'sayso.db'}"
    words = [sys.executable, "-c", SERVES, url, TALKATIVE, "3600" if ends else "0.2"]

    def line(number: int, method: str, **params: Any) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"

    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as gateway:
        try:
            assert gateway.stdin is not None
            gateway.stdin.write(line(0, "tools/call", name="pay", arguments={}))
            gateway.stdin.write(b"".join(line(number, "ping") for number in range(1, 30)))  # 6 MB of answers
            gateway.stdin.flush()
            deadline = time.monotonic() + PATIENCE
            while not (store := open_store(url)).list(Filter()).requests:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            if ends:
                gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(PATIENCE) == 0
            assert gateway.stderr is not None
            assert b"does not read its input" in gateway.stderr.read()
        finally:
            gateway.kill()
    [request] = store.list(Filter()).requests
    assert request.state is State.CANCELLED


def test_a_client_that_reads_slowly_gets_every_line_and_little_is_kept_for_it() -> None:
    ends = os.pipe()

    async def work() -> None:
        output = connection.Output(ends[1], lambda: None)
        lines = [f"{number} {'x' * 300_000}".encode() for number in range(20)]
        sending = asyncio.create_task(send(output, lines))
        await asyncio.sleep(0)
        assert 0 < output._unwritten < 2 * connection._UNWRITTEN
        with os.fdopen(ends[0], "rb") as reader:
            for line in lines:
                assert await asyncio.to_thread(reader.readline) == line + b"\n"
        await sending
        await output.close()
        assert not output.is_gone

    async def send(output: connection.Output, lines: list[bytes]) -> None:
        for line in lines:
            await output.send(line)

    run(work())


def test_a_list_that_is_none_and_tools_that_are_none_run_nothing_and_end_no_session(store: Store) -> None:
    async def work() -> None:
        server = Server()
        client = Client(server)
        for tools in (None, {"write": WRITE}, [None], [{"name": ["write"]}], [{"inputSchema": {}}]):
            server.tools = tools  # type: ignore[assignment]
            answer = await (await client.calling("write", {"path": "a"}))[1]
            words = json.dumps(answer)
            assert "did not list its tools" in words or "Unknown tool" in words
        server.tools = [None, {"name": 5}, WRITE]  # type: ignore[list-item]
        result = await client.call("write", {"path": "a"})
        assert "must approve" in text(result)
        [waiting] = store.list(Filter(states=frozenset({State.PENDING}))).requests
        sayso.Review().approve(waiting.id)
        server.tools = None  # type: ignore[assignment]
        assert "was not run" in text(await client.call("write", {"path": "a"}))
        server.tools = [WRITE]
        assert "wrote" in text(await client.call("write", {"path": "a"}))
        assert len(server.calls) == 1
        await client.gateway.close()

    run(work())


def test_what_a_peer_says_of_itself_and_its_tools_is_kept_in_brief(store: Store) -> None:
    async def work() -> None:
        long = "x" * 1_000_000
        properties = {f"{long[:1000]}{number}": {} for number in range(100)}
        tool = {"name": "t", "title": long, "description": long, "inputSchema": {"properties": properties}}
        server = Server({**tool, "inputSchema": {}})
        client = Client(server)
        await client.ask("initialize", {"clientInfo": {"name": long, "version": long}})
        await client.ask("tools/list")
        await client.gateway._proxy.list()
        server.tools = [tool]
        await client.gateway._proxy.list()
        assert "must approve" in text(await client.call("t", {}))
        [request] = store.list(Filter(states=frozenset({State.PENDING}))).requests
        said = [request.title, request.description, json.dumps(request.context)]
        assert all(one is not None and len(one) < 21_000 and "characters)" in one for one in said)
        await client.gateway.close()

    run(work())


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"error": {"code": [], "message": "?"}}, State.UNKNOWN), ({"error": "?"}, State.UNKNOWN),
        ({"isError": True, "content": "?"}, State.FAILED), ({"isError": True, "content": ["?"]}, State.FAILED),
        ({"content": None}, State.DONE),
    ],
)  # fmt: skip
def test_an_answer_of_no_right_form_is_an_outcome_and_the_client_hears_it(
    store: Store, answer: dict[str, Any], state: State
) -> None:
    async def work() -> None:
        server = Server()
        server.answer = lambda _: answer
        client = Client(server)
        await client.call("write", {"path": "a"})
        [waiting] = store.list(Filter(states=frozenset({State.PENDING}))).requests
        sayso.Review().approve(waiting.id, comment="as you like")
        result = await client.call("write", {"path": "a"})
        assert "the gateway failed" not in json.dumps(result)
        [request] = store.list(Filter(states=frozenset(State))).requests
        assert request.state is state
        await client.gateway.close()

    run(work())
