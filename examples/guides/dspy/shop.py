"""The tool of docs/guides/dspy.md, which pays refunds, and a script in place of a model."""

from dspy.utils.dummies import DummyLM


def script(*, is_resumed=False):
    """Return a model that asks for a refund, and answers once it has a result."""
    call = {"order_id": "A-4721", "amount": 320.0}
    asks = {"next_thought": "It was charged twice.", "next_tool_name": "refund", "next_tool_args": call}
    ends = {"next_thought": "That is all.", "next_tool_name": "finish", "next_tool_args": {}}
    answer = {"reasoning": "It was refunded.", "answer": "Done."}
    return DummyLM([ends, answer] if is_resumed else [asks, ends, answer])


def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"
