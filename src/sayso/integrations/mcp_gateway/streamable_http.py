"""The MCP gateway over streamable HTTP: to the server behind it, and to its clients.

It uses the transports of the official SDK (extra `mcp`), which the rest of the gateway does not need.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from sayso.integrations.mcp_gateway import connection
from sayso.integrations.mcp_gateway.connection import Message, Send, dump, object_of, tools_in
from sayso.model.ids import new_token

_IDLE = 1_800.0  # seconds after which an HTTP session without requests ends
_MOST_SESSIONS = 256
_BODY = 16 * 2**20  # bytes; the longest body over HTTP, whose clients are not authenticated
_UNSUPPORTED = -32022  # error code for an unsupported protocol version


def _module(name: str) -> Any:
    return importlib.import_module(name)  # imported on first use, as the stdio gateway does not need it


class HttpUpstream:
    """A server behind a URL, over streamable HTTP.

    Args:
        url: The server's URL.
        headers: Headers for each request, such as `Authorization`.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url, self._headers, self._write = url, dict(headers), cast("Any", None)
        self._version: str | None = None
        self._schemas: dict[str, Any] = {}
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, receive: connection.Receive, closed: connection.Closed) -> None:
        """Open the streams, of which the first request connects; raise `ConnectionRefusedError` if that fails."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(receive, closed, ready))
        try:
            await _until_ready(self._task, ready)
        except Exception as error:
            raise ConnectionRefusedError(f"could not connect: {error}") from error

    async def _run(self, receive: connection.Receive, closed: connection.Closed, ready: asyncio.Future[None]) -> None:
        httpx2, sdk = _module("httpx2"), _module("mcp.client.streamable_http")
        timeout = httpx2.Timeout(30, read=None)  # tools may be slow; the gateway has its own limit
        try:
            async with (
                httpx2.AsyncClient(
                    headers=self._headers, timeout=timeout, event_hooks={"response": [self._check_session]}
                ) as client,
                sdk.streamable_http_client(self._url, http_client=client) as (read, self._write),
            ):
                ready.set_result(None)
                reading = asyncio.create_task(self._read(read, receive))
                await self._ended.wait()  # the task that entered the streams must also exit them
                reading.cancel()
        finally:
            self._write = None
            await closed()

    async def _check_session(self, response: Any) -> None:
        """Close the connection if the server no longer knows its session, because it was restarted."""
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            self._ended.set()

    async def _read(self, read: Any, receive: connection.Receive) -> None:
        try:
            async for item in read:
                if not isinstance(item, Exception) and not self._ended.is_set():
                    raw = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                    message: Message = json.loads(raw)
                    # Remember what later headers repeat: the negotiated version, and values that tools want as headers.
                    found = object_of(message.get("result"))
                    if "serverInfo" in found:
                        self._version = found.get("protocolVersion", self._version)
                    self._schemas |= {name: tool.get("inputSchema") for name, tool in tools_in(found).items()}
                    await receive(raw, message)
        finally:
            self._ended.set()  # whatever the cause, no message of the server would be read any more

    def _headers_of(self, message: Message) -> dict[str, str]:
        inbound, params = _module("mcp.shared.inbound"), object_of(message.get("params"))
        version = object_of(params.get("_meta")).get(f"{connection.PROTOCOL}protocolVersion")
        if version is None:  # in a session, use the version of its handshake
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
        sdk, anyio = _module("mcp.shared.message"), _module("anyio")
        metadata = sdk.ClientMessageMetadata(headers=self._headers_of(message))
        typed = _module("mcp_types").jsonrpc_message_adapter.validate_python(message)
        try:
            await self._write.send(sdk.SessionMessage(typed, metadata))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise ConnectionResetError("the connection to the server ended") from None

    @property
    def has_ended(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._ended.is_set()

    async def close(self) -> None:
        """End the session."""
        self._ended.set()
        if self._task is not None:
            with suppress(Exception):
                await asyncio.wait_for(self._task, connection.PATIENCE)


class _Sessions:
    """The ASGI application: finds or opens the session of each request; each has its own connection to the server.

    Clients of a protocol without sessions (later than 2025-11-25) get the list of supported versions, and choose one.
    """

    def __init__(self, open_session: connection.Open) -> None:
        self._open_session = open_session
        self._transports: dict[str, Any] = {}  # least recently used first
        self._sessions: dict[str, Any] = {}
        self._posts: Counter[str] = Counter()  # by session: messages in progress
        self._tasks: dict[str, asyncio.Task[None]] = {}

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
        elif name is None and not await self._make_room():
            await respond(_error(-32603, "Too many open sessions"), 503)(scope, receive, send)
        elif name is None:
            await self._handle(await self._open(), scope, receive, send, is_new=True)
        else:
            await self._handle(name, scope, receive, send)

    async def _make_room(self) -> bool:
        """Return whether another session may be opened; if there are too many, end the one that is idle for longest.

        Sessions with a call that waits for a person, or with a message in progress, are never ended.
        """
        while len(self._transports) >= _MOST_SESSIONS:
            idle = (name for name in self._transports if name in self._sessions and not self._posts[name])
            name = next((name for name in idle if not self._sessions[name].is_waiting), None)
            if name is None:
                return False
            await self._transports.pop(name).terminate()
            if name in self._tasks:  # wait, so that ending sessions do not accumulate
                await asyncio.wait([self._tasks[name]], timeout=connection.PATIENCE)
        return True

    async def _open(self) -> str:
        settings = _module("mcp.server.transport_security").TransportSecuritySettings
        kind = _module("mcp.server.streamable_http").StreamableHTTPServerTransport
        here = ("127.0.0.1:*", "localhost:*", "[::1]:*")
        security = settings(allowed_hosts=list(here), allowed_origins=[f"http://{host}" for host in here])
        name = new_token()
        transport = kind(name, security_settings=security, idle_timeout=_IDLE)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transports[name], self._posts[name] = transport, 1  # counts the first message, so it is kept
        self._tasks[name] = asyncio.create_task(self._run(name, transport, ready))
        self._tasks[name].add_done_callback(lambda _: self._tasks.pop(name, None))
        try:
            await _until_ready(self._tasks[name], ready)
        except BaseException:
            del self._transports[name], self._posts[name]
            raise
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
                with transport.idle_scope, suppress(_module("anyio").ClosedResourceError):  # the client has ended it
                    async for item in read:
                        if not isinstance(item, Exception):
                            message = item.message.model_dump(by_alias=True, exclude_unset=True)
                            await _pass_on(session, message, send)
            finally:
                self._transports.pop(name, None)
                self._sessions.pop(name, None)
                await asyncio.shield(session.close())

    async def _handle(self, name: str, scope: Any, receive: Any, send: Any, *, is_new: bool = False) -> None:
        """Let the transport answer; stop a call whose connection closes, because its result cannot be delivered.

        A new session is ended if its first request is refused, because any web page could otherwise use up all sessions
        with such requests.
        """
        body, transport, status = bytearray(), self._transports[name], 0

        async def received() -> Any:
            event = await receive()
            body.extend(event.get("body", b""))
            return event

        async def sent(event: Any) -> None:
            nonlocal status
            status = event.get("status", status)
            await send(event)

        session, is_post = self._sessions.get(name), scope["method"] == "POST"
        self._posts[name] += is_post and not is_new
        try:
            await transport.handle_request(scope, received, sent)
        finally:
            self._posts[name] -= is_post or is_new
            if not self._posts[name]:
                del self._posts[name]
            if name in self._transports:
                self._transports[name] = self._transports.pop(name)
            with suppress(ValueError, RecursionError):
                message = object_of(json.loads(bytes(body) or b"null"))
                if session is not None and "method" in message:
                    session.cancel_call(message.get("id"))
            if transport.is_terminated or (is_new and not 200 <= status < 300):
                self._transports.pop(name, None)
                await transport.terminate()

    async def close(self) -> None:
        """End every session."""
        for transport in list(self._transports.values()):
            await transport.terminate()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=connection.PATIENCE)


async def _until_ready(task: asyncio.Task[None], ready: asyncio.Future[None]) -> None:
    """Wait until a task is ready; raise its exception if it ends before."""
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await task


async def _pass_on(session: Any, message: Message, send: Send) -> None:
    try:
        line = dump(message)
    except (ValueError, RecursionError) as error:  # the SDK accepts NaN, which is not JSON
        await send(dump({**_error(-32700, f"this is not JSON ({error})"), "id": message.get("id")}), message.get("id"))
    else:
        await session.from_client(line)


def _error(code: int, text: str, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": text} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": None, "error": error}


async def serve_http(open_session: connection.Open, host: str, port: int) -> None:
    """Serve clients at `http://HOST:PORT/mcp` until SIGTERM or Ctrl-C."""
    uvicorn, app = _module("uvicorn"), _Sessions(open_session)
    # This limits the body, which is read in full before a session is looked up or opened.
    bounded = _module("mcp.server.transport_security").RequestBodyLimitMiddleware(app, _BODY)
    config = uvicorn.Config(bounded, host, port, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    try:
        await uvicorn.Server(config).serve()
    finally:
        await app.close()
