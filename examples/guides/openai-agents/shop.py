"""The tool of docs/guides/openai-agents.md, which pays refunds, and a script in place of a model."""

from agents import function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

set_tracing_disabled(True)


def script(call):
    """Ask for a refund, and answer once there is a result."""
    if any(item.get("type") == "function_call_output" for item in call.input if isinstance(item, dict)):
        return ModelStep(output=[assistant_message("Done.")])
    return ModelStep(output=[function_call("refund", {"order_id": "A-4721", "amount": 320.0}, call_id="call_1")])


@function_tool
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"


model = ScriptedModel([ModelStep.respond(script)] * 9)
