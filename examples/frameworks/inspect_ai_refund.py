"""An evaluation with Inspect whose refunds wait for a person; its model is scripted.

    pip install "sayso[inspect-ai]"
    python examples/frameworks/inspect_ai_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
Inspect writes its log into `logs/`.
"""

import asyncio
from typing import Any

from inspect_ai import Task, eval_async
from inspect_ai.approval import ApprovalPolicy, auto_approver
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

from sayso.integrations.inspect_ai import approval


@tool
def refund() -> Any:
    async def execute(order_id: str, amount: float) -> str:
        """Refund an order.

        Args:
            order_id: The order.
            amount: How much.
        """
        return f"refunded {amount:.2f} for {order_id}"

    return execute


def script(messages: list[Any], *_: Any) -> ModelOutput:
    """Play the model: ask for the refund at first, then repeat what the tool said."""
    call = {"order_id": "A-4721", "amount": 40.0}
    output = ModelOutput.for_tool_call("script", "refund", call, tool_call_id="call_1")
    if messages[-1].role == "tool":
        error = messages[-1].error
        output = ModelOutput.from_content("script", error.message if error else messages[-1].text)
    output.usage = ModelUsage()  # or Inspect would count tokens, with a table that it downloads
    return output


async def main(model: Any, prompt: str) -> str:
    policy = [ApprovalPolicy(approval(), ["refund"]), ApprovalPolicy(auto_approver(), "*")]
    task = Task(dataset=[Sample(input=prompt)], solver=[use_tools(refund()), generate()], approval=policy)
    (log,) = await eval_async(task, model=model)
    return log.samples[0].output.completion


if __name__ == "__main__":
    print(asyncio.run(main(get_model("mockllm/script", custom_outputs=script), "Refund order A-4721.")))
