"""An agent that pauses in one process and goes on in another.

    python examples/agent_durable.py

This starts two workers, one after the other, and approves what waits in between. By hand the same takes two terminals,
a day apart if you like; the second one approves:

    python examples/agent_durable.py ticket-17
    sayso ls
    sayso approve ID
    python examples/agent_durable.py ticket-17

A worker needs to know nothing but the run's id. What the model said and what its tools did is in the store: nothing
that has ended is done again, so the invoice is looked up once.
"""

import os
import subprocess
import sys
from typing import Any

import sayso
from sayso.testing import ScriptedModel


def find_invoice(order_id: str) -> dict[str, Any]:
    """Look an order's invoice up."""
    print("  looks the invoice up")
    return {"order_id": order_id, "amount": 320.0}


def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    print("  pays")
    return f"refunded {amount:.2f} for {order_id}"


script = ScriptedModel(
    [
        [("find_invoice", {"order_id": "A-4721"})],
        [("refund", {"order_id": "A-4721", "amount": 320.0})],
        lambda messages: messages[-1]["content"],
    ]
)
agent = sayso.Agent(name="support", model=script, tools=[find_invoice, sayso.Tool(refund, requires_approval=True)])


def work(run_id: str) -> None:
    """Begin a run, or go on with it: what is known by this id goes on."""
    output = agent(prompt="Refund order A-4721.", run_id=run_id).run()
    print(f"  {output.status.message or output.output}")


def main() -> None:
    """Be two workers, and the person between them."""
    run_id = f"ticket-{os.getpid()}"
    for worker in ("first", "second"):
        print(f"{worker} worker:", flush=True)
        subprocess.run([sys.executable, "-u", __file__, run_id], check=True)
        for waiting in sayso.load_run(run_id).pending_approvals():
            print(f"ada approves: {waiting['runnable_name']} {waiting['input']}")
            sayso.Review(reviewer="ada").approve(waiting["approval_id"])


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
