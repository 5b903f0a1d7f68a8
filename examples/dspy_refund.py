"""An agent of DSPy whose refund waits for a person; it stops meanwhile, and any process goes on. Its model is scripted.

pip install "sayso[dspy]"
python examples/dspy_refund.py     # says which request waits, and stops
sayso approve ID --set amount=30
python examples/dspy_refund.py     # goes on; once more, and nothing is refunded again
"""

import json
from pathlib import Path

import dspy
from dspy.utils.dummies import DummyLM

from sayso.integrations.dspy import Resumable, Suspended, gate

STATE = Path("refund-A-4721.json")
SCRIPT = [
    {
        "next_thought": "The customer was charged twice.",
        "next_tool_name": "refund",
        "next_tool_args": {"order_id": "A-4721", "amount": 40},
    },
    {"next_thought": "That is all.", "next_tool_name": "finish", "next_tool_args": {}},
    {"reasoning": "It was refunded.", "answer": "I looked into it."},
]


def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    print(f"sent {amount:.2f} to the customer of {order_id}")
    return f"refunded {amount:.2f} for {order_id}"


def main() -> None:
    """Start the agent, or resume it where it stopped."""
    saved = json.loads(STATE.read_text(encoding="utf-8")) if STATE.exists() else None
    model = DummyLM(SCRIPT if saved is None else SCRIPT[len(saved["predictions"]) :])
    agent = Resumable(dspy.ReAct("request -> answer", tools=[gate(refund)]))
    with dspy.context(lm=model):
        try:
            done = agent("refund-A-4721", request="I was charged twice.") if saved is None else agent.resume(saved)
        except Suspended as waits:
            STATE.write_text(json.dumps(waits.state), encoding="utf-8")
            print(waits)
        else:
            print("the tool returned:", done.trajectory["observation_0"])
            print("the agent answered:", done.answer)


if __name__ == "__main__":
    main()
