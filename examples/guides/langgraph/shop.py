"""The shop of docs/guides/langgraph.md: a tool that refunds, and a script that plays the model."""

from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Script(BaseChatModel):
    """Asks for a refund, and answers once it has a result."""

    _llm_type = "script"

    def bind_tools(self, *_, **__):
        return self

    def _generate(self, messages, *_, **__):
        answer = AIMessage("Done.")
        if messages[-1].type == "human":
            call = {"name": "refund", "args": {"order_id": "A-4721", "amount": 320.0}, "id": "call_1"}
            answer = AIMessage("The customer was charged twice.", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"


model, tools = Script(), [refund]
