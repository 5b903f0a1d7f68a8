"""An agent that asks in a loop: yes, no, other arguments, or words that the model takes into account.

    python examples/react_cli.py
    python examples/react_cli.py openai/gpt-5      with a real model, if its key is set (pip install "sayso[agent]")

Without a model's name it plays a script and needs no network.
"""

import sys
from typing import Any

import sayso

STOCK = {"A-4721": 320.0}


def order(order_id: str) -> dict[str, Any]:
    """Look an order up."""
    return {"order": order_id, "paid": STOCK[order_id]}


@sayso.tool(require_confirmation=True)
def refund(order_id: str, amount: float) -> str:
    """Pay a customer back."""
    return f"refunded {amount:.2f} for {order_id}"


async def scripted(messages: list[dict[str, Any]], _tools: list[dict[str, Any]]) -> Any:
    """Stand in for a model: look the order up, refund it, and say what happened; after words, refund half."""
    told = [message["content"] for message in messages if message["role"] == "tool"]
    if not told:
        return [("order", {"order_id": "A-4721"})]
    if "was not run" in told[-1]:
        return [("refund", {"order_id": "A-4721", "amount": 160.0})]
    if len(told) == 1:
        return [("refund", {"order_id": "A-4721", "amount": 320.0})]
    return [("finish", {"answer": told[-1].splitlines()[-1]})]


def converse(agent: sayso.ReAct, question: str) -> None:
    """Call the agent until it has an answer or was refused one."""
    state = None
    while True:
        try:
            print(agent(question=question, resume_state=state).answer)
        except sayso.ConfirmationRequired as held:
            print(held.question)
            state = sayso.ResumeState(held, input("[yes, no, {new arguments}, or words] "))
        except sayso.ConfirmationRejected as no:
            print(f"not done: {no.message}")
            return
        else:
            return


if __name__ == "__main__":
    model = sys.argv[1] if len(sys.argv) > 1 else scripted
    converse(sayso.ReAct("question -> answer", [order, refund], model=model), "Refund order A-4721.")
