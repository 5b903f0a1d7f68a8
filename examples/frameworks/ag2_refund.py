"""An agent of AG2 whose refunds wait for a person: `pip install "sayso[ag2]"`.

Give `main` a model of yours; the tests give it a script.
"""

from typing import Any

from ag2 import Agent, tool

from sayso.integrations.ag2 import hold_tools


@tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    agent = Agent("shop", config=model, tools=[refund])
    hold_tools(agent, ["refund"])
    return (await agent.ask(prompt)).body
