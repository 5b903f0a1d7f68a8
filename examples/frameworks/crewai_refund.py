"""An agent of CrewAI whose refunds wait for a person: `pip install "sayso[crewai]"`.

Give `main` a model of yours; the tests give it a script.
"""

import asyncio
from typing import Any

from crewai import Agent
from crewai.tools import tool

from sayso.integrations.crewai import held_tools


@tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    agent = Agent(role="clerk", goal="Help", backstory="Works at a shop.", llm=model, tools=[refund])
    with held_tools(["refund"]):
        return str(await asyncio.to_thread(agent.kickoff, prompt))
