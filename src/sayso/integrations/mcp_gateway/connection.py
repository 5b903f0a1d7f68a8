"""The MCP gateway's stdio connections: to the server behind it, and to its client.

A server's messages are passed on byte for byte. A client's messages are parsed strictly and serialized again, because a
text that two parsers read differently could smuggle a held call past the gateway. HTTP is in `streamable_http`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from sayso.model.ids import new_token

_log = logging.getLogger("sayso")

Message = dict[str, Any]
Receive = Callable[[bytes, Message], Awaitable[None]]
Closed = Callable[[], Awaitable[None]]
Send = Callable[[bytes, "str | int | None"], Awaitable[None]]
Changed = Callable[[str, Message, Message], Awaitable[None]]
PROTOCOL = "io.modelcontextprotocol/"
"""The prefix of the `_meta` names with which a client of 2026-07-28 states its identity and capabilities."""
_LISTING = 30.0  # seconds for a server to list its tools
_MOST_PAGES = 100
_ENDED = -32000
_FIELDS = ("jsonrpc", "id", "method", "params", "result", "error")
_PARAMS = {name.casefold(): name for name in ("name", "arguments", "_meta", "inputResponses", "requestState", "task")}
_LINE = 64 * 2**20  # bytes; the longest message over stdio
PATIENCE = 3.0  # seconds for a server to end by itself, or for a goodbye
STALLED = 60.0  # seconds after which a stdio client that reads nothing counts as gone
_UNWRITTEN = 2**20  # bytes; while more are unwritten, senders wait
_CHUNK = 2**16  # bytes per write
_MOST_GONE = 1_000  # recently removed tools that are kept, to detect changes if the server lists them again
_MOST_TOKENS = 1_000  # recent progress tokens that are kept for a session


def parse(line: bytes) -> Message:
    """Parse a client's message, and accept only text that all JSON parsers read in the same way.

    Raises:
        ValueError: The text is not JSON, is a batch, or has an unknown field, a duplicate name, or a known name in
            other letter case.
    """

    def object_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("an object has the same name twice")
        return dict(pairs)

    def no_number(text: str) -> Any:
        raise ValueError(f"{text} is not a JSON number")

    try:
        read: Any = json.loads(line.decode("utf-8"), object_pairs_hook=object_once, parse_constant=no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(read, dict):
        raise ValueError("each line must be one message; batches are not supported")  # noqa: TRY004  the text is wrong, not its Python type
    message = cast("Message", read)
    unknown = sorted(set(message) - set(_FIELDS))
    if unknown or not isinstance(message.get("method", ""), str):
        raise ValueError(f"this is not a JSON-RPC message ({', '.join(unknown) or 'method is not a string'})")
    if message.get("method") == "tools/call":
        wrong = sorted(name for name in object_of(message.get("params")) if _PARAMS.get(name.casefold(), name) != name)
        if wrong:  # the gateway would ignore it, but a more lenient server might not
            raise ValueError(f"a call has no {', '.join(wrong)}; use the exact spelling of the field")
    return message


def object_of(value: Any) -> Message:
    """Return the value if it is a JSON object, or else an empty one, because peers can send anything."""
    return cast("Message", value) if isinstance(value, dict) else {}


def parts_of(result: Message) -> list[Any]:
    """Return the content of a result; an empty list if the server sent anything but a list."""
    return cast("list[Any]", result["content"]) if isinstance(result.get("content"), list) else []


def tools_in(result: Message) -> dict[str, Message]:
    """Return the tools of a result by name; skip malformed ones."""
    listed: Any = result.get("tools")
    tools = [object_of(tool) for tool in cast("list[Any]", listed)] if isinstance(listed, list) else []
    return {tool["name"]: tool for tool in tools if isinstance(tool.get("name"), str)}


def truncate(text: Any, room: int = 500) -> str | None:
    """Truncate a peer's text to `room` characters; return None if it is not a text."""
    if not isinstance(text, str):
        return None
    return text if len(text) <= room else f"{text[:room]}… ({len(text):,} characters)"


def tool_result(text: str, params: Message, facts: Message | None = None) -> Message:
    """Return a result that tells a model why its call has none; an error, as it does not match the output schema."""
    result: Message = {"content": [{"type": "text", "text": text}], "isError": True}
    if any(name.startswith(PROTOCOL) for name in object_of(params.get("_meta"))):
        result["resultType"] = "complete"
    return result if facts is None else {**result, "_meta": facts}


def difference(before: Message, now: Message) -> str:
    """Describe how a tool was changed."""
    old, new = (object_of(object_of(tool.get("inputSchema")).get("properties")) for tool in (before, now))
    words = {
        "new": sorted(new.keys() - old.keys()), "removed": sorted(old.keys() - new.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
        "fields": sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)),
    }  # fmt: skip
    return truncate("; ".join(f"{word}: {', '.join(names)}" for word, names in words.items() if names)) or ""


def dump(message: Mapping[str, Any]) -> bytes:
    """Serialize a message as one line of ASCII, so that no parser mistakes another character for a line end."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def is_request_id(given: object) -> bool:
    """Return whether a value is a JSON-RPC id that MCP allows."""
    return isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool))


class StdioUpstream:
    """A server that is started as a process, in the environment without sayso's variables."""

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
                limit=_LINE, start_new_session=True,  # Ctrl-C must reach only the gateway, which first ends calls
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
                with suppress(ValueError, RecursionError):  # log output on stdout, which no client could parse either
                    message: Any = json.loads(line)
                    if isinstance(message, dict):
                        await receive(line.rstrip(b"\r\n"), cast("Message", message))
        except ValueError:  # of `readline`
            _log.warning(
                "stopped the server %s, because it wrote a line of more than %s bytes", self._command[0], f"{_LINE:,}"
            )
        finally:
            await closed()
            await self._end()  # it may have closed only its output, and would then run on

    async def send(self, message: Message) -> None:
        """Write a line without waiting for the server to read it, as the next step may be to end the server."""
        stdin = None if self._process is None else self._process.stdin
        if stdin is None or self.has_ended:
            raise ConnectionRefusedError("the server has ended")
        line = dump(message) + b"\n"
        if stdin.transport.get_write_buffer_size() > _LINE:
            raise ConnectionRefusedError("the server does not read its input")
        stdin.write(line)

    @property
    def has_ended(self) -> bool:
        """Whether nothing can be sent any more. What the server has written may still be unread."""
        process = self._process
        return process is None or process.returncode is not None or process.stdin is None or process.stdin.is_closing()

    async def close(self) -> None:
        """Close the server's input, kill the server if that does not end it, and read what it has written."""
        await self._end()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=PATIENCE)  # longer only if a child of the server has the output
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        try:
            with suppress(OSError):
                process.stdin.close()
            for end in (process.terminate, process.kill):
                try:
                    await asyncio.wait_for(process.wait(), PATIENCE)
                    break
                except TimeoutError:
                    with suppress(ProcessLookupError):
                        end()
        finally:
            if process.returncode is None:  # this task is itself being cancelled
                with suppress(ProcessLookupError):
                    process.kill()


class Proxy:
    """One client's connection to the server: forwards messages, sends the gateway's own requests, lists tools.

    It connects on first use, and reconnects after the connection has ended.

    Args:
        make: Creates a `StdioUpstream`, an `HttpUpstream`, or an object with their methods.
        to_client: Sends a line to the client.
        changed: Called with a tool's name and its old and new listing when they differ.

    Attributes:
        tools: The server's tools by name, as last listed.
    """

    def __init__(self, make: Callable[[], Any], to_client: Send, changed: Changed) -> None:
        self._make, self._to_client, self._changed = make, to_client, changed
        self.tools: dict[str, Message] = {}
        self._gone: dict[str, Message] = {}  # tools that it no longer lists
        self._up: Any = None
        self._connecting = asyncio.Lock()
        self._listing = asyncio.Lock()
        self._handshake: list[Message] = []  # the client's handshake, to repeat for a restarted server
        self._meta: Message = {}  # the client's latest statement about itself
        self._forwarded: dict[str | int, Any] = {}  # by id of the client's request: the connection it was sent over
        self._progress: dict[str | int, str | int] = {}  # by progress token: its request
        self._own_requests: dict[str, asyncio.Future[Message]] = {}
        self._secret, self._count = new_token(), 0  # so that the gateway's ids never equal the client's
        self._tasks: set[asyncio.Task[None]] = set()

    def record_client(self, message: Message) -> None:
        """Record what a client states about itself, and its progress tokens."""
        meta = object_of(object_of(message.get("params")).get("_meta"))
        self._meta = {name: value for name, value in meta.items() if name.startswith(PROTOCOL)} or self._meta
        token = meta.get("progressToken")
        if is_request_id(token) and "id" in message:
            self._progress[cast("str | int", token)] = message["id"]
            if len(self._progress) > _MOST_TOKENS:
                del self._progress[next(iter(self._progress))]

    async def forward(self, message: Message) -> None:
        """Forward a client's message; answer a request with an error if that fails."""
        method, number = message.get("method"), message.get("id")
        self.record_client(message)
        is_request = method is not None and is_request_id(number)
        if is_request:
            self._forwarded[cast("str | int", number)] = None
        try:
            up = await self._connect(greets=method != "initialize")
            if is_request:
                self._forwarded[cast("str | int", number)] = up
            if method == "initialize":
                self._handshake = [message]
            elif method == "notifications/initialized":
                self._handshake.append(message)
            await up.send(message)
        except OSError as error:
            await self._answer_error(number, f"the server cannot be reached: {error}")
        except (ValueError, RecursionError) as error:  # one bad message must not end the session
            await self._answer_error(number, f"the message cannot be forwarded: {error}")

    async def request(self, method: str, params: Message, timeout: float) -> Message:  # noqa: ASYNC109
        """Send a request of the gateway and return the response.

        Raises:
            ConnectionRefusedError: There is no connection; nothing was sent.
            ConnectionResetError: The connection ended before the response.
            TimeoutError: There was no response in time.
        """
        up = await self._connect()
        return await self._ask(up, method, params, timeout)

    async def _ask(self, up: Any, method: str, params: Message, timeout: float) -> Message:  # noqa: ASYNC109
        self._count += 1
        number = f"sayso-{self._secret}-{self._count}"
        future = self._own_requests[number] = asyncio.get_running_loop().create_future()
        try:
            await up.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await asyncio.wait_for(asyncio.shield(future), timeout)
        except (asyncio.CancelledError, TimeoutError) as error:
            gone: Message = {"requestId": number, "reason": "the answer is no longer needed"}
            self._in_background(up.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone}))
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"it did not answer {method} within {timeout:g} s") from None
            raise
        finally:
            self._own_requests.pop(number, None)

    async def list(self) -> dict[str, Message]:
        """List the server's tools, call `changed` for changed ones, and return all by name.

        Raises:
            OSError: The server cannot be reached, or does not answer in time.
            ValueError: The response does not contain a list of tools.
        """
        async with self._listing:
            tools: dict[str, Message] = {}
            params: Message = {"_meta": self._meta} if self._meta else {}
            for _ in range(_MOST_PAGES):
                try:
                    answer = await self.request("tools/list", params, _LISTING)
                except ConnectionResetError:  # a restarted server has lost the session, so reconnect
                    answer = await self.request("tools/list", params, _LISTING)
                found = object_of(answer.get("result"))
                if not isinstance(found.get("tools"), list):
                    raise ValueError(f"it did not list its tools: {answer.get('error')}")  # noqa: TRY004  the server's data is wrong, not a Python type
                tools |= tools_in(found)
                if not found.get("nextCursor"):
                    break
                params = {**params, "cursor": found["nextCursor"]}
            before, self.tools = self._gone | self.tools, tools
            gone = [(name, tool) for name, tool in before.items() if name not in tools]
            self._gone = dict(gone[-_MOST_GONE:])
            for name in before.keys() & tools.keys():
                if before[name] != tools[name]:
                    await self._changed(name, before[name], tools[name])
            return tools

    async def _connect(self, *, greets: bool = True) -> Any:
        async with self._connecting:
            if self._up is not None and self._up.has_ended:  # known before the end of its output is read
                await self._up.close()
            if self._up is not None:
                return self._up
            up = self._make()
            await up.start(self._receive, lambda: self._on_end(up))
            self._up = up
            if greets and self._handshake:  # a reconnection: repeat the client's handshake
                await self._ask(up, "initialize", self._handshake[0]["params"], _LISTING)
                for message in self._handshake[1:]:
                    await up.send(message)
                if self.tools:
                    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
                    await self._to_client(dump(changed), None)
            return up

    async def _receive(self, raw: bytes, message: Message) -> None:
        number: Any = message.get("id")
        if "method" not in message:
            if number is not None and not is_request_id(number):
                return  # no request has such an id
            if number in self._own_requests:
                own = self._own_requests[number]
                if not own.done():
                    own.set_result(message)
            elif number is None or number in self._forwarded:  # other ids are unknown, or of held calls
                self._forwarded.pop(cast("Any", number), None)
                await self._to_client(raw, number)
            return
        if message["method"] == "notifications/tools/list_changed" and self.tools:
            self._in_background(self.list())
        token: Any = object_of(message.get("params")).get("progressToken")
        await self._to_client(raw, self._progress.get(token) if is_request_id(token) else None)

    async def _on_end(self, up: Any) -> None:
        if self._up is up:
            self._up = None
        for future in self._own_requests.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the server ended before it answered"))
                future.exception()  # mark it as retrieved, as its waiter may be gone
        for number in [number for number, sent_over in self._forwarded.items() if sent_over is up]:
            await self._answer_error(number, "the server ended before it answered; the next request starts it again")

    async def _answer_error(self, number: Any, reason: str) -> None:
        if is_request_id(number) and number in self._forwarded:
            del self._forwarded[number]
            error = {"code": _ENDED, "message": reason}
            await self._to_client(dump({"jsonrpc": "2.0", "id": number, "error": error}), number)

    def _in_background(self, work: Any) -> None:
        async def done() -> None:
            try:
                await work
            except (OSError, ValueError):
                return  # tools are listed again before each start, which reports the error

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


class Output:
    """The output to a stdio client, written by a thread, so that a client that does not read blocks nothing else.

    Senders wait while too much is unwritten. A client that reads nothing for `STALLED` seconds counts as gone, and the
    rest is dropped.

    Args:
        out: The file descriptor.
        gone: Called once, in the loop, when the client is gone.

    Attributes:
        is_gone: Whether the client is gone.
    """

    def __init__(self, out: int, gone: Callable[[], None]) -> None:
        self.is_gone = False
        self._out, self._gone = out, gone
        self._loop, self._lines = asyncio.get_running_loop(), queue.SimpleQueue[bytes]()
        self._unwritten, self._writes, self._is_watched = 0, 0, False
        self._changed = asyncio.Event()  # set and replaced after each write
        threading.Thread(target=self._write, daemon=True).start()

    async def send(self, line: bytes, related: str | int | None = None) -> None:  # noqa: ARG002  for HTTP
        """Queue a line; wait while too much is unwritten."""
        if self.is_gone:
            return
        self._unwritten += len(line) + 1
        self._lines.put(line + b"\n")
        if not self._is_watched:
            self._watch(-1)
        await self._until(_UNWRITTEN)

    async def close(self) -> None:
        """Wait until everything is written, or the client has read nothing for `PATIENCE` seconds."""
        self.hurry()
        await self._until(0)

    def hurry(self) -> None:
        """Give the client only `PATIENCE` more seconds to read something, because the session ends."""
        self._loop.call_later(PATIENCE, self._end_if_stalled, self._writes)

    async def _until(self, most: int) -> None:
        while self._unwritten > most and not self.is_gone:
            await self._changed.wait()

    def _watch(self, writes: int) -> None:
        """End if nothing was written since the count was `writes`; otherwise check again while output is pending."""
        self._end_if_stalled(writes)
        self._is_watched = self._unwritten > 0 and not self.is_gone
        if self._is_watched:
            self._loop.call_later(STALLED, self._watch, self._writes)

    def _end_if_stalled(self, writes: int) -> None:
        if self._unwritten > 0 and writes == self._writes:
            self._end("does not read its input")

    def _end(self, why: str) -> None:
        if not self.is_gone:
            _log.warning("ended the session, because its client %s", why)
            self.is_gone = True
            self._changed.set()
            self._gone()

    def _on_written(self, size: int) -> None:
        self._unwritten, self._writes = self._unwritten - size, self._writes + 1
        self._changed.set()
        if not self.is_gone:
            self._changed = asyncio.Event()

    def _write(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, as the process ends
            while True:
                left = self._lines.get()
                while left:
                    try:
                        size = os.write(self._out, left[:_CHUNK])
                    except OSError as error:
                        self._loop.call_soon_threadsafe(self._end, f"cannot be written to ({error.strerror})")
                        return
                    left = left[size:]
                    self._loop.call_soon_threadsafe(self._on_written, size)


Open = Callable[[Send], Any]
"""Opens the session of one client: a `Gateway`, which receives the client's lines and is closed after the last."""


async def serve_stdio(open_session: Open) -> None:
    """Serve one client on stdin and stdout until it closes the connection."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints of other code must not mix with messages

    def read() -> None:
        parts, size = list[bytes](), 0  # of an incomplete line
        while size <= _LINE and (chunk := os.read(0, 1 << 16)):
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                loop.call_soon_threadsafe(lines.put_nowait, b"".join([*parts, line]))
                parts, size = [], 0
            parts.append(rest)
            size += len(rest)
        if size > _LINE:
            _log.warning("ended the session, because its client wrote a line of more than %s bytes", f"{_LINE:,}")
        loop.call_soon_threadsafe(end)

    def end() -> None:
        output.hurry()  # messages already read may be waiting for space in the output
        lines.put_nowait(None)

    output = Output(out, lambda: lines.put_nowait(None))
    session = open_session(output.send)
    for number in (signal.SIGTERM, signal.SIGINT):  # some clients stop servers this way; withdraw waiting calls first
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, end)
    threading.Thread(target=read, daemon=True).start()
    try:
        while (line := await lines.get()) is not None and not output.is_gone:
            if line.strip():
                await session.from_client(line)
    finally:
        output.hurry()
        await session.close()
        await output.close()
