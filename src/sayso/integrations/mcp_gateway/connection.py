"""The connections of the MCP gateway: to the server behind it, and to its clients, over stdio and streamable HTTP.

What a server sends over stdio is passed on as the bytes that came. What a client sends is parsed strictly and written
anew: a text that two parsers read in two ways must not get a held call past the gateway. HTTP takes the transports of
the official SDK (extra `mcp`), which nothing else here needs.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from sayso.model.ids import new_token

Message = dict[str, Any]
Receive = Callable[[bytes, Message], Awaitable[None]]
Closed = Callable[[], Awaitable[None]]
Send = Callable[[bytes, "str | int | None"], Awaitable[None]]
Changed = Callable[[str, Message, Message], Awaitable[None]]
PROTOCOL = "io.modelcontextprotocol/"
"""What the names begin with under which a client of 2026-07-28 says, in each request, who it is and what it can."""
_LISTING = 30.0  # seconds that a server has to list its tools
_MOST_PAGES = 100
_ENDED = -32000
_FIELDS = ("jsonrpc", "id", "method", "params", "result", "error")
_PARAMS = {name.casefold(): name for name in ("name", "arguments", "_meta", "inputResponses", "requestState", "task")}
_LINE = 64 * 2**20  # bytes of the longest message
_PATIENCE = 3.0  # seconds that a server has to end by itself, or to be told goodbye
_IDLE = 1_800.0  # seconds after which a session over HTTP without a request ends
_MOST_SESSIONS = 256
_MOST_TOKENS = 1_000  # of requests of a session whose progress the client wants to hear of; the last ones count
_UNSUPPORTED = -32022  # a version of the protocol


def parse(line: bytes) -> Message:
    """Return the message of a client that every JSON parser reads in the same way.

    Raises:
        ValueError: It is none: no JSON, a batch, an unknown field, a name that stands twice or is a known one spelt
            otherwise.
    """

    def object_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name stands twice in one object")
        return dict(pairs)

    def no_number(text: str) -> Any:
        raise ValueError(f"{text} is no JSON number")

    try:
        read: Any = json.loads(line.decode("utf-8"), object_pairs_hook=object_once, parse_constant=no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None
    if not isinstance(read, dict):
        raise ValueError("one message a line, and no batch")  # noqa: TRY004  the text is at fault, not its type
    message = cast("Message", read)
    unknown = sorted(set(message) - set(_FIELDS))
    if unknown or not isinstance(message.get("method", ""), str):
        raise ValueError(f"this is no JSON-RPC message ({', '.join(unknown) or 'method is no text'})")
    if message.get("method") == "tools/call":
        wrong = sorted(name for name in object_of(message.get("params")) if _PARAMS.get(name.casefold(), name) != name)
        if wrong:  # the gateway would not see it, and a server that is less strict would
            raise ValueError(f"a call has no {', '.join(wrong)}: a known name in another spelling")
    return message


def object_of(value: Any) -> Message:
    """Return a JSON object, or an empty one for anything else that a peer may have put in its place."""
    return cast("Message", value) if isinstance(value, dict) else {}


def told(text: str, params: Message, facts: Message | None = None) -> Message:
    """Return a result that tells a model why there is none; an error, because it does not fit the output's schema."""
    result: Message = {"content": [{"type": "text", "text": text}], "isError": True}
    if any(name.startswith(PROTOCOL) for name in object_of(params.get("_meta"))):
        result["resultType"] = "complete"
    return result if facts is None else {**result, "_meta": facts}


def difference(before: Message, now: Message) -> str:
    """Return in words how a tool was changed."""
    old, new = (object_of(object_of(tool.get("inputSchema")).get("properties")) for tool in (before, now))
    words = {
        "new": sorted(new.keys() - old.keys()), "removed": sorted(old.keys() - new.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
        "fields": sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)),
    }  # fmt: skip
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items() if names)


def dump(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of ASCII: no parser sees the end of a line where there is none."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def is_request_id(given: object) -> bool:
    """Say whether this is an id of JSON-RPC as MCP allows it."""
    return isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool))


class StdioUpstream:
    """A server that is started as a process; it gets the environment without the settings of sayso."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, receive: Receive, closed: Closed) -> None:
        """Start the process."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=inherited,
                limit=_LINE, start_new_session=True,  # Ctrl-C is for the gateway, which ends what runs first
            )  # fmt: skip
        except OSError as error:
            raise ConnectionRefusedError(f"{self._command[0]} cannot be started ({error.strerror})") from error
        self._reading = asyncio.create_task(self._read(receive, closed))

    async def _read(self, receive: Receive, closed: Closed) -> None:
        process = self._process
        if process is None or process.stdout is None:
            raise RuntimeError("the process has no output")
        try:
            while line := await process.stdout.readline():
                with suppress(ValueError, RecursionError):  # a server that logs: no client could read it either
                    message: Any = json.loads(line)
                    if isinstance(message, dict):
                        await receive(line.rstrip(b"\r\n"), cast("Message", message))
        finally:
            await closed()

    async def send(self, message: Message) -> None:
        """Write a line."""
        if self._process is None or self._process.stdin is None or self._process.returncode is not None:
            raise ConnectionRefusedError("the server has ended")
        self._process.stdin.write(dump(message) + b"\n")
        await self._process.stdin.drain()

    async def close(self) -> None:
        """Close its input, and end it where that does not."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with suppress(OSError):
            process.stdin.close()
        for end in (process.terminate, process.kill):
            try:
                await asyncio.wait_for(process.wait(), _PATIENCE)
                break
            except TimeoutError:
                with suppress(ProcessLookupError):
                    end()
        if self._reading is not None:
            self._reading.cancel()


class Proxy:
    """The connection of one client to the server: messages passed on, requests of the gateway's own, its tools.

    It is connected when it is first needed, and anew after it has ended.

    Args:
        make: Returns a new `StdioUpstream` or `HttpUpstream`, or what has their methods.
        to_client: Sends a line to the client.
        changed: Called with a tool's name, and how it was and is listed, when that is not the same any more.

    Attributes:
        tools: The server's tools by name, as it listed them last.
    """

    def __init__(self, make: Callable[[], Any], to_client: Send, changed: Changed) -> None:
        self._make, self._to_client, self._changed = make, to_client, changed
        self.tools: dict[str, Message] = {}
        self._up: Any = None
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
            if len(self._progress) > _MOST_TOKENS:
                del self._progress[next(iter(self._progress))]

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
        except (ValueError, RecursionError) as error:  # the end of one message must not be that of the session
            await self._answer_with(number, f"the message cannot be passed on: {error}")

    async def request(self, method: str, params: Message, timeout: float) -> Message:  # noqa: ASYNC109
        """Send a request of the gateway's own and return the answer.

        Raises:
            ConnectionRefusedError: There is no connection, and nothing was sent.
            ConnectionResetError: The connection ended before the answer.
            TimeoutError: There was no answer in time.
        """
        up = await self._connected()
        return await self._ask(up, method, params, timeout)

    async def _ask(self, up: Any, method: str, params: Message, timeout: float) -> Message:  # noqa: ASYNC109
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
                try:
                    answer = await self.request("tools/list", params, _LISTING)
                except ConnectionResetError:  # a server that was restarted forgot the session; this connects anew
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

    async def _connected(self, *, greets: bool = True) -> Any:
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
            if number is not None and not is_request_id(number):
                return  # nobody asked with such an id
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

    async def _ended(self, up: Any) -> None:
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


Open = Callable[[Send], Any]
"""Begins a session of one client; it is a `Gateway`, which takes the lines of its client and is closed behind them."""


async def serve_stdio(open_session: Open) -> None:
    """Serve one client on stdin and stdout until it closes its end."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what anything prints must not end up between messages

    def read() -> None:
        rest = b""
        while chunk := os.read(0, 1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)

    async def send(line: bytes, related: str | int | None) -> None:  # noqa: ARG001  for HTTP
        left = line + b"\n"
        while left:
            left = left[os.write(out, left) :]

    session = open_session(send)
    for number in (signal.SIGTERM, signal.SIGINT):  # some clients end a server so, and what waits is withdrawn first
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, lines.put_nowait, None)
    threading.Thread(target=read, daemon=True).start()
    try:
        while (line := await lines.get()) is not None:
            if line.strip():
                await session.from_client(line)
    finally:
        await session.close()


def _module(name: str) -> Any:
    return importlib.import_module(name)  # loaded when it is needed: the gateway on stdio needs none of it


class HttpUpstream:
    """A server behind a URL, over streamable HTTP.

    Args:
        url: Its address.
        headers: Sent with each request, such as `Authorization`.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url, self._headers, self._write = url, dict(headers), cast("Any", None)
        self._version: str | None = None
        self._schemas: dict[str, Any] = {}
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, receive: Receive, closed: Closed) -> None:
        """Open the streams; the first request connects."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(receive, closed, ready))
        await ready

    async def _run(self, receive: Receive, closed: Closed, ready: asyncio.Future[None]) -> None:
        httpx2, sdk = _module("httpx2"), _module("mcp.client.streamable_http")
        timeout = httpx2.Timeout(30, read=None)  # a tool may take long; the gateway has its own limit
        try:
            async with (
                httpx2.AsyncClient(
                    headers=self._headers, timeout=timeout, event_hooks={"response": [self._look]}
                ) as client,
                sdk.streamable_http_client(self._url, http_client=client) as (read, self._write),
            ):
                ready.set_result(None)
                reading = asyncio.create_task(self._read(read, receive))
                await self._ended.wait()  # the streams are left in the task that entered them
                reading.cancel()
        finally:
            self._write = None
            await closed()

    async def _look(self, response: Any) -> None:
        """Give the connection up where the server does not know its session any more: it was restarted."""
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            self._ended.set()

    async def _read(self, read: Any, receive: Receive) -> None:
        async for item in read:
            if not isinstance(item, Exception) and not self._ended.is_set():
                raw = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                message: Message = json.loads(raw)
                # Keep what later headers repeat: the agreed version, and the parameters that a tool wants as headers
                found = object_of(message.get("result"))
                self._version = found.get("protocolVersion", self._version) if "serverInfo" in found else self._version
                tools: Any = found.get("tools", ())
                self._schemas |= {tool["name"]: tool["inputSchema"] for tool in tools}
                await receive(raw, message)
        self._ended.set()

    def _headers_of(self, message: Message) -> dict[str, str]:
        inbound, params = _module("mcp.shared.inbound"), object_of(message.get("params"))
        version = object_of(params.get("_meta")).get(f"{PROTOCOL}protocolVersion")
        if version is None:  # a session, with the version of its handshake
            return {} if self._version is None else {inbound.MCP_PROTOCOL_VERSION_HEADER: self._version}
        headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: version, inbound.MCP_METHOD_HEADER: message["method"]}
        named = params.get("name", params.get("uri"))
        if isinstance(named, str):
            headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(named)
        if message["method"] == "tools/call" and named in self._schemas:
            as_headers = inbound.x_mcp_header_map(self._schemas[named])
            headers |= inbound.mcp_param_headers(as_headers, params.get("arguments") or {})
        return headers

    async def send(self, message: Message) -> None:
        """Post a message."""
        if self._write is None:
            raise ConnectionRefusedError("the connection to the server has ended")
        sdk = _module("mcp.shared.message")
        metadata = sdk.ClientMessageMetadata(headers=self._headers_of(message))
        typed = _module("mcp_types").jsonrpc_message_adapter.validate_python(message)
        await self._write.send(sdk.SessionMessage(typed, metadata))

    async def close(self) -> None:
        """End the session."""
        self._ended.set()
        if self._task is not None:
            with suppress(Exception):
                await asyncio.wait_for(self._task, _PATIENCE)


class _Sessions:
    """The ASGI application: it finds or opens the session of each request, with a connection to the server of its own.

    A client of a protocol without sessions (later than 2025-11-25) is told which versions there are, and takes one.
    """

    def __init__(self, open_session: Open) -> None:
        self._open_session = open_session
        self._transports: dict[str, Any] = {}
        self._sessions: dict[str, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one HTTP request."""
        headers = _module("starlette.datastructures").Headers(scope=scope)
        respond = _module("starlette.responses").JSONResponse
        versions = list(_module("mcp_types.version").HANDSHAKE_PROTOCOL_VERSIONS)
        name, version = headers.get("mcp-session-id"), headers.get("mcp-protocol-version")
        if scope["path"].rstrip("/") != "/mcp" or (name is not None and name not in self._transports):
            await respond(_error(-32600, "Session not found"), 404)(scope, receive, send)
        elif version is not None and version not in versions:
            data = {"supported": versions, "requested": version}
            error = _error(_UNSUPPORTED, "Unsupported protocol version", data)
            await respond(error, 400)(scope, receive, send)
        elif name is None and len(self._transports) >= _MOST_SESSIONS:
            await respond(_error(-32603, "Too many open sessions"), 503)(scope, receive, send)
        else:
            name = await self._opened() if name is None else name
            await self._answered(name, scope, receive, send)

    async def _opened(self) -> str:
        settings = _module("mcp.server.transport_security").TransportSecuritySettings
        kind = _module("mcp.server.streamable_http").StreamableHTTPServerTransport
        here = ("127.0.0.1:*", "localhost:*", "[::1]:*")
        security = settings(allowed_hosts=list(here), allowed_origins=[f"http://{host}" for host in here])
        name = new_token()
        transport = kind(name, security_settings=security, idle_timeout=_IDLE)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transports[name] = transport
        task = asyncio.create_task(self._run(name, transport, ready))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await ready
        return name

    async def _run(self, name: str, transport: Any, ready: asyncio.Future[None]) -> None:
        sdk, adapter = _module("mcp.shared.message"), _module("mcp_types").jsonrpc_message_adapter

        async with transport.connect() as (read, write):

            async def send(line: bytes, related: str | int | None) -> None:
                metadata = None if related is None else sdk.ServerMessageMetadata(related_request_id=related)
                await write.send(sdk.SessionMessage(adapter.validate_json(line), metadata))

            session = self._sessions[name] = self._open_session(send)
            ready.set_result(None)
            try:
                with transport.idle_scope, suppress(_module("anyio").ClosedResourceError):  # the client ended it
                    async for item in read:
                        if not isinstance(item, Exception):
                            message = item.message.model_dump(by_alias=True, exclude_unset=True)
                            await session.from_client(dump(message))
            finally:
                self._transports.pop(name, None)
                self._sessions.pop(name, None)
                await asyncio.shield(session.close())

    async def _answered(self, name: str, scope: Any, receive: Any, send: Any) -> None:
        """Have the transport answer; a call whose connection is gone by then has nobody to give its result to."""
        body, transport, status = bytearray(), self._transports[name], 0

        async def received() -> Any:
            event = await receive()
            body.extend(event.get("body", b""))
            return event

        async def sent(event: Any) -> None:
            nonlocal status
            status = event.get("status", status)
            await send(event)

        session = self._sessions.get(name)
        try:
            await transport.handle_request(scope, received, sent)
        finally:
            with suppress(ValueError):
                message = object_of(json.loads(bytes(body) or b"null"))
                if session is not None and "method" in message:
                    session.gone(message.get("id"))
            if transport.is_terminated or (status >= 400 and scope["method"] == "POST" and b"initialize" in body):
                self._transports.pop(name, None)
                await transport.terminate()

    async def close(self) -> None:
        """End every session."""
        for transport in list(self._transports.values()):
            await transport.terminate()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_PATIENCE)


def _error(code: int, text: str, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": text} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": None, "error": error}


async def serve_http(open_session: Open, host: str, port: int) -> None:
    """Serve clients at `http://HOST:PORT/mcp` until SIGTERM or Ctrl-C."""
    uvicorn, app = _module("uvicorn"), _Sessions(open_session)
    config = uvicorn.Config(app, host, port, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    try:
        await uvicorn.Server(config).serve()
    finally:
        await app.close()
