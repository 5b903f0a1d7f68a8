"""An agent of Microsoft agent-framework whose refunds wait for a person; its model is scripted.

    pip install "sayso[agent-framework]"
    python examples/frameworks/agent_framework_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message, tool

from sayso.integrations.agent_framework import ApprovalMiddleware


@tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(FunctionInvocationLayer, BaseChatClient):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    async def _inner_get_response(self, *, messages: Sequence[Message], **_: Any) -> ChatResponse:
        results = [part for part in messages[-1].contents if part.type == "function_result"]
        call = Content.from_function_call("call_1", "refund", arguments={"order_id": "A-4721", "amount": 40.0})
        answer = Content.from_text(str(results[0].result)) if results else call
        return ChatResponse(messages=[Message("assistant", [answer])])


async def main(model: Any, prompt: str) -> str:
    agent = Agent(client=model, tools=[refund], middleware=[ApprovalMiddleware(["refund"])])
    return (await agent.run(prompt)).text


if __name__ == "__main__":
    print(asyncio.run(main(Script(), "Refund order A-4721.")))
