"""An agent whose run ends while a refund waits, and goes on in the next process; its model is a test model."""

from pathlib import Path

from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests, ModelMessagesTypeAdapter
from pydantic_ai.models.test import TestModel

from sayso.integrations.pydantic_ai import Gate, resume

REQUESTS = TypeAdapter(DeferredToolRequests)
MESSAGES, PAUSED = Path("messages.json"), Path("paused.json")
gate = Gate(tools=["refund"], wait="pause")
agent = Agent(TestModel(), output_type=[str, DeferredToolRequests], capabilities=[gate])


@agent.tool_plain
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"


if not PAUSED.exists():
    run = agent.run_sync("Refund order A-4721.", conversation_id="thread-21")
else:
    answers = resume(REQUESTS.validate_json(PAUSED.read_bytes()))
    messages = ModelMessagesTypeAdapter.validate_json(MESSAGES.read_bytes())
    run = agent.run_sync(message_history=messages, deferred_tool_results=answers)
if isinstance(run.output, DeferredToolRequests):
    MESSAGES.write_bytes(run.all_messages_json())
    PAUSED.write_bytes(REQUESTS.dump_json(run.output))
    print("paused")
else:
    print(run.output)
