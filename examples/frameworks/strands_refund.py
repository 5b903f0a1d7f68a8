"""An agent of Strands Agents whose refunds wait for a person: `pip install "sayso[strands]"`.

Give `main` a model of yours; the tests give it a script.
"""

from typing import Any

from strands import Agent, tool

from sayso.integrations.strands import ToolApproval


@tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    agent = Agent(model=model, tools=[refund], plugins=[ToolApproval(["refund"])])
    return str(await agent.invoke_async(prompt))
