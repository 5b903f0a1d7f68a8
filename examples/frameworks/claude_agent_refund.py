"""A session of the Claude Agent SDK whose refunds wait for a person; a script plays Claude Code.

    pip install "sayso[claude]"
    python examples/frameworks/claude_agent_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
The script calls the hooks and `can_use_tool` in the order in which Claude Code does, and runs the tool. For a real
session leave out `transport=`, and name the server of your tool in `ClaudeAgentOptions(mcp_servers=…)`.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, Transport

from sayso.integrations.claude_agent import ClaudeApprovals

SESSION = str(uuid.uuid4())  # noqa: TID251  the id is the session's, not one of sayso
CALL = {"tool_name": "mcp__shop__refund", "tool_use_id": "toolu_1"}


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(Transport):
    """Plays Claude Code and its model, which asks for a refund."""

    def __init__(self) -> None:
        self._written = asyncio.Queue[dict[str, Any]]()

    async def write(self, data: str) -> None:
        self._written.put_nowait(json.loads(data))

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        first = await self._written.get()
        hooks = first["request"]["hooks"]
        yield answer_to(first, {"hook_on_failure_supported": True, "hooks_applied": True})
        await self._written.get()  # the prompt

        arguments: Any = {"order_id": "A-4721", "amount": 40.0}
        yield hook("PreToolUse", hooks, tool_input=arguments)
        before = (await self._answer())["hookSpecificOutput"]["permissionDecision"]
        yield asked({"subtype": "can_use_tool", "input": arguments, **CALL})
        permission = await self._answer()
        text = f"not run: {permission.get('message')}"
        if (before, permission["behavior"]) == ("ask", "allow"):
            arguments = permission["updatedInput"]
            text = refund(**arguments)
            yield hook("PostToolUse", hooks, tool_input=arguments, tool_response=text)
            await self._answer()
        yield {
            "type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": SESSION,
            "num_turns": 1, "duration_ms": 1, "duration_api_ms": 1,
        }  # fmt: skip

    async def _answer(self) -> dict[str, Any]:
        return dict((await self._written.get())["response"]["response"])

    async def connect(self) -> None: ...
    async def end_input(self) -> None: ...
    async def close(self) -> None: ...

    def is_ready(self) -> bool:
        return True


def asked(request: dict[str, Any]) -> dict[str, Any]:
    return {"type": "control_request", "request_id": f"ask-{request['subtype']}", "request": request}


def answer_to(request: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    given = {"subtype": "success", "request_id": request["request_id"], "response": response}
    return {"type": "control_response", "response": given}


def hook(event: str, hooks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the message with which Claude Code calls the hook of an event."""
    data = {"session_id": SESSION, "cwd": "/shop", "transcript_path": "", "hook_event_name": event, **CALL, **fields}
    called = {"callback_id": hooks[event][0]["hookCallbackIds"][0], "tool_use_id": CALL["tool_use_id"]}
    return asked({"subtype": "hook_callback", "input": data, **called})


async def main(model: Any, prompt: str) -> str:
    async with ClaudeApprovals() as approvals:
        options = approvals.options(ClaudeAgentOptions())
        async with ClaudeSDKClient(options, transport=model) as client:
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    return message.result or ""
    return ""


if __name__ == "__main__":
    print(asyncio.run(main(Script(), "Refund order A-4721.")))
