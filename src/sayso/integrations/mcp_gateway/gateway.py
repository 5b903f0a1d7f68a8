"""A proxy in front of any MCP server: calls of held tools wait for a person, and everything else passes through.

    client -- stdio or HTTP --> Gateway --> stdio or HTTP --> server

It works on JSON-RPC messages, and passes on a server's messages byte for byte. It inspects only `tools/call`: `Gateway`
holds such a call and makes it once approved, and `Elicitation` asks the client's own user if that is configured.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, cast

from sayso import aio, clock, config, errors
from sayso.config import requester
from sayso.effects import offload
from sayso.gates import exceptions
from sayso.gates.ambiguous import NotExecuted
from sayso.integrations.mcp_gateway import connection
from sayso.integrations.mcp_gateway.connection import Message, Send, dump, object_of, parts_of, tool_result, truncate
from sayso.integrations.mcp_gateway.elicitation import Elicitation
from sayso.integrations.tool_calls import is_over
from sayso.model import canonical
from sayso.model.grant import ABOUT_THIS_CALL
from sayso.model.ids import new_token
from sayso.model.lifecycle import is_due
from sayso.model.request import State, not_run
from sayso.stores.base import Store

_log = logging.getLogger("sayso")
_OPEN = (State.PENDING, State.APPROVED)
_KEY = "sayso/key"  # the client's own key in the `_meta` of a call; all calls with it are the same call, forever
_GONE = "the client disconnected"
_GRACE = 5.0  # seconds for a started call after its client is gone
_BEAT = 5.0
_DESCRIPTION = 20_000  # characters of a tool's description that each request stores
# The server certainly did not run the call. Excludes -32600, with which the SDK itself reports uncertain HTTP failures.
_SURELY_REFUSED = (-32601, -32602, -32700)


@dataclass(frozen=True)
class Settings:
    """The options of the command line.

    Attributes:
        name: The server's name; its tools are named `NAME/TOOL` in requests.
        run: The name of the run; None for a separate run for each session.
        policy: The policy; None to use `allow`, `hold` and the tools' own `readOnlyHint`.
        allow, hold: Patterns of tool names.
        wait: How a held call waits: `block`, `ticket`, or `auto`, which depends on the client.
        patience: With `auto`, the seconds for which a call blocks before its client gets a ticket.
        timeout: The seconds within which a started call must end.
        elicit_as: The reviewer to whom answers of the client's user are attributed; None to not ask the user.
        store: The store with the requests.
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


@dataclass
class _Call:
    """A client's call: its id, the original `params`, the values parsed from them, and its arrival number."""

    number: str | int
    params: Message
    tool: Message
    arguments: Message
    arrived: int

    @property
    def meta(self) -> Message:
        return object_of(self.params.get("_meta"))


@dataclass
class _Occasion:
    """One occasion on which a call is asked; several equal calls of the client can belong to it.

    Attributes:
        tool: The tool, as listed when the call was last asked.
        held: The held call, as last asked.
        users: The number of calls in progress that belong to it.
        is_ticket: Its client was told to call again, or another session asked, so an equal call belongs to it.
        delivered: The value of `counter` when its result reached the client; a later equal call is a new occasion.
        note: The message that replaces the decision if the tool was changed.
    """

    tool: Message = field(default_factory=Message)
    held: aio.Held | None = None
    users: int = 0
    is_ticket: bool = False
    delivered: int | None = None
    note: str | None = None


class _ToolError(Exception):
    """The server returned a result that is marked as an error."""

    def __init__(self, result: Message) -> None:
        parts = [object_of(part) for part in parts_of(result)]
        text = "\n".join(str(part.get("text")) for part in parts if part.get("type") == "text")
        super().__init__(text or "the tool reported an error")
        self.result = result


class _ToolChanged(Exception):
    """The server has changed the tool since the call was approved; the message is for the model."""


class Gateway:
    """One client's session.

    Args:
        settings: The options of the command line.
        make: Creates a connection to the server.
        send: Sends a line to the client.
    """

    def __init__(self, settings: Settings, make: Callable[[], Any], send: Send) -> None:
        self._settings, self._send = settings, send
        store = config.open_store(settings.store)
        run = settings.run or f"mcp:{settings.name}:{new_token()[:12]}"
        self._occasions = _Occasions(settings.name, run, store, True if settings.policy is None else settings.policy)
        self._proxy = connection.Proxy(make, send, self._occasions.on_change)
        self._elicitation = Elicitation(settings.elicit_as, store, send)
        self._calls: dict[str | int, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[Any]] = set()  # started calls, which finish even if their client is gone

    async def from_client(self, line: bytes) -> None:
        """Handle a client's message: hold it or pass it on."""
        try:
            message = connection.parse(line)
        except ValueError as error:
            await self._reply(None, {"error": {"code": -32700, "message": str(error)}})
            return
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            self._elicitation.record_client(message)
        if method == "notifications/cancelled" and self.cancel_call(object_of(message.get("params")).get("requestId")):
            return
        if method is None and self._elicitation.handle_response(message):
            return
        if method != "tools/call":
            await self._proxy.forward(message)
        elif not connection.is_request_id(number) or number in self._calls:
            await self._reply(None, {"error": {"code": -32600, "message": "a call needs its own id"}})
        else:
            self._calls[number] = asyncio.create_task(self._call(message, next(self._occasions.counter)))  # pyright: ignore[reportArgumentType]

    def cancel_call(self, call: Any) -> bool:
        """Stop a call that its client has cancelled; return whether this gateway was handling it."""
        task = self._calls.get(call) if connection.is_request_id(call) else None
        return task is not None and task.cancel()

    @property
    def is_waiting(self) -> bool:
        """Whether a call is in progress, or waits for a person after its client was told to call again."""
        return bool(self._calls or self._running or self._occasions.are_open)

    async def close(self) -> None:
        """Withdraw waiting calls, give running ones a moment to end, and close the connection to the server."""
        waiting = list(self._calls.values())
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if self._settings.run is None:  # no later session can continue this run
            await self._occasions.withdraw(None, "the client ended its session")
        if self._running:
            await asyncio.wait(self._running, timeout=_GRACE)
        await self._proxy.close()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _reply(self, number: Any, answer: Message) -> Literal[False]:
        """Answer the client; return False, because a call that is answered here is not passed on."""
        await self._send(dump({"jsonrpc": "2.0", "id": number, **answer}), number)
        return False

    async def _call(self, message: Message, arrived: int) -> None:
        number = message["id"]
        try:
            if await self._passes(message, arrived):
                await self._proxy.forward(message)
        except OSError as error:
            _log.warning("could not send the result of a call to the client (%s)", error)
        except Exception:  # noqa: BLE001  whatever fails, the client must get an answer
            _log.exception("a call failed because of an error in the gateway")
            text = "the gateway failed; it is unknown whether the call ran. Do not repeat it."
            await self._reply(number, {"error": {"code": -32603, "message": text}})
        finally:
            self._calls.pop(number, None)

    async def _passes(self, message: Message, arrived: int) -> bool:
        """Return whether a call should be passed on unchanged; otherwise it is answered when this returns."""
        number, params = message["id"], object_of(message.get("params"))
        name: Any = params.get("name")
        arguments: Any = {} if params.get("arguments") is None else params["arguments"]
        if not isinstance(name, str) or not isinstance(arguments, dict):
            error = {"code": -32602, "message": "a call must have a name, and its arguments must be an object"}
            return await self._reply(number, {"error": error})
        self._proxy.record_client(message)
        try:
            tools = self._proxy.tools
            tool = (tools if name in tools else await self._proxy.list()).get(name)
        except (OSError, ValueError, KeyError, TypeError) as error:
            text = not_run(name, f"its server did not list its tools ({error})")
            return await self._reply(number, {"result": tool_result(text, params)})
        if tool is None:
            return await self._reply(number, {"error": {"code": -32602, "message": f"Unknown tool: {name}"}})
        if self._settings.policy is None and not self._is_held(tool):
            return True
        return await self._hold(_Call(number, params, tool, cast("Message", arguments), arrived))

    def _is_held(self, tool: Message) -> bool:
        names = (tool["name"], f"{self._settings.name}/{tool['name']}")
        for patterns, is_held in ((self._settings.hold, True), (self._settings.allow, False)):
            if any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
                return is_held
        return object_of(tool.get("annotations")).get("readOnlyHint") is not True

    async def _hold(self, call: _Call) -> bool:
        """Ask about a call, wait, make it and answer it; return True if a policy allows it without a person."""
        try:
            occasion, held = await self._occasions.ask(call, self._elicitation.client(call.meta))
        except (errors.SaysoError, ValueError) as error:
            may_change = isinstance(error, errors.ArgumentError)  # not a person's refusal
            text = not_run(call.tool["name"], f"nobody could be asked ({error})", may_change=may_change)
            return await self._reply(call.number, {"result": tool_result(text, call.params)})
        if held.state == "allowed":
            return True
        if held.request is None:
            return await self._reply(call.number, {"result": tool_result(held.message_for_model(), call.params)})
        try:
            result, is_final = await self._result_or_reason(call, occasion, held)
            await self._reply(call.number, {"result": result})
            if is_final and occasion.delivered is None:
                occasion.delivered = next(self._occasions.counter)
        finally:
            occasion.users -= 1
        return False

    async def _result_or_reason(self, call: _Call, occasion: _Occasion, held: aio.Held) -> tuple[Message, bool]:
        """Return the result for the client, and whether it ends the occasion."""
        name = call.tool["name"]
        try:
            return await self._result_once_decided(call, occasion, held)
        except asyncio.CancelledError:
            if occasion.users == 1:
                await self._occasions.withdraw([occasion], _GONE)
            raise
        except (_ToolChanged, exceptions.ConfirmationRejected) as no:
            text = str(no) if isinstance(no, _ToolChanged) else occasion.note or no.message_for_model
            return tool_result(text, call.params), False
        except _ToolError as failed:
            return failed.result, True
        except errors.ValueNotKeptError as error:
            return tool_result(f"{name} has already run: {error}. Do not repeat this call.", call.params), True
        except errors.OutcomeNotRecordedError as error:
            return tool_result(f"{name} was started: {error}. Do not repeat this call.", call.params), False
        except (NotExecuted, errors.CallFailedError, errors.OutcomeUnknownError, OSError) as error:
            await held.refresh()
            if held.state in {"failed", "unknown"}:
                return tool_result(held.message_for_model(), call.params), held.state == "failed"
            occasion.is_ticket = True
            text = f"Not run yet: the server cannot be reached ({error}); call again with the same arguments."
            return tool_result(text, call.params), False
        except (errors.SaysoError, ValueError) as error:
            return tool_result(not_run(name, str(error)), call.params), False

    async def _result_once_decided(self, call: _Call, occasion: _Occasion, held: aio.Held) -> tuple[Message, bool]:
        while True:
            pause = await self._wait(call, occasion, held)
            if pause is not None:
                return pause, False
            with suppress(exceptions.ConfirmationRequired):  # went back to the reviewer, so wait again
                result, note = await self._start(call, occasion, held), held.message_for_model()
                content = [{"type": "text", "text": note}, *parts_of(result)]
                return ({**result, "content": content} if note else result), True

    async def _wait(self, call: _Call, occasion: _Occasion, held: aio.Held) -> Message | None:
        """Wait for the decision; return None when decided, or a result that tells the client to call again."""
        token = call.meta.get("progressToken")
        beat = asyncio.create_task(self._beat(token, call.number)) if connection.is_request_id(token) else None
        try:
            if held.state == "pending" and self._elicitation.can_ask(call.meta):
                question = await self._elicitation.ask(call.params, call.number, held)
                if question is not None:
                    occasion.is_ticket = True
                    return question
            wait = self._settings.wait
            timeout = None if wait == "block" else self._settings.patience
            if wait == "ticket" or (wait == "auto" and beat is None):
                timeout = 0.0
            await held.wait(timeout)
        except exceptions.ConfirmationRequired:
            occasion.is_ticket = True
            text = (
                f"Not run yet: a person must approve {held.id}; call again with the same arguments. Do"
                " other work first; the repeated call returns the result."
            )
            return tool_result(text, call.params, {"sayso/request": held.id})
        finally:
            if beat is not None:
                beat.cancel()
        return None

    async def _beat(self, token: Any, number: str | int) -> None:
        """Send progress to the client, in tiny steps because the server's own later progress must be greater."""
        for count in itertools.count(1):
            progress = {"progressToken": token, "progress": count / 1e6, "message": "waiting for a person"}
            await self._send(dump({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}), number)
            await asyncio.sleep(_BEAT)

    async def _start(self, call: _Call, occasion: _Occasion, held: aio.Held) -> Message:
        if held.state == "approved":
            # The server may have changed the tool without a notification, or be another server by now.
            now = (await self._proxy.list()).get(call.tool["name"])
            if now is None or now.get("inputSchema") != call.tool.get("inputSchema"):
                occasion.note = (
                    occasion.note or f"{call.tool['name']} was not run: the server changed or removed the tool."
                )
                await self._occasions.withdraw([occasion], "the server changed the tool")
                return await self._result_of_other_process(call, held, occasion.note)
        started = asyncio.create_task(held.once(partial(self._call_server, call)))
        self._running.add(started)
        started.add_done_callback(self._forget_task)
        try:
            return await asyncio.shield(started)  # a started call is not cancelled, so that its outcome is recorded
        except errors.EffectTakenError as taken:
            await self._occasions.withdraw([occasion], taken.reason)  # open, it would keep others from the effect
            raise errors.SaysoError(taken.reason) from taken

    async def _result_of_other_process(self, call: _Call, held: aio.Held, note: str) -> Message:
        """Return the result of another process of the run that started the call before it could be withdrawn."""
        name = call.tool["name"]
        try:
            await held.refresh()
            if held.request is None or held.request.execution is None:
                raise _ToolChanged(note)  # also if it could not be withdrawn and is still approved
            return await held.result(self._settings.timeout)
        except TimeoutError:
            raise _ToolChanged(
                f"{name} was started by another process and is still running. Do not repeat it."
            ) from None
        except errors.StoreError as error:
            text = f"{note} It is unknown whether another process ran it first ({error})."
            raise _ToolChanged(text) from None

    def _forget_task(self, started: asyncio.Task[Any]) -> None:
        self._running.discard(started)
        if not started.cancelled():
            started.exception()  # mark it as retrieved, as its client may be gone

    async def _call_server(self, call: _Call, arguments: Message) -> Message:
        """Make the approved call; exceptions are for `sayso.hold` to record."""
        passed_on = {"name", "_meta"}  # only fields that were approved, or need no approval
        if not self._elicitation.is_answer(call.params):
            passed_on |= {"inputResponses", "requestState"}
        params = {name: value for name, value in call.params.items() if name in passed_on}
        answer = await self._proxy.request("tools/call", {**params, "arguments": arguments}, self._settings.timeout)
        result = object_of(answer.get("result"))
        if "result" not in answer:
            error = object_of(answer.get("error"))
            text = f"{error.get('message')} ({error.get('code')})"
            if error.get("code") in _SURELY_REFUSED:
                raise NotExecuted(text)
            raise ConnectionResetError(f"the server answered with an error: {text}")
        if result.get("isError") is True:
            raise _ToolError(result)
        return result


class _Occasions:
    """Finds the request of each call: the occasions of one run that this session knows.

    MCP calls have no key, and a repeated call has a new id. So the key is derived from the call and a number, its
    occasion. An equal call belongs to the same occasion if its client was told to call again, or was gone when the
    result arrived. After the result was delivered, an equal call is a new occasion, and a person is asked again.

    Args:
        server, run, store: The gateway's server name, run and store.
        when: True, or a policy.
    """

    def __init__(self, server: str, run: str, store: Store, when: Any) -> None:
        self._server, self._run, self._store, self._when = server, run, store, when
        self._known: defaultdict[str, _Occasion] = defaultdict(_Occasion)
        self._asking = asyncio.Lock()
        self._notes: dict[str, str] = {}
        self.counter = itertools.count(1)

    async def ask(self, call: _Call, client: str | None) -> tuple[_Occasion, aio.Held]:
        """Find or ask the request of a call. If a person is asked, the occasion's `users` is incremented.

        Raises:
            SaysoError: The request could not be asked, and nothing may run.
        """
        async with self._asking:  # so that the second of two equal concurrent calls sees the first one's occasion
            tool, given = call.tool, call.meta.get(_KEY)
            name = f"{self._server}/{tool['name']}"
            if isinstance(given, str):
                key, before = f"client:{given}", 0
            else:
                form = canonical.encode({"tool": name, "schema": tool.get("inputSchema"), "arguments": call.arguments})
                digest = hashlib.sha256(form.text.encode()).hexdigest()[:40]
                key, before = await self._find_key(digest, call.arrived)
            about = {"tool changed": self._notes.get(tool["name"]), "equal calls before in this run": before or None}
            facts_of_call = {word: fact for word, fact in about.items() if fact is not None}
            facts = {"server": self._server, "client": client, ABOUT_THIS_CALL: facts_of_call or None}
            try:
                held = await aio.hold(
                    name, call.arguments, schema=tool.get("inputSchema"), key=key, run=self._run, store=self._store,
                    title=truncate(tool.get("title") or object_of(tool.get("annotations")).get("title")),
                    when=self._when, description=truncate(tool.get("description"), _DESCRIPTION),
                    context={word: fact for word, fact in facts.items() if fact is not None},
                )  # fmt: skip
            except asyncio.CancelledError:  # the request may already be recorded
                is_used = key in self._known and self._known[key].users > 0
                with suppress(errors.SaysoError):
                    found = None if is_used else await offload(partial(self._store.find_key, self._run, key))
                    if found is not None:
                        await offload(partial(self._store.withdraw, found.id, requester(), _GONE))
                raise
            occasion = self._known[key]
            if held.request is not None:
                occasion.tool, occasion.held, occasion.users = tool, held, occasion.users + 1
                occasion.is_ticket = occasion.is_ticket or isinstance(given, str)
            return occasion, held

    async def _find_key(self, digest: str, arrived: int) -> tuple[str, int]:
        """Return the key of the first occasion to which this call can belong, and the number of earlier ones."""
        number = 0
        for number in itertools.count():
            key = f"{digest}:{number}"
            occasion = self._known[key]
            if occasion.delivered is not None and not (occasion.is_ticket and arrived < occasion.delivered):
                continue
            if occasion.users > 0 and not occasion.is_ticket:
                continue
            found = await offload(partial(self._store.find_key, self._run, key))
            if found is None or not is_over(found, is_ours=occasion.held is not None):
                occasion.is_ticket = occasion.is_ticket or (found is not None and occasion.held is None)
                break
        return f"{digest}:{number}", number

    @property
    def are_open(self) -> bool:
        """Whether an occasion is pending or approved, as far as is known without reading the store."""
        now, found = clock.now(), [one.held.request for one in self._known.values() if one.held is not None]
        return any(one is not None and one.state in _OPEN and not is_due(one, now) for one in found)

    async def on_change(self, name: str, before: Message, now: Message) -> None:
        """Record that the server has changed a tool, and withdraw requests that were asked with the old schema."""
        self._notes[name] = note = connection.difference(before, now)
        if before.get("inputSchema") == now.get("inputSchema"):
            return
        text = f"{name} was not run: the server has changed the tool ({note}). Read its new schema first."
        async with self._asking:  # or the request of a call that is just being recorded would be missed
            old = [one for one in self._known.values() if one.tool.get("name") == name]
        old = [one for one in old if one.tool.get("inputSchema") != now.get("inputSchema")]
        for occasion in old:
            occasion.note = text
        await self.withdraw(old, f"the server changed the tool: {note}")

    async def withdraw(self, occasions: Iterable[_Occasion] | None, reason: str) -> None:
        """Withdraw the pending and the approved but not started requests of these occasions, or of all if None."""
        for held in [one.held for one in list(self._known.values() if occasions is None else occasions)]:
            try:
                await held.withdraw(reason) if held is not None else None
            except errors.SaysoError as error:
                _log.warning("could not withdraw %s (%s); it will not start", held and held.id, error)
