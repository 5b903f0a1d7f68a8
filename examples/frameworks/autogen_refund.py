"""An agent of AutoGen whose refunds wait for a person; its model is scripted.

    pip install "sayso[autogen]"
    python examples/frameworks/autogen_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, FunctionExecutionResultMessage, RequestUsage
from autogen_core.tools import FunctionTool, StaticWorkbench

from sayso.integrations.autogen import ApprovalWorkbench

NO_USAGE = RequestUsage(prompt_tokens=0, completion_tokens=0)


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(ChatCompletionClient):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    model_info: ClassVar = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown",
                            "structured_output": False, "multiple_system_messages": True}  # fmt: skip
    capabilities = model_info

    async def create(self, messages: Sequence[Any], **_: Any) -> CreateResult:
        last, arguments = messages[-1], json.dumps({"order_id": "A-4721", "amount": 40.0})
        if isinstance(last, FunctionExecutionResultMessage):
            return CreateResult(finish_reason="stop", content=last.content[0].content, usage=NO_USAGE, cached=False)
        call = FunctionCall(id="call_1", name="refund", arguments=arguments)
        return CreateResult(finish_reason="function_calls", content=[call], usage=NO_USAGE, cached=False)

    async def create_stream(self, messages: Sequence[Any], **_: Any) -> AsyncIterator[CreateResult]:
        yield await self.create(messages)

    async def close(self) -> None: ...

    def actual_usage(self) -> RequestUsage:
        return NO_USAGE

    total_usage = actual_usage

    def count_tokens(self, *_: Any, **__: Any) -> int:
        return 0

    remaining_tokens = count_tokens


async def main(model: Any, prompt: str) -> str:
    tools = StaticWorkbench([FunctionTool(refund, description="Refund an order.")])
    agent = AssistantAgent("shop", model_client=model, workbench=ApprovalWorkbench(tools, ["refund"]))
    return (await agent.run(task=prompt)).messages[-1].content


if __name__ == "__main__":
    print(asyncio.run(main(Script(), "Refund order A-4721.")))
