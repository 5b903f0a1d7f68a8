"""An agent of Microsoft agent-framework whose refunds wait for a person: `pip install "sayso[agent-framework]"`.

Give `main` a model of yours; the tests give it a script.
"""

from typing import Any

from agent_framework import Agent, tool

from sayso.integrations.agent_framework import ApprovalMiddleware


@tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    agent = Agent(client=model, tools=[refund], middleware=[ApprovalMiddleware(["refund"])])
    return (await agent.run(prompt)).text
