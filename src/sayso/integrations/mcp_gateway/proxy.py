"""The server behind the MCP gateway: messages passed on, requests of the gateway's own, its tools as it listed them.

It is connected when it is first needed, and anew after it has ended. What it sends goes to the client as it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from sayso.integrations.mcp_gateway.stdio import Message, Send, Upstream, dump, object_of
from sayso.model.ids import new_token

__all__ = ["PROTOCOL", "Proxy", "is_request_id"]

PROTOCOL = "io.modelcontextprotocol/"
"""What the names begin with under which a client of 2026-07-28 says, in each request, who it is and what it can."""
_LISTING = 30.0  # seconds that a server has to list its tools
_MOST_PAGES = 100
_ENDED = -32000
Changed = Callable[[str, Message, Message], Awaitable[None]]


def is_request_id(given: object) -> bool:
    """Say whether this is an id of JSON-RPC as MCP allows it."""
    return isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool))


class Proxy:
    """The connection of one client to the server.

    Args:
        make: Returns a new connection.
        to_client: Sends a line to the client.
        changed: Called with a tool's name, and how it was and is listed, when that is not the same any more.

    Attributes:
        tools: The server's tools by name, as it listed them last.
    """

    def __init__(self, make: Callable[[], Upstream], to_client: Send, changed: Changed) -> None:
        self._make, self._to_client, self._changed = make, to_client, changed
        self.tools: dict[str, Message] = {}
        self._up: Upstream | None = None
        self._connecting = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._hello: list[Message] = []  # how the client began, to be said again to a server that is started anew
        self._meta: Message = {}  # what the client last said about itself
        self._forwarded: set[str | int] = set()  # ids of the client
        self._progress: dict[str | int, str | int] = {}  # which request a progress token belongs to
        self._own: dict[str, asyncio.Future[Message]] = {}
        self._secret, self._count = new_token(), 0  # so that the ids of the gateway are never those of the client
        self._tasks: set[asyncio.Task[None]] = set()

    def notice(self, message: Message) -> None:
        """Take note of what a client says about itself, and for which request it wants to hear of progress."""
        said = object_of(object_of(message.get("params")).get("_meta"))
        self._meta = {name: value for name, value in said.items() if name.startswith(PROTOCOL)} or self._meta
        token = said.get("progressToken")
        if is_request_id(token) and "id" in message:
            self._progress[cast("str | int", token)] = message["id"]

    async def forward(self, message: Message) -> None:
        """Pass on what the client sent; a request that cannot be is answered with an error."""
        method, number = message.get("method"), message.get("id")
        self.notice(message)
        if method is not None and is_request_id(number):
            self._forwarded.add(cast("str | int", number))
        try:
            up = await self._connected(greets=method != "initialize")
            if method == "initialize":
                self._hello = [message]
            elif method == "notifications/initialized":
                self._hello.append(message)
            await up.send(message)
        except OSError as error:
            await self._answer_with(number, f"the server cannot be reached: {error}")

    async def request(self, method: str, params: Message, timeout: float) -> Message:  # noqa: ASYNC109
        """Send a request of the gateway's own and return the answer.

        Raises:
            ConnectionRefusedError: There is no connection, and nothing was sent.
            ConnectionResetError: The connection ended before the answer.
            TimeoutError: There was no answer in time.
        """
        up = await self._connected()
        return await self._ask(up, method, params, timeout)

    async def _ask(self, up: Upstream, method: str, params: Message, timeout: float) -> Message:  # noqa: ASYNC109
        self._count += 1
        number = f"sayso-{self._secret}-{self._count}"
        future = self._own[number] = asyncio.get_running_loop().create_future()
        try:
            await up.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await asyncio.wait_for(asyncio.shield(future), timeout)
        except (asyncio.CancelledError, TimeoutError):
            gone: Message = {"requestId": number, "reason": "nobody waits for the answer any more"}
            self._later(up.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone}))
            raise
        finally:
            self._own.pop(number, None)

    async def list(self) -> dict[str, Message]:
        """Read the tools anew, tell of those that were changed, and return all by name.

        Raises:
            OSError: The server cannot be reached, or does not answer in time.
            ValueError: It does not answer with its tools.
        """
        async with self._listing:
            tools: dict[str, Message] = {}
            params: Message = {"_meta": self._meta} if self._meta else {}
            for _ in range(_MOST_PAGES):
                answer = await self.request("tools/list", params, _LISTING)
                found = object_of(answer.get("result"))
                if "tools" not in found:
                    raise ValueError(f"it does not list its tools: {answer.get('error')}")
                tools |= {tool["name"]: tool for tool in found["tools"]}
                if not found.get("nextCursor"):
                    break
                params = {**params, "cursor": found["nextCursor"]}
            before, self.tools = self.tools, tools
            for name in before.keys() & tools.keys():
                if before[name] != tools[name]:
                    await self._changed(name, before[name], tools[name])
            return tools

    async def _connected(self, *, greets: bool = True) -> Upstream:
        async with self._connecting:
            if self._up is not None:
                return self._up
            up = self._make()
            await up.start(self._receive, lambda: self._ended(up))
            self._up = up
            if greets and self._hello:  # the one before it has ended: begin as the client began
                await self._ask(up, "initialize", self._hello[0]["params"], _LISTING)
                for message in self._hello[1:]:
                    await up.send(message)
                if self.tools:
                    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
                    await self._to_client(dump(changed), None)
            return up

    async def _receive(self, raw: bytes, message: Message) -> None:
        number: Any = message.get("id")
        if "method" not in message:
            if number in self._own:
                own = self._own[number]
                if not own.done():
                    own.set_result(message)
            elif number is None or number in self._forwarded:  # nothing else was asked; a held call is answered here
                self._forwarded.discard(number)
                await self._to_client(raw, number)
            return
        if message["method"] == "notifications/tools/list_changed" and self.tools:
            self._later(self.list())
        token: Any = object_of(message.get("params")).get("progressToken")
        await self._to_client(raw, self._progress.get(token) if is_request_id(token) else None)

    async def _ended(self, up: Upstream) -> None:
        if self._up is up:
            self._up = None
        for future in self._own.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the server ended before it answered"))
                future.exception()  # somebody may have stopped waiting
        for number in list(self._forwarded):
            await self._answer_with(number, "the server ended before it answered; the next request starts it again")

    async def _answer_with(self, number: Any, reason: str) -> None:
        if number in self._forwarded:
            self._forwarded.discard(number)
            error = {"code": _ENDED, "message": reason}
            await self._to_client(dump({"jsonrpc": "2.0", "id": number, "error": error}), number)

    def _later(self, work: Any) -> None:
        async def done() -> None:
            try:
                await work
            except (OSError, ValueError):
                return  # it is listed again before anything runs, and then the error is told

        task = asyncio.create_task(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End the connection."""
        up, self._up = self._up, None
        for task in list(self._tasks):
            task.cancel()
        if up is not None:
            await up.close()
