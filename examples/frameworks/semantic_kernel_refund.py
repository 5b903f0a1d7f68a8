"""An agent of Semantic Kernel whose refunds wait for a person; its model is scripted.

    pip install "sayso[semantic-kernel]"
    python examples/frameworks/semantic_kernel_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

import asyncio
import json
from typing import Any, ClassVar

from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.contents import ChatMessageContent, FunctionCallContent, FunctionResultContent, TextContent
from semantic_kernel.functions import kernel_function

from sayso.integrations.semantic_kernel import hold_functions


@kernel_function
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


class Script(ChatCompletionClientBase):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    SUPPORTS_FUNCTION_CALLING: ClassVar[bool] = True

    async def _inner_get_chat_message_contents(self, chat_history: Any, *_: Any) -> list[ChatMessageContent]:
        results = [one for one in chat_history.messages[-1].items if isinstance(one, FunctionResultContent)]
        arguments = json.dumps({"order_id": "A-4721", "amount": 40.0})
        call = FunctionCallContent(id="call_1", name="shop-refund", arguments=arguments)
        answer = TextContent(text=str(results[0].result)) if results else call
        return [ChatMessageContent(role="assistant", items=[answer])]


async def main(model: Any, prompt: str) -> str:
    kernel = Kernel()
    kernel.add_function("shop", refund)
    hold_functions(kernel, ["shop-refund"])
    agent = ChatCompletionAgent(service=model, kernel=kernel, name="shop")
    return str(await agent.get_response(prompt))


if __name__ == "__main__":
    print(asyncio.run(main(Script(ai_model_id="script"), "Refund order A-4721.")))
