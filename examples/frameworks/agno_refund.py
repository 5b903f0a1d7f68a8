"""An agent of Agno whose refunds wait for a person: `pip install "sayso[agno]"`.

Give `main` a model of yours; the tests give it a script.
"""

from typing import Any

from agno.agent import Agent

from sayso.integrations.agno import approval_hooks


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    agent = Agent(model=model, tools=[refund], tool_hooks=approval_hooks(["refund"]))
    return (await agent.arun(prompt)).content
