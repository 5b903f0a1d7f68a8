"""A server and a client of MCP that a test scripts, on both sides of a gateway in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from sayso.integrations.mcp_gateway.connection import dump
from sayso.integrations.mcp_gateway.gateway import Gateway, Settings

PATIENCE = 60.0
WRITE = {
    "name": "write",
    "description": "Write a file.",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "execution": {"taskSupport": "forbidden"},
}
READ = {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


class Server:
    """The server: its tools, what it was called with, and how it answers a call."""

    def __init__(self, *tools: dict[str, Any]) -> None:
        self.tools = list(tools) or [WRITE, READ]
        self.calls: list[dict[str, Any]] = []
        self.seen: list[dict[str, Any]] = []
        self.lines: list[bytes] = []
        self.starts = 0
        self.answer: Callable[[dict[str, Any]], Any] = lambda params: {
            "content": [{"type": "text", "text": f"wrote {json.dumps(params['arguments'], sort_keys=True)}"}]
        }
        self._receive: Any = None
        self._closed: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, receive: Any, closed: Any) -> None:
        self.starts += 1
        self._receive, self._closed = receive, closed

    @property
    def has_ended(self) -> bool:
        return self._receive is None

    async def send(self, message: dict[str, Any]) -> None:
        if self._receive is None:
            raise ConnectionRefusedError("the server has ended")
        dump(message)  # as a connection does; raises for what is no JSON
        self.seen.append(message)
        if "id" in message and "method" in message:
            task = asyncio.ensure_future(self._respond(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respond(self, message: dict[str, Any]) -> None:
        result: Any = {}
        if message["method"] == "tools/list":
            result = {"tools": self.tools}
        elif message["method"] == "tools/call":
            self.calls.append(message["params"])
            result = self.answer(message["params"])
            if isinstance(result, Awaitable):
                result = await result
        elif message["method"] == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "peer"}}
        if result is not None:
            body = result if "error" in result else {"result": result}
            await self.say({"jsonrpc": "2.0", "id": message["id"], **body})

    async def say(self, message: dict[str, Any]) -> None:
        raw = json.dumps(message, indent=None, separators=(" , ", " : ")).encode()  # no other writer writes so
        self.lines.append(raw)
        await self._receive(raw, message)

    async def end(self) -> None:
        closed, self._receive, self._closed = self._closed, None, None
        if closed is not None:
            await closed()

    async def close(self) -> None:
        await self.end()


class Client:
    """The client: it sends, and waits for the answer to an id."""

    def __init__(self, server: Server, **settings: Any) -> None:
        self.lines: list[bytes] = []
        self._answers: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self.notices: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._count = 0
        self.gateway = Gateway(Settings("fs", **settings), lambda: server, self._take)

    async def _take(self, line: bytes, _related: Any) -> None:
        self.lines.append(line)
        message = json.loads(line)
        if "method" in message:
            await self.notices.put(message)
        elif message["id"] in self._answers:
            self._answers[message["id"]].set_result(message)

    async def say(self, message: Any) -> None:
        await self.gateway.from_client(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def begin(self, method: str, params: dict[str, Any] | None = None) -> tuple[int, Awaitable[dict[str, Any]]]:
        """Send a request; return its id, and what its answer is awaited with."""
        self._count += 1
        number = self._count
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        return number, answer

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return await (await self.begin(method, params))[1]

    async def calling(self, name: str, arguments: Any, **meta: Any) -> tuple[int, Awaitable[dict[str, Any]]]:
        params = {"name": name, "arguments": arguments} | ({"_meta": meta} if meta else {})
        return await self.begin("tools/call", params)

    async def call(self, name: str, arguments: Any, **meta: Any) -> dict[str, Any]:
        """Call a tool; return its result."""
        answer = await (await self.calling(name, arguments, **meta))[1]
        return answer["result"]

    async def notice(self, method: str) -> dict[str, Any]:
        """Return the next message of the other side with this method."""
        while True:
            message = await asyncio.wait_for(self.notices.get(), PATIENCE)
            if message["method"] == method:
                return message


def text(result: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in result["content"])
