"""An MCP server for the reviewer's side: list and show pending requests, and propose decisions (extra `mcp`).

It is off unless `sayso.toml` has `[mcp_server] enabled = true`. A model that calls it is not a reviewer, so `approve`
and `reject` are themselves held: a person confirms the proposal elsewhere, and the decision is recorded as that
person's. Invariant: nothing is decided unless a person decided it through another channel.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sayso import aio, clock, config, errors, policy
from sayso.gates import exceptions
from sayso.integrations.tool_calls import framework
from sayso.model import canonical
from sayso.model.ids import new_token
from sayso.model.request import Call, Request, not_run
from sayso.model.reviewer import Reviewer
from sayso.stores.base import Store

_PREFIX = "sayso/"
_SCHEMAS = {
    verb: {
        "type": "object",
        "properties": {"request": {"type": "string"}, **details, "call": {"type": "string"}},
        "required": ["request", "call"],
        "additionalProperties": False,
    }
    for verb, details in (
        ("approve", {"changes": {"type": "object"}, "comment": {"type": "string"}}),
        ("reject", {"reason": {"type": "string"}}),
    )
}


class ReviewTools:
    """The tools of one session.

    Args:
        store: The store with the requests.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = aio.Review(store, channel="mcp")
        self._run = f"mcp-server:{new_token()[:12]}"

    async def list_requests(self) -> str:
        """List what waits for a person: id, tool and arguments, with secrets masked."""
        page = await self._reader.list()
        return "\n".join(_line(request) for request in page.requests) or "nothing waits"

    async def show_request(self, request: str) -> str:
        """Show one request in full, with secrets masked."""
        found = await self._reader.get(request)
        facts = {
            "id": found.id, "state": found.state.value, "tool": _name(found), "run": found.run_id,
            "asked": clock.written(found.created_at), "expires": clock.written(found.expires_at),
            "arguments": found.effective.arguments if isinstance(found.subject, Call) else None,
        }  # fmt: skip
        return json.dumps(facts, indent=1, default=str)

    async def approve(self, request: str, changes: dict[str, Any] | None = None, comment: str = "") -> str:
        """Propose to approve a request, as it is or with changes; a person confirms it, then call again."""
        wanted = {"changes": changes} if changes else {}
        return await self._propose("approve", request, wanted | ({"comment": comment} if comment else {}))

    async def reject(self, request: str, reason: str = "") -> str:
        """Propose to reject a request; a person confirms it, then call again with the same arguments."""
        return await self._propose("reject", request, {"reason": reason} if reason else {})

    async def _propose(self, verb: str, request_id: str, details: dict[str, Any]) -> str:
        try:
            return await self._decide_once_confirmed(verb, request_id, details)
        except exceptions.ConfirmationRejected as no:
            return no.message_for_model
        except exceptions.ConfirmationRequired as pause:
            return f"Not decided yet: a person must confirm {pause.id}; call again with the same arguments."
        except errors.SaysoError as error:
            return not_run(f"{_PREFIX}{verb}", str(error))

    async def _decide_once_confirmed(self, verb: str, request_id: str, details: dict[str, Any]) -> str:
        target = await self._reader.get(request_id)
        if _name(target).startswith(_PREFIX):
            raise errors.ConfigError(f"{target.id} is a proposal by an agent, and only a person can decide it")
        # The proposal that the person confirms shows the call, and is valid only for the call's current state.
        arguments = {"request": target.id, "call": _line(target), **details}
        form = canonical.encode({"arguments": arguments, "at": target.current_fingerprint}).text
        key = f"{verb}:{hashlib.sha256(form.encode()).hexdigest()[:40]}"
        held = await aio.hold(
            f"{_PREFIX}{verb}", arguments, schema=_SCHEMAS[verb], key=key, run=self._run, store=self._store,
            # A proposal has the risk of its call. No rule, budget or grant can replace the person who confirms it.
            when=lambda: policy.hold(risk=target.risk, channels=target.channels, always=True), always=True,
            title=f"An agent proposes to {verb} this call",
        )  # fmt: skip

        async def decide(confirmed: dict[str, Any]) -> str:
            decision = None if held.request is None else held.request.decision
            person = None if decision is None or decision.under is not None else decision.by
            if person is None or confirmed["request"] != target.id:
                raise errors.ConfigError("a confirmed proposal must name the request and a person")
            review = aio.Review(self._store, by=Reviewer(person.subject, issuer=person.issuer), channel="mcp")
            seen = target.current_fingerprint
            if verb == "approve":
                changes, comment = confirmed.get("changes"), confirmed.get("comment")
                decided = await review.approve(target.id, changes=changes, comment=comment, seen=seen)
            else:
                decided = await review.reject(target.id, confirmed.get("reason"), seen=seen)
            return f"{decided.id} is {decided.state.value}, as {person} confirmed"

        return await held.once(decide)


def _name(request: Request) -> str:
    return request.subject.name if isinstance(request.subject, Call) else "question"


def _line(request: Request) -> str:
    arguments = request.effective.arguments if isinstance(request.subject, Call) else {}
    return f"{request.id} {request.state.value} {json.dumps(_name(request))[1:-1]} {json.dumps(arguments, default=str)}"


def serve(store: Store) -> None:
    """Serve one client on stdin and stdout until it closes its end.

    Raises:
        ConfigError: The server is not turned on, or the extra is not installed.
    """
    if config.table("mcp_server").get("enabled") is not True:
        raise errors.ConfigError(
            "the MCP server for reviewers is off; to turn it on, write `enabled = true` under [mcp_server]"
            " in sayso.toml"
        )
    kind: Any = framework("mcp.server.mcpserver", "mcp", "the MCP SDK").MCPServer
    tools, server = ReviewTools(store), kind("sayso")
    for tool, is_read_only in ((tools.list_requests, True), (tools.show_request, True), (tools.approve, False)):
        server.tool(annotations={"readOnlyHint": is_read_only})(tool)
    server.tool(annotations={"readOnlyHint": False})(tools.reject)
    server.run()
