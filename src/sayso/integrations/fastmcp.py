"""Sayso in servers of the Model Context Protocol: middleware for FastMCP and for the official SDK (extra `fastmcp`).

It is for your own server; use the gateway for other servers. A refusal becomes a tool result in words, which is marked
as an error so that clients do not validate it with the tool's output schema. No traceback is logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Literal, Unpack, cast

from sayso.errors import KeyReusedError
from sayso.gates.gate import HoldOptions
from sayso.gates.signals import ConfirmationRequired
from sayso.integrations.tool_calls import ToolHook, ToolResult, acall_tool, check_wait, framework, options_of
from sayso.model import canonical
from sayso.model.ids import new_run_id, new_token
from sayso.model.request import not_run

Wait = Literal["auto", "block", "ticket"]
_UNKNOWN = "its server has no tool of this name"  # the server could run any tool
_BEAT = 5.0  # seconds between progress notifications


def _module(name: str) -> Any:
    return framework(name, "fastmcp", name)


def _types() -> Any:
    return _module("mcp_types")


class _ToolFailed(Exception):
    """The tool returned a result that is marked as an error."""


class _Calls(ToolHook):
    """The calls of one server: which are held, how they wait, and which later call repeats an earlier one."""

    def __init__(self, tools: Collection[str] | None, wait: Wait, patience: float, options: HoldOptions) -> None:
        check_wait(wait, "auto", "block", "ticket")
        super().__init__(tools, options)
        self._timeout = {"auto": patience, "block": None, "ticket": 0.0}[wait]
        self._own_run = new_run_id()
        self._delivered: Counter[str] = Counter()

    async def take(
        self, name: str, arguments: dict[str, Any], execute: Callable[[dict[str, Any]], Awaitable[Any]],
        tool: Mapping[str, Any],
    ) -> ToolResult:  # fmt: skip
        """Hold a call and run it; a ticket is a result with `has_run` False."""
        form = canonical.encode({"client": _client(), "tool": name, "arguments": arguments}).text
        digest = hashlib.sha256(form.encode()).hexdigest()[:40]
        number = self._delivered[digest]
        key = new_token() if self._timeout is None else f"{digest}-{number}"  # nobody comes back to a call that waits
        options = options_of(
            self._options, key=key, run=self._own_run, schema=tool.get("schema"), description=tool.get("description")
        )
        is_over = True
        try:
            result = await acall_tool(name, arguments, execute, options, timeout=self._timeout)
            is_over = result.has_run  # a refusal also answers later equal calls
        except ConfirmationRequired as waits:
            is_over = False
            result = ToolResult(
                f"Not run yet: a person must approve {waits.id}; call again with the same arguments. Do"
                " other work first; the repeated call returns the result, and nobody is asked twice.",
                has_run=False,
            )
        finally:
            if is_over:  # from now on an equal call is a new one
                self._delivered[digest] = max(self._delivered[digest], number + 1)
        return result


def _client() -> str:
    """Return the caller from the server's authentication, because in new protocols a session lasts for one call."""
    token = _module("mcp.server.auth.middleware.auth_context").get_access_token()
    return "" if token is None else f"{token.client_id} {getattr(token, 'subject', None) or ''}"


@asynccontextmanager
async def _beating(send: Callable[[float, str], Awaitable[Any]]) -> AsyncGenerator[None]:
    """Send progress while a call waits, which resets the timeout of clients that asked for progress."""

    async def beat() -> None:
        count = 0
        while True:
            count += 1
            with suppress(OSError, RuntimeError):
                await send(count / 1e6, "waiting for a person")
            await asyncio.sleep(_BEAT)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _blocks(result: Any) -> list[Any]:
    return [_types().CallToolResult(content=[block]).content[0] for block in result["content"]]


def _words(text: str) -> list[Any]:
    return [_types().TextContent(type="text", text=text)] if text else []


async def _through(
    calls: _Calls, name: str, arguments: dict[str, Any], tool: Mapping[str, Any],
    run: Callable[[dict[str, Any]], Awaitable[Any]], make: Callable[..., Any],
) -> Any:  # fmt: skip
    """Hold and run a call, and return the result of `make` for its content, structured content and error flag."""
    ran: list[Any] = []

    async def execute(approved: dict[str, Any]) -> Any:
        result = await run(approved)
        ran.append(result)
        if getattr(result, "is_error", False):
            raise _ToolFailed("; ".join(str(getattr(block, "text", block)) for block in result.content))
        # The stored form of a result.
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
        return {"content": blocks, "structured": result.structured_content}

    try:
        result = await calls.take(name, arguments, execute, tool)
    except _ToolFailed:
        return ran[0]
    except KeyReusedError as error:
        return make(_words(str(error)), None, is_error=True)
    if not result.has_run:
        return make(_words(result.text), None, is_error=True)
    if ran and not result.words:
        return ran[0]
    return make([*_words(result.words), *_blocks(result.value)], result.value["structured"], is_error=False)


try:
    _Middleware: Any = importlib.import_module("fastmcp.server.middleware").Middleware
except ImportError:  # the official SDK alone
    _Middleware = object


class ApprovalMiddleware(_Middleware):
    """Holds calls of a FastMCP server's tools: `FastMCP(…, middleware=[ApprovalMiddleware(["refund"])])`.

    Args:
        tools: Names or patterns (`"delete_*"`) of the tools to hold; by default all.
        wait: `block` waits in the call, with progress notifications. `ticket` answers at once that a person must
            approve, and the same call made again finds the decision. `auto` blocks for `patience`, then sends a ticket.
        patience: Seconds; keep it below your clients' timeout.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `store`, `context` and `run`, as for `sayso.hold`.
    """

    def __init__(
        self, tools: Collection[str] | None = None, *, wait: Wait = "auto", patience: float = 50.0,
        **options: Unpack[HoldOptions],
    ) -> None:  # fmt: skip
        self._calls = _Calls(tools, wait, patience, options)

    async def on_call_tool(self, context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Hold a call, and run it once it is approved."""
        message, here = context.message, context.fastmcp_context
        if not self._calls.holds(message.name):
            return await call_next(context)

        async def run(approved: dict[str, Any]) -> Any:
            return await call_next(context.copy(message=message.model_copy(update={"arguments": approved})))

        def make(content: list[Any], structured: Any, *, is_error: bool) -> Any:
            kind = _module("fastmcp.tools.base").ToolResult
            return kind(content=content, structured_content=structured, is_error=is_error)

        tool = await here.fastmcp.get_tool(message.name)
        if tool is None:
            return make(_words(not_run(message.name, _UNKNOWN)), None, is_error=True)
        about = {"schema": tool.parameters, "description": tool.description}
        async with _beating(lambda progress, text: here.report_progress(progress, message=text)):
            return await _through(self._calls, message.name, dict(message.arguments or {}), about, run, make)


class ServerApproval:
    """Holds calls of a server of the official SDK: `server.middleware.append(ServerApproval(server, ["refund"]))`.

    Args:
        server: The `MCPServer`, which provides the schemas of its tools.
        tools, wait, patience, options: As for `ApprovalMiddleware`.
    """

    def __init__(
        self, server: Any, tools: Collection[str] | None = None, *, wait: Wait = "auto", patience: float = 50.0,
        **options: Unpack[HoldOptions],
    ) -> None:  # fmt: skip
        self._server, self._calls = server, _Calls(tools, wait, patience, options)

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Hold tool calls; pass all other messages."""
        params: dict[str, Any] = dict(ctx.params or {})
        name, arguments = params.get("name"), params.get("arguments")
        if ctx.method != "tools/call" or not isinstance(name, str) or not self._calls.holds(name):
            return await call_next(ctx)
        tools: dict[str, Any] = {tool.name: tool for tool in await self._server.list_tools()}
        if name not in tools or not isinstance(arguments, dict | None):
            why = "its arguments are not an object" if name in tools else _UNKNOWN
            return _types().CallToolResult(content=_words(not_run(name, why)), is_error=True)
        token = cast("dict[str, Any]", params.get("_meta") or {}).get("progressToken")

        async def run(approved: dict[str, Any]) -> Any:
            result = await call_next(replace(ctx, params={**params, "arguments": approved}))
            return _types().CallToolResult.model_validate(result) if isinstance(result, dict) else result

        def make(content: list[Any], structured: Any, *, is_error: bool) -> Any:
            return _types().CallToolResult(content=content, structured_content=structured, is_error=is_error)

        async def send(progress: float, text: str) -> None:
            if token is not None:
                await ctx.session.send_progress_notification(
                    token, progress, message=text, related_request_id=ctx.request_id
                )

        about = {"schema": tools[name].input_schema, "description": tools[name].description}
        async with _beating(send):
            return await _through(self._calls, name, cast("dict[str, Any]", arguments or {}), about, run, make)
