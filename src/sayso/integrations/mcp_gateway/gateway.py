"""A say-so in front of any MCP server: calls of held tools wait for a person, everything else passes through.

    client -- stdio or HTTP --> Gateway --> stdio or HTTP --> server

It works on JSON-RPC messages, so that what it does not hold is what the server sent, byte for byte. Only `tools/call`
is looked into. The page docs/guides/mcp.md explains which call finds the decision of which other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

from sayso import config, errors
from sayso.integrations.mcp_gateway.call import HeldCalls, told
from sayso.integrations.mcp_gateway.elicit import Elicitation
from sayso.integrations.mcp_gateway.occasions import Call, Occasions
from sayso.integrations.mcp_gateway.proxy import Proxy, is_request_id
from sayso.integrations.mcp_gateway.stdio import Message, Send, Upstream, dump, object_of, parse
from sayso.model.ids import new_token
from sayso.model.request import not_run
from sayso.stores.base import Store

__all__ = ["Gateway", "Settings"]

_log = logging.getLogger("sayso")
_GRACE = 5.0  # seconds that a started call has when the client is gone


@dataclass(frozen=True)
class Settings:
    """What the command line says.

    Attributes:
        name: The server's name: its tools are asked about as `NAME/TOOL`.
        run: Name of the run; None for one of each session.
        policy: What decides; None for `allow`, `hold` and the tools' own `readOnlyHint`.
        allow, hold: Patterns of tool names.
        wait: How a held call waits: `block`, `ticket`, or by what the client can.
        patience: With `auto`, how many seconds a call blocks before its client gets a ticket.
        timeout: How many seconds a started call has.
        elicit_as: Whose decisions the answers of the client's own user are; None where it is not asked.
        store: Where the requests are.
    """

    name: str
    run: str | None = None
    policy: Any = None
    allow: Sequence[str] = ()
    hold: Sequence[str] = ()
    wait: Literal["auto", "block", "ticket"] = "auto"
    patience: float = 50.0
    timeout: float = 600.0
    elicit_as: str | None = None
    store: Store | str | None = None


class Gateway:
    """One client's session."""

    def __init__(self, settings: Settings, make: Callable[[], Upstream], send: Send) -> None:
        self._settings, self._send = settings, send
        store, when = config.open_store(settings.store), settings.policy
        run = settings.run or f"mcp:{settings.name}:{new_token()[:12]}"
        self._occasions = Occasions(settings.name, run, store, True if when is None else when)
        self._proxy = Proxy(make, send, self._occasions.on_change)
        self._elicitation = Elicitation(settings.elicit_as, store, send)
        self._calls: dict[str | int, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._held_calls = HeldCalls(
            settings.wait, settings.patience, settings.timeout, self._proxy, self._elicitation, self._occasions, send,
            self._running,
        )  # fmt: skip

    async def from_client(self, line: bytes) -> None:
        """Take a message of the client: hold it, or pass it on."""
        try:
            message = parse(line)
        except ValueError as error:
            await self._reply({"id": None, "error": {"code": -32700, "message": str(error)}})
            return
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            self._elicitation.notice(message)
        if method == "notifications/cancelled" and self.gone(object_of(message.get("params")).get("requestId")):
            return
        if method is None and self._elicitation.answered(message):
            return
        if method != "tools/call":
            await self._proxy.forward(message)
        elif not is_request_id(number) or number in self._calls:
            await self._reply({"id": None, "error": {"code": -32600, "message": "a call needs an id of its own"}})
        else:
            self._calls[number] = asyncio.create_task(self._call(message, next(self._occasions.counter)))  # pyright: ignore[reportArgumentType]

    def gone(self, call: Any) -> bool:
        """Stop a call whose client does not want it any more; say whether it was in hand here."""
        task = self._calls.get(call) if is_request_id(call) else None
        return task is not None and task.cancel()

    async def close(self) -> None:
        """Withdraw what waits, give what runs a moment to end, and end the connection to the server."""
        waiting = list(self._calls.values())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if self._settings.run is None:  # nobody can come back into this run
            await self._occasions.withdraw(None, "the client ended its session")
        if self._running:
            await asyncio.wait(self._running, timeout=_GRACE)
        await self._proxy.close()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _reply(self, answer: Message, number: Any = None) -> None:
        await self._send(dump({"jsonrpc": "2.0", **answer}), number)

    async def _call(self, message: Message, arrived: int) -> None:
        number = message["id"]
        try:
            if await self._passes(message, arrived):
                await self._proxy.forward(message)
        except OSError as error:
            _log.warning("the answer to a call did not reach its client (%s)", error)
        except Exception:  # noqa: BLE001  the edge of a call: its client must not wait for ever
            _log.exception("a call ended with an error of the gateway")
            error = {
                "code": -32603,
                "message": "the gateway failed; nobody knows whether the call ran: do not repeat it",
            }
            await self._reply({"id": number, "error": error}, number)
        finally:
            self._calls.pop(number, None)

    async def _passes(self, message: Message, arrived: int) -> bool:
        """Say whether a call is for the server as it is; any other is answered when this returns."""
        number, fields = message["id"], object_of(message.get("params"))
        name: Any = fields.get("name")
        arguments: Any = {} if fields.get("arguments") is None else fields["arguments"]
        if not isinstance(name, str) or not isinstance(arguments, dict):
            error = {"code": -32602, "message": "a call has a name, and arguments by name"}
            await self._reply({"id": number, "error": error}, number)
            return False
        self._proxy.notice(message)
        try:
            tools = self._proxy.tools
            tool = (tools if name in tools else await self._proxy.list()).get(name)
        except (OSError, ValueError, KeyError, TypeError) as error:
            text = not_run(name, f"its server cannot say which tools it has ({error})")
            await self._reply({"id": number, "result": told(text, fields)}, number)
            return False
        if tool is None:
            await self._reply({"id": number, "error": {"code": -32602, "message": f"Unknown tool: {name}"}}, number)
            return False
        if self._settings.policy is None and not self._is_held(tool):
            return True
        return await self._held(
            Call(number, fields, tool, cast("Message", arguments), object_of(fields.get("_meta")), arrived)
        )

    def _is_held(self, tool: Message) -> bool:
        names = (tool["name"], f"{self._settings.name}/{tool['name']}")

        def matches(patterns: Sequence[str]) -> bool:
            return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)

        if matches(self._settings.hold) or matches(self._settings.allow):
            return matches(self._settings.hold)
        return object_of(tool.get("annotations")).get("readOnlyHint") is not True

    async def _held(self, call: Call) -> bool:
        try:
            occasion, held = await self._occasions.ask(call, self._elicitation.client(call.meta))
        except (errors.SaysoError, ValueError) as error:
            text = not_run(call.tool["name"], f"it could not be asked about ({error})")
            await self._reply({"id": call.number, "result": told(text, call.params)}, call.number)
            return False
        if held.state == "allowed":
            return True
        if held.request is None:
            await self._reply({"id": call.number, "result": told(held.message_for_model(), call.params)}, call.number)
            return False
        try:
            answer, is_final = await self._held_calls.outcome(call, occasion, held)
            await self._reply({"id": call.number, "result": answer}, call.number)
            if is_final and occasion.delivered is None:
                occasion.delivered = next(self._occasions.counter)
        finally:
            occasion.users -= 1
        return False
