"""An agent of Haystack whose refunds wait for a person: `pip install "sayso[haystack]"`.

Give `main` a model of yours; the tests give it a script.
"""

from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function

from sayso.integrations.haystack import ToolApproval


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    gate, tools = ToolApproval(["refund"]), [create_tool_from_function(refund)]
    agent = Agent(chat_generator=model, tools=gate.hold(tools), hooks={"before_tool": [gate]})
    return (await agent.run_async(messages=[ChatMessage.from_user(prompt)]))["last_message"].text
