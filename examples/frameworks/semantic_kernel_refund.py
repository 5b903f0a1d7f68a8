"""An agent of Semantic Kernel whose refunds wait for a person: `pip install "sayso[semantic-kernel]"`.

Give `main` a model of yours; the tests give it a script.
"""

from typing import Any

from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.functions import kernel_function

from sayso.integrations.semantic_kernel import hold_functions


@kernel_function
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main(model: Any, prompt: str) -> str:
    kernel = Kernel()
    kernel.add_function("shop", refund)
    hold_functions(kernel, ["shop-refund"])
    agent = ChatCompletionAgent(service=model, kernel=kernel, name="shop")
    return str(await agent.get_response(prompt))
