"""A tool of somebody else, known by its name and JSON Schema alone, waits for a person and runs once.

    python examples/hold_foreign_tool.py

It says which request waits; a second terminal decides, and what it changes must fit the tool's schema:

    sayso approve ID --set amount=80

Run it again: the call's key finds the request, and the stored result comes back. Nothing is refunded a second time.
"""

from typing import Any

import sayso

# What an MCP server or an OpenAPI document says of its tool. There is no Python function to decorate.
TOOL = "shop/refund"
SCHEMA = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "pattern": "^[A-Z]-[0-9]+$"},
        "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 500},
    },
    "required": ["order_id", "amount"],
    "additionalProperties": False,
}


def send(arguments: dict[str, Any]) -> str:
    """Stand in for the client that would send the call to the tool's server."""
    print("sent to the shop:", arguments)
    return f"refunded {arguments['amount']:.2f} for {arguments['order_id']}"


def main() -> None:
    """Hold the call that a model has just asked for, under the id that the model gave it."""
    call = sayso.hold(
        TOOL,
        {"order_id": "A-4721", "amount": 320.0},
        schema=SCHEMA,
        run="thread-1",
        key="call_9f2c",
        effect="refund:{order_id}",
        title="Refund for order {order_id}",
    )
    try:
        print(call.wait().once(send))
    except sayso.ConfirmationRejected as no:
        print("for the model:", no.message_for_model)


if __name__ == "__main__":
    main()
