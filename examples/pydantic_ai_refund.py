"""An agent of Pydantic AI whose refunds wait for a person; it pauses and goes on as a new process would.

    pip install "sayso[pydantic-ai]"
    python examples/pydantic_ai_refund.py

No model is reached: a function plays it. It asks for a refund and looks the order up in one turn. The free call runs at
once, the refund waits. A person approves half of it, and whoever resumes the saved run again gets the same result.
"""

from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import sayso
from sayso.integrations.pydantic_ai import Gate, resume

sayso.configure(store="memory:")
REQUESTS = TypeAdapter(DeferredToolRequests)


def script(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Play the model: ask for both tools at first, then answer."""
    if len(messages) > 1:
        return ModelResponse([TextPart("Half of it is refunded.")])
    refund_it = ToolCallPart("refund", {"order_id": "A-4721", "amount": 320.0}, "call_2")
    return ModelResponse([ToolCallPart("lookup", {"order_id": "A-4721"}, "call_1"), refund_it])


agent = Agent(
    FunctionModel(script),
    output_type=[str, DeferredToolRequests],
    capabilities=[Gate(tools=["refund"], wait="pause")],
)


@agent.tool_plain
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    print(f"paid {amount:.2f}")
    return f"refunded {amount:.2f} for {order_id}"


@agent.tool_plain
def lookup(order_id: str) -> str:
    """Look an order up."""
    return f"{order_id} was paid twice"


def main() -> None:
    """Run until the agent pauses, decide, and go on from what was saved, twice."""
    paused = agent.run_sync("Refund order A-4721.", conversation_id="thread-21")
    messages, requests = paused.all_messages_json(), REQUESTS.dump_json(paused.output)
    for request in sayso.Review().list(state="pending"):
        print(f"waits: {request.call.name} {dict(request.call.arguments)}")
        sayso.Review().approve(request.id, by="ada", changes={"amount": 160.0}, comment="half, as goodwill")

    for _ in range(2):
        result = agent.run_sync(
            message_history=ModelMessagesTypeAdapter.validate_json(messages),
            deferred_tool_results=resume(REQUESTS.validate_json(requests)),
        )
        parts = [part for message in result.all_messages() for part in message.parts]
        told = next(part for part in parts if isinstance(part, ToolReturnPart) and part.tool_name == "refund")
        print(f"the model is told: {told.content}")
        print(result.output)


if __name__ == "__main__":
    main()
