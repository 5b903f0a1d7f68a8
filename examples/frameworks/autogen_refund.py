"""An agent of AutoGen whose refunds wait for a person: `pip install "sayso[autogen]"`.

Give `main` a model of yours; the tests give it a script.
"""

from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool, StaticWorkbench

from sayso.integrations.autogen import ApprovalWorkbench


def refund(order_id: str, amount: float) -> str:
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    tools = StaticWorkbench([FunctionTool(refund, description="Refund an order.")])
    agent = AssistantAgent("shop", model_client=model, workbench=ApprovalWorkbench(tools, ["refund"]))
    return (await agent.run(task=prompt)).messages[-1].content
