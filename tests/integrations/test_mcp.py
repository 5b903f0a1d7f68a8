"""The MCP gateway between servers and clients that others wrote, from the package indexes.

Python: `mcp`, `fastmcp`, `mcp-server-git`, `mcp-server-time` beside this interpreter, `mcp-server-sqlite` on the `PATH`
(it needs an older `mcp`). npm: `@modelcontextprotocol/server-filesystem` and `@modelcontextprotocol/sdk` in the folder
that `NODE_MODULES` names.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.model.request import State
from sayso.model.schema import Schema
from tests.integrations.adapters.installed import absent, framework
from tests.support import commands
from tests.support.ports import free_port

mcp = framework("mcp", "mcp_gateway")
http = framework("mcp.client.streamable_http", "mcp_gateway")
stdio = framework("mcp.client.stdio", "mcp_gateway")

pytestmark = pytest.mark.slow
PATIENCE = 200.0
BIN = Path(sys.executable).parent
NODE_MODULES = Path(os.environ.get("NODE_MODULES", Path(__file__).parents[2] / "node_modules"))
FILES = NODE_MODULES / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
TIME = {"source_timezone": "UTC", "time": "10:00", "target_timezone": "Asia/Tokyo"}


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, PATIENCE)

    asyncio.run(bounded())


def words(name: str, folder: Path) -> list[str]:
    """Return the command line of a foreign server."""
    if name == "filesystem":
        if shutil.which("node") is None or not FILES.exists():
            absent("server-filesystem of npm")
        return ["node", str(FILES), str(folder)]
    program = shutil.which(f"mcp-server-{name}", path=os.pathsep.join([str(BIN), os.environ["PATH"]]))
    if program is None:
        absent(f"mcp-server-{name}")
    if name == "git":
        subprocess.run(["git", "init", "-q", folder], check=True)
    options = {"git": ["--repository", str(folder)], "time": [], "sqlite": ["--db-path", str(folder / "shop.db")]}
    return [program, *options[name]]


def gateway(address: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "sayso", "--store", address, "mcp-gateway", *options]


@asynccontextmanager
async def session(command: list[str]) -> AsyncIterator[Any]:
    parameters = mcp.StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio.stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as client:
        await client.initialize()
        yield client


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    url = f"sqlite:///{tmp_path / 'sayso.db'}"
    with sayso.config.use(store=url):
        yield url


async def waiting(count: int = 1) -> list[sayso.Request]:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while len(found := list(sayso.Review().list())) != count:
        assert asyncio.get_running_loop().time() < deadline, f"{len(found)} wait, not {count}"
        await asyncio.sleep(0.01)
    return found


def shown(address: str, number: str) -> str:
    """Return what a reviewer reads at a terminal."""
    done = commands.sayso("--store", address, "show", number)
    assert done.code == 0, done.err
    return done.out


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


def lines(command: list[str], count: int, *messages: dict[str, Any]) -> list[bytes]:
    """Return the first lines that a program on stdio answers these messages with."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        found: list[bytes] = []
        for message in messages:
            program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            program.stdin.flush()
            if "id" in message:
                found.append(program.stdout.readline())
        program.stdin.close()
        program.wait(PATIENCE)
    assert len(found) == count
    return found


HELLO = {
    "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}  # fmt: skip
READY = {"method": "notifications/initialized"}


@pytest.mark.parametrize("name", ["filesystem", "git", "time", "sqlite"])
def test_all_that_a_foreign_server_lists_is_equal_byte_for_byte(name: str, tmp_path: Path, address: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    command = words(name, folder)
    asks = [{"id": n, "method": f"{what}/list"} for n, what in enumerate(("tools", "resources", "prompts"), 1)]
    direct = lines(command, 4, HELLO, READY, *asks)
    assert lines([*gateway(address, "--name", name), "--", *command], 4, HELLO, READY, *asks) == direct
    tools = json.loads(direct[1])["result"]["tools"]
    assert tools
    for tool in tools:
        Schema.of_json(tool["inputSchema"])


def test_a_client_of_an_older_protocol_waits_and_runs_what_was_approved_once(address: str) -> None:
    command = [*gateway(address, "--name", "time", "--hold", "convert_time"), "--", *words("time", Path())]
    params = {"name": "convert_time", "arguments": TIME}
    for version in ("2024-11-05", "2025-03-26"):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:

            def ask(message: dict[str, Any], program: Any = program) -> dict[str, Any]:
                program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
                program.stdin.flush()
                return json.loads(program.stdout.readline())["result"] if "id" in message else {}

            told = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            assert ask({**HELLO, "params": told})["protocolVersion"] == version
            ask(READY)
            assert "Not run yet" in ask({"id": 1, "method": "tools/call", "params": params})["content"][0]["text"]
            [request] = sayso.Review().list()
            sayso.Review().approve(request.id, by="ada", changes={"time": "11:00"})
            ran = ask({"id": 2, "method": "tools/call", "params": params})
            assert "T20:00:00+09:00" in "".join(part["text"] for part in ran["content"])
            assert sayso.Review().get(request.id).state is State.DONE
            assert program.stdin is not None
            program.stdin.close()
            assert program.wait(PATIENCE) == 0


def test_a_call_of_the_python_client_waits_is_edited_and_runs_once(address: str) -> None:
    async def work() -> None:
        command = gateway(address, "--name", "time", "--hold", "convert_time", "--", *words("time", Path()))
        async with session(command) as client:
            assert '"timezone": "UTC"' in text(await client.call_tool("get_current_time", {"timezone": "UTC"}))
            ticket = await client.call_tool("convert_time", TIME)
            [request] = await waiting()
            assert (request.subject.name, ticket.is_error) == ("time/convert_time", True)
            sayso.Review().approve(request.id, by="ada", changes={"time": "11:00"})
            result = await client.call_tool("convert_time", TIME)
            assert "T20:00:00+09:00" in text(result)
            assert "ada" in text(result)

    run(work())


def test_writing_to_a_database_waits_and_runs_once_as_edited_and_reading_is_let_through(
    address: str, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (id TEXT, paid INTEGER)")
        shop.executemany("INSERT INTO orders VALUES (?, 1)", [("A-1",), ("A-2",)])
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\ntool = ["db/read_query", "db/list_*"]\nverdict = "allow"\n', encoding="utf-8")
    rules.chmod(0o600)
    write = {"query": "UPDATE orders SET paid = paid - 1"}
    edited = f"{write['query']} WHERE id = 'A-2'"

    async def work() -> None:
        command = gateway(address, "--name", "db", "--policy", str(rules), "--", *words("sqlite", tmp_path))
        async with session(command) as client:

            async def paid() -> str:
                query = "SELECT paid FROM orders ORDER BY id"
                return text(await client.call_tool("read_query", {"query": query}))

            assert "orders" in text(await client.call_tool("list_tables", {}))
            assert await paid() == "[{'paid': 1}, {'paid': 1}]"
            assert not sayso.Review().list().requests
            assert "Not run yet" in text(await client.call_tool("write_query", write))
            [request] = await waiting()
            assert write["query"] in shown(address, request.id)
            sayso.Review().approve(request.id, by="ada", changes={"query": edited})
            assert await paid() == "[{'paid': 1}, {'paid': 1}]"
            assert "[{'affected_rows': 1}]" in text(await client.call_tool("write_query", write))
            assert await paid() == "[{'paid': 1}, {'paid': 0}]"
            assert "Not run yet" in text(await client.call_tool("write_query", write))  # anew
            [second] = await waiting()
            sayso.Review().reject(second.id, "once is enough", by="ada")
            assert "once is enough" in text(await client.call_tool("write_query", write))
            assert await paid() == "[{'paid': 1}, {'paid': 0}]"

    run(work())


def test_progress_reaches_the_python_client_and_its_cancelled_call_is_withdrawn(address: str) -> None:
    async def work() -> None:
        command = gateway(address, "--name", "time", "--hold", "*", "--wait", "block", "--", *words("time", Path()))
        async with session(command) as client:
            beats: asyncio.Queue[Any] = asyncio.Queue()

            async def beat(progress: float, total: float | None, message: str | None) -> None:
                await beats.put((progress, message))

            call = asyncio.ensure_future(client.call_tool("convert_time", TIME, progress_callback=beat))
            assert await beats.get() == (1e-06, "waiting for a person")
            [request] = await waiting()
            call.cancel()
            await waiting(0)
            assert sayso.Review().get(request.id).state is State.CANCELLED

    run(work())


def test_fifty_calls_of_the_python_client_at_once_are_all_in_the_inbox(address: str) -> None:
    async def work() -> None:
        command = gateway(address, "--name", "time", "--hold", "*", "--wait", "block", "--", *words("time", Path()))
        async with session(command) as client:
            given = [{**TIME, "time": f"10:{minute:02}"} for minute in range(50)]
            calls = [asyncio.ensure_future(client.call_tool("convert_time", arguments)) for arguments in given]
            for request in await waiting(50):
                sayso.Review().approve(request.id, by="ada")
            results = await asyncio.gather(*calls)
            assert all(f"T19:{minute:02}:00+09:00" in text(result) for minute, result in enumerate(results))

    run(work())


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_that_is_told_to_end_withdraws_what_waits(address: str, end: signal.Signals) -> None:
    params = {"name": "convert_time", "arguments": TIME}
    command = gateway(address, "--name", "time", "--hold", "*", "--", *words("time", Path()))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for message in (HELLO, READY, {"id": 1, "method": "tools/call", "params": params}):
            program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        program.stdin.flush()
        program.stdout.readline()
        assert b"Not run yet" in program.stdout.readline()
        [request] = sayso.Review().list()
        program.send_signal(end)
        assert program.wait(PATIENCE) == 0
        assert sayso.Review().get(request.id).state is State.CANCELLED


def test_a_killed_server_leaves_the_call_unknown_and_is_started_again(address: str, tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "import os, signal\n"
        "from mcp.server.mcpserver import MCPServer\n"
        "app = MCPServer('s')\n"
        "@app.tool()\n"
        "def die() -> str:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "@app.tool()\n"
        "def live() -> str:\n    return 'alive'\n"
        "app.run()\n"
    )

    async def work() -> None:
        command = gateway(address, "--name", "s", "--allow", "live", "--", sys.executable, str(server))
        async with session(command) as client:
            await client.call_tool("die", {})
            [request] = await waiting()
            sayso.Review().approve(request.id, by="ada")
            for _ in range(2):
                assert "nobody knows whether it took effect" in text(await client.call_tool("die", {}))
            assert sayso.Review().get(request.id).state is State.UNKNOWN
            assert text(await client.call_tool("live", {})) == "alive"

    run(work())


LAUNCH = """
import json, os, sys
from pathlib import Path
folder = Path(sys.argv[1])
(folder / "pid").write_text(str(os.getpid()))
command = json.loads((folder / "command").read_text())
os.execvp(command[0], command)
"""


class Foreign:
    """A foreign server behind a gateway, whose process is known, and which may come back as another one."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._folder = folder
        self.command = [sys.executable, "-c", LAUNCH, str(folder)]
        self.becomes(command)

    def becomes(self, command: list[str]) -> None:
        (self._folder / "command").write_text(json.dumps(command))

    def send(self, sign: signal.Signals) -> None:
        os.kill(int((self._folder / "pid").read_text()), sign)


def test_a_foreign_server_that_hangs_in_a_call_leaves_it_unknown_though_it_answers_later(
    address: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.mkfifo(folder / "pipe")  # who reads it waits for a writer
    server = Foreign(tmp_path, words("filesystem", folder))
    read = {"path": str(folder / "pipe")}

    async def work() -> None:
        options = ["--name", "fs", "--hold", "read_text_file", "--timeout", "2"]
        async with session([*gateway(address, *options), "--", *server.command]) as client:
            await client.call_tool("read_text_file", read)
            [request] = await waiting()
            sayso.Review().approve(request.id, by="ada")
            call = asyncio.ensure_future(client.call_tool("read_text_file", read))
            with await asyncio.to_thread(open, folder / "pipe", "w") as pipe:  # the server reads by now
                server.send(signal.SIGSTOP)
                pipe.write("late")
                assert "nobody knows whether it took effect" in text(await call)
                server.send(signal.SIGCONT)
            assert text(await client.call_tool("list_directory", {"path": str(folder)})) == "[FILE] pipe"
            assert "nobody knows whether it took effect" in text(await client.call_tool("read_text_file", read))
            assert sayso.Review().get(request.id).state is State.UNKNOWN

    run(work())


def test_a_foreign_server_that_comes_back_with_other_tools_runs_no_approval_of_the_old_ones(
    address: str, tmp_path: Path
) -> None:
    (tmp_path / "repository").mkdir()
    clock, elsewhere, git = (
        words("time", Path()),
        ["--local-timezone", "Asia/Tokyo"],
        words("git", tmp_path / "repository"),
    )
    server = Foreign(tmp_path, clock)

    async def work() -> None:
        async with session(gateway(address, "--name", "s", "--hold", "*", "--", *server.command)) as client:

            async def approved() -> sayso.Request:
                assert "Not run yet" in text(await client.call_tool("convert_time", TIME))
                [request] = await waiting()
                sayso.Review().approve(request.id, by="ada")
                return request

            async def refused(request: sayso.Request, command: list[str]) -> str:
                server.becomes(command)
                server.send(signal.SIGKILL)
                told = text(await client.call_tool("convert_time", TIME))
                assert sayso.Review().get(request.id).state is State.CANCELLED
                return told

            told = await refused(await approved(), [*clock, *elsewhere])
            assert (
                "the server has changed the tool (changed: source_timezone, target_timezone; fields: inputSchema)"
                in told
            )
            second = await approved()
            assert "source_timezone" in second.context["this call"]["tool changed"]
            told = await refused(second, git)
            assert "was not run" in told
            assert "git_status" in {tool.name for tool in (await client.list_tools()).tools}

    run(work())


@asynccontextmanager
async def served(number: int, command: list[str]) -> AsyncIterator[str]:
    program = await asyncio.create_subprocess_exec(*command)
    try:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", number)) == 0:
                    break
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{number}/mcp"
    finally:
        program.terminate()
        await program.wait()


def test_over_http_on_both_sides_a_call_waits_and_runs_and_a_client_that_leaves_withdraws(address: str) -> None:
    async def work() -> None:
        first, second = free_port(), free_port()
        inner = gateway(address, "--name", "time", "--listen", f"127.0.0.1:{first}", "--allow", "*")
        outer = gateway(address, "--name", "outer", "--listen", f"127.0.0.1:{second}", "--hold", "convert_time")
        async with (
            served(first, [*inner, "--", *words("time", Path())]) as url,
            served(second, [*outer, "--url", url]) as front,
        ):
            async with http.streamable_http_client(front) as (read, write), mcp.ClientSession(read, write) as client:
                await client.initialize()
                tools = (await client.list_tools()).tools
                assert [tool.name for tool in tools] == ["get_current_time", "convert_time"]
                await client.call_tool("convert_time", TIME)
                [request] = await waiting()
                sayso.Review().approve(request.id, by="ada")
                assert "T19:00:00+09:00" in text(await client.call_tool("convert_time", TIME))
                await client.call_tool("convert_time", TIME)
                await waiting(1)
            await waiting(0)  # the session was ended

    run(work())


def test_the_fastmcp_client_is_asked_by_a_form_in_the_protocol_of_2026(address: str) -> None:
    fastmcp = framework("fastmcp", "mcp_gateway")
    transports = framework("fastmcp.client.transports", "mcp_gateway")

    async def work() -> None:
        asked: list[str] = []

        async def answer(message: str, *_: Any) -> Any:
            asked.append(message)
            return {"decision": "approve"}

        command = gateway(address, "--name", "time", "--hold", "*", "--elicit-as", "ada")
        command += ["--", *words("time", Path())]
        transport = transports.StdioTransport(command[0], command[1:], env=dict(os.environ))
        async with fastmcp.Client(transport, elicitation_handler=answer) as client:
            result = await client.call_tool("convert_time", TIME)
            assert "T19:00:00+09:00" in text(result)
        assert len(asked) == 1
        [request] = sayso.Review().list(state="done")
        assert request.decision.by.subject == "ada"

    run(work())


def test_a_call_of_the_typescript_client_is_refused_and_its_server_writes_nothing(address: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    target = folder / "a.txt"
    given = json.dumps({"path": str(target), "content": "hello"})
    command = [*gateway(address, "--name", "files"), "--", *words("filesystem", folder)]
    client = ["node", str(Path(__file__).with_name("mcp_client.mjs")), str(NODE_MODULES), "write_file", given, *command]
    cases: list[tuple[Callable[[str], Any], str, bool]] = [
        (lambda number: sayso.Review().reject(number, "not there", by="ada"), "not there", False),
        (lambda number: sayso.Review().approve(number, by="ada"), "Successfully wrote", True),
    ]
    for decide, words_of_it, is_written in cases:
        with subprocess.Popen(client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            first = json.loads(program.stdout.readline())
            assert len(first["tools"]) == 14
            assert "Not run yet" in first["first"]["content"][0]["text"]
            [request] = sayso.Review().list()
            decide(request.id)
            program.stdin.write("\n")
            program.stdin.flush()
            again = json.loads(program.stdout.readline())["again"]
            assert words_of_it in again["content"][0]["text"]
            assert program.wait(PATIENCE) == 0
        assert target.exists() is is_written


def test_the_server_for_agents_lists_and_proposes_over_stdio(address: str, tmp_path: Path) -> None:
    settings = tmp_path / "sayso.toml"
    settings.write_text("[mcp_server]\nenabled = true\n")
    settings.chmod(0o600)
    held = sayso.hold("pay", {"amount": 5}, run="r", key="k")

    async def work() -> None:
        command = [sys.executable, "-m", "sayso", "--store", address, "mcp-server"]
        parameters = mcp.StdioServerParameters(
            command=command[0], args=command[1:], env=dict(os.environ), cwd=str(tmp_path)
        )
        async with stdio.stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as client:
            await client.initialize()
            tools = (await client.list_tools()).tools
            marks = {tool.name: tool.annotations.read_only_hint for tool in tools}
            assert marks == {"list_requests": True, "show_request": True, "approve": False, "reject": False}
            assert held.id in text(await client.call_tool("list_requests", {}))
            assert "a person must confirm" in text(await client.call_tool("approve", {"request": held.id}))
            assert sayso.Review().get(held.id).state is State.PENDING

    run(work())
