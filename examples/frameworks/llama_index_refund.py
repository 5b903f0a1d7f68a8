"""An agent of LlamaIndex whose refunds wait for a person; its model is scripted.

    pip install "sayso[llama-index]"
    python examples/frameworks/llama_index_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool

from sayso.integrations.functions import held_tool


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


def script(messages: list[ChatMessage], **_: Any) -> ChatMessage:
    """Play the model: ask for the refund at first, then repeat what the tool said."""
    call = ToolCallBlock(tool_call_id="call_1", tool_name="refund", tool_kwargs={"order_id": "A-4721", "amount": 40.0})
    answer = TextBlock(text=messages[-1].content or "") if messages[-1].role == "tool" else call
    return ChatMessage(role="assistant", blocks=[answer])


async def main(model: Any, prompt: str) -> str:
    agent = FunctionAgent(llm=model, tools=[FunctionTool.from_defaults(async_fn=held_tool(refund))], streaming=False)
    return str(await agent.run(prompt))


if __name__ == "__main__":
    print(asyncio.run(main(MockFunctionCallingLLM(response_generator=script), "Refund order A-4721.")))
