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
from itertools import count
from typing import Any, Literal, Unpack, cast

from sayso.errors import ConfigError, KeyReusedError
from sayso.gates.exceptions import ConfirmationRequired
from sayso.gates.gate import HoldOptions
from sayso.integrations import tool_calls
from sayso.integrations.tool_calls import ToolFailed, ToolHook, ToolResult, acall_tool, check_wait, framework
from sayso.model import canonical
from sayso.model.ids import new_run_id, new_token
from sayso.model.request import not_run

Wait = Literal["auto", "block", "ticket"]
_UNKNOWN = "its server has no tool of this name"  # the server could run any tool
_BEAT = 5.0  # seconds between progress notifications


def _module(name: str) -> Any:
    return framework(name, "fastmcp", name)


class _Calls(ToolHook):
    """The calls of one server: which are held, how they wait, and which later call repeats an earlier one."""

    def __init__(self, tools: Collection[str] | None, wait: Wait, patience: float, options: HoldOptions) -> None:
        check_wait(wait, "auto", "block", "ticket")
        super().__init__(tools, options)
        self._timeout = {"auto": patience, "block": None, "ticket": 0.0}[wait]
        self._own_run = new_run_id()
        self._delivered: Counter[str] = Counter()

    async def hold(
        self, name: str, arguments: dict[str, Any], about: Mapping[str, Any],
        run: Callable[[dict[str, Any]], Awaitable[Any]], kind: Any,
    ) -> Any:  # fmt: skip
        """Hold and run a call, and return its result, which is of the class `kind` if the tool did not make it."""
        form = canonical.encode({"client": _client(), "tool": name, "arguments": arguments}).text
        digest = hashlib.sha256(form.encode()).hexdigest()[:40]
        options = tool_calls.options_of(self._options, key="", run=self._own_run, **about)
        if digest not in self._delivered and self._timeout is not None:  # an earlier process may have had some
            self._delivered.setdefault(digest, await tool_calls.next_number(options, digest))
        number = self._delivered[digest]
        options["key"] = f"{digest}-{number}" if self._timeout is not None else new_token()  # nobody comes back
        ran, is_over = list[Any](), True

        async def execute(approved: dict[str, Any]) -> Any:
            made = await run(approved)
            ran.append(made)
            if getattr(made, "is_error", False):
                raise ToolFailed("; ".join(str(getattr(block, "text", block)) for block in made.content))
            blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in made.content]
            return {"content": blocks, "structured": made.structured_content}  # what the store keeps

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
        except ToolFailed:
            return ran[0]
        except KeyReusedError as error:
            result = ToolResult(str(error), has_run=False)
        finally:
            if is_over:  # from now on an equal call is a new one
                self._delivered[digest] = max(self._delivered[digest], number + 1)
        if not result.has_run:
            return kind(content=_texts(result.text), is_error=True)
        if ran and not result.words:
            return ran[0]
        content = [*_texts(result.words), *_module("mcp_types").CallToolResult(content=result.value["content"]).content]
        return kind(content=content, structured_content=result.value["structured"], is_error=False)


async def _every_tool(provider: Any, failures: list[Exception]) -> list[Any]:
    """Return the tools of a FastMCP server, also those hidden from the client; add what failed to `failures`."""
    inner = [getattr(provider, name) for name in ("server", "_inner") if hasattr(provider, name)]  # mounted, renamed
    inner = getattr(provider, "providers", inner)
    tools = [tool for each in inner for tool in await _every_tool(each, failures)]
    try:
        if not inner:
            return list(await provider.list_tools())
        catalog = _module("fastmcp.server.transforms.catalog").CatalogTransform
        for transform in provider.transforms:  # the tools behind a catalog can still be called
            tools = [*(tools if isinstance(transform, catalog) else ()), *await transform.list_tools(tools)]
    except Exception as error:  # noqa: BLE001  a proxy whose server is away; FastMCP lists the other tools
        failures.append(error)
    return tools


def _client() -> str:
    """Return the caller from the server's authentication, because in new protocols a session lasts for one call."""
    token = _module("mcp.server.auth.middleware.auth_context").get_access_token()
    return "" if token is None else f"{token.client_id} {getattr(token, 'subject', None) or ''}"


@asynccontextmanager
async def _reporting_progress(report_progress: Callable[..., Awaitable[Any]]) -> AsyncGenerator[None]:
    """Send progress while a call waits, which resets the timeout of clients that asked for progress."""

    async def beat() -> None:
        for number in count(1):
            with suppress(OSError, RuntimeError):
                await report_progress(number / 1e6, message="waiting for a person")
            await asyncio.sleep(_BEAT)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _texts(text: str) -> list[Any]:
    return [_module("mcp_types").TextContent(type="text", text=text)] if text else []


_Middleware: Any = object
with suppress(ImportError):  # the official SDK alone
    _Middleware = importlib.import_module("fastmcp.server.middleware").Middleware


class ApprovalMiddleware(_Middleware):
    """Holds calls of a FastMCP server's tools: `FastMCP(…, middleware=[ApprovalMiddleware(["refund"])])`.

    While no tool matches one of the names, `tools/list` is an error and no call runs. If a proxied server is away, the
    name is only warned about, and no call runs whose tool has a similar name.

    Args:
        tools: Names or patterns (`"delete_*"`) of the tools to hold, as the server lists them; by default all.
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

    async def on_list_tools(self, context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Check the names of the tools to hold, and list the tools."""
        await self._holds("", context.fastmcp_context.fastmcp)
        return await call_next(context)

    async def on_call_tool(self, context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Hold a call, and run it once it is approved."""
        message, here, kind = context.message, context.fastmcp_context, _module("fastmcp.tools.base").ToolResult
        try:
            tool = await self._tool(here.fastmcp, message.name)
            name = message.name if tool is None else tool.name
            is_held = await self._holds(name, here.fastmcp)
        except ConfigError as error:
            return kind(content=_texts(not_run(message.name, str(error))), is_error=True)
        if not is_held:
            return await call_next(context)

        async def run(approved: dict[str, Any]) -> Any:
            return await call_next(context.copy(message=message.model_copy(update={"arguments": approved})))

        if tool is None:
            return kind(content=_texts(not_run(name, _UNKNOWN)), is_error=True)
        about = {"schema": tool.parameters, "description": tool.description}
        async with _reporting_progress(here.report_progress):
            return await self._calls.hold(name, dict(message.arguments or {}), about, run, kind)

    async def _tool(self, server: Any, name: str) -> Any:
        """Return a tool by the name that the server lists, or by the name with a hash that its apps can call."""
        tool = await server.get_tool(name)
        hashed = _module("fastmcp.server.providers.addressing").parse_hashed_backend_name(name)
        if tool is None and hashed is not None:
            own = [each for each in await _every_tool(server, []) if f"'tool_hash': '{hashed[0]}'" in str(each.meta)]
            if not own:
                raise ConfigError(_UNKNOWN)  # a provider that lists nothing now may still run a tool to hold
            tool = max(own, key=lambda each: self._calls.holds(each.name))  # of an app that is mounted twice
        return tool

    async def _holds(self, name: str, server: Any) -> bool:
        async def list_names() -> tuple[set[str], set[str], bool]:
            visible, failures = set[str](), list[Exception]()
            every = {tool.name for tool in await _every_tool(server, failures)}
            with suppress(Exception):  # as in `_every_tool`; not every provider lists the tools that it finds by name
                visible |= {tool.name for tool in await server.list_tools(run_middleware=False)}
                visible |= {each for each in self._calls.names or () if await server.get_tool(each) is not None}
            return visible, every, not failures

        return await self._calls.holds_in(name, list_names)


class ServerApproval:
    """Holds calls of a server of the official SDK: `server.middleware.append(ServerApproval(server, ["refund"]))`.

    `server` is the `MCPServer`, which provides the schemas of its tools; the others are as for `ApprovalMiddleware`.
    """

    def __init__(
        self, server: Any, tools: Collection[str] | None = None, *, wait: Wait = "auto", patience: float = 50.0,
        **options: Unpack[HoldOptions],
    ) -> None:  # fmt: skip
        self._server, self._calls = server, _Calls(tools, wait, patience, options)

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Hold tool calls; pass all other messages."""
        params: dict[str, Any] = dict(ctx.params or {})
        name, arguments, kind = params.get("name"), params.get("arguments"), _module("mcp_types").CallToolResult
        if ctx.method not in {"tools/call", "tools/list"}:
            return await call_next(ctx)
        tools: dict[str, Any] = {tool.name: tool for tool in await self._server.list_tools()}
        try:
            is_held = self._calls.holds(str(name or ""), tools)
        except ConfigError as error:
            if ctx.method == "tools/list":
                raise
            return kind(content=_texts(not_run(str(name), str(error))), is_error=True)
        if ctx.method == "tools/list" or not is_held or not isinstance(name, str):
            return await call_next(ctx)
        if name not in tools or not isinstance(arguments, dict | None):
            why = "its arguments are not an object" if name in tools else _UNKNOWN
            return kind(content=_texts(not_run(name, why)), is_error=True)

        async def run(approved: dict[str, Any]) -> Any:
            result = await call_next(replace(ctx, params={**params, "arguments": approved}))
            return kind.model_validate(result) if isinstance(result, dict) else result

        about = {"schema": tools[name].input_schema, "description": tools[name].description}
        async with _reporting_progress(ctx.session.report_progress):
            return await self._calls.hold(name, cast("dict[str, Any]", arguments or {}), about, run, kind)
