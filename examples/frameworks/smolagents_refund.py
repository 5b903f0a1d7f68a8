"""An agent of smolagents whose refunds wait for a person; its model is scripted.

    pip install "sayso[smolagents]"
    python examples/frameworks/smolagents_refund.py

It says which request waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID`.
"""

from typing import Any

from smolagents import LogLevel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole, Model

from sayso.integrations.functions import held_tool


def refund(order_id: str, amount: float) -> str:
    """Refund an order.

    Args:
        order_id: The order.
        amount: How much.
    """
    return f"refunded {amount:.2f} for {order_id}"


class Script(Model):
    """Plays the model: asks for the refund at first, then repeats what the tool said."""

    def generate(self, messages: list[ChatMessage], **_: Any) -> ChatMessage:
        name, arguments = "refund", {"order_id": "A-4721", "amount": 40.0}
        if messages[-1].role == MessageRole.TOOL_RESPONSE:
            name, arguments = "final_answer", {"answer": messages[-1].content[0]["text"].removeprefix("Observation:\n")}
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        calls = [ChatMessageToolCall(id=f"call_{len(messages)}", type="function", function=function)]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


def main(model: Any, prompt: str) -> str:
    agent = ToolCallingAgent(tools=[tool(held_tool(refund, sync=True))], model=model, verbosity_level=LogLevel.ERROR)
    return str(agent.run(prompt))


if __name__ == "__main__":
    print(main(Script(), "Refund order A-4721."))
