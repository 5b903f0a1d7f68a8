"""An agent that is another agent's tool: what waits inside surfaces outside.

    python examples/nested_agents.py

The front desk hands a case to the billing agent, whose refund needs a person. The whole run pauses, the request says by
its path where it comes from, and the reviewer's no reaches the billing agent, which finds another way.
"""

from typing import Any

import sayso
from sayso.testing import ScriptedModel


def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"


def voucher(order_id: str, amount: float) -> str:
    """Give a customer a voucher."""
    return f"a voucher of {amount:.2f} for {order_id}"


def told(messages: list[dict[str, Any]]) -> str:
    """Stand in for a model that passes on what it was told last."""
    return messages[-1]["content"]


billing = sayso.Agent(
    name="billing",
    description="Settles what customers are owed.",
    model=ScriptedModel(
        [
            [("refund", {"order_id": "A-4721", "amount": 320.0})],
            lambda messages: (
                [("voucher", {"order_id": "A-4721", "amount": 320.0})] if _is_no(messages) else "Refunded."
            ),
            told,
        ]
    ),
    tools=[sayso.Tool(refund, requires_approval=True), voucher],
)
desk = sayso.Agent(
    name="desk",
    model=ScriptedModel([[("billing", {"prompt": "Settle A-4721, the parcel was lost."})], told]),
    tools=[billing],
    store="memory:",
)


def _is_no(messages: list[dict[str, Any]]) -> bool:
    print(f"billing is told: {messages[-1]['content']}")
    return messages[-1]["is_error"]


def main() -> None:
    """Pause inside the inner agent, refuse, and go on."""
    paused = desk(prompt="My parcel A-4721 never came.").run()
    (waiting,) = paused.metadata["pending_approvals"]
    print(f"waits: {waiting['runnable_path']} {waiting['input']}")
    no = sayso.ApprovalResolution(approved=False, reason="vouchers only this month", approver_id="ada")
    output = desk(parent_id=paused.run_id, approval_decisions={waiting["approval_id"]: no}).run()
    print(f"desk says: {output.output}")
    print(f"counted: {output.usage['approvals:denied']} denied")


if __name__ == "__main__":
    main()
