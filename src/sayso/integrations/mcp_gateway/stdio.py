"""How JSON-RPC messages reach the MCP gateway and leave it: what transports share, and lines on stdio.

What a server sends over stdio is passed on as the bytes that came. What a client sends is parsed strictly and written
anew: a text that two parsers read in two ways must not get a held call past the gateway.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

__all__ = [
    "Closed", "Message", "Open", "Receive", "Send", "Session", "StdioUpstream", "Upstream", "dump", "object_of",
    "parse", "serve_stdio",
]  # fmt: skip

Message = dict[str, Any]
Receive = Callable[[bytes, Message], Awaitable[None]]
Closed = Callable[[], Awaitable[None]]
_FIELDS = ("jsonrpc", "id", "method", "params", "result", "error")
_PARAMS = {name.casefold(): name for name in ("name", "arguments", "_meta", "inputResponses", "requestState", "task")}
_LINE = 64 * 2**20  # bytes of the longest message
_PATIENCE = 3.0  # seconds that a server has to end by itself


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def parse(line: bytes) -> Message:
    """Return the message of a client that every JSON parser reads in the same way.

    Raises:
        ValueError: It is none: no JSON, a batch, an unknown field, a name that stands twice or is a known one spelt
            otherwise.
    """
    read: Any = json.loads(line.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_no_number)
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


def dump(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of ASCII: no parser sees the end of a line where there is none."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


class Upstream(Protocol):
    """A connection to the server behind the gateway."""

    async def start(self, receive: Receive, closed: Closed) -> None:
        """Connect; `receive` gets each message, and `closed` is called once when the connection is gone."""
        ...

    async def send(self, message: Message) -> None:
        """Send a message; raises `ConnectionRefusedError` where the connection is gone and nothing was sent."""
        ...

    async def close(self) -> None:
        """End the connection, and the process where it is one."""
        ...


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
                with suppress(ValueError):  # a server that logs on stdout: no client could read it either
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


class Session(Protocol):
    """What a transport gives a client's messages to."""

    async def from_client(self, line: bytes) -> None:
        """Take a message of the client."""
        ...

    def gone(self, call: Any) -> bool:
        """Take note that nobody can get the answer to this request any more; say whether it was in hand."""
        ...

    async def close(self) -> None:
        """Take note that the client is gone."""
        ...


Send = Callable[[bytes, "str | int | None"], Awaitable[None]]
Open = Callable[[Send], Session]


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
