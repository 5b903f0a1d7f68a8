"""An agent of Agno whose refunds wait for a person; its model is scripted.

    pip install "sayso[agno]"
    python examples/frameworks/agno_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
import json
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse

from sayso.integrations.agno import approval_hooks


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(Model):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    def invoke(self, *_: Any, messages: list[Any], **__: Any) -> ModelResponse:
        if messages[-1].role == "tool":
            return ModelResponse(role="assistant", content=str(messages[-1].content))
        refund = {"name": "refund", "arguments": json.dumps({"order_id": "A-4721", "amount": 40.0})}
        call = {"id": "call_1", "type": "function", "function": refund}
        return ModelResponse(role="assistant", tool_calls=[call])

    async def ainvoke(self, *_: Any, messages: list[Any], **__: Any) -> ModelResponse:
        return self.invoke(messages=messages)

    def invoke_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    ainvoke_stream = _parse_provider_response = _parse_provider_response_delta = invoke_stream


async def main(model: Any, prompt: str) -> str:
    agent = Agent(model=model, tools=[refund], tool_hooks=approval_hooks(["refund"]), telemetry=False)
    return (await agent.arun(prompt)).content


if __name__ == "__main__":
    print(asyncio.run(main(Script(id="script"), "Refund order A-4721.")))
