"""The tool of docs/guides/langgraph.md, which pays refunds, and a script in place of a model."""

from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Script(BaseChatModel):
    """Asks for a refund, and answers once it has a result."""

    @property
    def _llm_type(self):
        return "script"

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
