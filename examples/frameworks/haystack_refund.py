"""An agent of Haystack whose refunds wait for a person; its model is scripted.

    pip install "sayso[haystack]"
    python examples/frameworks/haystack_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
from typing import Any

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import create_tool_from_function

from sayso.integrations.haystack import ToolApproval


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


@component
class Script:
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, list[ChatMessage]]:  # noqa: ARG002  given
        if result := messages[-1].tool_call_result:
            return {"replies": [ChatMessage.from_assistant(str(result.result))]}
        call = ToolCall(id="call_1", tool_name="refund", arguments={"order_id": "A-4721", "amount": 40.0})
        return {"replies": [ChatMessage.from_assistant(tool_calls=[call])]}


async def main(model: Any, prompt: str) -> str:
    gate, tools = ToolApproval(["refund"]), [create_tool_from_function(refund)]
    agent = Agent(chat_generator=model, tools=gate.hold(tools), hooks={"before_tool": [gate]})
    return (await agent.run_async(messages=[ChatMessage.from_user(prompt)]))["last_message"].text


if __name__ == "__main__":
    print(asyncio.run(main(Script(), "Refund order A-4721.")))
