"""An agent of CrewAI whose refunds wait for a person; its model is scripted.

    pip install "sayso[crewai]"
    python examples/frameworks/crewai_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import json
from typing import Any

from crewai import Agent, BaseLLM
from crewai.tools import tool

from sayso.integrations.crewai import held_tools


@tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(BaseLLM):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        results = [message["content"] for message in messages if message.get("role") == "tool"]
        if results:
            return str(results[0])
        refund = {"name": "refund", "arguments": json.dumps({"order_id": "A-4721", "amount": 40.0})}
        return [{"id": "call_1", "type": "function", "function": refund}]


def main(model: Any, prompt: str) -> str:
    agent = Agent(role="clerk", goal="Help", backstory="Works at a shop.", llm=model, tools=[refund])
    with held_tools(["refund"]):
        answer = agent.kickoff(prompt)
    return str(answer)


if __name__ == "__main__":
    print(main(Script(model="script"), "Refund order A-4721."))
