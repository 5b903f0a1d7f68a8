"""One held call of an MCP client: how it waits, how it starts, and what the client is told."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from sayso import aio, errors, signals
from sayso.gates.outcome import NotExecuted
from sayso.integrations.mcp_gateway.elicit import Elicitation
from sayso.integrations.mcp_gateway.occasions import Call, Occasion, Occasions
from sayso.integrations.mcp_gateway.proxy import PROTOCOL, Proxy, is_request_id
from sayso.integrations.mcp_gateway.stdio import Message, Send, dump, object_of
from sayso.model.request import not_run

__all__ = ["HeldCalls", "told"]

_SURELY_REFUSED = {-32600, -32601, -32602, -32700}  # the server did not take the call at all
_BEAT = 5.0


class _ToolError(Exception):
    """The server's own result says that the call failed."""

    def __init__(self, result: Message) -> None:
        text = "\n".join(str(part.get("text")) for part in result.get("content", ()) if part.get("type") == "text")
        super().__init__(text or "the tool reported an error")
        self.result = result


class _ToolChanged(Exception):
    """The server has changed the tool since it was approved; its text is for the model."""


@dataclass(frozen=True)
class HeldCalls:
    """The held calls of one session.

    Attributes:
        wait: How a call waits: `block`, `ticket`, or `auto`, by what the client can.
        patience: With `auto`, how many seconds a call blocks before its client is told to call again.
        timeout: How many seconds a started call has.
        running: Calls that have started; they end even when their client is gone.
    """

    wait: Literal["auto", "block", "ticket"]
    patience: float
    timeout: float
    proxy: Proxy
    elicitation: Elicitation
    occasions: Occasions
    send: Send
    running: set[asyncio.Task[Any]]

    async def outcome(self, call: Call, occasion: Occasion, held: aio.Held) -> tuple[Message, bool]:
        """Return the result for the client, and whether the occasion is over with it."""
        name = call.tool["name"]
        try:
            return await self._decided(call, occasion, held)
        except asyncio.CancelledError:
            if occasion.users == 1:
                await self.occasions.withdraw([occasion], "the client went away")
            raise
        except (_ToolChanged, signals.ConfirmationRejected) as no:
            text = str(no) if isinstance(no, _ToolChanged) else occasion.note or no.message_for_model
            return told(text, call.params), False
        except _ToolError as failed:
            return failed.result, True
        except errors.ValueNotKeptError as error:
            return told(f"{name} was run before: {error}. Do not repeat this call.", call.params), True
        except errors.OutcomeNotRecordedError as error:
            return told(f"{name} was started: {error}. Do not repeat this call.", call.params), False
        except (NotExecuted, errors.CallFailedError, errors.OutcomeUnknownError, OSError) as error:
            await held.refresh()
            if held.state in {"failed", "unknown"}:
                return told(held.message_for_model(), call.params), held.state == "failed"
            occasion.is_ticket = True
            text = f"Not run yet: the server cannot be reached ({error}); call again with the same arguments."
            return told(text, call.params), False
        except (errors.SaysoError, ValueError) as error:
            return told(not_run(name, str(error)), call.params), False

    async def _decided(self, call: Call, occasion: Occasion, held: aio.Held) -> tuple[Message, bool]:
        while True:
            pause = await self._wait(call, occasion, held)
            if pause is not None:
                return pause, False
            with suppress(signals.ConfirmationRequired):  # sent back to the reviewer: wait again
                result, note = await self._start(call, occasion, held), held.message_for_model()
                content = [{"type": "text", "text": note}, *result.get("content", ())]
                return ({**result, "content": content} if note else result), True

    async def _wait(self, call: Call, occasion: Occasion, held: aio.Held) -> Message | None:
        """Wait for the decision; return a result that sends the client away to call again, None for a decision."""
        token = call.meta.get("progressToken")
        beat = asyncio.create_task(self._beat(token, call.number)) if is_request_id(token) else None
        try:
            if held.state == "pending" and self.elicitation.can(call.meta):
                question = await self.elicitation.ask(call.params, call.number, held)
                if question is not None:
                    occasion.is_ticket = True
                    return question
            timeout = None if self.wait == "block" else self.patience
            if self.wait == "ticket" or (self.wait == "auto" and beat is None):
                timeout = 0.0
            await held.wait(timeout)
        except signals.ConfirmationRequired:
            occasion.is_ticket = True
            text = (
                f"Not run yet: a person must approve {held.id}; call again with the same arguments."
                " Go on with other work first: the call made again gives the result."
            )
            return told(text, call.params, {"sayso/request": held.id})
        finally:
            if beat is not None:
                beat.cancel()
        return None

    async def _beat(self, token: Any, number: str | int) -> None:
        """Tell the client that the call goes on; in tiny steps, because the server's own progress must come after."""
        for count in itertools.count(1):
            progress = {"progressToken": token, "progress": count / 1e6, "message": "waiting for a person"}
            await self.send(dump({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}), number)
            await asyncio.sleep(_BEAT)

    async def _start(self, call: Call, occasion: Occasion, held: aio.Held) -> Message:
        if held.state == "approved":
            # A server may have changed the tool without a word, or be another one by now.
            now = (await self.proxy.list()).get(call.tool["name"])
            if now is None or now.get("inputSchema") != call.tool.get("inputSchema"):
                occasion.note = occasion.note or f"{call.tool['name']} was not run: its server changed or removed it."
                await self.occasions.withdraw([occasion], "the server changed the tool")
                return await self._started_elsewhere(call, held, occasion.note)
        started = asyncio.create_task(held.once(partial(self._upstream, call)))
        self.running.add(started)
        started.add_done_callback(self._done)
        return await asyncio.shield(started)  # a call that has started is not broken off: its outcome is recorded

    async def _started_elsewhere(self, call: Call, held: aio.Held, note: str) -> Message:
        """Return what another process of the run got, where it started the call before it could be withdrawn."""
        name = call.tool["name"]
        try:
            await held.refresh()
            if held.request is None or held.request.execution is None:
                raise _ToolChanged(note)  # also where it could not be withdrawn, and stands approved
            return await held.result(self.timeout)
        except TimeoutError:
            raise _ToolChanged(f"{name} was started by another process and still runs. Do not repeat it.") from None
        except errors.StoreError as error:
            text = f"{note} Whether another process ran it first is not known ({error})."
            raise _ToolChanged(text) from None

    def _done(self, started: asyncio.Task[Any]) -> None:
        self.running.discard(started)
        if not started.cancelled():
            started.exception()  # its client may be gone, and nobody else looks at it then

    async def _upstream(self, call: Call, arguments: Message) -> Message:
        """Make the approved call; raise what `sayso.hold` is to record."""
        passed_on = {"name", "_meta"}  # nothing that nobody was asked about
        if not self.elicitation.is_answer(call.params):
            passed_on |= {"inputResponses", "requestState"}
        params = {name: value for name, value in call.params.items() if name in passed_on}
        answer = await self.proxy.request("tools/call", {**params, "arguments": arguments}, self.timeout)
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


def told(text: str, params: Message, facts: Message | None = None) -> Message:
    """Return a result that tells a model why there is none; an error, because it does not fit the output's schema."""
    result: Message = {"content": [{"type": "text", "text": text}], "isError": True}
    if any(name.startswith(PROTOCOL) for name in object_of(params.get("_meta"))):
        result["resultType"] = "complete"
    return result if facts is None else {**result, "_meta": facts}
