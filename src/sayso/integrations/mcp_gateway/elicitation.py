"""Asks an MCP client's user about a held call, if the client supports elicitation."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, cast

from sayso import aio, errors
from sayso.integrations.mcp_gateway.connection import PROTOCOL, Message, Send, dump, is_request_id, object_of, truncate
from sayso.model.ids import new_token
from sayso.model.request import Call, Request
from sayso.stores.base import Store

_ASKED = "sayso"
_ROOM = 4_000  # characters in a dialog; a longer call is decided elsewhere, where it can be read in full
_FORM = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "reject"], "title": "Decision"},
        "reason": {"type": "string", "title": "Reason, for the agent"},
    },
    "required": ["decision"],
}


class Elicitation:
    """The elicitation capability of one client, and its open questions.

    Up to protocol 2025-11-25 the server asks the client (`elicitation/create`). Since 2026-07-28 the server answers the
    call with a question, and the client repeats the call with the answer. An answer counts as a decision of `reviewer`.

    Args:
        reviewer: The reviewer to whom answers are attributed; None to not ask the client.
        store: The store with the requests.
        send: Sends a message to the client, related to the call with this number.
    """

    def __init__(self, reviewer: str | None, store: Store, send: Send) -> None:
        self._reviewer, self._store, self._send = reviewer, store, send
        self._capabilities: Message = {}
        self._client: Message = {}
        self._open: dict[str, asyncio.Future[Message]] = {}

    def record_client(self, initialize: Message) -> None:
        """Record the client's statement about itself from its handshake."""
        params = object_of(initialize.get("params"))
        self._capabilities, self._client = object_of(params.get("capabilities")), object_of(params.get("clientInfo"))

    def client(self, meta: Message) -> str | None:
        """Return the client's name and version, as stated by itself."""
        client = object_of(meta.get(f"{PROTOCOL}clientInfo")) or self._client
        words = [str(client[name]) for name in ("name", "version") if name in client]
        return truncate(" ".join(words)) or None

    def can_ask(self, meta: Message) -> bool:
        """Return whether the client's user can be asked about a call."""
        able = object_of(meta.get(f"{PROTOCOL}clientCapabilities")) or self._capabilities
        return self._reviewer is not None and able.get("elicitation") is not None

    def is_answer(self, params: Message) -> bool:
        """Return whether a call is a repetition with an answer to a question."""
        return _ASKED in object_of(params.get("inputResponses"))

    def handle_response(self, message: Message) -> bool:
        """Handle a client's response; return whether it answers one of the questions."""
        number = message.get("id")
        future = self._open.get(cast("str", number)) if is_request_id(number) else None
        if future is None:
            return False
        if not future.done():
            future.set_result(message)
        return True

    async def ask(self, params: Message, number: str | int, held: aio.Held) -> Message | None:
        """Ask about a held call, and record the decision.

        Returns:
            A response to the call, after which the client repeats it; None if it was asked in a dialog, or cannot be.
        """
        request = held.request
        if request is None or not isinstance(request.subject, Call):
            return None
        shown = json.dumps(request.effective.shown, indent=1, default=str)  # ASCII, so that no character can mislead
        text = f"May this call run? ({request.id})\n{json.dumps(request.subject.name)[1:-1]}\n{shown}"
        if len(text) > _ROOM:
            return None
        form: Message = {"mode": "form", "message": text, "requestedSchema": _FORM}
        state = f"{request.id}:{request.current_fingerprint}"  # another person may change it before the answer
        if not any(name.startswith(PROTOCOL) for name in object_of(params.get("_meta"))):
            await self._dialog(form, number, held, request)
        elif self.is_answer(params) and params.get("requestState") == state:
            await self._decide(request, request.current_fingerprint, params["inputResponses"][_ASKED])
        else:
            asked = {_ASKED: {"method": "elicitation/create", "params": form}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        await held.refresh()
        return None

    async def _dialog(self, form: Message, number: str | int, held: aio.Held, asked: Request) -> None:
        """Ask, and wait until the client answers or somebody else decides."""
        own = f"sayso-{new_token()}"
        answer = self._open[own] = asyncio.get_running_loop().create_future()
        message: Message = {"jsonrpc": "2.0", "id": own, "method": "elicitation/create", "params": form}
        decided = asyncio.ensure_future(held.wait())
        try:
            await self._send(dump(message), number)
            await asyncio.wait({answer, decided}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                await self._decide(asked, asked.current_fingerprint, answer.result().get("result"))
            else:
                gone = {"requestId": own, "reason": "another person decided"}
                await self._send(dump({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone}), number)
        finally:
            self._open.pop(own, None)
            decided.cancel()
            with suppress(asyncio.CancelledError, Exception):  # `held` reports the decision
                await decided

    async def _decide(self, request: Request, seen: str, answer: Any) -> None:
        """Record the user's decision on the call as shown; an answer other than yes or no decides nothing."""
        reply = object_of(answer)
        fields = object_of(reply.get("content"))
        reason = fields.get("reason") if isinstance(fields.get("reason"), str) and fields.get("reason") else None
        review = aio.Review(self._store, by=self._reviewer, channel="mcp")
        with suppress(errors.DecisionRefusedError):  # somebody else was first, or this reviewer may not decide
            if reply.get("action") == "accept" and fields.get("decision") == "approve":
                await review.approve(request.id, comment=reason, seen=seen)
            elif reply.get("action") == "decline" or fields.get("decision") == "reject":
                await review.reject(request.id, reason, seen=seen)
