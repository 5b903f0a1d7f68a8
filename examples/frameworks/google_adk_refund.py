"""An agent of Google ADK whose refunds wait for a person: `pip install "sayso[google-adk]"`.

Give `main` a model of yours; the tests give it a script.
"""

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner

from sayso.integrations.google_adk import ApprovalPlugin


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    agent = LlmAgent(name="shop", model=model, tools=[refund])
    runner = InMemoryRunner(app=App(name="shop", root_agent=agent, plugins=[ApprovalPlugin(["refund"])]))
    return (await runner.run_debug(prompt, quiet=True))[-1].content.parts[0].text
