"""An agent whose refunds wait for a person when they are large.

    python examples/agent_refund.py

The agent asks for two refunds in one turn. The small one passes by rule and is paid at once, the large one waits: the
run pauses, a person approves half of it, and the run goes on where it stood. Put `model="openai:gpt-5"` in place of the
script to let a model decide what it calls.
"""

import asyncio
from typing import Any

import sayso
from sayso.testing import ScriptedModel


def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"


def last_words(messages: list[dict[str, Any]]) -> str:
    """Stand in for what a model would say to the user."""
    told = [message["content"].splitlines()[-1] for message in messages if message["role"] == "tool"]
    return f"I {told[0]}, and {told[1]}."


calls = [("refund", {"order_id": "A-4721", "amount": 320.0}), ("refund", {"order_id": "A-4722", "amount": 15.0})]
agent = sayso.Agent(
    name="support",
    model=ScriptedModel([{"text": "Two orders, two refunds.", "calls": calls}, last_words]),
    tools=[
        sayso.Tool(
            refund,
            requires_approval=lambda amount: amount > 100,
            approval_prompt=lambda order_id, amount: f"Refund {amount:.2f} for {order_id}?",
        )
    ],
    store="memory:",
)


def decided_by_ada(waiting: dict[str, Any]) -> sayso.ApprovalResolution:
    """Stand in for a person, who sees the prompt and the arguments, and approves half of the amount."""
    print(f"waits: {waiting['prompt']}")
    half = {"amount": waiting["input"]["amount"] / 2}
    return sayso.ApprovalResolution(approved=True, approver_id="ada", comment="as goodwill", override_input=half)


async def main() -> None:
    """Run until the agent pauses, decide, and go on."""
    async for event in agent(prompt="Refund A-4721 and A-4722."):
        if isinstance(event, sayso.DeltaEvent):
            print(event.text, end="\n" if event.text.endswith(".") else "")
        elif isinstance(event, sayso.OutputEvent):
            print(f"{event.path}: {event.status.reason or event.output}")
            paused = event  # the last one is the agent's own

    decisions = {one["approval_id"]: decided_by_ada(one) for one in paused.metadata["pending_approvals"]}
    output = await agent(parent_id=paused.run_id, approval_decisions=decisions).collect()
    print(output.output)


if __name__ == "__main__":
    asyncio.run(main())
