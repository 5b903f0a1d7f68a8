"""An agent of AG2 whose refunds wait for a person; its model is scripted.

    pip install "sayso[ag2]"
    python examples/frameworks/ag2_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
import json
from typing import Any

from ag2 import Agent, tool
from ag2.config import LLMClient, ModelConfig
from ag2.events import ModelMessage, ModelResponse, ToolCallEvent, ToolCallsEvent, ToolResultsEvent

from sayso.integrations.ag2 import hold_tools


@tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(LLMClient):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    async def __call__(self, messages: Any, *_: Any, **__: Any) -> ModelResponse:
        results = [one for event in messages if isinstance(event, ToolResultsEvent) for one in event.results]
        if results:
            return ModelResponse(ModelMessage("\n\n".join(str(part.content) for part in results[0].result.parts)))
        arguments = json.dumps({"order_id": "A-4721", "amount": 40.0})
        call = ToolCallEvent("refund", id="call_1", arguments=arguments)
        return ModelResponse(ModelMessage(""), tool_calls=ToolCallsEvent([call]))


class Scripted(ModelConfig):
    """The configuration that makes the script."""

    provider = None

    def copy(self, **_: Any) -> ModelConfig:
        return self

    def create(self) -> LLMClient:
        return Script()

    def create_files_client(self) -> Any:
        raise NotImplementedError


async def main(model: Any, prompt: str) -> str:
    agent = Agent("shop", config=model, tools=[refund])
    hold_tools(agent, ["refund"])
    return (await agent.ask(prompt)).body


if __name__ == "__main__":
    print(asyncio.run(main(Scripted(), "Refund order A-4721.")))
