"""An agent of Google ADK whose refunds wait for a person; its model is scripted.

    pip install "sayso[google-adk]"
    python examples/frameworks/google_adk_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from sayso.integrations.google_adk import ApprovalPlugin


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(BaseLlm):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    async def generate_content_async(self, llm_request: Any, *_: Any, **__: Any) -> AsyncIterator[LlmResponse]:
        last = llm_request.contents[-1].parts[-1]
        call = types.FunctionCall(name="refund", args={"order_id": "A-4721", "amount": 40.0})
        part = types.Part(function_call=call)
        if last.function_response is not None:
            part = types.Part(text=str(next(iter(last.function_response.response.values()))))  # `result` or `error`
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main(model: Any, prompt: str) -> str:
    agent = LlmAgent(name="shop", model=model, tools=[refund])
    runner = InMemoryRunner(app=App(name="shop", root_agent=agent, plugins=[ApprovalPlugin(["refund"])]))
    return (await runner.run_debug(prompt, quiet=True))[-1].content.parts[0].text


if __name__ == "__main__":
    print(asyncio.run(main(Script(model="script"), "Refund order A-4721.")))
