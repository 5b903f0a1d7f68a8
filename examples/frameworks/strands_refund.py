"""An agent of Strands whose refunds wait for a person; its model is scripted.

    pip install "sayso[strands]"
    python examples/frameworks/strands_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models import Model

from sayso.integrations.strands import ToolApproval


@tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(Model):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        results = [part["toolResult"] for part in messages[-1]["content"] if "toolResult" in part]
        text = "\n\n".join(part["text"] for result in results for part in result["content"])
        begin = {"toolUse": {"name": "refund", "toolUseId": "call_1"}}
        arguments = {"toolUse": {"input": json.dumps({"order_id": "A-4721", "amount": 40.0})}}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {} if results else begin}}
        yield {"contentBlockDelta": {"delta": {"text": text} if results else arguments}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if results else "tool_use"}}


async def main(model: Any, prompt: str) -> str:
    agent = Agent(model=model, tools=[refund], plugins=[ToolApproval(["refund"])], callback_handler=None)
    return str(await agent.invoke_async(prompt)).strip()


if __name__ == "__main__":
    print(asyncio.run(main(Script(), "Refund order A-4721.")))
